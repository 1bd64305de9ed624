"""Inline: one job after the other, in this process.

On a GPU a second thread scores what the first one has explained: counting scores and making tables takes
about as long as light methods do, and the GPU would stand still meanwhile.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch

from verax.errors import InvalidParameter
from verax.networks.steps import aside
from verax.studies import work
from verax.studies.failures import OutOfTime, describe, late
from verax.studies.work import Brief, Job, Outcome

_TURN = 1e-4
"""Seconds that a thread may keep the interpreter while another one waits for it."""

_WAITING = 16
"""Units that may wait for their second half: their maps are in memory, 10 MB for 200 pictures."""


class Inline:
    """Performs jobs in this process.

    A time limit is kept by an alarm signal, so that it needs a Unix and the main thread, and strikes when the
    interpreter next gets its turn: one endless call inside a library is not stopped. `processes` has no such
    limit: it kills the worker.
    """

    travels = False
    workers = 1

    def __init__(self, device: torch.device, workers: int | None = None, **options: Any) -> None:
        if workers not in (None, 1):
            raise InvalidParameter(f"The executor 'inline' has one worker, not {workers}; try 'processes'.")
        if options:
            raise InvalidParameter(f"The executor 'inline' has no option {next(iter(options))!r}.")
        self.device = device
        self.overlaps = device.type == "cuda"

    def outcomes(self, brief: Brief, jobs: Iterator[Job]) -> Iterator[Outcome]:
        """One job after the other."""
        try:
            if self.overlaps:
                yield from self._overlapping(brief, jobs)
            else:
                yield from (self._perform(brief, job) for job in jobs)
        finally:
            work.forget()

    def _perform(self, brief: Brief, job: Job) -> Outcome:
        try:
            with alarm(brief.time_limit):
                return work.perform(brief, job, self.device)
        except OutOfTime as error:  # it rang between the work and the end of the alarm
            return Outcome(job._replace(maps=None), failure=describe(error))

    def _overlapping(self, brief: Brief, jobs: Iterator[Job]) -> Iterator[Outcome]:
        """The second halves of jobs beside the first halves of those after them; outcomes in their order.

        Settings of the whole process are those of `ordinary`, which `verax.run` sees to.
        """
        waiting: deque[Future[Outcome]] = deque()
        with _brisk(), ThreadPoolExecutor(1) as pool:
            try:
                for job in jobs:
                    if not work.apart(brief, job):
                        yield from _taken(waiting)
                        yield self._perform(brief, job)
                        continue
                    waiting.append(pool.submit(self._finish, work.begin(brief, job, self.device)))
                    yield from _taken(waiting, _WAITING)
                yield from _taken(waiting)
            except KeyboardInterrupt:  # what is scored is kept
                pool.shutdown(cancel_futures=True)
                while waiting and not waiting[0].cancelled() and waiting[0].exception() is None:
                    yield waiting.popleft().result()
                raise
            finally:
                pool.shutdown(cancel_futures=True)

    def _finish(self, rest: Callable[[], Outcome]) -> Outcome:
        """Do the rest of a job; on a GPU in a stream of its own, since others would let it wait."""
        if self.device.type != "cuda":
            return rest()
        stream = aside(self.device)
        with torch.cuda.device(self.device), torch.cuda.stream(stream):
            outcome = rest()
            stream.synchronize()  # before memory of the other stream is let go that this one reads
        return outcome


@contextmanager
def _brisk() -> Iterator[None]:
    """Let threads take turns quickly.

    The one that explains hands thousands of small operations to the GPU, and lets go of the interpreter in
    each: every time it would wait five milliseconds for the one that makes tables.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(_TURN)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _taken(waiting: deque[Future[Outcome]], most: int = 0) -> Iterator[Outcome]:
    """Outcomes from the head of a queue: those that are there, and so many that at most `most` are left."""
    while len(waiting) > most or (waiting and waiting[0].done()):
        outcome = waiting[0].result()
        waiting.popleft()  # not before: whoever is interrupted while waiting finds it there
        yield outcome


def can_ring() -> bool:
    """Whether `alarm` works here: on a Unix, in the main thread."""
    return hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()


@contextmanager
def alarm(seconds: float | None) -> Iterator[None]:
    """Raise `OutOfTime` in the main thread after so many seconds."""
    if seconds is None:
        yield
        return
    if not can_ring():
        raise InvalidParameter(
            "A time limit of what this process computes itself (with the executor 'inline', and functions of "
            "a script or notebook) can be kept only in the main thread of a Unix; try 'processes', with "
            "functions in a module."
        )

    def ring(number: int, frame: FrameType | None) -> None:
        raise OutOfTime(late(seconds).reason)

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
