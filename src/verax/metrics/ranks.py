"""Ranks with ties: what is known about the K strongest pixels when several share the K-th place."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from verax.errors import InvalidInput
from verax.metrics import pixels


def comparable(values: Tensor) -> Tensor:
    """Maps ``(N, H, W)`` in float64; those with NaN or infinity become constant, which scores chance."""
    if values.ndim != 3:
        raise InvalidInput(f"Maps must have the shape (N, H, W), not {tuple(values.shape)}.")
    values = values.detach().to(torch.float64)
    return torch.where(values.isfinite().flatten(1).all(1)[:, None, None], values, 0.0)


def _rows(values: Tensor) -> Tensor:
    """Maps ``(N, H, W)`` as `comparable` has them, as rows in a type that keeps their order."""
    if values.ndim != 3 or values.dtype not in (torch.float32, torch.float64):
        return comparable(values).flatten(1)
    rows = values.detach().flatten(1)
    # a row that is not finite has a sum that is not; few others have one, and they are looked at closely
    return rows if bool(rows.sum(1).isfinite().all()) else comparable(values).flatten(1)


def matching(mask: Tensor, values: Tensor) -> Tensor:
    """The mask as bool on the device of `values`."""
    if mask.shape != values.shape:
        raise InvalidInput(
            f"Maps and masks must have one shape, not {tuple(values.shape)} and {tuple(mask.shape)}."
        )
    return mask.to(device=values.device, dtype=torch.bool)


@dataclass(frozen=True)
class Ties:
    """Counts around the K-th strongest pixel, where K is the size of the mask; int64 tensors ``(N,)``.

    Attributes:
        size: K, the pixels in the mask.
        above: pixels stronger than the K-th; they are among the top K for certain.
        above_in: how many of those lie in the mask.
        tied: pixels as strong as the K-th; ``size - above`` of them, drawn at random, fill the top K.
        tied_in: how many of those lie in the mask.
    """

    size: Tensor
    above: Tensor
    above_in: Tensor
    tied: Tensor
    tied_in: Tensor

    @classmethod
    def of(cls, values: Tensor, mask: Tensor) -> Ties:
        """Count in maps and masks ``(N, H, W)``; where a mask is empty the counts mean nothing."""
        inside = matching(mask, values).flatten(1)
        flat = _rows(values)
        size = pixels.count(inside)
        longest = max(int(size.max()), 1) if len(size) else 1
        level = pixels.largest(flat, longest).gather(1, (size - 1).clamp(min=0)[:, None])
        above, tied = pixels.exceeds(flat, level), pixels.equals(flat, level)
        counts = (pixels.count(marks) for marks in (above, above & inside, tied, tied & inside))
        return cls(size, *counts)

    @classmethod
    def constant(cls, mask: Tensor) -> Ties:
        """The counts of a constant map, in which all pixels are tied: the source of every chance score."""
        inside = mask.to(torch.bool).flatten(1)
        size = inside.sum(1)
        none = torch.zeros_like(size)
        return cls(size, none, none, torch.full_like(size, inside.shape[1]), size)
