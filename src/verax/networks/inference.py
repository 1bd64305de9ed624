"""Running a network without disturbing it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from verax.errors import InvalidInput


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[nn.Module]:
    """Run `model` in eval mode and put every module's own mode back afterwards."""
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
    tensor = next(iter(model.parameters()), None)
    if tensor is None:
        tensor = next(iter(model.buffers()), None)
    return torch.device("cpu") if tensor is None else tensor.device


def outputs(model: nn.Module, inputs: Tensor, batch_size: int = 256) -> Tensor:
    """The model's outputs ``(N, classes)``, in eval mode and without gradients."""
    device = device_of(model)
    with undisturbed(model), torch.inference_mode():
        parts = [model(chunk.to(device)) for chunk in inputs.split(batch_size)]
    for part in parts:
        if not isinstance(part, Tensor) or part.ndim != 2:
            what = f"shape {tuple(part.shape)}" if isinstance(part, Tensor) else type(part).__name__
            raise InvalidInput(f"A network must give a tensor (samples, classes), not {what}.")
    return torch.cat(parts)


def predictions(model: nn.Module, inputs: Tensor, batch_size: int = 256) -> Tensor:
    """The predicted class of each sample ``(N,)``."""
    return outputs(model, inputs, batch_size).argmax(1)
