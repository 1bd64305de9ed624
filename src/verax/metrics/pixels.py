"""Counting, comparing and adding up pixels, row by row: what region scores spend their time on.

On a CPU this is NumPy's work: it compares, converts and finds maxima several times as fast as PyTorch does,
and regions are packed into bits, of which 64 are counted at a time. Counts and comparisons are exact either
way; other devices take the plain way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_CHUNK = 1 << 18
"""Pixels worked on at once on a CPU, so that what is in between stays in its cache."""
_PIECE = 4096
"""Values that are added up in their own type before float64 goes on, which keeps the digits of long sums."""
_BUFFER = 1024
Rows = Callable[[slice], Tensor]
_CODES = {torch.float32: (np.uint32, 0x7F800000), torch.float64: (np.uint64, 0x7FF0000000000000)}
"""Type -> the type that shows its bits, and the bits of infinity."""


@dataclass(frozen=True)
class Compared:
    """What rows of values and of marks have in common: ``(N,)`` each.

    Attributes:
        both: pixels that are marked and shown; int64.
        marked: pixels that are marked.
        shown: pixels that are shown.
        inside: the sum of the weights of marked pixels; float64.
        whole: the sum of all weights.
    """

    both: Tensor
    marked: Tensor
    shown: Tensor
    inside: Tensor
    whole: Tensor


def compare(marks: Tensor, shown: Rows | None, weights: Rows, whole: Tensor | None = None) -> Compared:
    """Count and add up, part by part, while a part is in the cache.

    Args:
        marks: ``(N, P)`` bool.
        shown: gives some rows of the region that is compared with them: bool; None: the marks themselves.
        weights: gives some rows of numbers.
        whole: their sums ``(N,)``, where they are known.
    """
    count, width = marks.shape
    if marks.device.type != "cpu":
        every = slice(0, count)
        region, values = marks if shown is None else shown(every), weights(every)
        inside = (values * marks).sum(1).double()
        whole = values.sum(1).double() if whole is None else whole
        return Compared((region & marks).sum(1), marks.sum(1), region.sum(1), inside, whole)
    masks = marks.numpy()
    length = _length(width)
    numbers = np.empty((3, count), np.int64)
    sums_ = np.zeros((2, count, width // length))
    for part in chunks(marks):
        own = masks[part]
        bits = _packed(own)
        if shown is None:
            numbers[:, part] = np.bitwise_count(bits).sum(1, dtype=np.int64)
        else:
            others = _packed(shown(part).numpy())
            for row, words in enumerate((bits & others, bits, others)):
                np.bitwise_count(words).sum(1, out=numbers[row, part])
        heavy: NDArray[Any] = weights(part).numpy()
        pieces = heavy.reshape(len(own), -1, length)
        floats = own.view(np.uint8).astype(heavy.dtype).reshape(pieces.shape)
        sums_[0, part] = np.vecdot(pieces, floats)
        if whole is None:
            sums_[1, part] = np.vecdot(pieces, np.ones(length, heavy.dtype))
    inside, summed = torch.from_numpy(sums_.sum(2))
    both, marked, seen = torch.from_numpy(numbers)
    return Compared(both, marked, seen, inside, summed if whole is None else whole)


def _packed(marks: NDArray[np.bool_]) -> NDArray[np.unsignedinteger[Any]]:
    """Rows of bool as bits of numbers."""
    bits = np.packbits(marks, axis=1)
    word = next(size for size in (8, 4, 2, 1) if bits.shape[1] % size == 0)
    return bits.view(f"u{word}")


def count(marks: Tensor) -> Tensor:
    """How many of each row of ``(N, P)`` bool are true: int64 ``(N,)``."""
    if marks.device.type != "cpu":
        return marks.sum(1)
    return torch.from_numpy(np.bitwise_count(_packed(marks.numpy())).sum(1, dtype=np.int64))


def ordered(values: Tensor) -> Tensor:
    """Rows ``(N, P)`` from the smallest value to the largest."""
    if values.device.type != "cpu":
        return values.sort(dim=1).values
    return torch.from_numpy(np.sort(values.numpy(), axis=1))


def largest(values: Tensor, count: int) -> Tensor:
    """The `count` largest numbers of rows ``(N, P)``, largest first; NaN has no place among them."""
    if values.device.type != "cpu":
        return values.topk(count, dim=1).values
    return _from_ordered(values, slice(-1, -count - 1, -1), count)


def placed(values: Tensor, places: Sequence[int]) -> Tensor:
    """What stands at some places of rows ``(N, P)`` that are ordered from the smallest: ``(N, places)``."""
    if values.device.type != "cpu":
        return values.sort(dim=1).values[:, list(places)]
    return _from_ordered(values, list(places), len(places))


def _from_ordered(values: Tensor, places: slice | list[int], count: int) -> Tensor:
    """Some places of ordered rows, part by part.

    NumPy orders a whole row faster than it or PyTorch finds a place in it: the many zeros of a map are what
    partitions by value cannot cope with.
    """
    rows = values.numpy()
    found = np.empty((len(rows), count), rows.dtype)
    for part in chunks(values):
        found[part] = np.sort(rows[part], axis=1)[:, places]
    return torch.from_numpy(found)


def exceeds(values: Tensor, level: Tensor) -> Tensor:
    """Where ``(N, P)`` values are above their row's level ``(N, 1)``, in one and the same type."""
    if values.device.type != "cpu":
        return values > level
    with _unbuffered():
        return torch.from_numpy(np.greater(values.numpy(), level.numpy()))


