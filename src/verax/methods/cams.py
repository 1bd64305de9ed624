"""Class activation maps: feature maps, weighted by what they mean to the output and enlarged to the input.

All of them find their layer alike: the module called `layer`, or by default the last feature map of the
forward pass that has more than one pixel.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from verax.engine.baselines import Baseline, baseline_of
from verax.engine.features import ablated_outputs, feature_map
from verax.engine.masking import channel_outputs
from verax.engine.multipliers import rectified
from verax.methods.base import builtin

_COST = "1 forward, 1 backward"


def _enlarged(weighted: Tensor, inputs: Tensor, relu: bool) -> Tensor:
    """The sum over channels, rectified where asked for, at the size of the inputs."""
    cam = weighted.sum(1, keepdim=True)
    cam = F.relu(cam) if relu else cam
    cam = F.interpolate(cam, size=inputs.shape[2:], mode="bilinear", align_corners=False)
    return cam.expand_as(inputs)


@builtin(
    "grad-cam",
    aliases=("G-CAM", "GradCAM"),
    family="cams",
    needs="feature map",
    inputs="pictures",
    paper="Selvaraju et al., ICCV 2017",
    cost=_COST,
    transfer="plain",
)
def grad_cam(
    model: nn.Module, inputs: Tensor, targets: Tensor, layer: str | None = None, relu: bool = True
) -> Tensor:
    """The last feature map, its channels weighted by their mean gradient, enlarged to the input.

    ::

        relu(sum over channels c of A_c * mean over places of df/dA_c)

    Args:
        model: the network.
        inputs: ``(N, C, H, W)``.
        targets: ``(N,)``.
        layer: a module's name; by default the last feature map of more than one pixel.
        relu: keep only what speaks for the class.
    """
    activations, slopes = feature_map(model, inputs, targets, layer)
    return _enlarged(activations * slopes.mean((2, 3), keepdim=True), inputs, relu)


@builtin(
    "grad-cam-plus-plus",
    aliases=("GradCAM++", "grad-cam++"),
    family="cams",
    needs="feature map",
    inputs="pictures",
    paper="Chattopadhay et al., WACV 2018",
    cost=_COST,
    transfer="plain",
)
def grad_cam_plus_plus(
    model: nn.Module, inputs: Tensor, targets: Tensor, layer: str | None = None, relu: bool = True
) -> Tensor:
    """Grad-CAM with positive gradients weighted pixel by pixel, so that several objects all show.

    The paper explains the exponential of the output, which multiplies all weights of a sample by the same
    positive number; that number is left out, because it overflows.

    Args:
        model: the network.
        inputs: ``(N, C, H, W)``.
        targets: ``(N,)``.
        layer: a module's name; by default the last feature map of more than one pixel.
        relu: keep only what speaks for the class.
    """
    activations, slopes = feature_map(model, inputs, targets, layer)
    below = 2 * slopes**2 + activations.sum((2, 3), keepdim=True) * slopes**3
    alpha = torch.where(below == 0, 0, slopes**2 / torch.where(below == 0, 1, below))
    weights = (alpha * F.relu(slopes)).sum((2, 3), keepdim=True)
    return _enlarged(activations * weights, inputs, relu)


@builtin(
    "hires-cam",
    aliases=("HiResCAM",),
    family="cams",
    needs="feature map",
    inputs="pictures",
    paper="Draelos and Carin, 2020 (arXiv 2011.08891)",
    cost=_COST,
    transfer="plain",
)
def hires_cam(
    model: nn.Module, inputs: Tensor, targets: Tensor, layer: str | None = None, relu: bool = True
) -> Tensor:
    """The last feature map times its gradient, place by place, enlarged to the input.

    ::

        relu(sum over channels c of A_c * df/dA_c)

    Args:
        model: the network.
        inputs: ``(N, C, H, W)``.
        targets: ``(N,)``.
        layer: a module's name; by default the last feature map of more than one pixel.
        relu: keep only what speaks for the class.
    """
    activations, slopes = feature_map(model, inputs, targets, layer)
    return _enlarged(activations * slopes, inputs, relu)


@builtin(
    "layer-cam",
    aliases=("LayerCAM",),
    family="cams",
    needs="feature map",
    inputs="pictures",
    paper="Jiang et al., IEEE Transactions on Image Processing 2021",
    cost=_COST,
    transfer="plain",
)
def layer_cam(
    model: nn.Module, inputs: Tensor, targets: Tensor, layer: str | None = None, relu: bool = True
) -> Tensor:
    """The last feature map times its positive gradients, place by place, enlarged to the input.

    ::

        relu(sum over channels c of A_c * relu(df/dA_c))

    Args:
        model: the network.
        inputs: ``(N, C, H, W)``.
        targets: ``(N,)``.
        layer: a module's name; by default the last feature map of more than one pixel.
        relu: keep only what speaks for the class.
    """
    activations, slopes = feature_map(model, inputs, targets, layer)
    return _enlarged(activations * F.relu(slopes), inputs, relu)


@builtin(
    "score-cam",
    aliases=("ScoreCAM",),
    family="cams",
    needs="feature map",
    inputs="pictures",
    paper="Wang et al., CVPR workshop 2020",
    cost="1 forward for each channel",
    transfer="plain",
)
def score_cam(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    layer: str | None = None,
    relu: bool = True,
    baseline: Baseline = 0.0,
) -> Tensor:
    """The last feature map, its channels weighted by the output when only what they highlight is shown.

    Weights are the softmax of these outputs over the channels. A constant channel highlights nothing and has
    no weight.

    Args:
        model: the network.
        inputs: ``(N, C, H, W)``.
        targets: ``(N,)``.
        layer: a module's name; by default the last feature map of more than one pixel.
        relu: keep only what speaks for the class.
        baseline: what is shown elsewhere.
    """
    activations, _ = feature_map(model, inputs, targets, layer)
    outputs = channel_outputs(model, inputs, targets, activations, baseline_of(baseline, inputs))
    alive = torch.isfinite(outputs)
    weights = torch.where(alive, outputs, torch.finfo(outputs.dtype).min).softmax(1) * alive
    return _enlarged(activations * weights[:, :, None, None], inputs, relu)


@builtin(
    "ablation-cam",
    aliases=("AblationCAM",),
    family="cams",
    needs="feature map",
    inputs="pictures",
    paper="Desai and Ramaswamy, WACV 2020",
    cost="1 forward for each channel",
    transfer="plain",
)
def ablation_cam(
    model: nn.Module, inputs: Tensor, targets: Tensor, layer: str | None = None, relu: bool = True
) -> Tensor:
    """The last feature map, its channels weighted by how far the output falls without them.

    The fall is divided by the magnitude of the output (the paper divides by the output, which is the same
    where it is positive; a negative one would turn the map around, and zero is left out).

    Args:
        model: the network.
        inputs: ``(N, C, H, W)``.
        targets: ``(N,)``.
        layer: a module's name; by default the last feature map of more than one pixel.
        relu: keep only what speaks for the class.
    """
    activations, plain, without = ablated_outputs(model, inputs, targets, layer)
    scale = torch.where(plain == 0, 1, plain.abs())
    weights = (plain[:, None] - without) / scale[:, None]
    return _enlarged(activations * weights[:, :, None, None], inputs, relu)


@builtin(
    "guided-grad-cam",
    aliases=("GGC", "GuidedGradCAM"),
    family="cams",
    needs="feature map",
    inputs="pictures",
    paper="Selvaraju et al., ICCV 2017",
    cost="2 forwards, 2 backwards",
    transfer="projection",
)
def guided_grad_cam(
    model: nn.Module, inputs: Tensor, targets: Tensor, layer: str | None = None, relu: bool = True
) -> Tensor:
    """Guided backpropagation times Grad-CAM: fine details, kept where the class is.

    Args:
        model: the network.
        inputs: ``(N, C, H, W)``.
        targets: ``(N,)``.
        layer: a module's name; by default the last feature map of more than one pixel.
        relu: whether Grad-CAM keeps only what speaks for the class.
    """
    return rectified(model, inputs, targets, gate=True) * grad_cam(model, inputs, targets, layer, relu)
