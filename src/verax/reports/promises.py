"""Promises: how far the maps of a run are from the totals that their methods promise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from verax.methods.base import SLACKS

TOTALS = {"output": "the output", "change": "the change of the output from its baseline"}
ALARM = 0.05
"""A median gap beyond which a promise counts as broken, where nothing but rounding or steps excuses it."""

_EXCUSES = {
    "rounding": "although it promises it exactly; do not trust these maps",
    "steps": "more steps would bring them closer",
}


def _percent(share: float) -> str:
    if np.isnan(share):
        return "–"
    if share < 1e-4:
        return "below 0.01 %"
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"


def _gaps(manifest: Mapping[str, Any], label: str) -> tuple[float, float] | None:
    """The median over tasks of a method's median gap, and its largest gap; None without a promise."""
    gaps = [
        unit["completeness_error"]
        for unit in manifest["units"]
        if unit["method"] == label and "completeness_error" in unit
    ]
    if not gaps:
        return None
    return float(np.median([gap["median"] for gap in gaps])), max(float(gap["largest"]) for gap in gaps)


def rows(manifest: Mapping[str, Any]) -> list[dict[str, str]]:
    """One row for each method: what it promises, the median gap and the largest; dashes without a promise."""
    found = []
    for entry in manifest["methods"]:
        gaps = _gaps(manifest, entry["label"])
        if gaps is None or entry.get("total") is None:
            text = {"total": "–", "slack": "–", "median": "–", "largest": "–"}
        else:
            text = {
                "total": TOTALS.get(entry["total"], entry["total"]),
                "slack": SLACKS.get(entry["slack"], "–"),
                "median": _percent(gaps[0]),
                "largest": _percent(gaps[1]),
            }
        found.append({"method": str(entry["label"]), **text})
    return found


def alarms(manifest: Mapping[str, Any]) -> list[str]:
    """A sentence for each method that misses its total without an excuse in its design."""
    found = []
    for entry in manifest["methods"]:
        gaps = _gaps(manifest, entry["label"])
        excuse = _EXCUSES.get(entry.get("slack", ""))
        if gaps is not None and excuse is not None and not gaps[0] <= ALARM:
            if np.isnan(gaps[0]):
                found.append(f"{entry['label']}: half of its maps or more are not finite and have no total.")
                continue
            gap = _percent(gaps[0])
            found.append(
                f"{entry['label']}: half of its maps miss the promised total by {gap} or more; {excuse}."
            )
    return found
