"""Work: units as they travel to whoever computes them, and results as they come back; all by value.

A `Brief` says once what a whole study needs (networks with their weights, tasks, methods by name); a `Job`
is a handful of numbers and strings that picks one unit of it; `perform(brief, job, device)` is a pure
function whose `Outcome` holds bytes. All three can be pickled, so that an executor needs no shared disk.
Nothing here depends on where or in which order jobs are performed.
"""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load as load_tensors
from torch import Tensor

from verax.devices import Memory
from verax.errors import OutputError
from verax.methods.base import METHODS, PEERS, Method
from verax.metrics import Metric
from verax.networks import library, names, teaching
from verax.networks.inference import ordinary
from verax.networks.library import Packed
from verax.networks.trained import Start
from verax.networks.training import Watcher
from verax.protocols import sound
from verax.seeding import global_streams
from verax.studies.entries import Entry, Result, pack
from verax.studies.execution import Bench
from verax.studies.failures import Failure, OutOfTime, describe
from verax.studies.spec import Study
from verax.studies.units import Cell, Unit, code_digest, explaining_digest
from verax.tasks.base import is_regression

THREADS = 1
"""Of torch while a unit is computed on a CPU, whatever the executor. How many threads share a sum decides its
last digit (seen in maps of batches that cannot be cut evenly), so that all units have the same number; more
cores are used by more workers."""

_ASK_NOTHING = frozenset({"published", "sound", "sound:counterfactual", "sound:shapley", "exact"})
"""Protocols that look at maps and truth alone."""

Dumps = Callable[[object], bytes]
"""Turns what travels into bytes that `pickle.loads` understands."""


class Job(NamedTuple):
    """One unit, as short as it can be said.

    Attributes:
        key: of the unit.
        cell: its place among the cells of the brief.
        start: the first sample of each bucket.
        length: samples of each bucket.
        maps: its raw maps as safetensors, where they were kept: they are only scored again.
    """

    key: str
    cell: int
    start: int
    length: int
    maps: bytes | None = None


class Outcome(NamedTuple):
    """What became of a job: an entry for the store, or a failure.

    Attributes:
        job: what was asked; without its maps.
        entry: the result, ready to be written.
        maps: the raw maps, ready to be written, where they are to be kept.
        failure: why there is no result.
        shown: prepared maps of the pictures that readings need, ``(G, samples, H, W)``.
        seconds: that it took.
        network: what a training gave, ready to be written.
    """

    job: Job
    entry: Entry | None = None
    maps: Entry | None = None
    failure: Failure | None = None
    shown: NDArray[np.float32] | None = None
    seconds: float = 0.0
    network: Packed | None = None

    @property
    def done(self) -> bool:
        """Whether there is a result."""
        return self.entry is not None or self.network is not None


@dataclass(frozen=True)
class Brief:
    """All that jobs of a study have in common.

    Attributes:
        study: says how cases are drawn and scored.
        cells: what jobs point to.
        keep_maps: hand raw maps back with the results.
        shown: how many pictures of each bucket readings need, by the place of the cell.
        time_limit: seconds that a job may take.
        training: jobs train the networks of the cells' subjects, whose weights are what training starts from.
        watch: is told how a training goes, where it is performed in this process.
        metrics: own ones, scored beside those of the protocols.
        token: names this brief, so that workers can keep what they have loaded for it.
    """

    study: Study
    cells: tuple[Cell, ...]
    keep_maps: bool = False
    shown: dict[int, int] = field(default_factory=dict)
    time_limit: float | None = None
    training: bool = False
    watch: Watcher | None = None
    metrics: tuple[Metric, ...] = ()
    token: str = field(default_factory=lambda: uuid4().hex)

    def unit(self, job: Job) -> Unit:
        """The unit that a job is about."""
        return Unit(job.key, self.cells[job.cell], job.start, job.length, job.cell)

    def travelling(self, dumps: Dumps | None = None, near: bool = False) -> tuple[Brief, frozenset[int]]:
        """The brief with weights by value and without the cells that cannot travel; which ones can.

        Workers that are near, on this machine, read weights from the same files instead: all of those of a
        large study are gigabytes, which every worker would hold.

        Methods and networks travel by name, own methods as a reference to a function in a module that a
        worker can import. What only this process knows (a function in a notebook or script, a task object
        that cannot be pickled, an architecture or recipe that it registered) stays, and the driver performs
        it inline. With `dumps`, which turns functions too into bytes, only what it refuses stays.
        """
        subjects = {id(cell.subject): cell.subject for cell in self.cells}
        carried = {
            number: subject.by_path() if near else subject.by_value()
            for number, subject in subjects.items()
            if names.everywhere(subject.network) and _pickles(subject, dumps)
        }
        scored = all(_goes(metric.function, dumps) and _pickles(metric, dumps) for metric in self.metrics)
        cells: list[Any] = []
        for cell in self.cells:
            method = _sent(cell.method, dumps) if cell.method is not None else None
            gone = id(cell.subject) in carried and (cell.method is None or (method is not None and scored))
            named: Any = _Named(*method) if method else None
            cells.append(replace(cell, subject=carried[id(cell.subject)], method=named) if gone else None)
        able = frozenset(index for index, cell in enumerate(cells) if cell is not None)
        kept = self.metrics if scored else ()
        return replace(self, cells=tuple(cells), watch=None, metrics=kept), able


