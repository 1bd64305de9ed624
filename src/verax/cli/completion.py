"""Shell completion: names of studies, methods, tasks, networks and metrics.

Somebody waits for the letters that they typed, and torch alone takes seconds to import: the names that come
with verax are read from a file (written by ``tools/commands.py`` and checked by a test), those of other
packages from their entry points.
"""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import Any

NAMES = Path(__file__).with_name("names.json")
GROUPS = {
    "methods": "verax.methods",
    "tasks": "verax.tasks",
    "networks": "verax.networks",
    "metrics": "verax.metrics",
}


def known(kind: str) -> list[str]:
    """The names of one kind."""
    try:
        found = list(json.loads(NAMES.read_text()).get(kind, []))
    except (OSError, ValueError):  # completion never fails, it only has less to say
        found = []
    return list(dict.fromkeys([*found, *plugged(kind)]))


def plugged(kind: str) -> list[str]:
    """The names that other packages bring; none of them is imported."""
    return [entry.name for entry in metadata.entry_points(group=GROUPS[kind])] if kind in GROUPS else []


def _one(kind: str, incomplete: str) -> list[str]:
    return [name for name in known(kind) if name.startswith(incomplete)]


def _several(kind: str, incomplete: str) -> list[str]:
    """Names behind the last comma; those that are there already are not offered again."""
    before, comma, last = incomplete.rpartition(",")
    taken = before.split(",") if comma else []
    return [f"{before}{comma}{name}" for name in _one(kind, last) if name not in taken]


def studies(incomplete: str) -> list[str]:
    """Studies, and TOML files in this folder."""
    files = [path.name for path in Path().glob("*.toml") if path.name.startswith(incomplete)]
    return _one("studies", incomplete) + sorted(files)


def task(incomplete: str) -> list[str]:
    """One task."""
    return _one("tasks", incomplete)


def method(incomplete: str) -> list[str]:
    """One method."""
    return _one("methods", incomplete)


def network(incomplete: str) -> list[str]:
    """One network."""
    return _one("networks", incomplete)


def metric(incomplete: str) -> list[str]:
    """One metric."""
    return _one("metrics", incomplete)


def tasks(incomplete: str) -> list[str]:
    """Tasks with commas between them."""
    return _several("tasks", incomplete)


def methods(incomplete: str) -> list[str]:
    """Methods with commas between them."""
    return _several("methods", incomplete)


def networks(incomplete: str) -> list[str]:
    """Networks with commas between them."""
    return _several("networks", incomplete)


def kinds(incomplete: str) -> list[str]:
    """What can be listed."""
    return [
        name for name in ("tasks", "networks", "methods", "metrics", "studies") if name.startswith(incomplete)
    ]


def entries(ctx: Any, incomplete: str) -> list[str]:
    """Names of the kind that stands before."""
    return _one(str(ctx.params.get("what") or ""), incomplete)


def runs(incomplete: str) -> list[str]:
    """Runs in the folder runs/."""
    found = [str(path) for path in Path("runs").glob("*") if (path / "manifest.json").is_file()]
    return sorted(name for name in found if name.startswith(incomplete))
