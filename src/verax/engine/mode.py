"""The rule engine: attribution rules for unmodified networks, as a `TorchFunctionMode`.

While the mode is active every torch call of the network passes through `Engine.__torch_function__`. Calls on
the *path* (those that depend on the explained input) get an autograd node whose backward is an attribution
rule; autograd sums messages where paths join and carries them through reshapes. What flows backward is the
relevance itself (`relevance.py`) or a multiplier, a generalised gradient (`multipliers.py`). No module hook,
no surgery: functional, reused, in-place and residual spellings are seen as what they are.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from verax.engine import signs
from verax.engine.convolutions import layer
from verax.engine.decomposition import FUSED, attention_with_weights, multihead
from verax.engine.gradients import UNCONNECTED
from verax.engine.gradients import leaf as leaf_of
from verax.engine.linear import COPIED, LinearCall, batch_norm_affine
from verax.engine.normalisation import Length
from verax.engine.operations import CATEGORIES, FACTORIES, FACTS, SHAPED, UNARY, Operation, tensors_in
from verax.engine.rules import Rule
from verax.errors import UnsupportedOperation

Back = Callable[[Tensor], Sequence[Tensor]]
_SEEN = "verax"
_SHADOW = "_verax_shadow"
_COPY = "_verax_copy"
_CONSTANT, _CUT, _DECLARED = "constant", "cut", "declared constant"
"""What was made from the input and left the path: masks and indices; values (detach, .data, no_grad); what a
rule itself takes for a constant."""


def on_path(value: Any) -> bool:
    """Whether a tensor depends on the explained input.

    The input is a non-leaf and calls off the path run without grad, so having a grad_fn is being on the path.
    """
    return isinstance(value, Tensor) and value.grad_fn is not None


def _root(value: Any) -> Any:
    """The tensor whose memory a view looks at; anything else as it is."""
    return value._base if isinstance(value, Tensor) and value._base is not None else value


def _unseen(tensor: Tensor) -> bool:
    """Whether something made a tensor on the path that the engine has not marked."""
    node: Any = tensor.grad_fn
    return node is not None and _SEEN not in node.metadata


def _stranger(value: Any) -> bool:
    """Whether a tensor has a graph of its own that never meets the path.

    Networks keep such tensors: a position bias cached by an earlier forward pass outside the engine. What a
    custom autograd function makes from the path does meet it, and is not taken for a constant.
    """
    if not isinstance(value, Tensor) or not _unseen(value):
        return False
    stack: list[Any] = [value.grad_fn]
    visited = set()
    while stack:
        node = stack.pop()
        if node is None or node in visited:
            continue
        if _SEEN in node.metadata:
            return False
        visited.add(node)
        stack.extend(parent for parent, _ in node.next_functions)
    return True


_MADE = threading.local()
"""Where a pass forward of this thread notes its nodes, while there is one."""


class _Node(torch.autograd.Function):
    """An autograd node with a given value and backward; ``tensor.grad_fn.call`` tells what produced it."""

    @staticmethod
    def forward(
        ctx: Any, value: Callable[[], Tensor], back: Back | None, call: Any, *inputs: Tensor
    ) -> Tensor:
        ctx.back, ctx.call = back, call
        if (nodes := getattr(_MADE, "nodes", None)) is not None:
            nodes.append(weakref.ref(ctx))
        return value()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return (None, None, None, *ctx.back(grad))


def attach(
    value: Tensor, back: Back | None, *inputs: Tensor, call: Any = None, spare: bool = False
) -> Tensor:
    """A tensor with `value` on the path behind `inputs`, whose backward is `back`.

    The network may overwrite what it gets, so it gets a copy; a value that is `spare`, because nobody else
    holds it, is handed over as it is.
    """
    give = (lambda: value) if spare else value.detach().clone
    made: Tensor = _Node.apply(give, back, call, *inputs)  # type: ignore[no-untyped-call]
    return made


def apply_rule(call: LinearCall, rule: Rule) -> Tensor:
    """The output of a linear call, with `rule` as its backward."""
    return attach(call.z, lambda r: (rule(call, r),), call.source, call=call)


def declare_constant(value: Tensor) -> Tensor:
    """A tensor made from the input that a rule treats as a constant on purpose."""
    setattr(value, _SHADOW, _DECLARED)
    return value


def total(r: Tensor, like: Tensor) -> Tensor:
    """Undo broadcasting."""
    return r.sum_to_size(like.shape)


class Engine(TorchFunctionMode):
    """Finds the path, undoes in-place calls, refuses what it does not know; alone it gives the gradient.

    What a network makes from its input and takes off the path is a hidden nonlinearity. Masks and indices
    (comparisons, argmax) are constants almost everywhere, so relevance tables accept them, as in
    ``x * (x > 0)``. Values cut off by ``detach``, ``.data`` or ``no_grad`` are not: they are refused where
    they meet the path again. A number read out by ``.item()`` cannot be followed and counts as a log.

    Autocast is switched off while an engine runs: sums of relevance need the network's own precision.
    """

    categories = CATEGORIES
    strict = True  # refuse unknown operations on the path
    hints: ClassVar[dict[str, str]] = {}  # operation -> what to say when it is refused
    masks = True  # masks and indices computed from the input may be used as constants
    layout = torch.contiguous_format  # of the input, and so of what the network makes of it
    watchful = True  # look whether samples mix

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[weakref.ref[Any]] = []

    def release(self) -> None:
        """Let go of all that backward passes needed.

        A tensor that the network overwrote is behind its own rule, which may hold it: a circle through nodes
        of autograd, which Python cannot see and would never take apart.
        """
        for node in filter(None, (reference() for reference in self.nodes)):
            node.back = node.call = None
        self.nodes.clear()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Answer one call of the network."""
        kwargs = kwargs or {}
        if func in FACTS:
            return func(*args, **kwargs)
        tensors = tensors_in(*args, kwargs) if kwargs else tensors_in(*args)
        unseen = any(map(_unseen, tensors))
        if unseen:
            args, kwargs = tree_map(lambda t: t.detach() if _stranger(t) else t, (args, kwargs))
            tensors = tensors_in(args, kwargs)
        name = getattr(func, "__name__", "")
        if name in SHAPED:
            tensors = tensors[:1]
        # torch.zeros(3), set_grad_enabled(False), x.new_zeros(3), ...
        if not tensors or name in FACTORIES:
            return func(*args, **kwargs)
        path = [t for t in tensors if t.grad_fn is not None]
        if unseen:
            self._check_seen(path)
        if not _autocasting():
            return self._answer(func, args, kwargs, tensors, path)
        with full_precision(*tensors):
            return self._answer(func, args, kwargs, tensors, path)

    def _answer(
        self,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tensors: list[Tensor],
        path: list[Tensor],
    ) -> Any:
        shadows = {getattr(t, _SHADOW) for t in tensors if hasattr(t, _SHADOW)}
        if not path:  # weights, masks, constants: keep them off the path
            with torch.no_grad():
                result = func(*args, **kwargs)
            if shadows and isinstance(result, bool):
                self.decision(result)
            return self._mark(result, _CUT if _CUT in shadows else _CONSTANT) if shadows else result
        operation = Operation.parse(func, args, kwargs)
        if operation.in_place and (reason := getattr(_root(args[0]), _COPY, None)):
            raise UnsupportedOperation(reason)
        kind = self.categories.get(operation.name, "unknown")
        if kind in UNARY and any(t is not operation.args[0] for t in path):  # clamp(x, max=y), x ** y, ...
            kind = "unknown"
        if kind == "matmul" and operation.factors() is None:  # einsum of three tensors
            kind = "unknown"
        if self.strict and (_CUT in shadows or (shadows and not self.masks)):
            result = self.unknown(operation, cut=True)
        else:
            result = getattr(self, kind)(operation)
        if isinstance(result, bool):
            self.decision(result)
        if operation.in_place and kind not in ("routing", "unknown"):  # answered out of place: write it back
            made, result = result.grad_fn, args[0].copy_(result)
            if result._base is None and result.grad_fn is not None:
                result.grad_fn.metadata[COPIED] = made
        self._mark(args[0] if result is None and operation.in_place else result)
        signs.note(operation, result)
        return result

    def _check_seen(self, path: list[Tensor]) -> None:
        for tensor in path:
            node: Any = tensor.grad_fn
            if self.strict and _SEEN not in node.metadata:
                raise UnsupportedOperation(
                    f"{node.name()} made a tensor that the engine did not see (a custom autograd "
                    "function, checkpointing, compiled or C++ code)."
                )

    @staticmethod
    def _mark(made: Any, brand: str = _CUT) -> Any:
        """Stamp results on the path as seen; brand those that left it, whole numbers always as constants."""
        tensor: Any
        for tensor in tensors_in(made):
            if (node := tensor.grad_fn) is not None:
                node.metadata[_SEEN] = True
                if on_path(tensor._base):
                    tensor._base.grad_fn.metadata[_SEEN] = True
            elif getattr(tensor, _SHADOW, None) != _DECLARED:
                setattr(tensor, _SHADOW, brand if tensor.is_floating_point() else _CONSTANT)
        return made

    # -- one handler for each category; the base class is native autograd ------------------------------------

    def native(self, operation: Operation) -> Any:
        """The call as PyTorch differentiates it."""
        if operation.in_place and self.categories.get(operation.name, "routing") != "routing":
            # its argument is about to be overwritten, and some derivatives (SiLU, hardswish) need it
            return operation(operation.args[0].clone())
        return operation.run()

    # Aliases at class level: an instance attribute would make a reference cycle that holds the graph.
    routing = activation = elementwise = matmul = add = mul = pool = maxpool = native
    layernorm = softmax = native

    def linear(self, operation: Operation) -> Tensor:
        """A layer as PyTorch differentiates it for its input, by a quicker transpose where there is one."""
        source, *more = (*operation.args, None)[:3]
        if len(operation.args) < 2 or any(isinstance(t, Tensor) and t.grad_fn is not None for t in more):
            made: Tensor = self.native(operation)  # a network that makes its kernels, maybe from its input
            return made
        return layer(operation)(source, *more)

    def attention(self, operation: Operation) -> Tensor:
        """Attention in primitive calls (the mode is off inside a handler, hence ``with self``)."""
        with self:
            return attention_with_weights(*operation.args, **operation.kwargs)[0]

    def multihead(self, operation: Operation) -> Any:
        """Attention with its projections in primitive calls."""
        with self:
            return multihead(*operation.args, **operation.kwargs)

    def begin(self, entry: Tensor) -> None:
        """Called with the input, before the network runs."""

    def fused(self, operation: Operation) -> Tensor:
        """A product and a sum, one after the other."""
        with self:
            return FUSED[operation.name](*operation.args, **operation.kwargs)

    def length(self, operation: Operation) -> Tensor:
        """Square, sum, square root and, for ``F.normalize``, a quotient."""
        call = Length.of(operation)
        if call is None:
            refused: Tensor = self.unknown(operation)
            return refused
        with self:
            return call(operation.args[0])

    def decision(self, outcome: bool) -> None:
        """Called when the network asks whether something made from its input is true."""

    def norm(self, operation: Operation) -> Tensor:
        """Batch normalisation in eval mode is a scale and a shift; to go back, the scale is enough."""
        x, (scale, shift) = operation.args[0], batch_norm_affine(operation)
        if scale.dtype != x.dtype:
            result: Tensor = x * scale + shift
            return result
        with torch.no_grad():
            value = operation(x.detach())
        return attach(value, lambda g: (g * scale,), x, spare=True)

    def dropout(self, operation: Operation) -> Any:
        """Dropout must be switched off."""
        usual = operation.args[2] if len(operation.args) > 2 else True
        if operation.kwargs.get("training", usual):
            raise UnsupportedOperation("Dropout is active; call model.eval().")
        return self.native(operation)

    def unknown(self, operation: Operation, cut: bool = False) -> Any:
        """Let it run, and refuse when relevance arrives there: asserts and logs stay legal.

        Args:
            operation: the call.
            cut: the call has a rule, but one of its arguments was made from the input and left the path.
        """
        if not self.strict:
            return self.native(operation)
        name, hint = type(self).__name__, self.hints.get(operation.name, "")
        if operation.in_place and not cut:
            raise UnsupportedOperation(f"{name} has no rule for the in-place operation {operation.name!r}.")
        leaves = tree_leaves((operation.args, operation.kwargs))
        shapes = ", ".join(str(tuple(t.shape)) for t in leaves if isinstance(t, Tensor))
        reason = f"{name} has no rule for the operation {operation.name!r} on {shapes}{hint}."
        if cut:
            reason = (
                f"{name} has no rule for {operation.name!r} with a value that was made from the input and "
                "taken off the path (detach, .data, no_grad, or a mask)."
            )

        def back(_: Tensor) -> Sequence[Tensor]:
            raise UnsupportedOperation(reason)

        def refusing(t: Any) -> Any:
            if not on_path(t):
                return t
            copied = attach(t, back, t)
            if t._is_view():  # what is written into the copy does not reach what the view looks at
                setattr(copied, _COPY, reason)
            return copied

        return tree_map(refusing, self.native(operation))


