"""Readings: for each network of a study, can the reasoning be read off the maps of each method?

A reading sets the networks of all tasks of one world before the same pictures
(`verax.studies.identification`). Like units, readings are named by a hash of all that they depend on, and
kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from verax.cases import Cases
from verax.errors import MethodFailed
from verax.methods import CONTROLS
from verax.networks.inference import predictions
from verax.protocols import sound
from verax.studies import identification, statistics
from verax.studies.execution import Bench
from verax.studies.identification import TABLES, Identification, Lineup
from verax.studies.plan import Plan, Subject, Unit, content_hash
from verax.studies.store import Result, Store
from verax.tasks.textbox import TextBox


@dataclass(frozen=True)
class Reading:
    """One method, read off the maps of one network trained (or wired) for several tasks."""

    key: str
    units: tuple[Unit, ...]

    @property
    def label(self) -> str:
        """The method's name in tables."""
        return self.units[0].label

    @property
    def network(self) -> str:
        """The name of the networks."""
        return self.units[0].subject.network

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
        labels = [u.label for u in plan.units if u.subject is chosen[0] and u.method is not None]
        for label in [label for label in labels if label not in CONTROLS]:
            units = tuple(u for s in chosen for u in plan.units if u.subject is s and u.label == label)
            values = {"code": _code(), "units": [u.key for u in units], "pictures": pictures(plan)}
            result.append(Reading(content_hash(values), units))
    return result


def pictures(plan: Plan) -> int:
    """Pictures in each bucket: as many as ``identify`` says, but no more than the study has."""
    return min(plan.study.identify, plan.study.samples)


@dataclass
class Reader:
    """Reads the maps of a study; those that were just computed for scores are not computed again."""

    plan: Plan
    device: torch.device
    _shown: dict[str, Tensor] = field(default_factory=dict, repr=False)
    _wanted: dict[str, Tensor] | None = field(default=None, repr=False)
    _lineups: dict[str, Lineup] = field(default_factory=dict, repr=False)
    _benches: dict[str, Bench] = field(default_factory=dict, repr=False)

    @cached_property
    def readings(self) -> list[Reading]:
        """What there is to read."""
        return readings(self.plan)

    def lineup(self, reading: Reading) -> Lineup:
        """The pictures of a reading; one line-up for each network."""
        if reading.network not in self._lineups:
            found = [unit.subject.task for unit in reading.units]
            tasks = tuple(task for task in found if isinstance(task, TextBox))  # line-ups have no others
            self._lineups[reading.network] = Lineup(tasks, pictures(self.plan), self.plan.study.seed)
        return self._lineups[reading.network]

    def see(self, unit: Unit, attributions: Tensor) -> None:
        """Keep the maps of the pictures that will be read (a few hundred kilobytes for each unit)."""
        if self._wanted is None:
            self._wanted = {
                unit.key: self._places(self.lineup(reading), unit.subject)
                for reading in self.readings
                for unit in reading.units
            }
        if unit.key in self._wanted:
            chosen = attributions[self._wanted[unit.key].to(attributions.device)]
            self._shown[unit.key] = _prepared(chosen)

    def _places(self, lineup: Lineup, subject: Subject) -> Tensor:
        """Where the pictures of a line-up are among the study's cases: bucket by bucket, sample by sample."""
        groups, samples = list(subject.task.groups), self.plan.study.samples
        first = torch.tensor([groups.index(group) * samples for group in lineup.groups])
        return (first[:, None] + torch.arange(lineup.samples)).flatten()

    def _maps(self, unit: Unit, cases: Cases) -> Tensor:
        kept = self._shown.pop(unit.key, None)
        if kept is not None:
            return kept
        assert unit.method is not None
        name = unit.subject.name
        if name not in self._benches:
            self._benches[name] = Bench(unit.subject, self.plan.study, self.device)
        bench, told = self._benches[name], cases.to(self.device)
        asked = told.targets
        if unit.method.explains != "label":
            asked = predictions(bench.model(), told.inputs)
        return _prepared(bench.attributions(unit, told, asked))

    def read(self, reading: Reading) -> Identification:
        """Read one method's maps of one network."""
        return self.lineup(reading).read(
            reading.label, lambda place, cases: self._maps(reading.units[place], cases)
        )


def _prepared(attributions: Tensor) -> Tensor:
    return sound.prepare(attributions).values.float().cpu()


def compute(
    reader: Reader, store: Store, watch: Callable[[str], None]
) -> tuple[Identification | None, list[dict[str, str]]]:
    """All readings of a study with the column network, and what failed.

    Args:
        reader: of the study.
        store: where finished readings are kept.
        watch: called with the name of each reading as it starts.
    """
    parts: list[dict[str, pd.DataFrame]] = []
    failures: list[dict[str, str]] = []
    for reading in reader.readings:
        watch(reading.name)
        result = store.read(reading.key)
        if result is not None and set(result.tables) != set(TABLES):
            store.set_aside(reading.key)
            result = None
        if result is None:
            try:
                result = Result(reader.read(reading).tables(), {}, {})
            except MethodFailed as error:
                failures.append({"unit": reading.name, "method": reading.label, "reason": str(error)})
                continue
            if all(unit.method is not None and unit.method.version is not None for unit in reading.units):
                store.write(reading.key, result)
        parts.append({name: table.assign(network=reading.network) for name, table in result.tables.items()})
    return (Identification.joined(parts) if parts else None), failures
