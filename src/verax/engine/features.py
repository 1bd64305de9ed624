"""The last feature map of an unmodified network, and what the network says without one of its channels.

A `TorchFunctionMode` sees every operation, whether it was written as a module, a function or in place, so
no hook is registered and nothing has to be named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from verax.engine.batching import rows_within_budget, with_halving
from verax.engine.gradients import UNCONNECTED, connected, leaf, select, slopes_of
from verax.engine.pictures import Pictures
from verax.errors import InvalidInput, InvalidParameter, UnsupportedOperation, suggestion
from verax.networks.anatomy import apart, submodule

Edit = Callable[[Tensor], Tensor]


class _LastFeatureMap(TorchFunctionMode):
    """Remembers the last result that is a picture of more than one pixel and depends on the input."""

    def __init__(self, entry: Tensor) -> None:
        super().__init__()
        self.samples = len(entry)
        self.pictures = Pictures()
        self.pictures.add(entry)
        self.found: list[tuple[Tensor, int]] = []  # and the place of the call
        self.calls = 0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.pictures.follow(func, args, kwargs or {}, result)
        channels = self.pictures.channels(result)
        if channels and len(result) == self.samples and result.grad_fn is not None:
            height, width = (size for dim, size in enumerate(result.shape) if dim not in (0, channels))
            if min(height, width) > 1:
                self.found.append((result, self.calls))
        self.calls += 1
        return result


class _Edited(TorchFunctionMode):
    """Changes the result of the call at one place of the forward pass."""

    def __init__(self, place: int, edit: Edit) -> None:
        super().__init__()
        self.left, self.edit = place, edit

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.left -= 1
        if self.left != -1:
            return result
        changed = self.edit(result)
        if not any(result is value for value in args):
            return changed
        # after x.relu_() the network goes on with x itself, or with either
        if changed.shape == result.shape:
            return result.copy_(changed)
        if result._is_view():
            raise UnsupportedOperation("What a view looks at keeps its rows.")
        return result.set_(changed)


Change = Callable[[Any, Sequence[Any]], Any]
"""(what a layer gave, what it got) -> what the network goes on with."""


class _Hooked:
    """A named layer: what it gave at its calls, or a change of that."""

    def __init__(self, model: nn.Module, layer: str) -> None:
        found = submodule(model, layer)
        if found is None:
            names = [name for name, _ in model.named_modules() if name]
            raise InvalidParameter(f"The network has no layer {layer!r}{suggestion(layer, names)}")
        self.model, self.layer, self.module = model, layer, found

    def run(self, inputs: Tensor, change: Change | None = None) -> tuple[object, list[Any]]:
        """The network's outputs and all that the layer gave, which may be changed on the way."""
        kept: list[Any] = []

        def hook(module: nn.Module, got: Any, output: Any) -> Any:
            kept.append(output)
            if change is not None:
                return change(output, got)
            # a copy goes on, so that a ReLU in place behind the layer does not change what is kept
            return output.clone() if isinstance(output, Tensor) else output

        handle = self.module.register_forward_hook(hook)
        try:
            return self.model(inputs), kept
        finally:
            handle.remove()

    def edited(self, inputs: Tensor, place: int, edit: Edit) -> object:
        """The network's outputs where the layer gives something else at its call number `place`."""
        calls = 0

        def change(output: Any, got: Sequence[Any]) -> Any:
            nonlocal calls
            calls += 1
            if calls != place + 1:
                return output
            made = edit(output)
            if not (getattr(self.module, "inplace", False) and any(output is one for one in got)):
                return made
            if made.shape != output.shape:
                raise UnsupportedOperation("What a layer overwrites keeps its rows.")
            return output.copy_(made)  # the network may go on with what the layer got

        return self.run(inputs, change)[0]


