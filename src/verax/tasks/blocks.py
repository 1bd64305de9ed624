"""A digit block and a null block, one above the other in either order; only the digit says anything.

After BlockMNIST of Shah, Jain and Netrapalli, "Do Input Gradients Highlight Discriminative Features?",
NeurIPS 2021: there gradients of ordinary networks show the null block too, because the digit may stand there
in another picture ("feature leakage").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from verax.cases import Role, Truth
from verax.seeding import Streams
from verax.tasks.base import Edit
from verax.tasks.digits import SIZE, Digits, available, digits
from verax.tasks.drawn import Drawn
from verax.tasks.textbox import backgrounds
from verax.tasks.textbox.backgrounds import Background
from verax.tasks.textbox.renderers import RENDERERS, Renderer

VERSION = 1
"""Raised whenever a change of this package changes a picture, a label or a mask."""

CANVAS = (64, 64)
_TOPS, _LEFT = (2, 34), 18  # rows where the two blocks start, and the column where both do
_PLACES = ("above", "below")


@dataclass(frozen=True)
class Blocks:
    """Pictures before they are drawn.

    Attributes:
        states: ``(N, 3)`` int64: the digit, its place (0 above, 1 below), whether the null block is there.
        ink: ``(N, 28, 28)`` float32: the digit.
    """

    states: Tensor
    ink: Tensor

    def __getitem__(self, index: Tensor | slice) -> Blocks:
        """Some of the pictures."""
        return Blocks(self.states[index], self.ink[index])


@lru_cache(maxsize=8)
def _null(device: torch.device) -> Tensor:
    """The null block: a square with its diagonals, the same in every picture."""
    row, col = torch.arange(SIZE)[:, None], torch.arange(SIZE)[None, :]
    inside = (row >= 4) & (row < SIZE - 4) & (col >= 4) & (col < SIZE - 4)
    edge = (row < 6) | (row >= SIZE - 6) | (col < 6) | (col >= SIZE - 6)
    diagonal = ((row - col).abs() <= 1) | ((row + col - SIZE + 1).abs() <= 1)
    return (inside & (edge | diagonal)).float().to(device)


@dataclass(frozen=True, eq=False)
class BlockDigits(Drawn):
    """Ten digits in two places: twenty buckets, ten labels.

    Training sees MNIST's training digits, cases and certificates see its test digits.

    Attributes:
        name: how it is called in tables.
        source: "mnist" or "scikit-learn" (default: the first that is here).
        family: the tasks that it is averaged with.
        background: what lies behind the blocks.
    """

    name: str = "worlds/block-digits"
    source: str = field(default_factory=available)
    family: str = "worlds"
    background: Background = field(default_factory=backgrounds.Black)

    def __post_init__(self) -> None:
        if isinstance(self.background, str):
            object.__setattr__(self, "background", backgrounds.background(self.background))

    @property
    def renderer(self) -> Renderer:
        """Nothing overlaps, as under `sound`."""
        return RENDERERS.get("sound")

    @property
    def reasoning(self) -> str:
        """What decides the label, in words."""
        return f"the digit ({self.source or 'not here'}), wherever it stands; the null block says nothing"

    @property
    def classes(self) -> int:
        """One output for each digit."""
        return 10

    @property
    def groups(self) -> tuple[int, ...]:
        """Digit by digit, first above the null block, then below it."""
        return tuple(range(1, 21))

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        return (3, *CANVAS)

    @property
    def limits(self) -> tuple[float, float]:
        """What a certificate asks for; some handwritten digits nobody can read."""
        return (0.95, 0.9)

    def describe(self, group: int) -> str:
        """The digit and its place."""
        self.check_groups(group)
        return f"{(group - 1) // 2} {_PLACES[(group - 1) % 2]}"

    def fingerprint(self) -> Mapping[str, Any]:
        """Everything that its cases depend on, for hashing."""
        return {
            "kind": "block-digits",
            "version": VERSION,
            "digits": digits(self.source, "t10k").sha256,
            "background": self.background.fingerprint,
        }

    # -- drawing -----------------------------------------------------------------------------------------

    def streams(self, ids: Tensor, seed: int, purpose: str) -> Streams:
        """Random streams of samples."""
        return Streams.of(ids, "block-digits", self.source, purpose, seed)

    def _lay(self, groups: Tensor, streams: Streams, some: Digits) -> Blocks:
        digit, place = (groups - 1) // 2, (groups - 1) % 2
        return Blocks(
            torch.stack([digit, place, torch.ones_like(place)], 1), _pick(digit, streams, some, "digit")
        )

    def layout(self, groups: Tensor, streams: Streams) -> Blocks:
        """A test digit of each bucket."""
        return self._lay(groups, streams, digits(self.source, "t10k", groups.device))

    def lessons(self, groups: Tensor, streams: Streams) -> Blocks:
        """A training digit of each bucket."""
        return self._lay(groups, streams, digits(self.source, "train", groups.device))

    def render(self, layout: Blocks, streams: Streams) -> Tensor:
        """``(N, 3, H, W)`` float32 pictures: blocks are opaque."""
        pictures = self.background.draw(streams, CANVAS)
        nothing = layout.states[:, 2, None, None] == 0
        null = torch.where(nothing, 0.0, _null(pictures.device))
        columns = slice(_LEFT, _LEFT + SIZE)
        for place, top in enumerate(_TOPS):
            here = (layout.states[:, 1] == place)[:, None, None]
            block = torch.where(here, layout.ink, null)
            window = pictures[:, :, top : top + SIZE, columns]
            kept = (nothing & ~here)[:, None]  # where the null block is gone, the background shows
            pictures[:, :, top : top + SIZE, columns] = torch.where(kept, window, block[:, None])
        return pictures

    def labels(self, groups: Tensor) -> Tensor:
        """The digit."""
        return (groups - 1) // 2

    def group_of(self, states: Tensor) -> Tensor:
        """Bucket numbers of states."""
        return 2 * states[:, 0] + states[:, 1] + 1

    def edits(self, layout: Blocks, streams: Streams) -> Iterator[Edit]:
        """Exchange the blocks, take the null block away, or put another digit in the place of the first."""
        rows = torch.arange(len(layout.states), device=layout.states.device)
        moved, bare, other = (layout.states.clone() for _ in range(3))
        moved[:, 1] = 1 - moved[:, 1]
        yield Edit("move", "digit", rows, replace(layout, states=moved))
        bare[:, 2] = 0
        yield Edit("remove", "null", rows, replace(layout, states=bare))
        other[:, 0] = (other[:, 0] + 1 + streams.integers("other", 9)) % 10
        ink = _pick(other[:, 0], streams, digits(self.source, "t10k", rows.device), "swap")
        yield Edit("swap", "digit", rows, Blocks(other, ink))

    def truth(self, layout: Blocks) -> Truth:
        """The digit's block is in focus, the null block is to be avoided."""
        place = layout.states[:, 1]
        tops = torch.tensor(_TOPS, device=place.device)
        top = tops[torch.stack([place, 1 - place], 1)]
        left = torch.full_like(top, _LEFT)
        boxes = torch.stack([top, top + SIZE, left, left + SIZE], 2)
        rows, cols = torch.arange(CANVAS[0], device=top.device), torch.arange(CANVAS[1], device=top.device)
        tall = (rows >= top[..., None]) & (rows < top[..., None] + SIZE)
        wide = (cols >= _LEFT) & (cols < _LEFT + SIZE)
        roles = torch.tensor([Role.FOCUS, Role.AVOID], dtype=torch.int8, device=top.device)
        return Truth.from_objects(
            tall[..., None] & wide, boxes, roles.expand(len(top), 2).contiguous(), ("digit", "null")
        )


def _pick(digit: Tensor, streams: Streams, some: Digits, label: str) -> Tensor:
    """The ink of one picture of each digit."""
    return some.pictures[some.first[digit] + streams.integers(label, some.count[digit])]
