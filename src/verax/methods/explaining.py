"""`explain`: run a method on a network without disturbing the network."""

from __future__ import annotations

import copy
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from verax.cases import Truth
from verax.engine.outputs import explained
from verax.errors import InvalidInput, InvalidParameter, MethodFailed, VeraxError
from verax.methods.base import METHODS, Function, Method, describe
from verax.networks.inference import device_of, dtype_of, outputs, undisturbed
from verax.seeding import Streams, content_ids, key


def as_method(method: str | Method | Function) -> Method:
    """A method from its name, from any callable, or as it is."""
    if isinstance(method, Method):
        return method
    if isinstance(method, str):
        return METHODS.get(method)
    return describe(getattr(method, "__name__", type(method).__name__), method)


def check_inputs(inputs: object) -> Tensor:
    """A float tensor ``(N, ...)`` without NaN or infinity, or one sentence that says what is wrong."""
    if isinstance(inputs, np.ndarray):
        inputs = torch.from_numpy(inputs)
    if not isinstance(inputs, Tensor):
        raise InvalidInput(f"Inputs must be a tensor, not {type(inputs).__name__}.")
    if inputs.ndim < 2 or len(inputs) == 0:
        raise InvalidInput(f"Inputs must have the shape (samples, ...), not {tuple(inputs.shape)}.")
    if not inputs.is_floating_point():
        raise InvalidInput(
            f"Inputs must be floating-point numbers, not {str(inputs.dtype).removeprefix('torch.')}."
        )
    bad = ~torch.isfinite(inputs).flatten(1).all(1)
    if bad.any():
        raise InvalidInput(f"Sample {int(bad.nonzero()[0])} of the inputs contains NaN or infinite values.")
    return inputs


def check_targets(targets: object, samples: int, classes: int) -> Tensor:
    """Whole numbers ``(N,)`` that name outputs of the network."""
    if isinstance(targets, int) and not isinstance(targets, bool):
        targets = [targets] * samples
    try:
        found = torch.as_tensor(targets)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidInput("Targets must be whole numbers, one for each sample.") from error
    if (
        found.dtype == torch.bool
        or found.is_floating_point()
        or found.is_complex()
        or found.shape != (samples,)
    ):
        raise InvalidInput(f"Targets must be {samples} whole numbers, one for each sample.")
    if found.numel() and (found.min() < 0 or found.max() >= classes):
        worst = int(found.max() if found.max() >= classes else found.min())
        raise InvalidInput(f"Target {worst} does not exist: the network has outputs 0 to {classes - 1}.")
    return found.to(torch.int64)


def streams_of(method: Method, inputs: Tensor, ids: Tensor | None, seed: int) -> Streams:
    """The random numbers that a method draws for each sample, by its id or by its values."""
    numbers = content_ids(inputs) if ids is None else torch.as_tensor(ids).to(inputs.device)
    if numbers.shape != (len(inputs),):
        raise InvalidInput(f"ids must be {len(inputs)} whole numbers, one for each sample.")
    return Streams.of(numbers, "explain", method.name, seed)


@contextmanager
def _numpy_seeded(seed: int) -> Iterator[None]:
    """Other libraries draw from NumPy's global stream: seeded here, and put back afterwards."""
    state = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed % 2**32)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(state)  # noqa: NPY002


@contextmanager
def _protected(model: nn.Module, seed: int) -> Iterator[None]:
    """Eval mode, gradients of weights and global random numbers: all put back afterwards."""
    where = device_of(model)
    cudnn = torch.backends.cudnn
    # full float32 and fixed algorithms, so that a GPU gives the CPU's maps and the same ones every time
    exact = cudnn.flags(enabled=cudnn.enabled, benchmark=False, deterministic=True, allow_tf32=False)
    with (
        undisturbed(model),  # first: from here on other threads wait
        torch.random.fork_rng(devices=[where] if where.type == "cuda" else []),
        _numpy_seeded(seed),
        exact,
    ):
        grads = [(weight, weight.grad) for weight in model.parameters()]
        torch.manual_seed(seed)
        try:
            for weight, _ in grads:
                weight.grad = None
            yield
        finally:
            for weight, grad in grads:
                weight.grad = grad


def _private(model: nn.Module) -> nn.Module:
    """A copy for methods of unknown manners: what they change, hooks and weights included, dies with it."""
    try:
        return copy.deepcopy(model)
    except Exception:  # a network that cannot be copied is handed over as it is
        return model


