"""Work side by side: networks trained in threads or commands of their own, figures drawn in processes."""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from multiprocessing import get_context
from multiprocessing.pool import Pool
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import torch

from verax.errors import VeraxError

T = TypeVar("T")
R = TypeVar("R")


def threads(jobs: Sequence[Callable[[], object]], workers: int, device: torch.device) -> Iterator[bool]:
    """Run jobs on one GPU, each on a stream of its own; says of each whether it came to an end.

    A small network leaves most of a GPU idle: the kernels of several run beside each other, which those of
    several processes never do.
    """

    def one(job: Callable[[], object]) -> bool:
        with torch.cuda.device(device), torch.cuda.stream(torch.cuda.Stream(device)):  # type: ignore[no-untyped-call]
            try:
                job()
            except (RuntimeError, VeraxError):
                return False
            torch.cuda.current_stream(device).synchronize()
        return True

    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(one, jobs)


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
    torch.set_num_threads(1)  # the workers share the cores
    for module in modules:
        importlib.import_module(module)


_kept: dict[str, Any] = {}
"""In a worker: the value that its jobs share, by the file that it was read from."""


def _one(job: tuple[Callable[[Any, T], R], str, int, T]) -> tuple[int, R]:
    function, path, place, item = job
    if path not in _kept:
        _kept.clear()
        _kept[path] = pickle.loads(Path(path).read_bytes())
    return place, function(_kept[path], item)


def _collected(
    results: Iterator[tuple[int, R]], items: Sequence[T], folder: tempfile.TemporaryDirectory[str]
) -> Iterator[tuple[T, R]]:
    with folder:
        for place, made in results:
            yield items[place], made


class Crew(AbstractContextManager["Crew"]):
    """Processes that are started when they are needed or before, and wait; one worker is this process itself.

    Args:
        workers: how many.
        modules: what they import before they are needed.
    """

    def __init__(self, workers: int, *modules: str) -> None:
        self.workers, self.modules = workers, modules
        self._pool: Pool | None = None

    def start(self) -> None:
        """Start the processes now: their imports take seconds."""
        if self.workers > 1 and self._pool is None:
            self._pool = get_context("spawn").Pool(self.workers, _prepare, self.modules)

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
        jobs = [(function, str(path), place, item) for place, item in enumerate(items)]
        return _collected(self._pool.imap_unordered(_one, jobs), items, folder)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.terminate()
            self._pool.join()
