"""Methods made of gradients."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from verax.engine import gradients as engine
from verax.engine import spots
from verax.engine.baselines import Baseline, baseline_of
from verax.engine.batching import accumulate, rows_within_budget
from verax.engine.biases import full_gradient
from verax.engine.mode import full_precision
from verax.errors import InvalidInput, InvalidParameter, suggestion
from verax.methods.base import builtin
from verax.seeding import Streams


@builtin(
    "gradient",
    aliases=("G", "saliency"),
    family="gradients",
    needs="gradient",
    paper="Simonyan, Vedaldi and Zisserman, ICLR workshop 2014",
    cost="1 forward, 1 backward",
    transfer="gray",
)
def gradient(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """How much the output changes when an input changes a little: the gradient."""
    return engine.gradient(model, inputs, targets)


@builtin(
    "input-x-gradient",
    aliases=("IxG", "I*G"),
    family="gradients",
    needs="gradient",
    paper="Shrikumar et al., 2016 (arXiv 1605.01713)",
    cost="1 forward, 1 backward",
)
def input_x_gradient(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """The input times its gradient: what each input brings if the network were linear.

    ::

        x_i * df/dx_i
    """
    wanted = spots.differing(inputs, torch.zeros_like(inputs))
    return inputs * engine.gradient(model, inputs, targets, wanted)


class _Noise:
    """Noisy copies of each sample, drawn when they are needed."""

    def __init__(self, inputs: Tensor, streams: Streams, samples: int, noise: float, relative: bool) -> None:
        self.inputs, self.streams, self.samples = inputs, streams, samples
        low, high = inputs.flatten(1).aminmax(dim=1)
        self.width = noise * (high - low if relative else torch.ones_like(low))

    def __call__(self, some: slice, part: slice) -> Tensor:
        kept = self.inputs[some]
        draws = self.streams[some].normal("smoothgrad", self.samples, *kept.shape[1:], part=part)
        width = self.width[some].reshape(-1, 1, *[1] * (kept.ndim - 1))
        return kept[:, None] + width * draws.to(kept)


_NOISE_COST = "`samples` forwards and backwards"


@builtin(
    "smoothgrad",
    aliases=("SG",),
    family="gradients",
    needs="gradient",
    paper="Smilkov et al., 2017 (arXiv 1706.03825)",
    cost=_NOISE_COST,
    transfer="gray",
)
def smoothgrad(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    streams: Streams,
    samples: int = 25,
    noise: float = 0.1,
    relative: bool = False,
) -> Tensor:
    """The mean gradient over noisy copies of the input, which evens out its noise.

    ::

        mean over k of df/dx (x + noise * z_k),    z_k standard normal

    Args:
        model: the network.
        inputs: ``(N, ...)``.
        targets: ``(N,)``.
        streams: the random numbers of each sample.
        samples: noisy copies.
        noise: standard deviation of the noise, in units of the input.
        relative: whether `noise` is a fraction of each sample's range (maximum - minimum), as in the paper.
    """
    points = _Noise(inputs, streams, samples, noise, relative)
    weights = torch.full((samples,), 1 / samples, dtype=torch.float64)
    return engine.mean_gradient(model, inputs, targets, points, weights)


@builtin(
    "smoothgrad-squared",
    aliases=("SG2", "SGSQ"),
    family="gradients",
    needs="gradient",
    paper="Hooker et al., NeurIPS 2019 (arXiv 1806.10758)",
    cost=_NOISE_COST,
    transfer="gray",
)
def smoothgrad_squared(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    streams: Streams,
    samples: int = 25,
    noise: float = 0.1,
    relative: bool = False,
) -> Tensor:
    """The mean squared gradient over noisy copies of the input: size without sign.

    ::

        mean over k of (df/dx (x + noise * z_k))**2,    z_k standard normal

    Args:
        model: the network.
        inputs: ``(N, ...)``.
        targets: ``(N,)``.
        streams: the random numbers of each sample.
        samples: noisy copies.
        noise: standard deviation of the noise, in units of the input.
        relative: whether `noise` is a fraction of each sample's range (maximum - minimum), as in the paper.
    """
    points = _Noise(inputs, streams, samples, noise, relative)

    def visit(some: slice, part: slice) -> Tensor:
        return engine.gradients_at(model, points(some, part), targets[some]).square().sum(1) / samples

    return accumulate(inputs, samples, visit, rows_within_budget(inputs[0]))


@builtin(
    "vargrad",
    family="gradients",
    needs="gradient",
    paper="Adebayo et al., ICLR workshop 2018 (arXiv 1810.03307)",
    cost=_NOISE_COST,
    transfer="gray",
)
def vargrad(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    streams: Streams,
    samples: int = 25,
    noise: float = 0.1,
    relative: bool = False,
) -> Tensor:
    """The variance of the gradient over noisy copies of the input: where the gradient is unsteady.

    ::

        variance over k of df/dx (x + noise * z_k),    z_k standard normal

    Args:
        model: the network.
        inputs: ``(N, ...)``.
        targets: ``(N,)``.
        streams: the random numbers of each sample.
        samples: noisy copies.
        noise: standard deviation of the noise, in units of the input.
        relative: whether `noise` is a fraction of each sample's range (maximum - minimum), as in the paper.
    """
    points = _Noise(inputs, streams, samples, noise, relative)
    first = inputs

    def visit(some: slice, part: slice) -> Tensor:
        nonlocal first
        slopes = engine.gradients_at(model, points(some, part), targets[some])
        if part.start == 0:  # all parts of some samples come one after the other
            first = slopes[:, :1].clone()
        # Differences from the first gradient, so that a small variance around a large mean keeps its digits.
        away = slopes - first
        return torch.stack([away.sum(1), away.square().sum(1)], 1) / samples

    both = torch.stack([inputs, inputs], 1)
    mean, square = accumulate(both, samples, visit, rows_within_budget(inputs[0])).unbind(1)
    return (square - mean.square()).clamp_min(0)


def quadrature(rule: str, steps: int) -> tuple[np.ndarray, np.ndarray]:
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
    needs="gradient",
    paper="Sundararajan, Taly and Yan, ICML 2017",
    cost="`steps` forwards and backwards",
    total="change",
    slack="steps",
)
def integrated_gradients(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    steps: int = 32,
    rule: str = "gauss-legendre",
    baseline: Baseline = 0.0,
) -> Tensor:
    """Gradients collected on the straight line from a baseline to the input, times the way of each input.

    ::

        (x_i - b_i) * integral over a from 0 to 1 of df/dx_i (b + a (x - b))

    Args:
        model: the network.
        inputs: ``(N, ...)``.
        targets: ``(N,)``.
        steps: points on the line.
        rule: gauss-legendre, midpoint, left, right or trapezoid.
        baseline: the value that stands for absence.
    """
    places, weights = quadrature(rule, steps)
    along = torch.from_numpy(places).to(inputs, non_blocking=True)
    start = baseline_of(baseline, inputs)

    def points(some: slice, part: slice) -> Tensor:
        kept, low = inputs[some, None], start[some, None]
        return low + (kept - low) * along[part].reshape(1, -1, *([1] * (inputs.ndim - 1)))

    wanted = spots.differing(inputs, start)
    mean = engine.mean_gradient(model, inputs, targets, points, torch.from_numpy(weights), wanted=wanted)
    return (inputs - start) * mean


def _highlights(part: Tensor, size: torch.Size, rescale: bool) -> Tensor:
    """Magnitudes of a part, summed over channels and enlarged: ``(N, 1, H, W)``."""
    values = part.abs()
    if rescale:
        low = values.amin((1, 2, 3), keepdim=True)
        span = values.amax((1, 2, 3), keepdim=True) - low
        values = (values - low) / torch.where(span > 0, span, 1.0)
    summed = values.sum(1, keepdim=True)
    return F.interpolate(summed, size, mode="bilinear", align_corners=False)


@builtin(
    "fullgrad",
    aliases=("FullGrad", "full-gradient"),
    family="gradients",
    needs="rules",
    inputs="pictures",
    paper="Srinivas and Fleuret, NeurIPS 2019",
    cost="1 forward, 1 backward",
    transfer="gray",
)
def fullgrad(model: nn.Module, inputs: Tensor, targets: Tensor, rescale: bool = True) -> Tensor:
    """How much the input and every bias of the network bring, as magnitudes, enlarged and added up.

    Input and biases together add up to the output exactly (`verax.engine.biases.full_gradient`). The biases
    of dense layers and of maps of one pixel belong to no place in the picture; they are part of that sum, not
    of the map.

    Args:
        model: the network.
        inputs: ``(N, C, H, W)``.
        targets: ``(N,)``.
        rescale: move each part of each sample to [0, 1] before they are added, as the paper does; without it
            parts keep their own size.
    """
    if inputs.ndim != 4:
        raise InvalidInput(f"FullGrad needs pictures (N, C, H, W), not shape {tuple(inputs.shape)}.")
    size = inputs.shape[2:]
    with full_precision(inputs):
        own, parts, _ = full_gradient(model, inputs, targets)
        total = _highlights(own, size, rescale)
        for part in parts:
            if part.ndim == 4 and len(part) == len(inputs) and part.shape[2:].numel() > 1:
                total = total + _highlights(part, size, rescale)
    return total.expand_as(inputs)
