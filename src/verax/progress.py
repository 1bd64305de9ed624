"""Progress bars."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from verax.terminal import Terminal

errors = Terminal(stderr=True)
"""Bars are drawn on stderr so that stdout can be piped."""


@dataclass(frozen=True)
class _Doing:
    """What is being worked on, in one line; a name that is too long loses its beginning.

    Names begin with the task and end with the method, which is what tells one from the next.
    """

    words: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = max(options.max_width - 2, 1)
        words = self.words if len(self.words) <= room else "\N{HORIZONTAL ELLIPSIS}" + self.words[1 - room :]
        yield Text(f"  {words}", style="dim", no_wrap=True, overflow="crop")


class Bar(Progress):
    """Bars, each with what it is `doing` in a line of its own: beside the bar, long names push out the time.

    ``update(row, doing="...")`` says what that is, and an empty string takes the line away.
    """

    def get_renderables(self) -> Iterable[RenderableType]:
        """Every bar and, below it, what it is doing."""
        for task in self.tasks:
            yield self.make_tasks_table([task])
            if task.visible and (words := str(task.fields.get("doing", ""))):
                yield _Doing(words)


def bar(hidden: bool = False) -> Bar:
    """A bar with count, time spent and time left."""
    return Bar(
        SpinnerColumn(table_column=Column(no_wrap=True)),
        TextColumn("{task.description}", markup=False, table_column=Column(overflow="fold")),
        BarColumn(),  # this and the label share what the rest leaves
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
        TimeRemainingColumn(table_column=Column(no_wrap=True)),
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
