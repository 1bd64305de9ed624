"""From a study to units of work, each named by a hash of everything that its result depends on."""

from __future__ import annotations

import itertools
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, zip_longest
from pathlib import Path
from uuid import uuid4

import torch

from verax.errors import InvalidParameter, InvalidStudy, WeightsError
from verax.methods import CONTROLS
from verax.methods.base import METHODS, Method
from verax.methods.controls import CONSTANT, controls_for
from verax.metrics import Metric
from verax.metrics.own import own_metrics
from verax.networks import NETWORKS, VERSIONS, lasting, library, names, records
from verax.networks.regression import SOLVED
from verax.networks.wired import WIRED
from verax.protocols import PROTOCOLS, truth_of
from verax.studies.failures import Failure
from verax.studies.spec import MethodSpec, Study
from verax.studies.units import (
    BLOCK,
    FORMAT,
    Cell,
    Subject,
    Unit,
    code_digest,
    content_hash,
    explaining_digest,
)
from verax.tasks import task as find_task
from verax.tasks.base import Learnable, is_learnable, is_regression
from verax.tasks.climate import Climate

_READERS = 8

ORACLE = "oracle"
REFERENCES = (*CONTROLS, ORACLE)
"""Rows that every study has, where they mean something: what skill is measured between."""


@dataclass(frozen=True)
class Units:
    """The units of cells in the order of work, made one by one: a plan may have millions.

    Blocks of one network come one after the other, each with all its methods, so that its cases are drawn
    once.
    """

    cells: tuple[Cell, ...]

    def __len__(self) -> int:
        return sum(map(len, self.cells))

    def __iter__(self) -> Iterator[Unit]:
        """Subject by subject, block by block, cell by cell."""
        first = 0
        for _, group in groupby(self.cells, key=lambda cell: id(cell.subject)):
            mine = list(group)
            columns = [cell.units(first + place) for place, cell in enumerate(mine)]
            for row in zip_longest(*columns):
                yield from (unit for unit in row if unit is not None)
            first += len(mine)


@dataclass(frozen=True)
class Training:
    """A network that is not stored yet and has to be trained before its cells have keys."""

    task: Learnable
    network: str
    seed: int

    @property
    def key(self) -> str:
        """Names what it is trained from."""
        values = {
            "code": explaining_digest(),
            "task": [self.task.name, self.task.fingerprint(), str(self.task.reasoning)],
            "network": [self.network, self.seed],
        }
        return content_hash(values)

    @property
    def stem(self) -> str:
        """Names its files: tasks that share a network share it."""
        return library.stem(self.task, names.parse(self.network), self.seed)

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.task.name} {self.network} seed {self.seed}: training"


@dataclass(frozen=True)
class Plan:
    """All cells of a study, in order, and so all its units.

    Attributes:
        study: what was planned.
        subjects: its networks on its tasks.
        cells: subject by subject.
        notes: sentences for people.
        trainings: networks that have to be trained first, where the plan looks ahead.
        lost: networks that could not be trained, and so have no cells.
        metrics: own ones.
        damaged: stored networks that cannot be used, and count as not stored.
    """

    study: Study
    subjects: tuple[Subject, ...]
    cells: tuple[Cell, ...]
    notes: tuple[str, ...] = ()
    trainings: tuple[Training, ...] = ()
    lost: tuple[tuple[Training, Failure], ...] = ()
    metrics: tuple[Metric, ...] = ()
    damaged: tuple[records.Damage, ...] = ()

    @property
    def units(self) -> Units:
        """The units, in the order in which they are computed."""
        return Units(self.cells)

    @cached_property
    def key(self) -> str:
        """Names the study's results; the same study on the same networks has the same key."""

        def name(cell: Cell) -> object:
            if cell.kept:
                return cell.key
            wording = cell.method.wording if cell.method is not None else ""
            return [cell.subject.sha256, cell.label, cell.parameters, wording]

        values = {
            "study": self.study.name,
            "cells": [[name(cell), cell.samples] for cell in self.cells],
            "identify": self.study.identify,
        }
        return content_hash({**values, "metrics": self.study.metrics} if self.study.metrics else values)


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
    elif "exact" in study.protocols and found.cases(n=1, seed=study.seed).truth.values is None:
        raise InvalidStudy(
            f"{found.name} knows where the truth lies, not the value of every element, which the protocol "
            "'exact' compares."
        )
    others = [truth_of(protocol) for protocol in study.protocols if ":" in protocol]
    for truth in others:
        try:
            found.retell(found.cases(n=1, seed=study.seed), truth)
        except InvalidParameter as error:
            raise InvalidStudy(str(error)) from error
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


def _look(stems: Iterable[str], folder: Path) -> None:
    """Have the checksums of stored networks compared, several at once, before they are asked for.

    Those of a large study are gigabytes, of which a core reads about one in a second; what is found is
    remembered by `verax.networks.records`.
    """
    paths = [path for stem in stems if (path := folder / f"{stem}.safetensors").is_file()]
    if len(paths) > 1:
        with ThreadPoolExecutor(min(_READERS, os.cpu_count() or 1)) as pool:
            list(pool.map(records.damage, paths))


