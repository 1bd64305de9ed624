"""Provenance: what a run holds and where it comes from, in words and numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from verax import reports
from verax.reports import agreement
from verax.studies.leaderboards import HEADLINES
from verax.tasks import TASKS

if TYPE_CHECKING:
    from verax.reports.digests import Digest
    from verax.studies.runs import Run


def facts(digest: Digest, run: Run) -> list[tuple[str, str]]:
    """What stands at the top of the page: about the whole run, of which the digest may be a part."""
    manifest, scores = run.manifest, run.some([(digest.main, HEADLINES[digest.main])])
    subjects = {
        str(unit["name"]).removesuffix(f": {unit['method']}"): unit
        for unit in manifest["units"]
        if "samples" in unit
    }
    keys = ["task", "network", "seed", "sample"]
    passed = sum(bool(entry["passed"]) for entry in manifest["certificates"])
    # of the maps that are scored, as in the tables: without a focus an empty map is right
    ranked = scores["method"].map(reports.kind) == "method"
    degenerate = int(scores.loc[ranked, "degenerate"].sum())
    certified = f"{passed} of {len(manifest['certificates'])}" if manifest["certificates"] else "none made"
    scored = str(len(scores[keys].drop_duplicates()))
    if digest.main == "exact":
        return [
            ("tasks", str(len(manifest["tasks"]))),
            ("networks", str(len(manifest["networks"]))),
            ("certificates passed", certified),
            ("R² on held-out samples", agreement.fit_words(manifest, list(digest.run.families))[3:] or "–"),
            ("samples scored", scored),
            ("degenerate maps of methods, of those scored", str(degenerate)),
            ("failures", str(len(manifest["failures"]))),
            *_effort(manifest),
            ("units taken from the store", _reused(manifest)),
        ]
    return [
        ("tasks", str(len(manifest["tasks"]))),
        ("networks", str(len(manifest["networks"]))),
        ("certificates passed", certified),
        ("samples", str(sum(unit["samples"] for unit in subjects.values()))),
        ("samples with a focus, scored", scored),
        ("samples the network got wrong", str(sum(unit.get("wrong", 0) for unit in subjects.values()))),
        ("degenerate maps of methods, of those scored", str(degenerate)),
        ("failures", str(len(manifest["failures"]))),
        *_effort(manifest),
        ("units taken from the store", _reused(manifest)),
    ]


def _effort(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Seconds of this run; what was there already took none, and how long it once took is not known here."""
    taught = manifest.get("trained", [])
    there = manifest.get("reused_units", 0) == manifest.get("total_units", -1)
    training = [("seconds of training", f"{sum(entry['seconds'] for entry in taught):.0f}")]
    computing = "none, all from the store" if there else f"{manifest['seconds']:.0f}"
    return [*(training if taught else []), ("seconds of computing, by the clock", computing)]


def _reused(manifest: Mapping[str, Any]) -> str:
    """How many units were in the store, and how many entries of it could not be used."""
    total = manifest.get("total_units", len(manifest["units"]))
    damaged = manifest.get("damaged_entries", 0)
    aside = f"; {damaged} damaged and set aside" if damaged else ""
    return f"{manifest.get('reused_units', 0)} of {total}{aside}"


def methods(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What was run, with which parameters, and how long it took."""
    rows = []
    for entry in manifest["methods"]:
        units = [unit for unit in manifest["units"] if unit["method"] == entry["label"] and "samples" in unit]
        seconds = sum(unit.get("seconds", 0.0) for unit in units)
        maps = sum(unit["samples"] for unit in units)
        parameters = ", ".join(f"{name} = {json.dumps(value)}" for name, value in entry["parameters"].items())
        timing = f"{seconds:.1f} s ({1000 * seconds / maps:.1f} ms a map)" if maps else "–"
        peak = max((unit.get("peak_bytes") or 0 for unit in units), default=0)
        memory = f"{peak / 1e6:,.0f} MB" if peak else "–"
        rows.append({**entry, "parameters": parameters or "none", "timing": timing, "memory": memory})
    return rows


def own(manifest: Mapping[str, Any]) -> list[str]:
    """Methods that are not verax's own, by their labels."""
    return [str(entry["label"]) for entry in manifest.get("methods", []) if entry.get("family") == "own"]


def own_tasks(manifest: Mapping[str, Any]) -> list[str]:
    """Tasks that are not verax's own, with the reasoning that makes them where they have one."""
    found = []
    for task in manifest["tasks"]:
        name = str(task["name"]).partition("?")[0]
        if name not in TASKS or not TASKS.builtin(name):
            rule = str(task.get("reasoning") or "")
            found.append(f"{task['name']} ({rule})" if rule else str(task["name"]))
    return found


def own_methods(manifest: Mapping[str, Any]) -> dict[str, list[str]]:
    """The labels of methods that are not verax's own by where they came from: code, files or plugins."""
    found: dict[str, list[str]] = {"code": [], "files": [], "plugins": []}
    for entry in manifest["methods"]:
        if entry["family"] == "own":
            kind = "files" if "source" in entry else "plugins" if "plugin" in entry else "code"
            came = entry.get("source") or entry.get("plugin")
            found[kind].append(f"{entry['label']} ({came})" if came else str(entry["label"]))
    return found
