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


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that it is there whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).chmod(0o644)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OutputError(f"Cannot write {str(path)!r}: {error.strerror or error}.") from error
