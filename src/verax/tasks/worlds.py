"""More little worlds, each a few lines: a reasoning over TextBox's objects, or over objects of its own.

- ``xor``: one box or the other, not both. No object speaks for a label by itself, so that a method which
  looks at one object at a time cannot be right (the XOR scenario of Clark et al., "XAI-TRIS", 2024).
- ``three-labels``: three labels, one of them decided by the letter alone, two by the letter and a box.
- ``colour``: the colour of a box decides, its shape and place say nothing; a bar in the same two colours
  stands about and has to be ignored.

The rules spell out absence ("not box1"), because under ``otherwise`` nothing is in focus.
"""

from __future__ import annotations

from verax.tasks.textbox.reasoning import Reasoning
from verax.tasks.textbox.scenes import TEXTBOX, Kind, Look, World

RED, GREEN = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0)

COLOUR = World(
    "colour",
    (
        Kind("box", {"red": Look.box(10, 10, RED), "green": Look.box(10, 10, GREEN)}),
        Kind("bar", {"red": Look.box(4, 20, RED), "green": Look.box(4, 20, GREEN)}),
    ),
)
"""Boxes and bars, red or green."""

WORLDS: dict[str, tuple[World, str]] = {
    "xor": (
        TEXTBOX,
        "box1 and not box2 -> 1; box2 and not box1 -> 1; box1 and box2 -> 0; not box1 and not box2 -> 0",
    ),
    "three-labels": (TEXTBOX, "text = A and box1 -> 0; text = A and not box1 -> 1; text = B -> 2"),
    "colour": (COLOUR, "box = red -> 1; box = green -> 0"),
}
"""Name -> world and reasoning."""


def reasoning(name: str) -> Reasoning:
    """The reasoning of one of `WORLDS`."""
    world, rules = WORLDS[name]
    return Reasoning.parse(rules, world)
