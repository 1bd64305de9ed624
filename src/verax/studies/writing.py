"""What a run leaves behind: scores, the maps to show, the cases behind them, and the manifest."""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as save_tensors
from torch import Tensor

from verax import devices
from verax.files import write_atomically
from verax.methods.base import METHODS, Method
from verax.metrics import METRICS, Metric
from verax.networks import NETWORKS, VERSIONS
from verax.registry import Registry
from verax.studies import consistency, scripts
from verax.studies.entries import Result
from verax.studies.execution import first_of_each
from verax.studies.plan import Plan
from verax.studies.runs import CASES, CONSISTENCY, MANIFEST, MAPS
from verax.studies.units import Cell, code_digest, content_hash
from verax.tasks.base import Learnable, is_regression
from verax.tasks.climate.task import Climate
from verax.version import __version__
from verax.wordings import wording

SHOWN = 12
"""Cases of a vector task whose maps are shown."""


def write(
    plan: Plan, target: Path, results: dict[str, Result], device: torch.device, facts: dict[str, Any]
) -> None:
    """Write the maps, cases and manifest of a run into its folder; its scores are there already.

    Args:
        plan: of the study.
        target: the folder.
        results: by the keys of their cells.
        device: where they were computed.
        facts: more entries of the manifest, failures among them.
    """
    scored = [cell for cell in plan.cells if cell.method is not None and cell.key in results]
    maps = {_name(u): _shown(results[u.key].maps["maps"]) for u in scored}
    write_atomically(target / MAPS, save_tensors(maps))
    write_atomically(target / CASES, save_tensors(_pictured(plan)))
    text = json.dumps({**_manifest(plan, results, device), **facts}, indent=2, default=repr)
    write_atomically(target / MANIFEST, (text + "\n").encode())
    alike = consistency.table(plan, results)
    if len(alike):
        write_atomically(target / CONSISTENCY, alike.to_csv(index=False).encode())
    else:
        (target / CONSISTENCY).unlink(missing_ok=True)  # of an earlier run in this folder


def _name(unit: Cell) -> str:
    subject = unit.subject
    return f"{subject.task.name}|{subject.network}|{subject.seed}|{unit.label}"


def _shown(maps: Tensor) -> Tensor:
    """The maps that are shown: all thumbnails of pictures, the first few of vectors."""
    return maps[:SHOWN].contiguous() if maps.ndim == 2 else maps


def _charted(task: Learnable, plan: Plan) -> dict[str, Tensor]:
    """The first cases of a vector task with their truth, and where its elements lie."""
    cases = task.cases(n=min(SHOWN, plan.study.samples), seed=plan.study.seed)
    assert cases.truth.values is not None
    tensors = {
        "inputs": cases.inputs,
        "values": cases.truth.values,
        "group": cases.group,
        "ids": cases.ids,
    }
    if (grid := getattr(task, "grid", None)) is not None:
        tensors |= {
            "cells": grid.cells,
            "latitudes": grid.latitudes,
            "longitudes": grid.longitudes,
            "geographic": torch.tensor(grid.geographic),
        }
    # copies, since tasks on one grid share it, and a file must not hold a tensor twice under two names
    return {f"{task.name}|{name}": tensor.contiguous().clone() for name, tensor in tensors.items()}


def _pictured(plan: Plan) -> dict[str, Tensor]:
    """The case behind each kept map."""
    tensors: dict[str, Tensor] = {}
    for task in {subject.task.name: subject.task for subject in plan.subjects}.values():
        if is_regression(task):
            tensors |= _charted(task, plan)
            continue
        cases = task.cases(n=1, seed=plan.study.seed)
        cases = cases[first_of_each(cases.group)]
        tensors[f"{task.name}|inputs"] = (cases.inputs * 255).round().to(torch.uint8).contiguous()
        tensors[f"{task.name}|focus"] = cases.truth.focus.contiguous()
        tensors[f"{task.name}|avoid"] = cases.truth.avoid.contiguous()
        tensors[f"{task.name}|group"] = cases.group.contiguous()
        tensors[f"{task.name}|ids"] = cases.ids.contiguous()
    return tensors


