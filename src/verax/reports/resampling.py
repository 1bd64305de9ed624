"""Intervals of what pages work out themselves: bootstraps of means, and differences of means."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from verax import seeding
from verax.studies.statistics import REPLICATES, interval

Floats = NDArray[np.float64]
_CELLS = 1 << 22


def bootstrap(
    values: Floats, of: Callable[[Floats], Floats] = lambda means: means[..., 0]
) -> tuple[float, float]:
    """The 95 % interval of a function of column means ``(..., columns)``; rows are drawn with replacement.

    Args:
        values: ``(rows, columns)`` without gaps.
        of: the function; the mean of the first column where nothing is said.
    """
    count = len(values)
    if count < 2:
        return math.nan, math.nan
    generator = np.random.default_rng(seeding.key("page", count) & 0xFFFFFFFFFFFFFFFF)
    step = max(1, _CELLS // count)
    means = [
        generator.multinomial(count, np.full(count, 1 / count), size=min(step, REPLICATES - first)) @ values
        for first in range(0, REPLICATES, step)
    ]
    with np.errstate(invalid="ignore", divide="ignore"):
        drawn, point = of(np.concatenate(means) / count), of(values.mean(0))
    # a bootstrap of n numbers is too narrow by sqrt((n - 1) / n)
    low, high = interval(point + (drawn - point) * math.sqrt(count / (count - 1)))
    return float(low), float(high)


def difference(first: tuple[float, float, float], second: tuple[float, float, float]) -> tuple[float, float]:
    """The interval of second minus first, each (value, low, high) of samples of its own.

    From the intervals of both (Zou and Donner, Statistics in Medicine 2008), which need not be symmetric.
    """
    change = second[0] - first[0]
    below = math.hypot(second[0] - second[1], first[2] - first[0])
    above = math.hypot(second[2] - second[0], first[0] - first[1])
    return change - below, change + above
