"""How many rows fit into one pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")

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
