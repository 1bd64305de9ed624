"""Differences between runs: the same pictures under two runs, compared one by one.

Every method that two runs share is compared on the pictures that both scored. The mean difference is that of
bucket means, with the interval of the paired hierarchical bootstrap (`verax.studies.statistics`). The test is
the signed-rank test of Wilcoxon (Biometrics Bulletin 1945) over pictures, whose differences are first
averaged over networks and seeds, because one picture that five networks saw is one observation and not five;
p-values are corrected by Holm over all rows of the table.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from verax import registry
from verax.errors import InvalidInput, InvalidParameter, UnknownName
from verax.studies import versions
from verax.studies.comparisons import holm, signed_rank
from verax.studies.leaderboards import HEADLINES, UNRANKED, method_order
from verax.studies.runs import Run
from verax.studies.statistics import LEVEL, bucket_means, change, interval, same

_PICTURE = ["task", "group", "sample"]
_SUBJECT = ["network", "seed"]
COLUMNS = [
    "run", "method", "first", "second", "difference", "low", "high", "p", "holm", "differ", "better",
    "wins", "losses", "ties", "pictures", "buckets",
]  # fmt: skip


@dataclass(frozen=True)
class Differences:
    """How runs differ from the first of them.

    Attributes:
        table: one row for each other run and method: run, method, first, second (means), difference (second
            minus first), low, high (95 %), p, holm, differ (holm below 0.05), better (in the direction of the
            metric), wins and losses (pictures on which the second run scores better and worse), ties,
            pictures, buckets. Controls and the oracle have no test: they never look at a network.
        tasks: the same differences for each task: run, task, method, difference, low, high.
        runs: what was compared: label, folder, study, code, networks, samples.
        protocol: whose scores they are.
        metric: which score.
        higher_is_better: its direction.
        notes: what is only in one of the runs, and what else differs.
    """

    table: pd.DataFrame
    tasks: pd.DataFrame
    runs: tuple[dict[str, Any], ...]
    protocol: str
    metric: str
    higher_is_better: bool
    notes: tuple[str, ...] = field(default=())

    def sentence(self) -> str:
        """The finding in one sentence."""
        tested = self.table[self.table["holm"].notna()]
        moved = tested[tested["differ"]]
        if not len(tested):
            return "Nothing was tested: the runs share controls and the oracle alone."
        if not len(moved):
            tests = f"{len(tested)} test{'s' * (len(tested) != 1)}"
            return f"No difference stands among {tests} (Holm, 5 % level)."
        up = [str(name) for name in moved.loc[moved["better"], "method"].unique()]
        down = [str(name) for name in moved.loc[~moved["better"], "method"].unique()]
        parts = [f"better: {', '.join(up)}"] if up else []
        parts += [f"worse: {', '.join(down)}"] if down else []
        verb = "differences stand" if len(tested) != 1 else "difference stands"
        return f"{len(moved)} of {len(tested)} {verb} (Holm, 5 % level); {'; '.join(parts)}."

    def record(self) -> dict[str, Any]:
        """All of it as plain values, for JSON; what is not defined is None."""

        def rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
            plain = frame.astype(object).where(frame.notna(), None)
            return cast("list[dict[str, Any]]", plain.to_dict("records"))

        return {
            "protocol": self.protocol,
            "metric": self.metric,
            "higher_is_better": self.higher_is_better,
            "runs": list(self.runs),
            "sentence": self.sentence(),
            "notes": list(self.notes),
            "methods": rows(self.table),
            "tasks": rows(self.tasks),
        }

    def report(self, path: str | Path) -> Path:
        """Write the page: tables, a figure and what was compared, in one file."""
        return cast("Path", registry.load("verax.reports.differences:write")(self, Path(path)))

    def _repr_html_(self) -> str:
        return cast("str", registry.load("verax.reports.notebook:differences")(self))

    def __repr__(self) -> str:
        names = " and ".join(repr(run["label"]) for run in self.runs)
        return f"Differences({names}: {self.sentence()})"


def compare(
    *runs: Run | str | Path,
    protocol: str | None = None,
    metric: str | None = None,
    tasks: Collection[str] | None = None,
    seed: int = 0,
) -> Differences:
    """Compare runs with the first of them, picture by picture.

    Args:
        *runs: two or more runs or their folders.
        protocol: default: the first of `leaderboards.HEADLINES` that all of them have.
        metric: default: the one that stands for the protocol.
        tasks: default: all that two runs share.
        seed: of the bootstrap.

    Raises:
        InvalidInput: the runs have other versions of a task or other pictures, or share nothing.
    """
    found = [versions.opened(run) for run in runs]
    if len(found) < 2:
        raise InvalidParameter("A comparison needs two runs or more.")
    names = versions.labels(found)
    first = found[0]
    for name, other in zip(names[1:], found[1:], strict=True):
        _refuse(first, other, names[0], name)
    protocol = protocol or _protocol(found)
    metric = metric or HEADLINES.get(protocol, "")
    higher = versions.metric(found, names, metric).higher_is_better
    notes: list[str] = []
    tables, parts = [], []
    base = versions.of_tasks(first.rows(protocol, metric), tasks)
    for name, other in zip(names[1:], found[1:], strict=True):
        rows = versions.of_tasks(other.rows(protocol, metric), tasks)
        pairs = _matched(base, rows, (names[0], name), notes)
        notes += _remarks(first, other, names[0], name)
        whole, by_task = _rows(pairs.assign(metric=metric), higher, seed)
        tables.append(whole.assign(run=name))
        parts.append(by_task.assign(run=name))
    table = pd.concat(tables, ignore_index=True)
    known = table["p"].notna().to_numpy()
    table["holm"] = np.nan
    table.loc[known, "holm"] = holm(table.loc[known, "p"].to_numpy(np.float64))
    table["differ"] = table["holm"] < 1 - LEVEL
    order = ["run", "task", "method", "difference", "low", "high", "pictures"]
    return Differences(
        table[COLUMNS],
        pd.concat(parts, ignore_index=True)[order],
        tuple(_facts(run, name) for run, name in zip(found, names, strict=True)),
        protocol,
        metric,
        higher,
        tuple(dict.fromkeys(notes)),
    )


def _refuse(first: Run, second: Run, one: str, two: str) -> None:
    """Runs that are about different things are not compared."""
    if others := versions.other_tasks(first, second):
        more = f" (and {len(others) - 1} more)" if len(others) > 1 else ""
        raise InvalidInput(
            f"{one!r} and {two!r} have different versions of the task {others[0]!r}{more}, whose scores"
            " cannot be compared."
        )
    if versions.pictures(first) != versions.pictures(second):
        raise InvalidInput(
            f"{one!r} and {two!r} show different pictures (seeds {versions.pictures(first)} and"
            f" {versions.pictures(second)}), so that nothing can be paired."
        )


def _protocol(runs: Sequence[Run]) -> str:
    """The protocol that leads among those that all runs have."""
    for name in HEADLINES:
        if all(name in run.manifest["study"]["protocols"] for run in runs):
            return name
    raise UnknownName("The runs have no protocol in common.")


def _facts(run: Run, label: str) -> dict[str, Any]:
    study = run.manifest["study"]
    return {
        "label": label,
        "folder": str(run.folder),
        "study": str(study["name"]),
        "code": versions.code(run),
        "networks": sorted({str(n["network"]) for n in run.manifest["networks"]}),
        "samples": int(study["samples"]),
        "created": str(run.manifest.get("created", "")),
    }


def _remarks(first: Run, second: Run, one: str, two: str) -> list[str]:
    """What differs beside the scores."""
    notes = []
    if first.manifest["code"] != second.manifest["code"]:
        codes = f"{versions.code(first)} and {versions.code(second)}"
        notes.append(f"{one} and {two} were computed by different code: {codes}.")
    if methods := versions.other_methods(first, second):
        words = ", ".join(methods)
        notes.append(
            f"In {one} and {two} these labels are other methods, or have other code or parameters: {words}."
        )
    if networks := versions.other_weights(first, second):
        notes.append(f"{two} has other weights, or other code, than {one} for {', '.join(networks)}.")
    return notes


def _only(noun: str, one: set[str], two: set[str], names: tuple[str, str]) -> list[str]:
    """Sentences about what only one of two runs has."""
    return [
        f"Only in {name}: {noun} {', '.join(sorted(here - there))}."
        for name, here, there in ((names[0], one, two), (names[1], two, one))
        if here - there
    ]


def _words(frame: pd.DataFrame, name: str) -> set[str]:
    return set(map(str, frame[name].unique()))


def _matched(one: pd.DataFrame, two: pd.DataFrame, names: tuple[str, str], notes: list[str]) -> pd.DataFrame:
    """The scores of both runs side by side: task, network, seed, group, sample, method, first, second."""
    for noun in ("method", "task"):
        notes += _only(f"{noun}s", _words(one, noun), _words(two, noun), names)
    keys = [*_PICTURE, "method"]
    shared = one[_SUBJECT].drop_duplicates().astype({"network": str})
    shared = shared.merge(two[_SUBJECT].drop_duplicates().astype({"network": str}))
    if len(shared):
        notes += _only("networks", _subjects(one), _subjects(two), names)
        keys += _SUBJECT
    else:
        notes.append(
            f"{names[0]} and {names[1]} share no network, so each picture counts with its mean over the"
            " networks of each run; intervals are then about pictures, not about networks."
        )
    sides = []
    for frame, name in ((one, "first"), (two, "second")):
        here = frame.astype({"task": str, "network": str, "method": str})
        sides.append(here.groupby(keys, sort=False)["value"].mean().rename(name).reset_index())
    joined = sides[0].merge(sides[1], on=keys, how="outer", indicator=True)
    both = joined["_merge"] == "both"
    common = joined["method"].isin(_words(one, "method") & _words(two, "method")) & joined["task"].isin(
        _words(one, "task") & _words(two, "task")
    )
    if len(shared):
        subjects = list(shared.itertuples(index=False, name=None))
        common &= pd.MultiIndex.from_frame(joined[_SUBJECT]).isin(subjects)
    for side, name in (("left_only", names[0]), ("right_only", names[1])):
        if count := int((common & (joined["_merge"] == side)).sum()):
            noun = "scores" if count > 1 else "score"
            other = names[1] if name == names[0] else names[0]
            notes.append(
                f"{count} {noun} of {name} cannot be compared: {other} has the same methods, tasks and"
                " networks, but not these pictures."
            )
    pairs = joined[both & joined["first"].notna() & joined["second"].notna()].drop(columns="_merge")
    if pairs.empty:
        raise InvalidInput(f"{names[0]!r} and {names[1]!r} have no scored picture in common.")
    if not len(shared):
        pairs = pairs.assign(network="", seed=0)
    order = {name: place for place, name in enumerate(method_order(one))}
    return pairs.sort_values("method", key=lambda column: column.map(order), kind="stable")


def _subjects(frame: pd.DataFrame) -> set[str]:
    pairs = frame[_SUBJECT].drop_duplicates().itertuples(index=False, name=None)
    return {f"{network} seed {seed}" for network, seed in pairs}


def _rows(pairs: pd.DataFrame, higher: bool, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One row for each method, and one for each task and method."""
    methods = [str(name) for name in pairs["method"].unique()]
    sides = [pairs.assign(method=side + pairs["method"], value=pairs[side]) for side in ("first", "second")]
    columns = tuple(f"{side}{name}" for side in ("first", "second") for name in methods)
    buckets = bucket_means(pd.concat(sides, ignore_index=True), columns, seed=seed)
    half = len(methods)
    point, drawn = buckets.point, buckets.replicates
    moved, moved_drawn = point[:, half:] - point[:, :half], drawn[:, :, half:] - drawn[:, :, :half]
    each = pairs.assign(change=change(pairs["first"].to_numpy(), pairs["second"].to_numpy()))
    each = each.groupby(["method", *_PICTURE])["change"].mean()
    of_task = buckets.index["task"].to_numpy()
    rows, parts = [], []
    for place, method in enumerate(methods):
        scored = buckets.count[:, place] > 0
        differences = each.loc[method].to_numpy(np.float64)
        better = differences if higher else -differences
        ties = same(differences, np.zeros_like(differences))
        mean = float(moved[scored, place].mean())
        low, high = interval(moved_drawn[:, scored, place].mean(1))
        rows.append(
            {
                "method": method,
                "first": float(point[scored, place].mean()),
                "second": float(point[scored, half + place].mean()),
                "difference": mean,
                "low": float(low),
                "high": float(high),
                "p": np.nan if method in UNRANKED else signed_rank(differences),
                "better": mean > 0 if higher else mean < 0,
                "wins": int((better[~ties] > 0).sum()),
                "losses": int((better[~ties] < 0).sum()),
                "ties": int(ties.sum()),
                "pictures": len(differences),
                "buckets": int(scored.sum()),
            }
        )
        counts = each.loc[method].groupby("task").size()
        for task in pd.unique(of_task[scored]):
            here = scored & (of_task == task)
            low, high = interval(moved_drawn[:, here, place].mean(1))
            values = (task, method, float(moved[here, place].mean()), float(low), float(high))
            parts.append((*values, int(counts[task])))
    names = ["task", "method", "difference", "low", "high", "pictures"]
    return pd.DataFrame(rows), pd.DataFrame(parts, columns=names)
