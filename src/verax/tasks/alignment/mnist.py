"""MNIST: the four official files of handwritten digits, in their own order."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from verax.errors import InvalidParameter, MissingFile, suggestion
from verax.tasks.alignment import reading

SOURCE = reading.Source(
    "MNIST",
    "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, "
    "each perhaps with .gz",
    "https://github.com/cvdfoundation/mnist",
)
SPLITS = {"train": "train", "test": "t10k"}
_MOST = 2**28  # bytes that an idx file may claim to hold


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """An idx file of bytes, packed or not; never more of it is unpacked than its header promises."""
    start = 4 + 4 * dimensions
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            head = file.read(start)
            shape = tuple(int.from_bytes(head[at : at + 4], "big") for at in range(4, start, 4))
            count = 1
            for side in shape:
                count *= side
            if len(head) < start or head[:4] != bytes([0, 0, 8, dimensions]) or not 0 < count <= _MOST:
                raise MissingFile(f"The file {str(path)!r} is not an idx file of {dimensions} dimensions.")
            data = file.read(count + 1)
    except MissingFile:
        raise
    except (EOFError, OSError, zlib.error) as error:
        raise MissingFile(f"The file {str(path)!r} cannot be unpacked.") from error
    if len(data) != count:
        raise MissingFile(f"The file {str(path)!r} has another length than its header promises.")
    return np.frombuffer(data, np.uint8).reshape(shape)


def mnist(root: str | Path, split: str = "test") -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Levels ``(N, 28, 28)``, white ink on black, and labels ``(N,)`` of "train" or "test"."""
    if split not in SPLITS:
        raise InvalidParameter(f"MNIST has no split {split!r}{suggestion(split, SPLITS)}")
    base = Path(root).expanduser()

    def find(what: str) -> Path:
        name = f"{SPLITS[split]}-{what}-ubyte"
        places = [folder / f"{name}{end}" for folder in (base, base / "MNIST" / "raw") for end in ("", ".gz")]
        return SOURCE.file(*places)

    levels, labels = read_idx(find("images-idx3"), 3), read_idx(find("labels-idx1"), 1)
    if len(levels) != len(labels) or levels.shape[1:] != (28, 28) or labels.max() > 9:
        raise MissingFile(f"The pictures and labels of MNIST in {str(base)!r} do not fit together.")
    return levels, labels
