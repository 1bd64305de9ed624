"""Processes: workers on this machine, one for each device or core, started afresh (spawn)."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
import threading
import time
import types
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple, cast

import torch

from verax.devices import HEAP
from verax.errors import ClusterError, InvalidParameter, OutputError
from verax.interrupts import deaf, ignored
from verax.studies import work
from verax.studies.failures import killed, late
from verax.studies.stamps import stamp
from verax.studies.work import Brief, Job, Outcome

_TICK = 0.5
"""Seconds between looks at the clock."""

_START = 300.0
"""Seconds that a worker may take to start (importing torch, reading the brief) on a busy machine."""


class _Ready(NamedTuple):
    """The first thing that a worker says: the time of its first job counts from then on.

    Attributes:
        stamp: of the code that it has.
    """

    stamp: str


def devices_for(device: torch.device, workers: int) -> list[torch.device]:
    """The device of each worker: all GPUs in turn where ``cuda`` is asked for without a number."""
    if device.type != "cuda" or device.index is not None:
        return [device] * workers
    return [torch.device("cuda", index % torch.cuda.device_count()) for index in range(workers)]


def cores() -> int:
    """How many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


_CHANGED = (
    "A worker has other code than this process: a file of verax, or of own methods, metrics or tasks, has "
    "changed since it was read. What is finished is kept; run it again."
)


@dataclass
class _Worker:
    """A process, the pipe to it, and what it is doing."""

    process: BaseProcess
    pipe: Connection
    job: Job | None = None
    since: float = 0.0
    outcome: Outcome | None = None
    ready: bool = False


class Processes:
    """Performs jobs in processes of this machine.

    Each worker has one torch thread (on CPUs), so that as many workers as cores fill the machine and none has
    to wait. A worker that dies is replaced, and its job is tried once more; a job that takes too long is
    killed with its worker.
    """

    travels = True
    near = True

    def __init__(self, device: torch.device, workers: int | None = None, **options: Any) -> None:
        if options:
            raise InvalidParameter(f"The executor 'processes' has no option {next(iter(options))!r}.")
        usual = torch.cuda.device_count() if device.type == "cuda" and device.index is None else 1
        self.workers = workers or (cores() if device.type == "cpu" else usual)
        self._devices = devices_for(device, self.workers)

    def outcomes(self, brief: Brief, jobs: Iterator[Job]) -> Iterator[Outcome]:
        """Each outcome as it comes; one job is with each worker."""
        data = pickle.dumps(brief)  # once, whatever the number of workers
        code = stamp(brief)
        team: list[_Worker | None] = [None] * self.workers  # started when there is something to do
        again: deque[Job] = deque()  # whose worker died
        tried: set[str] = set()
        try:
            while True:
                for place, worker in enumerate(team):
                    if worker is not None and worker.job is not None:
                        continue
                    job = again.popleft() if again else next(jobs, None)
                    if job is None:
                        break
                    if worker is None:
                        worker = team[place] = _start(data, self._devices[place])
                    _hand(worker, job)
                busy = [worker for worker in team if worker is not None and worker.job is not None]
                if not busy:
                    return
                for worker in _settled(busy, brief.time_limit, code):
                    outcome = worker.outcome
                    if not worker.process.is_alive():
                        team[team.index(worker)] = None
                    if outcome is None and worker.job is not None and worker.job.key not in tried:
                        tried.add(worker.job.key)
                        again.append(worker.job)
                    elif outcome is None and worker.job is not None:
                        how = f"exit code {worker.process.exitcode}"
                        outcome = Outcome(worker.job._replace(maps=None), failure=killed(how))
                    worker.job = worker.outcome = None
                    if outcome is not None:
                        yield outcome
        finally:
            for worker in filter(None, team):
                worker.process.kill()  # results travel by value: there is nothing of theirs to lose
                worker.process.join()
                worker.pipe.close()


def _settled(busy: list[_Worker], limit: float | None, code: str) -> Iterator[_Worker]:
    """The workers that are done (with an outcome), have died (without) or were killed for being late."""
    heard = set(wait([part for worker in busy for part in (worker.pipe, worker.process.sentinel)], _TICK))
    for worker in busy:
        assert worker.job is not None
        allowed = None if limit is None else limit if worker.ready else limit + _START
        if worker.pipe in heard or worker.process.sentinel in heard:
            said = _said(worker)
            if isinstance(said, _Ready):
                if said.stamp != code:
                    raise ClusterError(_CHANGED)
                worker.ready, worker.since = True, time.monotonic()
                continue
            worker.outcome = said
            yield worker
        elif allowed is not None and time.monotonic() - worker.since >= allowed and not worker.pipe.poll():
            assert limit is not None
            worker.process.kill()
            worker.process.join()
            worker.outcome = Outcome(worker.job._replace(maps=None), failure=late(limit))
            yield worker


def _hand(worker: _Worker, job: Job) -> None:
    worker.job, worker.since = job, time.monotonic()
    with suppress(OSError):  # it has died, which is noticed next
        worker.pipe.send(job)


def _said(worker: _Worker) -> Outcome | _Ready | None:
    """What a worker says: that it is ready, or an outcome; None where it has died."""
    try:
        said = worker.pipe.recv() if worker.pipe.poll() else None
    except (EOFError, OSError):
        said = None
    if said is None:
        worker.process.join()
    elif isinstance(said, OutputError):
        raise said
    return cast("Outcome | _Ready | None", said)


@contextmanager
def _nobody() -> Iterator[None]:
    """Workers must not import the caller's script, which might start a study again: hide it from them."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _start(brief: bytes, device: torch.device) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, str(device)), daemon=True)
    with _nobody(), deaf():
        process.start()
    theirs.close()  # so that the end of the process ends the pipe
    with suppress(OSError):
        ours.send_bytes(brief)
    return _Worker(process, ours)


def _serve(pipe: Connection, device: str) -> None:
    """A worker: performs what comes until nothing comes any more."""
    ignored()  # Ctrl-C is for the driver
    threading.Thread(target=_orphaned, args=(os.getppid(),), daemon=True).start()
    if device == "cpu":
        torch.set_num_threads(work.THREADS)
        HEAP.keep()
    try:
        brief: Brief = pickle.loads(pipe.recv_bytes())  # from the process that started this one
        pipe.send(_Ready(stamp(brief)))
        while True:
            job = pipe.recv()
            try:
                said: Outcome | OutputError = work.perform(brief, job, torch.device(device))
            except OutputError as error:
                said = error
            pipe.send(said)
    except (EOFError, OSError):
        return


def _orphaned(parent: int) -> None:
    """End this process when its driver is gone, even in the middle of a job."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)
