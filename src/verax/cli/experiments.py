"""`verax run alignment-...` and `verax reproduce alignment`: experiments on what networks look at."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.markup import escape
from rich.table import Table

from verax.cli.console import console, say
from verax.errors import InvalidParameter

if TYPE_CHECKING:
    from verax.reproductions.alignment.running import Done

PREFIX = "alignment-"
_STYLES = {"holds": "green", "does not hold": "red", "cannot hold": "yellow", "not testable": "dim"}


def check(name: str) -> None:
    """Refuse an experiment that is none, with a suggestion."""
    from verax.reproductions.alignment import running

    running.experiment(name)


def run(
    name: str, out: Path | None, quiet: bool, unused: dict[str, Any], *, json: bool = False, **given: Any
) -> dict[str, Any]:
    """Run one experiment, print what was found, and give it as plain values.

    Args:
        name: of the experiment.
        out: its folder.
        quiet: no progress bars, no tables.
        unused: options of other studies, which must not be given.
        json: print nothing, since a program reads what is given back.
        **given: options of the experiment; None stands for its default.
    """
    from verax.reproductions.alignment import running
    from verax.reproductions.alignment.options import Options

    check(name)
    wrong = [option for option, value in unused.items() if value is not None]
    if wrong:
        raise InvalidParameter(f"{name!r} has no option --{wrong[0].replace('_', '-')}.")
    known = {option: value for option, value in given.items() if value is not None}
    options = Options(quiet=quiet, **known)
    done = running.run(name, options, out)
    if not quiet and not json:
        show(done)
        if options.quick:
            console.print(running.FIRST_LOOK, style="yellow", highlight=False)
    if not json:
        say(f"Page: {done.page}")
    found = running.as_json(done.experiment, done.evidence, done.findings)
    return {**found, "page": str(done.page), "phases": done.phases.rows}


def _width(rows: list[list[str]]) -> int:
    """How wide a table must be so that no word is broken."""
    return sum(
        max(len(word) for cell in cells for word in cell.split(" ")) + 3 for cells in zip(*rows, strict=True)
    )


def show(done: Done) -> None:
    """Print the first table and the verdicts."""
    title, first = next(iter(done.tables.items()))
    rows = [
        [str(column) for column in first.columns],
        *([str(cell) for cell in row] for row in first.to_numpy()),
    ]
    turned = [list(cells) for cells in zip(*rows, strict=True)]
    if _width(rows) > console.width >= _width(turned):  # many columns, few rows
        rows = turned
    table = Table(title=escape(f"{done.experiment.name}: {title}"), box=box.SIMPLE_HEAD, pad_edge=False)
    for column in rows[0]:
        table.add_column(escape(column), overflow="fold")
    for row in rows[1:]:
        table.add_row(*map(escape, row))
    console.print(table)
    for claim, finding in done.findings:
        doubt = " (uncertain)" if finding.uncertain else ""
        style = _STYLES[finding.verdict]
        console.print(f"[{style}]{finding.verdict}{doubt}[/{style}]: {escape(claim.says)}", highlight=False)
        console.print(escape(finding.measured), style="dim", highlight=False)
