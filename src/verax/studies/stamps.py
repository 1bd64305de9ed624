"""Stamps: the code that a brief is performed with.

Workers read code anew. Where a file of verax, or of own methods, metrics and tasks, was edited after the
driver had read it, a worker would compute something else under the same keys. Stamps tell them apart.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any
from weakref import WeakKeyDictionary

import torch

from verax.studies.units import code_digest
from verax.studies.work import Brief

_SEEN: WeakKeyDictionary[FunctionType, tuple[CodeType, str]] = WeakKeyDictionary()
"""Of functions that this process has met: their code, and the file that it came from, as it was then."""


def version() -> str:
    """Names the code of verax and torch that results depend on: scores of different versions must not mix."""
    return f"{code_digest()} torch {torch.__version__.partition('+')[0]}"


def stamp(brief: Brief) -> str:
    """A hash of the code of a brief; the same in all processes that have read the same files."""
    lines = {f"{owner.__module__} {_file(owner)}" for owner in _owners(brief)}
    return hashlib.sha256("\n".join([version(), *sorted(lines)]).encode()).hexdigest()


def _owners(brief: Brief) -> Iterator[Any]:
    """The functions and classes of own methods, metrics and tasks."""
    things: list[Any] = [metric.function for metric in brief.metrics]
    for cell in filter(None, brief.cells):
        method = getattr(cell.method, "made", cell.method)  # on its way, or arrived
        things += [getattr(method, "function", None), cell.subject.task]
    for thing in things:
        owner = thing if isinstance(thing, FunctionType) else type(thing)
        if owner.__module__.partition(".")[0] not in ("verax", "builtins", "__main__"):
            yield owner


def _file(owner: Any) -> str:
    """The file that a function or class was read from, as a hash."""
    if not isinstance(owner, FunctionType):
        return _read(owner.__module__)
    known = _SEEN.get(owner)
    if known is None or known[0] is not owner.__code__:  # not seen yet, or reloaded
        known = _SEEN[owner] = owner.__code__, _read(owner.__module__)
    return known[1]


def _read(name: str) -> str:
    path = getattr(sys.modules.get(name), "__file__", None)
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest() if path else ""
    except OSError:
        return ""
