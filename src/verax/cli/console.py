"""The terminal."""

from __future__ import annotations

from rich.console import Console

console = Console()


def interval(low: float, high: float, digits: int = 3) -> str:
    """An interval as people write it."""
    return f"[{low:.{digits}f}, {high:.{digits}f}]"
