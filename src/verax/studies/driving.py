"""Driving: jobs go out to an executor, outcomes come back into the store."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Set
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch

from verax.studies import policies
from verax.studies.entries import Damaged, Entry
from verax.studies.executors.base import Executor
from verax.studies.executors.inline import Inline
from verax.studies.plan import Plan
from verax.studies.store import Store
from verax.studies.units import Cell, Unit
from verax.studies.work import Brief, Job, Outcome

_COUNTABLE = 100_000

_WAITING = 4
"""Outcomes that may wait to be written."""

Keep = Callable[[Store, tuple[Entry, ...]], None]


@dataclass(frozen=True)
class Stores:
    """Where results go: what may be used again, and what only this run may use."""

    kept: Store
    scratch: Store

    @classmethod
    def of(cls, folder: Path, scratch: Path) -> Stores:
        """The store in a folder, and a passing one."""
        return cls(Store(folder), Store(scratch))

    def __getitem__(self, cell: Cell) -> Store:
        return self.kept if cell.kept else self.scratch


@dataclass
class Tally:
    """What became of the units of a plan.

    Attributes:
        computed: how many were computed now.
        reused: how many were in the store already.
        failed: keys of those that were tried now and failed: what an earlier run left of them is not used.
        absent: keys of all that are known to have no result.
        failures: unit, method, reason and kind of each that could not be computed.
        skipped: the same of those that are not there and were not to be computed.
    """

    computed: int = 0
    reused: int = 0
    failed: set[str] = field(default_factory=set)
    absent: set[str] = field(default_factory=set)
    failures: list[dict[str, str]] = field(default_factory=list)
    skipped: list[dict[str, str]] = field(default_factory=list)

    def fail(self, unit: Unit, reason: str, kind: str) -> None:
        """Note a failure."""
        self.absent.add(unit.key)
        self.failures.append({"unit": unit.name, "method": unit.label, "reason": reason, "kind": kind})

    def lose(self, count: int) -> None:
        """Note that results which were counted are not there after all."""
        reused = min(count, self.reused)
        self.reused -= reused
        self.computed -= count - reused

    def skip(self, unit: Unit, reason: str) -> None:
        """Note what was not to be computed."""
        self.absent.add(unit.key)
        skipped = {"unit": unit.name, "method": unit.label, "reason": reason, "kind": "skipped"}
        self.skipped.append(skipped)


def performed(
    executor: Executor, brief: Brief, device: torch.device, jobs: Callable[[Set[int] | None], Iterator[Job]]
) -> Generator[Outcome, None, None]:
    """Each outcome as it comes; what only this process knows is performed here, after the rest.

    Args:
        executor: who performs the rest.
        brief: what jobs have in common.
        device: of what is performed here.
        jobs: those of some cells (None: of all), taken one by one.
    """
    if not executor.travels:
        yield from executor.outcomes(brief, jobs(None))
        return
    sent, able = brief.travelling(getattr(executor, "dumps", None), getattr(executor, "near", False))
    yield from executor.outcomes(sent, jobs(able))
    here = frozenset(range(len(brief.cells))) - able
    if here:
        yield from Inline(device).outcomes(brief, jobs(here))


@contextmanager
def keeping() -> Iterator[Keep]:
    """What keeps entries in a store, one after the other, in a thread of its own.

    A disk takes milliseconds to confirm that a file will last, in which the next unit can be computed. All
    is written when the context ends, however it does; what cannot be written is raised at the next call, or
    at the end if nothing else is.
    """
    waiting: deque[Future[None]] = deque()

    def written(store: Store, entries: tuple[Entry, ...]) -> None:
        for entry in entries:
            store.put(entry)

    def keep(store: Store, entries: tuple[Entry, ...]) -> None:
        waiting.append(pool.submit(written, store, entries))
        while len(waiting) > _WAITING or (waiting and waiting[0].done()):
            waiting.popleft().result()

    pool = ThreadPoolExecutor(1)
    try:
        yield keep
        while waiting:
            waiting.popleft().result()
    finally:
        _ended(pool)


def _ended(pool: ThreadPoolExecutor) -> None:
    """Wait until a thread has done all that it was given, however often somebody interrupts.

    An interruption while a thread is joined would leave it behind, in the middle of a file.
    """
    done, interruption = threading.Event(), None
    pool.submit(done.set)
    try:
        while not done.is_set():
            try:
                done.wait()
            except BaseException as error:  # it is raised below
                interruption = error
    finally:
        pool.shutdown()
    if interruption is not None:
        raise interruption


@dataclass
class Driver:
    """Hands the units of a plan to an executor.

    Attributes:
        plan: whose units.
        brief: what they have in common.
        stores: where results go.
        executor: who performs them.
        device: of what is performed here.
        overwrite: the policy, one of `verax.studies.policies.POLICIES`.
        watch: is told how many units are settled, and which one is the last.
        see: is shown the outcomes of jobs with maps to read.
    """

    plan: Plan
    brief: Brief
    stores: Stores
    executor: Executor
    device: torch.device
    overwrite: str = "missing"
    watch: Callable[[int, str], None] = lambda count, name: None
    see: Callable[[Unit, Outcome], None] = lambda unit, outcome: None
    tally: Tally = field(default_factory=Tally)
    _keep: Keep = field(init=False, repr=False)

    def drive(self, only: Set[str] | None = None) -> None:
        """Compute what the policy asks for; with `only`, exactly the units with these keys."""
        outcomes = performed(self.executor, self.brief, self.device, partial(self._jobs, only))
        with keeping() as self._keep, closing(outcomes) as found:
            for outcome in found:
                self._settle(outcome)

    def miss(self, keys: Set[str]) -> None:
        """Note units whose entries turned out to be damaged, or to be gone, and are not to be made again."""
        reason = f"its entry was damaged and is set aside, or went: --overwrite {self.overwrite}"
        for unit in self.plan.units:
            if unit.key in keys:
                self.tally.skip(unit, reason)

    def finished(self) -> int:
        """How many units have a result; of very large plans, how many are known to have one."""
        if len(self.plan.units) > _COUNTABLE:
            return self.tally.computed + self.tally.reused
        return sum(unit.key in self.stores[unit.cell] for unit in self.plan.units)

    def _jobs(self, only: Set[str] | None, cells: Set[int] | None) -> Iterator[Job]:
        wanted = policies.policy(self.overwrite)
        for unit in self.plan.units:
            if cells is not None and unit.index not in cells:
                continue
            if only is not None:
                if unit.key in only:
                    yield self._job(unit)
                continue
            store = self.stores[unit.cell]
            if wanted(store, unit.key) or self._lacks_maps(unit):
                yield self._job(unit)
                continue
            if unit.key in store:
                self.tally.reused += 1
            elif (failure := store.failure(unit.key)) is not None:
                self.tally.fail(unit, failure.reason, failure.kind)
            else:
                reason = f"not computed: --overwrite {self.overwrite}"
                self.tally.skip(unit, reason)
            self.watch(1, unit.name)

    def _lacks_maps(self, unit: Unit) -> bool:
        """Whether maps are to be kept and this unit's are not."""
        asked = self.brief.keep_maps and unit.method is not None and self.overwrite == "missing"
        return asked and unit.maps_key not in self.stores[unit.cell]

    def _job(self, unit: Unit) -> Job:
        """A unit as a job, with its maps where they were kept and need not be made anew."""
        job = Job(unit.key, unit.index, unit.start, unit.count)
        if unit.method is None or self.overwrite == "all":
            return job
        store = self.stores[unit.cell]
        try:
            entry = store.get(unit.maps_key)
        except Damaged as error:
            store.set_aside(unit.maps_key, str(error))
            entry = None
        if entry is None or len(entry.parts) != 1:
            return job
        return job._replace(maps=next(iter(entry.parts.values())))

    def _settle(self, outcome: Outcome) -> None:
        """Have an outcome written to the store."""
        unit = self.brief.unit(outcome.job)
        store = self.stores[unit.cell]
        if outcome.entry is not None:
            self._keep(store, (outcome.entry,) if outcome.maps is None else (outcome.maps, outcome.entry))
            self.tally.computed += 1
            if outcome.shown is not None:
                self.see(unit, outcome)
        else:
            assert outcome.failure is not None
            store.fail(unit.key, unit.name, outcome.failure)
            self.tally.failed.add(unit.key)
            self.tally.fail(unit, outcome.failure.reason, outcome.failure.kind)
        self.watch(1, unit.name)
