"""Tables and numbers of the page of performance."""

from __future__ import annotations

import math
from collections.abc import Iterable


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of Markdown."""
    head = list(head)
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def number(value: float | None) -> str:
    """A number of two or three digits."""
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def times(value: float | None) -> str:
    """A ratio."""
    return "" if value is None else f"{number(value)}×"


def strictly(value: float, sense: str) -> str:
    """A ratio that is not rounded to what would be level, or met."""
    if not 0.01 <= value < 10:
        return number(value)
    return number((math.floor if sense == "at least" else math.ceil)(100 * value) / 100)
