"""Values that are implausibly far from the rest of their cell, as a fill value at a single time is.

A value is strange where both hold: its robust z-score (Iglewicz and Hoaglin, How to Detect and Handle
Outliers, 1993: the distance from the cell's median over 1.4826 times the median absolute deviation) passes
`FAR`, and it lies outside of all other values of its cell by more than `GAP` times their range. The second
lets skewed data be, such as rain, whose records follow each other. Cells that hardly change are measured by
the usual cell.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FAR = 20.0
GAP = 3.0
_USUAL = 500
"""Cells that say what is usual."""

_QUICK = 4.0
"""Standard deviations that a strange value is away from its cell's mean at least, in all but short series."""

_SHORT = 18
"""Times in a series in which no value can be so far away."""

_AT_ONCE = 2**22
"""Numbers that are looked at together."""


class Strange(NamedTuple):
    """A value that is implausibly far from the rest of its cell.

    Attributes:
        time: which map.
        row: of its cell.
        column: of its cell.
        value: itself.
        score: its robust z-score.
    """

    time: int
    row: int
    column: int
    value: float
    score: float


def _spread(cells: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Median and robust standard deviation of each column; NaN counts for nothing."""
    middle = np.nanmedian(cells, 0)
    return middle, 1.4826 * np.nanmedian(np.abs(cells - middle), 0)


def _extremes(
    cells: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Smallest and largest value of each column, and how far the farther is from the mean, in deviations."""
    low, high, middle = np.nanmin(cells, 0), np.nanmax(cells, 0), np.nanmean(cells, 0)
    return low, high, np.maximum(high - middle, middle - low) / np.nanstd(cells, 0)


def strangest(series: NDArray[np.float64]) -> Strange | None:
    """The value of a series ``(time, R, C)`` that is farthest from the rest of its cell, if it is too far."""
    cells = series.reshape(len(series), -1)
    with warnings.catch_warnings(), np.errstate(invalid="ignore", divide="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)  # land has neither mean nor median
        step = max(1, _AT_ONCE // len(cells))
        parts = [_extremes(cells[:, start : start + step]) for start in range(0, cells.shape[1], step)]
        low, high, away = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        known = np.flatnonzero(low < high)
        if not len(known):
            return None
        asked = known if len(cells) < _SHORT else known[away[known] > _QUICK]
        if not len(asked):
            return None
        usual = known[:: -(-len(known) // _USUAL)]
        scale, reach = np.median(_spread(cells[:, usual])[1]), np.median((high - low)[usual])
        found = cells[:, asked]
        middle, own = _spread(found)
        score = np.abs(found - middle) / np.maximum(own, scale / 2)
        far = score > FAR
        rest = np.where(far, np.nan, found)
        low, high = np.nanmin(rest, 0), np.nanmax(rest, 0)
        width = np.maximum(high - low, reach if reach > 0 else np.nanmax(high) - np.nanmin(low))
        beyond = np.maximum(low - found, found - high) > GAP * width
        score = np.where(far & beyond, score, 0.0)
    time, place = np.unravel_index(int(np.argmax(score)), score.shape)
    if score[time, place] == 0:
        return None
    row, column = divmod(int(asked[place]), series.shape[2])
    return Strange(int(time), row, column, float(found[time, place]), float(score[time, place]))
