"""Methods that hide random parts of the input and watch the output."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from verax.engine.baselines import Baseline, baseline_of
from verax.engine.batching import blocks, budget_on, in_parts, rows_within_budget, with_halving
from verax.engine.coalitions import Game, enough
from verax.engine.gradients import select
from verax.engine.masking import blend, places
from verax.engine.segments import Spec
from verax.errors import InvalidParameter, suggestion
from verax.methods.base import builtin
from verax.methods.limits import WORD, Limit, finite, number_above, whole_from
from verax.seeding import Streams


def random_masks(streams: Streams, where: tuple[int, ...], grid: int, probability: float) -> Tensor:
    """One soft random mask for each stream: float64 ``(R, *where)``, values from 0 to 1.

    Along each dimension `grid` cells, each shown with `probability`, are stretched linearly over one cell
    more than fits, and a window of the right size is cut out at a random shift of less than a cell. Cells
    of a vector have no neighbours, so each of its features is shown or not by itself.
    """
    if len(where) == 1 and grid == 0:
        return (streams.uniform("cells", *where) < probability).to(torch.float64)
    cells = (streams.uniform("cells", *[grid] * len(where)) < probability).to(torch.float64)
    for axis, length in enumerate(where):
        cell = -(-length // grid)
        unit = torch.eye(grid, dtype=torch.float64, device=cells.device)[None]
        stretch = F.interpolate(unit, size=(grid + 1) * cell, mode="linear", align_corners=False)[0].mT
        shift = streams.integers(f"shift {axis}", cell)
        rows = stretch[shift[:, None] + torch.arange(length, device=cells.device)]
        # the axis in turn comes first and goes last, so that after all of them the order is the old one
        stretched = rows @ cells.flatten(1).reshape(len(cells), grid, -1)
        cells = stretched.reshape(len(cells), length, *cells.shape[2:]).movedim(1, -1)
    return cells


@builtin(
    "rise",
    aliases=("RISE",),
    family="perturbations",
    needs="forward",
    paper="Petsiuk, Das and Saenko, BMVC 2018",
    cost="`samples` forwards",
    limits={
        "grid": whole_from(1),
        "probability": Limit(
            "a number between 0 and 1", lambda value: finite(value, 0, 1) and value not in (0, 1)
        ),
    },
)
def rise(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    streams: Streams,
    samples: int = 1000,
    grid: int = 8,
    probability: float = 0.5,
    baseline: Baseline = 0.0,
) -> Tensor:
    """How high the output is on average when a place is shown, over many soft random masks.

    ::

        mean over masks m of f(m x + (1 - m) baseline) * m / probability

    Masks are made pass by pass from the random numbers of their own sample, so that memory does not grow
    with their number and a map does not depend on the batch.

    Args:
        model: the network.
        inputs: ``(N, C, ...)``, or vectors ``(N, F)``, whose features are shown or not one by one.
        targets: ``(N,)``.
        streams: the random numbers of each sample.
        samples: masks of each sample.
        grid: cells of a mask along each dimension.
        probability: how likely a cell is shown.
        baseline: what hidden places show.
    """
    where = places(inputs)
    filling = baseline_of(baseline, inputs, streams)
    # a stream for each mask, so that any of them can be made by itself
    own = streams.bits("masks", samples)

    def compute(limit: int) -> Tensor:
        total = torch.zeros(len(inputs), *where, dtype=torch.float64, device=inputs.device)
        with torch.inference_mode():
            for some, part in blocks(len(inputs), samples, limit):
                ids = own[some, part]
                count = ids.shape[1]
                some_streams = Streams(ids.flatten(), streams.seed)
                masks = random_masks(some_streams, where, grid if inputs.ndim > 2 else 0, probability)
                x, low = (t[some].repeat_interleave(count, 0) for t in (inputs, filling))
                outputs = select(model(blend(masks, x, low)), targets[some].repeat_interleave(count))
                weights = outputs.to(torch.float64).reshape(-1, 1, count)
                total[some] += (weights @ masks.reshape(len(ids), count, -1)).reshape(-1, *where)
        return total.clone()

    mean = with_halving(compute, rows_within_budget(inputs[0])) / (samples * probability)
    if inputs.ndim > 2:
        mean = mean[:, None]
    return mean.to(inputs.dtype).expand_as(inputs)


DISTANCES = ("cosine", "l2")


def proximity(coalitions: Tensor, present: Tensor, distance: str, width: float | None) -> Tensor:
    """How near coalitions ``(N, M, P)`` are to all that is `present` ``(N, P)``: ``(N, M)`` in (0, 1]."""
    kept = coalitions.sum(2).to(torch.float64)
    count = present.sum(1, keepdim=True).to(torch.float64)
    if distance == "cosine":
        far, scale = 1 - (kept / count).sqrt(), torch.full_like(count, 0.25)
    else:
        far, scale = (count - kept).sqrt(), 0.75 * count.sqrt()
    return torch.exp(-((far / (scale if width is None else width)) ** 2))


def ridge_values(coalitions: Tensor, outputs: Tensor, weights: Tensor, strength: float) -> Tensor:
    """Weighted ridge regression with a free constant, all samples in one call: float64 ``(N, P)``."""
    part = (weights / weights.sum(1, keepdim=True))[..., None]
    z, y = coalitions.to(torch.float64), outputs[..., None]
    z, y = z - (part * z).sum(1, keepdim=True), y - (part * y).sum(1, keepdim=True)
    weighted = (z * weights[..., None]).mT
    penalty = strength * torch.eye(z.shape[2], dtype=z.dtype, device=z.device)
    left, right = weighted @ z + penalty, weighted @ y
    # symmetric and definite; besides, LU of torch on busy CPUs now and then gives pivots that are none
    factor, singular = torch.linalg.cholesky_ex(left)
    least = bool(singular.any())  # of the many solutions that there are next to no penalty
    values = torch.linalg.pinv(left, hermitian=True) @ right if least else torch.cholesky_solve(right, factor)
    return values[..., 0]


@builtin(
    "lime",
    aliases=("LIME",),
    family="perturbations",
    needs="forward",
    paper="Ribeiro, Singh and Guestrin, KDD 2016",
    cost="up to `samples` forwards",
    limits={
        "samples": whole_from(2).or_none(),
        "distance": WORD,
        "width": number_above(0).or_none(),
        "ridge": number_above(0),
    },
)
def lime(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    streams: Streams,
    samples: int | None = None,
    segments: Spec = "grid",
    size: int | None = None,
    distance: str = "cosine",
    width: float | None = None,
    ridge: float = 1.0,
    baseline: Baseline = 0.0,
) -> Tensor:
    """The weights of a simple linear model that imitates the output while segments are shown and hidden.

    The first coalition shows everything, the others show each segment with probability one half. A
    coalition counts ``exp(-(d / width)**2)`` for its distance d from everything. The weight of a segment is
    shared out evenly among its numbers.

    Args:
        model: the network.
        inputs: ``(N, C, ...)`` or vectors ``(N, F)``.
        targets: ``(N,)``.
        streams: the random numbers of each sample.
        samples: coalitions (default: 512, or 4 for each segment where that is more).
        segments: "grid", "slic" or whole numbers that name the segment of each place.
        size: side of a segment (default: 8 places; vectors: one feature).
        distance: "cosine" or "l2", between vectors of zeros and ones.
        width: of the exponential kernel (default: 0.25 for cosine, 0.75 sqrt(segments) for l2).
        ridge: the penalty on squared weights.
        baseline: what hidden segments show.
    """
    if distance not in DISTANCES:
        raise InvalidParameter(f"There is no distance {distance!r}{suggestion(str(distance), DISTANCES)}")
    game = Game.of(model, inputs, targets, segments, size, baseline, streams)
    present = game.segments.sizes(inputs) > 0
    count = enough(game.players) if samples is None else samples

    def values(part: slice) -> Tensor:
        some, there = game[part], present[part]
        # drawn player by player, so that samples with more segments change nothing for the others
        drawn = streams[part].uniform("coalitions", game.players, count).mT < 0.5
        drawn[:, 0] = True
        coalitions = drawn & there[:, None]
        near = proximity(coalitions, there, distance, width)
        return some.spread(ridge_values(coalitions, some.worth(coalitions), near, ridge))

    return in_parts(len(inputs), count * game.players, values, budget_on(inputs))
