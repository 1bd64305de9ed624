"""From a monthly series to a field, by pure functions on ``(time, R, C)``: anomalies, trend, correlations.

The order of steps is that of Mamalakis et al. (2022), doi 10.1017/eds.2022.7. Every step works on each point
by itself, so that taking every tenth point first gives the same numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from verax.errors import InvalidInput, InvalidParameter

Maps = NDArray[np.float64]
COARSENINGS = ("points", "means")


def anomalies(series: Maps, months: NDArray[Any]) -> Maps:
    """Subtract from each value the mean of its calendar month over all years."""
    out = np.full_like(series, np.nan)  # a month that is none leaves no number
    for month in np.unique(months):
        here = months == month
        out[here] = series[here] - series[here].mean(0)
    return out


def detrend(series: Maps, times: NDArray[Any] | None = None) -> Maps:
    """Subtract the least-squares line over the whole series from each point; the mean goes with it.

    Args:
        series: ``(time, ...)``.
        times: when each map was; by default they follow one another evenly.
    """
    time = np.asarray(np.arange(len(series)) if times is None else times, dtype=np.float64)
    time = time - time.mean()
    centred = series - series.mean(0)
    slope = np.tensordot(time, centred, (0, 0)) / (time @ time or 1.0)  # no line through one time
    return np.asarray(centred - time[(slice(None), *[None] * slope.ndim)] * slope)


def prepare(
    series: Maps, months: NDArray[Any] | None, times: NDArray[Any] | None = None
) -> tuple[Maps, NDArray[np.bool_]]:
    """Standardised series, and where that is impossible because nothing is left of them.

    Args:
        series: ``(time, ...)`` without missing values.
        months: the calendar month of each time; None for samples that have no order.
        times: when each was, where they do not follow one another evenly.
    """
    left = series - series.mean(0) if months is None else detrend(anomalies(series, months), times)
    spread = left.std(0, ddof=1)
    flat = spread <= 1e-9 * np.abs(series).max(0)  # round-off, not variation
    return np.asarray(left / np.where(flat, np.inf, spread)), flat


def correlations(cells: NDArray[np.float64]) -> NDArray[np.float64]:
    """``(D, D)`` Pearson correlations of standardised series ``(time, D)``."""
    return np.asarray(cells.T @ cells / (len(cells) - 1))


def check_step(step: int) -> None:
    """Refuse what is no number of points."""
    if not isinstance(step, int) or isinstance(step, bool) or step < 1:
        raise InvalidParameter(f"Coarsening takes every so-many points, 1 or more, not {step!r}.")


def coarsen(
    series: Maps, step: int, how: str = "points", share: float = 0.5
) -> tuple[Maps, NDArray[np.int64], NDArray[np.int64]]:
    """Fewer points, and the first row and column of each.

    Args:
        series: ``(time, R, C)`` with NaN on land.
        step: every how many rows and columns there is a point.
        how: ``points`` takes the first point of each block, as published; ``means`` averages what is ocean.
        share: under ``means``, a block is ocean when more than this share of it is.
    """
    check_step(step)
    if how not in COARSENINGS:
        raise InvalidParameter(f"Coarsening is by {' or '.join(COARSENINGS)}, not {how!r}.")
    rows, columns = (np.arange(0, size, step) for size in series.shape[1:])
    if how == "points":
        return series[:, ::step, ::step], rows, columns
    if not 0 <= share < 1:
        raise InvalidParameter(f"The share of ocean in a block is from 0 to below 1, not {share!r}.")
    wet = np.asarray(np.isfinite(series).all(0))

    def blocks(maps: NDArray[Any]) -> Maps:
        return np.add.reduceat(np.add.reduceat(maps, rows, -2), columns, -1)

    count = blocks(wet.astype(np.float64))
    area = blocks(np.ones(wet.shape))
    total = blocks(np.nan_to_num(series) * wet)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(count > share * area, total / count, np.nan), rows, columns


def check_values(series: Maps, what: str) -> None:
    """Refuse fill values that were not recognised as missing."""
    with np.errstate(invalid="ignore"):
        wrong = np.abs(series) > 500
    if wrong.any():
        worst = series.flat[int(np.argmax(wrong))]
        raise InvalidInput(
            f"{what} has values beyond 500 such as {worst:.6g}: mark missing values as NaN, and check "
            "the units."
        )
