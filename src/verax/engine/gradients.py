"""Gradients of one output with respect to the input, for many points at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from verax.engine import spots
from verax.engine.batching import accumulate, rows_within_budget
from verax.engine.convolutions import quickly
from verax.engine.layouts import fastest, keep_usual
from verax.errors import InvalidInput, UnsupportedOperation, VeraxError

UNCONNECTED = (
    "The explained output has no gradient with respect to the input: the network cuts the way between them "
    "(detach, torch.no_grad, NumPy) or ignores its input; methods that only run it, such as occlusion, work."
)


_EXPECTED: ContextVar[int | None] = ContextVar("outputs that a network is known to have", default=None)


class OtherOutputs(InvalidInput):
    """A network gives something else than it did when it was asked."""


@contextmanager
def expecting(outputs: int | None) -> Iterator[None]:
    """Refuse a network that has come to have another number of outputs than targets were checked against.

    A GPU does not survive a target that is not there, and would have to be waited for to look at targets.
    """
    token = _EXPECTED.set(outputs)
    try:
        yield
    finally:
        _EXPECTED.reset(token)


def select(outputs: object, targets: Tensor) -> Tensor:
    """The explained output of each sample: ``(N,)``; a model with one output has nothing to choose."""
    if not isinstance(outputs, Tensor) or outputs.ndim not in (1, 2) or len(outputs) != len(targets):
        what = f"shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else type(outputs).__name__
        raise OtherOutputs(f"A network must give a tensor (samples, outputs), not {what}.")
    if outputs.ndim == 1:
        return outputs
    if _EXPECTED.get() not in (None, outputs.shape[1]):
        raise OtherOutputs(f"The network had {_EXPECTED.get()} outputs, and now has {outputs.shape[1]}.")
    return outputs.gather(1, targets[:, None])[:, 0]


def leaf(inputs: Tensor, layout: torch.memory_format = torch.contiguous_format) -> Tensor:
    """A private copy of the inputs that gradients can be taken for."""
    return inputs.detach().clone(memory_format=layout).requires_grad_()


def slopes_of(chosen: Tensor, sources: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    """The gradient of the sum of `chosen` for each source; None where autograd knows of no way to it."""
    if chosen.grad_fn is None:
        return (None,) * len(sources)
    return torch.autograd.grad(chosen.sum(), sources, allow_unused=True)


def connected(slope: Tensor | None) -> Tensor:
    """A gradient that exists, be it zero; a network that hides its input from autograd is refused.

    Zeros in the place of a gradient that does not exist would look like an explanation.
    """
    if slope is None:
        raise UnsupportedOperation(UNCONNECTED)
    return slope


def gradient(model: nn.Module, inputs: Tensor, targets: Tensor, wanted: Tensor | None = None) -> Tensor:
    """The gradient of each sample's explained output: shape of `inputs`; the weights' grads are untouched.

    Args:
        model: the network.
        inputs: ``(N, ...)``.
        targets: ``(N,)``.
        wanted: the pixels ``(N, H, W)`` outside of which it may be anything (see `verax.engine.spots`).
    """
    passing, layout = quickly(model, inputs), fastest(model, inputs)
    other = layout is not torch.contiguous_format
    try:
        return _gradient(model, inputs, targets, passing, layout, wanted)
    except (VeraxError, torch.OutOfMemoryError):
        raise
    except RuntimeError:
        if not other and isinstance(passing, nullcontext):
            raise
    # a network that has changed since it was asked, or takes derivatives itself
    slope = _gradient(model, inputs, targets, nullcontext(), torch.contiguous_format)
    if other:
        keep_usual(model, inputs)
    return slope


def _gradient(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    passing: AbstractContextManager[Any],
    layout: torch.memory_format,
    wanted: Tensor | None = None,
) -> Tensor:
    with torch.enable_grad():
        point = leaf(inputs) if inputs.is_inference() else inputs.detach().requires_grad_()
        # a copy: a network may work in place on its input
        entry = spots.mark(point.clone(memory_format=layout), wanted)
        with passing:
            chosen = select(model(entry), targets)
        (slope,) = slopes_of(chosen, [point])
    if slope is None and _still(model, inputs, targets, chosen.detach()):
        return torch.zeros_like(inputs)
    return connected(slope).detach().contiguous()


def _still(model: nn.Module, inputs: Tensor, targets: Tensor, before: Tensor) -> bool:
    """Whether the explained outputs stay as they are when every input moves a little.

    Then there is no way to the input because there is nothing to pass on: a gate that no sample of the batch
    opens. A network that hides its input from autograd still follows it.
    """
    way = torch.arange(inputs.numel(), device=inputs.device).reshape(inputs.shape) % 2 * 2 - 1
    moved = inputs.detach() + 0.01 * (1 + inputs.detach().abs()) * way
    with torch.no_grad():
        return torch.equal(select(model(moved), targets), before)


Points = Callable[[slice, slice], Tensor]
"""(samples, points) -> the points ``(n, k, ...)`` at which gradients are wanted."""


def gradients_at(model: nn.Module, points: Tensor, targets: Tensor, wanted: Tensor | None = None) -> Tensor:
    """The gradients at several points ``(n, k, ...)`` of each sample: shape of `points`."""
    many = points.shape[1]
    places = None if wanted is None else wanted.repeat_interleave(many, 0)
    slopes = gradient(model, points.flatten(0, 1), targets.repeat_interleave(many), places)
    return slopes.reshape(points.shape)


def mean_gradient(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    points: Points,
    weights: Tensor,
    rows: int | None = None,
    wanted: Tensor | None = None,
) -> Tensor:
    """The weighted sum of gradients over several points of each sample, in passes of about `rows` rows.

    Outside of the pixels that are `wanted` it may be anything.
    """
    shares = weights.to(inputs, non_blocking=True).reshape(1, -1, *[1] * (inputs.ndim - 1))

    def visit(some: slice, part: slice) -> Tensor:
        places = None if wanted is None else wanted[some]
        slopes = gradients_at(model, points(some, part), targets[some], places)
        return (slopes * shares[:, part]).sum(1)

    return accumulate(inputs, len(weights), visit, rows or rows_within_budget(inputs[0]))
