"""Shared Interest: how the region that people marked and the region that a map shows lie to each other.

Boggust, Hoover, Satyanarayan and Strobelt, "Shared Interest: measuring human-AI alignment to identify
recurring patterns in model behavior", CHI 2022. With G the pixels marked by people and S those shown::

    IoU                    |G & S| / |G | S|
    ground-truth coverage  |G & S| / |G|
    saliency coverage      |G & S| / |S|,  or sum of the map in G / sum of the map

The last one, on the map's own numbers, is the energy-based pointing game of Wang et al. (CVPR-W 2020).

What the original leaves as 0 / 0 is defined: with an empty G there is nothing to align with, and all scores
are NaN; an empty S covers nothing, and all three are 0; a map without mass counts as constant, so its share
is the area of G.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from verax.errors import InvalidInput, InvalidParameter, suggestion
from verax.metrics import pixels
from verax.metrics.binarisation import Flat

MASSES = ("positive", "magnitude", "scaled")
_SMALL, _LARGE = 1e-30, 1e30
"""Between these, sums in float32 neither vanish nor overflow."""


def checked_masks(masks: Tensor, like: Tensor, noun: str = "Masks") -> Tensor:
    """Masks as bool on the device of `like`; they must hold nothing but 0 and 1 and fit its shape."""
    if masks.shape != like.shape or masks.ndim != 3:
        raise InvalidInput(
            f"{noun} and maps must have one shape (N, H, W), "
            f"not {tuple(masks.shape)} and {tuple(like.shape)}."
        )
    if masks.dtype != torch.bool:
        if not ((masks == 0) | (masks == 1)).all():
            raise InvalidInput(f"{noun} must hold nothing but 0 and 1.")
        masks = masks != 0
    return masks.to(like.device).contiguous()


@dataclass(frozen=True)
class Counts:
    """Sizes of two regions and of what they share: int64 ``(N,)`` each.

    Attributes:
        both: pixels that are marked and shown.
        marked: pixels that people marked.
        shown: pixels that the map shows.
        pixels: of a whole picture.
    """

    both: Tensor
    marked: Tensor
    shown: Tensor
    pixels: int

    @classmethod
    def of(cls, shown: Tensor, masks: Tensor) -> Counts:
        """Count regions ``(N, H, W)``."""
        marked = checked_masks(masks, shown)
        return cls.rows(checked_masks(shown, shown, "Regions").flatten(1), marked.flatten(1))

    @classmethod
    def rows(cls, shown: Tensor, marked: Tensor) -> Counts:
        """Count regions ``(N, P)`` bool."""
        both = pixels.count(shown & marked)
        return cls(both, pixels.count(marked), pixels.count(shown), marked.shape[1])

    def _share(self, whole: Tensor) -> Tensor:
        score = self.both.double() / torch.where(whole > 0, whole, 1)
        return torch.where(self.marked > 0, score, torch.nan)

    @property
    def iou(self) -> Tensor:
        """Intersection over union."""
        return self._share(self.marked + self.shown - self.both)

    @property
    def ground_truth_coverage(self) -> Tensor:
        """The part of what was marked that is shown."""
        return self._share(self.marked)

    @property
    def saliency_coverage(self) -> Tensor:
        """The part of what is shown that was marked."""
        return self._share(self.shown)

    @property
    def area(self) -> Tensor:
        """The part of the picture that was marked."""
        return self.marked.double() / self.pixels


def iou(shown: Tensor, masks: Tensor) -> Tensor:
    """|G & S| / |G | S| of regions ``(N, H, W)``: ``(N,)``; NaN where nothing was marked."""
    return Counts.of(shown, masks).iou


def ground_truth_coverage(shown: Tensor, masks: Tensor) -> Tensor:
    """|G & S| / |G| of regions ``(N, H, W)``: ``(N,)``; NaN where nothing was marked."""
    return Counts.of(shown, masks).ground_truth_coverage


def saliency_coverage(shown: Tensor, masks: Tensor) -> Tensor:
    """|G & S| / |S| of regions ``(N, H, W)``: ``(N,)``; NaN where nothing was marked, 0 where nothing shows.

    See `energy` for maps that are not binary.
    """
    return Counts.of(shown, masks).saliency_coverage


def energy(maps: Tensor, masks: Tensor, mass: str = "positive") -> Tensor:
    """The share of a map's mass that lies in the mask: ``(N,)``; NaN where nothing was marked.

    Args:
        maps: ``(N, H, W)``.
        masks: ``(N, H, W)``.
        mass: the "positive" part of the map, its "magnitude" (as the code of Shared Interest does), or the
            map "scaled" to 0 for its minimum and 1 for its maximum (as Score-CAM's authors do).
    """
    if mass not in MASSES:
        raise InvalidParameter(f"There is no mass named {mass!r}{suggestion(str(mass), MASSES)}")
    marked, measured = checked_masks(masks, maps).flatten(1), Flat.of(maps)
    found = pixels.compare(marked, None, *weights(measured, mass))
    return torch.where(found.marked > 0, (found.inside / found.whole).clamp(0, 1), torch.nan)


def weights(maps: Flat, mass: str = "positive") -> tuple[pixels.Rows, Tensor | None]:
    """What `energy` adds up, for some of the maps at a time, and the sums, where they are known already."""
    if mass != "scaled" and maps.ordinary:
        return maps.values.__getitem__, maps.about.total[:, 0]

    def some(part: slice) -> Tensor:
        values = maps.values[part]
        if mass == "scaled":
            values = values - maps.low[part]
        else:
            values = values.abs() if mass == "magnitude" else values.clamp(min=0)
        peak = values.amax(1, keepdim=True)
        if peak.min() > _SMALL and peak.max() < _LARGE:
            return values
        # ones instead of nothing, and no sum that overflows
        return torch.where(peak > 0, values / torch.where(peak > 0, peak, 1), 1.0)

    return some, None
