"""Precision: full float32 by fixed algorithms, whatever the process was told, and back again.

PyTorch can be asked in two ways, by old names (`allow_tf32`, `set_float32_matmul_precision`) and for each
library and kind of operation apart (`fp32_precision`). Where both were used it refuses to say what the old
names stand for; the places say it always.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, TypeVar

import torch

T = TypeVar("T")

TURN = threading.RLock()
"""Held while a network is in eval mode, or settings of the process are changed: of two threads that put
something back, one would put back what the other had changed."""

_BACKENDS: Any = torch.backends
_CUDNN = _BACKENDS.cudnn
_ON_CPU = (_BACKENDS.mkldnn.conv, _BACKENDS.mkldnn.rnn, _BACKENDS.mkldnn.matmul)
_PLACES = (_CUDNN.conv, _CUDNN.rnn, _BACKENDS.cuda.matmul, *_ON_CPU)
_WHOLES = (_BACKENDS, _CUDNN, _BACKENDS.mkldnn)
"""What places follow that say nothing themselves."""
_FULL, _ROUNDED, _UNSAID = "ieee", "tf32", "none"


def _read(ask: Callable[[], T]) -> T | None:
    """What torch says, or None where it refuses."""
    try:
        return ask()
    except RuntimeError:
        return None


def products() -> str | None:
    """The precision of matrix products by its old name; None where torch refuses to say."""
    return _read(torch.get_float32_matmul_precision)


def exact_products() -> None:
    """Products of matrices in full float32 from here on; those who keep settings put the precision back."""
    if products() not in (None, "highest"):
        torch.set_float32_matmul_precision("highest")


def _usual() -> bool:
    """Whether a CPU computes as in a fresh process, in which it does so in full float32."""
    if products() != "highest" or torch.is_autocast_enabled("cpu") or torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return False
    return all(place.fp32_precision in (_UNSAID, _FULL) for place in _ON_CPU)


@contextmanager
def precisely(device: torch.device) -> Iterator[None]:
    """Full float32 everywhere, fixed algorithms and no autocast, so that a GPU gives the CPU's numbers.

    Settings of the whole process: to be entered where threads take turns, as in `undisturbed`.

    Args:
        device: where most of the work is; on a CPU there may be nothing to do.
    """
    if device.type == "cpu" and _usual():
        try:
            yield
        finally:
            exact_products()
        return
    with ExitStack() as stack:
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        stack.enter_context(_full())
        yield


@contextmanager
def kept() -> Iterator[None]:
    """Put back precision and the choice of kernels, whatever is set inside."""
    with TURN:  # what somebody sets who explains meanwhile is not the caller's
        before = _settings()
    try:
        yield
    finally:
        with TURN:
            _put_back(before)


class _Settings(NamedTuple):
    """What torch says of itself; None where it refuses."""

    tf32: bool | None
    products: str | None
    places: list[str]
    kernels: tuple[bool, bool, bool]


def _settings() -> _Settings:
    places = [place.fp32_precision for place in (*_WHOLES, *_PLACES)]
    return _Settings(_tf32(), products(), places, _kernels())


def _put_back(before: _Settings) -> None:
    if _kernels() != before.kernels:
        _CUDNN.enabled, _CUDNN.benchmark, _CUDNN.deterministic = before.kernels
    # the old names first: they set places, too
    if before.tf32 is not None and _tf32() is not before.tf32:
        _CUDNN.allow_tf32 = before.tf32
    if before.products is not None and products() != before.products:
        torch.set_float32_matmul_precision(before.products)
    for place, precision in zip((*_WHOLES, *_PLACES), before.places, strict=True):
        if place.fp32_precision != precision:
            place.fp32_precision = _UNSAID  # what comes from the whole process should go on to
        if place.fp32_precision != precision:
            place.fp32_precision = precision


def _tf32() -> bool | None:
    return _read(lambda: bool(_CUDNN.allow_tf32))


def _kernels() -> tuple[bool, bool, bool]:
    return _CUDNN.enabled, _CUDNN.benchmark, _CUDNN.deterministic


@contextmanager
def _full() -> Iterator[None]:
    with kept():
        _CUDNN.benchmark, _CUDNN.deterministic = False, True
        if _tf32():
            _CUDNN.allow_tf32 = False
        exact_products()
        for place in _PLACES:
            if place.fp32_precision not in (_UNSAID, _FULL):
                place.fp32_precision = _FULL
        yield


@contextmanager
def fresh() -> Iterator[None]:
    """Precision and kernels of a fresh process: TF32 for convolutions on a GPU, full float32 for all else."""
    with kept():
        with TURN:
            _make_fresh()
        yield


def _make_fresh() -> None:
    if _kernels() != (True, False, False):
        _CUDNN.enabled, _CUDNN.benchmark, _CUDNN.deterministic = True, False, False
    if _tf32() is False:
        _CUDNN.allow_tf32 = True
    exact_products()
    for place in (_BACKENDS.cuda.matmul, *_ON_CPU):
        if place.fp32_precision not in (_UNSAID, _FULL):
            place.fp32_precision = _FULL
    for place in (_CUDNN.conv, _CUDNN.rnn):
        if place.fp32_precision != _ROUNDED:
            place.fp32_precision = _ROUNDED


@contextmanager
def searching(device: torch.device) -> Iterator[None]:
    """Let cuDNN look for its fastest kernels, for training, in which shapes hardly change.

    In the main thread alone: it waits for the whole GPU, which spoils what other threads measure and record.
    """
    if device.type != "cuda" or threading.current_thread() is not threading.main_thread():
        yield
        return
    with TURN:
        before, _CUDNN.benchmark = _CUDNN.benchmark, True
    try:
        yield
    finally:
        with TURN:  # somebody who explains beside it puts back what was there when it began
            _CUDNN.benchmark = before
