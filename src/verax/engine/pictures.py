"""Which tensors of a forward pass are pictures ``(N, C, h, w)``.

Four dimensions are not enough: attention weights ``(N, heads, tokens, tokens)`` have four too, and whether
they appear at all depends on how a network spells attention. A picture is the input, what a convolution,
pooling or normalisation of pictures gives, and what is made from a picture without leaving four dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

_MAKERS = frozenset(
    [
        "conv2d",
        "conv_transpose2d",
        "max_pool2d",
        "avg_pool2d",
        "adaptive_max_pool2d",
        "adaptive_avg_pool2d",
        "lp_pool2d",
        "fractional_max_pool2d",
        "max_unpool2d",
        "interpolate",
        "upsample",
        "pixel_shuffle",
        "pixel_unshuffle",
        "grid_sample",
        "batch_norm",
        "instance_norm",
        "group_norm",
    ]
)
"""Calls whose results are pictures where they have four dimensions, wherever their arguments come from."""


class Pictures:
    """Follows pictures, and single channels of them ``(N, h, w)``, through a forward pass."""

    def __init__(self) -> None:
        # by identity; the tensors are kept so that no other one is given the same address
        self._known: dict[int, Tensor] = {}

    def add(self, picture: Tensor) -> None:
        """Start from a tensor that is a picture."""
        self._known[id(picture)] = picture

    def makes(self, func: Callable[..., Any], arguments: Any, shape: torch.Size) -> bool:
        """Whether a call that gives a tensor of this shape gives a picture, or a channel of one."""
        if len(shape) == 4 and getattr(func, "__name__", "").strip("_") in _MAKERS:
            return True
        known = [self._known[id(value)] for value in tree_leaves(arguments) if id(value) in self._known]
        return len(shape) in (3, 4) and any(
            value.ndim == len(shape) == 4 or value.shape[-2:] == shape[-2:] for value in known
        )

    def follow(self, func: Callable[..., Any], arguments: Any, result: Any) -> None:
        """Remember the pictures among the results of a call."""
        for value in tree_leaves(result):
            if isinstance(value, Tensor) and self.makes(func, arguments, value.shape):
                self.add(value)

    def __contains__(self, value: object) -> bool:
        return isinstance(value, Tensor) and value.ndim == 4 and id(value) in self._known
