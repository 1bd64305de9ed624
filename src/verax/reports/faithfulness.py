"""The faithfulness part of a report: what asking the network says, beside what the truth says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from verax import reports
from verax.errors import VeraxError
from verax.metrics import METRICS
from verax.metrics.scoring import metric_names
from verax.reports import names, number

if TYPE_CHECKING:
    from verax.studies.runs import Run

PROTOCOL = "faithfulness"
_ALIKE = 0.5  # from this rank correlation on, two orders are called alike


def sentence(found: pd.DataFrame, family: str) -> str:
    """What the rank correlations with the truth say about a family of tasks."""
    if found.empty:
        return ""
    count, truth = int(found["methods"].iloc[0]), str(found["truth"].iloc[0])
    stories = (
        (found["low"] >= _ALIKE, "ranks", "rank", "the methods much as the truth does"),
        (found["high"] < 0, "ranks", "rank", "them against the truth"),
        ((found["low"] < _ALIKE) & (found["high"] >= 0), "does", "do", "not clearly agree with the truth"),
    )
    parts = []
    for chosen, one, many, rest in stories:
        who = [str(name) for name in found.loc[chosen, "metric"]]
        if who:
            parts.append(f"{names(who)} {one if len(who) == 1 else many} {rest}")
    return f"Of the {count} methods on {family} tasks, judged by {truth}: {'; '.join(parts)}."


def cell(board: pd.DataFrame | None, method: str) -> dict[str, str]:
    """One method's mean with its interval and its rank."""
    rows = [] if board is None else board[board["method"] == method].to_dict("records")
    if not rows:
        return {"value": "–", "rank": ""}
    row = rows[0]
    digits = 2 if abs(row["value"]) >= 10 else 3
    rank = "" if pd.isna(row["rank"]) else str(row["rank"])
    return {"value": number(row["value"], row["low"], row["high"], digits), "rank": rank}


def parts(
    run: Run, families: Sequence[str], methods: Sequence[str], truth: dict[str, pd.DataFrame]
) -> list[dict[str, Any]]:
    """One table for each family: methods by their rank under the truth, a column for each metric.

    Args:
        run: a finished study; without the faithfulness protocol there is nothing to show.
        families: of its tasks.
        methods: the rows, where a family has no leaderboard of the truth.
        truth: family -> leaderboard of the protocol that knows the truth.
    """
    if PROTOCOL not in run.protocols:
        return []
    found = []
    for family in families:
        boards: dict[str, pd.DataFrame | None] = {}
        for metric in metric_names(PROTOCOL):
            try:
                boards[metric] = run.leaderboard(PROTOCOL, metric, family)
            except VeraxError:
                boards[metric] = None  # every method failed somewhere in this family
        board = truth.get(family)
        ranks = {} if board is None else dict(zip(board["method"].astype(str), board["rank"], strict=True))
        rows = [
            {
                "method": method,
                "kind": reports.kind(method),
                "rank": "" if pd.isna(ranks.get(method)) else str(ranks[method]),
                "cells": [cell(table, method) for table in boards.values()],
            }
            for method in (ranks or methods)
        ]
        try:
            agreed = run.agreement(family)
        except VeraxError:
            agreed = pd.DataFrame(columns=["metric", "methods"])
        by_metric = {row["metric"]: row for row in agreed.to_dict("records")}
        found.append(
            {
                "family": family,
                "metrics": [
                    {"name": name, "arrow": "↑" if METRICS.get(name).higher_is_better else "↓"}
                    for name in boards
                ],
                "rows": rows,
                "ranked": any(row["rank"] for row in rows),
                "agreement": [
                    number(row["correlation"], row["low"], row["high"], 2)
                    if (row := by_metric.get(name)) is not None
                    else "–"
                    for name in boards
                ]
                if len(agreed)
                else [],
                "sentence": sentence(agreed, family),
            }
        )
    return found
