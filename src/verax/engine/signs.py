"""Signs: which tensors of a network are known to have no negative number, by the calls that made them."""

from __future__ import annotations

from torch import Tensor

from verax.engine.operations import Operation, tensors_in

_KEY = "_verax_positive"

_MAKING = frozenset({"relu", "relu6", "sigmoid", "softmax"})
_POOLS = ("max_pool", "adaptive_max_pool", "adaptive_avg_pool")  # plain averages may divide by any number
_KEEPING = frozenset(f"{pool}{size}d" for pool in _POOLS for size in (1, 2, 3)) | frozenset(
    {"dropout", "reshape", "flatten", "permute", "transpose", "contiguous"}
)
_OPENING = frozenset(
    {"data", "detach", "numpy", "set", "storage", "untyped_storage", "data_ptr", "array", "dlpack"}
    | {"cuda_array_interface", "unsafe_preserve_version_counter", "reduce_ex"}  # as `operations` reads names
)
"""Ways to the memory of a tensor by which it may be written without a trace."""

_OPENED = "_verax_opened"


def _root(tensor: Tensor) -> Tensor:
    """The tensor whose memory this one looks at."""
    return tensor if tensor._base is None else tensor._base


def note(operation: Operation, made: object) -> None:
    """Note of what a call gave that nothing in it is negative, if the call is of that kind."""
    if operation.name in _OPENING:
        for opened in tensors_in(operation.args, operation.kwargs, made):
            setattr(_root(opened), _OPENED, True)  # for all views, those of later too
    if not isinstance(made, Tensor) or made.is_inference():
        return
    kept = operation.name in _KEEPING and known(next(iter(operation.args), None))
    if kept or operation.name in _MAKING:
        setattr(made, _KEY, made._version)


def known(tensor: object, version: int | None = None) -> bool:
    """Whether nothing in a tensor is negative; of an older version of it where one is named."""
    if not isinstance(tensor, Tensor) or hasattr(_root(tensor), _OPENED):
        return False
    noted: int | None = getattr(tensor, _KEY, None)
    return noted is not None and noted == (tensor._version if version is None else version)
