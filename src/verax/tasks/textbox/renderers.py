"""From integer positions to pictures and masks, vectorised on any device.

Two renderers share one interface. `sound`: uniform placement, objects at least two pixels apart, masks by
ink. `published`: placement, 13 x 19 text box and rectangle masks as in the SMERF code, overlaps included.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from verax.errors import InvalidParameter
from verax.registry import Registry
from verax.seeding import Streams, parts
from verax.tasks.textbox import glyphs, placement
from verax.tasks.textbox.scenes import Kind, World


@dataclass(frozen=True)
class Layout:
    """Scenes laid out: the state (index into ``kind.states``) and the position of every object.

    Attributes:
        states: ``(N, K)`` int64.
        positions: ``(N, K, 2)`` int64 rows and columns.
    """

    states: Tensor
    positions: Tensor

    @property
    def present(self) -> Tensor:
        """``(N, K)`` bool."""
        return self.states > 0

    def __getitem__(self, index: Tensor | slice) -> Layout:
        """Some of the scenes."""
        return Layout(self.states[index], self.positions[index])


class Renderer(Protocol):
    """Places objects and draws them."""

    @property
    def name(self) -> str:
        """How it is called in studies."""
        ...

    @property
    def order(self) -> tuple[str, ...] | None:
        """The drawing order, where it is not that of the world."""
        ...

    def place(self, streams: Streams, states: Tensor, world: World) -> Layout:
        """Lay out scenes whose objects have the given states."""
        ...

    def replace(self, streams: Streams, layout: Layout, free: Tensor, world: World, label: str) -> Layout:
        """Give the objects marked in `free` new places and leave the rest where it is."""
        ...

    def offset(self, kind: Kind) -> tuple[int, int]:
        """Rows and columns between an object's position and its ink."""
        ...

    def rectangles(self, kind: Kind) -> Tensor:
        """``(S, 4)`` int64: row0, row1, col0, col1 of each state relative to the position."""
        ...

    def masks(self, layout: Layout, world: World) -> Tensor:
        """``(N, K, H, W)`` bool: the pixels of every object."""
        ...


@lru_cache(maxsize=256)
def _table(kind: Kind, device: torch.device) -> Tensor:
    """Ink of every state, padded to one size: ``(S, h, w)``; the first state is absence.

    Kept on the device, because a GPU has to wait for every copy.
    """
    table = torch.zeros(len(kind.states), *kind.size)
    for index, look in enumerate(kind.looks.values(), 1):
        table[index, : look.ink.shape[0], : look.ink.shape[1]] = torch.from_numpy(look.ink.copy())
    return table.to(device)


@lru_cache(maxsize=256)
def _colours(kind: Kind, device: torch.device) -> Tensor:
    return torch.tensor([(0.0, 0.0, 0.0), *(look.colour for look in kind.looks.values())], device=device)


def _patch(renderer: Renderer, layout: Layout, world: World, index: int) -> tuple[Tensor, Tensor]:
    """The ink of object `index` ``(N, h * w)`` and the places on the canvas that it covers, likewise."""
    kind = world.kinds[index]
    device = layout.states.device
    values = _table(kind, device)[layout.states[:, index]]
    down, right = renderer.offset(kind)
    rows = layout.positions[:, index, 0, None] + down + torch.arange(values.shape[1], device=device)
    cols = layout.positions[:, index, 1, None] + right + torch.arange(values.shape[2], device=device)
    return values.flatten(1), (rows[:, :, None] * world.canvas[1] + cols[:, None, :]).flatten(1)


def ink(renderer: Renderer, layout: Layout, world: World, index: int) -> Tensor:
    """How far object `index` covers each pixel: ``(N, H, W)`` float32."""
    values, places = _patch(renderer, layout, world, index)
    flat = torch.zeros(len(values), world.canvas[0] * world.canvas[1], device=values.device)
    return flat.scatter_(1, places, values).reshape(-1, *world.canvas)


def draw(renderer: Renderer, layout: Layout, world: World, background: Tensor) -> Tensor:
    """Paint objects onto `background` ``(N, 3, H, W)`` itself, in the renderer's drawing order.

    Only the few pixels that an object can cover are touched, and nothing is copied: the time goes into
    making the background.
    """
    touched = 3 * sum(kind.size[0] * kind.size[1] for kind in world.kinds)
    for part in parts(layout.states, touched):
        _paint(renderer, layout[part], world, background[part])
    return background


def _paint(renderer: Renderer, layout: Layout, world: World, background: Tensor) -> None:
    image = background.view(len(background), 3, -1)
    for name in renderer.order or world.names:
        index = world.names.index(name)
        values, places = _patch(renderer, layout, world, index)
        where = places[:, None].expand(-1, 3, -1)
        colour = _colours(world.kinds[index], image.device)[layout.states[:, index]][:, :, None]
        cover = values[:, None].expand(where.shape)
        image.scatter_(2, where, torch.lerp(image.gather(2, where), colour.expand(where.shape), cover))


