"""verax: does this explanation tell the truth?

The names below are loaded when they are first used, so that ``import verax`` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verax.version import __version__

if TYPE_CHECKING:
    from verax.cases import Cases, Truth
    from verax.checks import check_method, check_metric, check_task
    from verax.methods import Method, explain, method
    from verax.methods.completeness import completeness
    from verax.metrics import Metric
    from verax.metrics.own import metric
    from verax.metrics.scoring import score
    from verax.networks import network
    from verax.networks.certificates import Certificate
    from verax.networks.teaching import certify, train
    from verax.reports.showing import show
    from verax.studies.aligning import align
    from verax.studies.alignments import Alignment
    from verax.studies.differences import compare
    from verax.studies.loading import load
    from verax.studies.running import run
    from verax.studies.runs import Run
    from verax.studies.spec import Study
    from verax.tasks import Task, register_task, task
    from verax.tasks.alignment import dataset
    from verax.tasks.textbox import Kind, Look, Reasoning, TextBox, World

_WHERE = {
    "check_method": "verax.checks",
    "check_metric": "verax.checks",
    "check_task": "verax.checks",
    "Cases": "verax.cases",
    "Truth": "verax.cases",
    "Method": "verax.methods",
    "explain": "verax.methods",
    "method": "verax.methods",
    "completeness": "verax.methods.completeness",
    "Metric": "verax.metrics",
    "metric": "verax.metrics.own",
    "score": "verax.metrics.scoring",
    "network": "verax.networks",
    "Certificate": "verax.networks.certificates",
    "certify": "verax.networks.teaching",
    "train": "verax.networks.teaching",
    "align": "verax.studies.aligning",
    "Alignment": "verax.studies.alignments",
    "compare": "verax.studies.differences",
    "load": "verax.studies.loading",
    "show": "verax.reports.showing",
    "run": "verax.studies.running",
    "Run": "verax.studies.runs",
    "Study": "verax.studies.spec",
    "Task": "verax.tasks",
    "register_task": "verax.tasks",
    "task": "verax.tasks",
    "dataset": "verax.tasks.alignment",
    "Kind": "verax.tasks.textbox",
    "Look": "verax.tasks.textbox",
    "Reasoning": "verax.tasks.textbox",
    "TextBox": "verax.tasks.textbox",
    "World": "verax.tasks.textbox",
}

__all__ = [
    "Alignment",
    "Cases",
    "Certificate",
    "Kind",
    "Look",
    "Method",
    "Metric",
    "Reasoning",
    "Run",
    "Study",
    "Task",
    "TextBox",
    "Truth",
    "World",
    "__version__",
    "align",
    "certify",
    "check_method",
    "check_metric",
    "check_task",
    "compare",
    "completeness",
    "dataset",
    "explain",
    "load",
    "method",
    "metric",
    "network",
    "register_task",
    "run",
    "score",
    "show",
    "task",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'verax' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
