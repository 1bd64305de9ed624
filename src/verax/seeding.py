"""Random numbers that belong to a sample, not to a batch.

A stream is a pure function of (labels, sample id, counter): no state is kept, so sample 17 draws the same
numbers alone, in a batch of 10,000, on another device or after a resume. The generator is the 64-bit
finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) applied to a key and a counter, written with
integer tensor operations that wrap around identically on every device.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor


def _signed(value: int) -> int:
    """The same 64 bits read as a signed number, as PyTorch stores them."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_CACHED = 1 << 20  # values that are worked on at once on a CPU
_FEW_THREADS = 4  # with more of them PyTorch is faster than one of NumPy
_BLOCK = 1 << 15  # numbers of 64 bits that stay in the cache of one core
_VECTOR = 64  # numbers, a multiple of what processors work on at once
_MIX_1 = _signed(0xBF58476D1CE4E5B9)
_MIX_2 = _signed(0x94D049BB133111EB)


def key(*labels: object) -> int:
    """Fold labels (strings, numbers) into one 64-bit key."""
    text = "\x1f".join(f"{type(label).__name__}:{label}" for label in labels)
    return _signed(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little"))


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift; PyTorch's own is arithmetic."""
    return (x >> bits).bitwise_and_((1 << (64 - bits)) - 1)


def _mix_(x: Tensor) -> Tensor:
    """Scramble 64-bit numbers in place; noise for images is drawn by the hundred million."""
    for bits, factor in ((30, _MIX_1), (27, _MIX_2)):
        x.bitwise_xor_(_shift(x, bits)).mul_(factor)
    return x.bitwise_xor_(_shift(x, 31))


def _mixed(starts: Tensor, steps: Tensor) -> Tensor:
    """`_mix_` of every start plus every step: ``(*starts, steps)``."""
    made = torch.empty(*starts.shape, len(steps), dtype=torch.int64, device=starts.device)
    if starts.device.type != "cpu" or torch.get_num_threads() > _FEW_THREADS or not made.numel():
        return _mix_(torch.add(starts[..., None], steps, out=made))
    # NumPy shifts without a sign, and works block by block on what is in the cache, but in one thread
    tensors = made.view(-1, len(steps)), starts.flatten(), steps
    rows, first, step = (tensor.numpy().view(np.uint64) for tensor in tensors)
    high = max(1, _BLOCK // len(step))
    spare = np.empty((high, min(_BLOCK, len(step))), np.uint64)
    for top in range(0, len(rows), high):
        for left in range(0, len(step), _BLOCK):
            x = rows[top : top + high, left : left + _BLOCK]
            shifted = spare[: x.shape[0], : x.shape[1]]
            np.add(first[top : top + high, None], step[left : left + _BLOCK], out=x)
            for bits, factor in ((30, _MIX_1), (27, _MIX_2), (31, 1)):
                x ^= np.right_shift(x, bits, out=shifted)
                if factor != 1:
                    x *= np.uint64(factor % 2**64)
    return made


def _shares(bits: Tensor) -> Tensor:
    """Uniform numbers in [0, 1) from random bits."""
    return _shift(bits, 11).to(torch.float64) * 2.0**-53


def _below(high: int, bits: Tensor) -> Tensor:
    """Uniform whole numbers 0 .. high - 1 from random bits."""
    return _shares(bits).mul_(high).to(torch.int64).clamp_(max=high - 1)


@dataclass(frozen=True)
class Streams:
    """One random stream for each sample id; every draw needs a label of its own."""

    ids: Tensor
    seed: int

    @classmethod
    def of(cls, ids: Tensor, *labels: object) -> Streams:
        """Streams of the samples `ids`, separated from all others by `labels`."""
        return cls(ids.to(torch.int64), key(*labels))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: Tensor | slice) -> Streams:
        """The streams of some of the samples."""
        return replace(self, ids=self.ids[index])

    def bits(self, label: object, *shape: int) -> Tensor:
        """64 random bits: int64 of shape ``(N, *shape)``."""
        return self._bits(self.ids * _GOLDEN + key(self.seed, label), shape)

    @staticmethod
    def _bits(start: Tensor, shape: tuple[int, ...], first: int = 0) -> Tensor:
        counter = torch.arange(first + 1, first + math.prod(shape) + 1, device=start.device) * _GOLDEN
        return _mixed(_mix_(start), counter).reshape(*start.shape, *shape)

    def uniform(self, label: object, *shape: int) -> Tensor:
        """Uniform numbers in [0, 1): float64 of shape ``(N, *shape)``."""
        return _shares(self.bits(label, *shape))

    def integers(self, label: object, high: int | Tensor, *shape: int) -> Tensor:
        """Uniform whole numbers 0 .. high - 1: int64 of shape ``(N, *shape)``."""
        if isinstance(high, int):  # without a tensor, for which a GPU would have to wait
            return _below(high, self.bits(label, *shape))
        drawn = self.uniform(label, *shape)
        limit = high.to(self.ids.device)
        return torch.minimum((drawn * limit).to(torch.int64), limit.to(torch.int64) - 1)

    def tries(self, labels: Sequence[object], high: int, *shape: int) -> Tensor:
        """What `integers` gives for each of several labels, at once: ``(N, labels, *shape)``."""
        keys = torch.tensor([key(self.seed, label) for label in labels], device=self.ids.device)
        return _below(high, self._bits(self.ids[:, None] * _GOLDEN + keys, shape))

    def normal(self, label: object, *shape: int, part: slice | None = None) -> Tensor:
        """Standard normal numbers: float32 of shape ``(N, *shape)``; two from each 64 bits (Box-Muller).

        Args:
            label: of the draw.
            shape: of what is drawn for one sample.
            part: of its first dimension; no more than that is made, the same numbers as in the whole.
        """
        count, inner = math.prod(shape), math.prod(shape[1:])
        half = (count + 1) // 2  # a number and the one so far behind it come from the same bits
        low, high = 0, count
        if part is not None:
            first, last, _ = part.indices(shape[0])
            shape = (max(0, last - first), *shape[1:])
            low, high = first * inner, (first + shape[0]) * inner
        made = torch.empty(len(self.ids), high - low, dtype=torch.float32, device=self.ids.device)
        start = self.ids * _GOLDEN + key(self.seed, label)
        for a, b in self._pieces(low, high, half):
            bits = self._bits(start.clone(), (b - a,), a)
            # 24 bits fill a float32; the half keeps the logarithm finite
            radius = (bits & 0xFFFFFF).to(torch.float32).add_(0.5).mul_(2.0**-24).log_().mul_(-2.0).sqrt_()
            angle = _shift(bits, 40).to(torch.float32).mul_(2.0**-24 * 2.0 * math.pi)
            for shift, end, turned in ((0, half, torch.cos), (half, count, torch.sin)):
                c, d = max(a + shift, low), min(b + shift, end, high)
                if c < d:
                    own = slice(c - shift - a, d - shift - a)
                    torch.mul(radius[:, own], turned(angle)[:, own], out=made[:, c - low : d - low])
        return made.reshape(len(self.ids), *shape)

    def _pieces(self, low: int, high: int, half: int) -> Iterator[tuple[int, int]]:
        """Pairs that numbers `low` to `high` come from, in pieces that stay in the cache of a CPU.

        Pieces begin and end at whole vectors: what is left over is rounded otherwise by some processors.
        """
        ranges = [(low, min(high, half)), (max(low, half) - half, high - half)]
        if ranges[0][0] < ranges[1][1]:  # both take some pairs, or one is empty
            ranges = [(min(ranges[0][0], ranges[1][0]), max(ranges[0][1], ranges[1][1]))]
        many = max(1, _BLOCK // max(1, len(self.ids)) // _VECTOR) * _VECTOR
        for first, last in ranges:
            step = many if self.ids.device.type == "cpu" else max(1, last - first)
            for a in range(first // _VECTOR * _VECTOR, last, step):
                yield a, -(-min(a + step, last) // _VECTOR) * _VECTOR


def parts(ids: Tensor, each: int) -> Iterator[slice]:
    """Slices of samples that have `each` values: all of them on a GPU, few enough for the cache on a CPU."""
    count = max(1, _CACHED // each) if ids.device.type == "cpu" else max(1, len(ids))
    for start in range(0, len(ids), count):
        yield slice(start, start + count)


def content_ids(inputs: Tensor) -> Tensor:
    """An id for each sample made from its values alone: int64 of shape ``(N,)``.

    With it a method that draws random numbers gives an image the same map in every batch, even when the
    caller has no sample ids.
    """
    rows = inputs.detach().flatten(1)
    position = _mix_(torch.arange(1, rows.shape[1] + 1, device=rows.device) * _GOLDEN) | 1

    def total(some: Tensor) -> Tensor:
        values = some.to(torch.float32).contiguous().view(torch.int32).to(torch.int64)
        return values.add_(_GOLDEN).mul_(position).sum(1)

    # in parts: whole numbers of 64 bits take twice the memory of the inputs
    return _mix_(torch.cat([total(some) for some in torch.split(rows, max(1, 2**22 // rows.shape[1]))]))


@contextmanager
def global_streams(seed: int | None = None) -> Iterator[None]:
    """Other people's code draws from the global streams of Python and NumPy, which are put back afterwards.

    Args:
        seed: where they begin inside; None: where they are.
    """
    drawn, state = random.getstate(), np.random.get_state()  # noqa: NPY002
    if seed is not None:
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(drawn)
        np.random.set_state(state)  # noqa: NPY002
