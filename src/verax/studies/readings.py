"""Readings: for each network of a study, can the reasoning be read off the maps of each method?

A reading sets the networks of all tasks of one world before the same pictures
(`verax.studies.identification`). Like units, readings are named by a hash of all that they depend on, and
kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from verax.cases import Cases
from verax.errors import OutputError
from verax.methods import CONTROLS
from verax.networks.inference import predictions
from verax.protocols import sound
from verax.studies import identification, statistics
from verax.studies.entries import Result
from verax.studies.execution import Bench
from verax.studies.executors.inline import alarm, can_ring
from verax.studies.failures import Failure, Kind, OutOfTime, describe
from verax.studies.identification import TABLES, Identification, Lineup
from verax.studies.plan import Plan
from verax.studies.store import Store
from verax.studies.units import Cell, Subject, Unit, block_key, content_hash
from verax.studies.work import Outcome, pinned
from verax.tasks.textbox import TextBox


@dataclass(frozen=True)
class Reading:
    """One method, read off the maps of one network trained (or wired) for several tasks."""

    key: str
    cells: tuple[Cell, ...]

    @property
    def label(self) -> str:
        """The method's name in tables."""
        return self.cells[0].label

    @property
    def network(self) -> str:
        """The name of the networks."""
        return self.cells[0].subject.network

    @property
    def name(self) -> str:
        """For people."""
        return f"reading {self.network}: {self.label}"


@cache
def _code() -> str:
    """A hash of the code that only readings depend on."""
    files = [Path(str(module.__file__)) for module in (identification, statistics)]
    return hashlib.sha256(b"".join(file.read_bytes() for file in [*files, Path(__file__)])).hexdigest()


def _lineups(subjects: Sequence[Subject]) -> list[tuple[Subject, ...]]:
    """The subjects of each network that can be told apart; of several trainings, the first that all have."""
    found = []
    for network in dict.fromkeys(subject.network for subject in subjects):
        mine = [subject for subject in subjects if subject.network == network]
        tasks = {subject.task.name for subject in mine}
        for seed in sorted({subject.seed for subject in mine}):
            chosen = tuple(subject for subject in mine if subject.seed == seed)
            told = [subject.task for subject in chosen if isinstance(subject.task, TextBox)]
            if len(told) == len(tasks) and identification.comparable(told):
                if identification.shared_groups(told):
                    found.append(chosen)
                break
    return found


def readings(plan: Plan) -> list[Reading]:
    """What a study with ``identify`` asks; controls never look at the network, so theirs is chance."""
    if not plan.study.identify:
        return []
    result = []
    for chosen in _lineups(plan.subjects):
        labels = [c.label for c in plan.cells if c.subject is chosen[0] and c.method is not None]
        for label in [label for label in labels if label not in CONTROLS]:
            cells = tuple(c for s in chosen for c in plan.cells if c.subject is s and c.label == label)
            keys = [block_key(cell.key, 0, pictures(plan)) for cell in cells]
            values = {"code": _code(), "cells": keys, "pictures": pictures(plan)}
            result.append(Reading(content_hash(values), cells))
    return result


def pictures(plan: Plan) -> int:
    """Pictures in each bucket: as many as ``identify`` says, but no more than the study has."""
    return min(plan.study.identify, plan.study.samples)


