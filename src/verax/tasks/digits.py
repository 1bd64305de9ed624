"""Handwritten digits: MNIST where its files lie, else the small digits that come with scikit-learn."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from verax.errors import InvalidParameter, MissingExtra, MissingFile

SIZE = 28
SOURCES = ("mnist", "scikit-learn")


@dataclass(frozen=True, eq=False)
class Digits:
    """Pictures of digits, sorted by label.

    Attributes:
        pictures: ``(M, 28, 28)`` float32 in [0, 1].
        first: ``(10,)`` int64; where each digit starts.
        count: ``(10,)`` int64; how many there are of it.
        sha256: of pictures and labels, before sorting.
    """

    pictures: Tensor
    first: Tensor
    count: Tensor
    sha256: str

    @classmethod
    def of(cls, pictures: NDArray[np.uint8], labels: NDArray[np.uint8]) -> Digits:
        """Sort pictures with levels 0 .. 255 by their labels."""
        order = np.argsort(labels, kind="stable")
        count = torch.from_numpy(np.bincount(labels, minlength=10).astype(np.int64))
        digest = hashlib.sha256(pictures.tobytes() + labels.tobytes()).hexdigest()
        levels = torch.from_numpy(pictures[order].astype(np.float32) / np.float32(255))
        return cls(levels, count.cumsum(0) - count, count, digest)


def _idx(path: Path) -> NDArray[np.uint8]:
    """An idx file of bytes, packed or not."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, OSError, zlib.error) as error:
        raise MissingFile(f"The file {str(path)!r} cannot be unpacked.") from error
    dimensions = data[3] if len(data) > 4 and data[:3] == b"\0\0\x08" else 0
    shape = [int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(dimensions)]
    if not dimensions or len(data) != 4 + 4 * dimensions + int(np.prod(shape)):
        raise MissingFile(f"The file {str(path)!r} is not an idx file of bytes.")
    return np.frombuffer(data, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def _mnist(folder: Path, part: str) -> Digits:
    def read(what: str) -> NDArray[np.uint8]:
        for suffix in ("", ".gz"):
            path = folder / f"{part}-{what}-ubyte{suffix}"
            if path.is_file():
                return _idx(path)
        raise MissingFile(f"The folder {str(folder)!r} holds no {part}-{what}-ubyte.")

    return Digits.of(read("images-idx3"), read("labels-idx1"))


def _small(part: str) -> Digits:
    """The 1797 digits of 8 x 8 of scikit-learn, enlarged; one in five is kept for cases."""
    from sklearn.datasets import load_digits

    data, labels = load_digits(return_X_y=True)
    small = torch.from_numpy(data.reshape(-1, 1, 8, 8) / 16).float()
    large = torch.nn.functional.interpolate(small, size=(SIZE, SIZE), mode="bilinear")[:, 0]
    levels = large.mul(255).round().to(torch.uint8).numpy()
    kept = np.arange(len(labels)) % 5 == 4 if part == "t10k" else np.arange(len(labels)) % 5 != 4
    return Digits.of(levels[kept], labels[kept].astype(np.uint8))


def available() -> str:
    """The first of `SOURCES` that is here; "" where there is none."""
    data = os.environ.get("VERAX_DATA")
    if data and (Path(data) / "mnist").is_dir():
        return "mnist"
    try:
        import sklearn  # noqa: F401
    except ImportError:
        return ""
    return "scikit-learn"


def digits(source: str, part: str, device: str | torch.device = "cpu") -> Digits:
    """The digits of a source: `part` is "train" or "t10k", as the files of MNIST are called."""
    if not source:
        raise MissingExtra(
            "Digits need MNIST's files in the folder 'mnist' under VERAX_DATA, or scikit-learn installed."
        )
    if source == "mnist":
        data = os.environ.get("VERAX_DATA")
        if not data:
            raise MissingFile("MNIST is looked for in the folder 'mnist' under VERAX_DATA, which is not set.")
        return _read(source, part, data, str(device))
    if source == "scikit-learn":
        return _read(source, part, "", str(device))
    raise InvalidParameter(f"Digits come from {' or '.join(SOURCES)}, not {source!r}.")


@lru_cache(maxsize=4)
def _read(source: str, part: str, data: str, device: str) -> Digits:
    """Read once and kept on the device, because training draws from them thousands of times."""
    found = _mnist(Path(data) / "mnist", part) if source == "mnist" else _small(part)
    pictures, first, count = (t.to(device) for t in (found.pictures, found.first, found.count))
    return Digits(pictures, first, count, found.sha256)
