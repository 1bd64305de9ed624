"""Transposes of convolutions: what carries gradients and multipliers back through them.

Those of cuDNN that always give the same bits are slow where a kernel takes strides (a Fourier transform, or
a gather of its own), and those of oneDNN where there are few channels. Here they are made of what is fast on
each device: forward convolutions and matrix products. All are the same sums in another order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from verax.engine import kernels, spots
from verax.engine.operations import Operation

_SPATIAL = {"conv1d": 1, "conv2d": 2, "conv3d": 3}
_OPTIONS = {"bias": None, "stride": 1, "padding": 0, "dilation": 1, "groups": 1}
_FEW, _MANY = 4, 128
"""Channels of a picture, and those that fill a GPU's tiles."""

_SMALL = 3
"""Side of a kernel whose windows are summed quickly."""

_WORTH = 2**22
"""Numbers of a pass on a GPU from which it waits for arithmetic rather than for launches."""

_WORTH_ON_CPU = 2**17
"""Numbers of a pass on a CPU: ten pictures of 64 x 64."""


@dataclass(frozen=True)
class Convolution:
    """A convolution as its transpose needs to know it.

    Attributes:
        weight: ``(channels out, channels in / groups, ...)``.
        shape: of its input.
        stride: in each dimension.
        padding: on both sides of each dimension.
        dilation: in each dimension.
        groups: of channels.
    """

    weight: Tensor
    shape: torch.Size
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @classmethod
    def of(cls, operation: Operation) -> Convolution | None:
        """That of a call; None for other calls, samples without a batch, and padding by name."""
        spatial, x = _SPATIAL.get(operation.name), operation.args[0]
        if spatial is None or x.dim() != spatial + 2:
            return None
        told = zip(_OPTIONS, operation.args[2:], strict=False)
        given: dict[str, Any] = {**_OPTIONS, **dict(told), **operation.kwargs}
        weight = given.get("weight", operation.args[1] if len(operation.args) > 1 else None)
        if isinstance(given["padding"], str) or not isinstance(weight, Tensor):
            return None

        def each(name: str) -> tuple[int, ...]:
            value = given[name]
            several = [value] if isinstance(value, int) else list(value)
            return tuple(several * spatial if len(several) == 1 else several)

        return cls(
            weight.detach(), x.shape, each("stride"), each("padding"), each("dilation"), given["groups"]
        )

    @property
    def padded(self) -> list[int]:
        """The size of the input with its padding."""
        return [side + 2 * margin for side, margin in zip(self.shape[2:], self.padding, strict=True)]

    def cropped(self, whole: Tensor) -> Tensor:
        """Without the padding."""
        (top, left), (high, wide) = self.padding, self.padded
        return whole[:, :, top : high - top, left : wide - left]


Transpose = Callable[[Convolution, Tensor], Tensor]


def natively(call: Convolution, g: Tensor) -> Tensor:
    """As PyTorch does it."""
    like = g.new_empty(1).expand(call.shape)  # its shape is all that the transpose needs to know
    spatial = len(call.stride)
    weight = call.weight
    if spatial == 2 and not g.is_cuda:  # half the time of the other layout
        weight = weight.contiguous(memory_format=torch.channels_last)
    options = (None, call.stride, call.padding, call.dilation, False, [0] * spatial, call.groups)
    back = torch.ops.aten.convolution_backward
    found: Tensor = back(g, like, weight, *options, [True, False, False])[0]
    return found


def by_windows(call: Convolution, g: Tensor) -> Tensor:
    """A matrix product, and the sum of its windows where they overlap."""
    (high, wide), (rows, columns) = call.weight.shape[2:], g.shape[2:]
    parts = call.weight.flatten(1).t() @ g.flatten(2)
    parts = parts.view(len(g), call.weight.shape[1], high, wide, rows, columns)
    whole = g.new_zeros(len(g), parts.shape[1], *call.padded)
    for i, j in itertools.product(range(high), range(wide)):
        top, left = i * call.dilation[0], j * call.dilation[1]
        down, across = top + call.stride[0] * (rows - 1) + 1, left + call.stride[1] * (columns - 1) + 1
        whole[:, :, top : down : call.stride[0], left : across : call.stride[1]] += parts[:, :, i, j]
    return call.cropped(whole)


def by_phases(call: Convolution, g: Tensor) -> Tensor:
    """A convolution forward, without a stride, for each place between two steps.

    Places that lie a stride apart are reached by the same taps of the kernel and by no others.
    """
    whole = g.new_zeros(len(g), call.weight.shape[1], *call.padded)
    (down, across), (high, wide) = call.stride, call.weight.shape[2:]
    for i, j in itertools.product(range(min(down, high)), range(min(across, wide))):
        taps = call.weight[:, :, i::down, j::across].transpose(0, 1).flip(2, 3)
        found = F.conv2d(g, taps, padding=(taps.shape[2] - 1, taps.shape[3] - 1))
        places = whole[:, :, i::down, j::across]
        rows, columns = (min(*sides) for sides in zip(places.shape[2:], found.shape[2:], strict=True))
        places[:, :, :rows, :columns] = found[:, :, :rows, :columns]
    return call.cropped(whole)


