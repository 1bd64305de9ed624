"""Work side by side: networks trained in threads or commands of their own, figures drawn in processes."""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, nullcontext
from multiprocessing import get_context
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import torch

from verax.devices import one_thread
from verax.errors import OutputError, VeraxError
from verax.interrupts import deaf, ignored
from verax.studies.executors.threads import side_by_side

T = TypeVar("T")
R = TypeVar("R")


def threads(jobs: Sequence[Callable[[], object]], workers: int, device: torch.device) -> Iterator[bool]:
    """Run jobs on one GPU, each on a stream of its own; says of each whether it came to an end."""

    def tried(job: Callable[[], object]) -> Callable[[], bool]:
        def run() -> bool:
            try:
                job()
            except (RuntimeError, VeraxError):
                return False
            return True

        return run

    yield from side_by_side(map(tried, jobs), workers, device)


def commands(lines: Sequence[Sequence[str]], workers: int, store: Path) -> Iterator[str]:
    """Run ``verax ...`` commands, a few at a time; gives the last words of each that is done."""
    env = {**os.environ, "VERAX_STORE": str(store)}

    def one(line: Sequence[str]) -> str:
        done = subprocess.run([sys.executable, "-m", "verax", *line], env=env, capture_output=True, text=True)
        words = (done.stderr if done.returncode else done.stdout).strip().splitlines()
        return words[-1] if words else ""

    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(one, lines)


def _prepare(*modules: str) -> None:
    """Imports take seconds; a worker does them while there is nothing else to do."""
    ignored()  # Ctrl-C is for the process that asked
    torch.set_num_threads(1)  # the workers share the cores
    for module in modules:
        importlib.import_module(module)


def _nothing() -> None:
    """A job that starts the processes."""


_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Processes that start meanwhile compute in one thread each.

    NumPy asks once, when it is imported; with a thread for every core in each of them they would spend most
    of their time waiting for each other.
    """
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


_kept: dict[str, Any] = {}
"""In a worker: the value that its jobs share, by the file that it was read from."""


def _one(function: Callable[[Any, T], R], path: str, item: T) -> R:
    if path not in _kept:
        _kept.clear()
        _kept[path] = pickle.loads(Path(path).read_bytes())
    return function(_kept[path], item)


def _collected(jobs: dict[Future[R], T], folder: tempfile.TemporaryDirectory[str]) -> Iterator[tuple[T, R]]:
    with folder:
        for job in as_completed(jobs):
            try:
                made = job.result()
            except BrokenProcessPool as error:
                raise OutputError(
                    "A process that draws figures or writes reports was killed, perhaps for want of memory; "
                    "run the same command again, which computes nothing twice."
                ) from error
            yield jobs[job], made


class Crew(AbstractContextManager["Crew"]):
    """Processes that are started when they are needed or before, and wait; one worker is this process itself.

    Args:
        workers: how many.
        modules: what they import before they are needed.
    """

    def __init__(self, workers: int, *modules: str) -> None:
        self.workers, self.modules = workers, modules
        self._pool: ProcessPoolExecutor | None = None

    def start(self) -> None:
        """Start the processes now: their imports take seconds."""
        if self.workers > 1 and self._pool is None:
            self._pool = ProcessPoolExecutor(self.workers, get_context("spawn"), _prepare, self.modules)
            for _ in range(self.workers):  # each starts one, as long as none is idle
                self._begin(_nothing)

    def _begin(self, function: Callable[..., R], *given: Any) -> Future[R]:
        """Hand a job over; it may start a process."""
        assert self._pool is not None
        try:
            with _one_thread_each(), deaf():
                return self._pool.submit(function, *given)
        except BrokenProcessPool as error:  # seen where results are looked at, like a death from now on
            lost = Future[R]()
            lost.set_exception(error)
            return lost

    def over(self, function: Callable[[Any, T], R], value: Any, items: Sequence[T]) -> Iterator[tuple[T, R]]:
        """``function(value, item)`` for every item, each as it is done; a process reads `value` once.

        Processes begin at once; whoever asked may do other things before the results are looked at.
        """
        self.start()
        if self._pool is None:
            return ((item, function(value, item)) for item in items)
        folder = tempfile.TemporaryDirectory(prefix="verax-")
        path = Path(folder.name) / "value"  # each worker reads it once, however many items it gets
        path.write_bytes(pickle.dumps(value))
        jobs = {self._begin(_one, function, str(path), item): item for item in items}
        return _collected(jobs, folder)

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Compute here while the others are at work: in one thread, because several would wait for cores."""
        with one_thread() if self.workers > 1 else nullcontext():
            yield

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            running = list((self._pool._processes or {}).values())
            self._pool.shutdown(wait=False, cancel_futures=True)
            for process in running:
                process.terminate()
            for process in running:
                process.join()
