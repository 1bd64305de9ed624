"""Rules of layer-wise relevance propagation.

A rule is a function (linear call, relevance of its output) -> relevance of its input. Bach et al., PLOS ONE
2015; Montavon et al., "Layer-wise relevance propagation: an overview", 2019; Deep Taylor: Montavon et al.,
Pattern Recognition 2017.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Literal, get_args

import torch
from torch import Tensor

from verax.engine import signs
from verax.engine.linear import LinearCall, constant_like, stabilise
from verax.errors import InvalidParameter, suggestion

Rule = Callable[[LinearCall, Tensor], Tensor]
Bias = Literal["split", "none", "innvestigate"]


def adjoint() -> Rule:
    """The transposed call: multipliers of linear layers; for pooling it shares uniformly."""
    return lambda call, r: call.adjoint(r)


def epsilon(eps: float = 1e-6, bias: bool = True) -> Rule:
    """LRP-epsilon; ``eps=0`` is LRP-z. The bias takes its share, unless it is left out of denominators."""

    def rule(call: LinearCall, r: Tensor) -> Tensor:
        z = call.z.detach()
        if not bias and call.bias is not None:
            z = z - call.bias
        return call.value * call.adjoint(r / stabilise(z, eps))

    return rule


Weight = Callable[[], Tensor]
"""A weight made when it is needed: those of a dense layer can be larger than all of its inputs."""


def _not_negative(call: LinearCall) -> bool:
    """Whether the input of a call is known to have no negative number.

    On a CPU one looks; a GPU would have to be waited for, to learn that of numbers of unknown origin.
    """
    x = call.value
    return signs.known(call.source, call.version) if x.is_cuda else not bool((x < 0).any())


def _signed(call: LinearCall, positive: Weight, negative: Weight) -> list[tuple[Tensor, Tensor]]:
    """Parts x+ w_positive + x- w_negative; the second is left out where x >= 0, which halves the cost."""
    x = call.value
    if _not_negative(call):
        return [(x, positive())]
    return [(x.clamp_min(0), positive()), (x.clamp_max(0), negative())]


def alpha_beta(alpha: float = 2.0, beta: float = 1.0, eps: float = 1e-6, bias: Bias = "split") -> Rule:
    """LRP-alpha-beta.

    Args:
        alpha: weight of what speaks for.
        beta: weight of what speaks against; alpha - beta = 1 conserves relevance.
        eps: stabiliser.
        bias: "split" gives b+ and b- to their own denominators, "none" leaves it out (z+ of Deep Taylor),
            "innvestigate" adds the whole bias to both, as iNNvestigate 1.x and 2.x do.
    """
    if bias not in get_args(Bias):
        raise InvalidParameter(f"There is no bias convention {bias!r}{suggestion(str(bias), get_args(Bias))}")

    def rule(call: LinearCall, r: Tensor) -> Tensor:
        w_pos, w_neg = cache(lambda: call.weight.clamp_min(0)), cache(lambda: call.weight.clamp_max(0))
        b_pos = b_neg = None if bias == "none" else call.bias
        if bias == "split" and call.bias is not None:
            b_pos, b_neg = call.bias.clamp_min(0), call.bias.clamp_max(0)
        result = alpha * call.transport(r, _signed(call, w_pos, w_neg), b_pos, eps)
        return result - beta * call.transport(r, _signed(call, w_neg, w_pos), b_neg, eps) if beta else result

    return rule


def alike() -> Rule:
    """z+ for sums and means: by the numbers that have the sign of the result, evenly where it is zero."""

    def rule(call: LinearCall, r: Tensor) -> Tensor:
        x, z = call.value, call.z.detach()

        def shared(parts: Tensor, some: Tensor) -> Tensor:
            return call.transport(some, [(parts, call.weight)], None, 0.0)

        if _not_negative(call):
            found = shared(x, r)
        else:
            found = shared(x.clamp_min(0), r * (z > 0)) + shared(x.clamp_max(0), r * (z < 0))
        zero = z == 0
        if z.is_cuda or bool(zero.any()):  # to look, one would wait for a GPU
            found = found + shared(torch.ones_like(x), r * zero)
        return found

    return rule


def gamma(gain: float = 0.25, eps: float = 1e-6) -> Rule:
    """LRP-gamma for inputs of both signs; the original rule where x >= 0 and z > 0."""

    def rule(call: LinearCall, r: Tensor) -> Tensor:
        w, b, z = call.weight, call.bias, call.z.detach()
        up = cache(lambda: torch.add(w, w.clamp_min(0), alpha=gain))
        down = cache(lambda: torch.add(w, w.clamp_max(0), alpha=gain))
        b_up = b_down = None
        if b is not None:
            b_up, b_down = b + gain * b.clamp_min(0), b + gain * b.clamp_max(0)
        result = call.transport(r * (z > 0), _signed(call, up, down), b_up, eps)
        below = r * (z < 0)
        if bool(below.any()):
            result = result + call.transport(below, _signed(call, down, up), b_down, eps)
        return result

    return rule


def flat(eps: float = 1e-6) -> Rule:
    """Every input of a unit gets the same share."""
    return lambda call, r: call.transport(
        r, [(torch.ones_like(call.x), torch.ones_like(call.weight))], None, eps
    )


def w_square(eps: float = 1e-6) -> Rule:
    """Shares proportional to squared weights (Deep Taylor without bounds)."""
    return lambda call, r: call.transport(r, [(torch.ones_like(call.x), call.weight.square())], None, eps)


def z_box(low: float | Tensor, high: float | Tensor, eps: float = 1e-6) -> Rule:
    """The z^B rule for inputs that lie between `low` and `high` (Deep Taylor with bounds)."""

    def rule(call: LinearCall, r: Tensor) -> Tensor:
        x, w = call.value, call.weight
        lo, hi = (constant_like(bound, x).expand_as(x) for bound in (low, high))
        return call.transport(r, [(x, w), (lo, -w.clamp_min(0)), (hi, -w.clamp_max(0))], None, eps)

    return rule
