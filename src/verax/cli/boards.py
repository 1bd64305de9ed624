"""Boards: the leaderboards of a run as tables in a terminal."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.markup import escape
from rich.table import Table

from verax import plugins
from verax.cli.console import console, interval
from verax.errors import VeraxError

if TYPE_CHECKING:
    import pandas as pd

    from verax.studies.runs import Run


_METHOD, _GAP = 22, 2
"""Characters of a method's name, and between columns."""

_SHOWN = 20
"""Failures and damaged entries that are listed one by one."""


def _table(title: str, board: pd.DataFrame, measure: str = "focus share") -> Table:
    skilled = bool(board["skill"].notna().any())
    # lines and wide gaps between columns would not fit 80 characters
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("", justify="right", no_wrap=True, min_width=2)
    table.add_column("method", no_wrap=True, max_width=_METHOD, overflow="ellipsis")
    # the tier is in the title: one table has one tier
    for name in (escape(measure), "worst", *["skill"] * skilled):
        table.add_column(name, justify="right", no_wrap=True)
    for row in board.itertuples(index=False):
        reference = str(row.rank) == "<NA>"  # controls and the oracle
        skill = (
            "" if row.skill != row.skill else f"{row.skill:+.2f} {interval(row.skill_low, row.skill_high, 2)}"
        )
        value = f"{row.value:.2f} {interval(row.low, row.high, 2)}"
        cells = ["" if reference else row.rank, row.method, value, f"{row.worst:.2f}", *[skill] * skilled]
        if row.value != row.value:
            cells = ["", row.method, "incomplete: it failed somewhere", "", *[""] * skilled]
        table.add_row(*(escape(str(cell)) for cell in cells), style="dim" if reference else "")
    return table


def _say_degenerate(board: pd.DataFrame, manifest: Mapping[str, Any]) -> None:
    """Print which methods gave maps that say nothing, unless a note says that all of theirs do."""
    found = board[board["rank"].notna() & (board["degenerate"] > 0)]
    words = [
        f"{row['degenerate']} of {row['samples']} maps of {row['method']}"
        for row in found.to_dict("records")
        if not any(note.startswith(f"{row['method']}: all ") for note in manifest.get("notes", []))
    ]
    if words:
        said = f"Constant or not finite (NaN or infinite): {', '.join(words)}."
        console.print(f"[yellow]{escape(said)}[/yellow]", soft_wrap=True)


_EXACT = {
    "pearson/core": "no pole",
    "sign-agreement": "sign",
    "top-overlap": "top",
    "pearson/magnitude": "|r|",
}
"""Measures that fit a terminal, and what they are called there; the report has all."""


