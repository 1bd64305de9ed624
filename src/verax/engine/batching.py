"""How many rows fit into one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import torch
from torch import Tensor

from verax.devices import cached_rows

T = TypeVar("T")

Visit = Callable[[slice, slice], Tensor]
"""(samples, points) -> the sum over these points of these samples ``(n, ...)``."""

BUDGET = 2**22
"""Input numbers that a pass may have in memory: 341 pictures of 64 x 64, 27 of 224 x 224."""


GPU = 8
"""How many times as much a GPU gets: it waits for launches, not for arithmetic."""


def rows_within_budget(sample: Tensor, budget: int = BUDGET) -> int:
    """How many copies of one sample make a pass: within the memory budget, on a CPU also within its cache."""
    numbers = max(1, sample.numel())
    if sample.is_cuda:
        return max(1, min(512 * GPU, budget * GPU // numbers))
    return max(1, min(512, budget // numbers, cached_rows(sample)))


def budget_on(inputs: Tensor) -> int:
    """Numbers that may be kept at once where `inputs` are."""
    return BUDGET * (GPU if inputs.is_cuda else 1)


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


def blocks(samples: int, draws: int, rows: int) -> Iterator[tuple[slice, slice]]:
    """Pieces of a table (samples, draws) of at most `rows` entries, in order.

    A sample's draws are cut at the same places whatever samples lie beside it, so that sums over them
    do not depend on the batch.
    """
    together, step = max(1, rows // max(1, draws)), max(1, min(rows, draws))
    for first in range(0, samples, together):
        some = slice(first, min(first + together, samples))
        for start in range(0, draws, step):
            yield some, slice(start, min(start + step, draws))


def in_parts(
    samples: int, numbers: int, function: Callable[[slice], Tensor], budget: int | None = None
) -> Tensor:
    """Join ``function(part)`` over parts of the samples, so that memory does not grow with their number.

    Args:
        samples: how many there are.
        numbers: how many numbers `function` keeps for one sample.
        function: gives the rows of some samples.
        budget: numbers kept at once (default: `BUDGET`).
    """
    step = max(1, (budget or BUDGET) // max(1, numbers))
    return torch.cat([function(slice(k, min(k + step, samples))) for k in range(0, samples, step)])


def accumulate(like: Tensor, count: int, visit: Visit, rows: int) -> Tensor:
    """The sum over `count` points of each sample: shape of `like`; `visit` gives the sums of one block."""

    def compute(limit: int) -> Tensor:
        total = torch.zeros_like(like)
        for some, part in blocks(len(like), count, limit):
            total[some] += visit(some, part)
        return total

    return with_halving(compute, rows)
