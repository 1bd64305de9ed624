"""Squares against circles: which of two kinds of frames covers more of a picture.

After Mamalakis, Barnes and Ebert-Uphoff (2022), "Investigating the fidelity of explainable artificial
intelligence methods for applications of convolutional neural networks in geoscience" (arXiv 2202.03407).
Hollow squares and circles stand on 65 x 65 pixels; there are never as many of the one as of the other. The
label says which kind covers more pixels, so the right attribution is known in every pixel: +1 on frames of
the explained class, -1 on those of the other, 0 elsewhere.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from verax.cases import Role, Truth
from verax.errors import InvalidParameter
from verax.seeding import Streams
from verax.tasks.base import Edit
from verax.tasks.drawn import Drawn
from verax.tasks.textbox import backgrounds
from verax.tasks.textbox.backgrounds import Background
from verax.tasks.textbox.renderers import RENDERERS, Renderer

VERSION = 1
"""Raised whenever a change of this package changes a picture, a label or a truth."""

SIDE = 65
OUTER = (12, 22)
"""Sides of squares, smallest and largest; a circle has the radius side / sqrt(pi), hence the same area."""
HOLE, RIM = 7, 4
"""The smallest side of a hole, and how much larger than its hole a frame is at least."""
GUARD = 1
"""Empty pixels between the rectangles around two frames."""

NAMES = ("square 1", "square 2", "circle 1", "circle 2")
COUNTS = ((0, 1), (0, 2), (1, 0), (2, 0), (1, 2), (2, 1))
"""Squares and circles of a picture, each with probability 1/6."""
EXPLAINS = ("label", "other")

_TRIES = 16  # drawn at once; a GPU waits for each round
_ROUNDS = 1000


@dataclass(frozen=True)
class Frames:
    """Pictures before they are drawn: four frames, two squares and two circles, of which some are there.

    Attributes:
        states: ``(N, 3)`` int64: squares, circles, and the label (-1 where both cover the same area).
        present: ``(N, 4)`` bool.
        outer: ``(N, 4)`` int64: the side of each frame, or of the square of a circle's area.
        inner: ``(N, 4)`` int64: the same of its hole.
        corner: ``(N, 4, 2)`` int64: row and column where the rectangle around a frame starts.
    """

    states: Tensor
    present: Tensor
    outer: Tensor
    inner: Tensor
    corner: Tensor

    def __getitem__(self, index: Tensor | slice) -> Frames:
        """Some of the pictures."""
        return Frames(*(getattr(self, name)[index] for name in self.__dataclass_fields__))

    def relabelled(self) -> Frames:
        """The same frames with the states that they have now."""
        area = areas(self.outer, self.inner) * self.present
        difference = area[:, :2].sum(1) - area[:, 2:].sum(1)
        label = torch.where(difference == 0, -1, (difference > 0).long())
        counts = [self.present[:, half].sum(1) for half in (slice(0, 2), slice(2, 4))]
        return replace(self, states=torch.stack([*counts, label], 1))


@lru_cache(maxsize=8)
def _tables(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """For sides 0 .. 22: pixels of a square and of a disc, side of the rectangle around each, squared radius.

    The first two have the shape ``(2, 23)``: squares, discs. Squared radii are rounded down, which changes
    nothing, as squared distances between pixels are whole numbers.
    """
    side = torch.arange(OUTER[1] + 1)
    reach = (side.double() ** 2 / math.pi).floor().long()
    place = torch.arange(-OUTER[1], OUTER[1] + 1)
    away = place[:, None] ** 2 + place**2
    disc = (away <= reach[:, None, None]).sum((1, 2))
    disc[0] = 0
    across = 2 * reach.double().sqrt().floor().long() + 1
    pixels, extent = torch.stack([side**2, disc]), torch.stack([side, across])
    return pixels.to(device), extent.to(device), reach.to(device)


_KIND = (0, 0, 1, 1)


def areas(outer: Tensor, inner: Tensor) -> Tensor:
    """Pixels of frames ``(..., 4)``: int64."""
    pixels = _tables(outer.device)[0]
    kind = torch.tensor(_KIND, device=outer.device)
    return pixels[kind, outer] - pixels[kind, inner]


def extents(outer: Tensor) -> Tensor:
    """Sides of the rectangles around frames ``(..., 4)``: int64."""
    return _tables(outer.device)[1][torch.tensor(_KIND, device=outer.device), outer]


def masks(layout: Frames) -> Tensor:
    """The pixels of each frame: bool ``(N, 4, 65, 65)``; none where it is absent."""
    place = torch.arange(SIDE, device=layout.outer.device)
    away = (place - layout.corner[..., None]).to(torch.int16)  # (N, 4, 2, 65)
    inner, outer = layout.inner[:, :2, None, None], layout.outer[:, :2, None, None]
    rim, square = (outer - inner) // 2, away[:, :2]
    solid = (square >= 0) & (square < outer)
    hole = (square >= rim) & (square < rim + inner)
    squares = _across(solid) & ~_across(hole)
    reach = _tables(place.device)[2].to(torch.int16)
    middle = (extents(layout.outer)[:, 2:] // 2).to(torch.int16)
    apart = (away[:, 2:] - middle[..., None, None]).square()
    squared = apart[:, :, 0, :, None] + apart[:, :, 1, None, :]
    near, far = (reach[sides[:, 2:]][..., None, None] for sides in (layout.inner, layout.outer))
    circles = (squared <= far) & (squared > near)
    return torch.cat([squares, circles], 1) & layout.present[..., None, None]


def _across(spans: Tensor) -> Tensor:
    """Rectangles ``(N, K, H, W)`` of rows and columns ``(N, K, 2, H)``."""
    return spans[:, :, 0, :, None] & spans[:, :, 1, None, :]


@lru_cache(maxsize=1)
def shares() -> Mapping[int, float]:
    """How often a picture is of each bucket; sizes decide between the two labels of a mixed one."""
    pixels = _tables(torch.device("cpu"))[0].numpy()
    most = 2 * int(pixels.max()) + 1
    single = np.zeros((2, most))
    for kind, outer in itertools.product((0, 1), range(OUTER[0], OUTER[1] + 1)):
        holes = range(HOLE, outer - RIM + 1)
        for inner in holes:
            area = pixels[kind, outer] - pixels[kind, inner]
            single[kind, area] += 1 / len(holes) / (OUTER[1] - OUTER[0] + 1)
    found: dict[int, float] = {}
    for counts in COUNTS:
        totals = []
        for kind, count in enumerate(counts):
            spread = np.eye(1, most)[0]
            for _ in range(count):
                spread = np.convolve(spread, single[kind])[:most]
            totals.append(spread)
        below = [np.concatenate([[0.0], total.cumsum()[:-1]]) for total in totals]
        chance = [float(totals[1] @ below[0]), float(totals[0] @ below[1])]  # circles win, squares win
        for label in (0, 1):
            if chance[label] > 0:
                found[_number(*counts, label)] = chance[label] / sum(chance) / len(COUNTS)
    return found


def _number(squares: int, circles: int, label: int) -> int:
    """The bucket of pictures with so many frames and this label."""
    return 1 + 2 * (3 * squares + circles) + label


def _counts(groups: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Squares, circles and label of buckets."""
    code = (groups - 1) // 2
    return code // 3, code % 3, (groups - 1) % 2


