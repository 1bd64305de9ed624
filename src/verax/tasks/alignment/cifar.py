"""CIFAR-100: small pictures of a hundred classes, for transfer; nobody marked anything in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from verax.errors import InvalidParameter, MissingFile, suggestion
from verax.tasks.alignment import pickles, reading
from verax.tasks.alignment.images import Annotated, checked

SOURCE = reading.Source(
    "CIFAR-100",
    "the files train, test and meta of cifar-100-python",
    "https://www.cs.toronto.edu/~kriz/cifar.html",
)
SPLITS = ("train", "test")
_SHAPE = (3, 32, 32)


class Cifar100:
    """The pictures of one split, as ``(N, 3, 32, 32)``; masks are empty.

    Levels are kept as the 150 MB that the file has; only batches become floating-point numbers.
    """

    def __init__(self, root: str | Path, split: str = "test") -> None:
        """Read a split.

        Args:
            root: the folder ``cifar-100-python``, or one that it lies in.
            split: "train" or "test".
        """
        if split not in SPLITS:
            raise InvalidParameter(f"CIFAR-100 has no split {split!r}{suggestion(split, SPLITS)}")
        base = Path(root).expanduser()
        inner = base / "cifar-100-python"
        self._path = SOURCE.file(*(folder / split for folder in (base, inner)))
        meta = SOURCE.file(self._path.parent / "meta")
        self.name = f"cifar100-{split}"
        names = pickles.load(meta, 2**20).get("fine_label_names")
        found = pickles.load(self._path)
        levels, labels = found.get("data"), found.get("fine_labels")
        if not isinstance(names, list) or not all(isinstance(name, str | bytes) for name in names):
            raise MissingFile(f"The file {str(meta)!r} has no fine_label_names.")
        self.classes = tuple(n.decode("latin-1") if isinstance(n, bytes) else n for n in names)
        if not isinstance(levels, np.ndarray) or levels.dtype != np.uint8 or levels.shape[1:] != (3072,):
            raise MissingFile(f"The file {str(self._path)!r} has no data of 3072 levels for each picture.")
        known = range(len(self.classes))
        if not isinstance(labels, list) or not all(type(label) is int and label in known for label in labels):
            raise MissingFile(f"The file {str(self._path)!r} has fine_labels that are not known.")
        if not 0 < len(levels) == len(labels):
            raise MissingFile(
                f"The file {str(self._path)!r} has {len(levels)} pictures and {len(labels)} labels."
            )
        self._levels, self.labels = levels, torch.tensor(labels)

    def __len__(self) -> int:
        return len(self._levels)

    def read(self, indices: Sequence[int]) -> Annotated:
        """The pictures with these numbers."""
        numbers = checked(indices, len(self), self.name)
        levels = torch.from_numpy(self._levels[numbers].reshape(-1, *_SHAPE))
        masks = torch.zeros(len(numbers), *_SHAPE[1:], dtype=torch.bool)
        return Annotated(levels.float().div_(255), masks, self.labels[numbers], tuple(map(str, numbers)))

    def fingerprint(self) -> Mapping[str, Any]:
        """The contents of the file."""
        return {"name": self.name, "files": reading.digest([], [self._path])}