def _call(chosen: Method, model: nn.Module, x: Tensor, y: Tensor, keywords: dict[str, Any]) -> Tensor:
    try:
        maps = chosen.function(model, x.clone(), y.clone(), **keywords)
    except (VeraxError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(where.filename).name}:{where.lineno}"
        raise MethodFailed(f"Method {chosen.name!r} failed with {reason} ({place})") from error
    if isinstance(maps, np.ndarray):
        maps = torch.from_numpy(maps)
    if not isinstance(maps, Tensor):
        raise MethodFailed(f"Method {chosen.name!r} must return a tensor, not {type(maps).__name__}.")
    if x.ndim == 4 and maps.shape == (len(x), *x.shape[2:]):
        maps = maps[:, None]
    if x.ndim == 4 and maps.shape == (len(x), 1, *x.shape[2:]):  # one map for all channels, as CAMs have it
        maps = maps.expand_as(x)
    if maps.shape != x.shape:
        got, want = tuple(maps.shape), tuple(x.shape)
        raise MethodFailed(f"Method {chosen.name!r} must return the shape of its inputs {want}, not {got}.")
    return maps.detach().to(device=x.device, dtype=torch.float32)


def explain(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor | None = None,
    method: str | Method | Function = "gradient",
    *,
    batch_size: int = 64,
    seed: int = 0,
    ids: Tensor | None = None,
    truth: Truth | None = None,
    output: str = "logit",
    settings: Mapping[str, Any] | None = None,
    **parameters: Any,
) -> Tensor:
    """Attributions of `model` for `inputs`: float32, shape and device of the inputs.

    The network is run in eval mode and is afterwards as it was before: weights, modes, hooks and gradients.

    Args:
        model: gives ``(samples, outputs)``.
        inputs: ``(N, ...)`` finite floats.
        targets: the output to explain for each sample (default: the predicted one).
        method: a name (``verax list methods``) or any callable ``(model, inputs, targets) -> attributions``.
        batch_size: samples handed to the method at once; changes speed and memory, never the maps.
        seed: of the methods that draw random numbers.
        ids: which random stream each sample has (default: made from its values, so that the same picture
            has the same map in every batch).
        truth: what the reference `oracle` shows.
        output: explain the "logit", the "probability", the "log-probability" or the "margin" over the others.
        settings: the method's own parameters as a mapping, for those whose names are taken here.
        **parameters: the method's own parameters.
    """
    # Outside the caller's inference mode, in which no gradient can exist.
    with torch.inference_mode(False):
        return _explain(
            model,
            inputs,
            targets,
            method,
            batch_size,
            seed,
            ids,
            truth,
            output,
            {**parameters, **(settings or {})},
        )


def _explain(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor | None,
    method: str | Method | Function,
    batch_size: int,
    seed: int,
    ids: Tensor | None,
    truth: Truth | None,
    output: str,
    parameters: Mapping[str, Any],
) -> Tensor:
    if not isinstance(model, nn.Module):
        raise InvalidInput(f"The model must be a torch.nn.Module, not {type(model).__name__}.")
    if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size < 1:
        raise InvalidParameter(f"batch_size must be a whole number from 1, not {batch_size!r}.")
    chosen = as_method(method)
    if not chosen.builtin or chosen.family == "peers":
        model = _private(model)
    model = explained(model, output)
    settings = chosen.settings(parameters)
    given = check_inputs(inputs)
    x = given.detach().to(device_of(model), dtype_of(model, given.dtype)).clone()
    # one sample tells how many outputs there are; all are needed only to find the predicted class
    scores = outputs(model, x if targets is None else x[:1], batch_size)
    wanted = scores.argmax(1) if targets is None else targets
    y = check_targets(wanted, len(x), scores.shape[1]).to(x.device)
    drawing = "streams" in chosen.special
    streams = streams_of(chosen, x, ids, seed) if drawing or ids is not None else None
    known = None if truth is None else truth.map(lambda tensor: tensor.to(x.device))
    maps = torch.empty_like(x, dtype=torch.float32)
    with _protected(model, key("global", chosen.name, seed) & 0x7FFFFFFFFFFFFFFF):
        for first in range(0, len(x), batch_size):
            part = slice(first, first + batch_size)
            keywords = dict(settings)
            if drawing and streams is not None:
                keywords["streams"] = streams[part]
            if "truth" in chosen.special:
                keywords["truth"] = None if known is None else known[part]
            maps[part] = _call(chosen, model, x[part], y[part], keywords)
    return maps.to(given.device)
