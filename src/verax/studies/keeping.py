"""Keeping: what of a plan the store does not keep, and why, in words."""

from __future__ import annotations

from collections.abc import Sequence

from verax.networks import lasting
from verax.studies.plan import Plan


def unkept(plan: Plan) -> list[tuple[str, str]]:
    """What is computed in every run, with the reason, and what to do about it; nothing where all is kept."""
    methods = [cell.method for cell in plan.cells if cell.method is not None]
    without = {
        "method": [method.name for method in methods if method.version is None],
        "metric": [metric.name for metric in plan.metrics if metric.version is None],
        "network": [s.architecture for s in plan.subjects if not lasting(s.architecture)],
    }
    return [_said(noun, list(dict.fromkeys(names))) for noun, names in without.items() if names]


def _said(noun: str, names: Sequence[str]) -> tuple[str, str]:
    """Two sentences about things without a version."""
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    what = {"method": "Results of", "metric": "Scores of a study with", "network": "Results on"}[noun]
    why = f"nobody can know whether the code of a {noun} without a version has changed"
    more = {"metric": ", ..."}.get(noun, "")
    return (
        f"{what} {listed} are not kept in the store, but computed in every run: {why}.",
        f'With @verax.{noun}("{names[0]}"{more}, version="1") they are kept until the version changes.',
    )
