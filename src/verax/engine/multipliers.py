"""Rule tables that propagate multipliers: guided backprop, deconvnet, DeepLIFT."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from verax.engine.conditions import refuse
from verax.engine.gradients import gradient, select
from verax.engine.linear import (
    LinearCall,
    batch_norm_affine,
    call_of,
    constant_like,
    factor_adjoints,
    layer_call,
    matmul_call,
    merged,
    record,
)
from verax.engine.mode import Engine, apply_rule, attach, forward, full_precision, on_path, total
from verax.engine.normalisation import Normalisation
from verax.engine.operations import Operation
from verax.engine.passes import propagate
from verax.engine.rules import adjoint
from verax.engine.slopes import Sum, reveal_cancel_linear, reveal_cancel_sum, slope, softmax_slopes
from verax.errors import UnsupportedOperation
from verax.networks.anatomy import apart, modules_of


def _rectifier(operation: Operation) -> bool:
    """Whether a call is a ReLU in one of its spellings (ReLU6 arrives as hardtanh from 0 to 6)."""
    if operation.name in ("relu", "relu6"):
        return True
    if operation.name == "leaky_relu":
        return bool(operation.kwargs.get("negative_slope", (*operation.args, 0.01)[1]) == 0)
    if operation.name == "maximum":  # of the path and zero
        return any(isinstance(v, Tensor) and not on_path(v) and not bool(v.any()) for v in operation.args)
    if operation.name in ("clamp", "clamp_min", "clip", "hardtanh"):
        key = "min_val" if operation.name == "hardtanh" else "min"
        return bool(operation.kwargs.get(key, (*operation.args, None)[1]) == 0)
    if operation.name == "threshold":
        return tuple(operation.args[1:3]) == (0, 0)
    return False


class Rectified(Engine):
    """The gradient with a rectified backward signal at every ReLU.

    With the forward gate this is guided backprop (Springenberg et al., 2015), without it the deconvnet
    (Zeiler and Fergus, 2014). Other operations keep their derivative, known or not. A mask made from the
    input is refused: in ``x * (x > 0)`` it is a ReLU that cannot be seen.
    """

    masks = False

    def __init__(self, gate: bool) -> None:
        super().__init__()
        self.gate = gate

    def activation(self, operation: Operation) -> Tensor:
        """Rectify what comes back through a ReLU; other nonlinearities keep their derivative."""
        if not _rectifier(operation):
            plain: Tensor = self.native(operation)
            return plain
        x = next(v for v in operation.args if on_path(v))
        y = operation.function(*(v.detach() if v is x else v for v in operation.args), **operation.kwargs)
        if not self.gate:
            return attach(y, lambda g: (g.clamp_min(0),), x, spare=True)
        shut = y <= 0 if operation.name == "relu" else (y <= 0) | (y != x.detach())
        return attach(y, lambda g: (g.clamp_min(0).masked_fill_(shut, 0),), x, spare=True)

    def unknown(self, operation: Operation, cut: bool = False) -> Any:
        """Its own derivative, but for values that were taken off the path."""
        if cut:
            return super().unknown(operation, cut)
        return self.activation(operation)


class _Rectifying(TorchFunctionMode):
    """Gives the ReLUs of a network a rule whose other calls are known to need none; of this thread alone."""

    def __init__(self, gate: bool) -> None:
        super().__init__()
        self.gate = gate

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Answer one call of the network."""
        if func is F.relu and args[0].grad_fn is not None:
            return self._curve(*args, **(kwargs or {}))
        return func(*args, **kwargs) if kwargs else func(*args)

    def _curve(self, x: Tensor, inplace: bool = False) -> Tensor:
        if self.gate:  # the gate is the derivative itself
            y = x.relu_() if inplace else x.relu()
            y.register_hook(lambda g: g.clamp_min(0))  # type: ignore[no-untyped-call]
            return y
        y = attach(x.detach().relu(), lambda g: (g.clamp_min(0),), x, spare=True)
        return x.copy_(y) if inplace else y


def rectified(model: nn.Module, inputs: Tensor, targets: Tensor, gate: bool) -> Tensor:
    """Guided backprop, or without the gate the deconvnet: shape of `inputs`.

    Of plain layers and known networks it is known which calls are their ReLUs, so that nothing else has to be
    looked at.
    """
    if apart(model, inputs.ndim):
        kinds = set(map(type, modules_of(model)))
        if kinds.isdisjoint((nn.ReLU6, nn.LeakyReLU)):
            # what cannot be differentiated as it stands, such as what is overwritten, is seen to below
            ruled = _Rectifying(gate) if nn.ReLU in kinds else nullcontext()
            with suppress(RuntimeError), full_precision(inputs), ruled:
                return gradient(model, inputs, targets)
    return propagate(Rectified(gate), model, inputs, targets)[0]


