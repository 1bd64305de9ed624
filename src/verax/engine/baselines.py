"""Baselines: what an input looks like when its information is gone."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

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


def baseline_of(spec: Baseline, inputs: Tensor, streams: Streams | None = None) -> Tensor:
    """The baseline of each sample: shape of `inputs`.

    Args:
        spec: a number; "zeros"; "mean" (of each channel of each sample); "blur"; "noise" (uniform between
            the smallest and largest value of each sample, needs `streams`); or a tensor.
        inputs: ``(N, ...)``.
        streams: random numbers of each sample.
    """
    if isinstance(spec, Tensor):
        try:
            return spec.to(inputs).expand_as(inputs).clone()
        except RuntimeError as error:
            got, want = tuple(spec.shape), tuple(inputs.shape)
            raise InvalidInput(f"A baseline of shape {got} does not fit inputs of shape {want}.") from error
    if isinstance(spec, bool | int | float):
        return torch.full_like(inputs, float(spec))
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
    raise InvalidParameter(f"There is no baseline {spec!r}{suggestion(str(spec), NAMES)}")
