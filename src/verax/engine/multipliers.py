"""Rule tables that propagate multipliers: guided backprop, deconvnet, DeepLIFT."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from verax.engine.linear import LinearCall, batch_norm_affine, layer_call, matmul_call, merged
from verax.engine.mode import Engine, apply_rule, attach, forward, on_path, propagate, total
from verax.engine.operations import Operation
from verax.engine.rules import adjoint
from verax.errors import UnsupportedOperation


def _rectifier(operation: Operation) -> bool:
    """Whether a call is a ReLU in one of its spellings (ReLU6 arrives as hardtanh from 0 to 6)."""
    if operation.name in ("relu", "relu6"):
        return True
    if operation.name in ("clamp", "clamp_min", "clip", "hardtanh"):
        key = "min_val" if operation.name == "hardtanh" else "min"
        return bool(operation.kwargs.get(key, (*operation.args, None)[1]) == 0)
    if operation.name == "threshold":
        return tuple(operation.args[1:3]) == (0, 0)
    return False


class Rectified(Engine):
    """The gradient with a rectified backward signal at every ReLU.

    With the forward gate this is guided backprop (Springenberg et al., 2015), without it the deconvnet
    (Zeiler and Fergus, 2014).
    """

    strict = False

    def __init__(self, gate: bool) -> None:
        super().__init__()
        self.gate = gate

    def activation(self, operation: Operation) -> Tensor:
        """Rectify what comes back through a ReLU; other nonlinearities keep their derivative."""
        x = operation.args[0]
        if not _rectifier(operation):
            plain: Tensor = self.native(operation)
            return plain
        y = operation(x.detach())
        open_ = (y > 0) & (y == x.detach()) if self.gate else torch.ones_like(y, dtype=torch.bool)
        return attach(y, lambda g: (g.clamp_min(0) * open_,), x)


class DeepLift(Engine):
    """DeepLIFT (Shrikumar, Greenside and Kundaje, ICML 2017): Rescale, or RevealCancel behind linear layers.

    A first run on the baseline fills a tape, the run on the input replays it by position; so nothing depends
    on where the batch dimension is. Maximum pooling credits a rise to the new maximum and a fall to the old.
    """

    masks = False  # a mask computed from the input is a hidden nonlinearity: refuse

    def __init__(self, reveal_cancel: bool = False) -> None:
        super().__init__()
        self.reveal_cancel = reveal_cancel
        self.tape: list[tuple[str, list[Tensor]]] = []
        self.cursor: int | None = None  # None while the baseline is recorded

    def reference(self, name: str, *values: Tensor) -> Sequence[Tensor] | None:
        """The same call's values on the baseline; None while it is recorded."""
        if self.cursor is None:
            self.tape.append((name, [v.detach().clone() for v in values]))
            return None
        known, kept = self.tape[self.cursor] if self.cursor < len(self.tape) else ("nothing", [])
        self.cursor += 1
        if known != name or [v.shape for v in values] != [v.shape for v in kept]:
            raise UnsupportedOperation(
                f"The network branches: it calls {known!r} on the baseline and {name!r} on the input."
            )
        return kept

    def activation(self, operation: Operation) -> Tensor:
        """Difference of outputs over difference of inputs."""
        x = operation.args[0]
        y = operation(x.detach())
        call: LinearCall | None = getattr(x.grad_fn, "call", None) if self.reveal_cancel else None
        if call is not None and call.source._version != call.version:
            call = None
        kept = self.reference(operation.name, x, y, *([] if call is None else [call.x]))
        if kept is None:
            return attach(y, None, x)
        if call is not None:
            fed = call
            return attach(y, lambda m: (_reveal_cancel(operation, fed, kept[2], kept[0], m),), fed.source)
        m = _slope(y - kept[1], x.detach() - kept[0], operation, x.detach())
        return attach(y, lambda g: (g * m,), x)

    elementwise = activation

    def maxpool(self, operation: Operation) -> Tensor:
        """A rise is credited to the new maximum, a fall to the old one."""
        x = operation.args[0].detach().clone().requires_grad_()
        kept = self.reference(operation.name, x)
        x0 = x if kept is None else kept[0].requires_grad_()
        with torch.enable_grad():
            y, y0 = operation(x), operation(x0)

        def back(g: Tensor) -> Sequence[Tensor]:
            step, delta = (y - y0).detach(), (x - x0).detach()
            rise = torch.autograd.grad(y, x, g * step.clamp_min(0), retain_graph=True)[0]
            fall = torch.autograd.grad(y0, x0, g * step.clamp_max(0), retain_graph=True)[0]
            return (torch.where(delta == 0, 0, (rise + fall) / torch.where(delta == 0, 1, delta)),)

        return attach(y, back, operation.args[0])

    def mul(self, operation: Operation) -> Tensor:
        """The Shapley value of a product of two paths."""
        a, b = operation.args[:2]
        if not on_path(b) or (operation.name == "mul" and not on_path(a)):
            plain: Tensor = self.native(operation)
            return plain
        if operation.name == "div":
            refused: Tensor = self.unknown(operation)
            return refused
        a0, b0 = self.reference("mul", a, b) or (a, b)
        mean_a, mean_b = (a.detach() + a0.detach()) / 2, (b.detach() + b0.detach()) / 2
        value = a.detach() * b.detach()
        return attach(value, lambda g: (total(g * mean_b, a), total(g * mean_a, b)), a, b)

    # RevealCancel needs to know which linear call fed a nonlinearity; everything linear is otherwise native.

    def linear(self, operation: Operation) -> Tensor:
        """Linear layers pass multipliers by their adjoint."""
        if self.reveal_cancel:
            return apply_rule(layer_call(operation), adjoint())
        plain: Tensor = self.native(operation)
        return plain

    def matmul(self, operation: Operation) -> Tensor:
        """A product with a constant is a dense layer; a product of two paths is refused."""
        if all(map(on_path, operation.args[:2])):
            refused: Tensor = self.unknown(operation)
            return refused
        if self.reveal_cancel:
            return apply_rule(matmul_call(operation), adjoint())
        plain: Tensor = self.native(operation)
        return plain

    def norm(self, operation: Operation) -> Tensor:
        """Merged into the layer before, so that RevealCancel sees one linear call."""
        call = merged(operation.args[0], *batch_norm_affine(operation)) if self.reveal_cancel else None
        return super().norm(operation) if call is None else apply_rule(call, adjoint())

    def add(self, operation: Operation) -> Tensor:
        """A constant behind a layer is a bias."""
        a, b = operation.args[:2]
        plain_add = operation.name == "add" and "alpha" not in operation.kwargs
        if self.reveal_cancel and plain_add and on_path(a) != on_path(b):
            x, constant = (a, b) if on_path(a) else (b, a)
            call = merged(x, None, torch.as_tensor(constant).detach().to(x))
            if call is not None:
                return apply_rule(call, adjoint())
        native: Tensor = self.native(operation)
        return native


