"""Rule tables that propagate relevance: the LRP family and Deep Taylor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from verax.engine.linear import (
    LinearCall,
    after_linear,
    batch_norm_affine,
    constant_like,
    layer_call,
    matmul_call,
    merged,
    record,
    stabilise,
)
from verax.engine.mode import Engine, apply_rule, attach, on_path, total
from verax.engine.operations import Operation
from verax.engine.rules import Rule, alike, alpha_beta, epsilon, w_square, z_box


@dataclass(frozen=True)
class Composite:
    """Which rule each linear call gets, by its position.

    Attributes:
        conv: for convolutions.
        dense: for dense layers.
        first: for the first conv or dense calls behind the input.
        pool: for average pooling, means and sums.
        eps: stabiliser of residual adds and of batch normalisation that cannot be merged.
        batch_norm: "merge" into the layer before (else the epsilon rule), "merge or pass" relevance unchanged
            where that is not possible, or "pass" always.
    """

    conv: Rule
    dense: Rule
    first: Rule | None = None
    pool: Rule = field(default_factory=epsilon)
    eps: float = 1e-6
    batch_norm: Literal["merge", "merge or pass", "pass"] = "merge"

    def apply(self, call: LinearCall) -> Tensor:
        """The output of a call with the rule of its position."""
        usual = self.conv if call.kind == "conv" else self.dense
        return apply_rule(call, self.first if call.first and self.first is not None else usual)


def deep_taylor(low: float | None = 0.0, high: float | None = 1.0) -> Composite:
    """Deep Taylor: z+ without bias; at the input z^B within bounds, or w-squared without them.

    Sums and means share by what each unit is, which is their expansion at zero (Montavon et al., 2017).
    """
    plus = alpha_beta(1, 0, eps=0, bias="none")
    first = w_square(eps=0) if low is None or high is None else z_box(low, high, eps=0)
    return Composite(conv=plus, dense=plus, first=first, pool=alike(), batch_norm="merge or pass")


_GATE = "verax gate"


class LRP(Engine):
    """Layer-wise relevance propagation with the rules of a `Composite`.

    A product of a signal and a gate (what a sigmoid gave: squeeze-and-excitation, SiLU written out) hands
    all relevance to the signal (Arras et al., WASSA 2017). Other products of two paths are refused.
    """

    hints: ClassVar[dict[str, str]] = dict.fromkeys(
        (
            "softmax",
            "layer_norm",
            "rms_norm",
            "group_norm",
            "instance_norm",
            "matmul",
            "bmm",
            "einsum",
            "mul",
            "div",
            "norm",
            "linalg_norm",
            "linalg_vector_norm",
            "normalize",
        ),
        "; attn-lrp and cp-lrp have one",
    )

    def __init__(self, composite: Composite) -> None:
        super().__init__()
        self.composite = composite

    def activation(self, operation: Operation) -> Tensor:
        """Relevance passes nonlinearities unchanged."""
        x = operation.args[0]
        y = attach(operation(x.detach()), lambda r: (r,), x, spare=True)
        if operation.name in ("sigmoid", "hardsigmoid") and on_path(y):
            _metadata(y)[_GATE] = True
        return y

    def routing(self, operation: Operation) -> Any:
        """Moved values keep their relevance, and gates stay gates."""
        result = self.native(operation)
        used = operation.args[:1] if operation.name.endswith("_as") else (operation.args, operation.kwargs)
        path = [t for t in tree_leaves(used) if on_path(t)]
        if isinstance(result, Tensor) and on_path(result) and all(map(is_gate, path)):
            _metadata(result)[_GATE] = True
        return result

    def elementwise(self, operation: Operation) -> Tensor:
        """There is no agreed rule for exp, log, powers, nor here for softmax and normalisation."""
        refused: Tensor = self.unknown(operation)
        return refused

    softmax = layernorm = length = elementwise

    def linear(self, operation: Operation) -> Tensor:
        """The rule of its position."""
        return self.composite.apply(layer_call(operation))

    def matmul(self, operation: Operation) -> Tensor:
        """A product with a constant is a dense layer."""
        factors = operation.factors()
        if factors is None or all(map(on_path, factors[:2])):
            refused: Tensor = self.unknown(operation)
            return refused
        return self.composite.apply(matmul_call(operation))

    def pool(self, operation: Operation) -> Tensor:
        """Averages and sums by the pooling rule."""
        call = record("pool", operation.args[0], operation, lambda x, _: operation(x))
        return apply_rule(call, self.composite.pool)

    def norm(self, operation: Operation) -> Tensor:
        """Batch normalisation is merged into the layer before it, where there is one."""
        x, (scale, shift) = operation.args[0], batch_norm_affine(operation)
        way = self.composite.batch_norm
        call = None if way == "pass" else merged(x, scale, shift)
        if call is not None:
            return self.composite.apply(call)
        if way != "merge":
            return attach(x.detach() * scale + shift, lambda r: (r,), x, spare=True)
        call = record("norm", x, lambda v: v * scale + shift, torch.mul, scale, shift)
        return apply_rule(call, epsilon(self.composite.eps))

    def add(self, operation: Operation) -> Tensor:
        """Residual adds share in proportion to the summands; a constant behind a layer is a bias."""
        (a, b), alpha, eps = operation.args[:2], operation.kwargs.get("alpha", 1), self.composite.eps
        ca, cb = {"add": (1, alpha), "sub": (1, -alpha), "rsub": (-alpha, 1)}[operation.name]
        va, vb = (v.detach() * c if isinstance(v, Tensor) else v * c for v, c in ((a, ca), (b, cb)))
        y = va + vb
        if on_path(a) and on_path(b):
            share_a, share_b = va / stabilise(y, eps), vb / stabilise(y, eps)
            return attach(y, lambda r: (total(r * share_a, a), total(r * share_b, b)), a, b)
        x, vx, constant, sign = (a, va, vb, ca) if on_path(a) else (b, vb, va, cb)
        call = merged(x, None, constant_like(constant, vx)) if sign == 1 else None
        if call is not None:
            return self.composite.apply(call)
        if not after_linear(x):  # input normalisation passes everything
            return attach(y, lambda r: (total(r, x),), x)
        share = vx / stabilise(y, eps)  # a position embedding takes its share
        return attach(y, lambda r: (total(r * share, x),), x)

    def mul(self, operation: Operation) -> Tensor:
        """A constant factor passes relevance unchanged, and so does a gate."""
        a, b = operation.args[:2]
        both = on_path(a) and on_path(b)
        gated = both and operation.name == "mul" and is_gate(a) != is_gate(b)
        if on_path(b) and (both or operation.name == "div") and not gated:
            refused: Tensor = self.unknown(operation)
            return refused
        x = (b if is_gate(a) else a) if both else a if on_path(a) else b
        plain = [v.detach() if isinstance(v, Tensor) else v for v in operation.args]
        value = operation.function(*plain, **operation.kwargs)
        return attach(value, lambda r: (total(r, x),), x)


def _metadata(x: Tensor) -> dict[str, Any]:
    node: Any = x.grad_fn
    found: dict[str, Any] = node.metadata
    return found


def is_gate(x: Tensor) -> bool:
    """Whether x came from a sigmoid, perhaps reshaped since."""
    return _GATE in _metadata(x)
