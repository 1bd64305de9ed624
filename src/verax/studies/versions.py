"""Versions: whether the scores of several runs are about the same things.

Scores may stand beside each other where the tasks are the same (their fingerprints, which name all that cases
depend on) and the pictures are (the study's seed). Weights and code may differ, which is then said.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from verax.errors import InvalidInput, UnknownName, suggestion
from verax.metrics import METRICS, Metric
from verax.studies.runs import Run

_KNOWN = ("reasoning", "renderer", "background", "field", "elements", "groups")


def opened(run: Run | str | Path) -> Run:
    """A run, given as such or by its folder; what is none, or is damaged, is refused here and not later."""
    found = run if isinstance(run, Run) else Run(run)
    _ = found.manifest
    return found


def labels(runs: Sequence[Run]) -> list[str]:
    """Short names of runs: of their folders, with as many parents as tell them apart."""
    paths = [run.folder.resolve().parts for run in runs]
    for depth in range(1, max(map(len, paths)) + 1):
        names = ["/".join(parts[-depth:]) for parts in paths]
        if len(set(names)) == len(names):
            return names
    raise InvalidInput("The same run was given twice.")


def other_metric(first: Run, second: Run, name: str) -> bool:
    """Whether two runs mean different own metrics by one name."""
    known = [run.metrics[name] for run in (first, second) if name in run.metrics]
    return len({(m.higher_is_better, m.bounds, m.protocol, m.version) for m in known}) > 1


def metric(runs: Sequence[Run], names: Sequence[str], name: str) -> Metric:
    """What runs say about a metric: an own one need not be registered where they are read.

    Args:
        runs: all have scores of it.
        names: what they are called.
        name: of the metric.
    """
    for run, label in zip(runs, names, strict=True):
        if other_metric(runs[0], run, name):
            raise InvalidInput(f"{names[0]!r} and {label!r} have different metrics under the name {name!r}.")
    known = [run.metrics[name] for run in runs if name in run.metrics]
    return known[0] if known else METRICS.get(name)


def same_task(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether two entries of manifests are the same version of a task.

    Entries of runs that were made before there were fingerprints are compared by what they say.
    """
    if "fingerprint" in first and "fingerprint" in second:
        return bool(first["fingerprint"] == second["fingerprint"])
    return all(first.get(name) == second.get(name) for name in _KNOWN)


def other_tasks(first: Run, second: Run) -> list[str]:
    """The tasks that both runs have, in different versions."""
    known = {task["name"]: task for task in first.manifest["tasks"]}
    return [
        task["name"]
        for task in second.manifest["tasks"]
        if task["name"] in known and not same_task(known[task["name"]], task)
    ]


def other_weights(first: Run, second: Run) -> list[str]:
    """The networks of the same name, task and seed that have other weights in the second run."""

    def hashes(run: Run) -> dict[tuple[str, str, int], str]:
        return {(n["task"], n["network"], n["seed"]): n["sha256"] for n in run.manifest["networks"]}

    known, others = hashes(first), hashes(second)
    changed = [key for key in known if key in others and others[key] != known[key]]
    return list(dict.fromkeys(network for _, network, _ in changed))


def other_methods(first: Run, second: Run) -> list[str]:
    """The labels of methods that both runs have, but for another method or other parameters."""

    def known(run: Run) -> dict[str, tuple[Any, Any]]:
        entries = run.manifest.get("methods", [])
        return {str(entry["label"]): (entry.get("name"), entry.get("parameters")) for entry in entries}

    ours, theirs = known(first), known(second)
    return [label for label in ours if label in theirs and ours[label] != theirs[label]]


def of_tasks(scores: pd.DataFrame, tasks: Collection[str] | None) -> pd.DataFrame:
    """The scores on some tasks, or on all."""
    if tasks is None:
        return scores
    known = sorted(map(str, scores["task"].unique()))
    for task in tasks:
        if task not in known:
            raise UnknownName(f"The runs have no task {task!r}{suggestion(task, known)}")
    return scores[scores["task"].isin(list(tasks))]


def pictures(run: Run) -> int:
    """The seed that the pictures were drawn with."""
    return int(run.manifest["study"]["seed"])


def code(run: Run) -> str:
    """The version of the code, short enough for a table."""
    manifest = run.manifest
    return f"{manifest['versions']['verax']} ({str(manifest['code'])[:8]})"
