"""Precision: full float32 by fixed algorithms, whatever the process was told, and back again.

PyTorch can be asked in two ways, by old names (`allow_tf32`, `set_float32_matmul_precision`) and for each
library and kind of operation apart (`fp32_precision`). Where both were used it refuses to say what the old
names stand for; the places say it always.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import torch

T = TypeVar("T")

TURN = threading.RLock()
"""Held while a network is in eval mode, or settings of the process are changed: of two threads that put
something back, one would put back what the other had changed."""

_BACKENDS: Any = torch.backends
_CUDNN = _BACKENDS.cudnn
_ON_CPU = (_BACKENDS.mkldnn.conv, _BACKENDS.mkldnn.rnn, _BACKENDS.mkldnn.matmul)
_PLACES = (_CUDNN.conv, _CUDNN.rnn, _BACKENDS.cuda.matmul, *_ON_CPU)
_FULL, _UNSAID = "ieee", "none"


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
def _full() -> Iterator[None]:
    # the old names first: they set places, too
    tf32, named = _read(lambda: _CUDNN.allow_tf32), products()
    before = [place.fp32_precision for place in _PLACES]
    kernels = _CUDNN.benchmark, _CUDNN.deterministic
    try:
        _CUDNN.benchmark, _CUDNN.deterministic = False, True
        if tf32:
            _CUDNN.allow_tf32 = False
        exact_products()
        for place in _PLACES:
            if place.fp32_precision not in (_UNSAID, _FULL):
                place.fp32_precision = _FULL
        yield
    finally:
        _CUDNN.benchmark, _CUDNN.deterministic = kernels
        if tf32 is not None:
            _CUDNN.allow_tf32 = tf32
        if named is not None:
            torch.set_float32_matmul_precision(named)
        for place, precision in zip(_PLACES, before, strict=True):
            if place.fp32_precision != precision:
                place.fp32_precision = _UNSAID  # what comes from the whole process should go on to
            if place.fp32_precision != precision:
                place.fp32_precision = precision


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
