"""Shapes: signed distances of many samples at once, and how far a shape covers each pixel.

Every function takes coordinates ``(N, H, W)`` and parameters ``(N, 1, 1)`` or numbers, and gives a distance
that is negative inside; near the outline it is in the units of the coordinates.
"""

from __future__ import annotations

import torch
from torch import Tensor

Number = Tensor | float


def ellipse(x: Tensor, y: Tensor, width: Number, height: Number) -> Tensor:
    """An ellipse with these half axes, to first order."""
    scaled = (x / width).square() + (y / height).square()
    slope = ((x / width / width).square() + (y / height / height).square()).sqrt().clamp(min=1e-6)
    root = scaled.sqrt()
    return root * (root - 1) / slope


def box(x: Tensor, y: Tensor, width: Number, height: Number, corner: Number = 0.0) -> Tensor:
    """A rectangle with these half sides and rounded corners."""
    across, down = x.abs() - width + corner, y.abs() - height + corner
    outside = (across.clamp(min=0).square() + down.clamp(min=0).square() + 1e-12).sqrt()
    return outside + torch.maximum(across, down).clamp(max=0) - corner


def capsule(x: Tensor, y: Tensor, ends: tuple[Number, Number, Number, Number], radius: Number) -> Tensor:
    """A thick line from x0, y0 to x1, y1."""
    x0, y0, x1, y1 = ends
    dx, dy = x1 - x0, y1 - y0
    along = ((x - x0) * dx + (y - y0) * dy) / (dx * dx + dy * dy + 1e-9)
    along = along.clamp(0, 1)
    return ((x - x0 - along * dx).square() + (y - y0 - along * dy).square() + 1e-12).sqrt() - radius


def band(x: Tensor, y: Tensor, width: Number, top: Tensor, bottom: Tensor) -> Tensor:
    """What lies between two curves `top` and `bottom` over -width .. width; curves are functions of x."""
    return torch.maximum(torch.maximum(top - y, y - bottom), x.abs() - width)


def cover(distance: Tensor, pixel: float) -> Tensor:
    """How far a pixel of this size is covered: 1 inside, 0 outside, smooth between."""
    return (0.5 - distance / pixel).clamp(0, 1)
