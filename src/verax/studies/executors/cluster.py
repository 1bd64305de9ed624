"""Ray: workers on the machines of a Ray cluster, without a shared disk.

Jobs travel in groups, as Ray tasks that stream: each outcome comes back through the object store as soon as
it is there, and the driver writes it. What a study has in common is put into the object store once, so that
each machine fetches it once, and weights only when a job needs them.
"""

from __future__ import annotations

import pickle
import signal
import socket
import sys
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from verax.errors import ClusterError, InvalidParameter, MissingExtra
from verax.studies.executors import serving
from verax.studies.executors.crowd import Crowd
from verax.studies.executors.grouping import Groups
from verax.studies.executors.processes import cores
from verax.studies.work import Brief, Job, Outcome


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
            crowd = Crowd(ray, self._needs, luggage, groups, brief.time_limit, self._most, patience)
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


_NONE = "This machine is not part of a Ray cluster: start one (ray start --head), or use --address local."


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
