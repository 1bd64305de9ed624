"""Ray: workers on the machines of a Ray cluster, without a shared disk.

Jobs travel in groups, as Ray tasks that stream: each outcome comes back through the object store as soon as
it is there, and the driver writes it. What a study has in common is put into the object store once, so that
each machine fetches it once, and weights only when a job needs them. Ray itself never retries a task: the
driver knows which jobs of a group are finished, and sends only the others again.
"""

from __future__ import annotations

import pickle
import signal
import socket
import sys
import sysconfig
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from verax.errors import ClusterError, InvalidParameter, MissingExtra, OutputError
from verax.studies.executors import serving
from verax.studies.executors.grouping import Groups
from verax.studies.executors.processes import cores
from verax.studies.failures import Failure, describe, killed, late
from verax.studies.work import Brief, Job, Outcome

_TICK = 0.5
"""Seconds between looks at the clock."""

_REFRESH = 2.0
"""Seconds between looks at the machines of the cluster."""

_LOSSES = 10
"""How often a job may be lost with its machine: spot machines go, but some jobs take a machine with them."""

_PAUSED = 8
"""Outcomes that wait for the driver before their worker pauses."""


def library() -> Any:
    """The package `ray`."""
    try:
        import ray
    except ImportError as error:
        raise MissingExtra("The executor 'ray' needs Ray: pip install \"verax[cluster]\".") from error
    return ray


class Ray:
    """Performs jobs on a Ray cluster.

    Args:
        device: where workers compute.
        workers: how many groups of jobs are under way at most (default: twice what the cluster can hold).
        address: ``auto`` (the cluster that this machine is part of), ``local`` (one that lives as long as the
            study) or ``HOST:PORT``; by default a running cluster, and otherwise a local one.
        num_cpus: cores that a task takes.
        num_gpus: GPUs that a task takes, parts too (default: one where `device` is a GPU); above 0, workers
            compute on GPUs even if the driver has none.
        memory: gigabytes that a task sets aside (default: none, which Ray takes for "it will fit").
        group: seconds that a task should last.
        patience: seconds to wait while no machine of the cluster could take a task.
    """

    travels = True

    def __init__(
        self,
        device: torch.device,
        workers: int | None = None,
        *,
        address: str | None = None,
        num_cpus: float = 1,
        num_gpus: float | None = None,
        memory: float | None = None,
        group: float = 10.0,
        patience: float = 600.0,
        **options: Any,
    ) -> None:
        if options:
            raise InvalidParameter(f"The executor 'ray' has no option {next(iter(options))!r}.")
        _check_address(address)
        library()  # before anything is computed
        for name, value in (("num_cpus", num_cpus), ("group", group), ("patience", patience)):
            if not 0 < value < float("inf"):
                raise InvalidParameter(f"{name} is a number above 0, not {value!r}.")
        for name, other in (("num_gpus", num_gpus), ("memory", memory)):
            if other is not None and not 0 <= other < float("inf"):
                raise InvalidParameter(f"{name} is a number from 0, not {other!r}.")
        self.workers = workers or 1
        self._most = workers
        self._address, self._group, self._patience = address, group, patience
        gpus = (1.0 if device.type == "cuda" else 0.0) if num_gpus is None else num_gpus
        self._needs = {"CPU": float(num_cpus), "GPU": gpus, "memory": (memory or 0) * 2**30}
        # Ray shows each worker its own GPUs alone
        self._device = "cuda" if gpus else ("cpu" if device.type == "cuda" else device.type)

    def dumps(self, thing: object) -> bytes:
        """Bytes of anything, functions of notebooks, scripts and modules that are not installed included."""
        pickler = library().cloudpickle
        names = [name for name in _modules(thing) if _own(name)]
        for name in names:
            pickler.register_pickle_by_value(sys.modules[name])
        try:
            return bytes(pickler.dumps(thing))
        finally:
            for name in names:
                pickler.unregister_pickle_by_value(sys.modules[name])

    def outcomes(self, brief: Brief, jobs: Iterator[Job]) -> Iterator[Outcome]:
        """Each outcome as it comes."""
        first = next(jobs, None)
        if first is None:
            return
        ray = library()
        with self._connected(ray) as local:
            luggage = serving.pack(brief, self._device, self.dumps, ray.put)
            seen: Brief = pickle.loads(luggage.brief)  # as workers see it
            groups = Groups(seen, chain([first], jobs), self._group)
            patience = 0.0 if local else self._patience
            crowd = _Crowd(ray, self._needs, luggage, groups, brief.time_limit, self._most, patience)
            self.workers = self._most or max(1, crowd.slots)
            yield from crowd.outcomes()

    @contextmanager
    def _connected(self, ray: Any) -> Iterator[bool]:
        """Join the cluster, or start one; whether it lives as long as this study."""
        if ray.is_initialized():  # by the caller, whose connection it stays
            yield False
            return
        with _own_signals():
            context = self._joined(ray)
        try:
            yield context is None
        finally:
            with _own_signals():
                ray.shutdown()

    def _joined(self, ray: Any) -> Any:
        """The connection to a running cluster; None where one was started."""
        quiet = {"log_to_driver": False, "logging_level": "error", "configure_logging": True}
        if self._address != "local":
            address = self._address or "auto"
            _reachable(address)
            try:
                return ray.init(address=address, **quiet)
            except Exception as error:  # Ray raises of everything here
                if self._address == "auto" and isinstance(error, ConnectionError):
                    raise ClusterError(_NONE) from error
                if self._address is not None or not isinstance(error, ConnectionError):
                    words = _first_line(error)
                    raise ClusterError(f"No Ray cluster can be reached at {address!r}: {words}") from error
        held = int(max(1, (self._most or cores()) * self._needs["CPU"]))
        try:
            ray.init(address="local", num_cpus=held, include_dashboard=False, **quiet)
        except Exception as error:
            words = _first_line(error)
            raise ClusterError(f"A Ray cluster cannot be started on this machine: {words}") from error
        return None


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


