"""Certificates in words: what was reached, how sure that is, and on how many samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from typing import Any

from verax.networks.certificates import too_few
from verax.reports import number


def followed(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A certificate with its worst rates in words; runs of older versions know no intervals."""
    said, counts = {}, {}
    for name in ("accuracy", "follow"):
        of = entry.get(f"worst_{name}_of") or {}
        said[name] = number(entry[f"worst_{name}"], of.get("low", nan), of.get("high", nan))
        counts[name] = of.get("n")
    return {**entry, "said": said, "n": counts}


def doubts(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence for each number of scenes that cannot show what passed certificates ask for."""
    found = [
        too_few(int(entry["worst_accuracy_of"]["n"]), float(entry["thresholds"]["accuracy"]))
        for entry in entries
        if entry["passed"] and entry.get("worst_accuracy_of")
    ]
    return [f"{words}." for words in dict.fromkeys(found) if words]


def fit(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A certificate of a regression network with its measures in words."""
    ends = entry.get("intervals") or {}
    said = {
        name: number(entry[name], *ends.get(name, (nan, nan)))
        for name in ("r2", "gradient", "dependence", "path")
        if name in entry
    }
    return {**entry, "said": said}
