"""The vocabulary of the rule engine: torch calls, recognised by name and sorted into categories.

``F.relu``, ``torch.relu``, ``Tensor.relu``, ``Tensor.relu_`` and ``nn.ReLU`` are one thing here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from verax.errors import UnsupportedOperation

_NAMES = {
    "routing": (
        "view view_as reshape reshape_as flatten unflatten ravel permute transpose swapaxes movedim t T mT "
        "squeeze unsqueeze expand expand_as broadcast_to repeat tile getitem setitem select narrow "
        "index_select gather chunk split tensor_split unbind unfold cat stack hstack vstack contiguous "
        "clone copy to type float double half cpu cuda pad roll flip pixel_shuffle pixel_unshuffle "
        "channel_shuffle masked_fill where"
    ),
    "activation": (
        "relu relu6 leaky_relu rrelu prelu elu celu selu gelu silu mish hardtanh hardswish hardsigmoid "
        "softplus softsign tanh sigmoid logsigmoid clamp clamp_min clamp_max clip threshold neg"
    ),
    "elementwise": "exp log sqrt rsqrt square abs erf pow reciprocal",
    "linear": "linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d",
    "matmul": "matmul mm bmm rmatmul",
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
    "dropout": "dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout",
}

CATEGORIES: dict[str, str] = {name: kind for kind, names in _NAMES.items() for name in names.split()}
"""Name of a call -> its category."""

UNARY = frozenset({"activation", "elementwise", "linear", "pool", "maxpool", "norm", "dropout"})
"""Categories in which only the first argument may depend on the input."""

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
_IN_PLACE_OPERATORS = ("iadd", "isub", "imul", "idiv", "itruediv")


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
        raw = getattr(function, "__name__", repr(function))
        if raw in ("__get__", "__set__"):  # x.shape, x.T, x.data, ...
            return cls(function.__self__.__name__, function, args, kwargs, raw == "__set__")
        name, dunder = raw.strip("_"), raw.startswith("__")
        in_place = raw == "__setitem__" if dunder else raw.endswith("_")
        if dunder and name in _IN_PLACE_OPERATORS:
            name, in_place = name[1:], True
        in_place = in_place or bool(kwargs.get("inplace"))
        operation = cls(_ALIASES.get(name, name), function, args, dict(kwargs), in_place)
        if kwargs.get("out") is not None:
            raise UnsupportedOperation(f"The network calls {operation.name!r} with out=, which has no rule.")
        if CATEGORIES.get(operation.name, "routing") != "routing":
            operation._make_positional()
        return operation

    def _make_positional(self) -> None:
        for position, key in enumerate(("input", "weight", "bias")):
            if key in self.kwargs and len(self.args) == position:
                self.args += (self.kwargs.pop(key),)
        if "inplace" in self.kwargs:
            self.kwargs["inplace"] = False
        elif self.in_place:  # x.relu_() becomes Tensor.relu, F.elu_ becomes F.elu
            self.function = getattr(torch.Tensor, self.name, None) or getattr(F, self.name)

    def __call__(self, x: Tensor) -> Any:
        """The call, out of place, with another first argument."""
        return self.function(x, *self.args[1:], **self.kwargs)

    def run(self) -> Any:
        """The call as it stands."""
        return self.function(*self.args, **self.kwargs)