class _Named:
    """A method on its way: its name, and the function where the name alone says nothing elsewhere."""

    def __init__(self, name: str, made: Method | None) -> None:
        self.name, self.made = name, made

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (self.name, self.made)


def _arrived(name: str, made: Method | None) -> Method:
    return METHODS.get(name) if made is None else made


def _sent(method: Method, dumps: Dumps | None) -> tuple[str, Method | None] | None:
    """How a method travels; None where it cannot."""
    if method.builtin or method.name.partition(":")[0] in PEERS:
        return method.name, None
    return (method.name, method) if _goes(method.function, dumps) and _pickles(method, dumps) else None


def _goes(function: object, dumps: Dumps | None) -> bool:
    """Whether a function can be had elsewhere: from a module, or as bytes."""
    module = getattr(function, "__module__", "__main__")
    return dumps is not None or (module != "__main__" and module in sys.modules)


def _pickles(thing: object, dumps: Dumps | None) -> bool:
    try:
        (dumps or pickle.dumps)(thing)
    except Exception:  # whatever its own code raises
        return False
    return True


@contextmanager
def pinned(device: torch.device) -> Iterator[None]:
    """The threads and settings that every unit has; put back afterwards, with what other people's code set.

    Own methods and metrics, tasks and networks run inside: units after them must not notice.
    """
    drawn = torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
    with ordinary(), drawn, global_streams():
        if device.type == "cpu" and torch.get_num_threads() != THREADS:
            torch.set_num_threads(THREADS)
        yield


_BENCHES: dict[tuple[str, str, str], Bench] = {}
"""The bench that this process used last: neighbours in a plan share their network and cases."""


def _bench(brief: Brief, cell: Cell, device: torch.device) -> Bench:
    place = (brief.token, cell.subject.name, str(device))
    if place not in _BENCHES:
        bench = Bench(cell.subject, brief.study, device, brief.metrics)
        for (token, _, where), last in _BENCHES.items():
            if (token, where) == (brief.token, str(device)):
                bench.after(last)
        _BENCHES.clear()
        _BENCHES[place] = bench
    return _BENCHES[place]


_NEEDED: dict[tuple[object, ...], int | None] = {}
"""Memory that the first unit of a kind needed here. Before it is measured, freed memory is handed back to the
system, and every page of it that the unit uses comes back one by one: too slow to be done for all."""

_UNKNOWN = -1


def _kind(brief: Brief, unit: Unit, job: Job) -> tuple[object, ...]:
    """What the memory of a unit on a CPU depends on."""
    task = unit.subject.task
    size = task.features if is_regression(task) else tuple(task.input_shape)
    rows = unit.count * len(task.groups)
    return brief.token, unit.subject.architecture, size, unit.label, rows, job.maps is None


def _remember(kind: tuple[object, ...], needed: int | None) -> None:
    """Keep what a unit needed, and nothing of other briefs: a worker may serve many."""
    if any(other[0] != kind[0] for other in tuple(_NEEDED)):
        _NEEDED.clear()
    _NEEDED[kind] = needed


def forget() -> None:
    """Let go of the network that was used last, and of what was measured with it."""
    _BENCHES.clear()
    _NEEDED.clear()


def perform(
    brief: Brief,
    job: Job,
    device: torch.device,
    keep: Callable[[torch.device], AbstractContextManager[None]] = pinned,
) -> Outcome:
    """Compute a job; what goes wrong with it is its outcome, and only a full disk or Ctrl-C go further.

    Args:
        brief: what it has in common with others.
        job: the job.
        device: where to compute.
        keep: the context that puts back what belongs to the whole process.
    """

    def whole() -> Outcome:
        with keep(device):
            return (
                _trained(brief, job, device) if brief.training else _begun(brief, job, device, whole=True)()
            )

    return _caught(job, whole)