_autocasting: Callable[[], bool] = getattr(torch._C, "_is_any_autocast_enabled", lambda: True)
"""Whether autocast may be on, for any kind of device."""


def full_precision(*tensors: Tensor) -> AbstractContextManager[Any]:
    """A context without autocast on the device of the tensors (numbers may stay on the CPU beside a GPU)."""
    kind = next((t.device.type for t in tensors if t.device.type != "cpu"), "cpu")
    if kind == "meta" or not torch.is_autocast_enabled(kind):
        return nullcontext()
    return torch.autocast(kind, enabled=False)


def forward(engine: Engine, model: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """The input leaf and the network's output under the engine."""
    with torch.enable_grad():
        leaf = leaf_of(inputs, engine.layout)
        entry = leaf.clone()  # a non-leaf: on the path, and the network may overwrite it
        Engine._mark(entry)
        engine.begin(entry)
        before, _MADE.nodes = getattr(_MADE, "nodes", None), engine.nodes
        try:
            with engine:
                out = model(entry)
        except BaseException:
            engine.release()
            raise
        finally:
            _MADE.nodes = before
    if isinstance(out, Tensor) and not on_path(out):
        raise UnsupportedOperation(UNCONNECTED)
    if not on_path(out) or (engine.strict and _SEEN not in out.grad_fn.metadata):
        raise UnsupportedOperation(
            "The output does not depend on the input through operations that are known."
        )
    return leaf, out
