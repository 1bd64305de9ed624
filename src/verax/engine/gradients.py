"""Gradients of one output with respect to the input, for many points at once."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from verax.engine.batching import rows_within_budget, with_halving
from verax.errors import InvalidInput


def select(outputs: object, targets: Tensor) -> Tensor:
    """The explained output of each sample: ``(N,)``; a model with one output has nothing to choose."""
    if not isinstance(outputs, Tensor) or outputs.ndim not in (1, 2) or len(outputs) != len(targets):
        what = f"shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else type(outputs).__name__
        raise InvalidInput(f"A network must give a tensor (samples, outputs), not {what}.")
    if outputs.ndim == 1:
        return outputs
    return outputs.gather(1, targets[:, None])[:, 0]


def leaf(inputs: Tensor) -> Tensor:
    """A private copy of the inputs that gradients can be taken for."""
    return inputs.detach().clone(memory_format=torch.contiguous_format).requires_grad_()


def gradient(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """The gradient of each sample's explained output: shape of `inputs`; the weights' grads are untouched."""
    with torch.enable_grad():
        point = leaf(inputs)
        chosen = select(model(point), targets)
        if chosen.grad_fn is None:
            return torch.zeros_like(inputs)
        (slope,) = torch.autograd.grad(chosen.sum(), point, allow_unused=True)
    return torch.zeros_like(inputs) if slope is None else slope.detach()


Points = Callable[[slice, slice], Tensor]
"""(samples, points) -> the points ``(n, k, ...)`` at which gradients are wanted."""


def mean_gradient(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    points: Points,
    weights: Tensor,
    rows: int | None = None,
) -> Tensor:
    """The weighted sum of gradients over several points of each sample.

    Samples and points are flattened into passes of about `rows` rows. A sample's sum runs over its own
    points in a fixed order, so it does not depend on the samples beside it.
    """
    count = len(weights)

    def compute(limit: int) -> Tensor:
        total = torch.zeros_like(inputs)
        together = max(1, limit // count)
        step = min(limit, count)
        for first in range(0, len(inputs), together):
            some = slice(first, min(first + together, len(inputs)))
            chosen = targets[some]
            for start in range(0, count, step):
                part = slice(start, min(start + step, count))
                x = points(some, part)
                k = x.shape[1]
                slope = gradient(model, x.flatten(0, 1), chosen.repeat_interleave(k)).reshape(x.shape)
                weight = weights[part].to(slope).reshape(1, k, *([1] * (slope.ndim - 2)))
                total[some] += (slope * weight).sum(1)
        return total

    return with_halving(compute, rows or rows_within_budget(inputs[0]))
