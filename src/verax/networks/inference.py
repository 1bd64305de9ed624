"""Running a network without disturbing it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from verax.errors import InvalidInput

_TURN = threading.RLock()
"""Held while a network is in eval mode: two threads that put modes back would put back each other's."""


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[nn.Module]:
    """Run `model` in eval mode and put every module's own mode back afterwards; threads take turns."""
    with _TURN:
        modes = [(module, module.training) for module in model.modules()]
        try:
            for module, _ in modes:
                module.training = False
            yield model
        finally:
            for module, training in modes:
                module.training = training


def device_of(model: nn.Module) -> torch.device:
    """Where the model's weights are; CPU for a model without any."""
    tensors = itertools.chain(model.parameters(), model.buffers())
    return next((tensor.device for tensor in tensors), torch.device("cpu"))


def dtype_of(model: nn.Module, given: torch.dtype) -> torch.dtype:
    """The floating-point type of the model's weights; without any, the inputs' own (at least float32)."""
    weights = (weight.dtype for weight in model.parameters() if weight.is_floating_point())
    usual = given if given == torch.float64 else torch.float32
    return next(weights, usual)


def outputs(model: nn.Module, inputs: Tensor, batch_size: int = 256) -> Tensor:
    """The model's outputs ``(N, classes)``, in eval mode, without gradients; a single output is one class."""
    device = device_of(model)
    # no_grad, not inference_mode: a network that caches a tensor on its first call must stay differentiable;
    # clones, because a network may work in place on its input
    with undisturbed(model), torch.no_grad():
        try:
            parts = [model(chunk.to(device).clone()) for chunk in torch.split(inputs, batch_size)]
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            shape = tuple(inputs.shape)
            raise InvalidInput(f"The network cannot run on inputs of shape {shape}: {reason}") from error
    for part in parts:
        if not isinstance(part, Tensor) or part.ndim not in (1, 2):
            what = f"shape {tuple(part.shape)}" if isinstance(part, Tensor) else type(part).__name__
            raise InvalidInput(f"A network must give a tensor (samples, classes), not {what}.")
    result = torch.cat(parts)
    if len(result) != len(inputs):
        raise InvalidInput(f"The network gave {len(result)} outputs for {len(inputs)} samples.")
    return (result[:, None] if result.ndim == 1 else result).clone()


def predictions(model: nn.Module, inputs: Tensor, batch_size: int = 256) -> Tensor:
    """The predicted class of each sample ``(N,)``."""
    return outputs(model, inputs, batch_size).argmax(1)
