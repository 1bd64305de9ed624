"""Counting and comparing pixels, row by row: what region scores spend their time on.

On a CPU, NumPy compares and converts seven times as fast as PyTorch does, and bytes are added up eight at a
time; both give the same bits as the plain way, which is what other devices take.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

_CHUNK = 1 << 20
"""Pixels worked on at once on a CPU, so that what is in between stays in its cache."""


def count(marks: Tensor) -> Tensor:
    """How many of each row of ``(N, P)`` bool are true: int64 ``(N,)``."""
    plain = marks.device.type != "cpu" or marks.shape[1] % 8 or not marks.is_contiguous()
    if plain or not len(marks):
        return marks.sum(1)
    words = marks.view(torch.int64)
    total = words.shape[1]
    # a byte holds sums up to 255, so no more words than that are added before they are taken apart
    group = _group(total)
    return words.reshape(len(words), total // group, group).sum(2).view(torch.uint8).sum(1)


def _group(total: int) -> int:
    """The largest number up to 255 that divides `total`."""
    return next(size for size in range(min(255, total), 0, -1) if total % size == 0)


def reaches(values: Tensor, level: Tensor) -> Tensor:
    """Where ``(N, P)`` values are at least their row's level ``(N, 1)``, in one and the same type."""
    if values.device.type != "cpu":
        return values >= level
    return torch.from_numpy(np.greater_equal(values.numpy(), level.numpy()))


def equals(values: Tensor, level: Tensor) -> Tensor:
    """Where ``(N, P)`` values are equal to their row's level ``(N, 1)``."""
    if values.device.type != "cpu":
        return values == level
    return torch.from_numpy(np.equal(values.numpy(), level.numpy()))


def inside(values: Tensor, marks: Tensor) -> Tensor:
    """The sum of the ``(N, P)`` values that are marked: ``(N,)``."""
    if values.device.type != "cpu":
        return (values * marks).sum(1)
    # without a copy in between; short sums first, which keep their digits
    pieces = (len(values), -1, _group(values.shape[1])) if len(values) else (0, 1, values.shape[1])
    parts = np.einsum("ngp,ngp->ng", values.numpy().reshape(pieces), marks.numpy().reshape(pieces))
    return torch.from_numpy(parts).sum(1)


def rounded_up(levels: Tensor, dtype: torch.dtype) -> Tensor:
    """The smallest numbers of a type that are not below float64 levels, so that comparisons stay exact."""
    near = levels.to(dtype)
    return torch.where(near < levels, torch.nextafter(near, torch.full_like(near, torch.inf)), near)


def chunks(rows: Tensor) -> Iterator[slice]:
    """Parts of ``(N, ...)`` that are worked on at once; all of it where there is no cache to fit into."""
    size = len(rows) if rows.device.type != "cpu" else _CHUNK // max(1, rows.shape[1:].numel())
    for first in range(0, len(rows), max(1, size)):
        yield slice(first, first + max(1, size))