@dataclass(frozen=True, eq=False)
class Shapes(Drawn):
    """Two labels: 1 where squares cover more, 0 where circles do.

    Attributes:
        name: how it is called in tables.
        explains: the output that is explained, and whose attribution the truth is: that of the "label", or
            the "other" one, for which all signs are turned around.
        family: the tasks that it is averaged with.
        background: nothing lies behind the frames.
    """

    truths: ClassVar[tuple[str, ...]] = ("exact", "rule")
    usual: ClassVar[str] = "shapes-cnn"

    name: str = "shapes"
    explains: str = "label"
    family: str = "shapes"
    background: Background = field(default_factory=backgrounds.Black)

    def __post_init__(self) -> None:
        if self.explains not in EXPLAINS:
            raise InvalidParameter(
                f"shapes explains the 'label' or the 'other' output, not {self.explains!r}."
            )

    @classmethod
    def asked_about(cls, name: str, explains: str = "label") -> Shapes:
        """The task whose name says which output is explained, where it is not that of the label."""
        return cls(name if explains == "label" else f"{name}?explains={explains}", explains)

    def asked(self, labels: Tensor) -> Tensor:
        """The outputs that are explained for pictures of these labels."""
        return labels if self.explains == "label" else 1 - labels

    @property
    def renderer(self) -> Renderer:
        """Nothing overlaps, as under `sound`."""
        return RENDERERS.get("sound")

    @property
    def reasoning(self) -> str:
        """What decides the label, in words."""
        return "square frames cover more pixels -> 1; circular frames do -> 0"

    @property
    def classes(self) -> int:
        """Circles or squares."""
        return 2

    @property
    def groups(self) -> tuple[int, ...]:
        """How many squares and circles there are, and which of them win."""
        return tuple(sorted(shares()))

    @property
    def shares(self) -> Mapping[int, float]:
        """How often a picture is of each bucket; the fixed set of the published recipe follows it."""
        return shares()

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        return (1, SIDE, SIDE)

    @property
    def limits(self) -> tuple[float, float]:
        """What a certificate asks for; areas can differ by one pixel, which nobody can see."""
        return (0.9, 0.75)

    def describe(self, group: int) -> str:
        """The bucket in words."""
        self.check_groups(group)
        squares, circles, label = (int(part) for part in _counts(torch.tensor(group)))
        frames = " and ".join(
            f"{count} {word}{'s' * (count > 1)}"
            for count, word in ((squares, "square"), (circles, "circle"))
            if count
        )
        winner = "squares" if label else "circles"
        return f"{frames}, {winner} cover more" if squares and circles else frames

    def fingerprint(self) -> Mapping[str, Any]:
        """Everything that its cases depend on, for hashing."""
        return {"kind": "shapes", "version": VERSION, "explains": self.explains}

    # -- drawing -----------------------------------------------------------------------------------------

    def streams(self, ids: Tensor, seed: int, purpose: str) -> Streams:
        """Random streams of samples; both explained outputs see the same pictures."""
        return Streams.of(ids, "shapes", purpose, seed)

    def layout(self, groups: Tensor, streams: Streams) -> Frames:
        """One picture of each bucket: sizes first, drawn again until they give the label, then places."""
        squares, circles, label = _counts(groups)
        slot = torch.arange(2, device=groups.device)
        present = torch.cat([slot < squares[:, None], slot < circles[:, None]], 1)
        outer, inner = _sizes(streams, present, label)
        corner = _corners(streams, present, extents(outer))
        return Frames(torch.stack([squares, circles, label], 1), present, outer, inner, corner)

    def lessons(self, groups: Tensor, streams: Streams) -> Frames:
        """The same for training."""
        return self.layout(groups, streams)

    def render(self, layout: Frames, streams: Streams) -> Tensor:
        """``(N, 1, 65, 65)`` float32 pictures, 1 on every frame."""
        return masks(layout).any(1, keepdim=True).float()

    def labels(self, groups: Tensor) -> Tensor:
        """1 where squares cover more; -1 where nothing is there, or as much of both."""
        squares, circles, label = _counts(groups)
        return torch.where((groups < 1) | (squares + circles == 0), -1, label)

    def group_of(self, states: Tensor) -> Tensor:
        """Bucket numbers of states; 0 where the label is open."""
        squares, circles, label = states.unbind(1)
        return torch.where(label < 0, 0, 1 + 2 * (3 * squares + circles) + label)

    def edits(self, layout: Frames, streams: Streams) -> Iterator[Edit]:
        """Take a frame away, fill it but for the smallest hole, or make its rim as thin as it can be."""
        for number, name in enumerate(NAMES):
            rows = layout.present[:, number].nonzero()[:, 0]
            if not len(rows):
                continue
            some = layout[rows]
            present, full, thin = some.present.clone(), some.inner.clone(), some.inner.clone()
            present[:, number] = False
            full[:, number] = HOLE
            thin[:, number] = some.outer[:, number] - RIM
            yield Edit("remove", name, rows, replace(some, present=present).relabelled())
            yield Edit("grow", name, rows, replace(some, inner=full).relabelled())
            yield Edit("shrink", name, rows, replace(some, inner=thin).relabelled())

    def truth(self, layout: Frames) -> Truth:
        """All frames are in focus; values are signed by the explained output."""
        frames = masks(layout)
        signed = frames[:, :2].any(1).float() - frames[:, 2:].any(1).float()
        won = layout.states[:, 2] == (1 if self.explains == "label" else 0)
        start, size = layout.corner, extents(layout.outer)
        ends = [start[..., 0], start[..., 0] + size, start[..., 1], start[..., 1] + size]
        there = layout.present
        roles = torch.where(there, int(Role.FOCUS), int(Role.ABSENT)).to(torch.int8)
        truth = Truth.from_objects(frames, torch.stack(ends, 2) * there[..., None], roles, NAMES)
        values = signed * torch.where(won, 1.0, -1.0)[:, None, None]
        return replace(truth, values=values[:, None], kind="exact")


