"""Linear calls: convolutions, dense layers and what behaves like them, with everything that a rule needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from verax.engine import convolutions
from verax.engine.operations import Operation
from verax.errors import UnsupportedOperation

COPIED = "verax copied"
"""Key in a node's metadata: the node whose value an in-place call wrote here."""


def stabilise(z: Tensor, eps: float) -> Tensor:
    """Move denominators away from zero: by `eps` in their own direction, or (eps = 0) zeros alone to one."""
    return z + torch.copysign(z.new_full((), eps), z) if eps else z + (z == 0)


def constant_like(value: object, like: Tensor) -> Tensor:
    """A number or a tensor in the precision and on the device of another.

    A number is made there: on its way from the CPU a GPU would be waited for.
    """
    if isinstance(value, int | float):
        most = torch.finfo(like.dtype).max
        return like.new_full((), value if not abs(value) > most else math.copysign(math.inf, value))
    return torch.as_tensor(value, dtype=like.dtype, device=like.device)


@dataclass(frozen=True)
class LinearCall:
    """z = function(x, weight) + bias, kept with a private graph so that its adjoint needs no second forward.

    Attributes:
        kind: conv, dense, pool or norm.
        function: the call without bias.
        source: x as the network knows it.
        version: the version of `source` at the call; a later in-place change is noticed by it.
        x: detached leaf of the private graph.
        z: output in the private graph, bias included.
        weight: None for pooling.
        bias: broadcastable to z.
        out_dim: the dimension of `weight` that indexes outputs; None: scales cannot be merged.
        first: no conv or dense call lies between the input and this one.
    """

    kind: str
    function: Callable[[Tensor, Any], Tensor]
    source: Tensor
    version: int
    x: Tensor
    z: Tensor
    weight: Any
    bias: Tensor | None
    out_dim: int | None
    first: bool

    @property
    def value(self) -> Tensor:
        """The input of the call; raises when the network has overwritten it since."""
        if self.x._version != self.version:
            raise UnsupportedOperation(
                "The network overwrites the input of a linear layer in place; clone it in the network first."
            )
        return self.x.detach()

    def adjoint(self, s: Tensor) -> Tensor:
        """The transposed call."""
        return torch.autograd.grad(self.z, self.x, s, retain_graph=True)[0]

    def transport(
        self, relevance: Tensor, parts: Sequence[tuple[Tensor, Any]], bias: Tensor | None, eps: float
    ) -> Tensor:
        """The one primitive of layer-wise relevance propagation.

        For parts (x_k, w_k): z' = sum_k function(x_k, w_k) + bias, and the input receives
        sum_k x_k * function_k^T(R / z').
        """
        leaves = [x.detach().requires_grad_() for x, _ in parts]
        with torch.enable_grad():
            pieces = [self.function(leaf, w) for leaf, (_, w) in zip(leaves, parts, strict=True)]
            z = torch.stack(pieces).sum(0) if len(pieces) > 1 else pieces[0]
        denominator = z.detach() if bias is None else z.detach() + bias
        slopes = torch.autograd.grad(z, leaves, relevance / stabilise(denominator, eps))
        total = leaves[0].detach() * slopes[0]
        for leaf, slope in zip(leaves[1:], slopes[1:], strict=True):
            total = total + leaf.detach() * slope
        return total

    def affine(self, scale: Tensor | None, shift: Tensor) -> LinearCall:
        """The call with scale * z + shift merged in (batch normalisation, or a constant added behind it)."""
        weight, bias, z = self.weight, self.bias, self.z
        with torch.enable_grad():
            if scale is not None:
                assert self.out_dim is not None
                place = self.out_dim % weight.dim()
                weight = weight * scale.reshape([-1 if d == place else 1 for d in range(weight.dim())])
                z, bias = z * scale, None if bias is None else bias * scale
            return replace(self, weight=weight, bias=shift if bias is None else bias + shift, z=z + shift)