def reaches(values: Tensor, level: Tensor) -> Tensor:
    """Where ``(N, P)`` values are at least their row's level ``(N, 1)``, in one and the same type."""
    if values.device.type != "cpu":
        return values >= level
    with _unbuffered():
        return torch.from_numpy(np.greater_equal(values.numpy(), level.numpy()))


def equals(values: Tensor, level: Tensor) -> Tensor:
    """Where ``(N, P)`` values are equal to their row's level ``(N, 1)``."""
    if values.device.type != "cpu":
        return values == level
    with _unbuffered():
        return torch.from_numpy(np.equal(values.numpy(), level.numpy()))


@contextmanager
def _unbuffered() -> Iterator[None]:
    """NumPy copies rows of up to half its buffer before it compares them, which takes twice as long."""
    before = np.setbufsize(_BUFFER)
    try:
        yield
    finally:
        np.setbufsize(before)


@dataclass(frozen=True)
class Measured:
    """What rows ``(N, P)`` tell of themselves; where they are not finite, most of it means nothing.

    Attributes:
        place: ``(N, 1)``; where the largest value is first.
        tied: ``(N,)``; whether it may come again, none left out.
        total: ``(N, 1)`` float64; the sum.
        squares: ``(N, 1)`` float64; the sum of squares.
        plain: whether all values of all rows are finite and not negative.
    """

    place: Tensor
    tied: Tensor
    total: Tensor
    squares: Tensor
    plain: bool


def measure(values: Tensor) -> Measured:
    """Look at rows once, part by part."""
    count, width = values.shape
    if values.device.type != "cpu":
        peak = values == values.amax(1, keepdim=True)
        # the largest number among equals is the first pixel, on every device
        place = (peak * torch.arange(width, 0, -1, device=values.device)).argmax(1, keepdim=True)
        total, squares = (each.sum(1, keepdim=True).double() for each in (values, values.square()))
        plain = bool(((values >= 0) & values.isfinite()).all())
        return Measured(place, peak.sum(1) > 1, total, squares, plain)
    kind, infinite = _CODES[values.dtype]
    every, length = values.numpy(), _length(width)
    bits: NDArray[np.uint64] = every.view(kind)
    one = np.ones(length, every.dtype)
    places, rest = np.empty(count, np.intp), np.empty(count, every.dtype)
    sums_ = np.empty((2, count, width // length), every.dtype)
    plain = True
    with np.errstate(all="ignore"):  # what overflows is found by those who use the sums
        for part in chunks(values):
            own = every[part]
            # numbers that are not negative are ordered as their bits are; all others have larger ones
            best = bits[part].argmax(1) if plain else own.argmax(1)
            starts = np.arange(0, own.size, width)
            if plain and not (bits[part].reshape(-1)[starts + best] < infinite).all():
                best, plain = own.argmax(1), False
            places[part] = best
            after = np.stack([starts, starts + np.minimum(best + 1, width - 1)], 1)
            rest[part] = np.maximum.reduceat(own.reshape(-1), after.reshape(-1))[1::2]
            pieces = own.reshape(len(own), -1, length)
            np.vecdot(pieces, one, out=sums_[0, part])
            np.vecdot(pieces, pieces, out=sums_[1, part])
    tied = rest >= every[np.arange(count), places]
    total, squares = torch.from_numpy(sums_).double().sum(2)[:, :, None]
    return Measured(torch.from_numpy(places[:, None]), torch.from_numpy(tied), total, squares, plain)


@lru_cache(maxsize=64)
def _length(width: int) -> int:
    """The longest piece that divides a row; all of it where only very short ones do."""
    found = next(size for size in range(min(_PIECE, width), 0, -1) if width % size == 0)
    return found if found > 64 else width


def rounded_up(levels: Tensor, dtype: torch.dtype) -> Tensor:
    """The smallest numbers of a type that are not below float64 levels, so that comparisons stay exact."""
    near = levels.to(dtype)
    return torch.where(near < levels, torch.nextafter(near, torch.full_like(near, torch.inf)), near)


def chunks(rows: Tensor) -> Iterator[slice]:
    """Parts of ``(N, ...)`` that are worked on at once; all of it where there is no cache to fit into."""
    size = len(rows) if rows.device.type != "cpu" else _CHUNK // max(1, rows.shape[1:].numel())
    for first in range(0, len(rows), max(1, size)):
        yield slice(first, first + max(1, size))
