"""Leaderboards of the page: tables, charts and figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from verax import reports
from verax.errors import VeraxError
from verax.metrics import METRICS
from verax.reports import agreement, charts, figures, grids, number
from verax.studies import exports, tiers
from verax.studies.leaderboards import HEADLINES, ORACLE, SUCCESS

if TYPE_CHECKING:
    from verax.reports.digests import Digest
    from verax.studies.runs import Run


def rows(board: pd.DataFrame | None, labels: Sequence[str]) -> list[dict[str, str]]:
    """A leaderboard as text, with a row for each of `labels` that gave nothing."""
    found = []
    for row in [] if board is None else board.to_dict("records"):
        found.append(
            {
                "rank": "" if pd.isna(row["rank"]) else str(row["rank"]),
                "method": str(row["method"]),
                "kind": reports.kind(str(row["method"])),
                "mean": number(row["value"], row["low"], row["high"]),
                "worst": number(row["worst"], row["worst_low"], row["worst_high"]),
                "skill": number(row["skill"], row["skill_low"], row["skill_high"]),
                "degenerate": str(row["degenerate"]),
                "tier": str(row["tier"] or "–"),
            }
        )
    there = {row["method"] for row in found}
    blank = {
        "rank": "",
        "kind": "failed",
        "mean": "–",
        "worst": "–",
        "skill": "–",
        "degenerate": "–",
        "tier": "–",
    }
    return found + [{**blank, "method": label} for label in labels if label not in there]


def parts(digest: Digest, protocol: str, album: figures.Album, shelf: charts.Shelf) -> list[dict[str, Any]]:
    """One entry for each family of tasks: a table, a note and a chart."""
    found: list[dict[str, Any]] = []
    labels = [str(method["label"]) for method in digest.run.manifest["methods"]]
    for family, tasks in digest.families.items():
        board = digest.boards.get((protocol, family))
        part: dict[str, Any] = {
            "family": family,
            "rows": rows(board, labels),
            "note": "",
            "chart": None,
            "above": "",
            "single": False,
        }
        if board is not None:
            used = int(board["buckets"].iloc[0])
            part["single"] = used == 1  # a worst bucket would only repeat the mean
            words = f"{used} bucket{'' if used == 1 else 's'}"
            part["note"] = f"{words} of {len(tasks)} {'task' if len(tasks) == 1 else 'tasks'}"
            part["note"] += f"; {tiers.words(int(board['tier'].iloc[0]))}"
            fit = agreement.fit_words(digest.run.manifest, tasks)
            part["note"] += f"; {fit}" if fit else ""
            incomplete = board.loc[board["value"].isna(), "method"]
            if len(incomplete):
                part["note"] += f"; without a rank, because they failed somewhere: {', '.join(incomplete)}"
            board = board.dropna(subset="value")
            sound = protocol == "sound"
            chance = figures.chance_level(digest.run.some(figures.CHANCE), tasks) if sound else None
            threshold = SUCCESS if protocol == "published" else None
            drawn = figures.leaderboard(board, figures.LABELS[protocol], chance=chance, threshold=threshold)
            name = f"leaderboard-{protocol}-{family}"
            album.add(name, drawn)
            lines = {"best control": _control(board), "chance": chance, "success": threshold}
            if protocol == "published":
                lines["ceiling (oracle)"] = _level(board, ORACLE)
            part["chart"] = shelf.add(
                charts.board(
                    name,
                    f"{family} tasks, {protocol} protocol: means with 95\u00a0% intervals",
                    board,
                    figures.LABELS[protocol],
                    order=[str(method) for method in board["method"]],
                    lines=lines,
                )
            )
        found.append(part)
    return found


def hero(
    digest: Digest, main: Sequence[dict[str, Any]], published: Sequence[dict[str, Any]], shelf: charts.Shelf
) -> list[charts.Chart]:
    """The charts of the headline's family; that of the published protocol has the rows of the other."""
    found: list[charts.Chart] = []
    for part in (*main, *published):
        if part["family"] == digest.headline and part["chart"]:
            board = digest.boards.get((digest.main, digest.headline))  # none if no answer was right
            if not found or board is None:
                found.append(part["chart"])
                continue
            chart = charts.reordered(part["chart"], [str(name) for name in board["method"]])
            found.append(shelf.add(chart))
    return found