def _first(fits: Tensor, *drawn: Tensor) -> list[Tensor]:
    """The first of several tries ``(n, T, ...)`` that fits, for each row."""
    row = torch.arange(len(fits), device=fits.device)
    return [tensor[row, fits.int().argmax(1)] for tensor in drawn]


def _sizes(streams: Streams, present: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """Sides of frames and holes ``(N, 4)`` whose areas give the label."""
    outer, inner = (torch.full(present.shape, side, device=present.device) for side in (OUTER[0], HOLE))
    todo = torch.arange(len(present), device=present.device)
    low, high = OUTER
    for attempt in range(_ROUNDS):
        own = streams[todo]
        big = low + own.integers(("outer", attempt), high - low + 1, _TRIES, 4)
        hole = HOLE + own.integers(("inner", attempt), big - RIM - HOLE + 1, _TRIES, 4)
        area = areas(big, hole) * present[todo, None]
        difference = area[..., :2].sum(2) - area[..., 2:].sum(2)
        fits = (difference > 0) == (label[todo, None] == 1)
        fits &= difference != 0
        done = fits.any(1)
        big, hole = _first(fits, big, hole)
        outer[todo], inner[todo] = big, hole
        todo = todo[~done]
        if len(todo) == 0:
            return outer, inner
    raise InvalidParameter("No sizes of frames were found that give the label of their bucket.")


def _corners(streams: Streams, present: Tensor, extent: Tensor) -> Tensor:
    """Where rectangles of sides `extent` ``(N, 4)`` start ``(N, 4, 2)``: uniform over layouts that fit."""
    corner = torch.zeros(*present.shape, 2, dtype=torch.int64, device=present.device)
    todo = torch.arange(len(present), device=present.device)
    for attempt in range(_ROUNDS):
        size = extent[todo][:, None, :, None]
        fresh = streams[todo].integers(("place", attempt), (SIDE - size + 1), _TRIES, 4, 2)
        end = fresh + size + GUARD
        bad = torch.zeros(fresh.shape[:2], dtype=torch.bool, device=present.device)
        for i, j in itertools.combinations(range(4), 2):
            apart = ((end[:, :, i] <= fresh[:, :, j]) | (end[:, :, j] <= fresh[:, :, i])).any(2)
            bad |= ~apart & (present[todo, i] & present[todo, j])[:, None]
        (corner[todo],) = _first(~bad, fresh)
        todo = todo[bad.all(1)]
        if len(todo) == 0:
            return corner
    raise InvalidParameter("No places for the frames of a picture were found.")
