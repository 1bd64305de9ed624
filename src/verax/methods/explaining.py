"""`explain`: run a method on a network without disturbing the network."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from verax.cases import Truth
from verax.devices import cached_rows
from verax.engine.gradients import OtherOutputs, expecting
from verax.errors import InvalidInput, MethodFailed, VeraxError, place
from verax.methods.base import METHODS, Function, Method, describe
from verax.methods.inputs import check_ids, check_model, check_seed, check_settings, known_outputs, prepared
from verax.methods.limits import whole_from
from verax.methods.rasters import explain_raster, is_raster
from verax.networks.anatomy import Anatomy, homely
from verax.networks.inference import settings_kept, undisturbed
from verax.networks.precision import precisely
from verax.seeding import Streams, global_streams, key


def as_method(method: str | Method | Function) -> Method:
    """A method from its name, from any callable, or as it is."""
    if isinstance(method, Method):
        return method
    if isinstance(method, str):
        return METHODS.get(method)
    return describe(getattr(method, "__name__", type(method).__name__), method)


def streams_of(method: Method, inputs: Tensor, ids: Tensor | None, seed: int) -> Streams:
    """The random numbers that a method draws for each sample, by its id or by its values."""
    return Streams.of(check_ids(ids, inputs), "explain", method.name, seed)


@contextmanager
def _protected(model: nn.Module, parts: Anatomy, seed: int, strange: bool) -> Iterator[None]:
    """Eval mode, gradients of weights, settings and random numbers of the process: put back afterwards.

    Methods of this package touch none but the first, so that nothing else has to be kept for a network of
    plain layers, but for precision and a GPU's choice of kernels.

    Args:
        model: the network.
        parts: what it is made of.
        seed: of random numbers.
        strange: whether a method runs that is not of this package: it may draw from NumPy, as networks may
            that are not made of PyTorch's layers alone.
    """
    with undisturbed(model, parts.modules):  # first: from here on other threads wait
        foreign = strange or not homely(parts.modules)
        if not foreign and parts.device.type in ("cpu", "cuda"):
            with precisely(parts.device):
                yield
            return
        grads = [(weight, weight.grad) for weight in parts.weights]
        with _process_kept(parts.device, seed, foreign):
            try:
                for weight, _ in grads:
                    weight.grad = None
                yield
            finally:
                for weight, grad in grads:
                    weight.grad = grad


@contextmanager
def _process_kept(where: torch.device, seed: int, foreign: bool) -> Iterator[None]:
    """Settings and random numbers of the process: exact and seeded, and put back afterwards.

    Args:
        where: the network's device.
        seed: of random numbers.
        foreign: whether other people's code runs, which may draw from NumPy and Python.
    """
    with (
        settings_kept(),
        torch.random.fork_rng(devices=[where] if where.type == "cuda" else []),
        global_streams(seed) if foreign else nullcontext(),
        precisely(where),
    ):
        _seed(seed, where)
        yield


def _seed(seed: int, where: torch.device) -> None:
    """Seed the random numbers of the CPU and of the network's device.

    `torch.manual_seed` would also ask for every other kind of device to be seeded once it is there, which
    takes as long as a small network and is remembered for ever.
    """
    torch.default_generator.manual_seed(seed)
    if where.type == "cuda":
        with torch.cuda.device(where):
            torch.cuda.manual_seed(seed)
    elif where.type != "cpu":
        torch.manual_seed(seed)


def _private(model: nn.Module) -> nn.Module:
    """A copy for methods of unknown manners: what they change, hooks and weights included, dies with it."""
    try:
        return copy.deepcopy(model)
    except Exception:  # a network that cannot be copied is handed over as it is
        return model


def _call(chosen: Method, model: nn.Module, x: Tensor, y: Tensor, keywords: dict[str, Any]) -> Tensor:
    try:
        own = (x.clone(), y.clone()) if chosen.foreign else (x, y)  # who may overwrite them
        maps = chosen.function(model, *own, **keywords)
    except (VeraxError, torch.OutOfMemoryError):
        raise
    except (Exception, SystemExit) as error:  # of a method that ends the program the place is told, too
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise MethodFailed(f"Method {chosen.name!r} failed with {reason} ({place(error)})") from error
    if isinstance(maps, np.ndarray):
        maps = torch.from_numpy(maps)
    if not isinstance(maps, Tensor):
        raise MethodFailed(f"Method {chosen.name!r} must return a tensor, not {type(maps).__name__}.")
    if maps.is_complex():
        raise MethodFailed(f"Method {chosen.name!r} must return real numbers, not complex ones.")
    if x.ndim == 4 and maps.shape == (len(x), *x.shape[2:]):
        maps = maps[:, None]
    if x.ndim == 4 and maps.shape == (len(x), 1, *x.shape[2:]):  # one map for all channels, as CAMs have it
        maps = maps.expand_as(x)
    if maps.shape != x.shape:
        got, want = tuple(maps.shape), tuple(x.shape)
        raise MethodFailed(f"Method {chosen.name!r} must return the shape of its inputs {want}, not {got}.")
    return maps.detach().to(device=x.device, dtype=torch.float32)


def _own_rows(settings: Mapping[str, Any], inputs: Tensor) -> dict[str, Tensor]:
    """Parameters of built-in methods that have a row for each sample, and go with it into a pass."""
    given = {name: settings.get(name) for name in ("baseline", "segments")}
    rows = {
        name: value
        for name, value in given.items()
        if isinstance(value, Tensor)
        and (value.layout, value.is_nested, value.is_quantized) == (torch.strided, False, False)
        and value.ndim == inputs.ndim
        and len(value) != 1
    }
    for name, value in rows.items():
        if len(value) != len(inputs):
            shape, count = tuple(value.shape), len(inputs)
            raise InvalidInput(f"Parameter {name!r} of shape {shape} does not fit {count} samples.")
    return rows


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

    A Dataset or DataArray of xarray, with samples in its first dimension, gives a Dataset with the same
    coordinates back; places that are always missing are left out of what the network sees. The network is run
    in eval mode and is afterwards as it was before: weights, modes, hooks and gradients.

    Args:
        model: gives ``(samples, outputs)``, or something with ``logits``, as Hugging Face's classifiers do.
        inputs: ``(N, ...)`` finite floats, or a Dataset or DataArray of xarray.
        targets: the output to explain for each sample (default: the predicted one).
        method: a name (``verax list methods``) or any callable ``(model, inputs, targets) -> attributions``.
        batch_size: samples handed to the method at once, at the most; changes speed and memory, never the
            maps. Methods of verax get fewer pictures on a CPU where more would leave its caches.
        seed: of the methods that draw random numbers.
        ids: which random stream each sample has (default: made from its values, so that the same picture
            has the same map in every batch).
        truth: what the reference `oracle` shows.
        output: explain the "logit", the "probability", the "log-probability" or the "margin" over the others;
            a network with one output has nothing but its logit.
        settings: the method's own parameters as a mapping, for those whose names are taken here.
        **parameters: the method's own parameters.
    """
    own = check_settings(parameters, settings)
    if is_raster(inputs):
        chosen = as_method(method)
        options = {"batch_size": batch_size, "seed": seed, "ids": ids, "truth": truth, "output": output}
        found = explain_raster(explain, model, inputs, targets, own, method=chosen, **options)
        return cast("Tensor", found)
    # Outside the caller's inference mode, in which no gradient can exist.
    with torch.inference_mode(False):
        given = (check_model(model), inputs, targets, method, batch_size, seed, ids, truth, output, own)
        remembered = known_outputs(model) is not None
        try:
            return _explain(*given, trusting=remembered)
        except OtherOutputs:
            if not remembered:
                raise
        return _explain(*given, trusting=False)  # changed since it was asked, in what nobody can see


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
    trusting: bool,
) -> Tensor:
    whole_from(1).check(batch_size, "batch_size")
    seed = check_seed(seed)
    if truth is not None and not isinstance(truth, Truth):
        raise InvalidInput(f"The truth must be a Truth, as cases.truth is, not {type(truth).__name__}.")
    chosen = as_method(method)
    strange = chosen.foreign
    if strange:
        model = _private(model)
    settings = chosen.settings(parameters)
    parts = Anatomy.of(model)
    given = model
    model, x, y = prepared(model, inputs, targets, batch_size, output=output, trusting=trusting, parts=parts)
    if model is not given:
        parts = Anatomy.of(model)
    drawing = "streams" in chosen.special
    streams = streams_of(chosen, x, ids, seed) if drawing or ids is not None else None
    known = None if truth is None else truth.map(lambda tensor: tensor.to(x.device))
    maps = torch.empty_like(x, dtype=torch.float32)
    if not strange and x.ndim == 4 and x.device.type == "cpu" and len(x):
        batch_size = min(batch_size, cached_rows(x[0]))
    rows = {} if strange else _own_rows(settings, x)
    private = key("global", chosen.name, seed) & 0x7FFFFFFFFFFFFFFF
    with _protected(model, parts, private, strange), expecting(known_outputs(model)):
        for first in range(0, len(x), batch_size):
            part = slice(first, first + batch_size)
            keywords = {**settings, **{name: value[part] for name, value in rows.items()}}
            if drawing and streams is not None:
                keywords["streams"] = streams[part]
            if "truth" in chosen.special:
                keywords["truth"] = None if known is None else known[part]
            maps[part] = _call(chosen, model, x[part], y[part], keywords)
    return maps.to(inputs.device) if isinstance(inputs, Tensor) else maps.cpu()