class DeepLift(Engine):
    """DeepLIFT (Shrikumar, Greenside and Kundaje, ICML 2017): Rescale, or RevealCancel behind linear layers.

    A first run on the baseline fills a tape, the run on the input replays it by position; so nothing depends
    on where the batch dimension is. Maximum pooling credits a rise to the new maximum and a fall to the old.
    Products of two paths, of numbers or of matrices, are shared by the Shapley value. Softmax and
    normalisation are taken apart into exp, log, square root, sums and products.

    RevealCancel applies to a nonlinearity straight behind a layer, a pooling or a sum of two paths. Behind
    anything else it is Rescale, which is the same wherever a unit has a single contribution (batch
    normalisation that could not be merged) and an approximation behind concatenation and reshaping; the
    contributions add up in every case.
    """

    masks = False  # a mask computed from the input is a hidden nonlinearity: refuse

    def __init__(self, reveal_cancel: bool = False) -> None:
        super().__init__()
        self.reveal_cancel = reveal_cancel
        self.tape: list[tuple[str, list[Tensor]]] = []
        self.decisions: list[bool] = []
        self.cursor: int | None = None  # None while the baseline is recorded
        self.decided = 0

    def reference(self, name: str, *values: Tensor) -> Sequence[Tensor] | None:
        """The same call's values on the baseline; None while it is recorded."""
        if self.cursor is None:
            self.tape.append((name, [v.detach().clone() for v in values]))
            return None
        kept = self.recall(self.taped(name, *(v.shape[1:] for v in values)))
        if [v.shape for v in values] != [v.shape for v in kept]:
            raise self._branched(name, name)
        return kept

    def taped(self, name: str, *shapes: Sequence[int]) -> Sequence[Tensor]:
        """What the next entry of the tape holds; refuses when another call with other rows made it."""
        assert self.cursor is not None
        known, kept = self.tape[self.cursor] if self.cursor < len(self.tape) else ("nothing", [])
        self.cursor += 1
        if known != name or any(tuple(v.shape[1:]) != tuple(s) for v, s in zip(kept, shapes, strict=False)):
            raise self._branched(known, name)
        return kept

    @staticmethod
    def _branched(known: str, name: str) -> UnsupportedOperation:
        return UnsupportedOperation(
            f"The network branches: it calls {known!r} on the baseline and {name!r} on the input."
        )

    def recall(self, values: Sequence[Tensor]) -> Sequence[Tensor]:
        """Values from the tape, as the rows of the input need them."""
        return values

    def decision(self, outcome: bool) -> None:
        """A branch must be taken on the baseline as on the input."""
        if self.cursor is None:
            self.decisions.append(outcome)
            return
        self.decided += 1
        if self.decided > len(self.decisions) or self.decisions[self.decided - 1] != outcome:
            raise UnsupportedOperation(
                "The network branches: a condition on its values comes out otherwise on the baseline than "
                "on the input, so there is no difference to share out."
            )

    def check_finished(self) -> None:
        """Refuse when the input took fewer steps than the baseline."""
        if self.cursor is not None and self.cursor < len(self.tape):
            name = self.tape[self.cursor][0]
            raise UnsupportedOperation(
                f"The network branches: it calls {name!r} on the baseline and nothing on the input."
            )

    def activation(self, operation: Operation) -> Tensor:
        """Difference of outputs over difference of inputs."""
        x = operation.args[0]
        y = operation(x.detach())
        call = call_of(x) if self.reveal_cancel else None
        if isinstance(call, LinearCall) and call.source._version != call.version:
            call = None
        sources = call.terms if isinstance(call, Sum) else () if call is None else (call.x,)
        kept = self.reference(operation.name, x, y, *sources)
        if kept is None:
            return attach(y, None, x, spare=True)
        x0, y0, *before = kept
        if isinstance(call, Sum):
            return attach(
                y, lambda m: reveal_cancel_sum(operation, before, call, x0, y0, m), *call.terms, spare=True
            )
        if isinstance(call, LinearCall):
            return attach(
                y,
                lambda m: (reveal_cancel_linear(operation, call, before[0], x0, y0, m),),
                call.source,
                spare=True,
            )
        m = slope(operation, x.detach(), x0, y, y0)
        return attach(y, lambda g: (g * m,), x, spare=True)

    elementwise = activation

    def softmax(self, operation: Operation) -> Tensor:
        """Rescale at the exponentials and at the logarithm inside."""
        x = operation.args[0].detach().clone()
        y = operation(x)
        dim = operation.kwargs.get("dim", (*operation.args, None)[1])
        kept = self.reference(operation.name, x)
        if kept is None or dim is None:
            return attach(y, None, operation.args[0])
        back = softmax_slopes(x, kept[0], dim, operation.name == "log_softmax")
        return attach(y, lambda m: (back(m.to(x.dtype)),), operation.args[0])

    def layernorm(self, operation: Operation) -> Tensor:
        """Mean, centred values, square root and product, each by its own rule."""
        with self:
            return Normalisation.of(operation)(operation.args[0])

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
            if operation.kwargs:  # rounding
                refused: Tensor = self.unknown(operation)
                return refused
            with self:
                quotient: Tensor = torch.reciprocal(b) * a
            return quotient
        a0, b0 = self.reference("mul", a, b) or (a, b)
        mean_a, mean_b = (a.detach() + a0.detach()) / 2, (b.detach() + b0.detach()) / 2
        value = a.detach() * b.detach()
        return attach(value, lambda g: (total(g * mean_b, a), total(g * mean_a, b)), a, b)

    # RevealCancel needs to know which linear call fed a nonlinearity; everything linear is otherwise native.

    def linear(self, operation: Operation) -> Tensor:
        """Linear layers pass multipliers by their adjoint."""
        if self.reveal_cancel:
            return apply_rule(layer_call(operation), adjoint())
        return super().linear(operation)

    def matmul(self, operation: Operation) -> Tensor:
        """A product with a constant is a dense layer; of two paths, the Shapley value of the factors."""
        factors = operation.factors()
        assert factors is not None
        a, b, function = factors
        if on_path(a) and on_path(b):
            a0, b0 = self.reference(operation.name, a, b) or (a, b)
            mean_a, mean_b = (a.detach() + a0.detach()) / 2, (b.detach() + b0.detach()) / 2
            value = function(a.detach(), b.detach())
            return attach(value, lambda g: factor_adjoints(function, mean_a, mean_b, g), a, b)
        if self.reveal_cancel:
            return apply_rule(matmul_call(operation), adjoint())
        plain: Tensor = self.native(operation)
        return plain

    def pool(self, operation: Operation) -> Tensor:
        """Averages are linear."""
        if self.reveal_cancel:
            call = record("pool", operation.args[0], operation, lambda x, _: operation(x))
            return apply_rule(call, adjoint())
        plain: Tensor = self.native(operation)
        return plain

    def norm(self, operation: Operation) -> Tensor:
        """Merged into the layer before, so that RevealCancel sees one linear call."""
        call = merged(operation.args[0], *batch_norm_affine(operation)) if self.reveal_cancel else None
        return super().norm(operation) if call is None else apply_rule(call, adjoint())

    def add(self, operation: Operation) -> Tensor:
        """A constant behind a layer is a bias; a sum of two paths is kept for RevealCancel."""
        a, b = operation.args[:2]
        alpha = operation.kwargs.get("alpha", 1)
        if self.reveal_cancel and on_path(a) and on_path(b):
            signs = {"add": (1, alpha), "sub": (1, -alpha), "rsub": (-alpha, 1)}[operation.name]
            # copies: y += x overwrites a summand
            terms = attach(a, lambda g: (g,), a), attach(b, lambda g: (g,), b)
            value = signs[0] * a.detach() + signs[1] * b.detach()
            return attach(
                value,
                lambda g: (total(g * signs[0], a), total(g * signs[1], b)),
                *terms,
                call=Sum(terms, signs),
            )
        if self.reveal_cancel and operation.name == "add" and alpha == 1:
            x, constant = (a, b) if on_path(a) else (b, a)
            call = merged(x, None, constant_like(constant, x).detach())
            if call is not None:
                return apply_rule(call, adjoint())
        native: Tensor = self.native(operation)
        return native


