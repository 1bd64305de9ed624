"""Overlap: do the K strongest pixels lie on the K pixels of the mask?

Rank accuracy is the *relevance rank accuracy* of Arras, Osman and Samek ("CLEVR-XAI", Information Fusion
2022). Both scores are exact expectations over all ways of breaking ties.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from verax.metrics import pixels
from verax.metrics.binarisation import Flat
from verax.metrics.ranks import Ties, matching

_CELLS = 1 << 22
"""Probabilities held in memory at a time."""


def rank_accuracy(values: Tensor, mask: Tensor) -> Tensor:
    """The part of the K strongest pixels that lies in a mask of K pixels: ``(N,)``; NaN if it is empty.

    Args:
        values: ``(N, H, W)``.
        mask: ``(N, H, W)`` bool.
    """
    return expected_accuracy(Ties.of(values, mask))


def iou(values: Tensor, mask: Tensor) -> Tensor:
    """Intersection over union of the K strongest pixels and a mask of K pixels: ``(N,)``; NaN if it is empty.

    Args:
        values: ``(N, H, W)``.
        mask: ``(N, H, W)`` bool.
    """
    return expected_iou(Ties.of(values, mask))


def roc_area(values: Tensor, mask: Tensor) -> Tensor:
    """The area under the ROC curve of a map that finds the mask: ``(N,)``.

    It is the probability that a pixel of the mask is stronger than one outside, where equals count half
    (Hanley and McNeil, Radiology 1982): 0.5 for a constant map. NaN where a mask is empty or full.

    Args:
        values: ``(N, H, W)``.
        mask: ``(N, H, W)`` bool.
    """
    inside = matching(mask, values).flatten(1)
    rows = Flat.of(values).values
    size = pixels.count(inside)
    # the marked values of each row, filled up to the longest: only they are looked up
    there = torch.arange(max(int(size.max()), 1) if len(size) else 1, device=size.device) < size[:, None]
    marked = rows.new_zeros(there.shape)
    marked[there] = rows[inside]
    ordered = pixels.ordered(rows)
    # equals share one rank: the mean of the places from the first of them to the last
    ends = [torch.searchsorted(ordered, marked, right=right) for right in (False, True)]
    ranks = ((ends[0] + ends[1] + 1).to(torch.float64) / 2 * there).sum(1)
    many = size.to(torch.float64)
    others = inside.shape[1] - many
    area = (ranks - many * (many + 1) / 2) / (many * others)
    return torch.where((many > 0) & (others > 0), area, torch.nan)


def expected_accuracy(ties: Ties) -> Tensor:
    """Rank accuracy from the counts around the K-th place."""
    # Whole numbers are multiplied before the division: a tie that decides nothing costs no rounding error.
    drawn = (ties.size - ties.above) * ties.tied_in / ties.tied.to(torch.float64)
    return _defined((ties.above_in + drawn) / ties.size, ties)


def expected_iou(ties: Ties) -> Tensor:
    """Intersection over union from the counts around the K-th place.

    The tied pixels that fill the top K are a draw without replacement, so the number of them that lie in the
    mask is hypergeometric. IoU is not linear in that number, hence the sum over all its values.
    """
    if not len(ties.size):
        return ties.size.to(torch.float64)
    counts = torch.stack([ties.size, ties.above, ties.above_in, ties.tied, ties.tied_in], 1)
    rows, where = torch.unique(counts, dim=0, return_inverse=True)  # most batches hold few different rows
    support = int(torch.minimum(rows[:, 0] - rows[:, 1], rows[:, 4]).max().clamp(min=0)) + 1
    chunks = rows.split(max(_CELLS // support, 1))
    return _defined(torch.cat([_hypergeometric_iou(chunk) for chunk in chunks])[where], ties)


def _hypergeometric_iou(rows: Tensor) -> Tensor:
    """The expectation for rows of (size, above, above_in, tied, tied_in)."""
    size, above, above_in, tied, tied_in = rows[:, :, None].unbind(1)
    drawn = (size - above).clamp(min=0)
    first = (drawn - (tied - tied_in)).clamp(min=0)
    last = torch.minimum(drawn, tied_in)
    steps = torch.arange(int((last - first).max()) + 1, device=rows.device)
    hits = torch.minimum(first + steps, last)
    # A table of log n! serves all rows, and gives equal counts equal bits whatever stands next to them.
    factorial = torch.lgamma(torch.arange(int(tied.max()) + 2, device=rows.device, dtype=torch.float64) + 1)
    ways = -(
        factorial[hits]
        + factorial[tied_in - hits]
        + factorial[drawn - hits]
        + factorial[(tied - tied_in - drawn + hits).clamp(min=0)]
    )
    ways = ways.masked_fill(first + steps > last, -torch.inf)
    weights = (ways - ways.amax(1, keepdim=True)).exp()
    overlap = (above_in + hits).to(torch.float64)
    terms = weights * overlap / (2 * size - overlap)
    return _sum(terms) / _sum(weights)


def _sum(rows: Tensor) -> Tensor:
    """Add up neighbours until one column is left.

    Zeros on the right of a short row cannot change this sum, not even its last bit, so a score does not
    depend on the other samples. That holds for neither `sum` nor, on a GPU, `cumsum`.
    """
    while rows.shape[1] > 1:
        rows = pad(rows, (0, rows.shape[1] % 2))
        rows = rows[:, 0::2] + rows[:, 1::2]
    return rows[:, 0]


def _defined(scores: Tensor, ties: Ties) -> Tensor:
    return torch.where(ties.size > 0, scores, torch.nan)