def without(parts: Sequence[dict[str, Any]], shown: Sequence[charts.Chart]) -> list[dict[str, Any]]:
    """The same leaderboards; the chart of a single one is not drawn again where the page has shown it.

    Charts of several families stand side by side, which says more than each of them.
    """
    above = {chart.name for chart in shown}
    if len(parts) != 1 or parts[0]["chart"] is None or parts[0]["chart"].name not in above:
        return list(parts)
    return [{**parts[0], "chart": None, "above": parts[0]["chart"].name}]


def _level(board: pd.DataFrame, method: str) -> float | None:
    values = board.loc[board["method"] == method, "value"]
    return float(values.iloc[0]) if len(values) else None


def _control(board: pd.DataFrame) -> float | None:
    """What the best control reaches."""
    name = next((str(name) for name in board["control"] if name), "")
    return _level(board, name) if name else None


def slope(digest: Digest, shelf: charts.Shelf) -> charts.Chart | None:
    """From the first family of tasks to the headline's, where there are two."""
    first = next(iter(digest.families))
    tables = [digest.boards.get((digest.main, family)) for family in (first, digest.headline)]
    if first == digest.headline or tables[0] is None or tables[1] is None:
        return None
    return shelf.add(
        charts.slopes(
            "slopes",
            f"From {first} to {digest.headline} tasks",
            tables[0],
            tables[1],
            (first, digest.headline),
            f"mean {HEADLINES[digest.main]}",
        )
    )


def profile(digest: Digest, shelf: charts.Shelf) -> tuple[charts.Chart, list[str]] | None:
    """The mean of every bucket, and the tasks to choose from."""
    if digest.main == "exact":  # one bucket a task
        return None
    table = digest.run.buckets(digest.main).dropna(subset="value")
    if table.empty:
        return None
    title = f"Mean {HEADLINES[digest.main]} in every bucket"
    higher = METRICS.get(HEADLINES[digest.main]).higher_is_better
    made = shelf.add(grids.profiles("profiles", title, table, digest.methods(), higher))
    return made, list(dict.fromkeys(str(task) for task in table["task"]))


def other_tiers(runs: Sequence[tuple[int, Run]], protocol: str) -> list[dict[str, Any]]:
    """Leaderboards of networks whose truth is of another tier than that of the page, without figures."""
    found = []
    for tier, run in runs:
        for family in dict.fromkeys(run.families.values()):
            try:
                board = run.leaderboard(protocol, family=family)
            except VeraxError:
                continue  # every method failed somewhere in this family
            note = f"{', '.join(run.tiers)}; {tiers.words(tier)}"
            part = {"family": family, "rows": rows(board, []), "note": note}
            found.append({**part, "chart": None, "above": "", "single": False})
    return found


def own(run: Run, shelf: charts.Shelf) -> list[dict[str, Any]]:
    """Leaderboards of the study's own metrics, over all tasks, for each tier."""
    found = []
    for tier, protocol, metric, board in exports.own_boards(run):
        better = "higher" if run.metrics[metric].higher_is_better else "lower"
        order = [str(name) for name in board["method"]]
        several = len(set(run.tiers.values())) > 1
        name = f"own-{metric}-{protocol}" + (f"-tier-{tier}" if several else "")
        title = f"{metric}, {protocol} protocol" + (f", {tiers.words(tier)}" if several else "")
        chart = charts.board(name, title, board, metric, order=order, lines={})
        networks = ", ".join(network for network, known in run.tiers.items() if known == tier)
        note = f"{run.metrics[metric].description} ({protocol} protocol; {better} is better)"
        note += f" {networks}: {tiers.words(tier)}" if several else ""
        part = {"family": "all", "metric": metric, "rows": rows(board, []), "note": note}
        found.append({**part, "chart": shelf.add(chart), "above": "", "single": False})
    return found
