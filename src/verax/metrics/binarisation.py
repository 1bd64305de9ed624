"""Binarisation: which pixels of a map count as shown.

The rules of Shared Interest (Boggust et al., CHI 2022) and of Explanation Alignment (Bang, Boggust and
Satyanarayan, ECCV workshops 2024). Published code scales each map to [0, 1] first; none of the rules depends
on that, so levels are found in the map's own numbers, which costs no rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from verax.errors import InvalidInput, InvalidParameter, suggestion
from verax.metrics import pixels
from verax.protocols.sound import LIMIT
from verax.seeding import Streams

RULES = {
    "std": "at least the mean + K standard deviations of the map",
    "threshold": "at least K on the way from its minimum to its maximum",
    "percentile": "at least its K-th percentile",
    "top": "the K strongest pixels, or that share of them where K is below 1",
}
_SMALL, _LARGE = 1e-12, 1e12
"""Between these, squares in float32 neither vanish nor overflow."""
_LOST = 16
"""How many times as large as the variance the square of the mean may be, for one pass to be enough."""
DEFAULTS = {"std": 1.0, "threshold": 0.5, "percentile": 90.0, "top": 0.1}
"""Rule -> its K where none is given."""


@dataclass(frozen=True)
class Binarisation:
    """A rule with its number, such as ``std:1``.

    Attributes:
        rule: one of `RULES`.
        value: its K.
    """

    rule: str
    value: float

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise InvalidParameter(f"There is no binarisation {self.rule!r}{suggestion(self.rule, RULES)}")
        low, high = {"threshold": (0, 1), "percentile": (0, 100), "top": (0, 2**40)}.get(
            self.rule, (-100, 100)
        )
        whole = self.rule != "top" or 0 < self.value < 1 or float(self.value).is_integer()
        if not low <= self.value <= high or not whole or (self.rule == "top" and self.value == 0):
            words = (
                "a share below 1 or a whole number of pixels" if self.rule == "top" else f"{low} to {high}"
            )
            raise InvalidParameter(f"Binarisation {self.rule!r} takes {words}, not {self.value:g}.")

    @classmethod
    def of(cls, text: str | Binarisation) -> Binarisation:
        """Read ``RULE`` or ``RULE:NUMBER``."""
        if isinstance(text, Binarisation):
            return text
        rule, colon, number = str(text).partition(":")
        try:
            return cls(rule, float(number) if colon else DEFAULTS.get(rule, 0.0))
        except ValueError as error:
            if isinstance(error, InvalidParameter):
                raise
            raise InvalidParameter(f"A binarisation is written as std:1, not {str(text)!r}.") from error

    def __str__(self) -> str:
        return f"{self.rule}:{self.value:g}"

    def __call__(self, maps: Tensor) -> Tensor:
        """The pixels that count as shown, ``(N, H, W)`` bool; none of a flat map (see `flat`)."""
        measured = Flat.of(maps)
        return self.shown(measured.values, self.levels(measured)).view(maps.shape)

    def shown(self, values: Tensor, levels: Tensor) -> Tensor:
        """The same for rows ``(N, P)`` whose levels are known: ``(N, P)`` bool."""
        return self._strongest(values, levels) if self.rule == "top" else pixels.reaches(values, levels)

    def levels(self, maps: Flat) -> Tensor:
        """What a pixel must reach: ``(N, 1)`` in the type of the maps; infinity where a map is flat."""
        levels = torch.where(maps.flat[:, None], torch.inf, self._levels(maps))
        return pixels.rounded_up(levels, maps.values.dtype)

    def _levels(self, maps: Flat) -> Tensor:
        if self.rule == "threshold":
            return maps.low.double() * (1 - self.value) + maps.high.double() * self.value
        if self.rule == "percentile":
            # between two neighbours, as numpy.percentile does
            place = self.value / 100 * (maps.values.shape[1] - 1)
            below, way = int(place), place % 1
            above = min(below + 1, maps.values.shape[1] - 1)
            near = pixels.placed(maps.values, [below, above]).double()
            before, after = near[:, :1], near[:, 1:]
            return torch.where(before == after, before, before * (1 - way) + after * way)
        if self.rule == "top":
            total = maps.values.shape[1]
            return pixels.placed(maps.values, [total - self._wanted(total)]).double()
        return self._above_mean(maps)

    def _above_mean(self, maps: Flat) -> Tensor:
        count = maps.values.shape[1]
        mean = maps.about.total / count
        variance = maps.about.squares / count - mean.square()
        level: Tensor = mean + self.value * variance.clamp(min=0).sqrt()
        size = torch.maximum(maps.high.abs(), mean.abs())
        # digits are lost where the mean is large beside what is left, and squares may overflow or vanish
        lost = ~((mean.square() < _LOST * variance) & (size > _SMALL) & (size < _LARGE))[:, 0] & ~maps.flat
        if lost.any():
            level[lost] = self._with_care(maps.values[lost], maps.low[lost], maps.high[lost])
        return level

    def _with_care(self, values: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """The same after each map was scaled to [0, 1], in two passes."""
        span = high.double() - low
        scaled = (values - low) / span.to(values.dtype)
        mean = scaled.mean(1, keepdim=True)
        std = torch.linalg.vector_norm(scaled - mean, dim=1, keepdim=True).double() / values.shape[1] ** 0.5
        level: Tensor = low.double() + (mean.double() + self.value * std) * span
        return level

    def _wanted(self, total: int) -> int:
        return max(1, round(self.value * total)) if self.value < 1 else min(int(self.value), total)

    def _strongest(self, values: Tensor, levels: Tensor) -> Tensor:
        """Exactly K pixels; among equals at the K-th place, those that come first in one fixed shuffle."""
        total = values.shape[1]
        above = values > levels
        order = shuffle(total, values.device)
        tied = pixels.equals(values, levels)[:, order]
        left = self._wanted(total) - pixels.count(above)[:, None]
        chosen = torch.zeros_like(above)
        chosen[:, order] = tied & (tied.cumsum(1) <= left)
        return above | chosen


@dataclass(frozen=True)
class Flat:
    """Maps as rows, and what every rule asks of them.

    Attributes:
        values: ``(N, P)``.
        high: ``(N, 1)``; the largest value.
        flat: ``(N,)``; whether all values are the same.
        signed: whether any value may be negative.
        about: places of the largest values, and sums.
    """

    values: Tensor
    high: Tensor
    flat: Tensor
    signed: bool
    about: pixels.Measured

    @classmethod
    def of(cls, maps: Tensor) -> Flat:
        """Measure maps ``(N, H, W)``; one that holds NaN or infinity becomes constant."""
        if maps.ndim != 3 or maps.is_complex() or 0 in maps.shape[1:]:
            raise InvalidInput(f"Maps must be real numbers of shape (N, H, W), not {tuple(maps.shape)}.")
        values = maps.detach().flatten(1)
        if values.dtype not in (torch.float32, torch.float64):
            half = values.dtype in (torch.float16, torch.bfloat16)
            values = values.to(torch.float32 if half else torch.float64)
        if not len(values):
            none = values.new_zeros(0, 1)
            flat, real = none[:, 0].bool(), none.double()
            return cls(values, none, flat, False, pixels.Measured(none.long(), flat, real, real, True))
        values = values.contiguous()
        about = pixels.measure(values)
        signed = not about.plain
        most = values.gather(1, about.place)
        low, most = (values.amin(1, keepdim=True), values.amax(1, keepdim=True)) if signed else (most, most)
        # NaN and infinity show in them, and so does a span that the type cannot hold
        good = torch.maximum(low.abs(), most.abs()).double() <= LIMIT
        wide = good & ~(most - low).isfinite()
        if bool((~good | wide).any()):  # row by row: a map is what it is beside any other
            values = torch.where(good, torch.where(wide, values / 4, values), 0.0)
            about = pixels.measure(values)
        high = values.gather(1, about.place)
        flat = values[:, 0] == high[:, 0]
        if flat.any():  # only these can be
            flat[flat.clone()] = (values[flat] == high[flat]).all(1)
        return cls(values, high, flat, signed, about)

    @cached_property
    def low(self) -> Tensor:
        """``(N, 1)``; the smallest value."""
        return self.values.amin(1, keepdim=True) if len(self.values) else self.high

    @cached_property
    def ordinary(self) -> bool:
        """Whether no value is negative, and sums and squares neither vanish nor overflow."""
        if self.signed or not len(self.high):
            return False
        return bool(self.high.min() > _SMALL) and bool(self.high.max() < _LARGE)


def flat(maps: Tensor) -> Tensor:
    """Whether a map says nothing: one value everywhere, or NaN or infinity somewhere; ``(N,)`` bool."""
    return Flat.of(maps).flat


def shuffle(count: int, device: torch.device) -> Tensor:
    """One fixed order of `count` places, so that ties favour no corner."""
    return Streams.of(torch.arange(count), "binarisation").uniform("order").argsort(stable=True).to(device)


def binarise(maps: Tensor, rule: str | Binarisation = "std:1") -> Tensor:
    """The pixels of maps ``(N, H, W)`` that count as shown: bool ``(N, H, W)``.

    Ties: `std`, `threshold` and `percentile` take all pixels that reach their level. `top` takes exactly K;
    equals at the K-th place are taken in one fixed shuffled order. A constant map and one that holds NaN or
    infinity show nothing.

    Args:
        maps: any real numbers.
        rule: ``std:K``, ``threshold:K``, ``percentile:K`` or ``top:K``; see `RULES`.
    """
    return Binarisation.of(rule)(maps)
