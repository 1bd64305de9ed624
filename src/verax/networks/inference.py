"""Running a network without disturbing it."""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules import module as _modules

from verax.devices import cached_rows
from verax.errors import InvalidInput, VeraxError

_TURN = threading.RLock()
"""Held while a network is in eval mode: two threads that put modes back would put back each other's."""


def modules_of(model: nn.Module) -> Iterator[nn.Module]:
    """All modules, as ``model.modules()`` gives them.

    That takes as long as a small network does, and is asked for several times for each map.
    """
    seen: set[nn.Module] = set()
    left: list[nn.Module | None] = [model]
    while left:
        module = left.pop()
        if module is None or module in seen:
            continue
        if _has_own_ways(type(module)):
            others = [other for other in module.modules() if other not in seen]
            seen.update(others)
            yield from others
            continue
        seen.add(module)
        yield module
        if module._modules:
            left.extend(reversed(module._modules.values()))


def _has_own_ways(kind: type[nn.Module]) -> bool:
    """Whether modules of a kind say for themselves what they are made of."""
    own = kind.modules is not nn.Module.modules or kind.named_modules is not nn.Module.named_modules
    return own or issubclass(kind, torch.jit.ScriptModule)


def weights_of(model: nn.Module, modules: Iterable[nn.Module] | None = None) -> Iterator[nn.Parameter]:
    """All parameters, as ``model.parameters()`` gives them; `modules` are those of the model, where known."""
    kind, usual = type(model), nn.Module
    own = kind.parameters is not usual.parameters or kind.named_parameters is not usual.named_parameters
    if own or _has_own_ways(kind):
        yield from model.parameters()
        return
    seen: set[int] = set()
    for module in modules_of(model) if modules is None else modules:
        for weight in module._parameters.values():
            if weight is not None and id(weight) not in seen:
                seen.add(id(weight))
                yield weight


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


def homely(model: nn.Module, modules: Iterable[nn.Module] | None = None) -> bool:
    """Whether a network is made of plain layers of PyTorch alone, so that nobody else's code runs in it."""
    return _unwatched() and all(map(_plain, modules_of(model) if modules is None else modules))


def _unwatched() -> bool:
    """Whether no hooks of the whole process see every module."""
    everywhere = (_modules._global_forward_hooks, _modules._global_forward_pre_hooks)
    return not (any(everywhere) or _modules._global_backward_hooks or _modules._global_backward_pre_hooks)


def _plain(module: nn.Module) -> bool:
    kind = type(module)
    return kind in _LAYERS and _LAYERS[kind] is kind.forward and _as_made(module)


def _as_made(module: nn.Module) -> bool:
    """Whether a module has no hooks, no forward of its own and ordinary weights."""
    return (
        not (module._forward_hooks or module._forward_pre_hooks)
        and not (module._backward_hooks or module._backward_pre_hooks)
        and not ("forward" in module.__dict__ or "_forward_impl" in module.__dict__)
        and all(weight is None or type(weight) is nn.Parameter for weight in module._parameters.values())
    )


_CHAINS = {
    "torchvision.models.alexnet": ("AlexNet",),
    "torchvision.models.resnet": ("ResNet", "BasicBlock", "Bottleneck"),
    "torchvision.models.vgg": ("VGG",),
    "verax.networks.resnet": ("Block",),
    "verax.networks.vgg": ("VGG16",),
}
"""Modules that send pictures through their parts, sum them up and flatten each, and do nothing else."""


def _chain(module: nn.Module) -> bool:
    kind = type(module)
    if kind.__name__ not in _CHAINS.get(kind.__module__, ()) or not _as_made(module):
        return False
    known = getattr(sys.modules.get(kind.__module__), kind.__name__, None) is kind
    steps = kind.forward, getattr(kind, "_forward_impl", kind.forward)
    return known and all(step.__module__ == kind.__module__ for step in steps)  # nobody has put in another


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
    return (
        ndim in (2, 4)
        and _unwatched()
        and all((_plain(layer) and _keeps_apart(layer, ndim)) or _chain(layer) for layer in modules_of(model))
    )


