"""The page of a leaderboard over many runs; it can be sorted without a server."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verax.reports import figures, kind, leaflets, task_labels
from verax.studies import tiers
from verax.studies.standings import OVERALL
from verax.version import __version__

if TYPE_CHECKING:
    from verax.studies.standings import Board, Standings

NAME = "leaderboard.html"
FOOTER = (
    "Means over buckets with 95 % intervals (bootstrap over training seeds and pictures), and places (#) on "
    "each task. Skill is 0 for the best control and 1 for the oracle, over all tasks of the table. Only "
    "tasks of one family are averaged, and only pictures that all runs of a task have count. Methods without "
    "some of them have no rank over all tasks. Grey rows are controls, which never look at a network, and "
    "the oracle, which knows the truth. Press a heading to sort."
)


def _cell(row: Any) -> dict[str, Any]:
    if row is None or not math.isfinite(row["value"]):
        return {"value": "–", "sort": "", "interval": "", "rank": "", "best": False}
    known = math.isfinite(row["low"]) and math.isfinite(row["high"])
    rank = "" if row["rank"] != row["rank"] else str(int(row["rank"]))
    return {
        "value": f"{row['value']:.3f}",
        "sort": f"{row['value']:.12g}",
        "interval": f"[{row['low']:.3f}, {row['high']:.3f}]" if known else "",
        "rank": rank,
        "best": rank == "1",
    }


def _skill(row: Any) -> dict[str, str]:
    if not math.isfinite(row["skill"]):
        return {"value": "", "sort": "", "interval": ""}
    low, high = row["skill_low"], row["skill_high"]
    return {
        "value": f"{row['skill']:.2f}",
        "sort": f"{row['skill']:.12g}",
        "interval": f"[{low:.2f}, {high:.2f}]" if math.isfinite(low) and math.isfinite(high) else "",
    }


def _part(board: Board, label: str) -> dict[str, Any]:
    table = board.table.astype({"rank": "float64"})
    known = {(row["method"], row["task"]): row for row in table.to_dict("records")}
    overall = board.overall
    rows = []
    for method in overall["method"]:
        cells = [_cell(known.get((method, task))) for task in (OVERALL, *board.tasks)]
        whole, cells[0]["rank"] = cells[0]["rank"], ""  # it has a column of its own
        rows.append(
            {
                "method": method,
                "kind": kind(str(method)),
                "rank": whole,
                "rank_sort": whole,
                "cells": cells,
                "skill": _skill(known[method, OVERALL]),
                "runs": known[method, OVERALL]["runs"],
            }
        )
    shown = overall[overall["value"].notna()]
    return {
        "network": board.network,
        "family": board.family,
        "tier": tiers.words(board.tier).capitalize() + ".",
        "skilled": bool(overall["skill"].notna().any()),
        "tasks": task_labels(board.tasks),
        "rows": rows,
        "figure": leaflets.picture(
            figures.leaderboard(shown, label),
            f"Methods on {board.network}, {board.family} tasks; the table below has the numbers.",
        )
        if len(shown)
        else None,
    }


def page(standings: Standings) -> str:
    """The page as text."""
    better = "higher" if standings.higher_is_better else "lower"
    label = f"{standings.metric} ({standings.protocol} protocol, {better} is better)"
    runs = f"{len(standings.runs)} run{'s' * (len(standings.runs) != 1)}"
    return leaflets.page(
        "standings.html.j2",
        title=f"Leaderboard of {runs}",
        eyebrow=f"{standings.metric}, {standings.protocol} protocol, {better} is better",
        version=__version__,
        verdict="",
        notes=standings.notes,
        left_out=[{"label": name, "reason": reason} for name, reason in standings.left_out.items()],
        boards=[_part(board, label) for board in standings.boards],
        runs=standings.runs,
        footer=FOOTER,
    )


def write(standings: Standings, path: Path) -> Path:
    """Write the page; a folder gets a leaderboard.html."""
    return leaflets.write(path, page(standings), NAME)
