"""Single values that are implausibly far from the rest of their cell, as a fill value at one time is.

A value is strange where both hold: its robust z-score (Iglewicz and Hoaglin, How to Detect and Handle
Outliers, 1993: the distance from the cell's median over 1.4826 times the median absolute deviation) passes
`FAR`, and it lies beyond all other values of its cell by more than `GAP` times their range. The second lets
skewed data be, such as rain, whose records follow each other; two such values in a cell pass.
Cells that hardly change are measured by the usual cell. Rare events look the same, so that it is a reason to
look, not to refuse.
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

_QUICK, _SHORT = 3.0, 24
"""Standard deviations that a strange value is away from its cell's mean at least, from so many values on."""

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


def _extremes(cells: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of each column: the two smallest and the two largest values ``(4, C)``; NaN counts for nothing."""
    missing = np.isnan(cells)
    low = np.partition(np.where(missing, np.inf, cells), 1, axis=0)[:2]
    high = np.partition(np.where(missing, -np.inf, cells), -2, axis=0)[-2:]
    return np.concatenate([low, high])


def _asked(cells: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Columns that may hold a strange value: the others need no sorting."""
    away = np.maximum(np.nanmax(cells, 0) - np.nanmean(cells, 0), np.nanmean(cells, 0) - np.nanmin(cells, 0))
    count: NDArray[np.int64] = np.isfinite(cells).sum(0)
    found: NDArray[np.bool_] = (count > 2) & ((count < _SHORT) | (away > _QUICK * np.nanstd(cells, 0)))
    return found


def strangest(series: NDArray[np.float64]) -> Strange | None:
    """The value of a series ``(time, R, C)`` that is farthest from the rest of its cell, if it is too far."""
    cells = series.reshape(len(series), -1)
    with warnings.catch_warnings(), np.errstate(invalid="ignore", divide="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)  # land has neither mean nor median
        step = max(1, _AT_ONCE // len(cells))
        parts = [_asked(cells[:, start : start + step]) for start in range(0, cells.shape[1], step)]
        asked = np.flatnonzero(np.concatenate(parts))
        ranges = np.nanmax(cells, 0) - np.nanmin(cells, 0)
        known = np.flatnonzero(ranges > 0)
        if not len(asked) or not len(known):
            return None
        usual = known[:: -(-len(known) // _USUAL)]
        scale, reach = np.median(_spread(cells[:, usual])[1]), np.median(ranges[usual])
        found = cells[:, asked]
        least, low, high, most = _extremes(found)
        middle, own = _spread(found)
        unit = np.maximum(own, scale / 2)
        up = most - middle >= middle - least
        value = np.where(up, most, least)
        gap = np.where(up, most - high, low - least)
        rest = np.maximum(np.where(up, high - least, most - low), reach)
        score = np.abs(value - middle) / np.where(unit > 0, unit, rest)
        score = np.where((score > FAR) & (gap > GAP * rest), score, 0.0)
    place = int(np.argmax(score))
    if score[place] == 0:
        return None
    row, column = divmod(int(asked[place]), series.shape[2])
    time = int(np.flatnonzero(found[:, place] == value[place])[0])
    return Strange(time, row, column, float(value[place]), float(score[place]))