def _keeps_apart(layer: nn.Module, ndim: int) -> bool:
    if isinstance(layer, nn.Flatten):  # of fewer dimensions a picture would be left, and taken for one sample
        return layer.start_dim == 1 and layer.end_dim == -1
    if isinstance(layer, nn.Softmax):
        return layer.dim in (1, -1)
    if isinstance(layer, nn.LayerNorm):
        return len(layer.normalized_shape) == 1
    if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d) and (layer.training or layer.running_mean is None):
        return False  # statistics of the batch
    return not isinstance(layer, _LINED) and (ndim == 4 or not isinstance(layer, _PLANAR))


@contextmanager
def undisturbed(model: nn.Module, modules: Iterable[nn.Module] | None = None) -> Iterator[nn.Module]:
    """Run `model` in eval mode and put every module's own mode back afterwards; threads take turns.

    Args:
        model: the network.
        modules: all of its modules, where somebody knows them.
    """
    with _TURN:
        named = list(modules_of(model) if modules is None else modules)
        modes = [(module, module.training) for module in (*named, *_unnamed(named))]
        try:
            _set_modes((module, False) for module, _ in modes)
            yield model
        finally:
            _set_modes(modes)


def _unnamed(modules: Iterable[nn.Module]) -> Iterator[nn.Module]:
    """What modules are made of that say for themselves what they are made of: ``eval()`` reaches it too."""
    for module in modules:
        if _has_own_ways(type(module)):
            for child in module.children():
                yield from modules_of(child)
                yield from _unnamed([child])


def _set_modes(modes: Iterable[tuple[nn.Module, bool]]) -> None:
    """Put modules into a mode each; reading an attribute is free, setting one takes microseconds."""
    for module, training in modes:
        if module.training is not training:
            module.training = training


def _matmul_precision() -> str | None:
    """The precision of matrix products; None where it was set for each library apart, which torch refuses."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


def exact() -> bool:
    """Whether products of matrices are in full float32."""
    return _matmul_precision() in (None, "highest")


def exact_products() -> None:
    """Products of matrices in full float32 from here on; those who keep settings put the precision back."""
    if not exact():
        torch.set_float32_matmul_precision("highest")


def _folder() -> str | None:
    """The working directory; None where it has been removed."""
    try:
        return os.getcwd()  # noqa: PTH109 (asked for each map)
    except OSError:
        return None


def _enter(folder: str) -> None:
    with suppress(OSError):  # it has been removed since
        os.chdir(folder)


_CPU = torch.device("cpu")
_MKLDNN: Any = torch.backends.mkldnn
_SETTINGS: tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...] = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.get_num_threads, torch.set_num_threads),
    (
        lambda: (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        lambda both: torch.use_deterministic_algorithms(both[0], warn_only=both[1]),
    ),
    (_matmul_precision, torch.set_float32_matmul_precision),
    (torch.get_default_device, lambda device: torch.set_default_device(None if device == _CPU else device)),
    (lambda: _MKLDNN.enabled, lambda on: setattr(_MKLDNN, "enabled", on)),
    (np.geterr, lambda errors: np.seterr(**errors)),
    (_folder, _enter),
)
"""How to ask for what belongs to the whole process, and how to set it."""


@contextmanager
def settings_kept() -> Iterator[None]:
    """Put back what belongs to the whole process: somebody's method may set torch's default type, and more.

    Only what was changed is touched. Random numbers are kept by those who hand them out.
    """
    before = [ask() for ask, _ in _SETTINGS]
    try:
        yield
    finally:
        for (ask, put), value in zip(_SETTINGS, before, strict=True):
            if value is not None and ask() != value:
                put(value)


@contextmanager
def ordinary() -> Iterator[None]:
    """Compute as a fresh process does, whatever the caller has set: others reuse what is computed.

    Types, precision, kernels and modes of torch that change results or make them fail, not the number of
    threads; all of it is put back afterwards.
    """
    with settings_kept(), ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        if torch.get_default_device() != _CPU:
            stack.enter_context(_CPU)
        if torch.get_default_dtype() != torch.float32:
            torch.set_default_dtype(torch.float32)
        exact_products()
        if not _MKLDNN.enabled:
            _MKLDNN.enabled = True
        yield


def device_of(model: nn.Module) -> torch.device:
    """Where the model's weights are; CPU for a model without any."""
    tensors = itertools.chain(weights_of(model), model.buffers())
    return next((tensor.device for tensor in tensors), torch.device("cpu"))


