"""Which tensors of a forward pass are pictures ``(N, C, h, w)``.

Four dimensions are not enough: attention weights ``(N, heads, tokens, tokens)`` have four too, and whether
they appear at all depends on how a network spells attention. A picture is the input, what a convolution,
pooling or normalisation of pictures gives, and what is made from a picture without leaving four dimensions.
Where its channels are is followed too: ConvNeXt and Swin work channels-last, Swin to the very end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


_TURNS = frozenset(["permute", "transpose", "movedim", "moveaxis", "swapaxes", "swapdims"])
"""Calls that move dimensions: networks that normalise channels-last turn their pictures round and back."""


class Pictures:
    """Follows pictures, and single channels of them ``(N, h, w)``, through a forward pass."""

    def __init__(self) -> None:
        # by identity, with the dimension of the channels; tensors are kept so that no address is used twice
        self._known: dict[int, tuple[Tensor, int]] = {}

    def add(self, picture: Tensor, channels: int = 1) -> None:
        """Start from a tensor that is a picture."""
        self._known[id(picture)] = picture, channels

    def makes(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], shape: torch.Size
    ) -> int | None:
        """The dimension of the channels of what a call gives; None where that is no picture."""
        name = getattr(func, "__name__", "").strip("_")
        if len(shape) == 4 and name in _MAKERS:
            return 1
        values = tree_leaves((args, kwargs))
        known = [self._known[id(value)] for value in values if id(value) in self._known]
        fits = [
            channels
            for value, channels in known
            if len(shape) in (3, 4) and (value.ndim == len(shape) == 4 or value.shape[-2:] == shape[-2:])
        ]
        if fits and len(shape) == 4 and name in _TURNS:
            sizes = torch.Size((2, 3, 5, 7))  # all different, so that the result tells what went where
            turned = func(torch.empty(sizes, device="meta"), *args[1:], **kwargs).shape
            return list(turned).index(sizes[fits[0]])
        return fits[0] if fits else None

    def follow(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any
    ) -> None:
        """Remember the pictures among the results of a call."""
        for value in tree_leaves(result):
            if isinstance(value, Tensor):
                channels = self.makes(func, args, kwargs, value.shape)
                if channels is not None:
                    self.add(value, channels)

    def channels(self, value: object) -> int | None:
        """The dimension of a picture's channels; None for what is no picture."""
        if not isinstance(value, Tensor) or value.ndim != 4 or id(value) not in self._known:
            return None
        return self._known[id(value)][1]
