"""The last feature map of an unmodified network.

A `TorchFunctionMode` sees every operation, whether it was written as a module, a function or in place, so
no hook is registered and nothing has to be named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from verax.engine.gradients import leaf, select
from verax.errors import InvalidInput, InvalidParameter, suggestion


class _LastFeatureMap(TorchFunctionMode):
    """Remembers the last result that is a picture of more than one pixel and depends on the input."""

    def __init__(self, samples: int) -> None:
        super().__init__()
        self.samples = samples
        self.found: Tensor | None = None

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if (
            isinstance(result, Tensor)
            and result.ndim == 4
            and len(result) == self.samples
            and min(result.shape[2:]) > 1
            and result.grad_fn is not None
        ):
            self.found = result
        return result


def feature_map(
    model: nn.Module, inputs: Tensor, targets: Tensor, layer: str | None = None
) -> tuple[Tensor, Tensor]:
    """The activations ``(N, C, h, w)`` of a layer and their gradients.

    Args:
        model: the network.
        inputs: ``(N, C, H, W)``.
        targets: ``(N,)``.
        layer: a module's name as in ``model.named_modules()``; by default the last feature map of the
            forward pass that has more than one pixel.
    """
    if inputs.ndim != 4:
        raise InvalidInput(
            f"Class activation maps need pictures (N, C, H, W), not shape {tuple(inputs.shape)}."
        )
    with torch.enable_grad():
        if layer is None:
            watcher = _LastFeatureMap(len(inputs))
            with watcher:
                outputs = model(leaf(inputs))
            activations = watcher.found
            if activations is None:
                raise InvalidInput("The network has no feature map of more than one pixel; name a layer.")
        else:
            outputs, activations = _output_of(model, leaf(inputs), layer)
        (slopes,) = torch.autograd.grad(select(outputs, targets).sum(), activations, allow_unused=True)
    if slopes is None:
        slopes = torch.zeros_like(activations)
    return activations.detach(), slopes.detach()


def _output_of(model: nn.Module, inputs: Tensor, layer: str) -> tuple[object, Tensor]:
    modules = dict(model.named_modules())
    if layer not in modules or layer == "":
        raise InvalidParameter(
            f"The network has no layer {layer!r}{suggestion(layer, [m for m in modules if m])}"
        )
    kept: list[object] = []
    handle = modules[layer].register_forward_hook(lambda module, args, output: kept.append(output))
    try:
        outputs = model(inputs)
    finally:
        handle.remove()
    if not kept or not isinstance(kept[-1], Tensor) or kept[-1].ndim != 4 or kept[-1].grad_fn is None:
        raise InvalidParameter(
            f"Layer {layer!r} gives no feature map (N, C, h, w) that depends on the input."
        )
    return outputs, kept[-1]
