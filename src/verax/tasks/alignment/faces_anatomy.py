"""What a drawn face looks like: numbers for its build, pose, colours and light, from random streams."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from verax.seeding import Streams

HAIR = {
    "black": (0.09, 0.08, 0.08),
    "blond": (0.86, 0.71, 0.40),
    "brown": (0.36, 0.22, 0.13),
    "red": (0.62, 0.26, 0.11),
    "grey": (0.62, 0.62, 0.63),
}
"""Hair colours; the number of a colour is its place here."""

_SKIN = (
    (0.98, 0.85, 0.75),
    (0.94, 0.77, 0.64),
    (0.85, 0.65, 0.49),
    (0.70, 0.49, 0.34),
    (0.52, 0.34, 0.23),
    (0.36, 0.23, 0.16),
)
_IRIS = ((0.25, 0.15, 0.08), (0.35, 0.24, 0.12), (0.25, 0.45, 0.60), (0.30, 0.46, 0.28))
_LENGTHS = 3  # short, to the chin, long


@dataclass(frozen=True, eq=False)
class Variables:
    """What is varied on purpose, one value for each face.

    Attributes:
        smile: bool; changes the mouth and nothing else.
        hair: int64; a place in `HAIR`; changes the colour of hair and nothing else (brows have their own).
        pose: float32 in [-1, 1]; the head turned from left to right.
        skin: float32 in [0, 1]; from light to dark.
        light: float32 in [-1, 1]; the side that the light comes from.
        background: float32 in [0, 1]; the hue behind the head.
    """

    smile: Tensor
    hair: Tensor
    pose: Tensor
    skin: Tensor
    light: Tensor
    background: Tensor

    def __getitem__(self, index: slice) -> Variables:
        """The variables of some of the faces."""
        return Variables(*(values[index] for values in vars(self).values()))


@dataclass(frozen=True, eq=False)
class Anatomy:
    """Everything else, each ``(N, 1, 1)`` or, for colours, ``(N, 3, 1, 1)``; units are half pictures."""

    numbers: dict[str, Tensor]
    colours: dict[str, Tensor]

    def __getitem__(self, name: str) -> Tensor:
        return self.numbers[name]


_RANGES = {
    "centre_x": (-0.05, 0.05),
    "centre_y": (-0.02, 0.06),
    "scale": (1.18, 1.34),
    "roll": (-0.12, 0.12),
    "pitch": (-0.03, 0.03),
    "face_width": (0.41, 0.47),
    "face_height": (0.55, 0.61),
    "jaw": (0.15, 0.45),
    "eye_row": (-0.07, -0.02),
    "eye_apart": (0.175, 0.205),
    "eye_width": (0.092, 0.112),
    "eye_open": (0.045, 0.065),
    "gaze": (-0.025, 0.025),
    "brow_gap": (0.10, 0.13),
    "brow_arch": (0.01, 0.04),
    "brow_thick": (0.014, 0.026),
    "brow_tilt": (-0.15, 0.15),
    "nose_length": (0.15, 0.20),
    "nose_width": (0.060, 0.085),
    "mouth_row": (0.29, 0.34),
    "mouth_width": (0.165, 0.20),
    "upper_lip": (0.026, 0.040),
    "lower_lip": (0.034, 0.050),
    "hair_volume": (0.06, 0.14),
    "hair_line": (-0.42, -0.27),
    "hair_fall": (0.3, 2.2),
    "hair_part": (-0.20, 0.20),
    "strands": (45.0, 80.0),
    "phase": (0.0, 6.28),
    "neck_width": (0.15, 0.20),
    "shoulders": (0.70, 0.95),
    "brightness": (0.90, 1.18),
    "warmth": (-0.05, 0.05),
}


def _between(drawn: Tensor, low: Tensor | float, high: Tensor | float) -> Tensor:
    return low + drawn * (high - low)


def _mixed(table: tuple[tuple[float, ...], ...], at: Tensor) -> Tensor:
    """Colours between the entries of a table, at 0 .. 1: ``(N, 3)``."""
    colours = torch.tensor(table, device=at.device)
    place = at.clamp(0, 1) * (len(table) - 1)
    first = place.floor().long().clamp(max=len(table) - 2)
    return torch.lerp(colours[first], colours[first + 1], (place - first)[:, None])


def hue(at: Tensor, strength: Tensor, level: Tensor) -> Tensor:
    """``(N, 3)`` colours around the colour circle."""
    thirds = torch.tensor([0.0, 1 / 3, 2 / 3], device=at.device)
    wave = 0.5 + 0.5 * torch.cos(2 * torch.pi * (at[:, None] - thirds))
    return (level[:, None] * (1 - strength[:, None] + strength[:, None] * wave)).clamp(0, 1)


def draw(streams: Streams, given: Variables) -> Anatomy:
    """Draw the build of faces; it depends on the variables only where they say so."""

    def uniform(label: str) -> Tensor:
        return streams.uniform(label).float()

    numbers = {name: _between(uniform(name), *ends) for name, ends in _RANGES.items()}
    numbers["length"] = streams.integers("length", _LENGTHS).float()
    smiles, drawn = given.smile, uniform("curve")
    numbers["curve"] = torch.where(smiles, _between(drawn, 0.075, 0.12), _between(drawn, -0.022, 0.012))
    shut = uniform("shut") < torch.where(smiles, 0.25, 0.75)
    wide = torch.where(smiles, _between(uniform("open"), 0.045, 0.090), _between(uniform("open"), 0.0, 0.030))
    numbers["open"] = torch.where(shut, 0.0, wide)
    numbers["mouth_width"] = numbers["mouth_width"] * torch.where(smiles, 1.25, 1.0)

    jitter = streams.uniform("jitter", 4, 3).float() - 0.5
    skin = _mixed(_SKIN, given.skin) + 0.04 * jitter[:, 0]
    hair = torch.tensor(tuple(HAIR.values()), device=skin.device)[given.hair] + 0.06 * jitter[:, 1]
    brow = _mixed(((0.10, 0.07, 0.06), (0.42, 0.28, 0.17)), uniform("brow")) * (0.6 + 0.4 * skin)
    red = torch.tensor([0.72, 0.30, 0.30], device=skin.device)
    lips = torch.lerp(
        skin * torch.tensor([0.90, 0.62, 0.60], device=skin.device), red, uniform("lips")[:, None] * 0.5
    )
    half = torch.full_like(given.skin, 0.40)
    colours = {
        "skin": skin,
        "hair": hair,
        "brow": brow,
        "lips": lips,
        "iris": torch.tensor(_IRIS, device=skin.device)[streams.integers("iris", len(_IRIS))],
        "cloth": hue(
            uniform("cloth"),
            _between(uniform("cloth strength"), 0.1, 0.9),
            _between(uniform("cloth level"), 0.15, 0.95),
        ),
        "above": hue(given.background, half, _between(uniform("above"), 0.35, 0.95)),
        "below": hue(given.background + 0.1, half, _between(uniform("below"), 0.35, 0.95)),
    }
    return Anatomy(
        {name: values[:, None, None] for name, values in numbers.items()},
        {name: values.clamp(0, 1)[:, :, None, None] for name, values in colours.items()},
    )
