"""Standings: methods of many runs on the same tasks, in one table for each network.

Scores of several runs are put together only where they are about the same thing: the same version of each
task, the same pictures, the same weights. Of each task the newest run decides which version that is; runs
with another one are left out, and named. Where two runs have the same score, the newer one counts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from verax import registry
from verax.errors import InvalidInput, MissingFile, UnknownName, VeraxError
from verax.metrics import METRICS
from verax.studies import tiers, versions
from verax.studies.leaderboards import HEADLINES, UNRANKED, method_order
from verax.studies.runs import Run
from verax.studies.statistics import bucket_means, interval

_SCORE = ["task", "network", "seed", "method", "group", "sample"]
OVERALL = ""
"""Stands for all tasks together, where one of them would be named."""


@dataclass(frozen=True)
class Board:
    """The methods on one network.

    Attributes:
        network: its name.
        tier: how firmly its truth is known (`verax.studies.tiers`).
        tasks: the columns.
        table: one row for each method and task, and one for all tasks (task ``""``): method, task, value,
            low, high, rank, samples, runs. Controls and the oracle have no rank, and neither have
            methods over all tasks that lack one of them.
    """

    network: str
    tier: int
    tasks: tuple[str, ...]
    table: pd.DataFrame

    @property
    def overall(self) -> pd.DataFrame:
        """One row for each method over all tasks, the best first; those that lack a task at the end."""
        return self.table[self.table["task"] == OVERALL].reset_index(drop=True)


@dataclass(frozen=True)
class Standings:
    """A leaderboard over runs.

    Attributes:
        boards: one for each network.
        runs: what went in: label, study, code, created, samples.
        left_out: label -> why a run is not part of it.
        protocol: whose scores they are.
        metric: which score.
        notes: what readers must know.
    """

    boards: tuple[Board, ...]
    runs: tuple[dict[str, Any], ...]
    left_out: dict[str, str]
    protocol: str
    metric: str
    notes: tuple[str, ...] = ()

    @property
    def higher_is_better(self) -> bool:
        """The direction of the metric."""
        return METRICS.get(self.metric).higher_is_better

    def frame(self) -> pd.DataFrame:
        """All boards as one table, with the columns network and tier; the task of all tasks is "all"."""
        parts = [board.table.assign(network=board.network, tier=board.tier) for board in self.boards]
        table = pd.concat(parts, ignore_index=True)
        table["task"] = table["task"].replace(OVERALL, "all")
        first = ["network", "tier", "task", "rank", "method"]
        return table[[*first, *(name for name in table if name not in first)]]

    def record(self) -> dict[str, Any]:
        """All of it as plain values, for JSON; what is not defined is None."""
        table = self.frame()
        rows = table.astype(object).where(table.notna(), None).to_dict("records")
        return {
            "protocol": self.protocol,
            "metric": self.metric,
            "higher_is_better": self.higher_is_better,
            "runs": list(self.runs),
            "left_out": [{"label": name, "reason": reason} for name, reason in self.left_out.items()],
            "notes": list(self.notes),
            "rows": rows,
        }

    def report(self, path: str | Path) -> Path:
        """Write the page, which can be sorted without a server."""
        return cast("Path", registry.load("verax.reports.standings:write")(self, Path(path)))

    def __repr__(self) -> str:
        networks = ", ".join(board.network for board in self.boards)
        return f"Standings({len(self.runs)} runs on {networks}, {self.metric})"


def standings(
    runs: Sequence[Run | str | Path],
    *,
    protocol: str | None = None,
    metric: str | None = None,
    tasks: Collection[str] | None = None,
    seed: int = 0,
) -> Standings:
    """Put the methods of many runs into one leaderboard for each network.

    Args:
        runs: runs or their folders.
        protocol: default: the first of `leaderboards.HEADLINES` that most of them have.
        metric: default: the one that stands for the protocol.
        tasks: default: all; methods that lack one of them have no rank over all.
        seed: of the bootstrap.
    """
    found, left_out = _readable(runs)
    if not found:
        reasons = " ".join(left_out.values())
        raise InvalidInput(f"None of these runs can be read. {reasons}".strip())
    names = dict(zip(map(id, found), versions.labels(found), strict=True))
    protocol = protocol or _protocol(found)
    metric = metric or HEADLINES.get(protocol, "")
    newest = sorted(found, key=lambda run: str(run.manifest.get("created", "")), reverse=True)
    kept: list[Run] = []
    tables: list[pd.DataFrame] = []
    for run in newest:
        reason = _reason(run, kept, names, protocol)
        try:
            rows = [] if reason else [run.rows(protocol, metric).assign(run=names[id(run)])]
        except MissingFile as error:
            reason, rows = str(error), []
        if reason:
            left_out[names[id(run)]] = reason
        else:
            kept.append(run)
        tables += rows
    if not kept:
        raise UnknownName(f"No run has scores under the protocol {protocol!r}.")
    scores = pd.concat(tables, ignore_index=True)
    scores = versions.of_tasks(scores.drop_duplicates(_SCORE), tasks)  # the newest stand first
    level: dict[str, list[int]] = {}
    for run in kept:
        for network, tier in run.tiers.items():
            level.setdefault(network, []).append(tier)
    boards = [
        _board(str(network), tiers.weakest(level[str(network)]), rows, METRICS.get(metric), seed)
        for network, rows in scores.groupby("network", sort=True, observed=True)
    ]
    notes = []
    if len(codes := sorted({versions.code(run) for run in kept})) > 1:
        notes.append(f"Runs were computed by different code: {', '.join(codes)}.")
    lacking = {str(name) for board in boards for name in board.overall.query("value.isna()")["method"]}
    if lacking:
        words = ", ".join(sorted(lacking))
        notes.append(f"Without scores on some task, and so without a rank over all: {words}.")
    return Standings(
        tuple(sorted(boards, key=lambda board: (board.tier or 9, board.network))),
        tuple(_facts(run, names[id(run)]) for run in kept),
        left_out,
        protocol,
        metric,
        tuple(notes),
    )


def _readable(runs: Sequence[Run | str | Path]) -> tuple[list[Run], dict[str, str]]:
    """The runs that can be read, each once, and why others cannot."""
    found: dict[Path, Run] = {}
    left_out: dict[str, str] = {}
    for run in runs:
        try:
            opened = versions.opened(run)
            found.setdefault(opened.folder.resolve(), opened)
        except VeraxError as error:
            left_out[str(run.folder if isinstance(run, Run) else run)] = str(error)
    return list(found.values()), left_out


def _protocol(runs: Sequence[Run]) -> str:
    counts = {name: sum(name in run.manifest["study"]["protocols"] for run in runs) for name in HEADLINES}
    return max(counts, key=lambda name: counts[name])  # the first of equals


def _reason(run: Run, kept: Sequence[Run], names: dict[int, str], protocol: str) -> str:
    """Why a run cannot stand beside those that are there already; empty where it can."""
    if protocol not in run.manifest["study"]["protocols"]:
        return f"It has no scores under the protocol {protocol!r}."
    for other in kept:
        name = names[id(other)]
        if tasks := versions.other_tasks(other, run):
            return f"Its version of {', '.join(tasks)} is not that of {name}, which is newer."
        if versions.pictures(run) != versions.pictures(other):
            seeds = f"{versions.pictures(run)}, not {versions.pictures(other)}"
            return f"Its pictures are not those of {name}, which is newer: their seed is {seeds}."
        if networks := versions.other_weights(other, run):
            return f"Its weights of {', '.join(networks)} are not those of {name}, which is newer."
    return ""


def _facts(run: Run, label: str) -> dict[str, Any]:
    manifest = run.manifest
    return {
        "label": label,
        "study": str(manifest["study"]["name"]),
        "code": versions.code(run),
        "created": str(manifest.get("created", "")),
        "networks": sorted({str(n["network"]) for n in manifest["networks"]}),
        "samples": int(manifest["study"]["samples"]),
        "failures": len(manifest["failures"]),
    }


def _board(network: str, tier: int, scores: pd.DataFrame, metric: Any, seed: int) -> Board:
    """Means of every method on every task of one network, and over all tasks."""
    methods = method_order(scores)
    buckets = bucket_means(scores, methods, seed=seed)
    scored = buckets.where(np.asarray((buckets.count > 0).any(axis=1)))
    names = scored.index["task"].to_numpy()
    tasks = tuple(str(task) for task in pd.unique(names))
    origin = scores.groupby("method", observed=True)["run"].agg(lambda runs: ", ".join(sorted(set(runs))))
    parts = []
    for task in (OVERALL, *tasks):
        here = scored if task == OVERALL else scored.where(names == task)
        whole = np.asarray((here.count > 0).all(axis=0))
        low, high = interval(here.replicates.mean(1))
        table = pd.DataFrame(
            {"method": methods, "task": task, "value": here.point.mean(0), "low": low, "high": high}
        )
        table.loc[~whole, ["value", "low", "high"]] = np.nan
        table["samples"] = here.count.sum(0)
        table["runs"] = [str(origin[name]) for name in methods]
        ranked = whole & ~table["method"].isin(UNRANKED).to_numpy()
        # equal scores share a place: sums in another order differ in the last bits
        values = table["value"].round(10).where(ranked)
        places = values.rank(method="min", ascending=not metric.higher_is_better)
        table.insert(5, "rank", pd.array(places, dtype="Int64"))
        parts.append(table.sort_values("value", ascending=not metric.higher_is_better, kind="stable"))
    return Board(network, tier, tasks, pd.concat(parts, ignore_index=True))
