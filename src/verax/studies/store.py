"""The store: finished units on disk, each whole or not there at all.

An entry is a JSON file that names its parts and their SHA-256; it is written last, by renaming, and its parts
are named by their content. So any number of processes and machines may share a store on one folder: whatever
they write at the same time, an entry is always one of the whole ones. What does not fit its checksum is moved
to ``quarantine`` and computed anew. Failures are kept beside the results. Folders fan out twice, so that each
look-up is one look at one path however many entries there are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from verax.errors import OutputError
from verax.files import absolute, sync_folder, write_atomically
from verax.studies.entries import (
    DAMAGE,
    Damaged,
    Entry,
    Opened,
    Result,
    check,
    named_parts,
    opened,
    pack,
    read_head,
)
from verax.studies.failures import Failure

try:
    import fcntl
except ImportError:  # not a Unix
    fcntl = None  # type: ignore[assignment]

UNITS, QUARANTINE, LOCK = "units", "quarantine", "lock"
FAILED = ".failed"


@dataclass(frozen=True)
class Aside:
    """An entry that was set aside.

    Attributes:
        key: of its unit.
        reason: in words.
    """

    key: str
    reason: str


class Store:
    """A folder of finished units."""

    def __init__(self, folder: Path) -> None:
        # methods may change the working directory while a thread writes here
        self.folder = absolute(folder)
        self.aside: list[Aside] = []

    @property
    def damaged(self) -> list[str]:
        """The keys of entries that this store object has set aside."""
        return [entry.key for entry in self.aside]

    def place(self, key: str) -> Path:
        """The folder of a unit's files."""
        return self.folder / UNITS / key[:2] / key[2:4]

    def _head(self, key: str) -> Path:
        return self.place(key) / f"{key}.json"

    def _failure(self, key: str) -> Path:
        return self.place(key) / f"{key}{FAILED}.json"

    def __contains__(self, key: str) -> bool:
        return os.path.exists(self._text(key))  # noqa: PTH110 (asked a million times: three times as fast)

    def _text(self, key: str) -> str:
        return f"{self.folder}/{UNITS}/{key[:2]}/{key[2:4]}/{key}.json"

    # -- writing -----------------------------------------------------------------------------------------

    def write(self, key: str, result: Result) -> None:
        """Keep a result."""
        self.put(pack(key, result))

    def put(self, entry: Entry) -> None:
        """Keep an entry: its parts first, then its head; a failure that was recorded before is over."""
        for name, data in entry.parts.items():
            # after a power cut a head may be there without a part: that is noticed, as all damage is
            self._keep(self.place(entry.key) / name, data, last=False)
        self._keep(self._head(entry.key), entry.head)
        self.recover(entry.key)

    def fail(self, key: str, name: str, failure: Failure) -> None:
        """Record that a unit failed."""
        text = json.dumps({"key": key, "unit": name, **failure.facts()}, indent=1)
        self._keep(self._failure(key), text.encode())

    def _keep(self, path: Path, data: bytes, *, last: bool = True) -> None:
        """Write a file; a folder that somebody put in its place is moved out of the way."""
        try:
            write_atomically(path, data, last=last)
        except OutputError:
            if not path.is_dir():
                raise
            self.remove_to_quarantine(path)
            write_atomically(path, data, last=last)

    def recover(self, key: str) -> None:
        """Forget that a unit failed."""
        with suppress(OSError):
            os.unlink(self._failure(key))  # noqa: PTH108 (asked a million times)

    # -- reading -----------------------------------------------------------------------------------------

    def read(self, key: str) -> Result | None:
        """A finished result, or None when it is not there or is damaged."""
        try:
            found = self.open(key)
            return None if found is None else found.result()
        except Damaged as error:
            self.set_aside(key, str(error))
            return None

    def open(self, key: str) -> Opened | None:
        """A finished result with Arrow's tables; raises `Damaged` where it cannot be used."""
        found = self._found(key)
        return None if found is None else opened(found[1], found[0].parts)

    def get(self, key: str) -> Entry | None:
        """A finished entry as bytes; raises `Damaged` where it cannot be used."""
        found = self._found(key)
        return None if found is None else found[0]

    def _found(self, key: str) -> tuple[Entry, dict[str, Any]] | None:
        """A finished entry with the content of its head, which its parts fit; raises `Damaged` otherwise."""
        if key not in self:
            return None
        try:
            head = _bytes(self._head(key))
        except FileNotFoundError:
            return None
        except OSError as error:
            if self._head(key).is_dir():
                raise Damaged("a folder is in its place") from error
            raise OutputError(f"Cannot read {str(self._head(key))!r}: {error.strerror}.") from error
        try:
            content, place = read_head(key, head), self.place(key)
            parts = {name: _bytes(place / name) for name in named_parts(content)}
            check(content, parts)
        except FileNotFoundError as error:
            raise Damaged("a part is missing") from error
        except OSError as error:
            raise Damaged(f"a part cannot be read: {error.strerror}") from error
        except DAMAGE as error:
            raise error if isinstance(error, Damaged) else Damaged("not an entry of a store") from error
        return Entry(key, head, parts), content

    def failure(self, key: str) -> Failure | None:
        """Why a unit failed when it was last tried; None where it did not, or nobody knows."""
        try:
            found = json.loads(self._failure(key).read_bytes())
            return Failure(found["kind"], str(found["reason"]))
        except (OSError, *DAMAGE):
            return None

    def failed(self, key: str) -> bool:
        """Whether a failure of a unit is recorded."""
        return self._failure(key).is_file()

    # -- looking after it --------------------------------------------------------------------------------

    def set_aside(self, key: str, reason: str = "it lacks what its unit leaves behind") -> None:
        """Move an entry out of the way, so that its unit is computed anew."""
        self.aside.append(Aside(key, reason))
        self.remove_to_quarantine(self._head(key))

    def remove_to_quarantine(self, path: Path) -> None:
        """Move one file to the quarantine; one that another process has moved already is no loss."""
        target = self.folder / QUARANTINE
        try:
            target.mkdir(exist_ok=True)
            name = next(
                f"{path.stem}.{number}{path.suffix}"
                for number in range(10_000_000)
                if not (target / f"{path.stem}.{number}{path.suffix}").exists()
            )
            path.replace(target / name)
        except FileNotFoundError:
            return
        except OSError as error:
            raise OutputError(f"Cannot move {str(path)!r} out of the way: {error.strerror}.") from error
        sync_folder(path.parent)

    def heads(self) -> Iterator[Path]:
        """The heads of all entries, in no order, one folder at a time; failures are not among them."""
        for first in _folders(self.folder / UNITS):
            for second in _folders(first):
                for path in _files(second):
                    if path.suffix == ".json" and not path.stem.endswith(FAILED):
                        yield path

    @contextmanager
    def locked(self, *, alone: bool = False) -> Iterator[bool]:
        """Hold the store's advisory lock: shared by those who add, alone for those who take away.

        Gives whether it could be had. Adding needs no lock to be safe; it only keeps `gc` away. Where the
        file system knows no locks, everything but `gc` works without.
        """
        file = self._lock(alone)
        try:
            yield file is not None or not alone
        finally:
            if file is not None:
                file.close()  # which lets go of the lock, as the end of the process does

    def _lock(self, alone: bool) -> IO[str] | None:
        if fcntl is None:
            return None
        try:
            file = (self.folder / LOCK).open("a")
        except OSError:  # a store that can only be read
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB if alone else fcntl.LOCK_SH)  # gc is soon done
        except OSError:  # somebody has it, or there are no locks here
            file.close()
            return None
        return file


def _bytes(path: Path) -> bytes:
    """What a file holds; for a pipe in its place one would wait for ever."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise Damaged("a pipe or a device is in its place")
    return path.read_bytes()


def _folders(folder: Path) -> Iterator[Path]:
    with suppress(OSError):
        yield from (Path(entry.path) for entry in os.scandir(folder) if entry.is_dir())


def _files(folder: Path) -> Iterator[Path]:
    with suppress(OSError):
        yield from (Path(entry.path) for entry in os.scandir(folder) if not entry.name.startswith("."))
