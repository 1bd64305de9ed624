"""From a study to units of work, each named by a hash of everything that its result depends on."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch

from verax.errors import InvalidStudy
from verax.methods import CONTROLS
from verax.methods.base import METHODS, Method
from verax.methods.controls import CONSTANT, controls_for
from verax.networks import library, names
from verax.networks.regression import SOLVED
from verax.networks.wired import WIRED
from verax.protocols import PROTOCOLS
from verax.studies.spec import MethodSpec, Study
from verax.tasks import task as find_task
from verax.tasks.base import Learnable, is_learnable, is_regression
from verax.tasks.climate import Climate

ORACLE = "oracle"
REFERENCES = (*CONTROLS, ORACLE)
"""Rows that every study has, where they mean something: what skill is measured between."""

Trainer = Callable[[Learnable, str, int], None]
"""Trains a network (task, name, seed) and keeps it in the store."""

FORMAT = 1
"""Raised whenever the layout of a stored result changes."""

_RELEVANT = ("tasks", "networks", "engine", "methods", "protocols", "metrics")


@cache
def code_digest() -> str:
    """A hash of all code that results depend on, so that scores of different versions never mix."""
    root = Path(__file__).parent.parent
    files = [root / "cases.py", root / "seeding.py"]
    files += [file for name in _RELEVANT for file in sorted((root / name).rglob("*.py"))]
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def content_hash(values: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical JSON of plain values."""
    return hashlib.sha256(
        json.dumps(values, sort_keys=True, separators=(",", ":"), default=repr).encode()
    ).hexdigest()


@dataclass(frozen=True)
class Subject:
    """A network on a task: what is explained; a wired network has no file of weights."""

    task: Learnable
    network: str
    seed: int
    weights: Path | None
    sha256: str

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.task.name} {self.network} seed {self.seed}"

    @property
    def architecture(self) -> str:
        """What `network` is built as on this task."""
        return names.parse(self.network).on(self.task).architecture


@dataclass(frozen=True)
class Unit:
    """One piece of work: explain and score (`method` set) or certify (`method` None)."""

    key: str
    subject: Subject
    method: Method | None = None
    label: str = ""
    parameters: Mapping[str, Any] | None = None

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.subject.name}: {self.label or 'certificate'}"


@dataclass(frozen=True)
class Plan:
    """All units of a study, in the order in which they are computed."""

    study: Study
    subjects: tuple[Subject, ...]
    units: tuple[Unit, ...]
    notes: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Names the study's results; the same study on the same networks has the same key."""

        def name(unit: Unit) -> object:
            own = unit.method is not None and unit.method.version is None
            return [unit.subject.sha256, unit.label, unit.parameters] if own else unit.key

        return content_hash(
            {
                "study": self.study.name,
                "units": [name(unit) for unit in self.units],
                "identify": self.study.identify,
            }
        )


def with_references(study: Study) -> list[MethodSpec]:
    """The study's methods, and the controls and the oracle where they are missing."""
    for spec in study.methods:
        name = METHODS.canonical(spec.name)
        if spec.label in (*REFERENCES, CONSTANT) and (name != spec.label or spec.parameters):
            raise InvalidStudy(f"The label {spec.label!r} belongs to a reference, which has no rank.")
        if name in REFERENCES and spec.label != name and not spec.parameters:
            raise InvalidStudy(f"{name!r} is part of every study under its own name, not as {spec.label!r}.")
    present = {spec.label for spec in study.methods}
    missing = [MethodSpec.model_validate(name) for name in REFERENCES if name not in present]
    return [*study.methods, *missing]


def _single(network: str) -> bool:
    """Whether there is only one such network: repeating it for each seed would only pretend to know more."""
    return network == WIRED or network in SOLVED


def _seeds(study: Study, task: Learnable, network: str, store: Path) -> list[int]:
    """The training seeds to study: those that are asked for or, with ``missing = "skip"``, stored."""
    if _single(network):
        return [0]
    stored = [seed for seed in study.seeds if library.find(task, network, seed, store)]
    return (stored or [0]) if study.missing == "skip" else study.seeds


def _listed(seeds: Sequence[int]) -> str:
    """Seeds as people list them."""
    words = [str(seed) for seed in seeds]
    return f"seed {words[0]}" if len(words) == 1 else f"seeds {', '.join(words[:-1])} and {words[-1]}"


