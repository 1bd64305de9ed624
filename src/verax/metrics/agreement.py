"""Agreement with an exact truth: a map and the right attribution of every input element, compared as numbers.

All functions read maps and truths ``(N, D)`` and give one float64 score for each sample. What is undefined is
decided once: a map that holds NaN or infinity says nothing and is read as zeros, and a map (or a truth) that
says nothing about a question has the score that guessing has. So a degenerate map is counted and never lucky.

Pearson's correlation is the measure of Mamalakis, Ebert-Uphoff and Barnes (Environmental Data Science 2022).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from verax.correlations import average_ranks, correlation
from verax.errors import InvalidInput, InvalidParameter
from verax.metrics import pixels

SHARE = 0.1
"""Of the elements, those with the strongest truth: what top-k overlap and mass ask about."""


def comparable(maps: Tensor) -> Tensor:
    """Maps ``(N, D)`` in float64; those that hold NaN or infinity become zeros."""
    if maps.ndim != 2 or maps.is_complex():
        raise InvalidInput(f"Maps must be real numbers of shape (N, D), not {tuple(maps.shape)}.")
    maps = maps.detach().to(torch.float64)
    return torch.where(maps.isfinite().all(1)[:, None], maps, 0.0)


def pair(maps: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """Maps and truth in float64 on one device, checked to have one shape."""
    if maps.shape != truth.shape:
        raise InvalidInput(
            f"Maps and truth must have one shape, not {tuple(maps.shape)} and {tuple(truth.shape)}."
        )
    return comparable(maps), truth.detach().to(maps.device, torch.float64)


def pearson(maps: Tensor, truth: Tensor) -> Tensor:
    """Linear correlation over elements: 0 for a map that says nothing, NaN where the truth is constant."""
    return correlation(*pair(maps, truth))


def spearman(maps: Tensor, truth: Tensor) -> Tensor:
    """Correlation of ranks, ties sharing the mean of their places; 0 and NaN as in `pearson`."""
    a, b = pair(maps, truth)
    return correlation(average_ranks(a), average_ranks(b))


def sign_agreement(maps: Tensor, truth: Tensor) -> Tensor:
    """Share of the elements with a truth other than 0 whose sign is right; an element at 0 counts half.

    NaN where the truth is 0 everywhere.
    """
    a, b = pair(maps, truth)
    there = b != 0
    points = (a.sign() * b.sign() + 1) / 2
    return (points * there).sum(1) / torch.where(there.any(1), there.sum(1), torch.nan)


def top_size(elements: int, share: float = SHARE) -> int:
    """How many elements count as the strongest."""
    if not 0 < share <= 1:
        raise InvalidParameter(f"The share of the strongest elements lies between 0 and 1, not {share!r}.")
    return max(1, math.ceil(share * elements - 1e-9))


def membership(strength: Tensor, k: int) -> Tensor:
    """The probability of each element to be among the k strongest of its row, ties drawn at random."""
    if not 0 < k <= strength.shape[1]:
        raise InvalidParameter(f"There are 1 to {strength.shape[1]} strongest elements, not {k}.")
    strength = strength.detach().double()
    level = pixels.placed(strength, [strength.shape[1] - k])
    above, tied = strength > level, strength == level
    free = (k - above.sum(1, keepdim=True)).to(strength) / tied.sum(1, keepdim=True)
    return above + tied * free


def top_overlap(maps: Tensor, truth: Tensor, share: float = SHARE) -> Tensor:
    """Expected share of the k strongest elements of the truth among the k strongest of the map.

    Strength is magnitude. NaN where the truth is 0 everywhere; a map that says nothing has k / D.
    """
    a, b = (t.abs() for t in pair(maps, truth))
    k = top_size(a.shape[1], share)
    found = (membership(a, k) * membership(b, k)).sum(1) / k
    return torch.where((b > 0).any(1), found, torch.nan)


def mass(maps: Tensor, truth: Tensor, share: float = SHARE) -> Tensor:
    """Share of the map's magnitude on the k elements with the strongest truth.

    Its ceiling is what the truth itself reaches, not 1. NaN where the truth is 0 everywhere; a map that says
    nothing has k / D.
    """
    a, b = (t.abs() for t in pair(maps, truth))
    k = top_size(a.shape[1], share)
    a = a / a.amax(1, keepdim=True).clamp(min=torch.finfo(a.dtype).tiny)
    a = torch.where((a > 0).any(1)[:, None], a, 1.0)
    found = (a * membership(b, k)).sum(1) / a.sum(1)
    return torch.where((b > 0).any(1), found, torch.nan)


def total_gap(maps: Tensor, truth: Tensor) -> Tensor:
    """How far the map's sum is from the truth's, in units of the truth's magnitude; NaN where that is 0."""
    a, b = pair(maps, truth)
    size = b.abs().sum(1)
    return (a.sum(1) - b.sum(1)).abs() / torch.where(size > 0, size, torch.nan)


MEASURES = {
    "pearson": pearson,
    "spearman": spearman,
    "sign-agreement": sign_agreement,
    "top-overlap": top_overlap,
    "mass": mass,
    "total-gap": total_gap,
}
"""Name -> function from maps and truths ``(N, D)`` to scores ``(N,)``."""
