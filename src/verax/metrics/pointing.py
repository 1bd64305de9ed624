"""Pointing game: does the strongest pixel lie in the mask?

Zhang et al., "Top-down neural attention by excitation backprop", IJCV 2018, without the tolerance of some
pixels that they allow, because the masks here are exact.
"""

from __future__ import annotations

import torch
from torch import Tensor

from verax.metrics.ranks import comparable, matching


def pointing(values: Tensor, mask: Tensor) -> Tensor:
    """Probability that a maximum, chosen at random among equals, lies in the mask: ``(N,)``.

    Args:
        values: ``(N, H, W)``.
        mask: ``(N, H, W)`` bool; an empty one gives NaN.
    """
    inside = matching(mask, values)
    values = comparable(values)
    peak = values == values.amax((1, 2), keepdim=True)
    score = (peak & inside).sum((1, 2)) / peak.sum((1, 2)).to(torch.float64)
    return torch.where(inside.any(2).any(1), score, torch.nan)


def chance(mask: Tensor) -> Tensor:
    """The score of a constant map: the part of the image that the mask covers; ``(N,)``, NaN if empty."""
    inside = mask.bool()
    score = inside.sum((1, 2)).to(torch.float64) / (inside.shape[1] * inside.shape[2])
    return torch.where(inside.any(2).any(1), score, torch.nan)
