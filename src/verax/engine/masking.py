"""The masked-forward service: many masks on many samples, flattened into passes that fit into memory."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from verax.engine.batching import in_parts, rows_within_budget, with_halving
from verax.engine.gradients import select
from verax.errors import InvalidInput

Make = Callable[[Tensor, Tensor], Tensor]
"""(samples, masks), two int64 tensors ``(R,)`` -> one mask for each pair, ``(R, ...)``; see `blend`."""


def places(inputs: Tensor) -> tuple[int, ...]:
    """The shape that masks have: that of a sample without its channels; a vector has no channels."""
    return tuple(inputs.shape[2:] if inputs.ndim > 2 else inputs.shape[1:])


def aligned(masks: Tensor, inputs: Tensor) -> Tensor:
    """Masks ``(R, *places)`` with a channel dimension that broadcasts; others as they are."""
    return masks[:, None] if inputs.ndim > 2 and masks.ndim == inputs.ndim - 1 else masks


def blend(masks: Tensor, inputs: Tensor, filling: Tensor, out: Tensor | None = None) -> Tensor:
    """The input where a mask is True or 1, the filling where it is False or 0, a mixture in between.

    The two ends are exact: they give the very numbers of the input and of the filling.
    """
    # measured: five times as fast as `where`, whose broadcast over channels is not vectorised
    return torch.lerp(filling, inputs, aligned(masks, inputs).to(inputs), out=out)


def pair_outputs(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    filling: Tensor,
    samples: Tensor,
    chosen: Tensor,
    make: Make,
    rows: int | None = None,
) -> Tensor:
    """The explained output of each pair (sample, mask): ``(R,)``.

    Masks are made pass by pass, so that memory grows neither with the samples nor with the masks.

    Args:
        model: the network.
        inputs: ``(N, ...)``.
        targets: ``(N,)``.
        filling: what masked places show, shape of `inputs`.
        samples: ``(R,)`` which sample.
        chosen: ``(R,)`` which mask.
        make: makes the masks of some pairs.
        rows: masked copies in one pass (default: within the memory budget).
    """
    # one row serves all samples when all have the same filling, as most have
    single = filling[:1] if bool((filling == filling[:1]).all()) else None

    def compute(limit: int) -> Tensor:
        parts = []
        with torch.inference_mode():
            # one buffer for all passes: fresh memory costs a CPU more than the masks do
            buffer = inputs.new_empty((min(limit, len(samples)), *inputs.shape[1:]))
            for who, which in zip(torch.split(samples, limit), torch.split(chosen, limit), strict=True):
                low = filling.index_select(0, who) if single is None else single
                # `index_select` copies whole rows, ten times as fast as an index in brackets
                masked = torch.index_select(inputs, 0, who, out=buffer[: len(who)])
                masked = blend(make(who, which), masked, low, out=masked)
                # a copy, because the output may be a view of the buffer
                parts.append(select(model(masked), targets[who]).clone())
            result = torch.cat(parts) if parts else inputs.new_zeros(0)
        return result.clone()

    return with_halving(compute, rows or rows_within_budget(inputs[0]))


def masked_outputs(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    masks: Tensor,
    baseline: Tensor,
    rows: int | None = None,
) -> Tensor:
    """The explained output of every sample under every mask: ``(N, M)``.

    A pair whose masked input equals the input itself (an empty window on a background that already is the
    baseline) needs no pass of its own; on TextBox this saves four passes in five.

    Args:
        model: the network.
        inputs: ``(N, C, ...)`` or vectors ``(N, F)``.
        targets: ``(N,)``.
        masks: without the channel dimension, ``(M, ...)`` for all samples or ``(N, M, ...)`` with masks of
            each sample's own; bool (False replaces by the baseline) or numbers from 0 to 1 that mix.
        baseline: broadcastable to `inputs`.
        rows: masked copies in one pass (default: within the memory budget).
    """
    where = places(inputs)
    shared = masks.ndim == len(where) + 1
    leading = () if shared else (len(inputs),)
    if tuple(masks.shape) != (*leading, *masks.shape[len(leading) : len(leading) + 1], *where):
        raise InvalidInput(
            f"Masks of shape {tuple(masks.shape)} do not fit inputs of shape {tuple(inputs.shape)}."
        )
    filling = baseline.to(inputs).expand_as(inputs)
    count = masks.shape[0 if shared else 1]
    table = masks if shared else masks.flatten(0, 1)

    def changing(part: slice) -> Tensor:
        differs = inputs[part] != filling[part]
        if inputs.ndim > 2:
            differs = differs.any(1)
        # sums of zeros and ones are positive or not, in any precision
        removed = ((masks if shared else masks[part]) != 1).flatten(1 if shared else 2).to(torch.float32)
        return (removed @ differs.flatten(1).to(torch.float32)[..., None] > 0)[..., 0]

    def make(who: Tensor, which: Tensor) -> Tensor:
        found = table.index_select(0, which.clamp_max(count - 1) + (0 if shared else who * count))
        return found.masked_fill_((which == count).reshape(-1, *[1] * len(where)), 1)

    numbers = inputs[0].numel() + (0 if shared else masks[0].numel())
    # the input as it is, as if by one more mask: a pass of its own would be a small one
    asked = F.pad(in_parts(len(inputs), numbers, changing), (0, 1), value=True)
    samples, chosen = asked.nonzero(as_tuple=True)
    found = pair_outputs(model, inputs, targets, filling, samples, chosen, make, rows)
    plain = found[chosen == count]
    result = plain[:, None].repeat(1, count + 1)
    result[samples, chosen] = found
    return result[:, :count]


def channel_outputs(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    maps: Tensor,
    baseline: Tensor,
    rows: int | None = None,
) -> Tensor:
    """The explained output where only what a channel highlights is shown: ``(N, C)``.

    Each channel is enlarged to the input and moved to [0, 1]; where it is 0 the baseline is shown. A constant
    channel highlights nothing: its output is minus infinity.

    Args:
        model: the network.
        inputs: ``(N, _, H, W)``.
        targets: ``(N,)``.
        maps: ``(N, C, h, w)``, the channels of each sample.
        baseline: broadcastable to `inputs`.
        rows: masked copies in one pass (default: within the memory budget).
    """
    filling, maps = baseline.to(inputs).expand_as(inputs), maps.to(inputs)  # autocast leaves maps in half
    low, high = maps.flatten(2).aminmax(dim=2)
    samples, channels = (high > low).nonzero(as_tuple=True)

    def compute(limit: int) -> Tensor:
        result = torch.full_like(low, -torch.inf)
        with torch.inference_mode():
            for who, which in zip(torch.split(samples, limit), torch.split(channels, limit), strict=True):
                mask = F.interpolate(
                    maps[who, which][:, None], inputs.shape[2:], mode="bilinear", align_corners=False
                )
                least = mask.amin((2, 3), keepdim=True)
                span = mask.amax((2, 3), keepdim=True) - least
                mask = (mask - least) / torch.where(span > 0, span, 1.0)  # enlarging may flatten a channel
                shown = torch.lerp(filling[who], inputs[who], mask.expand_as(inputs[who]))
                result[who, which] = select(model(shown), targets[who]).to(result)
        return result

    return with_halving(compute, rows or rows_within_budget(inputs[0]))