def _manifest(plan: Plan, results: dict[str, Result], device: torch.device) -> dict[str, Any]:
    packages = ("torch", "numpy", "pandas", "pyarrow", "safetensors", "scipy", "matplotlib")
    seen = {subject.task.name: subject.task for subject in plan.subjects}
    return {
        "study": plan.study.model_dump(),
        "plan": plan.key,
        "code": code_digest(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "verax": __version__,
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in packages},
        },
        "hardware": {
            "device": devices.describe(device),
            "machine": platform.machine(),
            "system": platform.system(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
        },
        "tasks": [
            {
                "name": task.name,
                "family": task.family,
                "reasoning": str(task.reasoning),
                "fingerprint": content_hash({"task": [task.fingerprint(), str(task.reasoning)]}),
                **_looks(task),
                "groups": {str(g): task.describe(g) for g in task.groups},
            }
            for task in seen.values()
        ],
        "networks": [
            {
                "task": s.task.name,
                "network": s.network,
                "seed": s.seed,
                "sha256": s.sha256,
                **_code(s.architecture),
            }
            for s in plan.subjects
        ],
        "methods": [
            {
                "label": u.label,
                "name": u.method.name,
                "family": u.method.family,
                "total": u.method.total,
                "slack": u.method.slack,
                "parameters": dict(u.parameters or {}),
                "version": u.method.version,
                **({} if u.method.builtin else {"wording": u.method.wording}),
                **_origin(u.method),
            }
            for u in plan.cells
            if u.method is not None and u.subject is plan.subjects[0]
        ],
        "metrics": [
            {
                "name": metric.name,
                "about": metric.description,
                "higher_is_better": metric.higher_is_better,
                "bounds": [str(bound) for bound in metric.bounds],  # JSON has no infinity
                "protocol": metric.protocol,
                "paper": metric.paper,
                "version": metric.version,
                "wording": wording(metric.function),
                **_origin(metric),
            }
            for metric in plan.metrics
        ],
        "certificates": [
            # the seed in the certificate is that of its samples; here the one of the network is wanted
            {**results[u.key].info["certificate"], "network": u.subject.network, "seed": u.subject.seed}
            for u in plan.cells
            if u.method is None and u.key in results
        ],
        "units": [
            {
                "name": u.name,
                "key": u.key,
                "method": u.label,
                "task": u.subject.task.name,
                **_facts(results[u.key]),
            }
            for u in plan.cells
            if u.key in results
        ],
    }


def _code(architecture: str) -> dict[str, str | None]:
    """What is known of the code of somebody's own network, beside its weights."""
    if NETWORKS.builtin(architecture):
        return {}
    return {"version": VERSIONS.get(architecture), "wording": wording(NETWORKS.get(architecture))}


def _origin(thing: Method | Metric) -> dict[str, str]:
    """Where somebody's own method or metric came from: a file as it was named, or a plugin."""
    registry: Registry[Any] = METHODS if isinstance(thing, Method) else METRICS
    if isinstance(thing, Method) and thing.family != "own":
        return {}
    here = registry.here(thing.name) and registry.get(thing.name) is thing
    found = {"source": scripts.source(thing), "plugin": registry.origin(thing.name) if here else ""}
    return {name: text for name, text in found.items() if text}


def _looks(task: Learnable) -> dict[str, Any]:
    """What inputs look like."""
    if is_regression(task):
        known = {"elements": task.features, "curriculum": dict(task.curriculum())}
        if not isinstance(task, Climate):
            return known
        field = task.source  # what was done to the data before anything was drawn from them
        made = {"field": field.name, "shrinkage": field.shrinkage, "preprocessing": list(field.notes)}
        return {**known, **made}
    return {"renderer": task.renderer.name, "background": task.background.fingerprint}


def _facts(result: Result) -> dict[str, Any]:
    own = ("certificate", "unit", "code")  # said elsewhere, once
    return {name: value for name, value in result.info.items() if name not in own}