def dtype_of(model: nn.Module, given: torch.dtype) -> torch.dtype:
    """The floating-point type of the model's weights; without any, the inputs' own (at least float32)."""
    weights = (weight.dtype for weight in weights_of(model) if weight.is_floating_point())
    usual = given if given == torch.float64 else torch.float32
    return next(weights, usual)


def logits_of(answer: object) -> Tensor:
    """The outputs ``(samples, classes)`` in what a network gives.

    A tensor is taken as it is; of an object or mapping, as Hugging Face's classifiers give it, its
    ``logits``; of a tuple, the only tensor in it that can be outputs.
    """
    if isinstance(answer, Tensor):
        return answer
    found = answer.get("logits") if isinstance(answer, Mapping) else getattr(answer, "logits", None)
    if isinstance(found, Tensor):
        return found
    if isinstance(answer, tuple | list):
        able = [part for part in answer if isinstance(part, Tensor) and part.ndim in (1, 2)]
        if len(able) == 1:
            return able[0]
        raise InvalidInput(
            f"The network gives {len(answer)} things, {len(able) or 'none'} of which can be the outputs "
            "(samples, classes); wrap it in a module that gives the logits alone."
        )
    raise InvalidInput(
        f"A network must give a tensor (samples, classes), or something with logits, not {_kind(answer)}."
    )


def _kind(answer: object) -> str:
    keys = [str(key) for key in answer][:4] if isinstance(answer, Mapping) else []
    return type(answer).__name__ + (f" with {', '.join(keys)}" if keys else "")


_ON_CPU = 64
"""Pictures in a pass on a CPU, however small they are."""


def answers(model: nn.Module, inputs: Tensor, batch_size: int = 256) -> tuple[Tensor, bool]:
    """The model's outputs as in `outputs`, and whether it gives them as they are, not as a part of more."""
    device = device_of(model)
    if device.type == "cpu" and inputs.ndim == 4 and len(inputs):
        batch_size = min(batch_size, _ON_CPU, cached_rows(inputs[0]))
    # no_grad, not inference_mode: a network that caches a tensor on its first call must stay differentiable;
    # clones, because a network may work in place on its input
    with undisturbed(model), torch.no_grad():
        try:
            given = [model(chunk.to(device).clone()) for chunk in torch.split(inputs, batch_size)]
        except (VeraxError, torch.OutOfMemoryError):
            raise
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            shape = tuple(inputs.shape)
            raise InvalidInput(f"The network cannot run on inputs of shape {shape}: {reason}") from error
        except Exception as error:  # other people's code
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            shape = tuple(inputs.shape)
            raise InvalidInput(f"The network failed on inputs of shape {shape} with {reason}") from error
    parts = [logits_of(part) for part in given]
    for part in parts:
        if part.ndim not in (1, 2):
            raise InvalidInput(
                f"A network must give a tensor (samples, classes), not shape {tuple(part.shape)}."
            )
    result = torch.cat(parts)
    if len(result) != len(inputs):
        raise InvalidInput(f"The network gave {len(result)} outputs for {len(inputs)} samples.")
    plain = all(isinstance(part, Tensor) for part in given)
    return (result[:, None] if result.ndim == 1 else result).clone(), plain


def outputs(model: nn.Module, inputs: Tensor, batch_size: int = 256) -> Tensor:
    """The model's outputs ``(N, classes)``, in eval mode, without gradients; a single output is one class."""
    return answers(model, inputs, batch_size)[0]


def predictions(model: nn.Module, inputs: Tensor, batch_size: int = 256) -> Tensor:
    """The predicted class of each sample ``(N,)``."""
    return outputs(model, inputs, batch_size).argmax(1)