def record(
    kind: str,
    source: Tensor,
    native: Callable[[Tensor], Tensor],
    function: Callable[[Tensor, Any], Tensor],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    out_dim: int | None = None,
) -> LinearCall:
    """Run a linear call in a private graph."""
    x = source.detach().requires_grad_()
    with torch.enable_grad():
        z = native(x)
    first = not after_linear(source)
    return LinearCall(kind, function, source, source._version, x, z, weight, bias, out_dim, first)


def layer_call(operation: Operation) -> LinearCall:
    """A convolution or a dense layer."""
    source, w, b = (*operation.args, None)[:3]
    weight, bias = w.detach(), None if b is None else b.detach()
    dense, run = operation.name == "linear", convolutions.layer(operation)
    return record(
        "dense" if dense else "conv",
        source,
        lambda x: run(x, weight, bias),
        lambda x, w: run(x, w, None),
        weight,
        bias if bias is None or dense else bias.reshape(-1, *[1] * (weight.dim() - 2)),
        None if "transpose" in operation.name else 0,
    )


def matmul_call(operation: Operation) -> LinearCall:
    """A product of which one factor is constant."""
    factors = operation.factors()
    assert factors is not None
    a, b, function = factors
    if a.grad_fn is not None:
        fixed = b.detach()
        out_dim = -1 if b.dim() == 2 and operation.name != "einsum" else None
        return record("dense", a, lambda x: function(x, fixed), function, fixed, None, out_dim)
    fixed = a.detach()
    return record("dense", b, lambda x: function(fixed, x), lambda x, w: function(w, x), fixed)


def factor_adjoints(
    function: Callable[[Tensor, Tensor], Tensor], a: Tensor, b: Tensor, s: Tensor
) -> tuple[Tensor, Tensor]:
    """The transposes of a bilinear call: of function(., b) and of function(a, .), both applied to s."""
    left, right = a.detach().requires_grad_(), b.detach().requires_grad_()
    with torch.enable_grad():
        y = function(left, right)
    slope_a, slope_b = torch.autograd.grad(y, (left, right), s)
    return slope_a, slope_b


def call_of(x: Tensor) -> Any:
    """What made x, where a rule kept it: a linear call or a sum; ``y += x`` is seen as ``y + x``."""
    node: Any = x.grad_fn
    node = node.metadata.get(COPIED, node) if node is not None else None
    return getattr(node, "call", None)


def after_linear(x: Tensor) -> bool:
    """Whether a conv or dense call lies between the input and x (walks the graph to the first one)."""
    stack, seen = [x.grad_fn], set()
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if getattr(getattr(node, "call", None), "kind", "") in ("conv", "dense"):
            return True
        stack.extend(parent for parent, _ in node.next_functions)
    return False


def merged(x: Tensor, scale: Tensor | None, shift: Tensor) -> LinearCall | None:
    """The linear call that made x with scale * x + shift folded in, where that is possible."""
    call = call_of(x)
    if not isinstance(call, LinearCall) or call.kind not in ("conv", "dense"):
        return None
    if call.source._version != call.version:
        return None
    if (call.z + shift).shape != call.z.shape:  # a constant that enlarges x
        return None
    if scale is not None and (call.out_dim is None or (call.kind == "dense" and x.dim() != 2)):
        return None
    return call.affine(scale, shift)


def batch_norm_affine(operation: Operation) -> tuple[Tensor, Tensor]:
    """Scale and shift of a batch normalisation in eval mode, shaped like its input."""
    names = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
    usual = {"weight": None, "bias": None, "training": False, "eps": 1e-5}
    given = {**usual, **dict(zip(names, operation.args, strict=False)), **operation.kwargs}
    if given["training"]:
        raise UnsupportedOperation("Batch normalisation in training mode mixes samples; call model.eval().")
    scale = (given["running_var"] + given["eps"]).rsqrt()
    scale = scale if given["weight"] is None else scale * given["weight"]
    shift = (0 if given["bias"] is None else given["bias"]) - given["running_mean"] * scale
    shape = (-1, *[1] * (operation.args[0].dim() - 2))
    return scale.detach().reshape(shape), shift.detach().reshape(shape)
