"""Run folders: whether one may be written to, and whether it still is the run that it began as."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from verax.errors import OutputError
from verax.studies.identification import TABLES
from verax.studies.runs import CASES, CONSISTENCY, IDENTIFICATION, MANIFEST, MAPS, SCORES
from verax.studies.units import code_digest


def _said(folder: Path) -> dict[str, Any]:
    """The manifest; empty where it cannot be read."""
    try:
        found = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def is_run(folder: Path) -> bool:
    """Whether a folder is a run, or the beginning of one that was killed before its manifest was written."""
    ours = (SCORES, MAPS, CASES, MANIFEST, CONSISTENCY, *(IDENTIFICATION.format(name) for name in TABLES))
    names = [path.name for path in folder.iterdir()]
    if MANIFEST not in names:
        return all(name in ours or name.startswith(tuple(f".{own}." for own in ours)) for name in names)
    return {"study", "plan", "code"} <= set(_said(folder))


def check_still_ours(folder: Path, plan: str) -> None:
    """Refuse to finish a run whose folder went, or was taken by another run, after its scores were written.

    Args:
        folder: of the run.
        plan: the key of its plan.
    """
    found = _said(folder)
    same = found.get("plan") == plan and found.get("code") == code_digest()
    if not (same and (folder / SCORES).is_file()):
        raise OutputError(
            f"The folder {str(folder)!r} was removed, or another run writes to it. All units are kept: run "
            "the same command again, with a folder of its own."
        )