def boxes(renderer: Renderer, layout: Layout, world: World) -> Tensor:
    """``(N, K, 4)`` int64: row0, row1, col0, col1 of every object; zeros where it is absent."""
    device = layout.states.device
    parts = []
    for index, kind in enumerate(world.kinds):
        relative = renderer.rectangles(kind).to(device)[layout.states[:, index]]
        corner = layout.positions[:, index].repeat_interleave(2, dim=1)
        parts.append((relative + corner) * layout.present[:, index, None])
    return torch.stack(parts, 1)


def _rectangle_masks(corners: Tensor, canvas: tuple[int, int]) -> Tensor:
    rows = torch.arange(canvas[0], device=corners.device)
    cols = torch.arange(canvas[1], device=corners.device)
    row0, row1, col0, col1 = (corners[..., i, None] for i in range(4))
    inside_rows = (rows >= row0) & (rows < row1)
    inside_cols = (cols >= col0) & (cols < col1)
    return inside_rows[..., :, None] & inside_cols[..., None, :]


@dataclass(frozen=True)
class Sound:
    """Uniform placement, objects apart, masks by ink."""

    name: str = "sound"
    order: tuple[str, ...] | None = None

    def place(self, streams: Streams, states: Tensor, world: World) -> Layout:
        """Lay out scenes whose objects have the given states."""
        return Layout(states, placement.separate(streams, states > 0, world))

    def replace(self, streams: Streams, layout: Layout, free: Tensor, world: World, label: str) -> Layout:
        """Give the objects marked in `free` new places and leave the rest where it is."""
        positions = placement.separate(
            streams, layout.present, world, start=layout.positions, free=free, label=label
        )
        return replace(layout, positions=positions)

    def offset(self, kind: Kind) -> tuple[int, int]:
        """The ink starts at the position itself."""
        return (0, 0)

    def rectangles(self, kind: Kind) -> Tensor:
        """Bounding boxes of the ink."""
        table = [(0, 0, 0, 0)]
        for look in kind.looks.values():
            rows, cols = np.nonzero(look.ink)
            table.append((int(rows.min()), int(rows.max()) + 1, int(cols.min()), int(cols.max()) + 1))
        return torch.tensor(table)

    def masks(self, layout: Layout, world: World) -> Tensor:
        """``(N, K, H, W)`` bool: pixels with ink."""
        return torch.stack([ink(self, layout, world, k) > 0 for k in range(len(world.kinds))], 1)


@dataclass(frozen=True)
class Published:
    """Placement, text box and rectangle masks as in the code of Kim, Plumb and Talwalkar (ICML 2022)."""

    name: str = "published"
    order: tuple[str, ...] | None = ("box1", "text", "box2")

    def _check(self, world: World) -> None:
        sizes = {kind.name: kind.size for kind in world.kinds}
        if sizes != {"box1": (10, 10), "box2": (4, 4), "text": (15, 14)} or world.canvas != (64, 64):
            sentence = (
                "The 'published' renderer knows only text, box1 and box2 on 64 x 64; use 'sound' instead."
            )
            raise InvalidParameter(sentence)

    def place(self, streams: Streams, states: Tensor, world: World) -> Layout:
        """Lay out scenes whose objects have the given states."""
        self._check(world)
        return Layout(states, placement.published(streams, states > 0, world))

    def replace(self, streams: Streams, layout: Layout, free: Tensor, world: World, label: str) -> Layout:
        """Give the objects marked in `free` new places that obey the rules beside the others."""
        self._check(world)
        positions = placement.published_again(streams, layout.present, layout.positions, free, world, label)
        return replace(layout, positions=positions)

    def offset(self, kind: Kind) -> tuple[int, int]:
        """Text has empty rows above its ink."""
        return (glyphs.ROWS_ABOVE, 0) if kind.name == "text" else (0, 0)

    def rectangles(self, kind: Kind) -> Tensor:
        """13 x 19 for text, the full size for boxes."""
        height, width = glyphs.BOX if kind.name == "text" else kind.size
        return torch.tensor([(0, 0, 0, 0), *((0, height, 0, width) for _ in kind.looks)])

    def masks(self, layout: Layout, world: World) -> Tensor:
        """``(N, K, H, W)`` bool: rectangles."""
        return _rectangle_masks(boxes(self, layout, world), world.canvas)


RENDERERS: Registry[Renderer] = Registry("renderer")
RENDERERS.register("sound", Sound())
RENDERERS.register("published", Published())