@dataclass
class Reader:
    """Reads the maps of a study; those that were just computed for scores are not computed again."""

    plan: Plan
    device: torch.device
    _shown: dict[str, dict[int, Tensor]] = field(default_factory=dict, repr=False)
    _lineups: dict[str, Lineup] = field(default_factory=dict, repr=False)
    _benches: dict[str, Bench] = field(default_factory=dict, repr=False)

    @cached_property
    def readings(self) -> list[Reading]:
        """What there is to read."""
        return readings(self.plan)

    def lineup(self, reading: Reading) -> Lineup:
        """The pictures of a reading; one line-up for each network."""
        if reading.network not in self._lineups:
            found = [cell.subject.task for cell in reading.cells]
            tasks = tuple(task for task in found if isinstance(task, TextBox))  # line-ups have no others
            self._lineups[reading.network] = Lineup(tasks, pictures(self.plan), self.plan.study.seed)
        return self._lineups[reading.network]

    @cached_property
    def wanted(self) -> dict[int, int]:
        """How many pictures of each bucket are read, by the places of the cells in the plan."""
        read = {cell.key for reading in self.readings for cell in reading.cells}
        return {k: pictures(self.plan) for k, cell in enumerate(self.plan.cells) if cell.key in read}

    def see(self, unit: Unit, outcome: Outcome) -> None:
        """Keep the maps of the pictures that will be read (a few hundred kilobytes for each unit)."""
        if outcome.shown is not None:
            self._shown.setdefault(unit.cell.key, {})[unit.start] = torch.from_numpy(outcome.shown)

    def _seen(self, cell: Cell, lineup: Lineup) -> Tensor | None:
        """The maps of a line-up, bucket by bucket, where all of them were just computed."""
        blocks = self._shown.pop(cell.key, {})
        if sum(block.shape[1] for block in blocks.values()) != lineup.samples:
            return None
        joined = torch.cat([blocks[start] for start in sorted(blocks)], 1)
        groups = list(cell.subject.task.groups)
        return joined[[groups.index(group) for group in lineup.groups]].flatten(0, 1)

    def _maps(self, cell: Cell, cases: Cases, lineup: Lineup) -> Tensor:
        seen = self._seen(cell, lineup)
        if seen is not None:
            return seen
        assert cell.method is not None
        name = cell.subject.name
        if name not in self._benches:
            self._benches[name] = Bench(cell.subject, self.plan.study, self.device)
        bench, told = self._benches[name], cases.to(self.device)
        asked = told.targets
        if cell.method.explains != "label":
            asked = predictions(bench.model(), told.inputs)
        with pinned(self.device):
            return _prepared(bench.attributions(cell, told, asked))

    def read(self, reading: Reading) -> Identification:
        """Read one method's maps of one network."""
        lineup = self.lineup(reading)
        return lineup.read(
            reading.label, lambda place, cases: self._maps(reading.cells[place], cases, lineup)
        )


def _prepared(attributions: Tensor) -> Tensor:
    return sound.prepare(attributions).values.float().cpu()


@dataclass(frozen=True)
class Terms:
    """What readings may do; maps that were not just computed are computed in this process.

    Attributes:
        there: keys of the cells that have results: methods that failed are not tried again here, where
            nothing could stop one that hangs or kills its process.
        overwrite: the policy, one of `verax.studies.policies.POLICIES`.
        time_limit: seconds that one reading may take.
    """

    there: Set[str]
    overwrite: str = "missing"
    time_limit: float | None = None

    def refusal(self, reading: Reading) -> Failure | None:
        """Why a reading must not be made, or be taken from the store; None where it may."""
        gaps = [cell.subject.name for cell in reading.cells if cell.key not in self.there]
        if not gaps:
            return None
        kind: Kind = "skipped" if self.overwrite == "never" else "method"
        return Failure(kind, f"There are no maps of {', '.join(gaps)}.")


def compute(
    reader: Reader, store: Store, watch: Callable[[str], None], terms: Terms
) -> tuple[Identification | None, list[dict[str, str]]]:
    """All readings of a study with the column network, and what failed.

    Args:
        reader: of the study.
        store: where finished readings are kept.
        watch: called with the name of each reading as it starts.
        terms: what may be computed.
    """
    parts: list[dict[str, pd.DataFrame]] = []
    failures: list[dict[str, str]] = []
    for reading in reader.readings:
        watch(reading.name)
        found = terms.refusal(reading) or _found(reader, store, reading, terms)
        if isinstance(found, Failure):
            failures.append({"unit": reading.name, "method": reading.label, **found.facts()})
            continue
        parts.append({name: table.assign(network=reading.network) for name, table in found.tables.items()})
    return (Identification.joined(parts) if parts else None), failures


def _found(reader: Reader, store: Store, reading: Reading, terms: Terms) -> Result | Failure:
    """A reading out of the store or, where it is not there and may be made, made now."""
    result = None if terms.overwrite == "all" else store.read(reading.key)
    if result is not None and set(result.tables) != set(TABLES):
        store.set_aside(reading.key)
        result = None
    if result is not None:
        return result
    if terms.overwrite == "never":
        return Failure("skipped", "not computed: --overwrite never")
    try:
        with alarm(terms.time_limit if can_ring() else None):
            result = Result(reader.read(reading).tables(), {}, {})
    except OutputError:
        raise
    except (Exception, OutOfTime, SystemExit) as error:  # other people's code may raise anything
        return describe(error)
    if all(cell.kept for cell in reading.cells):
        store.write(reading.key, result)
    return result
