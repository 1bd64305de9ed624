"""Claims: what the reproduction that a run belongs to found about its paper."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

POINTER = "reproduction.json"
"""Lies in the runs of a reproduction: ``home``, the folder of the reproduction, and ``page``, its page."""

FILE, PAGE = "claims.json", "claims.html"
MARKS = {"holds": "✓", "does not hold": "✗", "cannot hold": "⊘", "not testable": "?"}


def part(folder: Path) -> dict[str, Any] | None:
    """Paper, page and claims by topic; None where a run belongs to no reproduction or claims are gone."""
    pointer = _read(folder / POINTER)
    home, page = str(pointer.get("home", "")), str(pointer.get("page", ""))
    if not home:
        return None
    found = _read(folder / home / FILE)
    rows = [_row(claim) for claim in _list(found.get("claims")) if isinstance(claim, dict)]
    if not rows:
        return None
    topics: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        topics.setdefault(row["topic"], []).append(row)
    verdicts = [row["verdict"] for row in rows]
    doubts = [row["verdict"] for row in rows if row["doubt"]]
    return {
        "paper": str(found.get("paper", "")),
        "about": str(found.get("about", "")),
        "command": str(found.get("command", "")),
        "link": quote(f"{home}/{page}") if page else "",
        "code": quote(f"{home}/{PAGE}" if (folder / home / PAGE).is_file() else f"{home}/{page}"),
        "doubts": {verdict: doubts.count(verdict) for verdict in {*doubts}},
        "counts": {verdict: verdicts.count(verdict) for verdict in [*MARKS, *sorted({*verdicts} - {*MARKS})]},
        "marks": MARKS,
        "topics": list(topics.items()),
    }


def _read(path: Path) -> dict[str, Any]:
    """A JSON object; empty where there is none that can be read."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _list(found: Any) -> list[Any]:
    return found if isinstance(found, list) else []


def _row(claim: Mapping[str, Any]) -> dict[str, str]:
    words = {
        name: str(claim.get(name) or "") for name in ("id", "topic", "where", "says", "measured", "rule")
    }
    doubt = "uncertain" if claim.get("uncertain") else ""
    return {**words, "verdict": str(claim.get("verdict", "")), "doubt": doubt, "value": _value(claim)}


def _value(claim: Mapping[str, Any]) -> str:
    """The number that decides, with its interval where it has one."""
    value, low, high = (claim.get(name) for name in ("value", "low", "high"))
    if not _number(value):
        return "–"
    return f"{value:.3g} [{low:.3g}, {high:.3g}]" if _number(low) and _number(high) else f"{value:.3g}"


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
