"""The crowd: tasks of a Ray cluster that are under way, and what becomes of them.

Jobs travel in groups, as Ray tasks that stream. Ray itself never retries a task: the driver knows which jobs
of a group are finished, and sends only the others again.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from verax.errors import ClusterError, OutputError
from verax.studies.executors import serving
from verax.studies.executors.grouping import Groups
from verax.studies.failures import Failure, describe, killed, late
from verax.studies.work import Job, Outcome

_TICK = 0.5
"""Seconds between looks at the clock."""

_REFRESH = 2.0
"""Seconds between looks at the machines of the cluster."""

_LOSSES = 10
"""How often a job may be lost with its machine: spot machines go, but some jobs take a machine with them."""

_PAUSED = 8
"""Outcomes that wait for the driver before their worker pauses."""

_MEMORY = "Its machine ran out of memory twice and Ray stopped the worker; set more aside with --memory."


@dataclass(eq=False)
class _Task:
    """A group of jobs that is under way.

    Attributes:
        stream: of what comes back.
        jobs: those that have no outcome yet.
        since: when the first of them began, as far as the driver knows; None before it did.
        late: the key of a job that was stopped for taking too long.
    """

    stream: Any
    jobs: deque[Job]
    since: float | None = None
    late: str = ""


class Crowd:
    """The tasks that are under way.

    Attributes:
        slots: how many of them the cluster can hold.
    """

    def __init__(
        self,
        ray: Any,
        needs: dict[str, float],
        luggage: serving.Luggage,
        groups: Groups,
        limit: float | None,
        most: int | None,
        patience: float,
    ) -> None:
        self._ray, self._needs, self._groups, self._limit = ray, needs, groups, limit
        self._most, self._patience = most, patience
        self._token, self._luggage = luggage.token, ray.put(luggage)
        self._remote = ray.remote(
            num_cpus=needs["CPU"],
            num_gpus=needs["GPU"],
            **({"memory": int(needs["memory"])} if needs["memory"] else {}),
            num_returns="streaming",
            max_retries=0,
            max_calls=0,  # workers with GPUs too keep what they have loaded
            _generator_backpressure_num_objects=_PAUSED,
        )(_serve)
        self._tasks: dict[Any, _Task] = {}
        self._deaths: Counter[str] = Counter()
        self._losses: Counter[str] = Counter()
        self._looked = self._fitted = time.monotonic()
        self.slots = self._count()

    def outcomes(self) -> Iterator[Outcome]:
        """Send groups and yield what comes back, until nothing is left."""
        try:
            while self._sent():
                for task in self._ready():
                    yield from self._hear(task)
                self._check_clock()
        finally:
            for task in self._tasks.values():
                with suppress(Exception):  # results travel by value: there is nothing of theirs to lose
                    self._ray.cancel(task.stream, force=True)

    def _sent(self) -> bool:
        """Send as many groups as may be under way; whether any is."""
        if time.monotonic() - self._looked > _REFRESH:
            self._look()
        most = (
            self._most or 2 * self.slots + 2
        )  # the next is there when one ends, and a cluster knows to grow
        while len(self._tasks) < most:
            group = self._groups.take(max(1, min(self.slots, most)))
            if not group:
                break
            stream = self._remote.remote(self._token, [self._luggage], group)
            self._tasks[stream] = _Task(stream, deque(group))
        return bool(self._tasks)

    def _look(self) -> None:
        """Count again how many tasks the cluster can hold: machines come and go."""
        self.slots, self._looked = self._count(), time.monotonic()
        if self.slots:
            self._fitted = self._looked
        elif self._looked - self._fitted >= self._patience:
            words = ", ".join(f"{value:g} {name}" for name, value in self._needs.items() if value)
            raise ClusterError(f"No machine of the Ray cluster can take a task, which needs {words}.")

    def _count(self) -> int:
        found = 0
        for node in self._ray.nodes():
            if node["Alive"]:
                has = node["Resources"]
                found += int(min(has.get(name, 0.0) // need for name, need in self._needs.items() if need))
        return found

    def _ready(self) -> list[_Task]:
        streams = list(self._tasks)
        ready, _ = self._ray.wait(streams, num_returns=len(streams), timeout=0)
        if not ready:
            ready, _ = self._ray.wait(streams, num_returns=1, timeout=_TICK)
        return [self._tasks[stream] for stream in ready]

    def _hear(self, task: _Task) -> Iterator[Outcome]:
        """What a task says next: an outcome, its end, or that it is no more."""
        try:
            said = self._ray.get(next(task.stream))
        except StopIteration:
            del self._tasks[task.stream]
            assert not task.jobs
            return
        except self._ray.exceptions.RayError as error:
            del self._tasks[task.stream]
            yield from self._broken(task, error)
            return
        if isinstance(said, OutputError):
            raise said
        if isinstance(said, serving.Begun):
            if said.misfit:
                raise ClusterError(f"A worker has other code than this process: {said.misfit}.")
            task.since = time.monotonic()
            return
        job = task.jobs.popleft()
        assert job.key == said.job.key
        task.since = time.monotonic()
        self._groups.learn(said)
        yield said

    def _broken(self, task: _Task, error: Exception) -> Iterator[Outcome]:
        """Decide what becomes of the jobs of a task that ended early."""
        kinds = self._ray.exceptions
        jobs, failure, alone = task.jobs, None, False
        suspect = jobs[0] if jobs else None
        if suspect is None:
            return
        if isinstance(error, kinds.TaskCancelledError):
            if task.late == suspect.key and self._limit is not None:
                failure = late(self._limit)
        elif isinstance(error, kinds.NodeDiedError | kinds.LocalRayletDiedError | kinds.ObjectLostError):
            self._losses[suspect.key] += 1
            if self._losses[suspect.key] >= _LOSSES:
                failure = Failure("killed", f"Lost with its machine {_LOSSES} times.")
        elif isinstance(error, kinds.WorkerCrashedError | kinds.OutOfMemoryError):
            # The last outcome may have been lost with its worker, so that another job may be to blame:
            # alone, each can only kill itself.
            alone = True
            self._deaths[suspect.key] += 1
            if self._deaths[suspect.key] >= 2:
                memory = isinstance(error, kinds.OutOfMemoryError)
                failure = Failure("memory", _MEMORY) if memory else killed("SIGKILL or a crash")
        elif isinstance(error, kinds.RayTaskError) and task.since is not None:
            failure = describe(getattr(error, "cause", None) or error)
        else:
            raise ClusterError(f"Workers of the Ray cluster cannot start: {_last_line(error)}") from error
        if failure is not None:
            jobs.popleft()
        self._groups.again(jobs, alone=alone)
        if failure is not None:
            yield Outcome(suspect._replace(maps=None), failure=failure)

    def _check_clock(self) -> None:
        """Stop tasks whose job takes too long; the clock of a job starts when the driver hears of it."""
        if self._limit is None:
            return
        now = time.monotonic()
        overdue = [
            task
            for task in self._tasks.values()
            if task.jobs and not task.late and task.since is not None and now - task.since >= self._limit
        ]
        for task in overdue:
            ready, _ = self._ray.wait([task.stream], timeout=0)
            if not ready:
                task.late = task.jobs[0].key
                self._ray.cancel(task.stream, force=True)


def _serve(token: str, luggage: list[Any], jobs: list[Job]) -> Iterator[Any]:
    """The Ray task."""
    import ray

    yield from serving.serve(token, lambda: ray.get(luggage[0]), ray.get, jobs)


def _last_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
