"""Class activation maps."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from verax.engine.features import feature_map
from verax.methods.base import builtin


@builtin(
    "grad-cam",
    aliases=("G-CAM", "GradCAM"),
    family="cams",
    paper="Selvaraju et al., ICCV 2017",
    cost="1 forward, 1 backward",
    transfer="plain",
)
def grad_cam(
    model: nn.Module, inputs: Tensor, targets: Tensor, layer: str | None = None, relu: bool = True
) -> Tensor:
    """The last feature map, its channels weighted by their mean gradient, enlarged to the input.

    Args:
        model: the network.
        inputs: ``(N, C, H, W)``.
        targets: ``(N,)``.
        layer: a module's name; by default the last feature map of more than one pixel.
        relu: keep only what speaks for the class.
    """
    activations, slopes = feature_map(model, inputs, targets, layer)
    cam = (activations * slopes.mean((2, 3), keepdim=True)).sum(1, keepdim=True)
    cam = F.relu(cam) if relu else cam
    cam = F.interpolate(cam, size=inputs.shape[2:], mode="bilinear", align_corners=False)
    return cam.expand_as(inputs)
