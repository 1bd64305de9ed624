"""The seven settings of the SMERF paper, written as rules (Table 1 of Kim, Plumb and Talwalkar, ICML 2022).

The labels are those of the paper's table; the published code and data have the box branch of the four CR
settings the other way round.
"""

from __future__ import annotations

SETTINGS: dict[str, tuple[str, str]] = {
    "simple-fr": ("simple", "box1 -> 1; otherwise -> 0"),
    "simple-nr": ("simple", "text = A -> 0; text = B -> 1"),
    "complex-fr": ("complex", "box1 and box2 -> 1; otherwise -> 0"),
    "complex-cr1": ("complex", "box2 and box1 -> 1; box2 and not box1 -> 0; text = A -> 0; text = B -> 1"),
    "complex-cr2": ("complex", "box1 and box2 -> 1; box1 and not box2 -> 0; text = A -> 0; text = B -> 1"),
    "complex-cr3": (
        "complex",
        "box2 and text = A -> 0; box2 and text = B -> 1; not box2 and box1 -> 1; not box2 and not box1 -> 0",
    ),
    "complex-cr4": (
        "complex",
        "box1 and text = A -> 0; box1 and text = B -> 1; not box1 and box2 -> 1; not box1 and not box2 -> 0",
    ),
}
"""Setting -> (family, reasoning)."""