def _slope(
    dy: Tensor, dx: Tensor, function: Callable[[Tensor], Tensor] | None = None, x: Tensor | None = None
) -> Tensor:
    """The quotient dy / dx, and the derivative (0 without a function) where dx vanishes up to rounding."""
    info = torch.finfo(dx.dtype)
    tiny = dx.abs() <= info.tiny + (0 if x is None else 16 * info.eps * x.abs())
    fallback = torch.zeros_like(dx)
    if function is not None and x is not None and bool(tiny.any()):
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            fallback = torch.autograd.grad(function(leaf).sum(), leaf)[0]
    return torch.where(tiny, fallback, dy / torch.where(tiny, 1, dx))


def _reveal_cancel(
    function: Callable[[Tensor], Tensor], call: LinearCall, x0: Tensor, z0: Tensor, m: Tensor
) -> Tensor:
    """Multipliers through a linear call and the nonlinearity behind it (sections 3.5.1 and 3.5.3)."""
    delta, w_pos, w_neg = call.value - x0, call.weight.clamp_min(0), call.weight.clamp_max(0)
    up, down = delta.clamp_min(0).requires_grad_(), delta.clamp_max(0).requires_grad_()
    with torch.enable_grad():
        z_pos = call.function(up, w_pos) + call.function(down, w_neg)
        z_neg = call.function(up, w_neg) + call.function(down, w_pos)
    p, n = z_pos.detach(), z_neg.detach()
    f0, fp, fn, fb = function(z0), function(z0 + p), function(z0 + n), function(z0 + n + p)
    y_pos, y_neg = (fp - f0 + fb - fn) / 2, (fn - f0 + fb - fp) / 2
    slopes = [m * _slope(y_pos, p), m * _slope(y_neg, n)]
    g_up, g_down = torch.autograd.grad([z_pos, z_neg], [up, down], slopes)
    return torch.where(delta > 0, g_up, torch.where(delta < 0, g_down, (g_up + g_down) / 2))


def deeplift(
    model: nn.Module, inputs: Tensor, baseline: Tensor, targets: Tensor, reveal_cancel: bool = False
) -> Tensor:
    """Contributions of ``inputs - baseline`` to the change of the explained output."""
    engine = DeepLift(reveal_cancel)
    start = baseline.to(inputs).expand_as(inputs)
    forward(engine, model, start)
    engine.cursor = 0
    multipliers, _ = propagate(engine, model, inputs, targets)
    return multipliers * (inputs - start)
