"""Shell completion: names of studies, methods, tasks, networks, metrics and protocols, models and runs.

Somebody waits for the letters that they typed, and torch alone takes seconds to import: the names that come
with verax are read from a file (written by ``tools/commands.py`` and checked by a test), those of other
packages from their entry points.
"""

from __future__ import annotations

import json
import re
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

NAMES = Path(__file__).with_name("names.json")
GROUPS = {
    "methods": "verax.methods",
    "tasks": "verax.tasks",
    "networks": "verax.networks",
    "metrics": "verax.metrics",
    "datasets": "verax.datasets",
}
DRAWN = ("digits",)
MODELS = {
    "timm": r"@register_model\s*\ndef (\w+)",
    "torchvision": r"@register_model\(\)\n(?:@[^\n]*\n)*def (\w+)",
}
"""Libraries of networks, and how their source declares one."""


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
        name
        for name in ("tasks", "networks", "methods", "metrics", "studies", "datasets", "plugins")
        if name.startswith(incomplete)
    ]


def entries(ctx: Any, incomplete: str) -> list[str]:
    """Names of the kind that stands before."""
    return _one(str(ctx.params.get("what") or ""), incomplete)


def protocols(incomplete: str) -> list[str]:
    """Protocols with commas between them."""
    return _several("protocols", incomplete)


def protocol(incomplete: str) -> list[str]:
    """One protocol."""
    return _one("protocols", incomplete)


def dataset(incomplete: str) -> list[str]:
    """Data sets that a name is enough for: those that are drawn, and those of other packages."""
    return [name for name in (*DRAWN, *plugged("datasets")) if name.startswith(incomplete)]


def model(incomplete: str) -> list[str]:
    """Networks from elsewhere; the many names of a library only once the library is named."""
    library, colon, _ = incomplete.partition(":")
    if colon:
        names = [f"{library}:{name}" for name in _models(library)]
    else:
        names = [*(f"{name}:" for name in MODELS), *(f"efficientnet-lite{size}" for size in range(3))]
    return [name for name in names if name.startswith(incomplete)]


def _models(library: str) -> list[str]:
    """The networks of a library, read off its source: importing it takes seconds."""
    found = find_spec(library) if library in MODELS else None
    if found is None or not found.submodule_search_locations:
        return []
    files = sorted((Path(found.submodule_search_locations[0]) / "models").glob("*.py"))
    texts = (file.read_text(errors="replace") for file in files)
    return sorted({name for text in texts for name in re.findall(MODELS[library], text)})


def runs(ctx: Any, incomplete: str) -> list[str]:
    """Runs in the folder runs/, or in the folder that is being typed; shells complete other folders."""
    before, _, last = incomplete.rpartition("/")
    near = (
        []
        if last.startswith(".")
        else Path(f"{before}/" if before or incomplete[:1] == "/" else ".").glob("*")
    )
    found = [str(path) for folder in (near, Path("runs").glob("*")) for path in folder if _is_run(path)]
    if ctx.command.name == "open":  # which finds what lies in runs/ by its name alone
        found += [path.name for path in Path("runs").glob("*") if _is_run(path)]
    there = ctx.params.get("runs") or ()
    taken = set(there if isinstance(there, list | tuple) else [])
    return sorted({name for name in found if name.startswith(incomplete) and name not in taken})


def _is_run(path: Path) -> bool:
    return any((path / name).is_file() for name in ("manifest.json", "claims.json"))
