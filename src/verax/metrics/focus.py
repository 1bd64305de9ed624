"""Shares: where the mass of a map lies.

The share inside the focus mask is the *relevance mass accuracy* of Arras, Osman and Samek ("CLEVR-XAI",
Information Fusion 2022) and the energy-based pointing game of Wang et al. ("Score-CAM", CVPR-W 2020).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from verax.errors import InvalidInput
from verax.metrics.ranks import comparable, matching

if TYPE_CHECKING:
    from verax.cases import Truth


def regions(truth: Truth) -> dict[str, Tensor]:
    """Part every image into focus, avoid, other and background: bool masks ``(N, H, W)``.

    Objects may overlap; a pixel of several belongs to the first of those names, so each pixel counts once.
    """
    focus = truth.focus.bool()
    avoid = truth.avoid.bool() & ~focus
    other = truth.objects.bool().any(1) & ~focus & ~avoid
    return {"focus": focus, "avoid": avoid, "other": other, "background": ~(focus | avoid | other)}


def shares(values: Tensor, truth: Truth) -> dict[str, Tensor]:
    """The share of the mass in each region, ``(N,)`` each; together they make 1.

    Mass is the positive part of the map. A map without mass counts as constant: its shares are the areas.

    Args:
        values: ``(N, H, W)``.
        truth: the truth about the same N cases.
    """
    masks = {name: matching(mask, values) for name, mask in regions(truth).items()}
    mass = comparable(values).clamp(min=0)
    peak = mass.amax((1, 2), keepdim=True)
    # Dividing by the peak first turns a constant map into ones, whose sums are whole numbers: the shares of
    # a constant map are then the areas to the last bit. It also keeps sums of huge values finite.
    mass = torch.where(peak > 0, mass / peak, 1.0)
    parts = {name: (mass * mask).sum((1, 2)) for name, mask in masks.items()}
    total = torch.stack(list(parts.values())).sum(0)
    return {name: part / total for name, part in parts.items()}


def object_distance(values: Tensor, truth: Truth) -> Tensor:
    """Total variation between a map's mass and the weights, over objects and background: ``(N,)``.

    0: every object has the share of the mass that its weight has of all weights, and the background none.
    1: no mass is where a weight is. NaN where no object has a weight. A pixel of several objects is shared.

    Args:
        values: ``(N, H, W)``.
        truth: with weights.
    """
    if truth.weights is None:
        raise InvalidInput("The distance over objects needs a truth with weights, such as 'shapley'.")
    objects = truth.objects.to(values.device, torch.float64)
    wanted = truth.weights.to(values.device, torch.float64).abs()
    mass = comparable(values).clamp(min=0)
    peak = mass.amax((1, 2), keepdim=True)
    mass = torch.where(peak > 0, mass / peak, 1.0)
    cover = objects.sum(1).clamp(min=1)
    parts = (objects * (mass / cover)[:, None]).sum((2, 3))
    total = mass.sum((1, 2))
    shares = torch.cat([parts, (total - parts.sum(1))[:, None]], 1) / total[:, None]
    weight = wanted.sum(1, keepdim=True)
    goal = torch.cat([wanted / torch.where(weight > 0, weight, 1.0), torch.zeros_like(weight)], 1)
    distance = (shares - goal).abs().sum(1) / 2
    return torch.where(weight[:, 0] > 0, distance.clamp(0, 1), torch.nan)


def areas(truth: Truth) -> dict[str, Tensor]:
    """The share of the image that each region covers, ``(N,)`` each: the shares of a constant map."""
    return {
        name: mask.sum((1, 2)).to(torch.float64) / (mask.shape[1] * mask.shape[2])
        for name, mask in regions(truth).items()
    }