class _Crowd:
    """The tasks that are under way."""

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


_NONE = "This machine is not part of a Ray cluster: start one (ray start --head), or use --address local."
_MEMORY = "Its machine ran out of memory twice and Ray stopped the worker; set more aside with --memory."


def _serve(token: str, luggage: list[Any], jobs: list[Job]) -> Iterator[Any]:
    """The Ray task."""
    import ray

    yield from serving.serve(token, lambda: ray.get(luggage[0]), ray.get, jobs)


def _check_address(address: str | None) -> None:
    """Refuse what cannot be an address."""
    if address is not None and "://" in address:
        raise InvalidParameter(
            f"The address {address!r} is that of a Ray client, which cannot stream: start a node on this "
            "machine (ray start --address=HOST:PORT --num-cpus=0) and use --address auto."
        )
    if address not in (None, "auto", "local") and not address.rpartition(":")[2].isdigit():
        raise InvalidParameter(f"The address of a cluster is auto, local or HOST:PORT, not {address!r}.")


def _reachable(address: str) -> None:
    """Refuse an address at which nobody listens: Ray itself would try for a minute."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise ClusterError(f"No Ray cluster can be reached at {address!r}: {error}") from error


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ray takes SIGTERM over, which the command line hears itself: give it back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _last_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]


def _modules(thing: object) -> set[str]:
    """The modules whose functions and classes a brief, subject or method is made of."""
    cells = [cell for cell in getattr(thing, "cells", ()) if cell is not None]
    parts = [cell.subject for cell in cells] + [cell.method for cell in cells]
    found: set[str] = set()
    for part in (thing, *parts):
        made = getattr(part, "made", None) or part  # a method on its way
        for owner in (getattr(made, "function", None), type(getattr(made, "task", None))):
            found.add(str(getattr(owner, "__module__", None) or ""))
    return found


def _own(name: str) -> bool:
    """Whether a module is a user's: neither of verax nor installed, so that workers may not have it."""
    module: ModuleType | None = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if name in ("", "__main__") or name.partition(".")[0] == "verax" or file is None:
        return False
    parents = Path(file).resolve().parents
    installed = {"site-packages", "dist-packages"} & {parent.name for parent in parents}
    return not installed and Path(sysconfig.get_path("stdlib")).resolve() not in parents
