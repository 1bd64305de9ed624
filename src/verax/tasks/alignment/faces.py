"""Synthetic faces: drawn on the device, with every part known to the pixel.

They stand in for CelebA where that is not at hand. A smile changes the mouth and nothing else, and hair
colour changes hair and nothing else, so that it is known where a classifier has to look.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from verax.errors import InvalidParameter
from verax.seeding import Streams, parts
from verax.tasks.alignment import faces_anatomy, faces_drawing
from verax.tasks.alignment.bias import GROUPS
from verax.tasks.alignment.faces_anatomy import Variables
from verax.tasks.alignment.images import Annotated, checked, chosen_part

VERSION = 1
PARTS = tuple(part for part in faces_drawing.PARTS if part != "background")
SIZES = (32, 512)
_STRIDE = 10**9  # ids are group * stride + number, so that they can be read by eye


def variables(
    streams: Streams, smile: Tensor | None = None, hair: Tensor | None = None, pose: Tensor | None = None
) -> Variables:
    """Variables of faces; those that are not given are drawn independently of each other."""

    def spread(label: str) -> Tensor:
        return streams.uniform(label).float() * 2 - 1

    return Variables(
        streams.integers("smile", 2).bool() if smile is None else smile.bool(),
        streams.integers("hair", 2) if hair is None else hair.long(),  # black or blond
        spread("pose") if pose is None else pose.float(),
        streams.uniform("skin").float(),
        spread("light"),
        streams.uniform("background").float(),
    )


def draw(streams: Streams, given: Variables, size: int = 64) -> tuple[Tensor, Tensor]:
    """``(N, 3, size, size)`` float32 pictures in [0, 1], and ``(N, size, size)`` int8 parts.

    A part is its place in `faces_drawing.PARTS`; 0 is background.
    """
    if type(size) is not int or not SIZES[0] <= size <= SIZES[1]:
        raise InvalidParameter(f"Faces are drawn with {SIZES[0]} to {SIZES[1]} pixels a side, not {size!r}.")
    images = torch.empty(len(streams), 3, size, size, device=streams.ids.device)
    found = torch.empty(len(streams), size, size, dtype=torch.int8, device=streams.ids.device)
    for part in parts(streams.ids, 8 * size * size):
        anatomy = faces_anatomy.draw(streams[part], given[part])
        images[part], found[part] = faces_drawing.draw(anatomy, given[part], streams[part], size)
    return images, found


class Faces:
    """Drawn faces as annotated images: the label is the smile, the mask the mouth or another part.

    Args:
        counts: group -> number of faces; groups are places in `bias.GROUPS`.
        seed: of the drawing.
        size: pixels a side.
        part: the part that is the mask.
        purpose: faces for different purposes are different people; designs for the same purpose share theirs.
        device: where they are drawn and stay.
    """

    classes = ("not smiling", "smiling")

    def __init__(
        self,
        counts: Mapping[int, int],
        seed: int = 0,
        *,
        size: int = 64,
        part: str = "mouth",
        purpose: str = "train",
        device: str | torch.device = "cpu",
    ) -> None:
        self.name = f"faces-{purpose}"
        for group, count in counts.items():
            if group not in range(len(GROUPS)) or type(count) is not int or not 0 <= count <= _STRIDE:
                raise InvalidParameter(f"There cannot be {count!r} faces of group {group!r}.")
        self.part = chosen_part(part, PARTS, self.name)
        self.seed, self.size, self.purpose = seed, size, purpose
        self.counts = dict(counts)
        ids = [group * _STRIDE + torch.arange(count) for group, count in counts.items()]
        every = torch.cat(ids) if ids else torch.zeros(0, dtype=torch.int64)
        if not len(every):
            raise InvalidParameter("A set of faces needs at least one face.")
        order = Streams.of(every, "faces", "order", seed, purpose).uniform("order").argsort(stable=True)
        self._ids = every[order].to(device)

    def __len__(self) -> int:
        return len(self._ids)

    def read(self, indices: Sequence[int]) -> Annotated:
        """Draw the faces with these numbers."""
        return self.draw(torch.tensor(checked(indices, len(self), self.name)))

    def draw(self, rows: Tensor) -> Annotated:
        """The same for a tensor of numbers, which a trainer has at hand."""
        ids = self._ids[rows.to(self._ids.device)]
        group = ids // _STRIDE
        streams = Streams.of(ids, "faces", self.seed, self.purpose)
        given = variables(streams, smile=group % 2 == 0, hair=group // 2)
        images, found = draw(streams, given, self.size)
        drawn = {part: found == faces_drawing.PARTS.index(part) for part in PARTS}
        return Annotated(
            images,
            drawn[self.part],
            given.smile.long(),
            tuple(f"{GROUPS[number // _STRIDE]}-{number % _STRIDE}" for number in ids.tolist()),
            drawn,
            variables={"group": group, **vars(given)},
        )

    def fingerprint(self) -> Mapping[str, Any]:
        """Everything that the faces depend on, for hashing."""
        return {
            "kind": "faces",
            "version": VERSION,
            "counts": self.counts,
            "seed": self.seed,
            "size": self.size,
            "part": self.part,
            "purpose": self.purpose,
        }
