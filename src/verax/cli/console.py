"""The terminal."""

from __future__ import annotations

import math

from rich.console import Console

console = Console()


def interval(low: float, high: float, digits: int = 3) -> str:
    """An interval as people write it; empty where one sample says nothing about others."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return ""
    return f"[{low:.{digits}f}, {high:.{digits}f}]"
