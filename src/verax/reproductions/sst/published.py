"""What the published network does on draws from the field, and what all methods say about it.

Its function F was never published, so that there is no truth to hold maps against. What can be said is how
far methods agree with each other, whether their maps add up to what they promise, and whether the sum of a
map has the sign of the output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from verax import methods, progress
from verax.errors import MethodFailed, UnsupportedOperation
from verax.methods.base import METHODS
from verax.methods.completeness import completeness_error
from verax.metrics import agreement
from verax.networks import fits
from verax.networks.inference import outputs
from verax.networks.library import weights_hash
from verax.networks.linear import Moments
from verax.reproductions.sst.catalogue import INTEGRATED, LRP_Z, PRODUCT
from verax.reproductions.sst.keras import Published
from verax.studies.entries import Result
from verax.studies.execution import task_references, training_inputs
from verax.studies.spec import MethodSpec
from verax.studies.store import Store
from verax.studies.units import code_digest, content_hash
from verax.tasks.climate import Climate, Samples

_BATCH = 4096
NOTEBOOK_MSE, NOTEBOOK_MAE, EPOCH = 8.825e-5, 0.007453, 28_125
"""Of the authors' notebook: test errors, and the steps of an epoch (900,000 samples in batches of 32)."""


@dataclass(frozen=True)
class Behaviour:
    """The outputs of the published network on draws from the field.

    Attributes:
        draws: how many samples.
        mean: of its outputs.
        variance: of its outputs.
        lowest: output.
        highest: output.
        positive: share of outputs above 0.
        at_zero: its output where all cells are 0.
        bias_free: R2 of least squares without an intercept, and its interval.
        intercept: R2 of least squares with one, and its interval.
        mse: of the bias-free fit.
        steps: of its optimiser.
        weights: how many it has.
        share: of variance that it explains, from the error in the authors' notebook and this variance.
    """

    draws: int
    mean: float
    variance: float
    lowest: float
    highest: float
    positive: float
    at_zero: float
    bias_free: tuple[float, float, float]
    intercept: tuple[float, float, float]
    mse: float
    steps: int | None
    weights: int
    share: tuple[float, float, float]

    def rows(self) -> list[tuple[str, float]]:
        """Name and value of each number."""
        plain = {k: v for k, v in asdict(self).items() if v is not None}
        return [(k, float(v[0] if isinstance(v, tuple) else v)) for k, v in plain.items()]


@dataclass(frozen=True, eq=False)
class _Answers:
    """Draws with what a network answers in place of the function."""

    samples: Samples
    model: nn.Module

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def chunks(self) -> int:
        return self.samples.chunks

    def chunk(self, index: int, device: str | torch.device = "cpu") -> tuple[Tensor, Tensor]:
        x = self.samples.inputs(self.samples.ids(index, device))
        return x, outputs(self.model, x, _BATCH)[:, 0]


def behaviour(found: Published, task: Climate, draws: int, device: torch.device) -> Behaviour:
    """Measure the network on `draws` samples of the field; linear fits are to its outputs."""
    model = found.model.to(device)
    answers = _Answers(task.drawn("test", draws), model)
    moments = Moments.of(answers, device)
    lines = [moments.solve(intercept=word) for word in (False, True)]
    right, given = [], []
    for index in range(answers.chunks):
        x, y = answers.chunk(index, device)
        right.append(y)
        given.append([x.double() @ weight + offset for weight, offset in lines])
    y = torch.cat(right).double().cpu()
    free, full = (torch.cat([part[k] for part in given]).cpu() for k in (0, 1))
    rng = np.random.default_rng(0)
    values = y.numpy()
    replicates = [float(values[rng.integers(0, draws, draws)].var()) for _ in range(200)]
    low, high = np.quantile(replicates, [0.025, 0.975])
    zero = torch.zeros(1, task.features, device=device)
    return Behaviour(
        draws,
        float(y.mean()),
        float(y.var()),
        float(y.min()),
        float(y.max()),
        float((y > 0).double().mean()),
        float(outputs(model, zero, 1)[0, 0]),
        fits.r_squared(y, free),
        fits.r_squared(y, full),
        float((y - free).square().mean()),
        found.steps,
        sum(p.numel() for p in model.parameters()),
        (1 - NOTEBOOK_MSE / float(y.var()), 1 - NOTEBOOK_MSE / float(low), 1 - NOTEBOOK_MSE / float(high)),
    )