def _depends_on(made: Any, source: Tensor) -> bool:
    """Whether the graph behind `made` reaches `source`: weights and side branches are no feature maps."""
    if not isinstance(made, Tensor) or made.grad_fn is None:
        return False
    goal, stack, seen = source.grad_fn, [made.grad_fn], set()
    while stack:
        node: Any = stack.pop()
        if node is None or node in seen:
            continue
        if node is goal or (goal is None and getattr(node, "variable", None) is source):
            return True
        seen.add(node)
        stack.extend(parent for parent, _ in node.next_functions)
    return False


def _found(model: nn.Module, inputs: Tensor, layer: str | None) -> tuple[Any, Tensor, int, int]:
    """Outputs, activations, the place of the call that made them and the dimension of their channels.

    Gradients must be enabled.
    """
    if inputs.ndim != 4:
        raise InvalidInput(
            f"Class activation maps need pictures (N, C, H, W), not shape {tuple(inputs.shape)}."
        )
    x = leaf(inputs)
    entry = x.clone()  # a copy: a network may work in place on its input
    watcher = _LastFeatureMap(entry)
    if layer is None:
        with watcher:
            outputs = model(entry)
        for candidate, place in reversed(watcher.found):
            if _depends_on(candidate, x) and _depends_on(outputs, candidate):
                return outputs, candidate, place, watcher.pictures.channels(candidate) or 1
        if isinstance(outputs, Tensor) and not _depends_on(outputs, x):
            raise UnsupportedOperation(UNCONNECTED)
        raise InvalidInput("The network has no feature map of more than one pixel; name a layer.")
    hooked = _Hooked(model, layer)
    if (begun := _begun(hooked, inputs)) is not None:
        return begun
    with watcher:
        outputs, kept = hooked.run(entry)
    if not kept or not isinstance(kept[-1], Tensor) or kept[-1].ndim != 4 or kept[-1].grad_fn is None:
        raise InvalidParameter(
            f"Layer {layer!r} gives no feature map (N, C, h, w) that depends on the input."
        )
    return outputs, kept[-1], len(kept) - 1, watcher.pictures.channels(kept[-1]) or 1


def _begun(hooked: _Hooked, inputs: Tensor) -> tuple[Any, Tensor, int, int] | None:
    """What `_found` gives, from a graph that begins at the layer: all that lies before it keeps nothing.

    Only of networks that run plain parts one after the other is it known that the layer depends on the input,
    and that its channels are where they were; None for others, and for layers that work on what they get.
    """
    if not apart(hooked.model, inputs.ndim):
        return None
    begun: list[Tensor] = []

    def begin(given: Any, got: Sequence[Any]) -> Tensor:
        if not isinstance(given, Tensor) or given.ndim != 4 or any(_shared(given, one) for one in got):
            raise _Unsure
        torch.set_grad_enabled(True)  # for the rest of the pass
        begun.append(given.detach().clone().requires_grad_())
        return begun[-1].clone()  # the network may overwrite it

    with suppress(_Unsure), torch.no_grad():
        outputs, _ = hooked.run(inputs.detach().clone(), begin)
        if begun:
            return outputs, begun[-1], len(begun) - 1, 1
    return None


class _Unsure(Exception):
    """It is not known that a graph that begins at a layer would say the same."""


def _shared(one: Tensor, other: Any) -> bool:
    """Whether two tensors lie in the same memory: somebody else may go on with the other."""
    storage = one.untyped_storage().data_ptr()
    return isinstance(other, Tensor) and other.untyped_storage().data_ptr() == storage


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
    with torch.enable_grad():
        outputs, activations, _, channels = _found(model, inputs, layer)
        (slopes,) = slopes_of(select(outputs, targets), [activations])
    return activations.detach().movedim(channels, 1), connected(slopes).detach().movedim(channels, 1)


