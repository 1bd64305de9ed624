"""The full gradient: the output of a network as a sum of what its input and each of its biases bring.

Srinivas and Fleuret, "Full-gradient representation for neural network visualization", NeurIPS 2019. A network
of linear and piecewise linear operations is f(x) = x . df/dx + sum_b b . df/db. A curved operation y = g(x)
adds the implicit bias g(x) - g'(x) x (section 3 of the paper), so that the sum is exact for it too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from verax.engine.gradients import connected, select, slopes_of
from verax.engine.linear import batch_norm_affine, constant_like
from verax.engine.mode import Engine, forward, on_path
from verax.engine.operations import CATEGORIES, Operation
from verax.engine.pictures import Pictures
from verax.errors import UnsupportedOperation

_WITHOUT = frozenset({"relu", "leaky_relu", "prelu", "neg", "abs"})
"""Functions with g(x) = g'(x) x everywhere."""


class Biases(Engine):
    """The gradient, with a note of every bias that the network adds, however it is spelled.

    A call that only moves values may bring in constants (padding, ``where``, item assignment): what it gives
    for zeros is a bias, too.
    """

    categories = CATEGORIES | {"rdiv": "mul"}

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[tuple[Tensor, Tensor, int | None]] = []  # zero, bias, dimension of the channels
        self.pictures = Pictures()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Answer one call of the network, and see whether a picture came out of it."""
        result = super().__torch_function__(func, types, args, kwargs)
        self.pictures.follow(func, args, kwargs or {}, result)
        return result

    def begin(self, entry: Tensor) -> None:
        """The input is a picture where it has four dimensions."""
        if entry.ndim == 4:
            self.pictures.add(entry)

    def note(self, operation: Operation, value: Tensor, bias: Tensor, in_place: bool = False) -> Tensor:
        """The value itself, behind a zero whose gradient is that of the bias at every place."""
        zero = torch.zeros_like(value).requires_grad_()
        channels = self.pictures.makes(operation.function, operation.args, operation.kwargs, value.shape)
        self.notes.append((zero, bias.detach(), channels))
        return value.add_(zero) if in_place else value + zero

    def routing(self, operation: Operation) -> Any:
        """What comes out where nothing but zeros goes in."""
        empty = replace(operation)
        empty.args, empty.kwargs = tree_map(
            lambda v: torch.zeros_like(v) if on_path(v) else v, (operation.args, operation.kwargs)
        )
        with torch.no_grad():
            constant = empty.run()
        constant = empty.args[0] if constant is None else constant  # item assignment gives nothing
        value = self.native(operation)
        if not isinstance(constant, Tensor) or not constant.is_floating_point() or not bool(constant.any()):
            return value
        made = operation.args[0] if value is None else value
        noted = self.note(operation, made, constant, operation.in_place)
        return value if operation.in_place else noted

    def softmax(self, operation: Operation) -> Tensor:
        """The implicit bias of a curved function of many numbers: g(x) - J x."""
        value: Tensor = self.native(operation)
        point = operation.args[0].detach()
        with torch.no_grad():
            straight = torch.func.jvp(operation, (point,), (point,))[1]
        return self.note(operation, value, value.detach() - straight)

    layernorm = softmax

    def linear(self, operation: Operation) -> Tensor:
        """The bias of a convolution or a dense layer."""
        value = super().linear(operation)
        bias = (*operation.args, None)[2]
        if bias is None:
            return value
        dims = 0 if operation.name == "linear" else operation.args[1].dim() - 2
        return self.note(operation, value, bias.reshape(-1, *[1] * dims))

    def norm(self, operation: Operation) -> Tensor:
        """The shift of a batch normalisation in eval mode."""
        return self.note(operation, super().norm(operation), batch_norm_affine(operation)[1])

    def add(self, operation: Operation) -> Tensor:
        """A constant summand."""
        value: Tensor = self.native(operation)
        (a, b), alpha = operation.args[:2], operation.kwargs.get("alpha", 1)
        if on_path(a) and on_path(b):
            return value
        of_a, of_b = {"add": (1, alpha), "sub": (1, -alpha), "rsub": (-alpha, 1)}[operation.name]
        constant, factor = (b, of_b) if on_path(a) else (a, of_a)
        known = constant_like(constant, value)
        return self.note(operation, value, factor * known)

    def activation(self, operation: Operation) -> Tensor:
        """The implicit bias of a nonlinearity."""
        value: Tensor = self.native(operation)
        if operation.name in _WITHOUT:
            return value
        with torch.enable_grad():
            leaf = operation.args[0].detach().requires_grad_()
            (slope,) = torch.autograd.grad(operation(leaf).sum(), leaf)
        implicit = value.detach() - slope * leaf.detach()
        return self.note(operation, value, implicit) if bool(implicit.any()) else value

    elementwise = activation

    def matmul(self, operation: Operation) -> Tensor:
        """A product of two paths counts itself twice."""
        value: Tensor = self.native(operation)
        factors = operation.factors()
        both = factors is not None and all(map(on_path, factors[:2]))
        return self.note(operation, value, -value) if both else value

    def mul(self, operation: Operation) -> Tensor:
        """A product of two paths counts itself twice, a quotient not at all or against itself."""
        value: Tensor = self.native(operation)
        a, b = map(on_path, operation.args[:2] if operation.name != "rdiv" else operation.args[1::-1])
        if operation.name != "mul" and b:
            return self.note(operation, value, value if a else 2 * value)
        return self.note(operation, value, -value) if a and b else value


def full_gradient(model: nn.Module, inputs: Tensor, targets: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
    """What the input and each bias bring to the explained output.

    Returns:
        The input's part (shape of `inputs`), the parts of the biases in the order of the forward pass (each
        of the shape of the value that it was added to, channels first; flat where four dimensions are no
        picture, as those of attention weights are not), and the outputs ``(N,)`` that these add up to.
    """
    engine = Biases()
    leaf, out = forward(engine, model, inputs)
    with torch.enable_grad():
        chosen = select(out, targets)
    zeros = [zero for zero, _, _ in engine.notes]
    slope, *slopes = slopes_of(chosen, [leaf, *zeros])
    engine.release()
    own = inputs * connected(slope)
    parts = []
    for (zero, bias, channels), g in zip(engine.notes, slopes, strict=True):
        part = torch.zeros_like(zero) if g is None else g * bias
        if part.ndim == 4:
            part = part.flatten(1) if channels is None else part.movedim(channels, 1)
        parts.append(part)
    _check_sum(own, parts, chosen.detach())
    return own, parts, chosen.detach()


def _check_sum(own: Tensor, parts: list[Tensor], output: Tensor) -> None:
    """Refuse when the parts do not add up to the output: a bias came in by a way that is not known.

    A bias without a dimension for samples is shared by all of them, so sums are taken over the batch.
    """
    total = sum((part.double().sum() for part in parts), own.double().sum())
    size = sum((part.double().abs().sum() for part in parts), own.double().abs().sum() + output.abs().sum())
    tolerance = {torch.float64: 1e-6, torch.float32: 1e-2}.get(own.dtype, 0.2)
    # an undefined sum compares false and passes: it is a result, to be counted by whoever scores it
    if bool((total - output.double().sum()).abs() > tolerance * size):
        raise UnsupportedOperation("The parts of the input and of the biases do not add up to the output.")
