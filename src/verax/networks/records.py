"""Records of stored networks: what lies beside their weights, and whether both are as they were written."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from verax.errors import WeightsError

SEAL = "seal"
"""The entry of a record that holds its own checksum."""


def seal(content: dict[str, Any]) -> str:
    """SHA-256 of a record as it reads when it comes back from JSON."""
    text = json.dumps(json.loads(json.dumps(content)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def record(path: Path) -> dict[str, Any]:
    """The record beside stored weights."""
    beside = path.with_suffix(".json")
    try:
        found = json.loads(beside.read_text())
    except OSError as error:
        raise WeightsError(f"The record {beside.name!r} of the weights cannot be read.") from error
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"The record {beside.name!r} of the weights is damaged.") from error
    if not isinstance(found, dict) or not isinstance(found.get("sha256"), str):
        raise WeightsError(f"The record {beside.name!r} of the weights is damaged.")
    kept = found.pop(SEAL, None)  # older records have none
    if kept is not None and kept != seal(found):
        raise WeightsError(f"The record {beside.name!r} of the weights is damaged: it was changed.")
    return found


class Damage(NamedTuple):
    """A network in a user's store that cannot be used.

    Attributes:
        path: of its weights.
        reason: in words.
    """

    path: Path
    reason: str

    @property
    def files(self) -> tuple[Path, Path]:
        """Its weights and its record."""
        return self.path, self.path.with_suffix(".json")

    def __str__(self) -> str:
        return f"The network {self.path.stem!r} in the store is damaged ({self.reason}), so it is set aside."


_LOOKED_AT: dict[Path, tuple[tuple[object, ...], str | None]] = {}
"""Stored networks whose checksums were compared, what they were then, and what was wrong."""


def _state(path: Path) -> tuple[object, ...]:
    """Changes whenever a file does."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def damage(path: Path) -> str | None:
    """What is wrong with a stored network; nothing where there is none, as after a kill between two files."""
    beside = path.with_suffix(".json")
    for place in (path, beside):
        if place.is_dir():
            return f"a folder is in the place of {place.name}"
    if not (path.is_file() and beside.is_file()):
        return None
    state = (*_state(path), *_state(beside))
    if _LOOKED_AT.get(path, ((), None))[0] != state:
        try:
            expected, reason = record(path)["sha256"], None
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != expected:
                    reason = "the SHA-256 of its weights is not the recorded one"
        except WeightsError:
            reason = "its record cannot be read or was changed"
        except OSError:  # whoever loads it says why
            return None
        if (*_state(path), *_state(beside)) != state:  # somebody is writing it
            return None
        _LOOKED_AT[path] = state, reason
    return _LOOKED_AT[path][1]
