"""Units: the content-addressed pieces of a study.

A study is a table of *cells* (a network on a task, and a method or its certificate); a cell is cut into
*units*, blocks of samples. A unit's key is a hash of everything that its result depends on, and of nothing
else: not of batch sizes, devices, workers or the order of work.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from verax.errors import MissingFile
from verax.methods.base import Method
from verax.networks import names
from verax.tasks.base import Learnable

FORMAT = 2
"""Raised whenever the layout of a stored result changes."""

BLOCK = 1 << 23
"""Numbers in the inputs of a block, over all buckets: 682 pictures of TextBox, 18,000 fields of 458 cells.

That is seconds to minutes of work on a CPU, enough to keep a GPU busy, and most presets have it in one piece.
"""

_EXPLAINING = ("tasks", "networks", "engine", "methods")
_SCORING = ("protocols", "metrics")
_ALONE = ("cases.py", "correlations.py", "seeding.py", "studies/execution.py")


@cache
def _digest(folders: tuple[str, ...]) -> str:
    root = Path(__file__).parent.parent
    files = [root / name for name in _ALONE]
    files += [file for name in folders for file in sorted((root / name).rglob("*.py"))]
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def code_digest() -> str:
    """A hash of all code that results depend on, so that scores of different versions never mix."""
    return _digest(_EXPLAINING + _SCORING)


def explaining_digest() -> str:
    """A hash of the code that maps depend on: where only scoring changed, kept maps are still good."""
    return _digest(_EXPLAINING)


def content_hash(values: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical JSON of plain values."""
    return hashlib.sha256(
        json.dumps(values, sort_keys=True, separators=(",", ":"), default=repr).encode()
    ).hexdigest()


def block_key(key: str, start: int, count: int) -> str:
    """The key of a block of what `key` names."""
    return hashlib.sha256(f"{key}:{start}:{count}".encode()).hexdigest()


@dataclass(frozen=True)
class Subject:
    """A network on a task: what is explained; a wired network has no file of weights.

    Attributes:
        task: what it was trained on.
        network: its name.
        seed: of its training.
        weights: their file or, when the subject travels, its content.
        sha256: of the weights.
    """

    task: Learnable
    network: str
    seed: int
    weights: Path | bytes | None
    sha256: str

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.task.name} {self.network} seed {self.seed}"

    @property
    def architecture(self) -> str:
        """What `network` is built as on this task."""
        return names.parse(self.network).on(self.task).architecture

    def by_path(self) -> Subject:
        """The same subject for another process of this machine, whatever folder that is in."""
        return replace(self, weights=self.weights.absolute()) if isinstance(self.weights, Path) else self

    def by_value(self) -> Subject:
        """The same subject with its weights in memory, so that it can travel to another machine."""
        if not isinstance(self.weights, Path):
            return self
        try:
            return replace(self, weights=self.weights.read_bytes())
        except OSError as error:
            raise MissingFile(f"The file {str(self.weights)!r} cannot be read: {error.strerror}.") from error


@dataclass(frozen=True)
class Cell:
    """One cell of a study: a subject and a method, or (without a method) the subject's certificate.

    Attributes:
        key: hash of all that its results depend on, but the samples.
        subject: what is explained.
        samples: in each bucket; scenes in each bucket for a certificate.
        block: samples of each bucket in one unit.
        maps_key: hash of all that its maps depend on, but the samples.
        method: how it is explained.
        label: the method's name in tables.
        parameters: of the method.
        lasting: whether all else is known to be the same when it has the same key: not so of own networks and
            metrics without a version.
    """

    key: str
    subject: Subject
    samples: int
    block: int
    maps_key: str = ""
    method: Method | None = None
    label: str = ""
    parameters: Mapping[str, Any] | None = None
    lasting: bool = True

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.subject.name}: {self.label or 'certificate'}"

    @property
    def kept(self) -> bool:
        """Whether its results may be used again: nobody knows whether an own method has changed."""
        return self.lasting and (self.method is None or self.method.version is not None)

    def __len__(self) -> int:
        return -(-self.samples // self.block)

    def units(self, index: int = 0) -> Iterator[Unit]:
        """The units of this cell, in order; `index` is its place among the cells of the plan."""
        for start in range(0, self.samples, self.block):
            count = min(self.block, self.samples - start)
            yield Unit(block_key(self.key, start, count), self, start, count, index)


@dataclass(frozen=True, slots=True)
class Unit:
    """One piece of work: a block of samples of a cell.

    Attributes:
        key: names its result in the store.
        cell: what it is a part of.
        start: the first sample of each bucket.
        count: samples of each bucket.
        index: the cell's place in the plan.
    """

    key: str
    cell: Cell
    start: int = 0
    count: int = 1
    index: int = 0

    @property
    def name(self) -> str:
        """For people; the samples are named where there are several blocks."""
        whole = len(self.cell) == 1
        return self.cell.name if whole else f"{self.cell.name} [{self.start}:{self.start + self.count}]"

    @property
    def maps_key(self) -> str:
        """Names the raw maps of this unit in the store."""
        return block_key(self.cell.maps_key, self.start, self.count)

    @property
    def subject(self) -> Subject:
        """What is explained."""
        return self.cell.subject

    @property
    def method(self) -> Method | None:
        """How it is explained."""
        return self.cell.method

    @property
    def label(self) -> str:
        """The method's name in tables."""
        return self.cell.label
