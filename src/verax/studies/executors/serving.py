"""Serving: what a worker of a cluster does with the jobs that reach it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from verax.errors import OutputError
from verax.studies import work
from verax.studies.stamps import version
from verax.studies.work import Brief, Job, Outcome


class Begun(NamedTuple):
    """The first thing that a worker says.

    Attributes:
        misfit: why this worker must not compute anything; empty where it may.
    """

    misfit: str = ""


@dataclass(frozen=True)
class Luggage:
    """What workers need of a study: put into the object store once, fetched once by each machine.

    Attributes:
        token: names the brief.
        brief: its bytes, without any weights.
        weights: of each subject, as references that are followed when a job needs them.
        owners: the place among `weights` of each cell's subject; None where it has none.
        version: of the code, which all machines must share.
        device: where workers compute.
    """

    token: str
    brief: bytes
    weights: tuple[Any, ...]
    owners: tuple[int | None, ...]
    version: str
    device: str


def pack(brief: Brief, device: str, dumps: work.Dumps, put: Callable[[bytes], Any]) -> Luggage:
    """A travelling brief as luggage; `put` gives a reference to bytes."""
    places: dict[int, int] = {}
    weights: list[Any] = []
    owners: list[int | None] = []
    bare: dict[int, Any] = {}
    for cell in brief.cells:
        if cell is None:  # it stays with the driver
            owners.append(None)
            continue
        subject = cell.subject
        if id(subject) not in bare:
            bare[id(subject)] = replace(subject, weights=None)
            if isinstance(subject.weights, bytes):
                places[id(subject)] = len(weights)
                weights.append(put(subject.weights))
        owners.append(places.get(id(subject)))
    cells = [cell and replace(cell, subject=bare[id(cell.subject)]) for cell in brief.cells]
    light = dumps(replace(brief, cells=tuple(cells)))
    return Luggage(brief.token, light, tuple(weights), tuple(owners), version(), device)


@dataclass
class _Desk:
    """What this process has unpacked last."""

    luggage: Luggage
    brief: Brief
    misfit: str
    place: int | None = None

    def ready(self, job: Job, get: Callable[[Any], bytes]) -> Brief:
        """The brief with the weights that a job needs; those of the network before are let go."""
        place = self.luggage.owners[job.cell]
        if place is not None and place != self.place:
            weights = get(self.luggage.weights[place])
            subject = replace(self.brief.cells[job.cell].subject, weights=weights)
            owners = self.luggage.owners
            cells = tuple(
                replace(cell, subject=subject) if owner == place else cell
                for cell, owner in zip(self.brief.cells, owners, strict=True)
            )
            self.brief, self.place = replace(self.brief, cells=cells), place
        return self.brief


_DESK: dict[str, _Desk] = {}


def _desk(token: str, fetch: Callable[[], Luggage]) -> _Desk:
    if token not in _DESK:
        luggage = fetch()
        misfit = "" if luggage.version == version() else f"it has {version()}, not {luggage.version}"
        # from the driver that started this worker
        brief = Brief.__new__(Brief) if misfit else pickle.loads(luggage.brief)
        _DESK.clear()
        _DESK[token] = _Desk(luggage, brief, misfit)
    return _DESK[token]


def serve(
    token: str, fetch: Callable[[], Luggage], get: Callable[[Any], bytes], jobs: Sequence[Job]
) -> Iterator[Begun | Outcome | OutputError]:
    """Perform a group of jobs; each outcome goes out as soon as it is there."""
    desk = _desk(token, fetch)
    yield Begun(desk.misfit)
    if desk.misfit:
        return
    device = torch.device(desk.luggage.device)
    for job in jobs:
        try:
            yield work.perform(desk.ready(job, get), job, device)
        except OutputError as error:
            yield error
            return
