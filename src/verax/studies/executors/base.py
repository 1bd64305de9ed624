"""What an executor is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import torch

from verax.studies.work import Brief, Job, Outcome


class Executor(Protocol):
    """Performs jobs, somewhere.

    Attributes:
        travels: whether jobs leave this process. If so the driver hands over a brief that can be pickled
            (`Brief.travelling`) and only such jobs as can be performed elsewhere; it performs the
            rest inline. An executor that carries functions of notebooks and scripts by value has a function
            ``dumps`` for that; one whose workers read the files of this machine has a true ``near``.
        workers: how many jobs run at once.
    """

    travels: bool
    workers: int

    def outcomes(self, brief: Brief, jobs: Iterator[Job]) -> Iterator[Outcome]:
        """Yield the outcome of each job as it comes, in any order, exactly one for each.

        Jobs are taken from the iterator only as fast as they can be performed, so that there may be a
        million; a bounded number is under way. A job whose worker dies is tried once more, then its outcome
        is a failure (`verax.studies.failures.killed`); one that takes longer than ``brief.time_limit``
        seconds is stopped, and its outcome is `verax.studies.failures.late`. The driver writes each outcome
        to the store before it asks for the next. Closing the generator (Ctrl-C, an error of the driver) stops
        what is under way and lets workers go.
        """
        ...


class Maker(Protocol):
    """Makes an executor."""

    def __call__(self, device: torch.device, workers: int | None, **options: Any) -> Executor:
        """An executor that computes on `device` with so many workers (None: as many as fit)."""
        ...
