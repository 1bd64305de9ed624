"""Requests: a study with the changes that somebody asks for; functions and objects get names on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from verax import tasks
from verax.errors import InvalidParameter
from verax.methods.base import METHODS, Function, Method, method
from verax.metrics import METRICS, Metric
from verax.metrics.own import own_metric
from verax.studies import scripts
from verax.studies import spec as specs
from verax.studies.spec import MethodSpec, Study
from verax.tasks import Task


def _method_entries(
    given: Sequence[str | Function | Method | dict[str, Any]] | None, known: Mapping[str, MethodSpec]
) -> list[Any] | None:
    """Names and tables as they are; callables, also ``FILE.py:NAME``, are registered under their own name.

    A name that is a label of the study means what it means there, with its parameters.
    """
    if given is None:
        return None
    entries: list[Any] = []
    for entry in [given] if isinstance(given, str) else given:
        if isinstance(entry, Method):
            if not (METHODS.builtin(entry.name) and METHODS.get(entry.name) == entry):
                METHODS.own(entry.name, entry)
            entry = entry.name
        elif callable(entry):
            name = getattr(entry, "__name__", type(entry).__name__)
            method(name)(entry)
            entry = name
        elif isinstance(entry, str) and entry in known:
            entry = known[entry].model_dump()
        elif isinstance(entry, str):
            entry = scripts.method(entry)
        elif not isinstance(entry, Mapping | MethodSpec):
            raise InvalidParameter(
                "Methods are names, functions or tables; one with parameters is a table such as "
                f"{{'name': 'integrated-gradients', 'steps': 8}}, not {_shortly(entry)}."
            )
        entries.append(entry)
    return entries


def _shortly(entry: object) -> str:
    """What somebody gave, in a few words."""
    words = repr(entry)
    plain = isinstance(entry, str | int | float | bool | tuple | list | None) and len(words) <= 60
    return words if plain else f"a {type(entry).__name__}"


def _network_entries(given: Any) -> list[str]:
    """Names; what is none is told where it belongs."""
    entries: list[Any] = [given] if isinstance(given, str | torch.nn.Module) else list(given)
    for entry in entries:
        if not isinstance(entry, str):
            raise InvalidParameter(
                f"Networks of a study are names, not {_shortly(entry)}: a study trains and certifies them. "
                'Register the function that makes yours with @verax.network("mine") and name it; one that is '
                "trained already is judged with verax.certify, verax.explain and verax.score."
            )
    return entries


def _task_entries(given: Sequence[str | Task] | None) -> list[str] | None:
    if given is None:
        return None
    entries = [given] if isinstance(given, str | Task) else given
    return [entry if isinstance(entry, str) else tasks.register(entry) for entry in entries]


def _metric_entries(given: Sequence[str | Metric] | str) -> list[str]:
    """Names as they are; metrics that are handed over, also as ``FILE.py:NAME``, get their own."""
    entries = [given] if isinstance(given, str | Metric) else given
    found = [scripts.metric(entry) if isinstance(entry, str) else own_metric(entry) for entry in entries]
    return [entry if isinstance(entry, str) else METRICS.own(entry.name, entry).name for entry in found]


def described(study: str | Path | dict[str, Any] | Study, **changes: Any) -> Study:
    """A study with the changes that `run` takes; callables and task objects are registered."""
    if changes.get("methods") is not None:
        changes["methods"] = _method_entries(changes["methods"], specs.labelled(study))
    if changes.get("tasks") is not None:
        changes["tasks"] = _task_entries(changes["tasks"])
    if changes.get("metrics") is not None:
        changes["metrics"] = _metric_entries(changes["metrics"])
    if changes.get("networks") is not None:
        changes["networks"] = _network_entries(changes["networks"])
    for name in ("seeds", "protocols"):
        if changes.get(name) is not None:
            one = isinstance(changes[name], str | int)
            changes[name] = [changes[name]] if one else list(changes[name])
    if changes.get("field") is not None:
        changes["field"] = str(Path(changes["field"]).expanduser())
    return specs.study(study, **changes)
