"""What a network is made of: modules and weights, whose code runs in it, and whether samples meet in it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.modules import module as _modules


class Anatomy(NamedTuple):
    """All that one walk through a network finds.

    A walk takes as long as a small dense layer, and what it finds is asked for several times for each map.

    Attributes:
        modules: as ``model.modules()`` gives them.
        weights: as ``model.parameters()`` gives them.
        device: where the weights are; CPU for a network without any.
    """

    modules: list[nn.Module]
    weights: list[nn.Parameter]
    device: torch.device

    @classmethod
    def of(cls, model: nn.Module) -> Anatomy:
        """A walk."""
        modules = modules_of(model)
        weights = weights_of(model, modules)
        first = weights[0] if weights else next(model.buffers(), None)
        return cls(modules, weights, torch.device("cpu") if first is None else first.device)

    def dtype(self, given: torch.dtype) -> torch.dtype:
        """The floating-point type of the weights; without any, the inputs' own (at least float32)."""
        usual = given if given == torch.float64 else torch.float32
        return next((weight.dtype for weight in self.weights if weight.is_floating_point()), usual)


def modules_of(model: nn.Module) -> list[nn.Module]:
    """All modules, as ``model.modules()`` gives them, in a fraction of the time."""
    found: dict[nn.Module, None] = {}
    left: list[nn.Module | None] = [model]
    while left:
        module = left.pop()
        if module is None or module in found:
            continue
        if _has_own_ways(type(module)):
            found.update(dict.fromkeys(module.modules()))
            continue
        found[module] = None
        if module._modules:
            left.extend(reversed(module._modules.values()))
    return list(found)


def _has_own_ways(kind: type[nn.Module]) -> bool:
    """Whether modules of a kind say for themselves what they are made of."""
    own = kind.modules is not nn.Module.modules or kind.named_modules is not nn.Module.named_modules
    return own or issubclass(kind, torch.jit.ScriptModule)


def submodule(model: nn.Module, name: str) -> nn.Module | None:
    """The part that ``model.named_modules()`` gives that name, quickly; None without one."""
    found: nn.Module | None = model
    for part in name.split("."):
        if found is None or _has_own_ways(type(found)):
            return dict(model.named_modules()).get(name or " ")
        found = found._modules.get(part)
    return found


def hidden_in(modules: Iterable[nn.Module]) -> list[nn.Module]:
    """What modules are made of that say for themselves what they are made of: ``eval()`` reaches it too."""
    found: list[nn.Module] = []
    for module in modules:
        if _has_own_ways(type(module)):
            for child in module.children():
                found += [*modules_of(child), *hidden_in([child])]
    return found


def weights_of(model: nn.Module, modules: Iterable[nn.Module] | None = None) -> list[nn.Parameter]:
    """All parameters, as ``model.parameters()`` gives them; `modules` are those of the model, where known."""
    kind, usual = type(model), nn.Module
    own = kind.parameters is not usual.parameters or kind.named_parameters is not usual.named_parameters
    if own or _has_own_ways(kind):
        return list(model.parameters())
    found: dict[int, nn.Parameter] = {}
    for module in modules_of(model) if modules is None else modules:
        for weight in module._parameters.values():
            if weight is not None:
                found.setdefault(id(weight), weight)
    return list(found.values())


def device_of(model: nn.Module) -> torch.device:
    """Where the model's weights are; CPU for a model without any."""
    return Anatomy.of(model).device


_LAYERS: dict[type[nn.Module], Callable[..., Any]] = {
    kind: kind.forward
    for kind in (
        *(nn.Sequential, nn.Identity, nn.Flatten, nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d),
        *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Softplus),
        *(nn.BatchNorm1d, nn.BatchNorm2d, nn.LayerNorm, nn.GroupNorm, nn.Dropout, nn.Dropout2d, nn.Softmax),
        *(nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool1d, nn.AvgPool2d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d),
        *(nn.ZeroPad2d, nn.AdaptiveMaxPool2d),
    )
}
"""Layers that call nothing but PyTorch, and what they call as it was at first."""

_CALLS = nn.Module.__call__, nn.Module._wrapped_call_impl, nn.Module._call_impl
_CONVOLVE = {kind: kind._conv_forward for kind in (nn.Conv1d, nn.Conv2d, nn.Conv3d)}
_OVERRIDES = frozenset(
    ("forward", "_forward_impl", "_conv_forward", "_call_impl", "_wrapped_call_impl", "_compiled_call_impl")
)
"""What a module of its own would do otherwise than its class."""


def homely(modules: Iterable[nn.Module]) -> bool:
    """Whether all modules are plain layers or known networks, so that nobody else's code runs in them."""
    modules = list(modules)
    kinds = set(map(type, modules))  # asked once for each kind of layer, of which most networks have few
    return _unwatched() and all(map(_known, kinds)) and all(map(_unchanged, modules))


def untouched(module: nn.Module) -> bool:
    """Whether nobody looks at what a module gets and gives, or has changed what it or its class does."""
    return _unwatched() and _as_made(module) and _usual(type(module))


def _unwatched() -> bool:
    """Whether no hooks of the whole process see every module, and modules are called as at first."""
    everywhere = (_modules._global_forward_hooks, _modules._global_forward_pre_hooks)
    if any(everywhere) or _modules._global_backward_hooks or _modules._global_backward_pre_hooks:
        return False
    return (nn.Module.__call__, nn.Module._wrapped_call_impl, nn.Module._call_impl) == _CALLS


