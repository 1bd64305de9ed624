"""Fusion: a convolution, its bias and the ReLU behind it in one pass, while a network learns.

Small convolutional networks read and write their maps far longer than they compute on a GPU. cuDNN adds the
bias and cuts at zero before it writes; the gradient of the bias is a product, several times as fast as a sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain, pairwise
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from verax.networks.anatomy import untouched

_REFUSED: set[tuple[object, ...]] = set()
"""Shapes for which cuDNN has no kernel that does all of it."""


class _Layer(torch.autograd.Function):
    """relu(convolution(x) + bias)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, places: tuple[Any, Any, Any]) -> Tensor:
        made = _fused(x, weight, bias, places)
        ctx.places = places
        ctx.save_for_backward(x, weight, made)
        return made

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, made = ctx.saved_tensors
        kept = torch.ops.aten.threshold_backward(slope, made, 0)
        stride, padding, dilation = ctx.places
        wanted = ctx.needs_input_grad
        into_x, into_weight, _ = torch.ops.aten.convolution_backward(
            kept, x, weight, None, stride, padding, dilation, False, [0, 0], 1, [wanted[0], wanted[1], False]
        )
        into_bias = None
        if wanted[2]:
            rows = kept.permute(0, 2, 3, 1).reshape(-1, kept.shape[1])
            into_bias = (rows.new_ones(1, len(rows)) @ rows)[0]
        return into_x, into_weight, into_bias, None


def _fused(x: Tensor, weight: Tensor, bias: Tensor, places: tuple[Any, Any, Any]) -> Tensor:
    kind = (x.shape, x.dtype, weight.shape, places)
    if x.is_cuda and kind not in _REFUSED:
        try:
            return torch.cudnn_convolution_relu(x, weight, bias, *places, 1)
        except RuntimeError:
            _REFUSED.add(kind)
    return F.conv2d(x, weight, bias, *places).relu_()


def _together(layer: nn.Conv2d, x: Tensor) -> Tensor:
    """What a convolution and the ReLU behind it give."""
    weight, bias = layer.weight, cast("Tensor", layer.bias)
    places = (layer.stride, cast("tuple[int, ...]", layer.padding), layer.dilation)
    if x.dim() != 4:
        return F.conv2d(x, weight, bias, *places).relu()
    if torch.is_autocast_enabled(x.device.type) and weight.dtype == torch.float32:  # it would be rounded
        return F.conv2d(x, weight, bias, *places).relu()
    return cast("Tensor", _Layer.apply(x.to(weight.dtype), weight, bias, places))  # type: ignore[no-untyped-call]


def pairs(model: nn.Module) -> list[tuple[nn.Conv2d, nn.ReLU]]:
    """The convolutions of a network that are surely followed by a ReLU and used nowhere else, with these.

    Only of networks that run their parts one after the other: `nn.Sequential`, and those that say so by an
    attribute `chained`.
    """
    found = [
        (one, other)
        for row in _chains(model)
        for one, other in pairwise(row)
        if isinstance(one, nn.Conv2d) and _plain(one) and type(other) is nn.ReLU and untouched(other)
    ]
    uses = [id(module) for _, module in model.named_modules(remove_duplicate=False)]
    return [(one, other) for one, other in found if uses.count(id(one)) == uses.count(id(other)) == 1]


def _chains(model: nn.Module) -> Iterator[nn.Sequential]:
    if type(model) is nn.Sequential:
        if untouched(model):
            yield model
            yield from chain.from_iterable(map(_chains, model))
    elif vars(type(model)).get("chained") is True:  # subclasses may have another order
        yield from chain.from_iterable(map(_chains, model.children()))


def _plain(layer: nn.Conv2d) -> bool:
    places = (layer.stride, layer.padding, layer.dilation)
    simple = layer.groups == 1 and layer.padding_mode == "zeros" and all(isinstance(p, tuple) for p in places)
    return type(layer) is nn.Conv2d and simple and layer.bias is not None and untouched(layer)


@contextmanager
def fused(model: nn.Module) -> Iterator[None]:
    """Let a network run with its pairs fused; its names, weights and hooks are as they were."""
    changed = pairs(model)
    try:
        for layer, curve in changed:  # a ReLU twice does no harm, none at all would
            layer.forward = partial(_together, layer)  # type: ignore[method-assign]
            curve.forward = cast("Any", _same)  # type: ignore[method-assign]
        yield
    finally:
        for layer, curve in changed:
            curve.__dict__.pop("forward", None)
            layer.__dict__.pop("forward", None)


def _same(x: Tensor) -> Tensor:
    return x
