"""Convolutions without a stride, in full float32 on a GPU: the same sums in three spellings.

cuDNN chooses its kernels by rules of thumb. For kernels of 3 x 3 in float32 they miss by up to a factor of
four, now in the convolution, now in its transpose: on an H200 they reached 12 to 16 of the 48 TFLOP/s that
another spelling has (`benchmarks/kernels.py` measures it again). A convolution is the transpose of the one
whose kernel is turned around, and both are a product of matrices, so that one may choose. The choice depends
on shapes alone: the same network gives the same bits every time.

Passes forward have less to choose from. In a flat part of a picture all windows are the same, and so must be
what a convolution makes of them: of equals a pooling takes the first, but Fourier transforms and the like
leave other last digits in every place, by which gradients would go another way (through VGG16, maps of
integrated gradients were 18 % off). A product of matrices makes the same of the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Padding = tuple[int, ...]
Spelling = Callable[[Tensor, Tensor, Padding], Tensor]
"""(input, weight, padding) -> the convolution with stride 1."""

_SIDE = 3
"""Of the kernels that were measured."""

_MANY = 128
"""Channels from which on products of matrices fill a GPU, and convolutions of middling size do not."""

_PART = 2**27
"""Numbers that windows may take at once: half a GiB."""


def around(shape: Sequence[int], padding: Padding) -> tuple[tuple[int, ...], Padding]:
    """The shape of the kernel of the transpose, and its padding; one below zero cannot be."""
    outs, ins, *sides = shape
    return (ins, outs, *sides), tuple(side - 1 - margin for side, margin in zip(sides, padding, strict=True))


def turned(weight: Tensor, padding: Padding) -> tuple[Tensor, Padding]:
    """The kernel and padding of the transpose."""
    return weight.transpose(0, 1).flip(2, 3), around(weight.shape, padding)[1]


def _places(x: Tensor, weight: Tensor, padding: Padding) -> list[int]:
    """The sides of the map that a convolution makes."""
    sides = zip(x.shape[2:], padding, weight.shape[2:], strict=True)
    return [side + 2 * margin - kernel + 1 for side, margin, kernel in sides]


def directly(x: Tensor, weight: Tensor, padding: Padding) -> Tensor:
    """As it is written."""
    return F.conv2d(x, weight, padding=padding)


def in_reverse(x: Tensor, weight: Tensor, padding: Padding) -> Tensor:
    """As the transpose of the convolution with the kernel turned around."""
    back, margins = turned(weight, padding)
    like = x.new_empty(1).expand(len(x), len(weight), *_places(x, weight, padding))
    options: Any = (None, (1, 1), margins, (1, 1), False, (0, 0), 1, [True, False, False])
    found: Tensor = torch.ops.aten.convolution_backward(x, like, back.contiguous(), *options)[0]
    return found


def by_product(x: Tensor, weight: Tensor, padding: Padding) -> Tensor:
    """As a product of matrices: the windows of all places, and the kernel."""
    rows = max(1, _PART // max(1, weight[0].numel() * math.prod(_places(x, weight, padding))))
    parts = [_product(part, weight, padding) for part in torch.split(x, rows)]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _product(x: Tensor, weight: Tensor, padding: Padding) -> Tensor:
    (top, left), (high, wide) = padding, weight.shape[2:]
    windows = F.pad(x, (left, left, top, top)).unfold(2, high, 1).unfold(3, wide, 1)
    down, across = windows.shape[2:4]
    flat = windows.permute(0, 2, 3, 1, 4, 5).reshape(len(x) * down * across, weight[0].numel())
    made = (flat @ weight.flatten(1).t()).view(len(x), down, across, len(weight))
    # memory of its own in the usual layout: what follows may write into it
    return made.permute(0, 3, 1, 2).clone(memory_format=torch.contiguous_format)


def spelling(shape: Sequence[int], padding: Padding, sides: Sequence[int]) -> Spelling | None:
    """The quickest spelling for gradients; None where nothing is known to be quicker.

    Args:
        shape: of the kernel, ``(channels out, channels in, ...)``.
        padding: on both sides of each dimension.
        sides: of the map.
    """
    if not _measured(shape, padding):
        return None
    many, side = min(shape[:2]) >= _MANY, min(sides)
    if side < 8:
        return by_product if many else None
    if side <= 16:
        return directly
    if side <= 32:
        return in_reverse if many else directly
    return in_reverse


def forward(shape: Sequence[int], padding: Padding, sides: Sequence[int]) -> Spelling | None:
    """The quickest spelling for a pass forward; None: as the network has it."""
    if not _measured(shape, padding):
        return None
    least, most, side = min(shape[:2]), max(shape[:2]), min(sides)
    quicker = least >= _MANY if side < 8 else most >= _MANY and 16 < side <= 32
    return by_product if quicker else None


def _measured(shape: Sequence[int], padding: Padding) -> bool:
    """Whether rates are known for a kernel, which may be turned around."""
    outs, ins, *kernel = shape
    apart = any(not 0 <= margin < side for margin, side in zip(padding, kernel, strict=True))
    return kernel == [_SIDE, _SIDE] and not apart and min(outs, ins) >= _MANY // 2
