"""Progress bars."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
def status(words: str, hidden: bool = False) -> Iterator[None]:
    """A line that says what is going on and for how long, where nobody can say how long it will take."""
    if hidden or not errors.is_terminal:
        yield
        return
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=errors,
        transient=True,  # it says nothing once it is done
    ) as line:
        line.add_task(words, total=None)
        yield
