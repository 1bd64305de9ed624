"""Slopes between two points: what DeepLIFT multiplies instead of derivatives.

Every function here is exact by construction: slopes times differences of inputs add up to the difference of
outputs, so contributions add up to the change of the network's output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import cast

import torch
from torch import Tensor

from verax.engine.linear import LinearCall
from verax.engine.operations import Operation

Function = Callable[..., Tensor]
Ends = tuple[Tensor, Tensor, Tensor]
"""The input and the output of a nonlinearity on the baseline, and its input now."""


def _rounding(size: Tensor) -> Tensor:
    info = torch.finfo(size.dtype)
    return info.tiny + 16 * info.eps * size.abs()


def vanishes(dx: Tensor, size: Tensor) -> Tensor:
    """Where a difference is nothing but the rounding of numbers of `size`."""
    return dx.abs() <= _rounding(size)


_UNIT = frozenset(
    ("erf", "exp", "gelu", "logsigmoid", "mish", "sigmoid", "silu", "softplus", "softsign", "tanh")
)
_OWN = frozenset(("log", "sqrt", "rsqrt", "reciprocal", "square", "pow"))
"""Smooth functions that bend over distances of about 1, and over distances of about the argument itself."""


def relu_slope(x: Tensor, x0: Tensor, top: Tensor | None = None, way: Tensor | None = None) -> Tensor:
    """The slope of ReLU from x0 to x, which may broadcast: 1 above zero, 0 below, the share above between.

    The larger of the two over their distance is that share, and leaves 0 to 1 just where the other two cases
    begin. Nothing is subtracted but x - x0, so nothing cancels. `top` and `way` are memory to work in; the
    result is in `top`.
    """
    top, way = torch.maximum(x, x0, out=top), torch.sub(x, x0, out=way).abs_()
    return top.div_(way.clamp_min_(torch.finfo(way.dtype).tiny)).clamp_(0, 1)


_FUSED = """
template <typename T> T through_relu(T m, T x, T x0) {
    T top = x > x0 ? x : x0, way = x > x0 ? x - x0 : x0 - x;
    if (way == T(0)) return top > T(0) ? m : T(0);
    T share = top / way;
    return m * (share > T(1) ? T(1) : share < T(0) ? T(0) : share);
}
"""


_BLOCK = 2**18
"""Numbers of a block on a CPU: with what is made from them, they stay in the cache of a core."""


@cache
def _fused() -> Function | None:
    """`through_relu` as one kernel, where this version of torch can compile it."""
    make = getattr(getattr(torch.cuda, "jiterator", None), "_create_jit_fn", None)
    return None if make is None else cast("Function", make(_FUSED))


def through_relu(m: Tensor, x: Tensor, x0: Tensor) -> Tensor:
    """Multipliers `m` of the output of ReLU as multipliers of its input; the ends x and x0 may broadcast.

    It waits for memory, and eight operations would read and write it eight times. So on a GPU the whole is
    one kernel, and on a CPU all of them finish with a block before the next one begins.

    Args:
        m: ``(samples, references, ...)``.
        x: ``(samples, 1, ...)``.
        x0: ``(1, references, ...)``.
    """
    fused = _fused() if m.is_cuda and m.dtype in (torch.float32, torch.float64) else None
    if fused is not None:
        return fused(m, x, x0)
    out, step = torch.empty_like(m), max(1, _BLOCK // max(1, m[0, 0].numel()))
    top, way = torch.empty_like(m[0, :step]), torch.empty_like(m[0, :step])
    for sample in range(len(m)):
        for start in range(0, m.shape[1], step):
            part = slice(start, min(start + step, m.shape[1]))
            many = part.stop - start
            slopes = relu_slope(x[sample], x0[0, part], top[:many], way[:many])
            torch.mul(slopes, m[sample, part], out=out[sample, part])
    return out


def slope(operation: Operation, x: Tensor, x0: Tensor, y: Tensor, y0: Tensor) -> Tensor:
    """The slope of an elementwise function from x0 to x; its derivative where they are the same.

    Where a smooth function hardly changes, y - y0 is mostly rounding (a sigmoid near 0 has values near 1/2):
    there the derivative halfway is nearer to the slope than the quotient.
    """
    if operation.name == "relu":
        return relu_slope(x, x0)
    dx, dy = x - x0, y - y0
    same, at = vanishes(dx, x), x
    if operation.name in _UNIT | _OWN:
        reach = 0.02 * (torch.maximum(x.abs(), x0.abs()) if operation.name in _OWN else 1.0)
        lost = dy.abs() <= 4 * torch.finfo(y.dtype).eps ** 0.5 * torch.maximum(y.abs(), y0.abs())
        same, at = same | ((dx.abs() <= reach) & lost), (x + x0) / 2
    slopes = dy.div_(dx)
    # a second run of the function is worth avoiding, but not worth waiting for a GPU
    if not x.is_cuda and not bool(same.any()):
        return slopes
    with torch.enable_grad():
        point = at.detach().requires_grad_()
        derivative = torch.autograd.grad(operation(point).sum(), point)[0]
    return torch.where(same, derivative, slopes)


def _step(x: Tensor, x0: Tensor) -> Tensor:
    """The difference x - x0; 0 where both are minus infinity (a masked score)."""
    return torch.where(x == x0, 0, x - x0)


def _exp_slope(larger: Tensor, dx: Tensor) -> Tensor:
    """The slope of exp over a distance dx, from the larger of its two values; exact for the smallest dx."""
    way = dx.abs()
    return larger * torch.where(way == 0, 1, -torch.expm1(-way) / way)


def softmax_slopes(x: Tensor, x0: Tensor, dim: int, log: bool) -> Callable[[Tensor], Tensor]:
    """Multipliers through (log-)softmax, read as exp(x - log sum exp x) with Rescale at exp and log.

    Both exponentials are taken relative to the larger of the two maxima, so that nothing overflows.
    """
    lse, lse0 = x.logsumexp(dim, keepdim=True), x0.logsumexp(dim, keepdim=True)
    top = torch.maximum(x.amax(dim, keepdim=True), x0.amax(dim, keepdim=True))
    e, e0, dx = (x - top).exp(), (x0 - top).exp(), _step(x, x0)
    inner = _exp_slope(torch.maximum(e, e0), dx)
    rise = (inner * torch.where(inner == 0, 0, dx)).sum(dim, keepdim=True)
    sum0 = e0.sum(dim, keepdim=True)
    # log1p where the sums are close: their difference would be rounding
    close = rise.abs() < sum0 / 2
    way = torch.where(close, torch.log1p(torch.where(close, rise / sum0, 0)), lse - lse0)
    shares = (
        torch.where(rise == 0, 1 / sum0, way / rise) * inner
    )  # of each score in the change of log sum exp
    u, u0 = x - lse, x0 - lse0
    outer = torch.ones_like(u) if log else _exp_slope(torch.maximum(u, u0).exp(), _step(u, u0))

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


def _channels(
    function: Function, ends: Ends, up: Tensor, down: Tensor, size: Tensor, m: Tensor
) -> tuple[Tensor, Tensor]:
    """Multipliers of the positive and the negative part of a nonlinearity's input (section 3.5.3).

    Args:
        function: the nonlinearity.
        ends: its input and output on the baseline, and its input now.
        up: twice what speaks for each unit.
        down: twice what speaks against it.
        size: how large the numbers are that `up` and `down` were made from.
        m: multipliers of its output.
    """
    z0, f0, z = ends
    both = function(z).sub_(f0).mul_(m)
    apart = function(torch.add(z0, up, alpha=0.5)).sub_(function(torch.add(z0, down, alpha=0.5))).mul_(m)
    rounding = _rounding(size)
    for_ = (both + apart).div_(up).masked_fill_(up.abs() <= rounding, 0)
    against = (both - apart).div_(down).masked_fill_(down.abs() <= rounding, 0)
    return for_, against


def _by_sign(delta: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return torch.where(delta > 0, up, torch.where(delta < 0, down, (up + down) / 2))


def reveal_cancel_linear(
    function: Function, call: LinearCall, x0: Tensor, z0: Tensor, f0: Tensor, m: Tensor
) -> Tensor:
    """Multipliers through a linear call (or pooling) and the nonlinearity behind it (3.5.1 and 3.5.3).

    With d = x - x0, what speaks for a unit is w+ d+ + w- d- = (w d + |w| |d|) / 2 and what speaks against it
    is (w d - |w| |d|) / 2; as w d = z - z0 is known, one more run of the call is enough, and two adjoints.

    Args:
        function: the nonlinearity.
        call: the linear call.
        x0: the call's input on the baseline.
        z0: the nonlinearity's input on the baseline.
        f0: its output there.
        m: multipliers of its output.
    """
    delta, z = call.value - x0, call.z.detach()
    step = z - z0
    if call.weight is None:  # pooling and enlarging: weights are not told, so rises and falls go apart
        up = 2 * call.function(delta.clamp_min(0), None)
        down = 2 * step - up
        for_, against = _channels(function, (z0, f0, z), up, down, up.abs() + down.abs(), m)
        return _by_sign(delta, call.adjoint(for_), call.adjoint(against))
    reach = delta.abs().requires_grad_()
    with torch.enable_grad():
        spread = call.function(reach, call.weight.abs())
    size = spread.detach()
    up, down = (size + step).clamp_min_(0), (step - size).clamp_max_(0)
    for_, against = _channels(function, (z0, f0, z), up, down, size, m)
    whole = call.adjoint(for_ + against)
    (lean,) = torch.autograd.grad(spread, reach, for_.sub_(against))
    return torch.addcmul(whole, delta.sign(), lean).div_(2)


def reveal_cancel_sum(
    function: Function, values: Sequence[Tensor], call: Sum, z0: Tensor, f0: Tensor, m: Tensor
) -> tuple[Tensor, ...]:
    """Multipliers through a sum of two paths and the nonlinearity behind it.

    Args:
        function: the nonlinearity.
        values: the two summands on the baseline.
        call: the sum; the linear rule reads it as a layer with two inputs.
        z0: the sum on the baseline.
        f0: the nonlinearity's output there.
        m: multipliers of the nonlinearity's output.
    """
    deltas = [s * (t.detach() - v) for t, v, s in zip(call.terms, values, call.signs, strict=True)]
    first, second = deltas
    up, down = 2 * (first.clamp_min(0) + second.clamp_min(0)), 2 * (first.clamp_max(0) + second.clamp_max(0))
    for_, against = _channels(function, (z0, f0, z0 + (up + down) / 2), up, down, up - down, m)
    return tuple(
        (s * _by_sign(d, for_, against)).sum_to_size(t.shape)
        for d, t, s in zip(deltas, call.terms, call.signs, strict=True)
    )
