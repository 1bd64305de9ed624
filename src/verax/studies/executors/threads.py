"""Threads: trainings of small networks beside each other on one GPU.

A small network leaves most of a GPU idle: the kernels of several threads run beside each other, which those
of several processes never do. Only for trainings, and only for networks that draw no random numbers of
torch's own while they learn: threads would share a generator.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, TypeVar

import torch

from verax.errors import Interrupted
from verax.networks import exams
from verax.networks.steps import give_back
from verax.networks.training import Progress
from verax.studies import work
from verax.studies.work import Brief, Job, Outcome

R = TypeVar("R")


def side_by_side(
    jobs: Iterator[Callable[[], R]], workers: int, device: torch.device, stop: threading.Event | None = None
) -> Iterator[R]:
    """Run jobs in threads, each thread on a stream of its own; gives what they return as it comes.

    Torch keeps the memory of a job for the stream that it was used on, so that jobs after it in the same
    thread have it; what is left over is given back between two jobs, for threads whose jobs are larger.

    Args:
        jobs: taken as fast as they can be run.
        workers: how many run at once.
        device: of the streams.
        stop: set when nobody waits any more; jobs under way may look at it.
    """
    mine = threading.local()

    def one(job: Callable[[], R]) -> R:
        if device.type != "cuda":
            return job()
        if not hasattr(mine, "stream"):
            mine.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        with torch.cuda.device(device), torch.cuda.stream(mine.stream):
            result = job()
            mine.stream.synchronize()
            give_back(device)
        return result

    with ThreadPoolExecutor(workers) as pool:
        running: set[Future[R]] = set()
        try:
            for job in jobs:
                running.add(pool.submit(one, job))
                if len(running) >= workers:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in done)
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        finally:
            if stop is not None:
                stop.set()
            pool.shutdown(wait=False, cancel_futures=True)


class Threads:
    """Performs trainings in threads of this process; it keeps no time limit."""

    travels = False

    def __init__(self, device: torch.device, workers: int) -> None:
        self.device, self.workers = device, workers

    def outcomes(self, brief: Brief, jobs: Iterator[Job]) -> Iterator[Outcome]:
        """Each outcome as it comes; those under way are let go when nobody waits for them."""
        assert brief.training
        assert brief.time_limit is None
        stop = threading.Event()

        def watch(state: Progress) -> None:
            if stop.is_set():
                raise Interrupted("Nobody waits for this training any more.")

        quiet = replace(brief, watch=watch)

        def named(job: Job) -> Callable[[], Outcome]:
            return lambda: work.perform(quiet, job, self.device, keep=lambda device: nullcontext())

        # what belongs to the whole process is kept once, around all of them
        with work.pinned(self.device), exams.shared():
            yield from side_by_side(map(named, jobs), self.workers, self.device, stop)


def room(device: torch.device, each: int, most: int) -> int:
    """How many trainings that need `each` bytes fit beside each other on a GPU, at most `most`."""
    free: Any = torch.cuda.mem_get_info(device)[0]
    return max(1, min(most, int(free) // each))
