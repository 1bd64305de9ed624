"""How many rows fit into one pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")

Visit = Callable[[slice, slice], Tensor]
"""(samples, points) -> the sum over these points of these samples ``(n, ...)``."""

BUDGET = 2**22
"""Input numbers in one pass: 341 pictures of 64 x 64, 27 of 224 x 224."""


def rows_within_budget(sample: Tensor, budget: int = BUDGET) -> int:
    """How many copies of one sample make a pass."""
    return max(1, min(512, budget // max(1, sample.numel())))


def with_halving(function: Callable[[int], T], rows: int) -> T:
    """Call `function` with fewer and fewer rows a pass until it fits into memory."""
    while True:
        try:
            return function(rows)
        except torch.OutOfMemoryError:
            if rows == 1:
                raise
            torch.cuda.empty_cache()
            rows //= 2


def accumulate(like: Tensor, count: int, visit: Visit, rows: int) -> Tensor:
    """The sum over `count` points of each sample: shape of `like`.

    Samples and points are cut into passes of about `rows` rows. A sample's sum runs over its own points in a
    fixed order, so it does not depend on the samples beside it.
    """

    def compute(limit: int) -> Tensor:
        total = torch.zeros_like(like)
        together = max(1, limit // count)
        step = min(limit, count)
        for first in range(0, len(like), together):
            some = slice(first, min(first + together, len(like)))
            for start in range(0, count, step):
                total[some] += visit(some, slice(start, min(start + step, count)))
        return total

    return with_halving(compute, rows)
