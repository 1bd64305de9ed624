"""Trainings: the first phase of a study. Networks that are missing are trained by its executor.

A training travels as units do: a job points to the cell of a brief, whose subject says task, network and
seed, and whose parameters are the recipe by value. Its outcome is the trained network as bytes, which the
driver writes as they come. Training against an adversary starts from another network; such ones come after
the rest, and what they start from is found by the driver and travels with them, so that it does not matter
who trains what, and when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from verax import progress
from verax.errors import Interrupted
from verax.files import make_folder
from verax.networks import NETWORKS, library, names, noise, teaching
from verax.networks.training import Progress
from verax.studies import policies
from verax.studies.driving import performed
from verax.studies.executors import EXECUTORS, Executor
from verax.studies.executors.inline import Inline
from verax.studies.executors.processes import Processes, cores
from verax.studies.executors.threads import Threads, room
from verax.studies.failures import Failure
from verax.studies.options import Options
from verax.studies.plan import Plan, Training
from verax.studies.spec import Study
from verax.studies.store import Store
from verax.studies.units import Cell, Subject
from verax.studies.work import Brief, Job, Outcome
from verax.tasks.base import is_regression

LABEL = "training"

_TOGETHER, _EACH = 8, 8 * 2**30
"""Trainings at once on a GPU, at most, and the memory that each of them may come to need."""


def waves(trainings: Sequence[Training]) -> list[list[Training]]:
    """Trainings that need nothing of each other, and then those that may start from a network of them."""
    later = [bool(teaching.origins(training.task, training.network)) for training in trainings]
    parts = [
        [training for training, waits in zip(trainings, later, strict=True) if waits is wanted]
        for wanted in (False, True)
    ]
    return [part for part in parts if part]


@dataclass
class Teacher:
    """Hands trainings to an executor and keeps what comes back.

    Attributes:
        study: whose networks are missing.
        store: where trained networks and failures are kept.
        executor: who trains.
        beside: who trains several networks of pictures at once that draw no random numbers of torch's own, if
            anybody does.
        device: of what is trained here.
        overwrite: the policy, one of `verax.studies.policies.POLICIES`.
        time_limit: seconds that a training may take.
        watch: is told how many trainings are settled, and what is going on.
        failed: why networks could not be trained, by the stem of their files.
        trained: task, network, seed and seconds of those that were.
    """

    study: Study
    store: Store
    executor: Executor
    device: torch.device
    overwrite: str = "missing"
    time_limit: float | None = None
    watch: Callable[[int, str], None] = lambda count, words: None
    beside: Executor | None = None
    failed: dict[str, Failure] = field(default_factory=dict)
    trained: list[dict[str, Any]] = field(default_factory=list)

    def teach(self, trainings: Sequence[Training]) -> None:
        """Train what the policy asks for."""
        wanted = policies.policy(self.overwrite)
        chosen = []
        for training in trainings:
            if wanted(self.store, training.key):
                chosen.append(training)
                continue
            skipped = Failure("skipped", f"not trained: --overwrite {self.overwrite}")
            self.failed[training.stem] = self.store.failure(training.key) or skipped
            self.watch(1, training.name)
        for wave in waves(chosen):
            calm = [] if self.beside is None else [training for training in wave if _calm(training)]
            rest = [training for training in wave if training not in calm]
            again = list[Training]()  # those that did not fit beside others
            if self.beside is not None and calm:
                self._teach(self.beside, calm, again)
            if rest:
                self._teach(self.executor, rest)
            if again:
                self._teach(Inline(self.device), again)
        order = {(t.task.name, t.network, t.seed): place for place, t in enumerate(trainings)}
        self.trained.sort(key=lambda entry: order[entry["task"], entry["network"], entry["seed"]])

    def _teach(
        self, executor: Executor, wave: Sequence[Training], again: list[Training] | None = None
    ) -> None:
        """Let an executor train some networks; with `again`, those without enough memory are put there."""
        cells = tuple(map(self._cell, wave))
        last = wave[0].name

        def jobs(some: Set[int] | None) -> Iterator[Job]:
            nonlocal last
            for place, cell in enumerate(cells):
                if some is None or place in some:
                    last = cell.name
                    self.watch(0, last)
                    yield Job(cell.key, place, 0, 1)

        def shown(state: Progress) -> None:
            self.watch(0, f"{last}, epoch {state.epoch}/{state.epochs}, loss {state.loss:.4f}")

        brief = Brief(self.study, cells, time_limit=self.time_limit, training=True, watch=shown)
        with closing(performed(executor, brief, self.device, jobs)) as outcomes:
            for outcome in outcomes:
                training = wave[outcome.job.cell]
                if again is not None and outcome.failure is not None and outcome.failure.kind == "memory":
                    again.append(training)
                else:
                    self._settle(training, outcome)

    def _cell(self, training: Training) -> Cell:
        """A training as a cell; the weights of its subject are those that it starts from, if any."""
        task, seed = training.task, training.seed
        options: dict[str, Any] = {"settings": teaching.prepare(task, training.network)}
        subject = Subject(task, training.network, seed, None, "")
        found = library.first(task, teaching.origins(task, training.network), seed, self.networks)
        if found is not None:
            name, path = found
            subject = replace(subject, weights=path, sha256=library.sha256(task, name, path))
            options["start"] = name
        return Cell(training.key, subject, 1, 1, label=LABEL, parameters=options)

    def _settle(self, training: Training, outcome: Outcome) -> None:
        """Write a network to the store, or why there is none."""
        if outcome.network is not None:
            folder = make_folder(self.networks)
            library.write(outcome.network._replace(stem=training.stem), folder)
            self.store.recover(training.key)
            about = {"task": training.task.name, "network": training.network, "seed": training.seed}
            self.trained.append({**about, "seconds": outcome.seconds})
        else:
            assert outcome.failure is not None
            failure = outcome.failure
            if failure.kind == "method":  # it is no method that refused
                failure = replace(failure, kind="error")
            self.store.fail(training.key, training.name, failure)
            self.failed[training.stem] = failure
        self.watch(1, training.name)

    @property
    def networks(self) -> Path:
        """The folder of trained networks."""
        return self.store.folder / "networks"


def taught(plan: Plan, folder: Path, where: torch.device, options: Options, quiet: bool) -> Teacher:
    """Train the networks that a plan lacks."""
    for training in plan.trainings:
        teaching.prepare(training.task, training.network)  # what cannot be is said before anything is trained
    executor, beside = _chosen_to_train(plan.trainings, where, options)
    with progress.bar(hidden=quiet) as bar:
        row = bar.add_task("training", total=len(plan.trainings))
        teacher = Teacher(
            plan.study,
            Store(folder),
            executor,
            where,
            options.overwrite,
            options.time_limit,
            lambda done, words: bar.update(row, advance=done, doing=words),
            beside,
        )
        try:
            with teacher.store.locked():
                teacher.teach(plan.trainings)
        except KeyboardInterrupt as stop:
            done, total = len(teacher.trained), len(plan.trainings)
            words = f"Interrupted: {done} of {total} networks are trained and kept."
            raise Interrupted(f"{words} Run the same command to go on.") from stop
    if where.type == "cuda":
        torch.cuda.empty_cache()  # for workers: what training needed would stay with this process
    return teacher


def _chosen_to_train(
    trainings: Sequence[Training], where: torch.device, options: Options
) -> tuple[Executor, Executor | None]:
    """Who trains, and who trains several at once; several cores and a large GPU have several networks."""
    if options.executor is not None:
        return EXECUTORS.get(options.executor)(where, options.workers, **options.more), None
    if options.workers is not None:
        name = "inline" if options.workers == 1 else "processes"
        return EXECUTORS.get(name)(where, options.workers, **options.more), None
    count = max(map(len, waves(trainings)))
    if where.type == "cuda" and count > 1 and options.time_limit is None:
        together = room(where, _EACH, min(_TOGETHER, count))
        noisy = sum(not _calm(training) for training in trainings)
        alone = noisy < 2 or together < 2 or any(is_regression(training.task) for training in trainings)
        rest = Inline(where) if alone else Processes(where, together)
        return rest, Threads(where, together) if together > 1 else None
    several = where.type == "cpu" and min(count, cores()) > 1
    return (Processes(where) if several else Inline(where)), None


def _calm(training: Training) -> bool:
    """Whether a network can be trained in a thread: on pictures, without random numbers of torch's own."""
    if is_regression(training.task):
        return False
    name = names.parse(training.network).on(training.task)
    return not noise.draws(
        NETWORKS.get(name.architecture), training.task.classes, tuple(training.task.input_shape)
    )
