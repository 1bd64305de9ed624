"""Peers as methods: ``captum:NAME``, ``zennit:NAME``, ``shap:NAME``, ``grad-cam:NAME``.

So that verax also ranks implementations. Parameters are handed on as they are. None of these packages is
needed otherwise; a missing one gives one sentence with the command that installs it.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import importlib.util
import inspect
import io
import warnings
from collections.abc import Mapping
from importlib import metadata
from typing import Any

import torch
from torch import Tensor, nn

from verax.engine.baselines import check_references
from verax.errors import InvalidInput, InvalidParameter, MissingExtra, UnknownName, suggestion
from verax.methods.base import Method
from verax.networks.zoo import let_torchvision_import as _let_torchvision_import


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


def _find(package: Any, peer: str, name: str) -> Any:
    found = getattr(package, name, None)
    if not isinstance(found, type):
        known = [word for word in dir(package) if isinstance(getattr(package, word), type)]
        raise UnknownName(f"{peer} has no method {name!r}{suggestion(name, known)}")
    return found


def _method(peer: str, name: str, function: Any, version: str) -> Method:
    def quiet(*given: Any, **parameters: Any) -> Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a peer has to say of its hooks is not what was asked
            maps: Tensor = function(*given, **parameters)
        return maps

    quiet.__doc__ = function.__doc__
    return Method(
        f"{peer}:{name}",
        quiet,
        family="peers",
        paper=f"{peer} {version}",
        version=f"{peer} {version}",
        builtin=True,
        any_parameter=True,
    )


class _Columns(nn.Module):
    """A network whose outputs are ``(N, outputs)`` also where there is only one; `only` keeps one of them."""

    def __init__(self, model: nn.Module, only: int | None = None) -> None:
        super().__init__()
        self.model, self.only = model, only

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.model(x)
        out = out[:, None] if out.ndim == 1 else out
        return out if self.only is None else out[:, self.only : self.only + 1]


def _shared_out(cls: type, parameters: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters that the constructor names, and those for the call."""
    named = inspect.signature(cls).parameters
    made = {key: value for key, value in parameters.items() if key in named}
    return made, {key: value for key, value in parameters.items() if key not in named}


def _last_convolution(model: nn.Module) -> nn.Module:
    layers = [m for m in model.modules() if isinstance(m, nn.Conv1d | nn.Conv2d | nn.Conv3d)]
    if not layers:
        raise InvalidInput("The network has no convolution module, so this method has no layer to look at.")
    return layers[-1]


def captum(name: str) -> Method:
    """A class of ``captum.attr``; the target is the explained class."""
    package, version = _package("captum.attr", "captum")
    cls = _find(package, "captum", name)
    extra = ("GuidedGradCam", "LayerGradCam")
    inner = name.startswith(("Layer", "Neuron", "Internal")) and name not in extra
    if inner or not issubclass(cls, package.Attribution) or name == "NoiseTunnel":
        raise UnknownName(f"{name!r} of captum gives no map of the input by itself; choose another class.")

    def function(model: nn.Module, inputs: Tensor, targets: Tensor, **parameters: Any) -> Tensor:
        whole = _Columns(model)
        made = cls(whole, _last_convolution(model)) if name in extra else cls(whole)
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

        whole = _Columns(model)
        made = cls(whole, **parameters) if plain else attribution.Gradient(whole, cls(**parameters))
        with made as running:
            maps: Tensor = running(inputs.requires_grad_(), start)[1]
        return maps.detach()

    return _method("zennit", name, function, version)


_SHAP = ("DeepExplainer", "GradientExplainer")


