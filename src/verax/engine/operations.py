"""The vocabulary of the rule engine: torch calls, recognised by name and sorted into categories.

``F.relu``, ``torch.relu``, ``Tensor.relu``, ``Tensor.relu_`` and ``nn.ReLU`` are one thing here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_leaves

from verax.errors import UnsupportedOperation

_NAMES = {
    "routing": (
        "view view_as reshape reshape_as flatten unflatten ravel permute transpose swapaxes movedim t T mT "
        "swapdims moveaxis squeeze unsqueeze expand expand_as broadcast_to repeat repeat_interleave tile "
        "getitem setitem select narrow "
        "index_select gather chunk split tensor_split unbind unfold cat stack hstack vstack contiguous "
        "clone copy to type type_as float double half bfloat16 cpu cuda pad roll flip "
        "pixel_shuffle pixel_unshuffle channel_shuffle masked_fill where"
    ),
    "activation": (
        "relu relu6 leaky_relu rrelu prelu elu celu selu gelu silu mish hardtanh hardswish hardsigmoid "
        "softplus softsign tanh sigmoid logsigmoid clamp clamp_min clamp_max clip threshold neg"
    ),
    "elementwise": "exp log sqrt rsqrt square abs erf pow reciprocal rdiv rtruediv",
    "linear": "linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d",
    "matmul": "matmul mm bmm rmatmul einsum",
    "add": "add sub rsub",
    "mul": "mul div",
    "pool": (
        "avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d "
        "mean sum interpolate upsample"
    ),
    "maxpool": (
        "max_pool1d max_pool2d max_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d amax"
    ),
    "norm": "batch_norm",
    "layernorm": "layer_norm rms_norm group_norm instance_norm",
    "softmax": "softmax log_softmax",
    "attention": "scaled_dot_product_attention",
    "multihead": "multi_head_attention_forward",
    "fused": "addmm baddbmm addmv addcmul",
    "length": "norm linalg_norm linalg_vector_norm normalize",
    "dropout": "dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout",
}

CATEGORIES: dict[str, str] = {name: kind for kind, names in _NAMES.items() for name in names.split()}
"""Name of a call -> its category."""

_UNARY = "activation elementwise linear pool maxpool norm layernorm length softmax dropout"
UNARY = frozenset(_UNARY.split())
"""Categories in which only the first argument may depend on the input."""

FACTORIES = frozenset(
    ("new_zeros", "new_ones", "new_full", "new_empty", "zeros_like", "ones_like", "full_like", "empty_like")
)
"""Calls that take a tensor for its shape and type alone: what they make does not depend on its values."""

SHAPED = frozenset(("expand_as", "view_as", "reshape_as", "type_as", "to"))
"""Calls that take further tensors for their shape and type alone."""

_TENSOR: Any = Tensor
FACTS = frozenset(
    (
        *(
            getattr(_TENSOR, name).__get__
            for name in ("shape", "ndim", "dtype", "device", "is_cuda", "layout", "requires_grad")
        ),
        *(getattr(_TENSOR, name) for name in ("size", "dim", "numel", "nelement", "__len__")),
        _TENSOR.is_floating_point,
    )
)
"""Questions about a tensor whose answers do not depend on its values."""


_PLAIN = frozenset((int, float, bool, str))


def tensors_in(*values: Any) -> list[Tensor]:
    """All tensors in arguments of a call, in order; most calls have few, and no containers."""
    found: list[Tensor] = []
    for value in values:
        if value is None or type(value) in _PLAIN:
            continue
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += tensors_in(*value)
        elif isinstance(value, Mapping):
            if value:
                found += tensors_in(*value.values())
        else:
            found += [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]
    return found


_ALIASES = {
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "true_divide": "div",
    "truediv": "div",
    "negative": "neg",
    "concat": "cat",
    "concatenate": "cat",
    "radd": "add",
    "rmul": "mul",
}
_POSITIONAL = {
    "linear": ("input", "weight", "bias"),
    "add": ("input", "other"),
    "mul": ("input", "other"),
    "matmul": ("input", "other"),
}
_IN_PLACE_OPERATORS = ("iadd", "isub", "imul", "idiv", "itruediv")


@lru_cache(maxsize=1024)
def read(function: Any) -> tuple[str, bool, bool]:
    """The name of what a network calls, whether it works in place, and whether it is an attribute."""
    raw = getattr(function, "__name__", None) or repr(function)
    if raw in ("__get__", "__set__"):  # x.shape, x.T, x.data, ...
        return function.__self__.__name__, raw == "__set__", True
    name, dunder = raw.strip("_"), raw.startswith("__")
    in_place = raw == "__setitem__" if dunder else raw.endswith("_")
    if dunder and name in _IN_PLACE_OPERATORS:
        name, in_place = name[1:], True
    return _ALIASES.get(name, name), in_place, False


@dataclass
class Operation:
    """One intercepted call, with aliases and in-place spellings removed."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    in_place: bool

    @classmethod
    def parse(cls, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Operation:
        """Read a call as PyTorch hands it to a function mode."""
        name, in_place, asked = read(function)
        if asked:
            return cls(name, function, args, kwargs, in_place)
        operation = cls(name, function, args, dict(kwargs), in_place or bool(kwargs.get("inplace")))
        if kwargs.get("out") is not None:
            raise UnsupportedOperation(f"The network calls {operation.name!r} with out=, which has no rule.")
        if CATEGORIES.get(operation.name, "routing") != "routing":
            operation._make_positional()
        return operation

    def _make_positional(self) -> None:
        if not self.kwargs and not self.in_place and self.name != "einsum":
            return
        for position, key in enumerate(_POSITIONAL.get(CATEGORIES[self.name], ("input",))):
            for given in (key, "mat2") if key == "other" else (key,):
                if given in self.kwargs and len(self.args) == position:
                    self.args += (self.kwargs.pop(given),)
        if self.name == "einsum" and len(self.args) == 2 and isinstance(self.args[1], list | tuple):
            self.args = (self.args[0], *self.args[1])
        if "inplace" in self.kwargs:
            self.kwargs["inplace"] = False
        elif self.in_place:  # x.relu_() becomes Tensor.relu, F.elu_ becomes F.elu
            self.function = getattr(torch.Tensor, self.name, None) or getattr(F, self.name)

    def __call__(self, x: Tensor) -> Any:
        """The call, out of place, with another first argument."""
        return self.function(x, *self.args[1:], **self.kwargs)

    def factors(self) -> tuple[Tensor, Tensor, Callable[[Tensor, Tensor], Tensor]] | None:
        """A product as (a, b, bilinear function); None where it is not one of exactly two tensors."""
        if self.name == "einsum":
            if len(self.args) != 3 or not isinstance(self.args[0], str):
                return None
            equation = self.args[0]
            return self.args[1], self.args[2], lambda a, b: torch.einsum(equation, a, b)
        a, b = self.args[:2] if self.name != "rmatmul" else self.args[1::-1]
        return a, b, torch.matmul

    def run(self) -> Any:
        """The call as it stands."""
        return self.function(*self.args, **self.kwargs)
