"""The terminal: one console for words, one progress bar for waiting."""

from __future__ import annotations

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

console = Console()
errors = Console(stderr=True)


def progress() -> Progress:
    """A bar with count, time spent and time left; it is drawn on stderr so that stdout can be piped."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=errors,
    )


def interval(low: float, high: float, digits: int = 3) -> str:
    """An interval as people write it."""
    return f"[{low:.{digits}f}, {high:.{digits}f}]"
