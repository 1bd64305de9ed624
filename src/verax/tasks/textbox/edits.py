"""Interventions: one object of a scene changes, everything else stays as it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from verax.seeding import Streams
from verax.tasks.base import Edit
from verax.tasks.textbox.renderers import Layout, Renderer
from verax.tasks.textbox.scenes import World


def edits(renderer: Renderer, world: World, layout: Layout, streams: Streams) -> Iterator[Edit]:
    """Every way to change one object of each scene: remove, move, swap (another look) or add it."""
    for index, kind in enumerate(world.kinds):
        here = layout.present[:, index]
        free = torch.zeros_like(layout.present)
        free[:, index] = True
        for look in range(1, len(kind.states)):
            for name, mask in (("swap", here & (layout.states[:, index] != look)), ("add", ~here)):
                rows = mask.nonzero()[:, 0]
                if len(rows) == 0:
                    continue
                states = layout.states[rows].clone()
                states[:, index] = look
                changed = replace(layout[rows], states=states)
                if name == "add":
                    label = f"add/{kind.name}"
                    changed = renderer.replace(streams[rows], changed, free[rows], world, label)
                full = name if kind.plain_object else f"{name} {kind.states[look]}"
                yield Edit(full, kind.name, rows, changed)
        rows = here.nonzero()[:, 0]
        if len(rows):
            states = layout.states[rows].clone()
            states[:, index] = 0
            yield Edit("remove", kind.name, rows, replace(layout[rows], states=states))
            label = f"move/{kind.name}"
            moved = renderer.replace(streams[rows], layout[rows], free[rows], world, label)
            yield Edit("move", kind.name, rows, moved)
