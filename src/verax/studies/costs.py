"""Costs: how long the units of a plan will take, measured where the store knows, guessed where not."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from verax.metrics.scoring import MOVES, REMOVALS, STEPS
from verax.studies.entries import DAMAGE, read_head
from verax.studies.plan import Plan
from verax.studies.store import Store
from verax.studies.units import Cell

SECONDS_A_PASS = 5e-4
"""Of one small picture through a small network on one core: the guess where nothing was measured."""

_EACH = 64
"""Passes of a method that counts them by windows, channels or segments."""

TRAINING = 300.0
"""Seconds of a training, when nobody knows better."""

_NUMBER = re.compile(r"`(\w+)`|(\d+)")


@dataclass(frozen=True)
class Cost:
    """What is left to do of one cell.

    Attributes:
        cell: whose.
        units: it has.
        done: units in the store.
        failed: units that failed when they were last tried.
        seconds: that the rest will take, with one worker.
        measured: whether that follows from measurements.
    """

    cell: Cell
    units: int
    done: int
    failed: int
    seconds: float
    measured: bool


def passes(cell: Cell) -> float:
    """Passes through the network for one sample, as far as the method's own words say."""
    if cell.method is None:
        return 20.0
    words, parameters = cell.method.cost, cell.parameters or {}
    if words == "none":
        return 0.0
    total = 0.0
    for part in words.split(","):
        named, plain = ((match := _NUMBER.search(part)) and match.groups()) or (None, None)
        value = parameters.get(named, 1) if named else plain
        count = (
            float(value) if isinstance(value, int | float | str) and str(value).isdigit() else float(_EACH)
        )
        both = 2 if "forwards and backwards" in part else 1
        total += count * both * (_EACH if "for each" in part else 1)
    return max(1.0, total or 2.0)


def asking(cell: Cell) -> float:
    """Passes for one sample under the faithfulness protocol: three curves, infidelity, maps made again."""
    return 0.0 if cell.method is None else 3 * (STEPS + 1) + REMOVALS + 1 + MOVES * passes(cell)


def guess(cell: Cell, protocols: Collection[str] = ()) -> float:
    """Seconds for each sample, where nothing was measured."""
    asked = asking(cell) if "faithfulness" in protocols else 0.0
    return (passes(cell) + asked + 1) * SECONDS_A_PASS


def _samples(cell: Cell, count: int) -> int:
    return count * len(cell.subject.task.groups)


def _rate(cell: Cell, store: Store) -> float | None:
    """Seconds for each sample, from the first unit of the cell that is in the store."""
    for unit in cell.units():
        if unit.key in store:
            try:
                head = (store.place(unit.key) / f"{unit.key}.json").read_bytes()
                info: Mapping[str, Any] = read_head(unit.key, head)["info"]
                return float(info["seconds"]) / _samples(cell, unit.count)
            except (OSError, *DAMAGE):
                return None
    return None


def costs(plan: Plan, store: Store) -> Iterator[Cost]:
    """What is left to do, cell by cell; a rate that was measured on one network serves for its likes."""
    rates: dict[tuple[str, str], float] = {}
    for cell in plan.cells:
        rate = _rate(cell, store)
        if rate is not None:
            rates.setdefault((cell.subject.architecture, cell.label), rate)
    for cell in plan.cells:
        done = failed = left = 0
        for unit in cell.units():
            if unit.key in store:
                done += 1
            else:
                left += _samples(cell, unit.count)
                failed += store.failed(unit.key)
        rate = rates.get((cell.subject.architecture, cell.label))
        seconds = left * (guess(cell, plan.study.protocols) if rate is None else rate)
        yield Cost(cell, len(cell), done, failed, seconds, rate is not None or not left)


def training_seconds(plan: Plan) -> float:
    """What the networks that have to be trained first will take: a rough guess."""
    return TRAINING * len(plan.trainings)
