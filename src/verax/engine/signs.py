"""Signs: which tensors of a network are known to have no negative number, by the calls that made them."""

from __future__ import annotations

from torch import Tensor

from verax.engine.operations import Operation

_KEY = "_verax_positive"

_MAKING = frozenset({"relu", "relu6", "sigmoid", "softmax"})
_POOLS = ("max_pool", "adaptive_max_pool", "adaptive_avg_pool")  # plain averages may divide by any number
_KEEPING = frozenset(f"{pool}{size}d" for pool in _POOLS for size in (1, 2, 3)) | frozenset(
    {"dropout", "reshape", "flatten", "permute", "transpose", "contiguous"}
)
_OPENING = frozenset({"data", "detach", "numpy"})  # ways to write without a trace


def note(operation: Operation, made: object) -> None:
    """Note of what a call gave that nothing in it is negative, if the call is of that kind."""
    if operation.name in _OPENING:
        vars(operation.args[0]).pop(_KEY, None)
    if not isinstance(made, Tensor) or made.is_inference():
        return
    kept = operation.name in _KEEPING and known(next(iter(operation.args), None))
    if kept or operation.name in _MAKING:
        setattr(made, _KEY, made._version)


def known(tensor: object, version: int | None = None) -> bool:
    """Whether nothing in a tensor is negative; of an older version of it where one is named."""
    if not isinstance(tensor, Tensor):
        return False
    noted: int | None = getattr(tensor, _KEY, None)
    return noted is not None and noted == (tensor._version if version is None else version)
