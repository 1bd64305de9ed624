"""The metrics of the SMERF paper, as its code computes them.

Kim, Plumb and Talwalkar, "Sanity Simulations for Saliency Methods", ICML 2022. AFL is attribution focus
level, MAFL its mean over pixels, IOU intersection over union; P stands for the primary objects (role FOCUS)
and S for the secondary ones (role AVOID). They read the maps of the `published` protocol and the rectangles
``truth.boxes``. A case without objects of the role is undefined (NaN).
"""

from __future__ import annotations

import torch
from torch import Tensor

from verax.cases import Role, Truth
from verax.errors import InvalidInput, InvalidParameter, suggestion
from verax.metrics.ranks import comparable

BINS = 10
"""Bins of the histogram that the IOU takes its threshold from."""

THRESHOLDS = ("single", "multi")

_CELLS, _CACHED = 2**25, 2**18
"""Numbers that are made at once on a GPU, and on a CPU."""


def afl(values: Tensor, truth: Truth, role: Role = Role.FOCUS) -> Tensor:
    """Attribution focus level: mass of the rescaled map inside the boxes of `role`, ``(N,)``.

    Overlapping boxes are counted twice, as published. A constant map gives 0: there the original divides by
    zero, and its plots turn the NaN into 0.
    """
    masses = _box_sums(_densities(values), truth)
    listed = _listed(truth, role, masses)
    return torch.where(listed.any(1), (masses * listed).sum(1), torch.nan)


def mafl(values: Tensor, truth: Truth, role: Role = Role.FOCUS) -> Tensor:
    """Mean attribution focus level: mean of the rescaled map over the pixels in boxes of `role`, ``(N,)``.

    Pixels of several boxes are counted once for each. A constant map gives 0, as for `afl`.
    """
    densities = _densities(values)
    masses, pixels = _box_sums(densities, truth), _box_sizes(densities, truth)
    listed = _listed(truth, role, masses)
    return (masses * listed).sum(1) / (pixels * listed).sum(1)  # 0 / 0 = NaN where nothing is listed


def iou(
    values: Tensor,
    truth: Truth,
    role: Role = Role.FOCUS,
    threshold: str = "single",
    count: int | None = None,
) -> Tensor:
    """Mean over the boxes of `role` of the IOU between one box and the strong pixels of the map, ``(N,)``.

    Because each box meets the whole mask, n disjoint objects can never score more than 1/n.

    Args:
        values: ``(N, H, W)`` maps of the published protocol.
        truth: the truth about the same cases.
        role: FOCUS for PIOU, AVOID for SIOU.
        threshold: "single" cuts at the area of the focus boxes whatever the role (as in the paper); "multi"
            cuts at the area of the boxes of `role`.
        count: cut at so many pixels instead (Figure 15 of the paper).
    """
    if threshold not in THRESHOLDS:
        raise InvalidParameter(
            f"There is no threshold named {threshold!r}{suggestion(str(threshold), THRESHOLDS)}"
        )
    values = comparable(values)
    areas = _areas(truth).to(values.device)
    counted = _listed(truth, Role.FOCUS if threshold == "single" else role, values)
    wanted = (areas * counted).sum(1)
    level = histogram_threshold(values, wanted if count is None else torch.full_like(wanted, count))
    strong = (values >= level[:, None, None]).to(torch.float64)
    shared = _box_sums(strong, truth)
    sizes = _box_sizes(strong, truth)
    union = strong.sum((1, 2))[:, None] + sizes - shared
    listed = _listed(truth, role, values)
    return torch.where(listed, shared / union, 0.0).sum(1) / listed.sum(1)


def histogram_threshold(values: Tensor, count: Tensor) -> Tensor:
    """The lower edge of the highest of 10 equal bins above which at least `count` pixels lie: ``(N,)``.

    The edges are those of ``numpy.histogram``, which also widens an empty range by 0.5 on both sides. When
    there are fewer pixels than `count` (overlapping boxes) all of them are taken; the original fails.
    """
    lowest, highest = values.amin((1, 2)), values.amax((1, 2))
    margin = torch.where(lowest == highest, 0.5, 0.0).to(torch.float64)
    lowest, highest = lowest - margin, highest + margin
    step = (highest - lowest) / BINS
    number = torch.arange(BINS, device=values.device)
    edges = torch.cat([lowest[:, None], number[1:] * step[:, None] + lowest[:, None]], 1)
    above = [(values[some, None] >= edges[some, :, None, None]).sum((2, 3)) for some in _parts(values, BINS)]
    # Fewer pixels lie above a higher edge, so the last edge that suffices is the highest one.
    enough = torch.cat(above) >= count[:, None]
    return edges.gather(1, (number * enough).amax(1, keepdim=True))[:, 0]


def _densities(values: Tensor) -> Tensor:
    """Each map moved to [0, 1] and divided by its sum; zeros where it is constant."""
    values = comparable(values)
    lowest, highest = values.amin((1, 2), keepdim=True), values.amax((1, 2), keepdim=True)
    span = highest - lowest
    scaled = torch.where((span > 0) & span.isfinite(), (values - lowest) / span, 0.0)
    return scaled / scaled.sum((1, 2), keepdim=True).clamp(min=1.0)  # the sum is at least 1, the maximum


def _listed(truth: Truth, role: Role, like: Tensor) -> Tensor:
    """Which objects have the role: ``(N, K)`` bool."""
    return (truth.roles == role).to(like.device)


def _areas(truth: Truth) -> Tensor:
    row0, row1, col0, col1 = truth.boxes.unbind(2)
    return (row1 - row0).clamp(min=0) * (col1 - col0).clamp(min=0)


def _bands(values: Tensor, truth: Truth) -> tuple[Tensor, Tensor]:
    """The rows ``(N, K, H)`` and columns ``(N, K, W)`` of each box that lie in the picture."""
    boxes = truth.boxes.to(values.device)
    if boxes.shape[0] != values.shape[0]:
        raise InvalidInput(f"There are {values.shape[0]} maps, but the truth about {boxes.shape[0]} cases.")
    row0, row1, col0, col1 = boxes[:, :, None].unbind(3)
    row = torch.arange(values.shape[1], device=values.device)
    column = torch.arange(values.shape[2], device=values.device)
    return (row >= row0) & (row < row1), (column >= col0) & (column < col1)


def _box_sums(values: Tensor, truth: Truth) -> Tensor:
    """The sum of each map inside each box: ``(N, H, W)`` -> ``(N, K)``."""
    rows, columns = _bands(values, truth)
    sums = [
        torch.where(rows[some, ..., None] & columns[some, :, None], values[some, None], 0.0).sum((2, 3))
        for some in _parts(values, rows.shape[1])
    ]
    return torch.cat(sums)


def _box_sizes(values: Tensor, truth: Truth) -> Tensor:
    """The pixels of each map inside each box: ``(N, K)``."""
    rows, columns = _bands(values, truth)
    return (rows.sum(2) * columns.sum(2)).to(values.dtype)


def _parts(values: Tensor, times: int) -> list[slice]:
    """Slices of maps that fit into memory, or on a CPU into its cache, so many times."""
    cells = _CELLS if values.is_cuda else _CACHED
    step = max(1, cells // max(1, times * values[0].numel())) if len(values) else 1
    return [slice(start, start + step) for start in range(0, max(1, len(values)), step)]
