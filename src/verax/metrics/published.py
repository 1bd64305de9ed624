"""The metrics of the SMERF paper, as its code computes them.

Kim, Plumb and Talwalkar, "Sanity Simulations for Saliency Methods", ICML 2022. AFL is attribution focus
level, MAFL its mean over pixels, IOU intersection over union; P stands for the primary objects (role FOCUS)
and S for the secondary ones (role AVOID). They read the maps of the `published` protocol and the rectangles
``truth.boxes``. A case without objects of the role is undefined (NaN).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from verax.cases import Role, Truth
from verax.errors import InvalidInput, InvalidParameter, suggestion
from verax.metrics.ranks import comparable

BINS = 10
"""Bins of the histogram that the IOU takes its threshold from."""

THRESHOLDS = ("single", "multi")

_CELLS, _CACHED = 2**25, 2**18
"""Numbers that are made at once on a GPU, and on a CPU."""


def afl(values: Tensor, truth: Truth, role: Role = Role.FOCUS) -> Tensor:
    """Attribution focus level: mass of the rescaled map inside the boxes of `role`, ``(N,)``.

    Overlapping boxes are counted twice, as published. A constant map gives 0: there the original divides by
    zero, and its plots turn the NaN into 0.
    """
    return Boxed(values, truth).afl(role)


def mafl(values: Tensor, truth: Truth, role: Role = Role.FOCUS) -> Tensor:
    """Mean attribution focus level: mean of the rescaled map over the pixels in boxes of `role`, ``(N,)``.

    Pixels of several boxes are counted once for each. A constant map gives 0, as for `afl`.
    """
    return Boxed(values, truth).mafl(role)


def iou(
    values: Tensor,
    truth: Truth,
    role: Role = Role.FOCUS,
    threshold: str = "single",
    count: int | None = None,
) -> Tensor:
    """Mean over the boxes of `role` of the IOU between one box and the strong pixels of the map, ``(N,)``.

    Because each box meets the whole mask, n disjoint objects can never score more than 1/n.

    Args:
        values: ``(N, H, W)`` maps of the published protocol.
        truth: the truth about the same cases.
        role: FOCUS for PIOU, AVOID for SIOU.
        threshold: "single" cuts at the area of the focus boxes whatever the role (as in the paper); "multi"
            cuts at the area of the boxes of `role`.
        count: cut at so many pixels instead (Figure 15 of the paper).
    """
    if threshold not in THRESHOLDS:
        raise InvalidParameter(
            f"There is no threshold named {threshold!r}{suggestion(str(threshold), THRESHOLDS)}"
        )
    boxed = Boxed(values, truth)
    measured = Role.FOCUS if threshold == "single" else role
    return boxed.overlap(role, boxed.cut(measured) if count is None else boxed.cut_at(count))


def scores(values: Tensor, truth: Truth) -> dict[str, Tensor]:
    """All of them: name -> ``(N,)``; p stands for FOCUS, s for AVOID.

    PIOU is the same under both thresholds, so that only SIOU has a second form.
    """
    boxed, primary, secondary = Boxed(values, truth), Role.FOCUS, Role.AVOID
    single = boxed.cut(primary)
    return {
        "pafl": boxed.afl(primary),
        "safl": boxed.afl(secondary),
        "piou": boxed.overlap(primary, single),
        "siou": boxed.overlap(secondary, single),
        "pmafl": boxed.mafl(primary),
        "smafl": boxed.mafl(secondary),
        "siou-multi": boxed.overlap(secondary, boxed.cut(secondary)),
    }


@dataclass(frozen=True)
class Cut:
    """The strong pixels of each map.

    Attributes:
        shared: how many of them lie in each box, ``(N, K)``.
        strong: how many there are, ``(N,)``.
    """

    shared: Tensor
    strong: Tensor


class Boxed:
    """Maps beside the boxes of their cases; what several metrics ask of them is worked out once."""

    def __init__(self, values: Tensor, truth: Truth) -> None:
        self.values, self.truth = comparable(values), truth
        boxes = truth.boxes.to(values.device)
        if boxes.shape[0] != values.shape[0]:
            raise InvalidInput(
                f"There are {values.shape[0]} maps, but the truth about {boxes.shape[0]} cases."
            )
        row0, row1, col0, col1 = boxes[:, :, None].unbind(3)
        row, column = (torch.arange(size, device=values.device) for size in values.shape[1:])
        self._rows, self._columns = (row >= row0) & (row < row1), (column >= col0) & (column < col1)
        self._areas = ((row1 - row0).clamp(min=0) * (col1 - col0).clamp(min=0))[..., 0]

    def afl(self, role: Role) -> Tensor:
        """As the function of that name."""
        listed = self._listed(role)
        return torch.where(listed.any(1), (self._masses * listed).sum(1), torch.nan)

    def mafl(self, role: Role) -> Tensor:
        """As the function of that name."""
        listed = self._listed(role)
        # 0 / 0 = NaN where nothing is listed
        return (self._masses * listed).sum(1) / (self._pixels * listed).sum(1)

    def overlap(self, role: Role, cut: Cut) -> Tensor:
        """The mean IOU between one box of `role` and the strong pixels."""
        listed, union = self._listed(role), cut.strong[:, None] + self._pixels - cut.shared
        return torch.where(listed, cut.shared / union, 0.0).sum(1) / listed.sum(1)

    def cut(self, role: Role) -> Cut:
        """The strongest pixels, about as many as the boxes of `role` cover."""
        return self._cut((self._areas * self._listed(role)).sum(1))

    def cut_at(self, count: int) -> Cut:
        """About so many of the strongest pixels."""
        return self._cut(torch.full((len(self.values),), count, device=self.values.device))

    def _cut(self, wanted: Tensor) -> Cut:
        level = histogram_threshold(self.values, wanted)
        strong = (self.values >= level[:, None, None]).to(torch.float64)
        return Cut(self._sums(strong), strong.sum((1, 2)))

    @cached_property
    def _masses(self) -> Tensor:
        """The mass of each rescaled map inside each box."""
        return self._sums(_densities(self.values))

    @cached_property
    def _pixels(self) -> Tensor:
        """The pixels of each map inside each box."""
        return (self._rows.sum(2) * self._columns.sum(2)).to(torch.float64)

    def _listed(self, role: Role) -> Tensor:
        """Which objects have the role: ``(N, K)`` bool."""
        return (self.truth.roles == role).to(self.values.device)

    def _sums(self, values: Tensor) -> Tensor:
        """The sum of each map inside each box: ``(N, H, W)`` -> ``(N, K)``."""
        rows, columns = self._rows, self._columns
        sums = [
            torch.where(rows[some, ..., None] & columns[some, :, None], values[some, None], 0.0).sum((2, 3))
            for some in _parts(values, rows.shape[1])
        ]
        return torch.cat(sums)


def histogram_threshold(values: Tensor, count: Tensor) -> Tensor:
    """The lower edge of the highest of 10 equal bins above which at least `count` pixels lie: ``(N,)``.

    The edges are those of ``numpy.histogram``, which also widens an empty range by 0.5 on both sides. When
    there are fewer pixels than `count` (overlapping boxes) all of them are taken; the original fails.
    """
    lowest, highest = values.amin((1, 2)), values.amax((1, 2))
    margin = torch.where(lowest == highest, 0.5, 0.0).to(torch.float64)
    lowest, highest = lowest - margin, highest + margin
    step = (highest - lowest) / BINS
    number = torch.arange(BINS, device=values.device)
    edges = torch.cat([lowest[:, None], number[1:] * step[:, None] + lowest[:, None]], 1)
    above = [(values[some, None] >= edges[some, :, None, None]).sum((2, 3)) for some in _parts(values, BINS)]
    # Fewer pixels lie above a higher edge, so the last edge that suffices is the highest one.
    enough = torch.cat(above) >= count[:, None]
    return edges.gather(1, (number * enough).amax(1, keepdim=True))[:, 0]


def _densities(values: Tensor) -> Tensor:
    """Each map moved to [0, 1] and divided by its sum; zeros where it is constant."""
    lowest, highest = values.amin((1, 2), keepdim=True), values.amax((1, 2), keepdim=True)
    span = highest - lowest
    scaled = torch.where((span > 0) & span.isfinite(), (values - lowest) / span, 0.0)
    return scaled / scaled.sum((1, 2), keepdim=True).clamp(min=1.0)  # the sum is at least 1, the maximum


def _parts(values: Tensor, times: int) -> list[slice]:
    """Slices of maps that fit into memory, or on a CPU into its cache, so many times."""
    cells = _CELLS if values.is_cuda else _CACHED
    step = max(1, cells // max(1, times * values[0].numel())) if len(values) else 1
    return [slice(start, start + step) for start in range(0, max(1, len(values)), step)]
