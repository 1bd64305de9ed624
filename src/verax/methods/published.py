"""Methods as the libraries behind the SMERF paper computed them, quirks included.

Kim, Plumb and Talwalkar, "Sanity Simulations for Saliency Methods", ICML 2022, used iNNvestigate 1.0.8 and
code of their own. Where that differs from the method's definition, ``NAME@published`` is the method as it was
run; methods without such a twin here are the same in both.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from verax.engine import gradients as engine
from verax.engine import rules, spots
from verax.engine.baselines import Baseline
from verax.engine.features import feature_map
from verax.engine.passes import propagate
from verax.engine.relevance import LRP, Composite
from verax.errors import InvalidInput
from verax.methods.base import builtin
from verax.methods.gradients import smoothgrad_squared
from verax.methods.references import REFERENCES, references_of
from verax.methods.references import deep_shap as plain_deep_shap
from verax.seeding import Streams

_PAPER = "Kim, Plumb and Talwalkar, ICML 2022 (iNNvestigate 1.0.8)"
_COPIES = 64


@builtin(
    "gradient@published",
    family="gradients",
    needs="gradient",
    paper=_PAPER,
    cost="1 forward, 1 backward",
    transfer="gray",
)
def gradient(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """The magnitude of the gradient, channel by channel, as iNNvestigate shows it."""
    return engine.gradient(model, inputs, targets).abs()


@builtin(
    "smoothgrad@published",
    family="gradients",
    needs="gradient",
    paper=_PAPER,
    cost="64 forwards and backwards",
    transfer="gray",
)
def smoothgrad(model: nn.Module, inputs: Tensor, targets: Tensor, streams: Streams) -> Tensor:
    """SmoothGrad as it was run: the mean squared gradient over 64 copies with noise of 0.1."""
    return smoothgrad_squared(model, inputs, targets, streams, samples=_COPIES, noise=0.1)


@builtin(
    "integrated-gradients@published",
    family="gradients",
    needs="gradient",
    paper=_PAPER,
    cost="64 forwards and backwards",
)
def integrated_gradients(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Integrated gradients along the wrong path: from the input to its double, in 64 left-hand steps.

    iNNvestigate 1.0.8 takes gradients at x + a (x - reference) instead of reference + a (x - reference).
    """
    away = torch.arange(_COPIES, dtype=torch.float64) / _COPIES

    def points(some: slice, part: slice) -> Tensor:
        return inputs[some, None] * (1 + away[part].to(inputs).reshape(1, -1, *[1] * (inputs.ndim - 1)))

    weights = torch.full((_COPIES,), 1 / _COPIES, dtype=torch.float64)
    wanted = spots.differing(inputs, torch.zeros_like(inputs))
    return inputs * engine.mean_gradient(model, inputs, targets, points, weights, wanted=wanted)


