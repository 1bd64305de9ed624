"""Pointing game: does the strongest pixel lie in the mask?

Zhang et al., "Top-down neural attention by excitation backprop", IJCV 2018. They count a hit within 15
pixels, which is `tolerance=15` here; without it the pixel itself must lie in the mask. Ties are shared fairly
unless the first pixel is asked for, as published code takes it.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from verax.errors import InvalidInput, InvalidParameter, suggestion
from verax.metrics import pixels
from verax.metrics.binarisation import Flat
from verax.metrics.ranks import matching

TIES = ("expected", "first")


def pointing(values: Tensor, mask: Tensor, *, tolerance: float = 0, ties: str = "expected") -> Tensor:
    """Whether the maximum lies in the mask, or near it: ``(N,)``.

    Args:
        values: ``(N, H, W)``.
        mask: ``(N, H, W)`` bool; an empty one gives NaN.
        tolerance: a hit is a marked pixel at a distance below this one (strictly) from the maximum; 0 and 1
            ask for the pixel itself.
        ties: "expected": the probability of a hit for a maximum chosen at random among equals; "first": the
            one that comes first, row by row.
    """
    check_pointing(tolerance, ties)
    maps, inside = Flat.of(values), matching(mask, values)
    found = inside if tolerance <= 1 else dilated(inside, tolerance)
    score = pointing_rows(maps, found.flatten(1), ties)
    return torch.where(pixels.count(inside.flatten(1)) > 0, score, torch.nan)


def check_pointing(tolerance: float, ties: str) -> None:
    """Refuse what is neither a distance nor a rule for ties."""
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not 0 <= tolerance <= 4096:
        raise InvalidParameter(f"The tolerance must be 0 to 4096 pixels, not {tolerance!r}.")
    if ties not in TIES:
        raise InvalidParameter(f"Ties are {' or '.join(TIES)}{suggestion(str(ties), TIES)}")


def pointing_rows(maps: Flat, found: Tensor, ties: str) -> Tensor:
    """The same for maps that were measured already; `found` ``(N, P)`` is the mask, dilated if need be."""
    score = found.gather(1, maps.about.place)[:, 0].double()
    if ties == "first":
        return score
    tied = maps.about.tied
    if tied.any():
        peak = pixels.equals(maps.values[tied], maps.high[tied])
        score[tied] = pixels.count(peak & found[tied]).double() / pixels.count(peak)
    return score


def dilated(mask: Tensor, radius: float) -> Tensor:
    """The pixels of ``(N, H, W)`` at a distance below `radius` from one that is marked.

    A disc is a stack of rows: each row of the mask is widened by running sums, then moved up or down.
    """
    height, width = mask.shape[1:]
    result = mask.clone()
    sums = pad(mask.to(torch.int32).cumsum(2), (1, 0))
    columns = torch.arange(width, device=mask.device)
    for step in range(min(height - 1, int(radius)) + 1):
        left = radius**2 - step**2
        if left <= 0:
            break
        reach = int(left**0.5)
        reach -= reach * reach >= left  # strictly below
        wide = sums[:, :, (columns + reach + 1).clamp(max=width)] > sums[:, :, (columns - reach).clamp(min=0)]
        result[:, step:] |= wide[:, : height - step]
        result[:, : height - step] |= wide[:, step:]
    return result


def of_class(instances: Tensor, kinds: Tensor, targets: Tensor) -> Tensor:
    """The union of the instances of one class for each image: ``(N, K, H, W)`` -> ``(N, H, W)`` bool.

    The pointing game asks about one class at a time; objects of other classes are misses.
    """
    if instances.ndim != 4 or kinds.shape != instances.shape[:2] or targets.shape != kinds.shape[:1]:
        raise InvalidInput("Instances (N, K, H, W), kinds (N, K) and targets (N,) must belong together.")
    chosen = (kinds == targets.to(kinds.device)[:, None]).to(instances.device)
    return (instances.bool() & chosen[:, :, None, None]).any(1)


def class_means(scores: Tensor, labels: Tensor) -> dict[int, float]:
    """The mean score of each class, without undefined ones; the pointing game averages these."""
    if scores.ndim != 1 or labels.shape != scores.shape:
        raise InvalidInput("Scores and labels must be vectors of one length.")
    found = {}
    for label in sorted(set(labels.tolist())):
        own = scores[labels == label]
        own = own[~own.isnan()]
        if len(own):
            found[int(label)] = float(own.mean())
    return found


def chance(mask: Tensor) -> Tensor:
    """The score of a constant map: the part of the image that the mask covers; ``(N,)``, NaN if empty."""
    inside = mask.bool()
    score = inside.sum((1, 2)).to(torch.float64) / (inside.shape[1] * inside.shape[2])
    return torch.where(inside.any(2).any(1), score, torch.nan)
