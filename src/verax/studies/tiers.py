"""Tiers: how firmly the truth behind a score is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from verax.networks.wired import WIRED

TIERS = {
    1: "constructed",
    2: "trained and certified",
    3: "annotated",
}
"""1: the network was built to follow the reasoning; 2: it was trained, and fresh scenes and interventions
show that it follows it; 3: people said what matters."""

NONE = 0
"""A trained network without a certificate that it passed: nothing shows that it follows the reasoning."""


def tier(network: str, renderer: str, passed: bool | None) -> int:
    """The tier of the truth about one network on one task.

    A wired network is exact by construction only where objects stand apart, which the sound renderer
    guarantees; elsewhere it needs a certificate like any other.

    Args:
        network: its name.
        renderer: of the task.
        passed: whether it passed its certificate; None where none was made.
    """
    if network == WIRED and renderer == "sound":
        return 1
    return 2 if passed else NONE


def tiers(manifest: Mapping[str, Any]) -> dict[str, int]:
    """Network -> tier of a run: that of its weakest certificate, since scores are averaged over tasks."""
    passed = {(c["task"], c["network"], c["seed"]): bool(c["passed"]) for c in manifest["certificates"]}
    renderers = {task["name"]: task.get("renderer", "sound") for task in manifest["tasks"]}
    found: dict[str, list[int]] = {}
    for entry in manifest["networks"]:
        key = (entry["task"], entry["network"], entry["seed"])
        here = entry.get("tier") or tier(entry["network"], renderers[entry["task"]], passed.get(key))
        found.setdefault(entry["network"], []).append(here)
    return {network: weakest(known) for network, known in found.items()}


def weakest(known: Sequence[int]) -> int:
    """The tier of scores that are averaged over networks: the least firm one."""
    return NONE if NONE in known else max(known)


def words(number: int) -> str:
    """A tier for people, such as ``tier 2, trained and certified``."""
    return f"tier {number}, {TIERS[number]}" if number in TIERS else "no tier: trained, not certified"