def at_once(call: Convolution, g: Tensor) -> Tensor:
    """All phases as the channels of one convolution, whose kernels have the same size by zeros."""
    (down, across), (high, wide) = call.stride, call.weight.shape[2:]
    rows, columns = -(-high // down), -(-wide // across)
    full = F.pad(call.weight, (0, columns * across - wide, 0, rows * down - high))
    outs, ins = full.shape[:2]
    taps = full.reshape(outs, ins, rows, down, columns, across).permute(1, 3, 5, 0, 2, 4).flip(4, 5)
    found = F.conv2d(g, taps.reshape(-1, outs, rows, columns), padding=(rows - 1, columns - 1))
    found = found.reshape(len(g), ins, down, across, *found.shape[2:]).permute(0, 1, 4, 2, 5, 3)
    whole = found.reshape(len(g), ins, found.shape[2] * down, found.shape[4] * across)
    missing = [max(0, side - there) for side, there in zip(call.padded, whole.shape[2:], strict=True)]
    if any(missing):  # the last rows and columns that no step reaches
        whole = F.pad(whole, (0, missing[1], 0, missing[0]))
    return call.cropped(whole)


def in_steps_of_one(call: Convolution, g: Tensor) -> Tensor:
    """In the quickest spelling of a convolution without a stride."""
    weight, padding = kernels.turned(call.weight, call.padding)
    spelling = kernels.spelling(weight.shape, padding, g.shape[2:]) or kernels.directly
    return spelling(g, weight, padding)


def quick(call: Convolution, cuda: bool) -> Transpose | None:
    """What is faster than PyTorch's own transpose, by the kernel alone; None where nothing is.

    Measured for the convolutions of the paper's CNNs, ResNet-18 and vision transformers on an H200 (a
    seventh of the time for the first layer of the CNN, half for those with many channels) and on a CPU.
    What has no stride is in `verax.engine.kernels`.
    """
    if len(call.stride) != 2 or call.groups != 1 or max(call.dilation) > 1:
        return None
    channels, size = call.weight.shape[1], max(call.weight.shape[2:])
    if max(call.stride) == 1:
        if not cuda:
            return None
        if 1 < size <= _SMALL and channels <= _FEW:
            return by_windows
        spelling = kernels.spelling(*kernels.around(call.weight.shape, call.padding), call.shape[2:])
        if spelling is None:
            return None
        return natively if spelling is kernels.in_reverse else in_steps_of_one  # turned twice, it is itself
    if size <= min(call.stride) and channels <= _FEW:  # patches
        return at_once
    if not cuda:
        return by_windows if channels <= _FEW else None
    if channels >= _MANY and size > 1:
        return by_phases
    return by_windows if size <= _SMALL else None  # cuDNN's own: a Fourier transform, if there are many rows


def transpose(call: Convolution, cuda: bool, wanted: Tensor | None = None) -> Callable[[Tensor], Tensor]:
    """The transpose of a convolution, computed at least where it is wanted."""
    chosen = _sparing(call, wanted) or quick(call, cuda) or natively
    return lambda g: chosen(call, g)


def _sparing(call: Convolution, wanted: Tensor | None) -> Transpose | None:
    """A transpose for the few places that are wanted; None where they are many, or it is not known."""
    if wanted is None or not spots.plain(call) or spots.few(wanted, call.weight.shape[1]) is None:
        return None
    some = spots.transpose_at(wanted)

    def back(call: Convolution, g: Tensor) -> Tensor:
        # Zero times an infinite gradient is undefined, and stays so.
        return (some if bool((g.sum() + call.weight.sum()).isfinite()) else natively)(call, g)

    return back


def passed(operation: Operation, made: Tensor) -> Tensor:
    """The output of a call, marked with where its gradients are wanted by where those of the input are."""
    wanted = spots.marked(operation.args[0])
    if wanted is None or operation.name in spots.POINTWISE:
        return spots.mark(made, wanted)
    call = Convolution.of(operation)
    if call is None or not spots.plain(call) or wanted.shape[0] != call.shape[0]:
        return made
    return spots.mark(made, spots.reached(call, wanted))


class Inside(RuntimeError):
    """A network takes derivatives itself, or looks at them: they must be there for weights and everywhere."""


_DERIVING = (torch.autograd.grad, torch.Tensor.backward)
_LOOKING = (Tensor.register_hook, Tensor.retain_grad, cast("Any", Tensor).grad_fn.__get__)
"""Calls by which a network gets hold of the gradient of a tensor, to keep it or to change it."""


class _Linear(torch.autograd.Function):
    """A convolution, and its transpose as given; nothing of the input is kept."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, run: Callable[[Tensor], Tensor], back: Transpose, call: Convolution
    ) -> Tensor:
        ctx.back, ctx.call = back, call
        ctx.version = None if call.weight.is_inference() else call.weight._version
        return run(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        if ctx.version is not None and ctx.call.weight._version != ctx.version:
            raise RuntimeError("A kernel was overwritten after the pass forward.")  # as PyTorch itself would
        return ctx.back(ctx.call, g), None, None, None


class QuickTransposes(TorchFunctionMode):
    """Gradients with respect to inputs, and to nothing else, through the quick transposes."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Answer one call of the network."""
        kwargs = kwargs or {}
        if func in _DERIVING and not _transformed():
            raise Inside("The network takes derivatives itself.")
        if func in _LOOKING and spots.marked(args[0]) is not None:
            raise Inside("The network looks at gradients of its own.")
        name = getattr(func, "__name__", "").strip("_")
        if (name != "conv2d" and name not in spots.POINTWISE) or not _plain(args):
            return func(*args, **kwargs)
        x, operation = args[0], Operation.parse(func, args, kwargs)
        made = any(
            t.grad_fn is not None for t in tree_leaves((operation.args[1:], kwargs)) if isinstance(t, Tensor)
        )
        if made:  # a kernel or a limit that is made by the network may follow the input
            return func(*args, **kwargs)
        if name != "conv2d":
            wanted = spots.marked(x)
            return spots.mark(func(*args, **kwargs), wanted)
        call = Convolution.of(operation)
        back = None if call is None else _sparing(call, spots.marked(x)) or quick(call, x.is_cuda)
        if call is None or back is None:
            return passed(operation, func(*args, **kwargs))
        run = ahead(operation, call, x.is_cuda)
        return passed(operation, _Linear.apply(x, run, back, call))  # type: ignore[no-untyped-call]


def ahead(operation: Operation, call: Convolution, cuda: bool) -> Callable[[Tensor], Tensor]:
    """The convolution itself, in its quickest spelling on a GPU."""
    plain = call.groups == 1 and len(call.stride) == 2 and {*call.stride, *call.dilation} == {1}
    spelling = None
    if cuda and plain:
        spelling = kernels.forward(call.weight.shape, call.padding, call.shape[2:])
    if spelling is None:
        return operation
    bias = operation.kwargs.get("bias", (*operation.args, None, None)[2])

    def run(x: Tensor) -> Tensor:
        made = spelling(x, call.weight, call.padding)
        return made if bias is None else made.add_(bias.detach()[:, None, None])

    return run


def _plain(args: tuple[Any, ...]) -> bool:
    """Whether a call is on the way from the input, and nothing is in force that computes otherwise."""
    x = args[0] if args else None
    return (
        isinstance(x, Tensor)
        and x.requires_grad
        and torch.is_grad_enabled()
        and x.dtype in (torch.float32, torch.float64)
        and not torch.is_autocast_enabled(x.device.type)
        and not _transformed()
        and not _counted()
    )


def _transformed() -> bool:
    """Whether `torch.func` is in force, which sees no function of autograd of our own."""
    return torch._C._functorch.maybe_current_level() is not None


def _counted() -> bool:
    """Whether somebody counts what autograd keeps: checkpointing does, and counts again when it runs again.

    Quick transposes keep nothing, so that it would take one tensor for another.
    """
    return torch._C._autograd._top_saved_tensors_default_hooks(False) is not None


def compiled(model: nn.Module) -> bool:
    """Whether a network or a part of it is compiled, by `torch.compile` or in place by `Module.compile`."""
    return any(
        type(module).__name__ == "OptimizedModule" or module._compiled_call_impl is not None
        for module in model.modules()
    )


def worth(inputs: Tensor) -> bool:
    """Whether a pass has so many numbers that a quick transpose brings more than its call costs."""
    return inputs.ndim == 4 and inputs.numel() >= (_WORTH if inputs.is_cuda else _WORTH_ON_CPU)


def layer(operation: Operation) -> Callable[[Tensor, Tensor, Tensor | None], Tensor]:
    """The call of a layer as a function of input, weight and bias, with a quick transpose where there is one.

    Gradients are for the input alone.
    """
    x, rest, options = operation.args[0], operation.args[3:], operation.kwargs
    call = Convolution.of(operation) if worth(x) and not _counted() else None
    back = None if call is None else quick(call, x.is_cuda)

    def run(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        result: Tensor = operation.function(x, weight, bias, *rest, **options)
        return result

    if call is None or back is None:
        return run

    def swift(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        own = replace(call, weight=weight.detach())
        made: Tensor = _Linear.apply(x, lambda x: run(x, weight, bias), back, own)  # type: ignore[no-untyped-call]
        return made

    return swift


def quickly(model: nn.Module, inputs: Tensor) -> AbstractContextManager[Any]:
    """A context for a pass forward after which gradients come back faster, where that is worth it.

    For small passes, calls cost more than they bring. A compiled network is left alone.
    """
    if not worth(inputs):
        return nullcontext()
    return nullcontext() if compiled(model) else QuickTransposes()