@builtin(
    "grad-cam@published",
    family="cams",
    needs="feature map",
    inputs="pictures",
    paper=_PAPER,
    cost="1 forward, 1 backward",
    transfer="plain",
)
def grad_cam(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Grad-CAM as it was run: enlarged first, rectified then, and divided by its maximum.

    An empty map is NaN in the original, which its metrics read as 0; here it is 0.
    """
    activations, slopes = feature_map(model, inputs, targets)
    cam = (activations * slopes.mean((2, 3), keepdim=True)).sum(1, keepdim=True)
    cam = F.relu(F.interpolate(cam, size=inputs.shape[2:], mode="bilinear", align_corners=False))
    peak = cam.amax((1, 2, 3), keepdim=True)
    return (cam / torch.where(peak > 0, peak, 1.0)).expand_as(inputs)


def _relevance(
    model: nn.Module, inputs: Tensor, targets: Tensor, composite: Composite, start: str = "output"
) -> Tensor:
    return propagate(LRP(composite), model, inputs, targets, start=start)[0]


def _alpha_beta(alpha: float, beta: float) -> rules.Rule:
    """The whole bias in both denominators, and only exact zeros moved away from zero."""
    return rules.alpha_beta(alpha, beta, eps=0, bias="innvestigate")


@builtin(
    "deep-taylor@published", family="relevance", needs="rules", paper=_PAPER, cost="1 forward, 2 backwards"
)
def deep_taylor(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Deep Taylor as it was run: biases count among positive contributions, for inputs from 0 to 1.

    The output is rectified first, pooling shares by its gradient, batch normalisation is passed unchanged.
    """
    plus = _alpha_beta(1, 0)
    first = rules.z_box(0.0, 1.0, eps=0)
    composite = Composite(plus, plus, first, pool=rules.adjoint(), batch_norm="pass")
    return _relevance(model, inputs, targets, composite, start="relu")


@builtin(
    "lrp-epsilon@published", family="relevance", needs="rules", paper=_PAPER, cost="1 forward, 1 backward"
)
def lrp_epsilon(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """LRP-epsilon as it was run: with an epsilon of 1 in every layer."""
    rule = rules.epsilon(1.0)
    return _relevance(model, inputs, targets, Composite(rule, rule))


def _preset(alpha: float, beta: float) -> Composite:
    return Composite(conv=_alpha_beta(alpha, beta), dense=rules.epsilon(1.0), first=rules.flat(eps=0))


@builtin("lrp-a@published", family="relevance", needs="rules", paper=_PAPER, cost="1 forward, 2 backwards")
def lrp_a(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """LRP preset A as it was run: epsilon 1 on dense layers, the whole bias on both sides of convolutions."""
    return _relevance(model, inputs, targets, _preset(1, 0))


@builtin("lrp-b@published", family="relevance", needs="rules", paper=_PAPER, cost="1 forward, 4 backwards")
def lrp_b(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """LRP preset B as it was run: epsilon 1 on dense layers, the whole bias on both sides of convolutions."""
    return _relevance(model, inputs, targets, _preset(2, 1))


@builtin(
    "deep-shap@published",
    family="references",
    needs="rules",
    paper="Kim, Plumb and Talwalkar, ICML 2022 (shap 0.39)",
    cost="2 forwards, 1 backward for each reference",
    transfer="shap",
    explains="label",
    total="change",
    starts=references_of,
    limits={"references": REFERENCES},
)
def deep_shap(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    streams: Streams,
    references: Tensor | int = 16,
    baseline: Baseline = 0.0,
    noise: float = 0.1,
) -> Tensor:
    """Deep SHAP as it was run: studies ask it about the true label, all others about the predicted one.

    The original has 1000 pictures of the training data as references: ``references = "task:1000"``.

    Args:
        model: the network.
        inputs: ``(N, ...)``.
        targets: ``(N,)``; the true labels, in studies.
        streams: the random numbers of each sample.
        references: a set ``(R, ...)`` used for every sample, or how many are drawn around `baseline`.
        baseline: what references are made from.
        noise: standard deviation of the noise around `baseline`, in units of the input.
    """
    return plain_deep_shap(model, inputs, targets, streams, references, baseline, noise)


@builtin(
    "edge@published",
    family="controls",
    needs="nothing",
    inputs="pictures",
    paper=_PAPER,
    cost="none",
    transfer="inverse",
)
def edge(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Edges as they were run: signed horizontal differences (Sobel, 5 x 5), each picture moved to [0, 1]."""
    if inputs.ndim != 4 or min(inputs.shape[2:]) < 3:
        raise InvalidInput(
            f"Edges need pictures (N, C, H, W) of at least 3 x 3, not shape {tuple(inputs.shape)}."
        )
    across = torch.tensor([-1.0, -2.0, 0.0, 2.0, 1.0]).to(inputs, non_blocking=True)
    down = torch.tensor([1.0, 4.0, 6.0, 4.0, 1.0]).to(inputs, non_blocking=True)
    flat = F.pad(inputs.flatten(0, 1)[:, None], (2, 2, 2, 2), mode="reflect")
    found = F.conv2d(flat, torch.outer(down, across)[None, None]).reshape(inputs.shape)
    low = found.amin((1, 2, 3), keepdim=True)
    span = found.amax((1, 2, 3), keepdim=True) - low
    return (found - low) / torch.where(span > 0, span, 1.0)