def _subjects(
    study: Study,
    store: Path,
    ahead: bool,
    failed: Mapping[str, Failure],
) -> tuple[list[Subject], list[Training], list[tuple[Training, Failure]]]:
    """The networks of a study, those that have to be trained first, and those that could not be."""
    subjects: list[Subject] = []
    absent: dict[str, Training] = {}
    lost: list[tuple[Training, Failure]] = []
    tasks, networks = _tasks(study), [str(names.parse(network)) for network in study.networks]
    trained = [names.parse(network) for network in networks if network != WIRED]
    stems = (library.stem(*one) for one in itertools.product(tasks, trained, study.seeds))
    _look(stems, store / "networks")
    for found in tasks:
        for network in networks:
            for seed in _seeds(study, found, network, store):
                wanted = study.missing == "train" and network != WIRED
                if wanted and library.find(found, network, seed, store) is None:
                    training = Training(found, network, seed)
                    if training.stem in failed:
                        lost.append((training, failed[training.stem]))
                        continue
                    if ahead:
                        first = absent.setdefault(training.stem, training)
                        subjects.append(Subject(found, network, seed, None, f"of {first.key}"))
                        continue
                weights = None if network == WIRED else library.require(found, network, seed, store)
                subjects.append(
                    Subject(found, network, seed, weights, library.sha256(found, network, weights))
                )
    return subjects, list(absent.values()), lost


def _block(study: Study, task: Learnable, method: Method, block: int | None) -> int:
    """Samples of each bucket in one unit."""
    if method.transfer == "projection" and "published" in study.protocols:
        return study.samples  # that transfer looks at all pictures of a bucket together
    size = task.features if is_regression(task) else math.prod(task.input_shape)
    return min(study.samples, block or max(1, BLOCK // size // len(task.groups)))


def compile_plan(
    study: Study,
    store: Path,
    *,
    block: int | None = None,
    ahead: bool = False,
    failed: Mapping[str, Failure] | None = None,
) -> Plan:
    """Check every name in the study and list its cells.

    Args:
        study: what to plan.
        store: where trained networks are.
        block: samples of each bucket in one unit (default: as many as `BLOCK` numbers are).
        ahead: plan networks that have to be trained first as if they were.
        failed: why networks could not be trained, by the stem of their files: they are left out.
    """
    protocols = [PROTOCOLS.canonical(name) for name in study.protocols]
    methods = with_references(study)
    chosen = [(METHODS.get(spec.name), spec) for spec in methods]
    settings = {spec.label: method.settings(spec.parameters) for method, spec in chosen}
    metrics = own_metrics(study.metrics, protocols)
    study = study.model_copy(update={"protocols": protocols})
    subjects, trainings, lost = _subjects(study, store, ahead, failed or {})
    if lost and not subjects:
        raise WeightsError(f"No network of the study could be trained: {lost[0][1].reason}")
    given = {spec.label for spec in study.methods}
    base = {"format": FORMAT, "torch": ".".join(torch.__version__.split(".")[:2]), "seed": study.seed}
    cells: list[Cell] = []
    for subject in subjects:
        about = {
            **base,
            "task": [subject.task.name, subject.task.fingerprint()],
            "weights": subject.sha256,
            "network": [subject.network, subject.seed],
        }
        if not NETWORKS.builtin(subject.architecture):
            about["architecture"] = VERSIONS.get(subject.architecture) or uuid4().hex
        steady = lasting(subject.architecture)
        scoring = {"code": code_digest(), "protocols": sorted(protocols), **_versions(metrics)}
        if study.certify:
            key = content_hash({**about, "code": code_digest(), "certify": True})
            cells.append(Cell(key, subject, study.certify, study.certify, lasting=steady))
        here = controls_for(1 if is_regression(subject.task) else 3)
        for method, spec in chosen:
            if spec.label in CONTROLS and spec.label not in (*here, *given):
                continue  # it means nothing on such inputs
            # Nobody can know whether the code of an own method without a version has changed.
            version = method.version or uuid4().hex
            own = {**about, "method": [method.name, spec.label, settings[spec.label], version]}
            cells.append(
                Cell(
                    content_hash({**own, **scoring}),
                    subject,
                    study.samples,
                    _block(study, subject.task, method, block),
                    content_hash({**own, "code": explaining_digest(), "maps": True}),
                    method,
                    spec.label,
                    settings[spec.label],
                    steady and all(metric.version is not None for metric in metrics),
                )
            )
    damaged = _damaged(study, subjects, store)
    noted = (*map(str, damaged), *_notes(study, subjects))
    return Plan(study, tuple(subjects), tuple(cells), noted, tuple(trainings), tuple(lost), metrics, damaged)


def _damaged(study: Study, subjects: Sequence[Subject], store: Path) -> tuple[records.Damage, ...]:
    """Networks that the study would have used if they were not damaged."""
    tasks = {subject.task.name: subject.task for subject in subjects}.values()
    trained = [str(names.parse(network)) for network in study.networks if network != WIRED]
    asked = [
        library.damaged(task, network, seed, store)
        for task in tasks
        for network in trained
        for seed in ([0] if _single(network) else study.seeds)
    ]
    return tuple({found.path: found for found in asked if found is not None}.values())


def _versions(metrics: Sequence[Metric]) -> dict[str, list[list[str]]]:
    """What own metrics add to keys; nobody can know whether the code of one without a version has changed."""
    found = [[metric.name, metric.version or uuid4().hex] for metric in metrics]
    return {"metrics": found} if found else {}
