"""Manipulations of a picture within a fixed region: blur, brightness, hue, noise and a watermark.

Those of Zhou, Booth, Ribeiro and Shah, "Do Feature Attribution Methods Correctly Attribute Features?", AAAI
2022, with places and sizes scaled from 224 to 64 pixels; blur, hue and noise are stronger, because small
pictures hide the published ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import conv2d, pad

from verax.seeding import Streams

CANVAS = (64, 64)

Change = Callable[[Tensor, Streams], Tensor]


def _distance() -> Tensor:
    """How far each pixel is from the centre."""
    row = torch.arange(CANVAS[0])[:, None] - (CANVAS[0] - 1) / 2
    col = torch.arange(CANVAS[1])[None, :] - (CANVAS[1] - 1) / 2
    return (row * row + col * col).sqrt()


def _rectangle(row0: int, row1: int, col0: int = 0, col1: int = CANVAS[1]) -> Tensor:
    mask = torch.zeros(CANVAS, dtype=torch.bool)
    mask[row0:row1, col0:col1] = True
    return mask


def _blur(pictures: Tensor, streams: Streams) -> Tensor:
    """Gaussian blur, sigma 1.5."""
    steps = torch.arange(-4, 5, device=pictures.device)
    line = torch.exp(-(steps**2) / (2 * 1.5**2))
    line = (line / line.sum()).expand(3, 1, 1, 9)
    wide = conv2d(pad(pictures, (4,) * 4, mode="reflect"), line, groups=3)
    return conv2d(wide, line.transpose(2, 3), groups=3)


def _darker(pictures: Tensor, streams: Streams) -> Tensor:
    """0.2 less light."""
    return (pictures - 0.2).clamp(min=0)


def _hue(pictures: Tensor, streams: Streams) -> Tensor:
    """Colours turned about the grey axis by a quarter of the circle."""
    cos, third, sin = math.cos(math.pi / 2), 1 / 3, math.sin(math.pi / 2) / math.sqrt(3)
    same, minus, plus = cos + (1 - cos) * third, (1 - cos) * third - sin, (1 - cos) * third + sin
    turn = torch.tensor(
        [[same, minus, plus], [plus, same, minus], [minus, plus, same]], device=pictures.device
    )
    return conv2d(pictures, turn[:, :, None, None]).clamp(0, 1)


def _speckle(pictures: Tensor, streams: Streams) -> Tensor:
    """One pixel in ten becomes white."""
    hit = streams.integers("speckle", 10, *CANVAS) == 0
    return torch.where(hit[:, None], 1.0, pictures)


_TEXT = """
#...#.####.###...##..#..#
#...#.#....#..#.#..#.#..#
#...#.###..###..####..##.
.#.#..#....#.#..#..#.#..#
..#...####.#..#.#..#.#..#
"""


def _watermark(pictures: Tensor, streams: Streams) -> Tensor:
    """Half-transparent white letters near the lower edge."""
    rows = [[float(dot == "#") for dot in row] for row in _TEXT.split()]
    ink = torch.tensor(rows, device=pictures.device).repeat_interleave(2, dim=1)
    cover = torch.zeros(CANVAS, device=pictures.device)
    cover[57 : 57 + ink.shape[0], 6 : 6 + ink.shape[1]] = ink / 2
    return torch.lerp(pictures, torch.ones_like(pictures), cover)


@dataclass(frozen=True, eq=False)
class Manipulation:
    """What is done to a picture, and the region in which it is done.

    Attributes:
        change: the whole picture, changed.
        region: ``(H, W)`` bool; only here the change is kept.
        about: in words.
    """

    change: Change
    region: Tensor
    about: str


MANIPULATIONS = {
    "blur": Manipulation(_blur, _distance() > 28, "blurred outside a circle of radius 28"),
    "brightness": Manipulation(_darker, _distance() < 14, "darker within a circle of radius 14"),
    "hue": Manipulation(_hue, _rectangle(18, 46), "hue turned in rows 18 to 45"),
    "noise": Manipulation(_speckle, _rectangle(28, 36), "white specks in rows 28 to 35"),
    "watermark": Manipulation(_watermark, _rectangle(57, 62, 6, 56), "a watermark near the lower edge"),
}
"""Name -> manipulation."""