def _notes(study: Study, subjects: Sequence[Subject]) -> tuple[str, ...]:
    """One sentence for each network some of whose seeds are not stored."""
    notes = []
    for network in dict.fromkeys(s.network for s in subjects if not _single(s.network)):
        there = {(s.task.name, s.seed) for s in subjects if s.network == network}
        tasks = list(dict.fromkeys(s.task.name for s in subjects if s.network == network))
        gaps = sorted({seed for seed in study.seeds for name in tasks if (name, seed) not in there})
        if gaps:
            used = sorted({seed for _, seed in there})
            verb, them = ("is", "it") if len(gaps) == 1 else ("are", "the first")
            notes.append(
                f"{network}: {_listed(gaps)} {verb} not stored for all tasks, so this run has "
                f"{_listed(used)}; to train {them}: verax train {' '.join(tasks)} --network {network} "
                f"--seed {gaps[0]}"
            )
    return tuple(notes)


def _task(name: str, study: Study) -> Learnable:
    """A task with the options of the study."""
    usual = {"renderer": "sound", "background": "black"}
    options = {"renderer": study.renderer, "background": study.background}
    options = {} if options == usual else options
    stem, mark, rest = name.partition("?")
    if study.field:
        if not stem.startswith("climate/"):
            raise InvalidStudy(f"Only climate tasks can be read from a field, not {name!r}.")
        name = f"climate/field{mark}{rest}"
        options |= {"field": study.field} | ({"variable": study.variable} if study.variable else {})
    elif study.variable:
        raise InvalidStudy(f"The variable {study.variable!r} needs the field that it is read from.")
    found = find_task(name, **options)
    if not is_learnable(found):
        raise InvalidStudy(f"Task {name!r} cannot be studied: no networks can be trained for it.")
    if is_regression(found):
        wrong = [protocol for protocol in study.protocols if protocol != "exact"]
        if wrong:
            raise InvalidStudy(
                f"{found.name} has vectors, which the protocol 'exact' is for, not {wrong[0]!r}."
            )
        if study.identify:
            raise InvalidStudy(f"{found.name} has no rules that could be read off maps: identify = 0.")
    return found


def _tasks(study: Study) -> list[Learnable]:
    """The tasks of a study; results are told apart by their names, so that no two may share one."""
    made = [_task(name, study) for name in study.tasks]
    counts = Counter(task.name for task in made)
    # files of one name in two folders are told apart by what they hold
    made = [t.told_apart() if counts[t.name] > 1 and isinstance(t, Climate) else t for t in made]
    for name, count in Counter(task.name for task in made).items():
        if count > 1:
            raise InvalidStudy(
                f"Two tasks of the study are the same, {name!r}, so that their results could not be told "
                "apart: leave one out."
            )
    return made


def _subjects(study: Study, store: Path, train: Trainer | None) -> list[Subject]:
    subjects = []
    for found in _tasks(study):
        for network in study.networks:
            network = str(names.parse(network))
            for seed in _seeds(study, found, network, store):
                wanted = study.missing == "train" and network != WIRED
                if wanted and train is not None and library.find(found, network, seed, store) is None:
                    train(found, network, seed)
                weights = None if network == WIRED else library.require(found, network, seed, store)
                subjects.append(
                    Subject(found, network, seed, weights, library.sha256(found, network, weights))
                )
    return subjects


def compile_plan(study: Study, store: Path, train: Trainer | None = None) -> Plan:
    """Check every name in the study and list its units; `train` makes networks that are missing."""
    protocols = [PROTOCOLS.canonical(name) for name in study.protocols]
    methods = with_references(study)
    chosen = [(METHODS.get(spec.name), spec) for spec in methods]
    settings = {spec.label: method.settings(spec.parameters) for method, spec in chosen}
    study = study.model_copy(update={"protocols": protocols})
    subjects = _subjects(study, store, train)
    given = {spec.label for spec in study.methods}
    base = {
        "format": FORMAT,
        "code": code_digest(),
        "torch": ".".join(torch.__version__.split(".")[:2]),
        "seed": study.seed,
    }
    units: list[Unit] = []
    for subject in subjects:
        about = {
            **base,
            "task": [subject.task.name, subject.task.fingerprint()],
            "weights": subject.sha256,
            "network": [subject.network, subject.seed],
        }
        if study.certify:
            units.append(Unit(content_hash({**about, "certify": study.certify}), subject))
        here = controls_for(1 if is_regression(subject.task) else 3)
        for method, spec in chosen:
            if spec.label in CONTROLS and spec.label not in (*here, *given):
                continue  # it means nothing on such inputs
            # Nobody can know whether the code of an own method without a version has changed.
            version = method.version or uuid4().hex
            values = {
                **about,
                "method": [method.name, spec.label, settings[spec.label], version],
                "protocols": sorted(protocols),
                "samples": study.samples,
            }
            units.append(Unit(content_hash(values), subject, method, spec.label, settings[spec.label]))
    return Plan(study, tuple(subjects), tuple(units), _notes(study, subjects))
