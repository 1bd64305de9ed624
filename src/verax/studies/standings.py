"""Standings: methods of many runs on the same tasks, in one table for each network and family of tasks.

Scores of several runs are put together only where they are about the same thing: the same version of each
task, the same pictures, the same weights. Of each task the newest run decides which version that is; runs
with another one are left out, and named. Methods that have one label and are not the same have a row each
(`verax.studies.namesakes`). Where two runs have the same score of the same method, the newer one counts. Runs
may have different numbers of pictures: of each task only those count that all its runs have, so that methods
are ranked on the same ones and the interval of one does not depend on which others stand beside it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from verax import registry
from verax.errors import InvalidInput, MissingFile, UnknownName, VeraxError
from verax.studies import namesakes, tiers, versions
from verax.studies.leaderboards import HEADLINES, SKILLED, UNRANKED, Standing, method_order, places
from verax.studies.runs import Run
from verax.studies.statistics import Buckets, bucket_means

_PICTURE = ["seed", "group", "sample"]
_SCORE = ["task", "network", "method", *_PICTURE]
_NUMBERS = ["value", "low", "high", "skill", "skill_low", "skill_high"]
OVERALL = ""
"""Stands for all tasks together, where one of them would be named."""


@dataclass(frozen=True)
class Board:
    """The methods on one network and one family of tasks: means over unrelated tasks would say nothing.

    Attributes:
        network: its name.
        tier: how firmly its truth is known (`verax.studies.tiers`).
        family: of the tasks.
        tasks: the columns.
        table: one row for each method and task, and one for all tasks (task ``""``): method, task, value,
            low, high, rank, skill (0: the best control, 1: the oracle), skill_low, skill_high, control (the
            best one), samples, runs. A label that means several methods has a row for each, as in
            ``mine (RUN)``. Controls and the oracle have no rank, and neither have methods over all
            tasks that lack pictures of one of them.
    """

    network: str
    tier: int
    family: str
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
        boards: one for each network and family of tasks.
        runs: what went in: label, study, code, created, samples.
        left_out: label -> why a run is not part of it.
        protocol: whose scores they are.
        metric: which score.
        higher_is_better: its direction.
        notes: what readers must know.
    """

    boards: tuple[Board, ...]
    runs: tuple[dict[str, Any], ...]
    left_out: dict[str, str]
    protocol: str
    metric: str
    higher_is_better: bool
    notes: tuple[str, ...] = ()

    def frame(self) -> pd.DataFrame:
        """All boards as one table, with network, tier and family; the task of all in a family is "all"."""
        parts = [
            board.table.assign(network=board.network, tier=board.tier, family=board.family)
            for board in self.boards
        ]
        table = pd.concat(parts, ignore_index=True)
        table["task"] = table["task"].replace(OVERALL, "all")
        first = ["network", "tier", "family", "task", "rank", "method"]
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
        networks = ", ".join(dict.fromkeys(board.network for board in self.boards))
        return f"Standings({len(self.runs)} run{'s' * (len(self.runs) != 1)} on {networks}, {self.metric})"


