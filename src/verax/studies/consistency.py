"""Consistency: do networks that were trained alike get the same explanations?

Where inputs are correlated, networks that predict equally well may work differently, and their explanations
with them (Krell et al., Environmental Data Science 2025). Read beside the agreement with the truth: maps that
are alike may be alike in what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import pandas as pd
import torch
from torch import Tensor

from verax.correlations import correlation
from verax.studies.entries import Result
from verax.studies.plan import Plan

COLUMNS = ["task", "network", "method", "pairs", "samples", "value", "lowest", "highest"]


def between(maps: list[Tensor]) -> list[float]:
    """For each pair of networks, the mean correlation of their maps ``(N, D)`` of the same samples."""
    return [
        float(correlation(a.double(), b.double()).nan_to_num(0.0).mean()) for a, b in combinations(maps, 2)
    ]


def table(plan: Plan, results: Mapping[str, Result]) -> pd.DataFrame:
    """One row for each task, network and method with several trainings; value is the mean of all pairs."""
    found: dict[tuple[str, str, str], list[Tensor]] = {}
    for cell in plan.cells:
        if cell.method is None or cell.key not in results or cell.method.model_free:
            continue
        maps = results[cell.key].maps["maps"]
        if maps.ndim == 2:  # vectors; of pictures only one for each bucket is kept
            key = (cell.subject.task.name, cell.subject.network, cell.label)
            found.setdefault(key, []).append(torch.as_tensor(maps))
    rows = []
    for key, several in found.items():
        if len(several) > 1:
            values = between(several)
            mean = sum(values) / len(values)
            rows.append((*key, len(values), len(several[0]), mean, min(values), max(values)))
    return pd.DataFrame(rows, columns=COLUMNS)
