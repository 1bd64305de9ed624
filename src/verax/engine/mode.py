"""The rule engine: attribution rules for unmodified networks, as a `TorchFunctionMode`.

While the mode is active every torch call of the network passes through `Engine.__torch_function__`. Calls on
the *path* (those that depend on the explained input) get an autograd node whose backward is an attribution
rule; autograd sums messages where paths join and carries them through reshapes. What flows backward is the
relevance itself (`relevance.py`) or a multiplier, a generalised gradient (`multipliers.py`). No module hook,
no surgery: functional, reused, in-place and residual spellings are seen as what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from verax.engine.gradients import select
from verax.engine.linear import LinearCall, batch_norm_affine
from verax.engine.operations import CATEGORIES, UNARY, Operation
from verax.engine.rules import Rule
from verax.errors import UnsupportedOperation

Back = Callable[[Tensor], Sequence[Tensor]]
_SEEN = "verax"
_SHADOW = "_verax_shadow"


def on_path(value: Any) -> bool:
    """Whether a tensor depends on the explained input.

    The input is a non-leaf and calls off the path run without grad, so having a grad_fn is being on the path.
    """
    return isinstance(value, Tensor) and value.grad_fn is not None


class _Node(torch.autograd.Function):
    """An autograd node with a given value and backward; ``tensor.grad_fn.call`` tells what produced it."""

    @staticmethod
    def forward(
        ctx: Any, value: Callable[[], Tensor], back: Back | None, call: LinearCall | None, *inputs: Tensor
    ) -> Tensor:
        ctx.back, ctx.call = back, call
        return value()  # fresh memory: the network may overwrite it

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return (None, None, None, *ctx.back(grad))


def attach(value: Tensor, back: Back | None, *inputs: Tensor, call: LinearCall | None = None) -> Tensor:
    """A tensor with `value` on the path behind `inputs`, whose backward is `back`."""
    made: Tensor = _Node.apply(value.detach().clone, back, call, *inputs)  # type: ignore[no-untyped-call]
    return made


def apply_rule(call: LinearCall, rule: Rule) -> Tensor:
    """The output of a linear call, with `rule` as its backward."""
    return attach(call.z, lambda r: (rule(call, r),), call.source, call=call)


def total(r: Tensor, like: Tensor) -> Tensor:
    """Undo broadcasting."""
    return r.sum_to_size(like.shape)


class Engine(TorchFunctionMode):
    """Finds the path, undoes in-place calls, refuses what it does not know; alone it gives the gradient."""

    categories = CATEGORIES
    strict = True  # refuse unknown operations on the path
    masks = True  # values computed from the input may be used as constants, as in x * (x > 0)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Answer one call of the network."""
        kwargs = kwargs or {}
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        if not tensors:  # torch.zeros(3), set_grad_enabled(False), ...
            return func(*args, **kwargs)
        path = [t for t in tensors if on_path(t)]
        shadow = any(hasattr(t, _SHADOW) for t in tensors)  # made from the input, not differentiable
        if not path:  # weights, masks, constants: keep them off the path
            with torch.no_grad():
                result = func(*args, **kwargs)
            return self._mark(result) if shadow else result
        self._check_seen(path)
        operation = Operation.parse(func, args, kwargs)
        kind = self.categories.get(operation.name, "unknown")
        if kind in UNARY and any(t is not operation.args[0] for t in path):  # clamp(x, max=y), x ** y, ...
            kind = "unknown"
        handler = self.unknown if shadow and not self.masks else getattr(self, kind)
        result = handler(operation)
        if operation.in_place and kind not in ("routing", "unknown"):  # answered out of place: write it back
            result = args[0].copy_(result)
        self._mark(args[0] if result is None and operation.in_place else result)
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
    def _mark(made: Any) -> Any:
        """Stamp results on the path as seen; brand those that left it (comparisons, indices) as shadows."""
        for tensor in tree_leaves(made):
            if on_path(tensor):
                for seen in (tensor, tensor._base) if on_path(tensor._base) else (tensor,):
                    seen.grad_fn.metadata[_SEEN] = True
            elif isinstance(tensor, Tensor):
                setattr(tensor, _SHADOW, True)
        return made

    # -- one handler for each category; the base class is native autograd ------------------------------------

    def native(self, operation: Operation) -> Any:
        """The call as PyTorch differentiates it."""
        return operation.run()

    # Aliases at class level: an instance attribute would make a reference cycle that holds the graph.
    routing = activation = elementwise = linear = matmul = add = mul = pool = maxpool = native

    def norm(self, operation: Operation) -> Tensor:
        """Batch normalisation in eval mode is a scale and a shift."""
        scale, shift = batch_norm_affine(operation)
        result: Tensor = operation.args[0] * scale + shift
        return result

    def dropout(self, operation: Operation) -> Any:
        """Dropout must be switched off."""
        usual = operation.args[2] if len(operation.args) > 2 else True
        if operation.kwargs.get("training", usual):
            raise UnsupportedOperation("Dropout is active; call model.eval().")
        return self.native(operation)

    def unknown(self, operation: Operation) -> Any:
        """Let it run, and refuse when relevance arrives there: asserts and logs stay legal."""
        if not self.strict:
            return self.native(operation)
        name = type(self).__name__
        if operation.in_place:
            raise UnsupportedOperation(f"{name} has no rule for the in-place operation {operation.name!r}.")
        leaves = tree_leaves((operation.args, operation.kwargs))
        shapes = ", ".join(str(tuple(t.shape)) for t in leaves if isinstance(t, Tensor))

        def back(_: Tensor) -> Sequence[Tensor]:
            raise UnsupportedOperation(
                f"{name} has no rule for the operation {operation.name!r} on {shapes}."
            )

        return tree_map(lambda t: attach(t, back, t) if on_path(t) else t, self.native(operation))


def forward(engine: Engine, model: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """The input leaf and the network's output under the engine."""
    with torch.enable_grad():
        leaf = inputs.detach().clone(memory_format=torch.contiguous_format).requires_grad_()
        entry = leaf.clone()  # a non-leaf: on the path, and the network may overwrite it
        Engine._mark(entry)
        with engine:
            out = model(entry)
    if not on_path(out) or (engine.strict and _SEEN not in out.grad_fn.metadata):
        raise UnsupportedOperation(
            "The output does not depend on the input through operations that are known."
        )
    return leaf, out


def propagate(
    engine: Engine, model: nn.Module, inputs: Tensor, targets: Tensor, start: str = "one"
) -> tuple[Tensor, Tensor]:
    """Backward from the explained output: the result at the input, and the outputs ``(N,)``.

    Args:
        engine: the rules.
        model: the network.
        inputs: ``(N, ...)``.
        targets: ``(N,)``.
        start: begin with 1 ("one"), with the output itself ("output") or with its positive part ("relu").
    """
    leaf, out = forward(engine, model, inputs)
    with torch.enable_grad():
        chosen = select(out, targets)
    value = chosen.detach()
    seed = {"one": torch.ones_like(value), "output": value, "relu": value.clamp_min(0)}[start]
    (result,) = torch.autograd.grad(chosen, leaf, seed)
    return result.detach(), value
