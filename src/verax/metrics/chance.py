"""Chance: what a map that knows nothing scores against masks of these sizes.

Two maps know nothing. One shows as many pixels as the map in question, at random places; its expected scores
are exact. The other shows as many pixels around the middle of the picture, where people put what they
photograph. Both have the size of the map in question, so that a large region is no merit.
"""

from __future__ import annotations

import torch
from torch import Tensor

from verax.metrics import pixels
from verax.metrics.shared_interest import Counts

_TAILS = 12.0
"""Standard deviations of the hypergeometric distribution that are summed over; the rest is below 1e-30."""
_WIDTH = 0.25
"""Standard deviation of the centre map as a share of the picture, as in the control `centre`."""


def random_iou(counts: Counts) -> Tensor:
    """The expected IoU of ``shown`` pixels at random places with ``marked`` ones: ``(N,)``; NaN if none is.

    The number of pixels in common is hypergeometric; the expectation is a sum over its values.
    """
    shown, marked = counts.shown, counts.marked
    if not len(shown):
        return shown.double()
    total = counts.pixels
    low, high = (shown + marked - total).clamp(min=0), torch.minimum(shown, marked)
    share = marked.double() / total
    std = (shown * share * (1 - share) * (total - shown) / max(1, total - 1)).sqrt()
    middle = (shown * share).round().long()
    wide = int(_TAILS * float(std.max())) + 2
    both = middle[:, None] + torch.arange(-wide, wide + 1, device=shown.device)
    possible = (both >= low[:, None]) & (both <= high[:, None])
    both = both.clamp(low[:, None], high[:, None]).double()
    shown_, marked_ = shown[:, None].double(), marked[:, None].double()
    ways = -(
        torch.lgamma(both + 1)
        + torch.lgamma(marked_ - both + 1)
        + torch.lgamma(shown_ - both + 1)
        + torch.lgamma(total - marked_ - shown_ + both + 1)
    )
    weights = ways.masked_fill(~possible, -torch.inf).softmax(1)
    score = (weights * both / (shown_ + marked_ - both).clamp(min=1)).sum(1)
    return torch.where(marked > 0, score, torch.nan)


def centre_bump(height: int, width: int, device: torch.device) -> Tensor:
    """A round bump in the middle of a picture: ``(H, W)`` float64, the largest values in the middle."""
    rows, cols = ((torch.arange(s, dtype=torch.float64) + 0.5) / s - 0.5 for s in (height, width))
    # of the squared distances, so that places equally far from the middle are equal to the last bit
    away = rows[:, None].abs().square() + cols.abs().square()
    return torch.exp(-0.5 * away / _WIDTH**2).to(device)


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
    """Scores of the pixels around the middle, as many as the map shows: name -> ``(N,)``.

    Args:
        counts: of the map in question.
        marked: ``(N, P)`` bool; rows of ``height x width`` pixels.
        height: of the picture.
        width: of the picture.
    """
    bump = centre_bump(height, width, marked.device).flatten()
    order = bump.argsort(descending=True, stable=True)
    near_first = torch.empty(len(order), dtype=torch.int32, device=order.device)
    near_first[order] = -torch.arange(len(order), dtype=torch.int32, device=order.device)
    near = pixels.reaches(near_first.expand(len(marked), -1), (1 - counts.shown).int()[:, None])
    own = Counts(pixels.count(near & marked), counts.marked, counts.shown, counts.pixels)
    inside = torch.where(counts.marked > 0, 1.0, torch.nan)
    peak = bump == bump.max()
    return {
        "iou": own.iou,
        "ground-truth-coverage": own.ground_truth_coverage,
        "saliency-coverage": own.saliency_coverage,
        "pointing-game": marked[:, peak].double().mean(1) * inside,
        "energy": (marked.float() @ (bump / bump.sum()).float()).double() * inside,
    }
