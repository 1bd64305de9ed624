"""Gradients where they are wanted: pictures that are mostly background need them in few places.

A contribution is a gradient times a difference. Where a picture equals its baseline the difference is zero,
and the gradient there may be anything. So a convolution need not carry back what only reaches such pixels:
its transpose is a product of matrices over the places that are wanted, and zero elsewhere. Which places of a
layer's output those are follows from its kernel alone. On scenes of small objects on black, a twentieth of
the pixels and a tenth of the places behind the first layer remain.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from verax.engine.convolutions import Convolution

_FEW = 0.3
"""The share of places up to which collecting them is faster than a transpose of everything."""

_CHANNELS = 32
"""Channels of a layer's input from which that share holds; with fewer, there is less to spare at each place,
and collecting costs the same."""

_BLOCK = 2**20
"""Numbers that are collected at once: all windows of a large kernel would be many times its input."""

_KEY = "_verax_wanted"

_NAMES = (
    "relu relu6 leaky_relu elu celu selu gelu silu mish hardtanh hardswish hardsigmoid softplus tanh sigmoid "
    "logsigmoid clamp clamp_min clamp_max"
)
POINTWISE = frozenset(_NAMES.split())
"""Calls whose output depends in each place on the input in that place."""


def differing(inputs: Tensor, baseline: Tensor) -> Tensor | None:
    """The pixels ``(N, H, W)`` in which pictures differ from a baseline; None where they are not few.

    Only on a CPU: a GPU would have to be waited for, to learn how many there are.
    """
    if inputs.ndim != 4 or inputs.device.type != "cpu":
        return None
    return few((inputs != baseline).any(1))


def few(wanted: Tensor, channels: int | None = None) -> Tensor | None:
    """The places, if there are few; for a layer of so many channels, if it is faster to collect them."""
    share = _FEW if channels is None else _FEW * min(1.0, channels / _CHANNELS)
    return wanted if int(wanted.count_nonzero()) <= share * wanted.numel() else None


def mark(tensor: Tensor, wanted: Tensor | None) -> Tensor:
    """Note where gradients of a tensor ``(N, C, H, W)`` are wanted, as long as nobody overwrites it."""
    if wanted is not None:
        setattr(tensor, _KEY, (wanted, tensor._version))
    return tensor


def marked(tensor: Tensor) -> Tensor | None:
    """Where gradients of a tensor are wanted; None: everywhere."""
    wanted, version = getattr(tensor, _KEY, (None, None))
    if wanted is None or version != tensor._version:
        return None
    # limits of a clamp may have spread one sample or one pixel over many, whose places are not known
    return wanted if wanted.shape == (len(tensor), *tensor.shape[2:]) else None


def plain(call: Convolution) -> bool:
    """Whether `transpose_at` knows this kind of convolution."""
    return len(call.stride) == 2 and call.groups == 1 and max(call.dilation) == 1


def reached(call: Convolution, wanted: Tensor) -> Tensor:
    """The places of a convolution's output whose windows hold a place of its input that is wanted."""
    (top, left), size = call.padding, call.weight.shape[2:]
    padded = F.pad(wanted[:, None].float(), (left, left, top, top))
    return F.max_pool2d(padded, tuple(size), call.stride)[:, 0] > 0


def transpose_at(wanted: Tensor) -> Callable[[Convolution, Tensor], Tensor]:
    """The transpose of a convolution, computed where it is wanted; elsewhere it gives zeros."""

    def back(call: Convolution, g: Tensor) -> Tensor:
        (samples, outs), ins, (height, width) = g.shape[:2], call.weight.shape[1], call.shape[2:]
        whole = g.new_zeros(samples, height, width, ins)
        rows = g.permute(0, 2, 3, 1).reshape(-1, outs)
        down, across = call.stride
        for i, j in itertools.product(range(down), range(across)):
            # Places a stride apart are reached by the same taps of the kernel and by no others.
            top, left = (i - call.padding[0]) % down, (j - call.padding[1]) % across
            taps = call.weight[:, :, i::down, j::across]
            if not taps.numel():
                continue
            matrix = taps.permute(2, 3, 0, 1).reshape(-1, ins)
            places = wanted[:, top::down, left::across].nonzero()
            for some in torch.split(places, max(1, _BLOCK // len(matrix))):
                sample, y, x = some.unbind(1)
                y, x = y * down + top, x * across + left
                steps = (y + call.padding[0]) // down, (x + call.padding[1]) // across
                windows = _windows(rows, sample, steps, g.shape[2:], taps.shape[2:])
                found = windows @ matrix
                whole.view(-1, ins).index_copy_(0, (sample * height + y) * width + x, found)
        return whole.permute(0, 3, 1, 2)

    return back


def _windows(
    rows: Tensor, sample: Tensor, steps: tuple[Tensor, Tensor], sides: torch.Size, taps: torch.Size
) -> Tensor:
    """What comes back to some places: ``(places, taps * channels)``, zero beyond the edge.

    Args:
        rows: ``(samples * height * width, channels)``, what comes back to a layer.
        sample: of each place.
        steps: of the kernel, down and across, whose first tap lies on each place.
        sides: height and width.
        taps: that reach these places, down and across.
    """
    down, across = (
        step[:, None] - torch.arange(count, device=step.device)
        for step, count in zip(steps, taps, strict=True)
    )
    inside = ((down >= 0) & (down < sides[0]))[:, :, None] & ((across >= 0) & (across < sides[1]))[:, None]
    down, across = down.clamp(0, sides[0] - 1), across.clamp(0, sides[1] - 1)
    places = (sample[:, None, None] * sides[0] + down[:, :, None]) * sides[1] + across[:, None]
    found = rows.index_select(0, places.flatten())
    beyond = (~inside).flatten().nonzero()[:, 0]
    return found.index_fill_(0, beyond, 0).view(len(sample), taps.numel() * rows.shape[1])
