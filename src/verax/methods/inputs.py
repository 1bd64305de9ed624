"""Inputs, targets, maps and ids from outside: checked once, in one place, for everything that takes them.

What is wrong with them is said in one sentence, before a method or a metric begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from verax.errors import InvalidInput, InvalidParameter, VeraxError
from verax.methods.limits import WHOLE, shown
from verax.networks.inference import device_of, dtype_of, outputs
from verax.seeding import content_ids

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def _tensor(value: object, noun: str) -> Tensor:
    """A dense tensor of real numbers, from a tensor or an array."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biuf":
            raise InvalidInput(f"{noun} must be real numbers, not {value.dtype}.")
        value = torch.from_numpy(np.array(value, dtype=value.dtype.newbyteorder("=")))
    if not isinstance(value, Tensor):
        raise InvalidInput(f"{noun} must be a tensor, not {type(value).__name__}.")
    if value.layout != torch.strided or value.is_quantized or value.is_nested:
        raise InvalidInput(f"{noun} must be a dense tensor, not a sparse, nested or quantised one.")
    return value


def check_model(model: object) -> nn.Module:
    """A network."""
    if not isinstance(model, nn.Module):
        raise InvalidInput(f"The model must be a torch.nn.Module, not {type(model).__name__}.")
    return model


def check_inputs(inputs: object) -> Tensor:
    """A float tensor ``(N, ...)`` without NaN or infinity, or one sentence that says what is wrong."""
    found = _tensor(inputs, "Inputs")
    if found.ndim < 2 or found.numel() == 0:
        raise InvalidInput(f"Inputs must have the shape (samples, ...), not {tuple(found.shape)}.")
    if found.dtype not in FLOATS:
        raise InvalidInput(
            "Inputs must be floating-point numbers of 16, 32 or 64 bits, "
            f"not {str(found.dtype).removeprefix('torch.')}."
        )
    bad = ~torch.isfinite(found).flatten(1).all(1)
    if bad.any():
        raise InvalidInput(f"Sample {int(bad.nonzero()[0])} of the inputs contains NaN or infinite values.")
    return found


def check_targets(targets: object, samples: int, classes: int) -> Tensor:
    """Whole numbers ``(N,)`` that name outputs of the network."""
    if isinstance(targets, int) and not isinstance(targets, bool):
        targets = [targets] * samples
    found = _whole_numbers(targets, samples, "Targets")
    if found.numel() and (found.min() < 0 or found.max() >= classes):
        worst = int(found.max() if found.max() >= classes else found.min())
        raise InvalidInput(f"Target {worst} does not exist: the network has outputs 0 to {classes - 1}.")
    return found


def check_ids(ids: object, inputs: Tensor) -> Tensor:
    """Which random stream each sample has: int64 ``(N,)``, made from its values where none is given."""
    return content_ids(inputs) if ids is None else _whole_numbers(ids, len(inputs), "ids").to(inputs.device)


def _whole_numbers(values: object, samples: int, noun: str) -> Tensor:
    wrong = f"{noun} must be {samples} whole numbers, one for each sample."
    try:
        found = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InvalidInput(wrong) from error
    plain = not (found.dtype == torch.bool or found.is_floating_point() or found.is_complex())
    if not plain or found.shape != (samples,) or found.layout != torch.strided:
        raise InvalidInput(wrong)
    return found.to(torch.int64)


def check_maps(maps: object, inputs: Tensor) -> Tensor:
    """Attributions in the shape of the inputs and on their device; NaN and infinity may occur."""
    found = _tensor(maps, "Attributions")
    if found.is_complex():
        raise InvalidInput("Attributions must be real numbers, not complex ones.")
    if found.shape != inputs.shape:
        got, want = tuple(found.shape), tuple(inputs.shape)
        raise InvalidInput(f"Attributions of shape {got} do not fit inputs of shape {want}.")
    return found.detach().to(inputs.device)


def check_seed(seed: object) -> int:
    """A whole number."""
    WHOLE.check(seed, "The seed")
    assert isinstance(seed, int | np.integer)
    return int(seed)


def check_settings(parameters: Mapping[str, Any], settings: object) -> dict[str, Any]:
    """Parameters given by name and as a mapping, in one; the mapping wins."""
    if settings is not None and not isinstance(settings, Mapping):
        raise InvalidParameter(f"settings must be a mapping of names to values, not {shown(settings)}.")
    return {**parameters, **(settings or {})}


@contextmanager
def running(shape: torch.Size) -> Iterator[None]:
    """Whatever the network raises on inputs of `shape` becomes one sentence, but for a lack of memory."""
    try:
        yield
    except (VeraxError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise InvalidInput(f"The network failed on inputs of shape {tuple(shape)} with {reason}") from error


def network_outputs(model: nn.Module, inputs: Tensor, batch_size: int = 256) -> Tensor:
    """The outputs ``(N, classes)`` of a network that may raise anything."""
    with running(inputs.shape):
        return outputs(model, inputs, batch_size)


def prepared(
    model: nn.Module, inputs: object, targets: object, batch_size: int = 256
) -> tuple[Tensor, Tensor]:
    """Inputs on the device and in the precision of the network, and what is explained of each sample.

    Args:
        model: the network, with the output that is to be explained.
        inputs: as `check_inputs` takes them.
        targets: as `check_targets` takes them; None: the predicted class of each sample.
        batch_size: samples in one pass.
    """
    given = check_inputs(inputs)
    x = given.detach().to(device_of(model), dtype_of(model, given.dtype)).clone()
    # one sample tells how many outputs there are; all are needed only to find the predicted class
    scores = network_outputs(model, x if targets is None else x[:1], batch_size)
    wanted = scores.argmax(1) if targets is None else targets
    return x, check_targets(wanted, len(x), scores.shape[1]).to(x.device)