def _known(kind: type[nn.Module]) -> bool:
    return (kind in _LAYERS or kind.__name__ in _CHAINS.get(kind.__module__, ())) and _usual(kind)


def _unchanged(module: nn.Module) -> bool:
    """Whether a module of a known kind is as it was made, but for the numbers of its weights."""
    return _as_made(module) and _plainly_weighted(module) and (type(module) in _LAYERS or _in_order(module))


def _usual(kind: type[nn.Module]) -> bool:
    """Whether a class does what it was made to do."""
    if kind.__call__ is not _CALLS[0]:
        return False
    if kind in _CONVOLVE and kind._conv_forward is not _CONVOLVE[kind]:
        return False
    return _LAYERS[kind] is kind.forward if kind in _LAYERS else _at_home(kind)


def _at_home(kind: type[nn.Module]) -> bool:
    """Whether a class is the one of its module, and what it does was written there."""
    home: dict[str, Any] = getattr(sys.modules.get(kind.__module__), "__dict__", {})
    steps = kind.forward, getattr(kind, "_forward_impl", kind.forward)
    return home.get(kind.__name__) is kind and all(
        getattr(step, "__globals__", None) is home for step in steps
    )


def _as_made(module: nn.Module) -> bool:
    """Whether a module has no hooks and no ways of its own."""
    own = module.__dict__
    if own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"]:
        return False
    return not own["_backward_pre_hooks"] and _OVERRIDES.isdisjoint(own)


def _plainly_weighted(module: nn.Module) -> bool:
    """Whether weights are no tensors of a kind of their own, which may do anything."""
    for weight in module._parameters.values():  # a loop: this is asked of every layer for every map
        if weight is not None and type(weight) is not nn.Parameter:
            return False
    return True


_TRANSFORMER = "verax.networks.vit"
_CHAINS = {
    "torchvision.models.alexnet": ("AlexNet",),
    "torchvision.models.resnet": ("ResNet", "BasicBlock", "Bottleneck"),
    "torchvision.models.vgg": ("VGG",),
    "verax.networks.resnet": ("Block",),
    "verax.networks.vgg": ("VGG16",),
    _TRANSFORMER: ("ViT", "Block", "Attention"),
}
"""Modules that send pictures through their parts, sum them up and flatten each, and do nothing else."""
_TOKENWISE = (nn.Linear, nn.LayerNorm, nn.GELU, nn.ReLU, nn.Dropout, nn.Identity, nn.Sequential)
_SUMS = ("BasicBlock", "Bottleneck", "Block")


def _in_order(module: nn.Module) -> bool:
    """Whether a known network has no parts but those that it names, and sums up what can be summed up."""
    # parts that are no modules: functions, and modules that it does not name
    if any(callable(value) for name, value in vars(module).items() if name != "_norm_layer"):
        return False
    # a sum of a picture and a flat one would be a sum of all with all
    sums = type(module).__name__ in _SUMS
    return not (sums and any(isinstance(part, nn.Flatten) for part in modules_of(module)))


_PLANAR = (
    *(nn.Conv2d, nn.BatchNorm2d, nn.GroupNorm, nn.Dropout2d, nn.ZeroPad2d, nn.MaxPool2d, nn.AvgPool2d),
    *(nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d),
)
"""Layers that take pictures ``(N, C, H, W)``; three dimensions are one picture to them."""
_LINED = (nn.Conv1d, nn.Conv3d, nn.MaxPool1d, nn.AvgPool1d, nn.AdaptiveAvgPool1d, nn.AdaptiveMaxPool1d)
"""Layers that take neither pictures nor vectors, or vectors for one sample."""


def apart(model: nn.Module, ndim: int) -> bool:
    """Whether a network surely treats every sample by itself, for inputs of `ndim` dimensions.

    Known are plain layers of PyTorch in a row and some common networks made of them, whose samples stay in
    the first of two or four dimensions; of all others nothing is known.
    """
    if ndim not in (2, 4):
        return False
    modules = modules_of(model)
    return homely(modules) and all(_keeps_apart(layer, ndim) for layer in modules) and _tokens_apart(modules)


def _tokens_apart(modules: Iterable[nn.Module]) -> bool:
    """Whether a transformer has layers that take its tokens ``(N, T, F)`` for what they are.

    To a convolution they would be one picture.
    """
    made_of = {module for module in modules if type(module).__module__ == _TRANSFORMER}
    first = [module._modules.get("patches") for module in made_of]
    return not made_of or all(
        module in made_of or type(module) in _TOKENWISE or module in first for module in modules
    )


def _keeps_apart(layer: Any, ndim: int) -> bool:
    kind = type(layer)
    if kind not in _PARTICULAR:
        return True
    if kind is nn.Flatten:  # of fewer dimensions a picture would be left, and taken for one sample
        return bool(layer.start_dim == 1 and layer.end_dim == -1)
    if kind is nn.ZeroPad2d:  # of flat pictures, rows are samples: cut off here, put on there
        return bool(ndim == 4 and min(layer.padding) >= 0)
    if kind is nn.Softmax:
        return layer.dim in (1, -1)
    if kind is nn.LayerNorm:
        return len(layer.normalized_shape) == 1
    if kind in (nn.BatchNorm1d, nn.BatchNorm2d) and (layer.training or layer.running_mean is None):
        return False  # statistics of the batch
    return kind not in _LINED and (ndim == 4 or kind not in _PLANAR)


_PARTICULAR = {nn.Flatten, nn.Softmax, nn.LayerNorm, nn.BatchNorm1d, *_PLANAR, *_LINED}
"""Layers that keep samples apart for some inputs, or made in some ways; the others always do."""
