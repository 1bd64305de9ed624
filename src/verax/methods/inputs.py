"""Inputs, targets, maps and ids from outside: checked once, in one place, for everything that takes them.

What is wrong with them is said in one sentence, before a method or a metric begins.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from verax.engine.conditions import once
from verax.engine.outputs import Explained, explained
from verax.errors import InvalidInput, InvalidParameter, VeraxError
from verax.methods.limits import WHOLE, shown
from verax.networks.anatomy import Anatomy
from verax.networks.inference import answers
from verax.seeding import content_ids

_FEW = 64
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
    if found.ndim == 1 and found.numel():
        raise InvalidInput(
            f"Inputs must have the shape (samples, ...), not {tuple(found.shape)}: a batch axis is missing, "
            "so write inputs[None] for one sample."
        )
    if found.ndim < 2 or found.numel() == 0:
        raise InvalidInput(f"Inputs must have the shape (samples, ...), not {tuple(found.shape)}.")
    if found.dtype not in FLOATS:
        raise InvalidInput(
            "Inputs must be floating-point numbers of 16, 32 or 64 bits, "
            f"not {str(found.dtype).removeprefix('torch.')}."
        )
    # where the sum is finite all of them are; sums of large ones need a look
    if math.isfinite(once(found, "sum", lambda: found.detach().sum().item())):
        return found
    bad = ~torch.isfinite(found).flatten(1).all(1)
    if bad.any():
        raise InvalidInput(f"Sample {int(bad.nonzero()[0])} of the inputs contains NaN or infinite values.")
    return found


def check_targets(targets: object, samples: int, classes: int) -> Tensor:
    """Whole numbers ``(N,)`` that name outputs of the network."""
    if isinstance(targets, int) and not isinstance(targets, bool):
        targets = [targets] * samples
    found = _whole_numbers(targets, samples, "Targets")
    low, high = (0, 0)
    if found.numel():
        low, high = once(found, "range", lambda: _range(found))
    if low < 0 or high >= classes:
        worst = high if high >= classes else low
        raise InvalidInput(f"Target {worst} does not exist: the network has outputs 0 to {classes - 1}.")
    return found


def _range(numbers: Tensor) -> tuple[int, int]:
    """The least and the greatest; of a few the list is quicker than the arithmetic."""
    if len(numbers) > _FEW:
        numbers = torch.stack(torch.aminmax(numbers))
    listed = numbers.tolist()
    return min(listed), max(listed)


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


def _answers(
    model: nn.Module, inputs: Tensor, batch_size: int, *, first: bool = False
) -> tuple[Tensor, bool]:
    """The outputs of a network that may raise anything, and whether it gives them as a tensor.

    Where it fails on inputs and not on the same ones as a batch of one, that is what the sentence says.

    Args:
        model: the network.
        inputs: ``(N, ...)``.
        batch_size: samples in one pass.
        first: only of the first sample.
    """
    asked = inputs[:1] if first else inputs
    try:
        with running(asked.shape):
            return answers(model, asked, batch_size)
    except InvalidInput as error:
        if _fits_alone(model, inputs):
            raise InvalidInput(
                f"A batch axis is missing: inputs of shape {tuple(inputs.shape)} are one sample, while the "
                "network takes (samples, ...); write inputs[None]."
            ) from error
        raise


def _fits_alone(model: nn.Module, inputs: Tensor) -> bool:
    try:
        return inputs.ndim <= 3 and len(answers(model, inputs[None])[0]) == 1
    except Exception:  # the first failure says more
        return False


def network_outputs(model: nn.Module, inputs: Tensor, batch_size: int = 256) -> Tensor:
    """The outputs ``(N, classes)`` of a network that may raise anything."""
    return _answers(model, inputs, batch_size)[0]


_OUTPUTS: WeakKeyDictionary[nn.Module, tuple[tuple[object, ...], int]] = WeakKeyDictionary()
"""What was asked of a network last that gives a tensor, and how many outputs it has there."""


def _kind(parts: Anatomy, inputs: Tensor) -> tuple[object, ...]:
    """All that the number of outputs is taken to depend on."""
    return (
        inputs.shape[1:],
        inputs.dtype,
        inputs.device,
        tuple((id(weight), weight.shape) for weight in parts.weights),
    )


def _asked(
    model: nn.Module, parts: Anatomy, inputs: Tensor, batch_size: int, *, first: bool = False
) -> tuple[Tensor, bool]:
    """The outputs as in `_answers`, which must be scores; how many they are is remembered."""
    scores, plain = _answers(model, inputs, batch_size, first=first)
    if not scores.is_floating_point():
        kind = str(scores.dtype).removeprefix("torch.")
        raise InvalidInput(f"The network gives {kind} numbers, such as names of classes, not scores of them.")
    if plain:
        _OUTPUTS[model] = (_kind(parts, inputs), scores.shape[1])
    else:
        _OUTPUTS.pop(model, None)
    return scores, plain


def _chosen(
    model: nn.Module, parts: Anatomy, inputs: Tensor, batch_size: int, targets: object, trusting: bool
) -> tuple[Tensor, bool]:
    """The targets, if a network has such outputs, and whether it gives them as a tensor.

    One sample tells. It is asked again where it may have changed, and before a target is refused.
    """
    known = _OUTPUTS.get(model) if trusting else None
    if known is not None and known[0] == _kind(parts, inputs):
        with suppress(InvalidInput):
            return check_targets(targets, len(inputs), known[1]), True
    scores, plain = _asked(model, parts, inputs, batch_size, first=True)
    return check_targets(targets, len(inputs), scores.shape[1]), plain


def known_outputs(model: nn.Module) -> int | None:
    """How many outputs a network had when it was prepared last; None for one that gives more than them."""
    known = _OUTPUTS.get(model)
    return None if known is None else known[1]


def prepared(
    model: nn.Module,
    inputs: object,
    targets: object,
    batch_size: int = 256,
    *,
    output: str = "logit",
    trusting: bool = False,
    parts: Anatomy | None = None,
) -> tuple[nn.Module, Tensor, Tensor]:
    """A network that gives the output to explain as a tensor, and inputs and targets as it takes them.

    This is the one place where networks that give more than a tensor, as those of Hugging Face do, are told
    from others: everything behind it sees tensors.

    Args:
        model: any network.
        inputs: as `check_inputs` takes them.
        targets: as `check_targets` takes them; None: the predicted class of each sample.
        batch_size: samples in one pass.
        output: what is explained, as `verax.explain` takes it.
        trusting: take a network to have the outputs that it had last; for those who notice when it has not.
        parts: what the network is made of, where somebody knows it.

    Returns:
        The network, inputs on its device and in its precision, and what is explained of each sample.
    """
    asked = explained(model, output)
    given = check_inputs(inputs)
    parts = parts or Anatomy.of(model)
    x = given.detach().to(parts.device, parts.dtype(given.dtype)).clone()
    if targets is None:
        scores, plain = _asked(asked, parts, x, batch_size)
        chosen = scores.argmax(1)
    else:
        chosen, plain = _chosen(asked, parts, x, batch_size, targets, trusting)
    return asked if plain else Explained(asked, "logit"), x, chosen.to(x.device)
