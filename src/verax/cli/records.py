"""Records: what commands found, as plain values for programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from verax.errors import VeraxError

if TYPE_CHECKING:
    import pandas as pd

    from verax.studies.alignments import Alignment
    from verax.studies.runs import Run


def rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table; what is not defined is None."""
    return cast("list[dict[str, Any]]", table.astype(object).where(table.notna(), None).to_dict("records"))


def of_run(run: Run, report: Path) -> dict[str, Any]:
    """A run: its leaderboards, certificates and failures."""
    manifest = run.manifest
    boards = []
    for tier, part in run.by_tier():
        for protocol in manifest["study"]["protocols"]:
            for family in dict.fromkeys(run.families.values()):
                entry = {"tier": tier, "protocol": protocol, "family": family}
                try:
                    boards.append({**entry, "rows": rows(part.leaderboard(protocol, family=family))})
                except VeraxError as error:
                    boards.append({**entry, "rows": [], "error": str(error)})
    return {
        "study": manifest["study"]["name"],
        "run": str(run.folder),
        "report": str(report),
        "seconds": manifest["seconds"],
        "units": {name: manifest[f"{name}_units"] for name in ("total", "computed", "reused")},
        "certificates": [
            {name: entry[name] for name in ("task", "network", "seed", "passed")}
            for entry in manifest["certificates"]
        ],
        "notes": manifest.get("notes", []),
        "failures": manifest["failures"],
        "leaderboards": boards,
    }


def of_alignment(done: Alignment, folder: Path, report: Path) -> dict[str, Any]:
    """An alignment: its scores beside chance, and the eight cases."""
    facts = done.facts
    known = "case" in done.scores and done.accuracy == done.accuracy
    return {
        **{name: facts[name] for name in ("model", "data", "method")},
        **{name: facts.get(name) for name in ("weights", "sha256", "outputs", "command")},
        "run": str(folder),
        "report": str(report),
        "images": len(done),
        "accuracy": done.accuracy,
        "scores": rows(done.table()),
        "cases": rows(done.cases()) if known else [],
        "without_case": done.without_case() if known else None,
        "notes": facts.get("notes", []),
    }
