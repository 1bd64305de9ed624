"""Methods that hide one part of the input after the other and watch the output."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from verax.engine.baselines import Baseline, baseline_of
from verax.engine.batching import in_parts
from verax.engine.coalitions import Game
from verax.engine.masking import masked_outputs, places
from verax.engine.segments import Spec
from verax.errors import InvalidParameter
from verax.methods.base import builtin
from verax.methods.limits import whole_from


def windows(where: Sequence[int], window: int, stride: int) -> Tensor:
    """Masks ``(M, *where)``, False inside a window; the last window of a row may be cut off by the edge."""
    inside = torch.ones(1, *[1] * len(where), dtype=torch.bool)
    for axis, size in enumerate(where):
        starts = torch.arange(0, max(size - window, 0) + stride, stride)
        starts = starts[: -(-max(size - window, 0) // stride) + 1]
        place = torch.arange(size)
        span = (place >= starts[:, None]) & (place < starts[:, None] + window)
        shape = [1, len(starts), *[1] * len(where)]
        shape[axis + 2] = size
        inside = (inside[:, None] & span.reshape(shape)).flatten(0, 1)
    return ~inside


def drops(game: Game) -> Tensor:
    """How far the output falls when one segment is hidden: float64 ``(N, P)``; dummies exactly 0."""

    def some(part: slice) -> Tensor:
        one = game[part]
        whole, without = one.one_by_one(inside=False)
        return (whole - without) * one.active

    return in_parts(len(game.inputs), 4 * game.players, some)


@builtin(
    "occlusion",
    aliases=("occlusion-1",),
    family="perturbations",
    needs="forward",
    paper="Zeiler and Fergus, ECCV 2014",
    cost="1 forward for each window",
    limits={"window": whole_from(1), "stride": whole_from(1)},
)
def occlusion(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    window: int = 8,
    stride: int = 4,
    baseline: Baseline = 0.0,
) -> Tensor:
    """How far the output falls when a window is covered; overlapping windows are averaged.

    The features of a vector have no neighbours: each is covered by itself (occlusion-1). To cover groups of
    them, use feature-ablation.

    Args:
        model: the network.
        inputs: ``(N, C, ...)``, or vectors ``(N, F)``.
        targets: ``(N,)``.
        window: side of the window in places; it covers all channels.
        stride: distance between windows.
        baseline: the value that covers.
    """
    if inputs.ndim == 2:
        game = Game.of(model, inputs, targets, "grid", 1, baseline)
        return game.spread(drops(game))
    if stride > window:
        raise InvalidParameter(f"Occlusion with a window of {window} needs a stride no larger, not {stride}.")
    where = places(inputs)
    masks = windows(where, window, stride).to(inputs.device)
    uncovered = torch.ones_like(masks[:1])
    fill = baseline_of(baseline, inputs)
    outputs = masked_outputs(model, inputs, targets, torch.cat([uncovered, masks]), fill)
    drop = outputs[:, :1] - outputs[:, 1:]
    covered = (~masks).flatten(1).to(drop)
    mean = (drop @ covered / covered.sum(0)).reshape(len(inputs), 1, *where)
    return mean.expand_as(inputs)


@builtin(
    "feature-ablation",
    aliases=("FeatureAblation", "grouped-occlusion"),
    family="perturbations",
    needs="forward",
    paper="Zeiler and Fergus, ECCV 2014; Krell et al., Environmental Data Science 2025",
    cost="1 forward for each active segment",
)
def feature_ablation(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    segments: Spec = "grid",
    size: int | None = None,
    baseline: Baseline = 0.0,
) -> Tensor:
    """How far the output falls when a whole segment is hidden, shared out evenly within the segment.

    ::

        f(x) - f(x with the segment at its baseline)

    The numbers of a segment add up to its drop. With single features as segments it is occlusion-1.

    Args:
        model: the network.
        inputs: ``(N, C, ...)`` or vectors ``(N, F)``.
        targets: ``(N,)``.
        segments: "grid", "slic" or whole numbers that name the segment of each place.
        size: side of a segment (default: 8 places; vectors: one feature).
        baseline: what a hidden segment shows.
    """
    game = Game.of(model, inputs, targets, segments, size, baseline)
    return game.spread(drops(game))