def deeplift(
    model: nn.Module, inputs: Tensor, baseline: Tensor, targets: Tensor, reveal_cancel: bool = False
) -> Tensor:
    """Contributions of ``inputs - baseline`` to the change of the explained output."""
    engine = DeepLift(reveal_cancel)
    start = baseline.to(inputs).expand_as(inputs)
    with full_precision(inputs):
        before = select(forward(engine, model, start)[1], targets).detach()
    engine.cursor = 0
    multipliers, after = propagate(engine, model, inputs, targets)
    engine.check_finished()
    contributions = multipliers * (inputs - start)
    check_sum(contributions, before, after)
    return contributions


def check_sum(contributions: Tensor, before: Tensor, after: Tensor) -> None:
    """Refuse when contributions do not add up: every rule is exact, so the network escaped the rules."""
    parts = contributions.flatten(1)
    tolerance = {torch.float64: 1e-6, torch.float32: 1e-2}.get(parts.dtype, 0.2)
    scale = parts.abs().sum(1) + before.abs() + after.abs()
    # an undefined map compares false and passes: it is a result, to be counted by whoever scores it
    refuse(((parts.sum(1) - (after - before)).abs() > tolerance * scale).any(), _lost)


def _lost() -> UnsupportedOperation:
    return UnsupportedOperation(
        "The contributions do not add up to the change of the output: the network takes another path on "
        "the baseline, or computes with numbers read out of its tensors."
    )