@dataclass(frozen=True, eq=False)
class Maps:
    """What methods say about the published network.

    Attributes:
        table: method, gap (median completeness error), sign (share of samples whose map sums to the sign of
            the output), with_integrated (mean correlation with integrated gradients).
        between: mean correlation over samples of the maps of two methods.
        identical: the largest difference between LRP-z and input x gradient, relative to the largest value.
        failures: method and reason.
    """

    table: pd.DataFrame
    between: pd.DataFrame
    identical: float
    failures: tuple[tuple[str, str], ...]


def _settings(spec: MethodSpec, task: Climate, device: torch.device) -> dict[str, Any]:
    found = METHODS.get(spec.name).settings(spec.parameters)
    count = task_references(found.get("references")) if "references" in found else None
    if count is not None:
        found["references"] = training_inputs(task, count, 0, device)
    return found


def _one(model: nn.Module, task: Climate, spec: MethodSpec, count: int, device: torch.device) -> Result:
    """Maps and completeness of one method."""
    cases = task.cases(n=count, seed=0, device=device)
    settings = _settings(spec, task, device)
    method = METHODS.get(spec.name)
    batch = 1024 if device.type == "cuda" else 64
    maps = methods.explain(
        model, cases.inputs, cases.targets, method, ids=cases.ids, settings=settings, batch_size=batch
    )
    gap = completeness_error(method, model, cases.inputs, cases.targets, maps, settings, ids=cases.ids)
    return Result(
        {}, {"maps": maps.cpu()}, {"gap": None if gap is None else float(gap.median()), "samples": count}
    )


def explained(
    found: Published,
    task: Climate,
    specs: Sequence[MethodSpec],
    count: int,
    device: torch.device,
    store: Store,
    quiet: bool = False,
) -> Maps:
    """Run all methods on `count` samples; what is in the store already is not computed again."""
    model = found.model.to(device)
    about = {
        "published network": weights_hash(model),
        "field": task.field.digest,
        "samples": count,
        "code": code_digest(),
        "torch": ".".join(torch.__version__.split(".")[:2]),
    }
    kept: dict[str, Result] = {}
    failures = []
    with progress.bar(hidden=quiet) as bar:
        row = bar.add_task("published network", total=len(specs))
        for spec in specs:
            bar.update(row, description=f"published network {spec.label}")
            key = content_hash({**about, "method": spec.model_dump()})
            result = store.read(key)
            if result is None or "maps" not in result.maps:
                try:
                    result = _one(model, task, spec, count, device)
                except (MethodFailed, UnsupportedOperation) as error:
                    failures.append((spec.label, str(error)))
                    result = None
                else:
                    store.write(key, result)
            if result is not None:
                kept[spec.label] = result
            bar.advance(row)
    given = outputs(model, task.cases(n=count, seed=0, device=device).inputs, _BATCH)[:, 0].cpu()
    return _compare(kept, given, tuple(failures))


def _compare(kept: dict[str, Result], given: Tensor, failures: tuple[tuple[str, str], ...]) -> Maps:
    maps = {label: result.maps["maps"] for label, result in kept.items()}
    between = pd.DataFrame(np.eye(len(maps)), index=list(maps), columns=list(maps))
    for a, b in combinations(maps, 2):
        between.loc[a, b] = between.loc[b, a] = float(agreement.pearson(maps[a], maps[b]).nanmean())
    rows = []
    for label, values in maps.items():
        same = (values.double().sum(1).sign() == given.sign()).double().mean()
        near = float(between.loc[label, INTEGRATED]) if INTEGRATED in maps else float("nan")
        rows.append((label, kept[label].info["gap"], float(same), near))
    table = pd.DataFrame(rows, columns=["method", "gap", "sign", "with_integrated"])
    return Maps(table, between, apart(maps.get(LRP_Z), maps.get(PRODUCT)), failures)


def apart(a: Tensor | None, b: Tensor | None) -> float:
    """The largest difference of two sets of maps, relative to the largest magnitude; NaN where one lacks."""
    if a is None or b is None:
        return float("nan")
    return float((a - b).abs().max() / b.abs().max())
