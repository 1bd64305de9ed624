"""Peers as methods: ``captum:NAME``, ``zennit:NAME``, ``shap:NAME``, ``grad-cam:NAME``.

So that verax also ranks implementations. Parameters are handed on as they are. None of these packages is
needed otherwise; a missing one gives one sentence with the command that installs it.
"""

from __future__ import annotations

import importlib
import importlib.util
from importlib import metadata
from typing import Any

import torch
from torch import Tensor, nn

from verax import registry
from verax.errors import InvalidInput, MissingExtra, UnknownName, suggestion
from verax.methods.base import Method


def _package(module: str, distribution: str) -> tuple[Any, str]:
    """An optional package and its version."""
    try:
        if importlib.util.find_spec("torchvision") is not None:
            _let_torchvision_import()
        return importlib.import_module(module), metadata.version(distribution)
    except ImportError as error:
        raise MissingExtra(
            f"{distribution!r} is not installed; install it with: pip install 'verax[compare]'"
        ) from error


def _let_torchvision_import() -> None:
    """Declare two operators that torchvision's wheel wants to find, beside a CPU-only PyTorch."""
    if hasattr(torch.ops.torchvision, "nms") or torch.version.cuda is not None:
        return
    for name in ("nms", "qnms"):
        _LIBRARY.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


_LIBRARY: Any = registry.load("torch.library:Library")("torchvision", "FRAGMENT")  # PyTorch leaves it untyped


def _find(package: Any, peer: str, name: str) -> Any:
    found = getattr(package, name, None)
    if not isinstance(found, type):
        known = [word for word in dir(package) if isinstance(getattr(package, word), type)]
        raise UnknownName(f"{peer} has no method {name!r}{suggestion(name, known)}")
    return found


def _method(peer: str, name: str, function: Any, version: str) -> Method:
    return Method(
        f"{peer}:{name}",
        function,
        family="peers",
        paper=f"{peer} {version}",
        version=f"{peer} {version}",
        builtin=True,
        any_parameter=True,
    )


def _last_convolution(model: nn.Module) -> nn.Module:
    layers = [m for m in model.modules() if isinstance(m, nn.Conv1d | nn.Conv2d | nn.Conv3d)]
    if not layers:
        raise InvalidInput("The network has no convolution module, so this method has no layer to look at.")
    return layers[-1]


def captum(name: str) -> Method:
    """A class of ``captum.attr``; the target is the explained class."""
    package, version = _package("captum.attr", "captum")
    cls = _find(package, "captum", name)
    extra = {"GuidedGradCam": True, "LayerGradCam": True}

    def function(model: nn.Module, inputs: Tensor, targets: Tensor, **parameters: Any) -> Tensor:
        made = cls(model, _last_convolution(model)) if name in extra else cls(model)
        maps: Tensor = made.attribute(inputs, target=targets, **parameters)
        if maps.shape != inputs.shape and maps.ndim == inputs.ndim == 4:
            size = inputs.shape[2:]
            maps = nn.functional.interpolate(maps, size=size, mode="bilinear").expand_as(inputs)
        return maps.detach()

    return _method("captum", name, function, version)


def zennit(name: str) -> Method:
    """A composite of ``zennit.composites``, or Gradient, SmoothGrad, IntegratedGradients of zennit."""
    package, version = _package("zennit.composites", "zennit")
    attribution = importlib.import_module("zennit.attribution")
    plain = name in ("Gradient", "SmoothGrad", "IntegratedGradients")
    cls = _find(attribution if plain else package, "zennit", name)

    def function(model: nn.Module, inputs: Tensor, targets: Tensor, **parameters: Any) -> Tensor:
        def start(out: Tensor) -> Tensor:
            chosen = torch.zeros_like(out).scatter_(1, targets[:, None], 1.0)
            return chosen if plain else chosen * out

        made = cls(model, **parameters) if plain else attribution.Gradient(model, cls(**parameters))
        with made as running:
            maps: Tensor = running(inputs.requires_grad_(), start)[1]
        return maps.detach()

    return _method("zennit", name, function, version)


def shap(name: str) -> Method:
    """``DeepExplainer`` or ``GradientExplainer`` of shap; `references` says how many black references."""
    package, version = _package("shap", "shap")
    cls = _find(package, "shap", name)

    def function(
        model: nn.Module, inputs: Tensor, targets: Tensor, references: int = 1, **parameters: Any
    ) -> Tensor:
        explainer = cls(model, torch.zeros_like(inputs[:1]).repeat(references, *[1] * (inputs.ndim - 1)))
        values = torch.as_tensor(explainer.shap_values(inputs, **parameters))
        if values.ndim == inputs.ndim + 1:  # (N, ..., classes)
            index = targets.cpu().reshape(-1, *[1] * inputs.ndim).expand(*inputs.shape, 1)
            values = values.gather(-1, index)[..., 0]
        return values.to(inputs)

    return _method("shap", name, function, version)


def grad_cam(name: str) -> Method:
    """A class of ``pytorch_grad_cam`` on the last convolution module."""
    package, version = _package("pytorch_grad_cam", "grad-cam")
    cls = _find(package, "grad-cam", name)
    target = importlib.import_module("pytorch_grad_cam.utils.model_targets").ClassifierOutputTarget

    def function(model: nn.Module, inputs: Tensor, targets: Tensor, **parameters: Any) -> Tensor:
        with cls(model=model, target_layers=[_last_convolution(model)]) as made:
            maps = made(input_tensor=inputs, targets=[target(int(t)) for t in targets], **parameters)
        return torch.as_tensor(maps).to(inputs)[:, None].expand_as(inputs)

    return _method("grad-cam", name, function, version)
