"""Runs with made-up scores, written without computing anything."""

import json

import numpy as np
import pandas as pd

METHODS = ("gradient", "lrp-a", "grad-cam", "random", "oracle")


def scores(
    methods=METHODS, tasks=("textbox/simple-fr", "textbox/simple-nr"), networks=("cnn4",), seeds=(0,),
    groups=(1, 2, 3), samples=6, shift=None, noise=0, metric="focus-share", protocol="sound",
):  # fmt: skip
    """A long table; the same arguments give the same numbers, `shift` moves a method, `noise` draws anew."""
    rows = []
    base = {"gradient": 0.3, "lrp-a": 0.5, "grad-cam": 0.4, "random": 0.05, "oracle": 1.0}
    for task in tasks:
        for network in networks:
            for seed in seeds:
                for method in methods:
                    for group in groups:
                        label = f"{task}{network}{seed}{method}{group}"
                        generator = np.random.default_rng([noise, *label.encode()])
                        for sample in range(samples):
                            value = 1.0 if method == "oracle" else base.get(method, 0.2)
                            if method != "oracle":
                                value += 0.1 * generator.standard_normal() + (shift or {}).get(method, 0.0)
                            rows.append(
                                (task, network, seed, method, protocol, metric, group,
                                 1000 * group + sample, float(np.clip(value, 0, 1)), False)
                            )  # fmt: skip
    columns = [
        "task",
        "network",
        "seed",
        "method",
        "protocol",
        "metric",
        "group",
        "sample",
        "value",
        "degenerate",
    ]
    return pd.DataFrame(rows, columns=columns)


def write(folder, table, *, study="made-up", fingerprints=None, seed=0, code="a" * 64, created="2026-01-01",
          sha=None, passed=True, family="simple", **entries):  # fmt: skip
    """A run folder with this score table; more entries of its manifest as they are."""
    folder.mkdir(parents=True)
    table.to_parquet(folder / "scores.parquet", index=False)
    tasks = list(table["task"].unique())
    subjects = table[["task", "network", "seed"]].drop_duplicates().to_dict("records")
    manifest = {
        "study": {
            "name": study, "tasks": tasks, "seed": seed, "samples": 6,
            "protocols": list(table["protocol"].unique()),
        },
        "code": code,
        "created": created,
        "versions": {"verax": "0.1.0"},
        "tasks": [
            {
                "name": name,
                "family": family,
                "reasoning": "A -> 1",
                "renderer": "sound",
                "fingerprint": (fingerprints or {}).get(name, f"print of {name}"),
                "groups": {str(g): f"scene {g}" for g in sorted(table["group"].unique())},
            }
            for name in tasks
        ],
        "networks": [{**s, "sha256": (sha or {}).get(s["network"], "f" * 64)} for s in subjects],
        "certificates": [{**s, "passed": passed} for s in subjects],
        "failures": [],
        "notes": [],
        **entries,
    }  # fmt: skip
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder
