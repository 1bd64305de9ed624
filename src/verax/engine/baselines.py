"""Baselines: what an input looks like when its information is gone."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from numbers import Real

import torch
import torch.nn.functional as F
from torch import Tensor

from verax.engine.conditions import refuse
from verax.errors import InvalidInput, InvalidParameter, suggestion
from verax.seeding import Streams

Baseline = float | str | Tensor
"""A number, "zeros", "mean", "blur", "noise", or a tensor that broadcasts to the inputs."""

NAMES = ("zeros", "mean", "blur", "noise")


def blurred(inputs: Tensor, width: float = 5.0) -> Tensor:
    """Pictures ``(N, C, H, W)`` blurred by a Gaussian of standard deviation `width` pixels."""
    if inputs.ndim != 4:
        raise InvalidInput(f"Only pictures (N, C, H, W) can be blurred, not shape {tuple(inputs.shape)}.")
    if width <= 0:
        return inputs.clone()
    radius = max(1, math.ceil(3 * width))
    place = torch.arange(-radius, radius + 1, device=inputs.device, dtype=inputs.dtype)
    kernel = torch.exp(-0.5 * (place / width) ** 2)
    kernel = kernel / kernel.sum()
    flat = inputs.flatten(0, 1)[:, None]
    flat = F.conv2d(F.pad(flat, (0, 0, radius, radius), mode="replicate"), kernel[None, None, :, None])
    flat = F.conv2d(F.pad(flat, (radius, radius, 0, 0), mode="replicate"), kernel[None, None, None, :])
    return flat.reshape(inputs.shape)


def scale_space(inputs: Tensor, widths: Tensor) -> Tensor:
    """Pictures blurred by several Gaussians: ``(N, K, C, H, W)`` for `widths` ``(K,)`` in pixels; 0 is sharp.

    The result is smooth in the widths (all kernels reach equally far), so that it can serve as a path.
    """
    if inputs.ndim != 4:
        raise InvalidInput(f"Only pictures (N, C, H, W) can be blurred, not shape {tuple(inputs.shape)}.")
    rows, columns = (_blur_matrices(size, widths.to(inputs)) for size in inputs.shape[2:])
    return rows[None, :, None] @ inputs[:, None] @ columns[None, :, None].mT


def _blur_matrices(size: int, widths: Tensor) -> Tensor:
    """Blurring along one axis as matrices ``(K, size, size)``; the border pixel goes on outside."""
    reach = math.ceil(5 * float(widths.max()))
    place = torch.arange(-reach, size + reach, device=widths.device)
    apart = (place - torch.arange(size, device=widths.device)[:, None]).to(widths)
    kernel = torch.exp(-0.5 * (apart / widths.clamp_min(1e-3)[:, None, None]) ** 2)
    kernel = kernel / kernel.sum(2, keepdim=True)
    inside = kernel[:, :, reach : reach + size].clone()
    inside[:, :, 0] += kernel[:, :, :reach].sum(2)
    inside[:, :, -1] += kernel[:, :, reach + size :].sum(2)
    return inside


def baseline_of(spec: Baseline, inputs: Tensor, streams: Streams | None = None) -> Tensor:
    """The baseline of each sample: shape of `inputs`.

    Args:
        spec: a number; "zeros"; "mean" (of each channel of each sample); "blur"; "noise" (uniform between
            the smallest and largest value of each sample, needs `streams`); or a tensor.
        inputs: ``(N, ...)``.
        streams: random numbers of each sample.
    """
    if isinstance(spec, Tensor):
        if spec.is_complex():
            raise InvalidInput("A baseline must be real numbers, not complex ones.")
        try:
            found = spec.to(inputs).expand_as(inputs).clone()
        except RuntimeError as error:
            got, want = tuple(spec.shape), tuple(inputs.shape)
            raise InvalidInput(
                f"A baseline of shape {got} does not fit inputs of shape {want}; give the shape of one "
                "sample, or of all."
            ) from error
        if not found.isfinite().all():
            raise InvalidInput("The baseline contains NaN or infinite values.")
        return found
    if isinstance(spec, Real):
        if not math.isfinite(spec):
            raise InvalidParameter(f"A baseline must be a finite number, not {spec!r}.")
        return torch.full_like(inputs, float(spec))
    if not isinstance(spec, str):
        what = type(spec).__name__
        words = ", ".join(NAMES)
        raise InvalidParameter(
            f"A baseline must be a finite number, a word ({words}) or a tensor, not a {what}."
        )
    if spec == "zeros":
        return torch.zeros_like(inputs)
    if spec == "mean":
        dims = tuple(range(2, inputs.ndim)) or (1,)
        return inputs.mean(dims, keepdim=True).expand_as(inputs).clone()
    if spec == "blur":
        return blurred(inputs)
    if spec == "noise":
        if streams is None:
            raise InvalidParameter("This method draws no random numbers, so it has no 'noise' baseline.")
        low, high = inputs.flatten(1).aminmax(dim=1)
        shape = (-1, *[1] * (inputs.ndim - 1))
        drawn = streams.uniform("baseline", *inputs.shape[1:]).to(inputs)
        return low.reshape(shape) + drawn * (high - low).reshape(shape)
    raise InvalidParameter(f"There is no baseline {spec!r}{suggestion(spec, NAMES)}")


def shared(spec: Baseline, inputs: Tensor) -> Tensor | None:
    """The baseline that all samples have, ``(1, ...)``; None where each may have its own."""
    if isinstance(spec, Tensor):
        common = spec.ndim < inputs.ndim or len(spec) == 1
    else:
        common = spec == "zeros" or not isinstance(spec, str)
    with suppress(InvalidInput):  # of what does not fit, `baseline_of` says so
        return baseline_of(spec, inputs[:1]) if common else None
    return None


def noisy_baselines(
    spec: Baseline, inputs: Tensor, streams: Streams, count: int, noise: float
) -> Callable[[slice, slice], Tensor]:
    """`count` random baselines of each sample, drawn when they are needed.

    Args:
        spec: as in `baseline_of`; "noise" draws every one anew.
        inputs: ``(N, ...)``.
        streams: random numbers of each sample.
        count: baselines for each sample.
        noise: standard deviation of the Gaussian noise around `spec`, in units of the input.

    Returns:
        A function (samples, baselines) -> ``(n, k, ...)``.
    """
    shape = inputs.shape[1:]
    if isinstance(spec, str) and spec == "noise":
        low, high = inputs.flatten(1).aminmax(dim=1)
        low, span = (v.reshape(-1, 1, *[1] * len(shape)) for v in (low, high - low))
        return lambda some, part: (
            low[some] + span[some] * streams[some].uniform("baselines", count, *shape)[:, part].to(inputs)
        )
    start = baseline_of(spec, inputs)[:, None]
    return lambda some, part: (
        start[some] + noise * streams[some].normal("baselines", count, *shape)[:, part].to(inputs)
    )


def check_references(references: Tensor, inputs: Tensor) -> Tensor:
    """A set of reference samples ``(R, ...)`` that fits the inputs."""
    if references.ndim != inputs.ndim or references.shape[1:] != inputs.shape[1:] or not len(references):
        got, want = tuple(references.shape), ", ".join(str(size) for size in inputs.shape[1:])
        raise InvalidInput(f"References must have the shape (references, {want}), not {got}.")
    found = references.detach().to(inputs)
    refuse(~found.isfinite().all(), lambda: InvalidInput("The references contain NaN or infinite values."))
    return found
