"""Progress bars."""

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

errors = Console(stderr=True)
"""Bars are drawn on stderr so that stdout can be piped."""


def bar(hidden: bool = False) -> Progress:
    """A bar with count, time spent and time left."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=errors,
        disable=hidden,
    )
