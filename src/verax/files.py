"""Files: where things are kept, and writing them whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from verax.errors import OutputError


def store_folder(chosen: str | Path | None = None) -> Path:
    """Where results and trained networks are kept: `chosen`, ``VERAX_STORE`` or the user's cache folder."""
    chosen = chosen or os.environ.get("VERAX_STORE")
    if chosen:
        return Path(chosen).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "verax"


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


@contextmanager
def atomically(path: Path) -> Iterator[Path]:
    """A temporary file beside `path` to be written; it gets its name when it is whole, and else goes away."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(descriptor)
    except OSError as error:
        raise _cannot(path, error) from error
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise (error if isinstance(error, OutputError) else _cannot(path, error)) from error
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that it is there whole or not at all."""
    with atomically(path) as temporary, temporary.open("wb") as file:
        file.write(data)
