"""References for gradients, paths and draws: what the league compares with, and nothing of verax.

A reference is a function of a network, inputs and targets. Sums over random numbers are compared with their
expectation, from many more draws than anybody is asked for.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from correctness import drawn, output
from kinds import REFERENCES

Reference = Callable[[nn.Module, Tensor, Tensor], Tensor]
"""(network, inputs, targets) -> maps, or one number for each sample."""

STEPS, DRAWS, NOISE = 4000, 4000, 0.1


def slope(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
    """The gradient of the explained outputs."""
    x = x.detach().clone().requires_grad_()
    return torch.autograd.grad(model(x.clone()).gather(1, targets[:, None]).sum(), x)[0]


def times_input(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
    """The gradient times the input, which LRP-z is on lines and kinks (Ancona et al., ICLR 2018)."""
    return x * slope(model, x, targets)


def slopes(model: nn.Module, points: Tensor, targets: Tensor) -> Tensor:
    """Gradients at many points of each sample ``(points, samples, ...)``."""
    found = [
        slope(model, part.flatten(0, 1), targets.repeat(len(part))).reshape(part.shape)
        for part in points.split(200)
    ]
    return torch.cat(found)


def path(start: Tensor | float = 0.0, steps: int = STEPS) -> Reference:
    """The path integral from a start with many midpoints (Sundararajan et al., ICML 2017)."""

    def reference(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        along = (torch.arange(steps, dtype=x.dtype) + 0.5) / steps
        total = torch.zeros_like(x)
        for part in along.split(200):
            points = start + part[:, None, None, None, None] * (x - start)
            total += slopes(model, points, targets).sum(0)
        return (x - start) * total / steps

    return reference


def averaged(of: Callable[[Tensor], Reference]) -> Reference:
    """The mean over the references of what is compared with one."""

    def reference(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        return torch.stack([of(low[None])(model, x, targets) for low in REFERENCES]).mean(0)

    return reference


expected_path = averaged(lambda low: path(low, STEPS // 4))
"""Path integrals averaged over the references: expected gradients (Erion et al., 2021)."""


def _noisy(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
    return slopes(model, x + NOISE * drawn(DRAWS, *x.shape, seed=3), targets)


def smooth(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
    """The mean gradient under noise (Smilkov et al., 2017)."""
    return _noisy(model, x, targets).mean(0)


def smooth_squared(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
    """The mean squared gradient under noise (Hooker et al., NeurIPS 2019)."""
    return _noisy(model, x, targets).square().mean(0)


def variance(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
    """The variance of the gradient under noise (Adebayo et al., 2018)."""
    return _noisy(model, x, targets).var(0)


class Rectified(torch.autograd.Function):
    """ReLU whose backward lets positive slopes through: everywhere, or where the input was positive too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, guided: bool) -> Tensor:
        """ReLU."""
        ctx.save_for_backward(x)
        ctx.guided = guided
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """Positive slopes."""
        (x,) = ctx.saved_tensors
        kept = grads[0].clamp(min=0)
        return (kept * (x > 0) if ctx.guided else kept), None


def rectified(guided: bool) -> Reference:
    """Guided backpropagation (Springenberg et al., 2015) or a deconvnet (Zeiler and Fergus, 2014)."""

    def reference(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        other = copy.deepcopy(model)
        other.special = lambda value: Rectified.apply(value, guided)
        return slope(other, x, targets)

    return reference


# -- what maps add up to -----------------------------------------------------------------------------------


def change(low: Tensor | float = 0.0) -> Reference:
    """The change of the output from a baseline."""
    return lambda model, x, targets: (
        output(model, x, targets) - output(model, torch.zeros_like(x) + low, targets)
    )


def mean_change(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
    """The change from the mean over the references."""
    means = torch.stack([output(model, REFERENCES, t.expand(len(REFERENCES))).mean() for t in targets])
    return output(model, x, targets) - means
