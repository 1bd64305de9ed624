"""Methods that change the input and watch the output."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from verax.engine.baselines import Baseline, baseline_of
from verax.engine.masking import masked_outputs
from verax.errors import InvalidInput, InvalidParameter
from verax.methods.base import builtin


def windows(height: int, width: int, window: int, stride: int) -> Tensor:
    """Masks ``(M, H, W)``, False inside a window; the last window of a row may be cut off by the edge."""

    def spans(size: int) -> Tensor:
        starts = torch.arange(0, max(size - window, 0) + stride, stride)
        starts = starts[: -(-max(size - window, 0) // stride) + 1]
        place = torch.arange(size)
        return (place >= starts[:, None]) & (place < starts[:, None] + window)

    rows, cols = spans(height), spans(width)
    return ~(rows[:, None, :, None] & cols[None, :, None, :]).flatten(0, 1)


@builtin(
    "occlusion",
    family="perturbations",
    paper="Zeiler and Fergus, ECCV 2014",
    cost="one forward for each window",
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

    Args:
        model: the network.
        inputs: ``(N, C, H, W)``.
        targets: ``(N,)``.
        window: side of the square window in pixels; it covers all channels.
        stride: distance between windows.
        baseline: the value that covers.
    """
    if inputs.ndim != 4:
        raise InvalidInput(f"Occlusion needs pictures (N, C, H, W), not shape {tuple(inputs.shape)}.")
    if window < 1 or not 1 <= stride <= window:
        raise InvalidParameter(
            "Occlusion needs a window of at least 1 and a stride from 1 to the window's side."
        )
    masks = windows(inputs.shape[2], inputs.shape[3], window, stride).to(inputs.device)
    uncovered = torch.ones_like(masks[:1])
    fill = baseline_of(baseline, inputs)
    outputs = masked_outputs(model, inputs, targets, torch.cat([uncovered, masks]), fill)
    drop = outputs[:, :1] - outputs[:, 1:]
    covered = (~masks).flatten(1).to(drop)
    mean = (drop @ covered / covered.sum(0)).reshape(len(inputs), 1, *inputs.shape[2:])
    return mean.expand_as(inputs)
