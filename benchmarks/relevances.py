"""References for layer-wise relevance and DeepLIFT: every contribution of every input to every unit.

Layers are written out as matrices, so that a rule is its formula and nothing else: ``c[n, j, i]`` is what
input i brings to unit j of sample n. Batch normalisation is merged into the convolution before it, which is
the same function; maximum pooling hands everything to the winner; sums and averages share by what each
summand is.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kinds import Net
from references import Reference

Rule = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""(inputs (N, I), weights (J, I), biases (J,), relevance (N, J)) -> relevance of the inputs (N, I)"""


# -- rules -------------------------------------------------------------------------------------------------


def _safe(z: Tensor, epsilon: float = 1e-9) -> Tensor:
    return z + epsilon * torch.where(z < 0, -1.0, 1.0)


def _shared(c: Tensor, z: Tensor, r: Tensor) -> Tensor:
    """Each unit's relevance in proportion to contributions ``(N, J, I)``."""
    return torch.einsum("nji,nj->ni", c, r / z)


def epsilon(eps: float = 1e-9) -> Rule:
    """LRP-epsilon; biases keep their share (Bach et al., PLOS ONE 2015, equation 58)."""

    def rule(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
        c = x[:, None] * w
        return _shared(c, _safe(c.sum(2) + b, eps), r)

    return rule


def gamma(gain: float = 0.25) -> Rule:
    """LRP-gamma for inputs and units of both signs (Montavon et al., 2019; Andéol et al., 2021)."""

    def rule(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
        c = x[:, None] * w
        z = c.sum(2) + b
        up, down = c + gain * c.clamp(min=0), c + gain * c.clamp(max=0)
        above = up.sum(2) + b + gain * b.clamp(min=0)
        below = down.sum(2) + b + gain * b.clamp(max=0)
        return _shared(up, _safe(above), r * (z > 0)) + _shared(down, _safe(below), r * (z < 0))

    return rule


def alpha_beta(alpha: float, beta: float, biases: bool = True) -> Rule:
    """LRP-alpha-beta; biases of either sign keep their share (Bach et al., equation 60), or are left out."""

    def rule(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
        c, b = x[:, None] * w, b if biases else torch.zeros_like(b)
        up, down = c.clamp(min=0), c.clamp(max=0)
        for_it = _shared(up, up.sum(2) + b.clamp(min=0) + 1e-9, r)
        against = _shared(down, down.sum(2) + b.clamp(max=0) - 1e-9, r)
        return alpha * for_it - beta * against

    return rule


def flat(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
    """The same share for every input that a unit sees (Lapuschkin et al., 2019)."""
    seen = (w != 0).to(x)
    return ((r / seen.sum(1)) @ seen).expand_as(x)


def box(low: float, high: float) -> Rule:
    """The z^B rule for inputs between bounds (Montavon et al., Pattern Recognition 2017, equation 14)."""

    def rule(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
        c = x[:, None] * w - low * w.clamp(min=0) - high * w.clamp(max=0)
        return _shared(c, c.sum(2), r)

    return rule


# -- networks ----------------------------------------------------------------------------------------------


def matrix(layer: Callable[[Tensor], Tensor], shape: tuple[int, int, int]) -> Tensor:
    """A linear map of pictures as a matrix ``(outputs, inputs)``."""
    size = shape[0] * shape[1] * shape[2]
    return layer(torch.eye(size, dtype=torch.float64).reshape(size, *shape)).flatten(1).T


class Walk:
    """A network of lines and kinks on given inputs: its matrices, biases and all values on the way."""

    def __init__(self, model: Net, x: Tensor) -> None:
        with torch.no_grad():
            scale, shift = torch.ones(6).double(), model.a.bias
            if model.kind == "batch norm":
                norm = model.norm
                scale = norm.weight / (norm.running_var + norm.eps).sqrt()
                shift = (model.a.bias - norm.running_mean) * scale + norm.bias
            kernel = model.a.weight * scale[:, None, None, None]
            self.x = x.flatten(1)
            self.wa = matrix(lambda v: F.conv2d(v, kernel, padding=1), (3, 12, 12))
            self.ba = shift.repeat_interleave(144)
            self.za = self.x @ self.wa.T + self.ba
            self.ra = self.za.clamp(min=0)
            windows = self.ra.reshape(-1, 6, 6, 2, 6, 2).transpose(3, 4).reshape(len(x), 216, 4)
            self.maximum = model.kind == "pooled"
            self.winner = F.one_hot(windows.argmax(2), 4).to(x)
            self.average = matrix(lambda v: F.avg_pool2d(v, 2), (6, 12, 12))
            self.h = windows.amax(2) if self.maximum else self.ra @ self.average.T
            self.wb = matrix(lambda v: F.conv2d(v, model.b.weight, padding=1), (6, 6, 6))
            self.bb = model.b.bias.repeat_interleave(36)
            self.zb = self.h @ self.wb.T + self.bb
            self.residual = model.kind == "residual"
            self.s = self.zb + self.h if self.residual else self.zb
            self.rb = self.s.clamp(min=0)
            self.wc, self.bc, self.wd, self.bd = (
                values.detach() for layer in (model.c, model.d) for values in (layer.weight, layer.bias)
            )
            self.zc = self.rb @ self.wc.T + self.bc
            self.rc = self.zc.clamp(min=0)
            self.out = self.rc @ self.wd.T + self.bd

    def unpooled(self, r: Tensor) -> Tensor:
        """What the pooling gives back: to the winner, or in proportion to values."""
        if not self.maximum:
            nothing = torch.zeros(len(self.average), dtype=r.dtype)
            return epsilon()(self.ra, self.average, nothing, r)
        parts = self.winner * r[..., None]
        return parts.reshape(-1, 6, 6, 6, 2, 2).transpose(3, 4).reshape(len(r), 864)


def lrp(conv: Rule, dense: Rule, first: Rule | None = None, positive: bool = False) -> Reference:
    """Relevance by rules for convolutions, dense layers and the first layer.

    Args:
        conv: for convolutions.
        dense: for dense layers.
        first: for the first convolution, where it is another one.
        positive: whether only positive outputs are handed back.
    """

    def reference(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        walk = Walk(model, x)
        r = F.one_hot(targets, 5) * walk.out
        r = dense(walk.rc, walk.wd, walk.bd, r.clamp(min=0) if positive else r)
        r = dense(walk.rb, walk.wc, walk.bc, r)
        if walk.residual:
            share = r / _safe(walk.s)
            r = conv(walk.h, walk.wb, walk.bb, share * walk.zb) + share * walk.h
        else:
            r = conv(walk.h, walk.wb, walk.bb, r)
        r = walk.unpooled(r)
        return (first or conv)(walk.x, walk.wa, walk.ba, r).reshape(x.shape)

    return reference


def _ratio(rise: Tensor, way: Tensor) -> Tensor:
    return torch.where(way == 0, 0.0, rise / torch.where(way == 0, 1.0, way))


def deeplift(low: Tensor, reveal_cancel: bool = False) -> Reference:
    """Multipliers of DeepLIFT, layer by layer (Shrikumar et al., ICML 2017, sections 3.5.1 to 3.5.3).

    The paper has no rule for maximum pooling, and neither has this.
    """

    def gate(z: Tensor, z0: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
        rescaled = m * _ratio(z.clamp(min=0) - z0.clamp(min=0), z - z0)
        return rescaled, rescaled

    def canceling(c: Tensor, z0: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
        """Multipliers for the contributions ``(N, J, I)`` that raise and that lower a unit."""
        up, down = c.clamp(min=0).sum(2), c.clamp(max=0).sum(2)

        def f(z: Tensor) -> Tensor:
            return z.clamp(min=0)

        rise = (f(z0 + up) - f(z0) + f(z0 + up + down) - f(z0 + down)) / 2
        fall = (f(z0 + down) - f(z0) + f(z0 + up + down) - f(z0 + up)) / 2
        return m * _ratio(rise, up), m * _ratio(fall, down)

    def unit(c: Tensor, z: Tensor, z0: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
        return canceling(c, z0, m) if reveal_cancel else gate(z, z0, m)

    def by_sign(c: Tensor, up: Tensor, down: Tensor) -> Tensor:
        """What contributions are multiplied with; those of zero with the mean (section 3.5.1)."""
        return torch.where(c > 0, up, torch.where(c < 0, down, (up + down) / 2))

    def through(c: Tensor, w: Tensor, up: Tensor, down: Tensor) -> Tensor:
        return torch.einsum("nji,ji->ni", by_sign(c, up[..., None], down[..., None]), w)

    def reference(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        walk, base = Walk(model, x), Walk(model, low)
        m = walk.wd[targets]
        c = (walk.rb - base.rb)[:, None] * walk.wc
        m = through(c, walk.wc, *unit(c, walk.zc, base.zc, m))
        if walk.residual:  # a sum of two paths is a linear layer of two inputs
            c = torch.stack([walk.zb - base.zb, walk.h - base.h], 2)
            up, down = unit(c, walk.s, base.s, m)
            of_b, of_h = (by_sign(part, up, down) for part in c.unbind(2))
            m = of_b @ walk.wb + of_h
        else:
            c = (walk.h - base.h)[:, None] * walk.wb
            m = through(c, walk.wb, *unit(c, walk.zb, base.zb, m))
        c = (walk.x - base.x)[:, None] * walk.wa
        m = through(c, walk.wa, *unit(c, walk.za, base.za, m @ walk.average))
        return (m * (walk.x - base.x)).reshape(x.shape)

    return reference
