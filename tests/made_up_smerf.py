"""Made-up scores of the SMERF study: every bucket and metric, without a network."""

from __future__ import annotations

import zlib
from functools import cache

import numpy as np
import pandas as pd

from verax.reproductions.smerf import paper
from verax.tasks.textbox.reasoning import Reasoning
from verax.tasks.textbox.settings import SETTINGS

METRICS = ("pafl", "safl", "piou", "siou", "pmafl", "smafl")
REFERENCES = ("input", "oracle")


def _groups(task):
    reasoning = Reasoning.parse(SETTINGS[task][1])
    scenes = [(g, s) for g, s in enumerate(reasoning.world.scenes(), 1) if reasoning.label(s) is not None]
    return {
        "p": [g for g, s in scenes if reasoning.focus(s)],
        "s": [g for g, s in scenes if reasoning.avoid(s)],
    }


GROUPS = {task: _groups(task) for task in paper.settings()}
"""Setting -> "p" or "s" -> buckets with something to focus on or to avoid."""


@cache
def _level(method, metric, family, like_paper):
    if like_paper:
        for r in paper.references():
            if paper.headline(r) and (r.method, r.metric, r.family) == (method, metric, family):
                return r.value
    return 0.2 + 0.5 * (zlib.crc32(f"{method}{metric}{family}".encode()) % 100) / 100


def made_up(
    samples=4,
    seeds=(0,),
    network="cnn@published",
    methods=None,
    metrics=METRICS,
    spread=0.1,
    shift=0.0,
    like_paper=False,
    degenerate=None,
    level=None,
):
    """A long table; `level(task, group, method, metric)` gives means where it is not None."""
    random = np.random.default_rng(3)
    methods = methods or (*paper.methods(), *REFERENCES)
    families = {task: family for family, tasks in paper.families().items() for task in tasks}
    columns = {
        name: [] for name in ("task", "seed", "method", "metric", "group", "sample", "value", "degenerate")
    }
    for task in paper.settings():
        for metric in metrics:
            for group in GROUPS[task][metric[0]]:
                for method in methods:
                    own = None if level is None else level(task, group, method, metric)
                    if own is None:
                        own = _level(method, metric, families[task], like_paper) + shift
                        own += 0 if like_paper else 0.02 * group - 0.1
                    for seed in seeds:
                        bad = random.random(samples) < (degenerate or {}).get(method, 0)
                        values = np.clip(own + 0.01 * seed + spread * random.standard_normal(samples), 0, 1)
                        columns["value"].append(np.where(bad & (not metric.endswith("iou")), 0.0, values))
                        columns["degenerate"].append(bad)
                        columns["sample"].append(group * 10**9 + np.arange(samples))
                        labels = {"task": f"textbox/{task}", "seed": seed, "method": method}
                        for name, value in {**labels, "metric": metric, "group": group}.items():
                            columns[name].append(np.full(samples, value, dtype=object))
    table = pd.DataFrame({name: np.concatenate(values) for name, values in columns.items()})
    table = table.astype({"seed": int, "group": int})
    return table.assign(network=network, protocol="published")
