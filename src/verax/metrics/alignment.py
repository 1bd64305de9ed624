"""Explanation alignment: all scores of maps against what people marked, with the scores of chance.

Bang, Boggust and Satyanarayan, "Explanation Alignment: quantifying the correctness of model reasoning at
scale", ECCV workshops 2024: the mean of a score over a data set says whether a model looks where people do.
A mean alone says little: a region that covers a third of the picture is met often by chance.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from verax.errors import InvalidParameter, suggestion
from verax.metrics import chance, pixels
from verax.metrics.binarisation import Binarisation, Flat
from verax.metrics.pointing import check_pointing, dilated, pointing_rows
from verax.metrics.shared_interest import MASSES, Counts, checked_masks, weights

SCORES = ("iou", "ground-truth-coverage", "saliency-coverage", "pointing-game", "energy")
"""The scores of alignment, in the order of their columns."""
EMPTY = ("left out", "miss")
CHANNELS = ("sum", "magnitude")


@dataclass(frozen=True)
class Judging:
    """How maps are compared with masks.

    Attributes:
        binarisation: which pixels count as shown.
        tolerance: of the pointing game, in pixels.
        ties: of the pointing game: "expected" or "first".
        mass: what `energy` adds up: "positive", "magnitude" or "scaled".
        empty: images in which nothing is marked are "left out" (NaN, and counted), or a "miss" (0, as
            published).
    """

    binarisation: Binarisation = field(default_factory=lambda: Binarisation("std", 1.0))
    tolerance: float = 0
    ties: str = "expected"
    mass: str = "positive"
    empty: str = "left out"

    def __post_init__(self) -> None:
        check_pointing(self.tolerance, self.ties)
        for noun, value, known in (("mass", self.mass, MASSES), ("empty", self.empty, EMPTY)):
            if value not in known:
                quoted = " or ".join(map(repr, known))
                raise InvalidParameter(f"{noun} is {quoted}{suggestion(str(value), known)}")


@dataclass(frozen=True)
class Judged:
    """Scores of N maps.

    Attributes:
        scores: name -> ``(N,)`` float64, NaN where it is not defined.
        random: the same scores, expected of as many pixels at random places.
        centre: the same scores of as many pixels around the centre.
        area: ``(N,)``; the part of the picture that is marked.
        shown: ``(N,)``; the part of the picture that the map shows.
        empty: ``(N,)`` bool; nothing is marked.
        flat: ``(N,)`` bool; the map says nothing: it is constant, or holds NaN or infinity.
    """

    scores: dict[str, Tensor]
    random: dict[str, Tensor]
    centre: dict[str, Tensor]
    area: Tensor
    shown: Tensor
    empty: Tensor
    flat: Tensor


def judge(maps: Tensor, masks: Tensor, judging: Judging | None = None) -> Judged:
    """All scores of maps ``(N, H, W)`` against masks ``(N, H, W)``.

    Args:
        maps: one map for each picture; see `collapse`.
        masks: what people marked.
        judging: how they are compared.
    """
    judging = judging or Judging()
    marked = checked_masks(masks, maps)
    scores, counts, flat = _scores(maps, marked, judging)
    marked = marked.flatten(1)
    by_chance = chance.random_scores(counts)
    centre = chance.centre_scores(counts, marked, *masks.shape[1:])
    if judging.tolerance > 1:  # what is near enough counts as marked, for chance as well
        near = dilated(marked.view(masks.shape), judging.tolerance).flatten(1)
        wide = Counts(counts.both, pixels.count(near), counts.shown, counts.pixels)
        by_chance["pointing-game"] = torch.where(counts.marked > 0, wide.area, torch.nan)
        middle = chance.centre_scores(wide, near, *masks.shape[1:])["pointing-game"]
        centre["pointing-game"] = torch.where(counts.marked > 0, middle, torch.nan)
    return Judged(
        scores,
        _defined(by_chance, judging),
        _defined(centre, judging),
        counts.area,
        counts.shown.double() / counts.pixels,
        counts.marked == 0,
        flat,
    )


def shared_interest(maps: Tensor, masks: Tensor, judging: Judging | None = None) -> dict[str, Tensor]:
    """The scores alone, without those of chance: name -> ``(N,)``."""
    return _scores(maps, checked_masks(masks, maps), judging or Judging())[0]


def _scores(maps: Tensor, masks: Tensor, judging: Judging) -> tuple[dict[str, Tensor], Counts, Tensor]:
    every, measured = masks.flatten(1), Flat.of(maps)
    levels = judging.binarisation.levels(measured)

    def region(part: slice) -> Tensor:
        return judging.binarisation.shown(measured.values[part], levels[part])

    found = pixels.compare(every, region, *weights(measured, judging.mass))
    counts = Counts(found.both, found.marked, found.shown, every.shape[1])
    near = every if judging.tolerance <= 1 else dilated(masks, judging.tolerance).flatten(1)
    hit, mass = pointing_rows(measured, near, judging.ties), (found.inside / found.whole).clamp(0, 1)
    scores = {
        "iou": counts.iou,
        "ground-truth-coverage": counts.ground_truth_coverage,
        "saliency-coverage": counts.saliency_coverage,
        "pointing-game": torch.where(counts.marked > 0, hit, torch.nan),
        "energy": torch.where(counts.marked > 0, mass, torch.nan),
    }
    return _defined(scores, judging), counts, measured.flat


def _defined(scores: dict[str, Tensor], judging: Judging) -> dict[str, Tensor]:
    if judging.empty == "left out":
        return scores
    return {name: score.nan_to_num(0.0) for name, score in scores.items()}


def collapse(attributions: Tensor, channels: str = "sum") -> Tensor:
    """One map for each picture: ``(N, C, H, W)`` or ``(N, H, W)`` -> ``(N, H, W)``.

    Args:
        attributions: of a method.
        channels: "sum", or "magnitude": the sum of magnitudes, which is how gradients are read.
    """
    if channels not in CHANNELS:
        raise InvalidParameter(
            f"Channels are joined by {' or '.join(CHANNELS)}{suggestion(channels, CHANNELS)}"
        )
    values = attributions.detach()
    values = values.abs() if channels == "magnitude" else values
    return values if values.ndim == 3 else values.sum(1)
