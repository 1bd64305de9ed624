"""Executors: who performs the jobs of a study."""

from __future__ import annotations

from verax.registry import Registry
from verax.studies.executors.base import Executor, Maker

EXECUTORS: Registry[Maker] = Registry(
    "executor",
    {
        "inline": "verax.studies.executors.inline:Inline",
        "processes": "verax.studies.executors.processes:Processes",
        "ray": "verax.studies.executors.cluster:Ray",
    },
    group="verax.executors",
)
"""Name -> what makes the executor: ``(device, workers) -> Executor``."""

__all__ = ["EXECUTORS", "Executor", "Maker"]
