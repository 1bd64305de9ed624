"""Versions: whether the scores of several runs are about the same things.

Scores may stand beside each other where the tasks are the same (their fingerprints, which name all that cases
depend on) and the pictures are (the study's seed). Weights and code may differ, which is then said. Methods
are the same where their names, parameters, versions and wordings (`verax.wordings`) are, and verax itself.
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


def python(run: Run) -> str:
    """The Python that a run was computed with, as far as code depends on it; empty where nobody said."""
    return ".".join(str(run.manifest["versions"].get("python", "")).split(".")[:2])


def _differ(one: Mapping[str, Any], two: Mapping[str, Any], *facts: str) -> bool:
    """Whether two entries say something else about one of these facts; what one leaves out is not known."""
    return any(fact in one and fact in two and one[fact] != two[fact] for fact in facts)


def same_code(first: Run, second: Run, one: Mapping[str, Any], two: Mapping[str, Any]) -> bool | None:
    """Whether two entries of manifests are about the same own code; None where nobody can know.

    Args:
        first: the run of the one.
        second: the run of the other.
        one: of an own method, metric or network: its version, if it has one, and its wording.
        two: likewise.
    """
    if _differ(one, two, "version"):
        return False
    words = [entry.get("wording") for entry in (one, two)]
    if not all(words) or python(first) != python(second):  # another Python has other instructions
        return None
    # who keeps a version says that nothing has changed
    return words[0] == words[1] or (False if one.get("version") is None else None)


def other_metric(first: Run, second: Run, name: str) -> bool:
    """Whether two runs mean different own metrics by one name."""
    known = [
        [entry for entry in run.manifest.get("metrics", []) if entry["name"] == name]
        for run in (first, second)
    ]
    if not all(known):
        return False
    one, two = known[0][-1], known[1][-1]
    other = _differ(one, two, "higher_is_better", "bounds", "protocol")
    return other or same_code(first, second, one, two) is False


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
    """The networks of the same name, task and seed that have other weights or code in the second run."""

    def known(run: Run) -> dict[tuple[str, str, int], Mapping[str, Any]]:
        return {(n["task"], n["network"], n["seed"]): n for n in run.manifest["networks"]}

    ours, theirs = known(first), known(second)
    changed = [
        key
        for key in ours
        if key in theirs
        and (
            ours[key]["sha256"] != theirs[key]["sha256"]
            or same_code(first, second, ours[key], theirs[key]) is False
        )
    ]
    return list(dict.fromkeys(network for _, network, _ in changed))


def methods(run: Run) -> dict[str, Mapping[str, Any]]:
    """What a run says of its methods, by their labels."""
    return {str(entry["label"]): entry for entry in run.manifest.get("methods", [])}


def same_method(first: Run, second: Run, label: str) -> tuple[bool | None, str]:
    """Whether a label means the same method in two runs, and, where it does not, what is different.

    None where nobody can know without their scores: other code of verax may have changed a method, or not.
    """
    one, two = (methods(run).get(label, {}) for run in (first, second))
    if _differ(one, two, "name", "parameters"):
        return False, "another method or other parameters"
    if _differ(one, two, "version"):
        return False, "another version"
    known: bool | None = True
    if any("wording" in entry or entry.get("family") == "own" for entry in (one, two)):
        known = same_code(first, second, one, two)
    if known is False:
        places = [str(entry.get("source", "")) for entry in (one, two)]
        return False, "other code" + (f": {' and '.join(places)}" if len({*places, ""}) == 3 else "")
    if first.manifest["code"] != second.manifest["code"]:
        return None, "other code of verax"
    return known, "" if known else "code that nobody can compare"


def other_methods(first: Run, second: Run) -> list[str]:
    """The labels of methods that both runs have, but for another method, other code or other parameters."""
    theirs = methods(second)
    return [
        label for label in methods(first) if label in theirs and same_method(first, second, label)[0] is False
    ]


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