def standings(
    runs: Sequence[Run | str | Path],
    *,
    protocol: str | None = None,
    metric: str | None = None,
    tasks: Collection[str] | None = None,
    seed: int = 0,
) -> Standings:
    """Put the methods of many runs into one leaderboard for each network and family of tasks.

    Args:
        runs: runs or their folders.
        protocol: default: the first of `leaderboards.HEADLINES` that most of them have.
        metric: default: the one that stands for the protocol.
        tasks: default: all; methods that lack one of a family have no rank over all of it.
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
        reason = _reason(run, kept, names, protocol, metric)
        try:
            rows = None if reason else run.rows(protocol, metric).assign(run=names[id(run)])
        except MissingFile as error:
            reason, rows = str(error), None
        if rows is not None:
            reason = _scored_otherwise(run, rows, kept, tables, names)
        if rows is None or reason:
            left_out[names[id(run)]] = reason
        else:
            kept.append(run)
            tables.append(rows)
    if not kept:
        other = [f"{name}: {why}" for name, why in left_out.items() if not why.startswith(_NOTHING)]
        raise UnknownName(" ".join([f"No run has scores under the protocol {protocol!r}.", *other]))
    scores = versions.of_tasks(pd.concat(tables, ignore_index=True), tasks)
    scores, notes = _shared(scores)
    for run in [run for run in kept if names[id(run)] not in set(scores["run"])]:
        kept.remove(run)
        left_out[names[id(run)]] = "It shares no picture with the newer runs."
    families = {task: family for run in reversed(kept) for task, family in run.families.items()}
    level: dict[str, list[int]] = {}
    for run in kept:
        for network, tier in run.tiers.items():
            level.setdefault(network, []).append(tier)
    level = defaultdict(lambda: [tiers.NONE], level)  # what no manifest tells of is not certified
    skilled = protocol in SKILLED and not metric.startswith("total-gap")
    higher = versions.metric(kept, [names[id(run)] for run in kept], metric).higher_is_better
    boards: list[Board] = []
    parted: dict[str, str] = {}
    for (network, family), rows in scores.groupby(
        ["network", scores["task"].astype(str).map(families)], sort=True, observed=True
    ):
        tier = tiers.weakest(level[str(network)])
        told, why = namesakes.told_apart(rows, kept, names)
        told = told.drop_duplicates(_SCORE)  # the newest stand first
        boards.append(_board(str(network), tier, str(family), told, higher, skilled, seed))
        parted |= {label: words for label, words in why.items() if label not in parted}
    if parted:
        notes.insert(0, namesakes.sentence(parted))
    if len(codes := sorted({versions.code(run) for run in kept})) > 1:
        notes.append(
            f"Runs were computed by different code: {', '.join(codes)}. A method shares a row where its "
            "scores on the same pictures are the same."
        )
    lacking = {str(name) for board in boards for name in board.overall.query("value.isna()")["method"]}
    if lacking:
        words = ", ".join(sorted(lacking))
        notes.append(f"Without all pictures of some task, and so without a rank over all: {words}.")
    return Standings(
        tuple(sorted(boards, key=lambda board: (board.tier or 9, board.network, board.family))),
        tuple(_facts(run, names[id(run)]) for run in kept),
        left_out,
        protocol,
        metric,
        higher,
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


_NOTHING = "It has no scores under"


def _reason(run: Run, kept: Sequence[Run], names: dict[int, str], protocol: str, metric: str) -> str:
    """Why a run cannot stand beside those that are there already; empty where it can."""
    if protocol not in run.manifest["study"]["protocols"]:
        return f"{_NOTHING} the protocol {protocol!r}."
    for other in kept:
        name = names[id(other)]
        if tasks := versions.other_tasks(other, run):
            return f"Its version of {', '.join(tasks)} is not that of {name}, which is newer."
        if versions.pictures(run) != versions.pictures(other):
            seeds = f"{versions.pictures(run)}, not {versions.pictures(other)}"
            return f"Its pictures are not those of {name}, which is newer: their seed is {seeds}."
        if networks := versions.other_weights(other, run):
            words = ", ".join(networks)
            return f"Its weights of {words} (or their code) are not those of {name}, which is newer."
        if versions.other_metric(other, run, metric):
            return f"Its metric {metric!r} is not that of {name}, which is newer."
    return ""


def _scored_otherwise(
    run: Run, rows: pd.DataFrame, kept: Sequence[Run], tables: Sequence[pd.DataFrame], names: dict[int, str]
) -> str:
    """Why scores of other code are no scores to stand beside those that are there; empty where they are."""
    for other, table in zip(kept, tables, strict=True):
        if changed := namesakes.other_references(other, run, table, rows):
            words = f"its scores of {', '.join(changed)} are not those of {names[id(other)]}"
            return f"On the same pictures {words}, which is newer: it was judged by other code of verax."
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


def _shared(scores: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The scores on the pictures that all runs of a task and network have, and what that leaves out.

    Newer runs stand first; one that shares no picture of a task with those before it is left out there.
    """
    keep = np.zeros(len(scores), dtype=bool)
    pictures = pd.MultiIndex.from_frame(scores[_PICTURE])
    fewer: dict[str, list[str]] = {}
    apart: dict[str, list[str]] = {}
    for (network, task), rows in scores.reset_index(drop=True).groupby(
        ["network", "task"], sort=False, observed=True
    ):
        common, largest, members = None, 0, []
        for run, of_run in rows.groupby("run", sort=False, observed=True):
            own = pictures[of_run.index].unique()
            both = own if common is None else common[common.isin(own)]
            if not len(both):
                apart.setdefault(str(run), []).append(f"{task} ({network})")
                continue
            common, largest = both, max(largest, len(own))
            members.append(of_run.index)
        for member in members:
            keep[member] = pictures[member].isin(common)
        if common is not None and len(common) < largest:
            fewer.setdefault(f"{len(common)} of {largest}", []).append(f"{task} ({network})")
    notes = [
        f"Runs have different pictures; those that all of them have count: {words} on {', '.join(where)}."
        for words, where in fewer.items()
    ]
    notes += [
        f"{run} shares no picture with newer runs and is left out on {', '.join(where)}."
        for run, where in apart.items()
    ]
    return scores[keep], notes


