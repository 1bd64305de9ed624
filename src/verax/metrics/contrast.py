"""Contrast: one picture, several networks; do the maps tell the networks' reasonings apart?

Kim, Plumb and Talwalkar (ICML 2022, Figure 9) show that maps of networks with different reasonings can look
alike. Here that is measured: which reasoning does a map point to, and does a map change where, and only
where, the reasoning does?
"""

from __future__ import annotations

import torch
from torch import Tensor

from verax.metrics.ranks import comparable


def unit_mass(values: Tensor) -> Tensor:
    """Maps ``(..., H, W)`` scaled to a mass of 1; a map without mass becomes constant."""
    flat = comparable(values.reshape(-1, *values.shape[-2:])).clamp(min=0)
    peak = flat.amax((1, 2), keepdim=True)
    flat = torch.where(peak > 0, flat / peak, 1.0)
    return (flat / flat.sum((1, 2), keepdim=True)).reshape(values.shape)


def place_shares(values: Tensor, objects: Tensor) -> Tensor:
    """The share of a map's mass on each object and, last, on the background: ``(..., N, K + 1)``.

    Args:
        values: ``(..., N, H, W)`` with a mass of 1 (`unit_mass`).
        objects: ``(N, K, H, W)`` bool; a pixel of several objects is shared by them.
    """
    masks = objects.to(torch.float64)
    masks = masks / masks.sum(1, keepdim=True).clamp(min=1)
    parts = torch.einsum("...nhw,nkhw->...nk", values, masks)
    return torch.cat([parts, (1 - parts.sum(-1, keepdim=True)).clamp(min=0)], -1)


def misfit(shares: Tensor, focus: Tensor, areas: Tensor) -> Tensor:
    """How far shares of mass are from what each focus set would show: total variation ``(..., N, R)``.

    A set shows itself in two ways: equal mass for each of its objects, or for each of its pixels. The nearer
    of the two counts. Nothing to focus on shows as background alone.

    Args:
        shares: ``(..., N, K + 1)``.
        focus: ``(R, N, K)`` bool; the focus objects under each of R reasonings.
        areas: ``(N, K)`` pixels of each object.
    """
    distances = []
    for weights in (focus.to(torch.float64), focus * areas.to(torch.float64)):
        total = weights.sum(-1, keepdim=True)
        empty = (total == 0).to(torch.float64)
        goal = torch.cat([weights / torch.where(total > 0, total, 1.0), empty], -1)
        distances.append((shares.unsqueeze(-3) - goal).abs().sum(-1) / 2)  # (..., R, N)
    return torch.minimum(*distances).transpose(-1, -2)


def guesses(misfits: Tensor) -> Tensor:
    """Which reasoning fits best, as probabilities over the last axis; equals share their place."""
    best = misfits <= misfits.amin(-1, keepdim=True) + 1e-6  # maps are float32
    return best / best.sum(-1, keepdim=True).to(torch.float64)


def change(first: Tensor, second: Tensor, where: Tensor) -> tuple[Tensor, Tensor]:
    """How much of the mass lies elsewhere in a second map, and which share of that change lies in a mask.

    Args:
        first: ``(N, H, W)`` with a mass of 1 (`unit_mass`).
        second: likewise.
        where: ``(N, H, W)`` bool.

    Returns:
        Total variation, ``(N,)`` in [0, 1]; and the share: NaN where the mask is empty, 0 where nothing
        moved, though something should have.
    """
    moved = (first - second).abs_()
    total = moved.sum((1, 2))
    share = (moved * where).sum((1, 2)) / torch.where(total > 0, total, 1.0)
    return total / 2, torch.where(where.flatten(1).any(1), share, torch.nan)
