"""`verax compare`: how runs differ, picture by picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from verax import progress
from verax.cli import completion, options
from verax.cli.console import Json, Quiet, console, print_json, say

if TYPE_CHECKING:
    import pandas as pd

    from verax.studies.differences import Differences

Protocol = Annotated[
    str | None,
    typer.Option(
        help="Whose scores (default: sound, or the first that all runs have).",
        autocompletion=completion.protocol,
    ),
]
Metric = Annotated[
    str | None,
    typer.Option(
        help="Which score (default: focus-share for sound, pafl for published).",
        autocompletion=completion.metric,
    ),
]


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="Folders of two runs or more; the first is what others are compared with.",
            autocompletion=completion.runs,
        ),
    ],
    protocol: Protocol = None,
    metric: Metric = None,
    tasks: options.Tasks = None,
    out: Annotated[Path | None, typer.Option(help="Write a page to this HTML file.")] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Compare runs on the pictures that they share: differences with intervals and paired tests."""
    from verax.studies.differences import compare as difference

    with progress.status("Comparing", hidden=quiet):
        found = difference(*runs, protocol=protocol, metric=metric, tasks=options.names(tasks))
        path = None if out is None else found.report(out)
    if json:
        print_json(found.record() | ({} if path is None else {"page": path}))
        return
    if not quiet:
        show(found)
    if path is not None:
        say(f"Page: {path}")


def show(found: Differences) -> None:
    """Print one table for each run that is compared with the first."""
    base = found.runs[0]["label"]
    better = "higher" if found.higher_is_better else "lower"
    for run, rows in found.table.groupby("run", sort=False):
        title = f"{run} against {base}\n{found.metric}, {found.protocol} protocol, {better} is better"
        console.print(_table(title, rows))
    console.print(escape(found.sentence()), highlight=False)
    console.print(
        "Differences of means over buckets with 95 % intervals (paired bootstrap). Won and lost count "
        "pictures. p: Wilcoxon's signed-rank test over pictures, corrected by Holm.",
        style="dim",
    )
    for note in found.notes:
        console.print(escape(note), style="yellow", highlight=False)


def _table(title: str, rows: pd.DataFrame) -> Table:
    from verax.reports.differences import p_words, signed, verdict

    heads, lines, styles = ("method", "before", "after", "difference", "won:lost", "p", ""), [], []
    for row in rows.to_dict("records"):
        said = verdict(row)
        known = row["low"] == row["low"]
        moved = row["low"] != 0 or row["high"] != 0
        span = f" [{signed(row['low'])}, {signed(row['high'])}]" if known and moved else ""
        cells = (
            str(row["method"]),
            f"{row['first']:.2f}",
            f"{row['second']:.2f}",
            signed(row["difference"]) + span,
            f"{row['wins']}:{row['losses']}",
            p_words(row["holm"]),
            said if row["differ"] else "",
        )
        lines.append(cells)
        styles.append({"better": "green", "worse": "red"}.get(said, "" if said else "dim"))
    # what is cut on a narrow terminal is the name of a method, and no number
    widths = [max(map(len, column)) for column in zip(heads, *lines, strict=True)]
    room = console.width - sum(width + 2 for width in widths[1:]) - 3
    table = Table(title=escape(title), box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("method", no_wrap=True, max_width=max(8, min(22, room)), overflow="ellipsis")
    for name in heads[1:-1]:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for cells, style in zip(lines, styles, strict=True):
        table.add_row(*map(escape, cells), style=style)
    return table
