"""Where objects stand: integer positions, drawn per sample, on any device."""

from __future__ import annotations

import itertools
from functools import lru_cache

import torch
from torch import Tensor

from verax.errors import InvalidParameter
from verax.seeding import Streams
from verax.tasks.textbox.scenes import World

GAP = 2
"""Empty pixels between any two objects of the sound renderer."""

_TRIES = 8  # draws at once after the first, which most objects need: a GPU waits for every round

MAX_ROUNDS = 2000
"""Redraws after which a world counts as too crowded."""


@lru_cache(maxsize=64)
def _room(world: World, device: torch.device) -> tuple[Tensor, Tensor]:
    """Sizes ``(K, 2)`` of all kinds, and how many places each has; kept on the device."""
    sizes = torch.tensor([kind.size for kind in world.kinds], device=device)
    return sizes, torch.tensor(world.canvas, device=device) - sizes + 1


def _crowded(positions: Tensor, sizes: Tensor, present: Tensor, gap: int) -> Tensor:
    """Which samples have two present objects closer than `gap` pixels: bool ``(N,)``."""
    start, end = positions, positions + sizes + gap
    bad = torch.zeros(len(positions), dtype=torch.bool, device=positions.device)
    for i, j in itertools.combinations(range(positions.shape[1]), 2):
        apart = ((end[:, i] <= start[:, j]) | (end[:, j] <= start[:, i])).any(1)
        bad |= present[:, i] & present[:, j] & ~apart
    return bad


def separate(
    streams: Streams,
    present: Tensor,
    world: World,
    *,
    start: Tensor | None = None,
    free: Tensor | None = None,
    label: str = "place",
) -> Tensor:
    """Positions uniform over all layouts whose present objects are at least `GAP` pixels apart.

    A sample that is too crowded is drawn again, with a counter of its own, until it fits; so its layout
    does not depend on the other samples.

    Args:
        streams: one stream for each sample.
        present: ``(N, K)`` bool.
        world: the kinds of objects.
        start: positions of the objects that are not free.
        free: ``(N, K)`` bool; the objects to place (default: all).
        label: separates these draws from others of the same streams.

    Returns:
        ``(N, K, 2)`` int64 rows and columns of the top-left corners.
    """
    device = present.device
    sizes, limits = _room(world, device)
    count = len(world.kinds)
    positions = torch.zeros(*present.shape, 2, dtype=torch.int64, device=device) if start is None else start
    todo = torch.arange(len(present), device=device)
    for attempt in range(MAX_ROUNDS):
        fresh = streams[todo].integers((label, attempt), limits, count, 2)
        if free is not None:
            fresh = torch.where(free[todo][:, :, None], fresh, positions[todo])
        positions = positions.index_copy(0, todo, fresh)
        todo = todo[_crowded(fresh, sizes, present[todo], GAP)]
        if len(todo) == 0:
            return positions
    raise InvalidParameter(
        f"The objects of world {world.name!r} do not fit on the canvas {GAP} pixels apart."
    )


def published(streams: Streams, present: Tensor, world: World) -> Tensor:
    """Positions by the rules of the SMERF code, including its phantom text position and its overlaps.

    Text at int(36 u + 6); Box1 uniform in 0..53 with squared distance over 300 from int(36 u), whether or
    not there is text; Box2 likewise with 400 from a present text and 300 from a present Box1.
    """
    box1, box2, text = (world.names.index(name) for name in ("box1", "box2", "text"))
    # rows first: v is the vertical and u the horizontal coordinate of the text
    anchor = (36 * streams.uniform("text", 2)).to(torch.int64)
    positions = torch.zeros(*present.shape, 2, dtype=torch.int64, device=present.device)
    positions[:, text] = anchor + 6

    def near(a: Tensor, b: Tensor, limit: int) -> Tensor:
        return ((a - b) ** 2).sum(-1) <= limit

    for index in (box1, box2):
        todo, attempt, many = torch.arange(len(present), device=present.device), 0, 1
        while len(todo):
            tries = range(attempt, attempt + many)
            fresh = streams[todo].tries([(index, number) for number in tries], 54, 2)
            if index == box1:
                bad = near(fresh, anchor[todo, None], 300)
            else:
                bad = present[todo, None, text] & near(fresh, anchor[todo, None], 400)
                bad |= present[todo, None, box1] & near(fresh, positions[todo, None, box1], 300)
            chosen = bad.long().argmin(1)  # the first try that is not
            here = torch.arange(len(todo), device=todo.device)
            positions[todo, index] = fresh[here, chosen]
            todo = todo[bad[here, chosen]]
            attempt, many = attempt + many, _TRIES
    return positions


def published_again(
    streams: Streams, present: Tensor, start: Tensor, free: Tensor, world: World, label: str
) -> Tensor:
    """New places for the objects marked in `free`, by the published rules, beside those that stay."""
    box1, box2, text = (world.names.index(name) for name in ("box1", "box2", "text"))
    positions, todo = start, torch.arange(len(present), device=present.device)

    def near(p: Tensor, i: int, j: int, limit: int, shift: int = 0) -> Tensor:
        return ((p[:, i] - p[:, j] + shift) ** 2).sum(-1) <= limit

    for attempt in range(MAX_ROUNDS):
        fresh = published(Streams.of(streams.ids[todo], streams.seed, label, attempt), present[todo], world)
        fresh = torch.where(free[todo][:, :, None], fresh, positions[todo])
        positions = positions.index_copy(0, todo, fresh)
        here = present[todo]
        bad = near(fresh, box1, text, 300, 6) & here[:, box1]
        bad |= near(fresh, box2, text, 400, 6) & here[:, box2] & here[:, text]
        bad |= near(fresh, box2, box1, 300) & here[:, box2] & here[:, box1]
        todo = todo[bad]
        if len(todo) == 0:
            return positions
    raise InvalidParameter("An object of a published scene could not be placed beside the others.")
