"""NPY and NPZ files as arrays, and checks of what should be numbers in them."""

from __future__ import annotations

import lzma
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verax.errors import InvalidInput, MissingFile

_DAMAGE = (
    OSError,
    ValueError,  # NumPy's for most damage
    KeyError,
    EOFError,
    OverflowError,
    SyntaxError,  # in the header of an array
    tokenize.TokenError,
    NotImplementedError,  # unknown compression
    RuntimeError,  # encrypted members
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)


def load(
    path: Path, names: Sequence[str] | None = None, kind: str = "an NPY or NPZ file of numbers"
) -> dict[str, NDArray[Any]]:
    """The arrays of a file by name; members that are no arrays are passed over.

    Args:
        path: of an NPZ file, or of an NPY file, whose one array is called as the file is.
        names: those to read; all by default.
        kind: what the file should be, in words.
    """
    try:
        with path.open("rb") as file:
            found = np.load(file, allow_pickle=False)
            if isinstance(found, np.ndarray):
                return {path.stem: found}
            members = ((name, found[name]) for name in (found if names is None else names))
            return {name: member for name, member in members if isinstance(member, np.ndarray)}
    except MemoryError as error:
        raise MissingFile(f"The file {str(path)!r} is larger than memory, or damaged.") from error
    except _DAMAGE as error:
        raise MissingFile(f"The file {str(path)!r} is damaged or not {kind}.") from error


def check_whole(values: NDArray[Any], low: int, high: int, what: str) -> None:
    """Refuse anything but whole numbers from `low` to `high`; `what` begins the sentence."""
    if values.dtype.kind not in "fiu":
        raise InvalidInput(f"{what} are not numbers.")
    right = (values >= low) & (values <= high) & (values == np.floor(values))
    if not right.all():
        first = int(np.argmin(right))
        raise InvalidInput(
            f"{what} are not all whole numbers from {low} to {high}: number {first + 1} is {values[first]}."
        )


def check_places(values: NDArray[Any], word: str, what: str) -> None:
    """Refuse latitudes or longitudes (`word`) that are no places, or that are one place twice."""
    if values.dtype.kind not in "fiu":
        raise InvalidInput(f"{what} has {word} that are not numbers.")
    if not np.isfinite(values).all():
        raise InvalidInput(f"{what} has {word} that are missing or infinite.")
    # a little more than 90 is round-off
    if word == "latitudes" and (np.abs(values) > 90.001).any():
        worst = values[int(np.abs(values).argmax())]
        raise InvalidInput(f"{what} has the latitude {worst:g}, which is not within -90 to 90.")
    steps = np.diff(values.astype(np.float64))
    if word == "latitudes" and (steps > 0).any() and (steps < 0).any():
        raise InvalidInput(f"{what} has latitudes that neither rise nor fall; sort them first.")
    # files with a "cyclic point" have 0 and 360, which are one place
    turned = np.round(values % 360, 6) % 360 if word == "longitudes" else values
    names, number, times = np.unique(turned, return_inverse=True, return_counts=True)
    if len(names) < values.size:
        pair = values[number == int(times.argmax())][:2]
        raise InvalidInput(
            f"{what} has {word} that are there twice ({pair[0]:g} and {pair[1]:g}): leave one of them out."
        )
