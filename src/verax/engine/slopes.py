"""Slopes between two points: what DeepLIFT multiplies instead of derivatives.

Every function here is exact by construction: slopes times differences of inputs add up to the difference of
outputs, so contributions add up to the change of the network's output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from verax.engine.linear import LinearCall

Function = Callable[[Tensor], Tensor]


def _rounding(size: Tensor) -> Tensor:
    info = torch.finfo(size.dtype)
    return info.tiny + 16 * info.eps * size.abs()


def quotient(dy: Tensor, dx: Tensor, size: Tensor | None = None, fallback: Tensor | None = None) -> Tensor:
    """The quotient dy / dx, and `fallback` (default 0) where dx vanishes up to the rounding of `size`."""
    tiny = dx.abs() <= (torch.finfo(dx.dtype).tiny if size is None else _rounding(size))
    usual = torch.zeros_like(dx) if fallback is None else fallback
    return torch.where(tiny, usual, dy / torch.where(tiny, 1, dx))


def slope(function: Function, x: Tensor, x0: Tensor, y: Tensor, y0: Tensor) -> Tensor:
    """The slope of an elementwise function from x0 to x; its derivative where they are the same."""
    derivative = None
    if bool((x - x0).abs().le(_rounding(x)).any()):  # a second run of the function is worth avoiding
        with torch.enable_grad():
            point = x.detach().requires_grad_()
            derivative = torch.autograd.grad(function(point).sum(), point)[0]
    return quotient(y - y0, x - x0, x, derivative)


def _step(x: Tensor, x0: Tensor) -> Tensor:
    """The difference x - x0; 0 where both are minus infinity (a masked score)."""
    return torch.where(x == x0, 0, x - x0)


def softmax_slopes(x: Tensor, x0: Tensor, dim: int, log: bool) -> Callable[[Tensor], Tensor]:
    """Multipliers through (log-)softmax, read as exp(x - log sum exp x) with Rescale at exp and log.

    Both exponentials are taken relative to the larger of the two maxima, so that nothing overflows.
    """
    lse, lse0 = x.logsumexp(dim, keepdim=True), x0.logsumexp(dim, keepdim=True)
    top = torch.maximum(x.amax(dim, keepdim=True), x0.amax(dim, keepdim=True))
    e, e0, dx = (x - top).exp(), (x0 - top).exp(), _step(x, x0)
    total = (e - e0).sum(dim, keepdim=True)
    of_log = quotient(lse - lse0, total, e.sum(dim, keepdim=True), 1 / e.sum(dim, keepdim=True))
    shares = of_log * quotient(e - e0, dx, x, e)  # of each score in the change of log sum exp
    u, u0 = x - lse, x0 - lse0
    outer = torch.ones_like(u) if log else quotient(u.exp() - u0.exp(), _step(u, u0), u, u.exp())

    def back(m: Tensor) -> Tensor:
        inner = m * outer
        return inner - inner.sum(dim, keepdim=True) * shares

    return back


@dataclass(frozen=True)
class Sum:
    """A sum of two paths, kept for RevealCancel.

    Attributes:
        terms: the summands, in copies that the network cannot overwrite.
        signs: 1, -1 or another constant factor of each.
    """

    terms: tuple[Tensor, Tensor]
    signs: tuple[float, float]


def _channels(function: Function, z0: Tensor, p: Tensor, n: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
    """Multipliers of the positive and the negative part of a nonlinearity's input (section 3.5.3)."""
    f0, fp, fn, fb = function(z0), function(z0 + p), function(z0 + n), function(z0 + n + p)
    y_pos, y_neg = (fp - f0 + fb - fn) / 2, (fn - f0 + fb - fp) / 2
    return m * quotient(y_pos, p), m * quotient(y_neg, n)


def _by_sign(delta: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return torch.where(delta > 0, up, torch.where(delta < 0, down, (up + down) / 2))


def reveal_cancel_linear(function: Function, call: LinearCall, x0: Tensor, z0: Tensor, m: Tensor) -> Tensor:
    """Multipliers through a linear call (or pooling) and the nonlinearity behind it (3.5.1 and 3.5.3)."""
    delta = call.value - x0
    up, down = delta.clamp_min(0).requires_grad_(), delta.clamp_max(0).requires_grad_()
    with torch.enable_grad():
        if call.weight is None:  # pooling: its weights are positive
            z_pos, z_neg = call.function(up, None), call.function(down, None)
        else:
            w_pos, w_neg = call.weight.clamp_min(0), call.weight.clamp_max(0)
            z_pos = call.function(up, w_pos) + call.function(down, w_neg)
            z_neg = call.function(up, w_neg) + call.function(down, w_pos)
    slopes = _channels(function, z0, z_pos.detach(), z_neg.detach(), m)
    g_up, g_down = torch.autograd.grad([z_pos, z_neg], [up, down], slopes)
    return _by_sign(delta, g_up, g_down)


def reveal_cancel_sum(
    function: Function, values: Sequence[Tensor], call: Sum, z0: Tensor, m: Tensor
) -> tuple[Tensor, ...]:
    """Multipliers through a sum of two paths and the nonlinearity behind it.

    Args:
        function: the nonlinearity.
        values: the two summands on the baseline.
        call: the sum; the linear rule reads it as a layer with two inputs.
        z0: the sum on the baseline.
        m: multipliers of the nonlinearity's output.
    """
    deltas = [s * (t.detach() - v) for t, v, s in zip(call.terms, values, call.signs, strict=True)]
    p, n = (deltas[0].clamp_min(0) + deltas[1].clamp_min(0), deltas[0].clamp_max(0) + deltas[1].clamp_max(0))
    up, down = _channels(function, z0, p, n, m)
    return tuple(
        (s * _by_sign(d, up, down)).sum_to_size(t.shape)
        for d, t, s in zip(deltas, call.terms, call.signs, strict=True)
    )