def _board(
    network: str, tier: int, family: str, scores: pd.DataFrame, higher: bool, skilled: bool, seed: int
) -> Board:
    """Means of every method on every task of one family on one network, and over all of them."""
    methods = method_order(scores)
    # draws belong to places in the table: in a fixed order they are the same whichever runs are listed
    buckets = bucket_means(scores.sort_values(["task", *_PICTURE], kind="stable"), methods, seed=seed)
    scored = buckets.where(np.asarray((buckets.count > 0).any(axis=1)))
    names = scored.index["task"].to_numpy()
    tasks = tuple(str(task) for task in scores["task"].unique() if task in names)
    parts = []
    for task in (OVERALL, *tasks):
        here = scored if task == OVERALL else scored.where(names == task)
        of_task = scores if task == OVERALL else scores[scores["task"] == task]
        origin = of_task.groupby("method", observed=True)["run"].agg(
            lambda runs: ", ".join(sorted(set(runs)))
        )
        table = _means(here, higher, skilled)
        table.insert(1, "task", task)
        table["runs"] = [str(origin.get(name, "")) for name in methods]
        parts.append(table.sort_values("value", ascending=not higher, kind="stable"))
    return Board(network, tier, family, tasks, pd.concat(parts, ignore_index=True))


def _means(buckets: Buckets, higher: bool, skilled: bool) -> pd.DataFrame:
    """One row for each method: its mean and skill over these buckets, where it has all their pictures."""
    whole = np.asarray((buckets.count == buckets.count.max(axis=1, keepdims=True)).all(axis=0))
    some = buckets.only(whole)
    mean = Standing.mean(some)
    skill = mean.skill(higher) if skilled else None
    numbers = mean.columns("value") | (skill[0].columns("skill") if skill else {})
    known = pd.DataFrame({"method": some.methods, **numbers})
    known = known.rename(columns={"value_low": "low", "value_high": "high"})
    table = known.set_index("method").reindex(index=list(buckets.methods), columns=_NUMBERS)
    table = table.rename_axis("method").reset_index()
    reference = table["method"].isin(UNRANKED)
    table.loc[reference, _NUMBERS[3:]] = np.nan
    table["control"] = np.where(table["skill"].notna(), skill[1] if skill else "", "")
    table["samples"] = buckets.count.sum(0)
    table.insert(4, "rank", pd.array(places(table["value"].mask(reference), higher), dtype="Int64"))
    return table