def _show_exact(run: Run, tier: str) -> None:
    """Print the main measures of agreement with an exact truth, and how well the networks of a tier fit."""
    from verax.reports import agreement

    for family in dict.fromkeys(run.families.values()):
        boards = agreement.means(run, family)
        if "pearson" not in boards:
            console.print(f"[red]{escape(family)}: no method could be ranked[/red]")
            continue
        names = [name for name in _EXACT if name in boards]
        tasks = [task for task, known in run.families.items() if known == family]
        title = f"{run.manifest['study']['name']}: {family} tasks (exact protocol)"
        title += f"\n{', '.join(run.tiers)}: {tier}; {agreement.fit_words(run.manifest, tasks)}"
        table = Table(title=escape(title), box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        table.add_column("", justify="right", no_wrap=True, min_width=2)
        table.add_column("method", no_wrap=True, max_width=_METHOD, overflow="ellipsis")
        table.add_column("pearson", justify="right", no_wrap=True)
        for name in names:
            table.add_column(_EXACT[name], justify="right", no_wrap=True)
        for row in boards["pearson"].itertuples(index=False):
            values = [boards[name].set_index("method")["value"].get(row.method) for name in names]
            cells = ["–" if value is None or value != value else f"{value:.2f}" for value in values]
            rank = str(row.rank).replace("<NA>", "")  # references have none
            value = f"{row.value:.2f} {interval(row.low, row.high, 2)}"
            words = (rank, str(row.method), "–" if row.value != row.value else value, *cells)
            table.add_row(*map(escape, words), style="" if rank else "dim")
        console.print(table)
        _say_degenerate(boards["pearson"], run.manifest)


def _explain_exact() -> None:
    """Print what the columns mean."""
    console.print(
        "pearson: correlation of maps with the exact truth, mean over samples with 95 % interval (no pole: "
        "without cells at a pole; |r|: of magnitudes). sign, top: share of cells with the "
        "right sign, and of the strongest tenth that is found. The network is not the function it learned: "
        "what differs costs every method. Dim rows are controls and the oracle.",
        style="dim",
    )


def _means(board: pd.DataFrame) -> dict[str, str]:
    """Method -> its mean with its interval."""
    return {
        str(method): f"{row['value']:.2f} {interval(row['low'], row['high'], 2)}".rstrip()
        for method, row in board.dropna(subset="value").iterrows()
    }


def _beside(
    columns: Sequence[tuple[str, Mapping[str, str]]], width: int
) -> list[list[tuple[str, Mapping[str, str]]]]:
    """Columns in as few parts as fit into so many characters; headings are never cut."""
    parts: list[list[tuple[str, Mapping[str, str]]]] = []
    left = 0
    for name, words in columns:
        wide = max(map(len, (*name.splitlines(), *words.values()))) + _GAP
        if not parts or wide > left:
            parts.append([])
            left = width
        parts[-1].append((name, words))
        left -= wide
    return parts


def _show_faithfulness(run: Run, tier: str) -> None:
    """Print the means of every faithfulness metric, and how far they rank as the truth does."""
    from verax.metrics import METRICS
    from verax.metrics.scoring import metric_names
    from verax.reports import faithfulness

    metrics = metric_names("faithfulness")
    for family in dict.fromkeys(run.families.values()):
        try:
            boards = [
                run.leaderboard("faithfulness", metric, family).set_index("method") for metric in metrics
            ]
            agreed = run.agreement(family)
        except VeraxError as error:
            console.print(f"[red]{escape(family)}: {escape(str(error))}[/red]")
            continue
        title = f"{run.manifest['study']['name']}: {family} reasonings (faithfulness)"
        title += f"\n{', '.join(run.tiers)}: {tier}"
        columns = [
            (f"{metric}\n({'higher' if METRICS.get(metric).higher_is_better else 'lower'})", _means(board))
            for metric, board in zip(metrics, boards, strict=True)
        ]
        unranked = boards[0]["rank"].isna()
        for part in _beside(columns, console.width - min(_METHOD, max(map(len, boards[0].index))) - _GAP):
            table = Table(title=escape(title), box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
            table.add_column("method", no_wrap=True, max_width=_METHOD, overflow="ellipsis")
            for name, _ in part:
                table.add_column(name, justify="right", no_wrap=True)
            for method in boards[0].index:
                cells = [words.get(method, "–") for _, words in part]
                table.add_row(
                    escape(str(method)), *map(escape, cells), style="dim" if unranked[method] else ""
                )
            console.print(table)
            title = ""  # of the first part alone
        if run.main == "faithfulness":  # else the table of the truth has said it
            _say_degenerate(boards[0].reset_index(), run.manifest)
        if len(agreed):
            console.print(escape(faithfulness.sentence(agreed, family)), style="dim")
    console.print(
        "Means over buckets with 95 % intervals, and whether higher or lower is better. These ask the "
        "network and are no truth: the oracle is the truth itself. Dim rows are controls and the oracle.",
        style="dim",
    )


def _show_own(run: Run) -> None:
    """Print the means of the own metrics of a study."""
    from verax.studies import tiers
    from verax.studies.exports import own_boards

    for tier, protocol, name, board in own_boards(run):
        better = "higher" if run.metrics[name].higher_is_better else "lower"
        title = f"{run.manifest['study']['name']}: {name} ({protocol} protocol, {better} is better)"
        networks = ", ".join(network for network, known in run.tiers.items() if known == tier)
        console.print(_table(escape(f"{title}\n{networks}: {tiers.words(tier)}"), board, name))


def _show_truths(entry: dict[str, Any], tier: str) -> None:
    """Print ranks and values under the truths of a run, side by side."""
    title = f"{entry['family']} reasonings under each truth: rank and value ({tier})"
    table = Table(title=escape(title), box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("method", no_wrap=True, max_width=_METHOD, overflow="ellipsis")
    for name in entry["truths"]:
        table.add_column(name, justify="right")
    for row in entry["rows"]:
        cells = [f"#{c['rank']} {c['value'].partition(' ')[0]}" if c["rank"] else "–" for c in row["cells"]]
        table.add_row(*(escape(text) for text in (row["method"], *cells)))
    console.print(table)
    if entry["sentence"]:
        console.print(escape(entry["sentence"]), style="dim")


def _show_identification(part: dict[str, Any]) -> None:
    """Print how often maps are read as the right reasoning, and how maps of two networks differ."""
    for entry in part["networks"]:
        title = f"Can the reasoning be read off a map? {entry['network']} ({entry['tier']})"
        table = Table(title=escape(title), box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        table.add_column("method", no_wrap=True, max_width=_METHOD, overflow="ellipsis")
        for name in ("one picture", "every bucket", "where", "moved"):
            table.add_column(name, justify="right", no_wrap=True)
        for row in entry["rows"]:
            rest = [row[name].partition(" ")[0] for name in ("panel", "where", "moved")]
            dim = "" if row["kind"] == "method" else "dim"
            table.add_row(*(escape(text) for text in (row["method"], row["image"], *rest)), style=dim)
        console.print(table)
        console.print(escape(entry["sentence"]), style="dim")


def _effort(manifest: Mapping[str, Any]) -> str:
    """What a run has cost, and how much of it was there already."""
    reused, total = manifest["reused_units"], manifest["total_units"]
    taught = manifest.get("trained", [])
    spent = sum(entry["seconds"] for entry in taught)
    networks = f"{len(taught)} network{'s' * (len(taught) != 1)}"
    words = f"{networks} trained (together {spent:.0f} s), " if taught else ""
    if reused == total:
        return f"{words}all {total} units taken from the store"
    words += f"computed in {manifest['seconds']:.0f} s on {manifest['hardware']['device']}"
    return f"{words}, {reused} of {total} units taken from the store"


def show(run: Run) -> None:
    """Print the leaderboards of a run, and what was left out."""
    from verax.reports import identifiability, promises, ranks, truths, verdicts
    from verax.reports.agreement import data_notes, uncertified
    from verax.studies import tiers

    manifest = run.manifest
    parted = run.by_tier()
    if "sound" in manifest["study"]["protocols"]:
        for (tier, part), family in itertools.product(parted, dict.fromkeys(run.families.values())):
            try:
                board = part.leaderboard(family=family)
            except VeraxError as error:
                console.print(f"[red]{escape(family)}: {escape(str(error))}[/red]")
                continue
            name, buckets = manifest["study"]["name"], board["buckets"][0]
            title = f"{name}: {family} reasonings ({buckets} buckets, sound protocol)"
            tested = ranks.tests(part, "sound", [family])
            console.print(_table(escape(f"{title}\n{', '.join(part.tiers)}: {tiers.words(tier)}"), board))
            _say_degenerate(board, manifest)
            for entry in ranks.parts(tested, "sound"):
                doubt = verdicts.told_apart(board, tested[family])
                console.print(escape(f"{entry['sentence']} {doubt}".rstrip()), style="dim")
        console.print(
            "Means over buckets with 95 % intervals, and the worst bucket. Skill: 0 is the best control that "
            "never looks at the network, 1 is the truth. Dim rows are controls and the oracle.",
            style="dim",
        )
    for tier, part in parted:
        for entry in truths.parts(part, list(dict.fromkeys(run.families.values()))):
            _show_truths(entry, tiers.words(tier))
    identified = identifiability.part(run)
    if identified is not None:
        _show_identification(identified)
    if "exact" in manifest["study"]["protocols"]:
        for tier, part in parted:
            _show_exact(part, tiers.words(tier))
        _explain_exact()
    if "faithfulness" in manifest["study"]["protocols"]:
        for tier, part in parted:
            _show_faithfulness(part, tiers.words(tier))
    _show_own(run)
    passed = sum(bool(c["passed"]) for c in manifest["certificates"])
    count = len(manifest["certificates"])
    wrong = {unit["name"].partition(":")[0]: unit["wrong"] for unit in manifest["units"] if "wrong" in unit}
    left = "" if run.main == "exact" else f"{sum(wrong.values())} wrongly predicted images left out; "
    certified = f"{passed} of {count} networks certified" if count else "No certificates made (certify = 0)"
    console.print(f"{certified}; {left}{_effort(manifest)}.")
    for entry in manifest["set_aside"][:_SHOWN]:
        words = f"Damaged and set aside: the entry {entry['key'][:12]} ({entry['reason']})"
        console.print(f"[yellow]{escape(words)}[/yellow]", soft_wrap=True)
    if passed < count:
        names = ", ".join(uncertified(manifest))
        console.print(f"[bold red]Not certified, so their truth is in doubt: {escape(names)}[/bold red]")
    for note in [*data_notes(manifest), *manifest.get("unkept", [])]:
        console.print(escape(note), style="dim", soft_wrap=True)
    for sentence in promises.alarms(manifest):
        console.print(f"[yellow]{escape(sentence)}[/yellow]", soft_wrap=True)
    for note in [*manifest.get("notes", []), *plugins.reports()]:
        console.print(f"[yellow]{escape(note)}[/yellow]", soft_wrap=True)
    for failure in manifest["failures"][:_SHOWN]:
        console.print(f"[red]{escape(failure['unit'])}: {escape(failure['reason'])}[/red]", soft_wrap=True)
    if (more := len(manifest["failures"]) - _SHOWN) > 0:
        console.print(f"[red]and {more} more that failed; manifest.json has all of them[/red]")
