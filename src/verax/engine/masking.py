"""The masked-forward service: many masks on many samples, flattened into passes that fit into memory."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from verax.engine.batching import rows_within_budget, with_halving
from verax.engine.gradients import select


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
        inputs: ``(N, C, ...)``.
        targets: ``(N,)``.
        masks: ``(M, ...)`` bool without the channel dimension; False replaces by the baseline.
        baseline: broadcastable to `inputs`.
        rows: masked copies in one pass (default: within the memory budget).
    """
    filling = baseline.to(inputs).expand_as(inputs)
    differs = (inputs != filling).any(1).flatten(1).to(torch.float32)
    removed = (~masks).flatten(1).to(torch.float32)
    samples, chosen = (differs @ removed.T > 0).nonzero(as_tuple=True)

    def compute(limit: int) -> Tensor:
        with torch.inference_mode():
            plain = [
                select(model(part), target)
                for part, target in zip(torch.split(inputs, limit), torch.split(targets, limit), strict=True)
            ]
            result = torch.cat(plain)[:, None].repeat(1, len(masks))
            for who, which in zip(torch.split(samples, limit), torch.split(chosen, limit), strict=True):
                mask = masks[which][:, None]
                masked = torch.where(mask, inputs[who], filling[who])
                result[who, which] = select(model(masked), targets[who])
        return result.clone()

    return with_halving(compute, rows or rows_within_budget(inputs[0]))


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
    filling = baseline.to(inputs).expand_as(inputs)
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
                result[who, which] = select(model(shown), targets[who])
        return result

    return with_halving(compute, rows or rows_within_budget(inputs[0]))
