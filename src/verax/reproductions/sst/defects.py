"""Defects of the Python re-implementation that can be checked by running them.

Each function does what was described about the code, in its own words, on our data and functions, and
measures the effect. Nothing here is used by the benchmark itself.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from verax.metrics import agreement
from verax.metrics.superpixels import patch_sums
from verax.tasks.climate import Grid, LocalFunctions, cobe
from verax.tasks.climate import preprocessing as steps

Floats = NDArray[np.float64]


def sea(name: str = "cobe-sst2") -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The monthly series ``(time, points)`` of all points that always have a value, and their months."""
    series, about = cobe.read(cobe.extract_path(name), cobe.VARIABLES[name])
    with np.errstate(invalid="ignore"):
        series[np.abs(series) > 500] = np.nan
    wet = np.isfinite(series).all(0)
    return series[:, wet].astype(np.float32), about["months"].astype(np.int64)


def seasonal_share(anomalies: Floats, months: NDArray[np.int64]) -> float:
    """The share of variance that the mean seasonal cycle has, mean over points that vary."""
    total = anomalies.var(0)
    cycle = np.stack([anomalies[months == month].mean(0) for month in np.unique(months)])
    moving = total > 1e-9
    return float((cycle.var(0)[moving] / total[moving]).mean())


def seasons() -> tuple[float, float]:
    """Share of the seasonal cycle that is left by monthly means of all years, and by those of every 12th.

    The defect takes every twelfth month of what is every twelfth month already, so that a monthly mean
    comes from about six years instead of seventy.
    """
    sst, months = sea()
    series = sst.astype(np.float64)
    twice = np.empty_like(series)
    for place in range(12):
        own = series[place::12]
        twice[place::12] = own - own[place::12].mean(0)
    right = steps.detrend(steps.anomalies(series, months))
    return seasonal_share(right, months), seasonal_share(steps.detrend(twice), months)


def constant_cells() -> dict[str, float]:
    """The covariance matrix with constant cells left in: points, rank, eigenvalue, correlation of the two.

    A least-squares line leaves round-off errors on a constant, which are then divided by their own spread.
    """
    sst, months = sea()
    fixed = np.ptp(sst, axis=0) == 0
    series = sst.astype(np.float64)
    line = np.stack([np.arange(len(series)), np.ones(len(series))], 1)
    left = steps.anomalies(series - line @ np.linalg.lstsq(line, series, rcond=None)[0], months)
    scaled = left / left.std(0, ddof=1)
    matrix = np.cov(scaled.T)
    roots = np.linalg.eigvalsh(matrix)
    twins = matrix[np.ix_(fixed, fixed)]
    return {
        "points": float(sst.shape[1]),
        "constant": float(fixed.sum()),
        "rank": float((roots > 1e-9 * roots[-1]).sum()),
        "smallest": float(roots[0]),
        "together": float(twins[0, -1]),
    }


def walked(function: LocalFunctions, x: Tensor, *, outwards: bool) -> Tensor:
    """C(x) summed piece by piece from 0; `outwards` counts every length as positive, which is the defect."""
    knots, slopes = function.knots.double(), function.slopes.double() * function.scale
    x = x.double()
    edges = torch.cat(
        [torch.full_like(knots[:, :1], -torch.inf), knots, torch.full_like(knots[:, :1], torch.inf)], 1
    )
    total = torch.zeros_like(x)
    for piece in range(slopes.shape[1]):
        low, high = edges[:, piece], edges[:, piece + 1]
        above = (torch.minimum(x, high) - low.clamp(min=0)).clamp(min=0)  # what is covered right of 0
        below = (high.clamp(max=0) - torch.maximum(x, low)).clamp(min=0)  # and left of it
        total += slopes[:, piece] * (above + below if outwards else above - below)
    return total


def signs(function: LocalFunctions, x: Tensor) -> dict[str, float]:
    """The defect of signs: correlation of attributions with the right ones, below 0 and above, and in all."""
    right, wrong = function.values(x).double(), walked(function, x, outwards=True)
    plain = walked(function, x, outwards=False)

    def together(where: Tensor) -> float:
        return float(torch.corrcoef(torch.stack([right[where], wrong[where]]))[0, 1])

    return {
        "check": float((plain - right).abs().max() / right.abs().max()),
        "below": together(x < 0),
        "above": together(x > 0),
        "maps": float(agreement.pearson(wrong, right).mean()),
    }


def patches(grid: Grid, maps: Tensor, truth: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Correlations of patch sums: every patch once, and every point of the grid with land as 0."""
    numbers = grid.patches(size)
    sums = [patch_sums(values, numbers) for values in (maps, truth)]
    once = agreement.pearson(*sums)
    rows, columns = grid.shape
    place = grid.cells[:, 0] * columns + grid.cells[:, 1]
    spread = []
    for values in sums:
        full = torch.zeros(len(values), rows * columns, dtype=torch.float64)
        full[:, place] = values[:, numbers]
        spread.append(full)
    return once, agreement.pearson(*spread)


def by_importance(maps: Tensor) -> Tensor:
    """Maps with their values in the order of importance instead of that of the cells."""
    order = maps.abs().argsort(1, descending=True)
    return maps.gather(1, order)


def first_of_list(text: str) -> list[str]:
    """What an option parser sees of ``--layers A,B,C`` once commas were turned into blanks: the first."""
    return text.replace(",", " ").split()[:1]
