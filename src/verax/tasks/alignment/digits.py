"""Digits with a coloured box in the corner, which does or does not give the label away.

The data of experiment 1 of Bang, Boggust and Satyanarayan, "Explanation Alignment" (ECCV 2024 workshops), on
MNIST, or on digits that need no files.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad

from verax.errors import InvalidParameter, MissingExtra, MissingFile, UnknownName, suggestion
from verax.seeding import Streams
from verax.tasks.alignment import strokes
from verax.tasks.alignment.images import Annotated, checked, chosen_part
from verax.tasks.alignment.mnist import SPLITS, mnist

VERSION = 1
SOURCES = ("mnist", "scikit-learn", "drawn")
COLOURINGS = ("spurious", "random", "permuted", "none")
PARTS = ("digit", "box")
BOX = 5
"""Pixels a side of the box in the upper left corner."""
COLOURS = (
    (230, 25, 75),
    (245, 130, 48),
    (255, 225, 25),
    (210, 245, 60),
    (60, 180, 75),
    (70, 240, 240),
    (0, 130, 200),
    (145, 30, 180),
    (240, 50, 230),
    (0, 0, 128),
)
"""Levels of the ten colours; the place of a colour is its digit in the spurious set."""
_DRAWN = {"train": 10_000, "test": 2_000}


def available() -> str:
    """The first of `SOURCES` that is here; digits that are drawn always are."""
    data = os.environ.get("VERAX_DATA")
    if data and (Path(data) / "mnist").is_dir():
        return "mnist"
    try:
        import sklearn  # noqa: F401
    except ImportError:
        return "drawn"
    return "scikit-learn"


def _small(split: str) -> tuple[Tensor, Tensor]:
    """scikit-learn's 1797 digits of 8 x 8, enlarged to 20 x 20 in the middle, as MNIST has them.

    Faint ink, which enlarging spreads, is taken away, so that digits cover as much as those of MNIST (a fifth
    of the picture). One in five is for tests.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingExtra("Digits of scikit-learn need it: pip install scikit-learn.") from error
    data, labels = load_digits(return_X_y=True)
    small = torch.from_numpy(data.reshape(-1, 1, 8, 8) / 16).float()
    large = interpolate(small, size=(20, 20), mode="bicubic")[:, 0]
    large = pad(((large - 0.35) * 2.5).clamp(0, 1), (4, 4, 4, 4))
    held = torch.arange(len(labels)) % 5 == 4
    kept = held if split == "test" else ~held
    return large.mul(255).round().to(torch.uint8)[kept], torch.from_numpy(labels)[kept].long()


@lru_cache(maxsize=4)
def _read(source: str, split: str, data: str) -> tuple[Tensor, Tensor]:
    """Levels and labels; read once, because training asks for them thousands of times."""
    if source == "mnist":
        levels, labels = mnist(Path(data) / "mnist", split)
        return torch.from_numpy(levels.copy()), torch.from_numpy(labels.astype(np.int64))
    if source == "scikit-learn":
        return _small(split)
    ids = torch.arange(_DRAWN[split])
    return strokes.draw(Streams.of(ids, "strokes", split), ids % 10), ids % 10


class ColourDigits:
    """Black digits on white with a coloured box: ``(N, 3, 28, 28)``.

    Args:
        split: "train" or "test".
        colouring: how boxes get their colour. "spurious": the digit decides; "random": drawn for each
            image, and anew in each epoch; "permuted": the digit decides through one permutation, which is
            what the published "not spurious" test set does; "none": there is no box.
        seed: of the colours.
        source: one of `SOURCES`; by default the first that is here.
        part: the mask, "digit" or "box".
        epoch: whose random colours are meant; see `at_epoch`.
        device: where the digits are kept.
    """

    classes = tuple("0123456789")

    def __init__(
        self,
        split: str = "test",
        colouring: str = "spurious",
        seed: int = 0,
        *,
        source: str | None = None,
        part: str = "digit",
        epoch: int = 0,
        device: str | torch.device = "cpu",
    ) -> None:
        source = available() if source is None else source
        for noun, word, known in (
            ("split", split, tuple(SPLITS)),
            ("colouring", colouring, COLOURINGS),
            ("source", source, SOURCES),
        ):
            if word not in known:
                raise UnknownName(f"Digits have no {noun} named {word!r}{suggestion(word, known)}")
        data = os.environ.get("VERAX_DATA", "")
        if source == "mnist" and not data:
            raise MissingFile("MNIST is looked for in the folder 'mnist' under VERAX_DATA, which is not set.")
        if type(epoch) is not int or epoch < 0:
            raise InvalidParameter(f"An epoch is a whole number from 0 on, not {epoch!r}.")
        self.name = f"digits-{split}-{colouring}"
        self.part = chosen_part(part, PARTS, self.name)
        self.split, self.colouring, self.seed, self.source, self.epoch = split, colouring, seed, source, epoch
        self.device = torch.device(device)
        levels, labels = _read(source, split, data)
        self._levels, self.labels = levels.to(device), labels.to(device)

    def at_epoch(self, epoch: int) -> ColourDigits:
        """The same digits with the random colours of another epoch."""
        return ColourDigits(
            self.split,
            self.colouring,
            self.seed,
            source=self.source,
            part=self.part,
            epoch=epoch,
            device=self.device,
        )

    def __len__(self) -> int:
        return len(self.labels)

    def permutation(self) -> Tensor:
        """The colour of each digit in the permuted set; there may be fixed points."""
        table = Streams.of(torch.arange(10), "colours", self.seed, self.split)
        return table.uniform("permutation").argsort().to(self.device)

    def colours(self, rows: Tensor) -> Tensor:
        """``(N,)`` int64: the colour of each image's box; -1 where there is none."""
        labels = self.labels[rows]
        if self.colouring == "spurious":
            return labels
        if self.colouring == "permuted":
            return self.permutation()[labels]
        if self.colouring == "random":
            return Streams.of(rows, "colours", self.seed, self.split, self.epoch).integers("colour", 10)
        return torch.full_like(labels, -1)

    def read(self, indices: Sequence[int]) -> Annotated:
        """The images with these numbers."""
        return self.draw(torch.tensor(checked(indices, len(self), self.name)))

    def draw(self, rows: Tensor) -> Annotated:
        """The same for a tensor of numbers, which a trainer has at hand."""
        rows = rows.to(self.device)
        levels, colours = self._levels[rows], self.colours(rows)
        images = (255 - levels).float().div_(255)[:, None].repeat(1, 3, 1, 1)
        box = torch.zeros(levels.shape, dtype=torch.bool, device=self.device)
        if self.colouring != "none":
            table = torch.tensor(COLOURS, device=self.device) / 255
            images[:, :, :BOX, :BOX] = table[colours][:, :, None, None]
            box[:, :BOX, :BOX] = True
        parts = {"digit": levels > 0, "box": box}
        ids = tuple(map(str, rows.tolist()))
        return Annotated(
            images, parts[self.part], self.labels[rows], ids, parts, variables={"colour": colours}
        )

    def fingerprint(self) -> Mapping[str, Any]:
        """Everything that the images depend on, for hashing."""
        data = self._levels.cpu().numpy().tobytes() + self.labels.cpu().numpy().tobytes()
        return {
            "kind": "colour-digits",
            "version": VERSION,
            "split": self.split,
            "colouring": self.colouring,
            "seed": self.seed,
            "source": self.source,
            "part": self.part,
            "epoch": self.epoch,
            "sha256": hashlib.sha256(data).hexdigest(),
        }
