"""Runs that were never computed: no network is needed to know what a page has to show."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from safetensors.torch import save_file

from verax.studies.runs import Run

REFERENCES = ("input", "random", "oracle")
LEVEL = {"input": 0.5, "random": 0.05, "oracle": 1.0}
SIZE = 8
CHANCE = 4 / SIZE**2


@dataclass(frozen=True)
class Made:
    """What to make up: mean focus-share of each method, and what is missing."""

    methods: dict[str, float] = field(default_factory=lambda: {"good": 0.8, "bad": 0.2})
    published: dict[str, float] = field(default_factory=dict)
    tasks: dict[str, str] = field(default_factory=lambda: {"world/easy": "simple", "world/hard": "complex"})
    protocols: tuple[str, ...] = ("sound", "published")
    groups: tuple[int, ...] = (1, 2, 3)
    samples: int = 6
    spread: float = 0.02
    name: str = "made-up"
    description: str = "A made-up study."
    certify: int = 5
    passed: bool = True
    failed: tuple[tuple[str, str], ...] = ()
    wrong: tuple[tuple[str, int, int], ...] = ()
    maps: bool = True
    networks: tuple[str, ...] = ("net",)


ONE = Made(tasks={"mine": "own"})
BARE = Made(maps=False)


def rows_of(made: Made, rng: np.random.Generator) -> pd.DataFrame:
    rows = []
    for task in made.tasks:
        for method in (*made.methods, *REFERENCES):
            if (task, method) in made.failed:
                continue
            for group in made.groups:
                for index in range(made.samples):
                    sample = group * 10**9 + index
                    spread = 0.0 if method in LEVEL else made.spread
                    base = {**LEVEL, **made.methods}[method]
                    focus = float(np.clip(base + spread * rng.standard_normal(), 0, 1))
                    avoid = (1 - focus) * 0.6 if group > 1 else None  # bucket 1 has nothing to avoid
                    sound = {
                        "focus-share": focus,
                        "focus-share/normalised": (focus - CHANCE) / (1 - CHANCE),
                        "avoid-share": avoid,
                        "other-share": 0.0,
                        "background-share": 1 - focus - (avoid or 0.0),
                    }
                    paper = made.published.get(method, 0.6 * base)
                    published = {"pafl": paper, "safl": None if avoid is None else 0.5 * (1 - paper)}
                    for protocol, values in (("sound", sound), ("published", published)):
                        if protocol not in made.protocols:
                            continue
                        if protocol == "sound" and (task, group, index) in made.wrong:
                            continue
                        rows += [
                            (task, network, 0, method, protocol, metric, group, sample, value, False)
                            for metric, value in values.items()
                            for network in made.networks
                            if value is not None
                        ]
    columns = ["task", "network", "seed", "method", "protocol", "metric", "group", "sample", "value"]
    return pd.DataFrame(rows, columns=[*columns, "degenerate"])


def manifest_of(made: Made) -> dict:
    labels = [*made.methods, *REFERENCES]
    families = {"oracle": "references", "input": "controls", "random": "controls"}
    cases = len(made.groups) * made.samples
    return {
        "study": {
            "name": made.name,
            "description": made.description,
            "tasks": list(made.tasks),
            "networks": list(made.networks),
            "seeds": [0],
            "methods": [{"name": m, "label": m, "parameters": {}} for m in made.methods],
            "protocols": list(made.protocols),
            "samples": made.samples,
            "seed": 0,
            "certify": made.certify,
            "renderer": "sound",
            "background": "black",
        },
        "plan": "p" * 64,
        "code": "c0de" * 16,
        "created": "2026-01-01T00:00:00+00:00",
        "versions": {"verax": "0.1.0", "python": "3.11", "torch": "2.13"},
        "hardware": {"device": "cpu", "cores": 2},
        "tasks": [
            {
                "name": task,
                "family": family,
                "reasoning": "box -> 1; otherwise -> 0",
                "groups": {str(g): f"scene {g}" for g in made.groups},
            }
            for task, family in made.tasks.items()
        ],
        "networks": [
            {"task": task, "network": network, "seed": 0, "sha256": "ab" * 32}
            for task in made.tasks
            for network in made.networks
        ],
        "methods": [
            {"label": m, "name": m, "family": families.get(m, "gradients"), "parameters": {"steps": 7}}
            for m in labels
        ],
        "certificates": [
            {
                "network": "net",
                "seed": 0,
                "task": task,
                "passed": made.passed,
                "worst_accuracy": 1.0,
                "worst_accuracy_of": {"n": 50, "low": 0.929, "high": 1.0},
                "worst_follow": 0.985,
                "edits": 1234,
                "thresholds": {"accuracy": 0.99, "follow": 0.97},
            }
            for task in made.tasks
            if made.certify
        ],
        "units": [
            {
                "name": f"{task} net seed 0: {method}",
                "method": method,
                "task": task,
                "samples": cases,
                "wrong": sum(entry[0] == task for entry in made.wrong),
                "degenerate": 0,
                "seconds": 1.5,
            }
            for task in made.tasks
            for method in labels
            if (task, method) not in made.failed
        ],
        "failures": [
            {
                "unit": f"{task} net seed 0: {method}",
                "method": method,
                "reason": f"{method} raised <Boom> & co",
            }
            for task, method in made.failed
        ],
        "damaged_entries": 0,
        "set_aside": [],
        "reused_units": 4,
        "total_units": len(made.tasks) * len(labels) - len(made.failed),
        "seconds": 12.3,
    }


def build(folder: Path, made: Made | None = None) -> Run:
    made = made or Made()
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    rows_of(made, rng).to_parquet(folder / "scores.parquet")
    (folder / "manifest.json").write_text(json.dumps(manifest_of(made)))
    if not made.maps:
        return Run(folder)
    count = len(made.groups)
    focus, avoid = torch.zeros(2, count, SIZE, SIZE, dtype=torch.bool)
    focus[:, 1:3, 1:3] = True
    avoid[1:, 5:7, 5:7] = True
    cases, maps = {}, {}
    for task in made.tasks:
        cases[f"{task}|inputs"] = (focus | avoid).to(torch.uint8)[:, None].repeat(1, 3, 1, 1) * 255
        cases[f"{task}|focus"], cases[f"{task}|avoid"] = focus.clone(), avoid.clone()
        cases[f"{task}|group"] = torch.tensor(made.groups)
        cases[f"{task}|ids"] = torch.tensor(made.groups) * 10**9
        for method in (*made.methods, *REFERENCES):
            if (task, method) not in made.failed:
                for network in made.networks:
                    values = torch.from_numpy(rng.uniform(-1, 1, (count, SIZE, SIZE)))
                    maps[f"{task}|{network}|0|{method}"] = values.half()
    save_file(cases, folder / "cases.safetensors")
    save_file(maps, folder / "maps.safetensors")
    return Run(folder)


LATITUDES = (-80.0, -50.0, 0.0, 10.0, 20.0, 85.0)  # from the south on, and uneven
LONGITUDES = (300.0, 330.0, 0.0, 40.0)  # across the seam of 360 and 0
LAND = ((2, 1), (3, 1), (3, 2))
AGREEMENTS = ((0.9, 0.5, 0.8, 0.6), (0.7, 0.4, 0.2, 0.5))  # of two methods on four samples


def build_climate(folder: Path, methods: tuple[str, ...] = ("near", "far"), task: str = "sea") -> Run:
    """A run of a climate task with two networks on an uneven grid, of which nothing was computed."""
    folder.mkdir(exist_ok=True)
    rng, samples = np.random.default_rng(1), len(AGREEMENTS[0])
    made = Made(methods=dict.fromkeys(methods, 0.5), tasks={task: "climate"}, groups=(0,))
    made = replace(made, protocols=("exact",), networks=("mlp", "shallow"), samples=samples)
    manifest = manifest_of(made)
    limits = {"r2": 0.9, "gradient": 0.5, "dependence": 0.5, "path": 0.5}
    manifest["certificates"] = [
        {"task": task, "network": name, "seed": 0, "passed": True, "mse": 0.1, "limits": limits}
        | dict.fromkeys(limits, 0.95)
        | {"intervals": {"r2": [0.94, 0.96]}}
        for name in made.networks
    ]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    labels = (*methods, *REFERENCES)
    rows = [
        (task, network, 0, method, "exact", "pearson", 0, sample, value, False)
        for network in made.networks
        for place, method in enumerate(labels)
        for sample in range(samples)
        for value in [LEVEL[method] if method in LEVEL else AGREEMENTS[place % 2][sample]]
    ]
    columns = ["task", "network", "seed", "method", "protocol", "metric", "group", "sample", "value"]
    pd.DataFrame(rows, columns=[*columns, "degenerate"]).to_parquet(folder / "scores.parquet")
    ocean = torch.ones(len(LATITUDES), len(LONGITUDES), dtype=torch.bool)
    for place in LAND:
        ocean[place] = False
    count = int(ocean.sum())
    vectors = torch.from_numpy(rng.uniform(-1, 1, (2, samples, count)))
    cases = {
        "inputs": vectors[0].float(),
        "values": vectors[1].float(),
        "group": torch.zeros(samples, dtype=torch.int64),
        "ids": torch.arange(samples),
        "cells": ocean.nonzero(),
        "latitudes": torch.tensor(LATITUDES, dtype=torch.float64),
        "longitudes": torch.tensor(LONGITUDES, dtype=torch.float64),
        "geographic": torch.tensor(True),
    }
    save_file(
        {f"{task}|{name}": value.contiguous() for name, value in cases.items()}, folder / "cases.safetensors"
    )
    maps = {
        f"{task}|{network}|0|{method}": torch.from_numpy(rng.uniform(-1, 1, (samples, count))).half()
        for network in made.networks
        for method in labels
    }
    save_file(maps, folder / "maps.safetensors")
    return Run(folder)
