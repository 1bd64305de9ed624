"""Drawn digits: strokes that are bent, slanted and thickened, for machines without any digits at all."""

from __future__ import annotations

import torch
from torch import Tensor

from verax.seeding import Streams, parts
from verax.tasks.alignment.shapes import capsule, cover

SIZE = 28
_ROUND = (
    (0.5, 0.0),
    (0.85, 0.15),
    (0.95, 0.5),
    (0.85, 0.85),
    (0.5, 1.0),
    (0.15, 0.85),
    (0.05, 0.5),
    (0.15, 0.15),
)
_PATHS: tuple[tuple[tuple[float, float], ...], ...] = (
    (*_ROUND, _ROUND[0]),
    ((0.3, 0.2), (0.55, 0.0), (0.55, 1.0)),
    ((0.1, 0.2), (0.3, 0.0), (0.7, 0.0), (0.9, 0.25), (0.7, 0.55), (0.1, 1.0), (0.9, 1.0)),
    ((0.1, 0.08), (0.6, 0.0), (0.85, 0.22), (0.45, 0.46), (0.85, 0.7), (0.6, 1.0), (0.1, 0.92)),
    ((0.7, 1.0), (0.7, 0.0), (0.1, 0.65), (0.95, 0.65)),
    ((0.85, 0.0), (0.2, 0.0), (0.15, 0.45), (0.6, 0.4), (0.9, 0.68), (0.6, 1.0), (0.1, 0.92)),
    ((0.7, 0.0), (0.3, 0.3), (0.1, 0.7), (0.45, 1.0), (0.85, 0.75), (0.5, 0.5), (0.15, 0.68)),
    ((0.1, 0.0), (0.9, 0.0), (0.4, 1.0)),
    (
        (0.5, 0.45),
        (0.15, 0.2),
        (0.5, 0.0),
        (0.85, 0.2),
        (0.5, 0.45),
        (0.1, 0.75),
        (0.5, 1.0),
        (0.9, 0.75),
        (0.5, 0.45),
    ),
    ((0.85, 0.3), (0.5, 0.5), (0.15, 0.25), (0.5, 0.0), (0.85, 0.3), (0.75, 0.7), (0.55, 1.0)),
)
_MOST = max(map(len, _PATHS))


def draw(streams: Streams, labels: Tensor) -> Tensor:
    """``(N, 28, 28)`` uint8 levels, white ink on black, within the middle 20 pixels as in MNIST."""
    padded = [(*path, *([path[-1]] * (_MOST - len(path)))) for path in _PATHS]
    table = torch.tensor(padded, device=labels.device)
    levels = torch.empty(len(labels), SIZE, SIZE, dtype=torch.uint8, device=labels.device)
    for part in parts(labels, 8 * SIZE * SIZE):
        levels[part] = _drawn(streams[part], table[labels[part]])
    return levels


def _drawn(streams: Streams, points: Tensor) -> Tensor:
    def spread(label: str, low: float, high: float) -> Tensor:
        return low + (high - low) * streams.uniform(label).float()[:, None]

    bent = points + 0.05 * (streams.uniform("bend", _MOST, 2).float() * 2 - 1)
    x, y = bent[..., 0] - 0.5, bent[..., 1] - 0.5
    x = x * spread("width", 9, 13) + y * spread("slant", -4, 4)
    y = y * spread("height", 15, 18)
    angle = spread("angle", -0.15, 0.15)
    x, y = x * angle.cos() - y * angle.sin(), x * angle.sin() + y * angle.cos()
    x, y = x.clamp(-9, 9) + spread("right", -1, 1) + 14, y.clamp(-9, 9) + spread("down", -1, 1) + 14
    steps = torch.arange(SIZE, device=points.device) + 0.5
    across, down = steps[None, None, :], steps[None, :, None]
    thick = spread("thick", 0.8, 1.5)[..., None]
    ink = torch.zeros(len(points), SIZE, SIZE, device=points.device)
    for at in range(_MOST - 1):
        x0, y0, x1, y1 = (
            values[:, None, None] for values in (x[:, at], y[:, at], x[:, at + 1], y[:, at + 1])
        )
        ink = torch.maximum(ink, cover(capsule(across, down, (x0, y0, x1, y1), thick), 1.5))
    return ink.mul(255).round().to(torch.uint8)
