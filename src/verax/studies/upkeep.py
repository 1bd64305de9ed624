"""Upkeep of a store: what is in it, whether it is sound, and what can go."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verax.errors import OutputError
from verax.networks import records
from verax.studies.entries import DAMAGE, Damaged, named_parts, read_head, unpack
from verax.studies.store import FAILED, QUARANTINE, UNITS, Store
from verax.studies.units import code_digest, explaining_digest

_LEFTOVER = 3600.0
"""Seconds after which a temporary file belongs to nobody: no entry takes so long to write."""


KINDS = ("scores", "certificate", "maps", "reading", "failure", "damaged")


@dataclass(frozen=True)
class Listed:
    """An entry as it is listed.

    Attributes:
        key: of its unit.
        kind: one of `KINDS`.
        name: of the unit, where it is known; for failures also the reason, for damage that alone.
        size: in bytes, parts included.
        seconds: that it took, where it is known.
        old: made by another version of the code.
    """

    key: str
    kind: str
    name: str
    size: int
    seconds: float | None = None
    old: bool = False


@dataclass(frozen=True)
class Problem:
    """Something in a store that is not as it should be.

    Attributes:
        path: where.
        reason: in words.
        beside: what has to go with it.
    """

    path: Path
    reason: str
    beside: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Swept:
    """What `gc` took away."""

    files: int
    size: int


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0


def _kind(content: dict[str, Any]) -> str:
    info, parts = content["info"], content["parts"]
    if "certificate" in info:
        return "certificate"
    if any(name.endswith(".parquet") for name in parts):
        return "scores" if "samples" in info else "reading"
    return "maps"


def _old(info: dict[str, Any]) -> bool:
    code = info.get("code")
    return code is not None and code not in (code_digest(), explaining_digest())


def listing(store: Store) -> Iterator[Listed]:
    """All entries and failures, in no order; only heads are read."""
    for path in _all(store):
        if path.suffix != ".json":
            continue
        key = path.stem.removesuffix(FAILED)
        if path.stem.endswith(FAILED):
            yield Listed(key, "failure", _failed(path), _size(path))
            continue
        try:
            content = read_head(key, path.read_bytes())
            parts = named_parts(content)
            info = dict(content["info"])
        except (OSError, Damaged, KeyError, TypeError, ValueError) as error:
            yield Listed(key, "damaged", str(error), _size(path))
            continue
        size = _size(path) + sum(_size(path.parent / name) for name in parts)
        yield Listed(key, _kind(content), str(info.get("unit", "")), size, info.get("seconds"), _old(info))


def _failed(path: Path) -> str:
    """Which unit failed, and why."""
    try:
        found = json.loads(path.read_bytes())
        return f"{found['unit']}: {found['reason']}"
    except (OSError, *DAMAGE):
        return "cannot be read"


def _all(store: Store) -> Iterator[Path]:
    """Every file under the store's units, folder by folder; also those of older layouts.

    Folders in the place of an entry are among them.
    """
    for folder, inner, names in os.walk(store.folder / UNITS):
        strange = [name for name in inner if name.endswith(".json")]
        inner[:] = [name for name in inner if name not in strange]
        yield from (Path(folder) / name for name in (*names, *strange))


def verify(store: Store) -> Iterator[Problem | None]:
    """Read every entry and compare every checksum: a problem, or None for each one that is sound."""
    for path in _all(store):
        if path.suffix != ".json" or path.name.startswith("."):
            continue
        key = path.stem.removesuffix(FAILED)
        if path.parent != store.place(key):
            yield Problem(path, "foreign, or of an older layout: it is never read")
        elif path.stem.endswith(FAILED):
            yield None if store.failure(key) else Problem(path, "a failure that cannot be read")
        else:
            try:
                entry = store.get(key)
                if entry is not None:
                    unpack(entry)
                # none: it has gone since, but for a link whose goal has
                yield Problem(path, "a link to nothing") if entry is None and path.is_symlink() else None
            except (Damaged, OutputError) as error:
                yield Problem(path, str(error))
    for path in networks(store):
        weights, record = path.with_suffix(".safetensors"), path.with_suffix(".json")
        reason = records.damage(weights)
        if reason is None and not weights.exists():
            reason = "a record without weights"
        yield None if reason is None else Problem(weights, reason, (record,))


def networks(store: Store) -> list[Path]:
    """The records of trained networks, and folders in the place of one of their files."""
    folder = store.folder / "networks"
    found = [*folder.glob("*.json"), *(path for path in folder.glob("*.safetensors") if path.is_dir())]
    return sorted({path.with_suffix(".json") for path in found if not path.name.startswith(".")})


def sweep(store: Store, *, old: bool = False, maps: bool = False, failures: bool = False) -> Swept:
    """Take away what nobody can use: the quarantine, left-over temporary files and parts without an entry.

    Args:
        store: nobody may be adding to it.
        old: also entries of other versions of the code, and what is foreign or of an older layout.
        maps: also raw maps.
        failures: also records of failures.
    """
    with store.locked(alone=True) as had:
        if not had:
            raise OutputError(
                f"The store {str(store.folder)!r} is in use, cannot be written to, or its disk knows no "
                "locks: nothing was removed."
            )
        removed = list(_rubbish(store, old, maps, failures))
        size = sum(_size(path) for path in removed)
        for path in removed:
            try:
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
            except OSError as error:
                raise OutputError(f"Cannot remove {str(path)!r}: {error.strerror}.") from error
    return Swept(len(removed), size)


def _rubbish(store: Store, old: bool, maps: bool, failures: bool) -> Iterator[Path]:
    with suppress(OSError):
        yield from (store.folder / QUARANTINE).iterdir()
    for folder, _, names in os.walk(store.folder / UNITS):
        here = Path(folder)
        used: set[str] = set()
        for name in names:
            path = here / name
            if name.startswith(".") or path.suffix != ".json":
                continue
            used.add(name)
            key = path.stem.removesuffix(FAILED)
            if path.parent != store.place(key):
                gone = old
            elif path.stem.endswith(FAILED):
                gone = failures
            else:
                try:
                    content = read_head(key, path.read_bytes())
                    info = dict(content["info"])
                    gone = (old and _old(info)) or (maps and _kind(content) == "maps" and "unit" in info)
                    used.update(() if gone else named_parts(content))
                except (OSError, Damaged, KeyError, TypeError, ValueError) as error:
                    # the next run that needs it will say so; what belongs to somebody else, or to a format
                    # of another version, may be sound for those who can read it, and keeps its parts
                    gone = old and not isinstance(error, OSError)
                    used.update(() if gone else (part for part in names if part.startswith(f"{key}.")))
            if gone:
                yield path
        for name in names:
            if name not in used and (not name.startswith(".") or _forgotten(here / name)):
                yield here / name


def _forgotten(path: Path) -> bool:
    with suppress(OSError):
        return time.time() - path.stat().st_mtime > _LEFTOVER
    return False
