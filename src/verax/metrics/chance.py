"""Chance: what a map that knows nothing scores against masks of these sizes.

Two maps know nothing. One shows as many pixels as the map in question, at random places; its expected scores
are exact. The other shows as many pixels around the centre of the picture, where people put what they
photograph. Both have the size of the map in question, so that a large region is no merit.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from verax.metrics import pixels
from verax.metrics.shared_interest import Counts

_TAILS = 9.0
"""Standard deviations of the hypergeometric distribution that are summed over; the rest is below 1e-15."""
_CELLS = 1 << 16
"""Terms worked on at once on a CPU, so that they stay in its cache."""
_WIDTH = 0.25
"""Standard deviation of the centre map as a share of the picture, as in the control `centre`."""


def random_iou(counts: Counts) -> Tensor:
    """The expected IoU of ``shown`` pixels at random places with ``marked`` ones: ``(N,)``; NaN if none is.

    The number of pixels in common is hypergeometric; the expectation is a sum over its values.
    """
    shown, marked, total = counts.shown, counts.marked, counts.pixels
    score = torch.empty(len(shown), dtype=torch.float64, device=shown.device)
    if not len(shown):
        return score
    share = marked.double() / total
    std = (shown * share * (1 - share) * (total - shown) / max(1, total - 1)).sqrt()
    wide = int(_TAILS * float(std.max())) + 2
    step = len(score) if score.device.type != "cpu" else max(1, _CELLS // (2 * wide + 1))
    for first in range(0, len(score), step):
        some = slice(first, first + step)
        score[some] = _expected_iou(shown[some, None], marked[some, None], total, wide)
    return torch.where(marked > 0, score, torch.nan)


def _expected_iou(shown: Tensor, marked: Tensor, total: int, wide: int) -> Tensor:
    """The same from sizes ``(N, 1)`` and how many values to either side of the centre count."""
    low, high = (shown + marked - total).clamp(min=0), torch.minimum(shown, marked)
    middle = (shown * (marked.double() / total)).round().long()
    both = middle + torch.arange(-wide, wide + 1, device=shown.device)
    possible = (both >= low) & (both <= high)
    both = both.clamp(low, high)
    log = _log_factorials(total, shown.device)
    ways = log[both] + log[marked - both] + log[shown - both] + log[(total - marked - shown) + both]
    weights = ways.neg_().masked_fill_(~possible, -torch.inf).softmax(1)
    return (weights * both / (shown + marked - both).clamp(min=1)).sum(1)


@lru_cache(maxsize=8)
def _log_factorials(most: int, device: torch.device) -> Tensor:
    """Of 0 to `most`: float64; they are looked up rather than computed for each term."""
    return torch.lgamma(torch.arange(1, most + 2, dtype=torch.float64, device=device))


def centre_bump(height: int, width: int, device: torch.device) -> Tensor:
    """A round bump in the centre of a picture: ``(H, W)`` float64, the largest values in the centre."""
    # from whole numbers, so that places equally far from the centre are so to the last bit
    rows, cols = (torch.arange(1 - s, s, 2, dtype=torch.float64) / (2 * s) for s in (height, width))
    away = rows[:, None].square() + cols.square()
    return torch.exp(-0.5 * away / _WIDTH**2).to(device)


@lru_cache(maxsize=8)
def _around_the_middle(height: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The bump as a row, and for each of its pixels minus the number of those nearer to the centre."""
    bump = centre_bump(height, width, device).flatten()
    order = bump.argsort(descending=True, stable=True)
    nearer = torch.empty(len(order), dtype=torch.int32, device=device)
    nearer[order] = -torch.arange(len(order), dtype=torch.int32, device=device)
    return bump, nearer


def random_scores(counts: Counts) -> dict[str, Tensor]:
    """Expected scores of as many pixels at random places: name -> ``(N,)``."""
    area = torch.where(counts.marked > 0, counts.area, torch.nan)
    shown = counts.shown.double() / counts.pixels
    return {
        "iou": random_iou(counts),
        "ground-truth-coverage": torch.where(counts.marked > 0, shown, torch.nan),
        "saliency-coverage": torch.where(counts.shown > 0, area, area * 0),
        "pointing-game": area,
        "energy": area,
    }


def centre_scores(counts: Counts, marked: Tensor, height: int, width: int) -> dict[str, Tensor]:
    """Scores of the pixels around the centre, as many as the map shows: name -> ``(N,)``.

    Args:
        counts: of the map in question.
        marked: ``(N, P)`` bool; rows of ``height x width`` pixels.
        height: of the picture.
        width: of the picture.
    """
    bump, near_first = _around_the_middle(height, width, marked.device)

    def near(part: slice) -> Tensor:
        level = (1 - counts.shown[part]).int()[:, None]
        return pixels.reaches(near_first.expand(len(level), -1), level)

    light = (bump / bump.sum()).float()
    found = pixels.compare(marked, near, lambda part: light.expand(len(counts.shown[part]), -1))
    own = Counts(found.both, counts.marked, counts.shown, counts.pixels)
    inside = torch.where(counts.marked > 0, 1.0, torch.nan)
    peak = bump == bump.max()
    return {
        "iou": own.iou,
        "ground-truth-coverage": own.ground_truth_coverage,
        "saliency-coverage": own.saliency_coverage,
        "pointing-game": marked[:, peak].double().mean(1) * inside,
        "energy": found.inside / found.whole * inside,
    }
