"""Running a network without disturbing it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from verax.devices import cached_rows
from verax.errors import InvalidInput, VeraxError
from verax.networks.anatomy import device_of, hidden_in, modules_of
from verax.networks.precision import TURN, fresh, kept, precisely


@contextmanager
def undisturbed(model: nn.Module, modules: Iterable[nn.Module] | None = None) -> Iterator[nn.Module]:
    """Run `model` in eval mode and put every module's own mode back afterwards; threads take turns.

    Args:
        model: the network.
        modules: all of its modules, where somebody knows them.
    """
    with TURN:
        named = modules_of(model) if modules is None else list(modules)
        modes = [(module, module.training) for module in (*named, *hidden_in(named))]
        try:
            # reading an attribute is free, setting one takes microseconds
            for module, training in modes:
                if training:
                    module.training = False
            yield model
        finally:
            for module, training in modes:
                if module.training is not training:
                    module.training = training


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
    (torch.get_default_device, lambda device: torch.set_default_device(None if device == _CPU else device)),
    (lambda: _MKLDNN.enabled, lambda on: setattr(_MKLDNN, "enabled", on)),
    (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
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
        with kept():
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
        stack.enter_context(fresh())
        if not _MKLDNN.enabled:
            _MKLDNN.enabled = True
        yield


def halved(device: torch.device, wanted: bool = True) -> AbstractContextManager[Any]:
    """Convolutions and products in bfloat16 on a GPU, as networks learn there, where that is wanted.

    Nothing is kept of rounded weights: those of other threads would be found there, too.
    """
    if device.type != "cuda" or not wanted:
        return nullcontext()
    return torch.autocast("cuda", torch.bfloat16, cache_enabled=False)


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


def answers(
    model: nn.Module, inputs: Tensor, batch_size: int = 256, *, rough: bool = False
) -> tuple[Tensor, bool]:
    """The model's outputs as in `outputs`, and whether it gives them as they are, not as a part of more."""
    device = device_of(model)
    if device.type == "cpu" and inputs.ndim == 4 and len(inputs):
        batch_size = min(batch_size, _ON_CPU, cached_rows(inputs[0]))
    # no_grad, not inference_mode: a network that caches a tensor on its first call must stay differentiable;
    # clones, because a network may work in place on its input
    with undisturbed(model), torch.no_grad(), nullcontext() if rough else precisely(device):
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
        if part.ndim not in (1, 2) or not part.shape[1:].numel() or part.layout != torch.strided:
            what = "a sparse one" if part.layout != torch.strided else f"shape {tuple(part.shape)}"
            raise InvalidInput(f"A network must give a tensor (samples, classes), not {what}.")
    result = torch.cat(parts)
    if len(result) != len(inputs):
        raise InvalidInput(f"The network gave {len(result)} outputs for {len(inputs)} samples.")
    plain = all(isinstance(part, Tensor) for part in given)
    return (result[:, None] if result.ndim == 1 else result).clone(), plain


def outputs(model: nn.Module, inputs: Tensor, batch_size: int = 256, *, rough: bool = False) -> Tensor:
    """The model's outputs ``(N, classes)``, in eval mode, without gradients; a single output is one class.

    They are the same on every device, but for the last digits. What is `rough` is computed as the process has
    it, which torch rounds to 10 bits on a GPU (TF32): for shares of many scenes, and beside other threads.
    """
    return answers(model, inputs, batch_size, rough=rough)[0]


def predictions(model: nn.Module, inputs: Tensor, batch_size: int = 256, *, rough: bool = False) -> Tensor:
    """The predicted class of each sample ``(N,)``."""
    return outputs(model, inputs, batch_size, rough=rough).argmax(1)
