"""Textures: backgrounds that look like nature and need no photographs.

Value noise on several scales: random numbers on grids of 32, 16, 8, 4 and 2 pixels, joined smoothly and added
up. Scales of equal strength have the 1/f spectrum of natural pictures (Field, JOSA A 1987); each sample has
strengths, a contrast and a colour of its own. All arithmetic is on whole numbers, so that a texture is the
same on every device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from verax.seeding import Streams, parts

_CELLS = (32, 16, 8, 4, 2)  # powers of two: dividing is shifting


def _along(grid: Tensor, size: int, cell: int, dim: int) -> Tensor:
    """Join the values of a grid smoothly (3 f^2 - 2 f^3) along one dimension, at `size` places."""
    place = torch.arange(size, device=grid.device, dtype=torch.int32)
    index, inside = place // cell, place % cell
    shape = [1] * grid.dim()
    shape[dim] = size
    weight = (inside * inside * (3 * cell - 2 * inside)).view(shape)
    before, after = grid.index_select(dim, index), grid.index_select(dim, index + 1)
    return (
        (before * (cell**3 - weight)).add_(after * weight).bitwise_right_shift_(3 * (cell.bit_length() - 1))
    )


@dataclass(frozen=True)
class Texture:
    """Coloured noise on several scales, one texture for each sample."""

    brightness: float = 0.7

    @property
    def spec(self) -> str:
        """How it is asked for."""
        return "texture"

    @property
    def fingerprint(self) -> str:
        """What the pictures depend on, as text."""
        return f"texture:1:{self.brightness}"

    def draw(self, streams: Streams, canvas: tuple[int, int]) -> Tensor:
        """One texture for each stream: ``(N, 3, H, W)`` float32."""
        drawn = torch.empty(len(streams), 3, *canvas, device=streams.ids.device)
        for part in parts(streams.ids, 3 * math.prod(canvas)):
            drawn[part] = _levels(streams[part], canvas)
        return drawn.div_(255).mul_(self.brightness)


def _levels(streams: Streams, canvas: tuple[int, int]) -> Tensor:
    """Whole levels from 0 to 255."""
    height, width = canvas
    total: Tensor | None = None
    weights = torch.zeros(len(streams), 1, 1, 1, dtype=torch.int32, device=streams.ids.device)
    for cell in _CELLS:
        size = math.ceil(height / cell) + 1, math.ceil(width / cell) + 1
        grid = streams.integers(("texture", cell), 256, 4, *size).sub_(128).to(torch.int32)
        colour = grid[:, :1] * 3 + grid[:, 1:]  # light, which all channels share, and a tint
        strength = streams.integers(("strength", cell), 5, 1, 1, 1).add_(1).to(torch.int32)
        layer = _along(_along(colour, height, cell, 2), width, cell, 3).mul_(strength)
        total = layer if total is None else total.add_(layer)
        weights += strength
    assert total is not None
    contrast = streams.integers("contrast", 3, 1, 1, 1).add_(2).to(torch.int32)
    mean = streams.integers("mean", 112, 1, 1, 1) + streams.integers("tint", 64, 3, 1, 1) + 24
    return (
        total.mul_(contrast)
        .div_(weights * 4, rounding_mode="floor")
        .add_(mean.to(torch.int32))
        .clamp_(0, 255)
    )
