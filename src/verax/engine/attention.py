"""Rules for transformers on top of layer-wise relevance propagation, and the attention weights themselves.

AttnLRP: Achtibat et al., ICML 2024. CP-LRP: Ali et al., ICML 2022. Attention comes as fused calls
(`scaled_dot_product_attention`, `nn.MultiheadAttention`) or written out; the engine takes the fused ones
apart, so each rule here is stated once, for softmax, for products and for normalisation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from verax.engine.decomposition import attention_with_weights, multihead
from verax.engine.gradients import UNCONNECTED, leaf, select, slopes_of
from verax.engine.linear import factor_adjoints, matmul_call, record, stabilise
from verax.engine.mode import apply_rule, attach, declare_constant, full_precision, on_path, total
from verax.engine.normalisation import Length, Normalisation
from verax.engine.operations import Operation
from verax.engine.relevance import LRP, Composite, is_gate
from verax.engine.rules import epsilon
from verax.errors import UnsupportedOperation


class AttentionLRP(LRP):
    """LRP with rules for softmax, normalisation and products of two paths.

    Args:
        composite: rules of the linear layers.
        through_softmax: AttnLRP sends relevance through the softmax to queries and keys; CP-LRP takes the
            attention weights for constants, so that all relevance goes to the values and is conserved.
    """

    def __init__(self, composite: Composite, through_softmax: bool = True) -> None:
        super().__init__(composite)
        self.through_softmax = through_softmax

    def softmax(self, operation: Operation) -> Tensor:
        """R_i <- x_i (R_i - p_i sum_j R_j), the Taylor expansion at x (AttnLRP, proposition 3.1)."""
        if operation.name != "softmax":
            refused: Tensor = self.unknown(operation)
            return refused
        source = operation.args[0]
        x = source.detach().clone()
        p = operation(x)
        if not self.through_softmax:
            return declare_constant(p)
        dim = operation.kwargs.get("dim", (*operation.args, -1)[1])
        x = torch.where(x.isfinite(), x, 0)  # a masked score has p = 0 and gets nothing
        return attach(p, lambda r: (x * (r - p * r.sum(dim, keepdim=True)),), source)

    def layernorm(self, operation: Operation) -> Tensor:
        """The standard deviation is a constant; centring and shift are linear (both papers)."""
        call = Normalisation.of(operation)
        x = operation.args[0].detach().clone()
        made = record("norm", operation.args[0], lambda v: call.frozen(v, x), lambda v, _: call.frozen(v, x))
        return apply_rule(made, epsilon(self.composite.eps))

    def length(self, operation: Operation) -> Tensor:
        """Divisors are constants, as the standard deviation is; so is the direction of a vector."""
        call = Length.of(operation)
        if call is None:
            refused: Tensor = self.unknown(operation)
            return refused
        x = operation.args[0].detach().clone()
        made = record("norm", operation.args[0], lambda v: call.frozen(v, x), lambda v, _: call.frozen(v, x))
        return apply_rule(made, epsilon(self.composite.eps))

    def matmul(self, operation: Operation) -> Tensor:
        """Half of the relevance to each factor where both are paths (AttnLRP, proposition 3.3)."""
        factors = operation.factors()
        assert factors is not None
        a, b, function = factors
        if not (on_path(a) and on_path(b)):
            if on_path(a) and b.dim() == 2:  # a dense layer
                return super().matmul(operation)
            return apply_rule(matmul_call(operation), epsilon(self.composite.eps))
        va, vb, eps = a.detach().clone(), b.detach().clone(), self.composite.eps
        y = function(va, vb)

        def back(r: Tensor) -> tuple[Tensor, Tensor]:
            slope_a, slope_b = factor_adjoints(function, va, vb, r / stabilise(2 * y, eps))
            return va * slope_a, vb * slope_b

        return attach(y, back, a, b)

    def mul(self, operation: Operation) -> Tensor:
        """Half of the relevance to each factor where both are paths: gates, SwiGLU.

        CP-LRP takes gates for constants, as it does attention weights. A divisor is one under both.
        """
        a, b = operation.args[:2]
        if not (on_path(a) and on_path(b)) or (not self.through_softmax and is_gate(a) != is_gate(b)):
            return super().mul(operation)
        if operation.name == "div" and not operation.kwargs:
            return attach(a.detach() / b.detach(), lambda r: (total(r, a),), a)
        if operation.name == "mul":
            value = a.detach() * b.detach()
            return attach(value, lambda r: (total(r / 2, a), total(r / 2, b)), a, b)
        return super().mul(operation)


_WEIGHTS = "_verax_weights"
_KEEPING = frozenset(
    {"dropout", "clone", "contiguous", "to", "type_as", "float", "half", "bfloat16", "double"}
    | {"view", "reshape"}
)
"""Calls behind which attention weights are still the same weights."""


class AttentionWeights(TorchFunctionMode):
    """Collects the attention weights of a forward pass, with their graph.

    Attention is a softmax whose result multiplies values from the left. Fused calls are taken apart so that
    there is one; the network itself is not touched.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Tensor] = []

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Answer one call of the network."""
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "").strip("_")
        if name == "scaled_dot_product_attention":
            with self:
                return attention_with_weights(*args, **kwargs)[0]
        if name == "multi_head_attention_forward":
            with self:
                return multihead(*args, **kwargs)
        left = args[0] if args else None
        if name == "einsum" and len(args) == 3:
            left = args[1]
        result = func(*args, **kwargs)
        if name == "softmax":
            setattr(result, _WEIGHTS, result)
        elif isinstance(left, Tensor) and hasattr(left, _WEIGHTS):
            weights: Tensor = getattr(left, _WEIGHTS)
            if name in ("matmul", "bmm", "einsum"):
                self.found.append(weights)
            elif name in _KEEPING and result.shape[-2:] == weights.shape[-2:]:
                setattr(result, _WEIGHTS, weights)
        return result


def attention_weights(
    model: nn.Module, inputs: Tensor, targets: Tensor | None = None
) -> tuple[list[Tensor], list[Tensor]]:
    """The self-attention weights ``(N, heads, tokens, tokens)`` of every layer, and their gradients.

    Args:
        model: the network.
        inputs: ``(N, ...)``.
        targets: whose outputs to differentiate; None: no gradients are computed.
    """
    watcher = AttentionWeights()
    with torch.enable_grad(), full_precision(inputs):
        with watcher:
            outputs = model(leaf(inputs).clone())
        if not watcher.found:
            raise UnsupportedOperation("The network has no attention to follow: no softmax weighs values.")
        slopes: list[Tensor | None] = []
        if targets is not None:
            learnt = [w for w in watcher.found if w.requires_grad]
            given = iter(slopes_of(select(outputs, targets), learnt))
            slopes = [next(given) if w.requires_grad else None for w in watcher.found]
            if all(slope is None for slope in slopes):
                raise UnsupportedOperation(UNCONNECTED)
    weights = [_by_head(found.detach(), len(inputs)) for found in watcher.found]
    sizes = sorted({layer.shape[-1] for layer in weights})
    if len(sizes) > 1:
        raise UnsupportedOperation(
            f"The number of tokens changes from layer to layer ({', '.join(map(str, sizes))}); attention "
            "cannot be followed through that."
        )
    gradients = [
        torch.zeros_like(layer) if slope is None else _by_head(slope, len(inputs))
        for layer, slope in zip(weights, slopes, strict=False)
    ]
    return weights, gradients


def _by_head(weights: Tensor, samples: int) -> Tensor:
    """Weights as ``(N, heads, tokens, tokens)``."""
    shape = tuple(weights.shape)
    if len(shape) == 3 and shape[0] % samples == 0:  # (N, T, T) or (N * heads, T, T)
        weights = weights.reshape(samples, -1, *shape[1:])
    if weights.dim() != 4 or len(weights) != samples or shape[-1] != shape[-2]:
        raise UnsupportedOperation(
            f"Attention weights of the shape {shape} are not self-attention among all tokens of {samples} "
            "samples (windows or cross-attention); it cannot be followed."
        )
    return weights
