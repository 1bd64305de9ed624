"""Methods made of gradients."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from verax.engine import gradients as engine
from verax.engine.baselines import Baseline, baseline_of
from verax.errors import InvalidParameter, suggestion
from verax.methods.base import builtin
from verax.seeding import Streams


@builtin(
    "gradient",
    aliases=("G", "saliency"),
    family="gradients",
    paper="Simonyan, Vedaldi and Zisserman, ICLR workshop 2014",
    cost="1 forward, 1 backward",
    transfer="gray",
)
def gradient(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """The gradient of the explained output with respect to the input."""
    return engine.gradient(model, inputs, targets)


@builtin(
    "input-x-gradient",
    aliases=("IxG", "I*G"),
    family="gradients",
    paper="Shrikumar et al., 2016 (arXiv 1605.01713)",
    cost="1 forward, 1 backward",
)
def input_x_gradient(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """The input times its gradient."""
    return inputs * engine.gradient(model, inputs, targets)


@builtin(
    "smoothgrad",
    aliases=("SG",),
    family="gradients",
    paper="Smilkov et al., 2017 (arXiv 1706.03825)",
    cost="`samples` forwards and backwards",
    transfer="gray",
)
def smoothgrad(
    model: nn.Module, inputs: Tensor, targets: Tensor, streams: Streams, samples: int = 25, noise: float = 0.1
) -> Tensor:
    """The mean gradient over noisy copies of the input.

    Args:
        model: the network.
        inputs: ``(N, ...)``.
        targets: ``(N,)``.
        streams: the random numbers of each sample.
        samples: noisy copies.
        noise: standard deviation of the noise, in units of the input.
    """
    if samples < 1 or noise < 0:
        raise InvalidParameter("SmoothGrad needs at least one sample and noise of at least 0.")

    def points(some: slice, part: slice) -> Tensor:
        kept = inputs[some]
        draws = streams[some].normal("smoothgrad", samples, *kept.shape[1:])[:, part]
        return kept[:, None] + noise * draws.to(kept)

    weights = torch.full((samples,), 1 / samples, dtype=torch.float64)
    return engine.mean_gradient(model, inputs, targets, points, weights)


def _nodes(rule: str, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Places in [0, 1] and weights of a quadrature rule."""
    if rule == "gauss-legendre":
        nodes, weights = np.polynomial.legendre.leggauss(steps)
        return (nodes + 1) / 2, weights / 2
    equal = np.full(steps, 1 / steps)
    if rule == "midpoint":
        return (np.arange(steps) + 0.5) / steps, equal
    if rule == "left":
        return np.arange(steps) / steps, equal
    if rule == "right":
        return np.arange(1, steps + 1) / steps, equal
    if rule == "trapezoid" and steps > 1:
        ends = np.full(steps, 1 / (steps - 1))
        ends[[0, -1]] /= 2
        return np.linspace(0, 1, steps), ends
    known = ["gauss-legendre", "midpoint", "left", "right", "trapezoid"]
    raise InvalidParameter(
        f"There is no quadrature rule {rule!r} with {steps} steps{suggestion(rule, known)}"
    )


@builtin(
    "integrated-gradients",
    aliases=("IG",),
    family="gradients",
    paper="Sundararajan, Taly and Yan, ICML 2017",
    cost="`steps` forwards and backwards",
    total="change",
)
def integrated_gradients(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    steps: int = 32,
    rule: str = "gauss-legendre",
    baseline: Baseline = 0.0,
) -> Tensor:
    """Gradients integrated along the straight line from a baseline to the input, times the difference.

    Args:
        model: the network.
        inputs: ``(N, ...)``.
        targets: ``(N,)``.
        steps: points on the line.
        rule: gauss-legendre, midpoint, left, right or trapezoid.
        baseline: the value that stands for absence.
    """
    if steps < 1:
        raise InvalidParameter("Integrated gradients need at least one step.")
    places, weights = _nodes(rule, steps)
    along = torch.from_numpy(places).to(inputs)
    start = baseline_of(baseline, inputs)

    def points(some: slice, part: slice) -> Tensor:
        kept, low = inputs[some, None], start[some, None]
        return low + (kept - low) * along[part].reshape(1, -1, *([1] * (inputs.ndim - 1)))

    mean = engine.mean_gradient(model, inputs, targets, points, torch.from_numpy(weights))
    return (inputs - start) * mean
