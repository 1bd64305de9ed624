"""Normalisation by a sample's own statistics: layer, RMS, group and instance normalisation, and by length.

The first four are ``centred * (variance + eps)^(-1/2) * weight + bias``. They differ in what is averaged, and
RMS normalisation does not centre.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from verax.engine.operations import Operation
from verax.errors import UnsupportedOperation

_PARAMETERS: dict[str, tuple[str, ...]] = {
    "layer_norm": ("normalized_shape", "weight", "bias", "eps"),
    "rms_norm": ("normalized_shape", "weight", "eps"),
    "group_norm": ("num_groups", "weight", "bias", "eps"),
    "instance_norm": (
        "running_mean",
        "running_var",
        "weight",
        "bias",
        "use_input_stats",
        "momentum",
        "eps",
    ),
}


@dataclass(frozen=True)
class Normalisation:
    """One normalising call, in steps that are linear (centring), a square root, and a product.

    Attributes:
        dims: what is averaged, for layer and RMS normalisation.
        groups: number of channel groups, for group and instance normalisation; 0 otherwise.
        centres: whether the mean is subtracted.
        weight: broadcastable to the input, or None.
        bias: broadcastable to the input, or None.
        eps: added to the variance.
    """

    dims: tuple[int, ...]
    groups: int
    centres: bool
    weight: Tensor | None
    bias: Tensor | None
    eps: float

    @classmethod
    def of(cls, operation: Operation) -> Normalisation:
        """Read a call."""
        x: Tensor = operation.args[0]
        named = zip(_PARAMETERS[operation.name], operation.args[1:], strict=False)
        given: dict[str, Any] = {**dict(named), **operation.kwargs}
        weight, bias, eps = given.get("weight"), given.get("bias"), given.get("eps")
        if eps is None:  # RMS normalisation takes the precision of its input, the others 1e-5
            eps = torch.finfo(x.dtype).eps if operation.name == "rms_norm" else 1e-5
        if "normalized_shape" in given:
            shape = given["normalized_shape"]
            dims = tuple(range(-(1 if isinstance(shape, int) else len(shape)), 0))
            return cls(dims, 0, operation.name == "layer_norm", weight, bias, eps)
        if not given.get("use_input_stats", True):
            raise UnsupportedOperation("Instance normalisation with running statistics has no rule.")
        groups = int(given.get("num_groups", x.shape[1]))
        tall = (-1, *[1] * (x.dim() - 2))
        weight, bias = (None if v is None else v.reshape(tall) for v in (weight, bias))
        return cls((-1,), groups, True, weight, bias, eps)

    def _mean(self, x: Tensor) -> Tensor:
        if not self.groups:
            return x.mean(self.dims, keepdim=True)
        grouped = x.reshape(x.shape[0], self.groups, -1)
        return grouped.mean(-1, keepdim=True).expand(grouped.shape).reshape(x.shape)

    def centre(self, x: Tensor) -> Tensor:
        """The linear step."""
        return x - self._mean(x) if self.centres else x

    def inverse(self, centred: Tensor) -> Tensor:
        """One over the standard deviation."""
        return torch.rsqrt(self._mean(centred * centred) + self.eps)

    def affine(self, y: Tensor) -> Tensor:
        """The learnt scale and shift."""
        y = y if self.weight is None else y * self.weight
        return y if self.bias is None else y + self.bias

    def __call__(self, x: Tensor) -> Tensor:
        """The whole call in primitive calls."""
        centred = self.centre(x)
        return self.affine(centred * self.inverse(centred))

    def frozen(self, x: Tensor, like: Tensor) -> Tensor:
        """The call with the standard deviation of `like`: linear in x, and the call itself at x = like."""
        return self.affine(self.centre(x) * self.inverse(self.centre(like)).detach())


_LENGTHS: dict[str, tuple[str, ...]] = {
    "norm": ("p", "dim", "keepdim", "dtype"),
    "linalg_norm": ("ord", "dim", "keepdim", "dtype"),
    "linalg_vector_norm": ("ord", "dim", "keepdim", "dtype"),
    "normalize": ("p", "dim", "eps"),
}


@dataclass(frozen=True)
class Length:
    """The Euclidean length of vectors, or the vectors at length one.

    Attributes:
        dims: what a vector is made of; None: everything.
        keepdim: whether `dims` stay as dimensions of size one.
        eps: the smallest divisor of ``F.normalize``; None: the length itself is asked for.
    """

    dims: tuple[int, ...] | None
    keepdim: bool
    eps: float | None

    @classmethod
    def of(cls, operation: Operation) -> Length | None:
        """Read a call; None for other norms than the Euclidean one."""
        named = zip(_LENGTHS[operation.name], operation.args[1:], strict=False)
        given: dict[str, Any] = {**dict(named), **operation.kwargs}
        order, dims = given.get("p", given.get("ord", 2)), given.get("dim")
        # with an order and no single dimension ``linalg.norm`` is a norm of matrices
        matrix = operation.name == "linalg_norm" and "ord" in given and not isinstance(dims, int)
        if order not in (2, "fro", None) or given.get("dtype") is not None or matrix:
            return None
        if operation.name == "normalize":
            return cls((given.get("dim", 1),), True, given.get("eps", 1e-12))
        return cls((dims,) if isinstance(dims, int) else dims, bool(given.get("keepdim", False)), None)

    def _long(self, x: Tensor) -> Tensor:
        dims = tuple(range(x.dim())) if self.dims is None else self.dims
        return torch.sqrt(torch.square(x).sum(dims, keepdim=self.keepdim))

    def __call__(self, x: Tensor) -> Tensor:
        """The whole call in primitive calls."""
        long = self._long(x)
        return long if self.eps is None else x / long.clamp_min(self.eps)

    def frozen(self, x: Tensor, like: Tensor) -> Tensor:
        """The call with divisors (the direction, for a length) of `like`: linear in x, itself at x = like."""
        if self.eps is not None:
            return x / self._long(like).clamp_min(self.eps)
        dims = tuple(range(like.dim())) if self.dims is None else self.dims
        long = like.square().sum(dims, keepdim=True).sqrt()
        direction = like / torch.where(long == 0, 1, long)
        return (x * direction).sum(dims, keepdim=self.keepdim)
