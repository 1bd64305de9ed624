"""Correlations of many rows at once, with ties and constant rows decided."""

from __future__ import annotations

import torch
from torch import Tensor


def correlation(a: Tensor, b: Tensor) -> Tensor:
    """Pearson's correlation of rows ``(N, D)``; 0 where one of `a` is constant, NaN where one of `b` is."""
    flat = [t.amin(1) == t.amax(1) for t in (a, b)]
    # divided by its largest magnitude first: squares of tiny or huge numbers would leave the range of floats
    a, b = (t / t.abs().amax(1, keepdim=True).clamp(min=torch.finfo(t.dtype).tiny) for t in (a, b))
    a, b = (t - t.mean(1, keepdim=True) for t in (a, b))
    norm = a.square().sum(1).sqrt() * b.square().sum(1).sqrt()
    found = ((a * b).sum(1) / torch.where(norm > 0, norm, 1.0)).clamp(-1, 1)
    found = torch.where(flat[0] | (norm == 0), 0.0, found)
    return torch.where(flat[1], torch.nan, found)


def average_ranks(values: Tensor) -> Tensor:
    """Ranks of each row from 1, equal values sharing the mean of their places: ``(N, D)`` float64."""
    values = values.contiguous()
    rising = values.sort(1).values
    below = torch.searchsorted(rising, values)
    until = torch.searchsorted(rising, values, right=True)
    return (below + until + 1).to(torch.float64) / 2
