"""Files: where things are kept, and writing them whole or not at all."""

from __future__ import annotations

import itertools
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from verax.errors import OutputError, VeraxError


def store_folder(chosen: str | Path | None = None) -> Path:
    """Where results and trained networks are kept: `chosen`, ``VERAX_STORE`` or the user's cache folder."""
    chosen = chosen or os.environ.get("VERAX_STORE")
    if chosen:
        return Path(chosen).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "verax"


def absolute(path: Path) -> Path:
    """The same path, wherever the process goes from here."""
    try:
        return path.absolute()
    except OSError as error:  # the working directory has been removed
        raise _cannot(path, error) from error


def make_folder(folder: Path) -> Path:
    """Create a folder and prove that it can be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OutputError(
            f"Cannot write to the folder {str(folder)!r}: {error.strerror or error}."
        ) from error
    return folder


@contextmanager
def unless_empty(folder: Path) -> Iterator[None]:
    """Take new, empty folders away again when the work inside fails before anything was written."""
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        yield
    except BaseException:
        for path in new:
            with suppress(OSError):  # not empty: something was written, and stays
                path.rmdir()
        raise


def sync_folder(folder: Path) -> None:
    """Make names that were written to a folder survive a power cut, where the system can."""
    with suppress(OSError):  # not every system and file system can open or sync a folder
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _cannot(path: Path, error: OSError) -> OutputError:
    return OutputError(f"Cannot write {str(path)!r}: {error.strerror or error}.")


_NUMBERS = itertools.count()
_WHO = uuid4().hex[:8]


def _beside(path: Path) -> Path:
    """A name for a temporary file in the folder of `path` that no other process and no other machine uses."""
    return path.with_name(f".{path.name}.{_WHO}-{os.getpid()}-{next(_NUMBERS)}")


def _create(path: Path) -> int:
    """Open a new file for writing, in a folder that is made where it is missing."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        return os.open(path, flags, 0o666)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, flags, 0o666)


def _refuse_devices(path: Path) -> None:
    """What is there and is no file must stay: others would miss /dev/null if a file took its place."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 (written a million times)
    except OSError:
        return  # not there, or cannot be written to, which is said then
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OutputError(f"Cannot write {str(path)!r}: it is a device or a pipe, not a file.")


@contextmanager
def atomically(path: Path) -> Iterator[Path]:
    """A temporary file beside `path` to be written; it gets its name when it is whole, and else goes away."""
    _refuse_devices(path)
    temporary = _beside(path)
    try:
        os.close(_create(temporary))
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and not isinstance(error, VeraxError):
            raise _cannot(path, error) from error
        raise


def write_atomically(path: Path, data: bytes, *, last: bool = True) -> None:
    """Write a file so that it is there whole or not at all.

    Args:
        path: its name.
        data: what is in it.
        last: nothing else is about to be written to this folder, so that names are made to last now.
    """
    _refuse_devices(path)
    temporary = _beside(path)
    try:
        descriptor = _create(temporary)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, path)  # noqa: PTH105 (written a million times)
        if last:
            sync_folder(path.parent)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _cannot(path, error) from error
        raise
