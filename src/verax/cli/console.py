"""The terminal: tables on stdout for people, JSON on stdout for programs, everything else on stderr."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.markup import escape
from typer.core import TyperCommand

from verax.terminal import Terminal, shown

console = Terminal()

JUDGE, AUDIT, REPRODUCE, LOOK, KEEP = (
    "Judge methods where the truth is known",
    "Audit a model with your own images",
    "Reproduce",
    "Look at results",
    "Keep in order",
)
"""The groups of commands in `verax --help`."""

Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, and nothing else there.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar, no tables.")]


class Command(TyperCommand):
    """A command that names the nearest of its options first when one is misspelt; typer sorts them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the words of a call apart."""
        try:
            return list(super().parse_args(ctx, args))
        except Exception as error:  # the class is typer's or click's, by version
            near = getattr(error, "possibilities", None)
            if near:
                error.possibilities = None  # type: ignore[attr-defined]
                error.message = f"{error.message}; did you mean {' or '.join(near[:2])}?"  # type: ignore[attr-defined]
            raise


def interval(low: float, high: float, digits: int = 3) -> str:
    """An interval as people write it; empty where one sample says nothing about others."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return ""
    return f"[{low:.{digits}f}, {high:.{digits}f}]"


def examples(*lines: str) -> str:
    """The end of a command's help: calls that can be copied, each on a line of its own."""
    return "\n".join(["[bold]Examples[/bold]", *(f"[dim]$[/dim] {escape(line)}" for line in lines)])


def plain(value: Any) -> Any:
    """Values that JSON knows: numbers that are not finite become null, paths and others their text."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(entry) for entry in value]
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # a number of numpy
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value)


def print_json(values: object) -> None:
    """Print values as JSON that every program can read."""
    typer.echo(json.dumps(plain(values), indent=2, allow_nan=False))


def echo(text: str, *, err: bool = False) -> None:
    """One line as it is, without what would steer a terminal."""
    typer.echo(shown(text), err=err)


def say(text: str) -> None:
    """One line for people, as it is: paths are never wrapped or coloured."""
    console.print(text, soft_wrap=True, markup=False, highlight=False)
