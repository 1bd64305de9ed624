"""Inline: one job after the other, in this process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch

from verax.errors import InvalidParameter
from verax.studies import work
from verax.studies.failures import OutOfTime, describe, late
from verax.studies.work import Brief, Job, Outcome


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

    def outcomes(self, brief: Brief, jobs: Iterator[Job]) -> Iterator[Outcome]:
        """One job after the other."""
        try:
            for job in jobs:
                try:
                    with alarm(brief.time_limit):
                        outcome = work.perform(brief, job, self.device)
                except OutOfTime as error:  # it rang between the work and the end of the alarm
                    outcome = Outcome(job._replace(maps=None), failure=describe(error))
                yield outcome
        finally:
            work.forget()


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
