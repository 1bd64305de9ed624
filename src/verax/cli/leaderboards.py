"""`verax leaderboard`: the methods of many runs in one table for each network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from verax import progress
from verax.cli import completion, options, pages
from verax.cli.comparisons import Metric, Protocol
from verax.cli.console import Json, Quiet, console, interval, print_json, say

if TYPE_CHECKING:
    from verax.studies.standings import Board, Standings


def leaderboard(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="Folders of runs, or a folder that has runs in it.", autocompletion=completion.runs
        ),
    ],
    protocol: Protocol = None,
    metric: Metric = None,
    tasks: options.Tasks = None,
    out: Annotated[
        Path | None, typer.Option(help="The page (default: leaderboard.html, unless --json or --csv).")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write all numbers to this CSV file.")] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Put the methods of many runs into one leaderboard: a page that sorts without a server.

    Runs with other versions of a task, other pictures or other weights are left out, and named; of each task
    the pictures that all runs have count. Only tasks of one family are averaged. Methods that share a label
    and are not the same, as before and after a change of their code, have a row each, named after its run.
    """
    from verax.files import make_folder, write_atomically
    from verax.studies.exports import defused
    from verax.studies.standings import standings

    folders = [folder for name in runs for folder in spread(Path(name))]
    with progress.status("Putting runs together", hidden=quiet):
        found = standings(folders, protocol=protocol, metric=metric, tasks=options.names(tasks))
        if out is None and csv is None and not json:
            out = Path("leaderboard.html")
        path = None if out is None else found.report(out)
    if csv is not None:
        make_folder(csv.absolute().parent)
        write_atomically(csv, defused(found.frame()).to_csv(index=False).encode())
    if json:
        print_json(found.record() | ({} if path is None else {"page": path}))
        return
    if not quiet:
        show(found)
    if csv is not None:
        say(f"Numbers: {csv}")
    if path is not None:
        say(f"Page: {path}")


def spread(folder: Path) -> list[Path]:
    """The folder, or the runs of studies in it where it is none itself."""
    if (folder / pages.MANIFEST).is_file() or not folder.is_dir():
        return [folder]
    inside = [path for path in pages.recent(folder) if isinstance(pages.manifest(path).get("study"), dict)]
    return inside or [folder]


def show(found: Standings) -> None:
    """Print one table for each network and family of tasks, and what was left out."""
    better = "higher" if found.higher_is_better else "lower"
    for board in found.boards:
        console.print(_table(board, f"{found.metric}, {found.protocol} protocol, {better} is better"))
    console.print(
        "Means over buckets with 95 % intervals. Skill: 0 is the best control, 1 the oracle. Dim rows are "
        "controls and the oracle; methods that lack pictures of a task have no rank.",
        style="dim",
    )
    for note in found.notes:
        console.print(escape(note), style="yellow", highlight=False)
    for name, reason in found.left_out.items():
        console.print(escape(f"Left out: {name}. {reason}"), style="yellow", highlight=False, soft_wrap=True)


_RANK, _NAME, _TASK = 2, 22, 11
"""Characters: of a rank at least, of the name of a method (if that tells it apart) and of a task at most."""


def _cut(methods: list[str], room: int) -> list[str]:
    """Names of methods that are too long, cut in their middle; as long as it takes to tell them apart."""
    from verax.reports import short

    longest = max(map(len, methods))
    for width in range(min(_NAME, longest, room), min(longest, room) + 1):
        found = [short(name, width) for name in methods]
        if len(set(found)) == len(set(methods)):
            break
    return found


def _line(row: dict[str, Any], skilled: bool) -> list[str]:
    """Rank, method, mean and, where there is one, skill, as text."""
    missing = row["value"] != row["value"]
    value = "incomplete" if missing else f"{row['value']:.2f} {interval(row['low'], row['high'], 2)}"
    skill = [""] if skilled else []
    if row["skill"] == row["skill"]:
        skill = [f"{row['skill']:.2f} {interval(row['skill_low'], row['skill_high'], 2)}"]
    rank = "" if row["rank"] is None or row["rank"] != row["rank"] else str(int(row["rank"]))
    return [rank, str(row["method"]), value, *skill]


def _table(board: Board, words: str) -> Table:
    from verax.reports import task_labels
    from verax.studies import tiers

    known = {(row["method"], row["task"]): row for row in board.table.to_dict("records")}
    skilled = bool(board.overall["skill"].notna().any())
    lines = [_line(row, skilled) for row in board.overall.astype({"rank": "float64"}).to_dict("records")]
    # numbers are never cut: tasks that do not fit beside them are in the page and the CSV file
    first = [max(_RANK, *(len(line[0]) for line in lines))]
    heads = ("all tasks", "skill")
    first += [max(len(heads[n - 2]), *(len(line[n]) for line in lines)) for n in range(2, len(lines[0]))]
    taken = sum(width + 2 for width in first) + 2
    names = _cut([line[1] for line in lines], max(_RANK, console.width - taken - 2))
    taken += max(map(len, names)) + 2
    shown = board.tasks[: max(0, (console.width - taken) // (_TASK + 2))]
    title = f"{board.network}, {board.family} tasks ({tiers.words(board.tier)})\n{words}"
    table = Table(title=escape(title), box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("", justify="right", no_wrap=True, min_width=_RANK)
    table.add_column("method", no_wrap=True, overflow="ellipsis")
    table.add_column("all tasks", justify="right", no_wrap=True)
    if skilled:
        table.add_column("skill", justify="right", no_wrap=True)
    for name in task_labels(shown):
        table.add_column(escape(name), justify="right", max_width=_TASK, no_wrap=True, overflow="ellipsis")
    for line, name in zip(lines, names, strict=True):
        cells = [known[line[1], task]["value"] for task in shown]
        row = [line[0], name, *line[2:], *("–" if v != v else f"{v:.2f}" for v in cells)]
        table.add_row(*map(escape, row), style="" if line[0] else "dim")
    if hidden := len(board.tasks) - len(shown):
        table.caption = f"and {hidden} more task{'s' * (hidden > 1)}, which the page and --csv have"
    return table