def begin(brief: Brief, job: Job, device: torch.device) -> Callable[[], Outcome]:
    """Explain what a job asks for; what comes back does the rest of it (`apart`), in any thread."""
    rest = list[Callable[[], Outcome]]()

    def explained() -> Outcome:
        with pinned(device):
            rest.append(_begun(brief, job, device))
        return Outcome(job)

    failed = _caught(job, explained)
    return partial(_caught, job, rest[0]) if rest else lambda: failed


def apart(brief: Brief, job: Job) -> bool:
    """Whether a job can be done in halves: with methods and metrics of verax, none of which asks the network.

    Code of other people may keep things for later, and a time limit is for the whole of a job.
    """
    method = brief.cells[job.cell].method
    known = method is None or method.builtin
    asks = any(protocol not in _ASK_NOTHING for protocol in brief.study.protocols)
    return known and not (asks or brief.metrics or brief.training or brief.time_limit is not None)


def _caught(job: Job, doing: Callable[[], Outcome]) -> Outcome:
    """An outcome, or why there is none."""
    start = time.perf_counter()
    try:
        return doing()
    except OutputError:
        raise
    except (Exception, OutOfTime, SystemExit) as error:  # other people's code may raise anything
        return Outcome(job._replace(maps=None), failure=describe(error), seconds=time.perf_counter() - start)


def _begun(brief: Brief, job: Job, device: torch.device, whole: bool = False) -> Callable[[], Outcome]:
    """The first half of a job, and the second, which packs its result.

    The memory that it needed is that of both where they are done at once; else another job begins meanwhile.
    """
    start = time.perf_counter()
    unit = brief.unit(job)
    bench, kind = _bench(brief, unit.cell, device), _kind(brief, unit, job)
    needed = _NEEDED.get(kind, _UNKNOWN)
    memory = Memory(device) if device.type != "cpu" or needed == _UNKNOWN else None
    finish = bench.begin(unit, None if job.maps is None else load_tensors(job.maps)["raw"])
    if memory is not None and not whole:
        needed = memory.peak()
    raw, bench.maps = bench.maps, None
    spent = time.perf_counter() - start

    def rest() -> Outcome:
        nonlocal needed
        start = time.perf_counter()
        result = finish()
        if memory is not None and whole:
            needed = memory.peak()
            _remember(kind, needed)
        result.info.update(unit=unit.name, code=code_digest(), peak_bytes=needed)
        entry = pack(job.key, result)
        maps = shown = None
        if raw is not None and brief.keep_maps and job.maps is None:
            about = {"unit": unit.name, "code": explaining_digest()}
            maps = pack(unit.maps_key, Result({}, {"raw": raw.cpu().contiguous()}, about))
        if raw is not None and (many := brief.shown.get(job.cell, 0)) > job.start:
            shown = _shown(raw, job, many)
        seconds = spent + time.perf_counter() - start
        return Outcome(job._replace(maps=None), entry, maps, None, shown, seconds)

    return rest


def _trained(brief: Brief, job: Job, device: torch.device) -> Outcome:
    """Train the network of a job."""
    start = time.perf_counter()
    taught = _taught(brief, brief.cells[job.cell], device)
    return Outcome(job._replace(maps=None), network=taught, seconds=time.perf_counter() - start)


def _taught(brief: Brief, cell: Cell, device: torch.device) -> Packed:
    """Train the network of a cell's subject."""
    subject, options = cell.subject, dict(cell.parameters or {})
    if (origin := options.pop("start", None)) is not None:
        options["start"] = Start(origin, Bench(subject, brief.study, device).model())
    done = teaching.train(
        subject.task,
        subject.network,
        seed=subject.seed,
        device=device,
        quiet=True,
        watch=brief.watch,
        **options,
    )
    return library.pack(done)


def _shown(raw: Tensor, job: Job, many: int) -> NDArray[np.float32]:
    """The prepared maps of a block's samples below number `many`: ``(G, samples, H, W)``."""
    by_bucket = raw.reshape(-1, job.length, *raw.shape[1:])[:, : many - job.start]
    prepared: Tensor = sound.prepare(by_bucket.flatten(0, 1)).values.float().cpu()
    # an array, since tensors would travel through memory that is shared with a process that may die
    return prepared.reshape(*by_bucket.shape[:2], *prepared.shape[1:]).numpy()