def shap(name: str) -> Method:
    """``DeepExplainer`` or ``GradientExplainer`` of shap; `references` ``(R, ...)`` is the background.

    Without references the background is one black sample. shap explains all outputs of a network; here the
    network is cut down to the explained one, which changes nothing but the cost.
    """
    package, version = _package("shap", "shap")
    cls = _find(package, "shap", name)
    if name not in _SHAP:
        raise UnknownName(f"shap:{name} takes no PyTorch network; shap:{' and shap:'.join(_SHAP)} do.")

    def function(
        model: nn.Module,
        inputs: Tensor,
        targets: Tensor,
        references: Tensor | None = None,
        **parameters: Any,
    ) -> Tensor:
        refused = {"ranked_outputs", "return_variances"} & set(parameters)
        if refused:
            raise InvalidParameter(f"shap's {refused.pop()!r} gives something else than one map per sample.")
        if references is not None and not isinstance(references, Tensor):
            raise InvalidParameter(f"References must be a tensor (R, ...), not {type(references).__name__}.")
        start = torch.zeros_like(inputs[:1]) if references is None else check_references(references, inputs)
        made, called = _shared_out(cls, parameters)
        x = inputs
        if name == "GradientExplainer" and x.dtype != torch.float32:  # it draws float32 points
            model, x, start = copy.deepcopy(model).float(), x.float(), start.float()
        maps = torch.zeros_like(inputs)
        for target in sorted(set(targets.tolist())):
            chosen = targets == target
            explainer = cls(_Columns(model, target), start, **made)
            values = torch.as_tensor(explainer.shap_values(x[chosen], **called))
            maps[chosen] = values[..., 0].to(maps)  # (n, ..., outputs), and there is one
        return maps

    return _method("shap", name, function, version)


_AROUND = ("FinerCAM", "RefineCAM", "SESS")
"""Classes of pytorch_grad_cam that make maps and are no `BaseCAM`."""


def grad_cam(name: str) -> Method:
    """A class of ``pytorch_grad_cam`` on the last convolution module, or on the module called `layer`."""
    package, version = _package("pytorch_grad_cam", "grad-cam")
    cls = _find(package, "grad-cam", name)
    base = importlib.import_module("pytorch_grad_cam.base_cam").BaseCAM
    if not issubclass(cls, base) and name not in _AROUND:
        raise UnknownName(f"grad-cam:{name} is a part of pytorch_grad_cam that makes no maps by itself.")
    target = importlib.import_module("pytorch_grad_cam.utils.model_targets").ClassifierOutputTarget

    def function(
        model: nn.Module, inputs: Tensor, targets: Tensor, layer: str | None = None, **parameters: Any
    ) -> Tensor:
        made, called = _shared_out(cls, parameters)
        # FullGrad looks at all biases, and says so when it is given a layer
        layers = [] if name == "FullGrad" else [_layer(model, layer)]
        # No `with`: it would swallow an IndexError. The hooks go with the object.
        whole = _Columns(model)
        if name == "FinerCAM" and whole(inputs[:1]).shape[1] < 2:
            raise InvalidInput("grad-cam:FinerCAM compares outputs with each other; the network has one.")
        cam = cls(model=whole, target_layers=layers, **made)
        with contextlib.redirect_stderr(io.StringIO()):  # a progress bar for every sample
            if name == "FinerCAM":  # it chooses the classes to compare with only where it is given none
                maps = torch.zeros(len(inputs), *inputs.shape[2:])
                for number in sorted(set(targets.tolist())):
                    some = targets.cpu() == number
                    found = cam(inputs[some.to(inputs.device)], None, target_idx=number, **called)
                    maps[some] = torch.as_tensor(found)
            else:
                wanted = [target(number) for number in targets.tolist()]
                maps = torch.as_tensor(cam(inputs, wanted, **called))
        return maps.to(inputs)[:, None].expand_as(inputs)

    return _method("grad-cam", name, function, version)


def _layer(model: nn.Module, name: str | None) -> nn.Module:
    """The module called `name`, by default the last convolution."""
    if name is None:
        return _last_convolution(model)
    modules: dict[str, nn.Module] = {word: module for word, module in model.named_modules() if word}
    if name not in modules:
        raise InvalidParameter(f"The network has no layer {name!r}{suggestion(str(name), list(modules))}")
    return modules[name]