def ablated_outputs(
    model: nn.Module, inputs: Tensor, targets: Tensor, layer: str | None = None, rows: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The activations ``(N, C, h, w)``, the outputs ``(N,)`` and those without each channel ``(N, C)``.

    A channel that is zero everywhere changes nothing and needs no pass of its own. What lies before the layer
    is run once for each sample, if a look at some channels shows that the network does not mind.
    """
    with torch.enable_grad():
        found, activations, place, dim = _found(model, inputs, layer)
        plain = select(found, targets).detach()
    ablation = _Ablation(model, inputs, targets, layer, place, dim, activations.shape[1:])
    activations = activations.detach().movedim(dim, 1)
    alive = (activations != 0).flatten(2).any(2)
    samples, channels = alive.nonzero(as_tuple=True)

    def outputs(limit: int, spread: bool) -> Tensor:
        result = plain[:, None].repeat(1, activations.shape[1])
        for who, which in zip(torch.split(samples, limit), torch.split(channels, limit), strict=True):
            result[who, which] = ablation.outputs(who, which, spread)
        return result

    with torch.no_grad():  # inference mode would not tell views from others
        if len(samples) > 2 * len(inputs):  # else there is little to spare
            with suppress(Exception):  # other people's code; what is wrong with it shows below
                most = rows or rows_within_budget(activations[0])
                result = with_halving(lambda limit: outputs(limit, True), most)
                if ablation.confirmed(result, plain, alive):
                    return activations, plain, result
        most = rows or rows_within_budget(inputs[0])
        return activations, plain, with_halving(lambda limit: outputs(limit, False), most)


_SAME = {torch.float64: 1e-9, torch.float32: 1e-4}
"""How far outputs may differ that are the same but for rounding, as a share of the largest."""


class _Ablation(NamedTuple):
    """A network whose layer can lose a channel.

    Attributes:
        model: the network.
        inputs: ``(N, C, H, W)``.
        targets: ``(N,)``.
        layer: a module's name, or None.
        place: the call of that module, or of the network, that makes the feature map.
        dim: where its channels are.
        shape: of one sample's feature map.
    """

    model: nn.Module
    inputs: Tensor
    targets: Tensor
    layer: str | None
    place: int
    dim: int
    shape: torch.Size

    def outputs(self, who: Tensor, which: Tensor, spread: bool = False) -> Tensor:
        """The outputs of samples `who`, in rising order, without channel `which` of each.

        With `spread` a sample passes once through what lies before the layer, whose result is repeated.
        """
        first, last = (int(who[0]), int(who[-1]) + 1) if spread else (0, 0)
        if last - first == len(who):  # as many as there are rows: nobody would notice if they were mixed up
            spread = False
        x = self.inputs[first:last].clone() if spread else self.inputs[who]  # it may be overwritten
        if spread and len(x) == 1:  # what is left over of one row would go with any number of rows
            x = x.repeat_interleave(2, 0)

        def edit(values: Tensor) -> Tensor:
            if not isinstance(values, Tensor) or values.shape != (len(x), *self.shape):
                raise UnsupportedOperation(
                    "The network calls other operations for other inputs, so no channel of it can be ablated."
                )
            values = values[who - first] if spread else values
            ablated = torch.arange(values.shape[self.dim], device=values.device) == which[:, None]
            return values.masked_fill(ablated[:, :, None, None].movedim(1, self.dim), 0)

        if self.layer is None:
            with _Edited(self.place, edit):
                made: object = self.model(x)
        else:
            made = _Hooked(self.model, self.layer).edited(x, self.place, edit)
        return select(made, self.targets[who])

    def confirmed(self, found: Tensor, plain: Tensor, alive: Tensor) -> bool:
        """Whether outputs ``(N, C)`` are right for the channel of each sample that moves its output most.

        The first one is asked about twice, so that the batch has another size.
        """
        who = torch.arange(len(found), device=found.device)
        which = ((found - plain[:, None]).abs() * alive).argmax(1)
        who, which = torch.cat([who[:1], who]), torch.cat([which[:1], which])
        right = self.outputs(who, which)
        scale = torch.maximum(right.abs().max(), plain.abs().max())
        return bool(((found[who, which] - right).abs() <= _SAME.get(right.dtype, 0.0) * scale).all())
