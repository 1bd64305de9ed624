"""Many random functions: what one of them says about a benchmark, without any network.

The paper draws one F. How linear it is, where its outputs lie, and how the gradient of F itself correlates
with the truth differ from draw to draw; so do the scores that a benchmark built on it reports.
"""

from __future__ import annotations

import pandas as pd
import torch
from torch import Tensor

from verax.correlations import correlation
from verax.networks.linear import Moments
from verax.tasks.climate import Kept, LocalFunctions
from verax.tasks.climate.task import Climate

FITTED, TESTED, SCORED = 20_000, 10_000, 500


def _share(y: Tensor, given: Tensor) -> float:
    return float(1 - (y - given).square().mean() / y.var(correction=0))


def functions(task: Climate, count: int) -> pd.DataFrame:
    """One row for each F: mean and variance of y, linear R2 with and without intercept, r on F itself."""
    samples = task.drawn("test", FITTED + TESTED)
    x = samples.inputs(torch.arange(FITTED + TESTED))
    train, test = x[:FITTED], x[FITTED:].double()
    some = x[FITTED : FITTED + SCORED]
    rows = []
    for seed in range(count):
        made = LocalFunctions.draw(task.source, task.breaks, seed)
        y = made.total(x).double()
        moments = Moments.of(Kept(train, y[:FITTED].float()))
        found = {}
        for word, intercept in (("linear", True), ("linear_free", False)):
            weight, offset = moments.solve(intercept=intercept)
            found[word] = _share(y[FITTED:], test @ weight + offset)
        slope, truth = made.slope(some).double(), made.values(some).double()
        rows.append(
            {
                "function": seed,
                "mean": float(y.mean()),
                "variance": float(y.var()),
                **found,
                "gradient": float(correlation(slope, truth).mean()),
                "product": float(correlation(slope * some, truth).mean()),
            }
        )
    return pd.DataFrame(rows)
