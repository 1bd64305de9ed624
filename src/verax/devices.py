"""Which device to compute on, and how much of its memory was needed."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from verax.errors import DeviceUnavailable, InvalidParameter, suggestion


def resolve(device: str | torch.device = "auto") -> torch.device:
    """Turn ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or ``"mps"`` into a device that exists here."""
    if isinstance(device, torch.device):
        device = str(device)
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda", "mps") or (index and not index.isdigit()):
        known = ["auto", "cpu", "cuda", "mps"]
        hint = "; did you mean 'cuda'?" if kind == "gpu" else suggestion(kind, known)
        raise InvalidParameter(f"There is no device named {device!r}{hint}")
    available = {
        "cpu": 1,
        "cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "mps": int(torch.backends.mps.is_available()),
    }[kind]
    if int(index or 0) >= available:
        have = "no such device" if available == 0 else f"only {available}"
        raise DeviceUnavailable(f"Device {device!r} was asked for, but this machine has {have}; try 'cpu'.")
    return torch.device(device)


CACHE, LEAST = 2**19, 8
"""Input numbers of one pass on a CPU, and its least rows: a network's layers then stay about in the cache.

Measured: a tenth to a quarter less time on cnn4 than with twice as many; below 8 rows it is more again.
"""


def cached_rows(sample: torch.Tensor) -> int:
    """How many rows like one sample go through a network at once on a CPU.

    More leave the cache, and what a layer gives gets new pages of memory every time from 32 MB on.
    """
    return max(LEAST, CACHE // max(1, sample.numel()))


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread: how many share a sum decides its last digit."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def describe(device: torch.device) -> str:
    """The device in words, for manifests."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


_TRIM, _MAP = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of glibc's malloc.h
_KEPT, _MAPPED = 2**31 - 1, 2**30


class _Heap:
    """The memory of this process that was freed and not handed back, where the library of C can be told."""

    def __init__(self) -> None:
        self.kept = False

    def keep(self) -> None:
        """Keep freed memory for the next tensors.

        A pass frees tensors of megabytes. Each is handed back to the system, which then fills the next one
        with zeros, page by page: a tenth of the time of a pass. For processes that do nothing but compute.
        """
        try:
            library = ctypes.CDLL(None)
            self.kept = bool(library.mallopt(_MAP, _MAPPED) and library.mallopt(_TRIM, _KEPT))
        except (AttributeError, TypeError, OSError):  # not glibc
            self.kept = False

    def hand_back(self) -> None:
        """Hand back what was kept, so that what is resident is what is in use."""
        if self.kept:
            ctypes.CDLL(None).malloc_trim(0)


HEAP = _Heap()


class Moment:
    """A point in time on a device: when it has done all that it was asked for until now.

    A GPU does later what it is asked for, and nobody waits for it but those who need its answers.
    """

    def __init__(self, device: torch.device) -> None:
        self.event: torch.cuda.Event | None = None
        if device.type == "cuda":
            with torch.cuda.device(device):
                self.event = torch.cuda.Event(enable_timing=True, blocking=True)  # type: ignore[no-untyped-call]
                self.event.record()
        self.now = time.perf_counter()

    def wait(self) -> None:
        """Return when it is over."""
        if self.event is not None:
            self.event.synchronize()

    def since(self, other: Moment) -> float:
        """Seconds between two moments that are over, on a GPU by its own clock."""
        if self.event is None or other.event is None:
            return self.now - other.now
        return float(other.event.elapsed_time(self.event)) / 1e3


class Memory:
    """How much memory a piece of work needed beyond what was in use before it.

    On a GPU torch counts what it allocates. Elsewhere it is the resident memory of this process, whose peak
    only Linux lets be set back; where that is not possible, nothing is said.
    """

    _STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.before: int | None = None
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            self.before = torch.cuda.memory_allocated(device)
            return
        HEAP.hand_back()
        try:
            self._CLEAR.write_text("5")  # sets the peak back to what is resident now
            self.before = self._resident("VmHWM")
        except (OSError, ValueError):
            return

    def _resident(self, field: str) -> int:
        line = next(line for line in self._STATUS.read_text().splitlines() if line.startswith(field))
        return 1024 * int(line.split()[1])

    def peak(self) -> int | None:
        """Bytes; None where it cannot be known."""
        if self.before is None:
            return None
        now = (
            torch.cuda.max_memory_allocated(self.device)
            if self.device.type == "cuda"
            else self._resident("VmHWM")
        )
        return max(0, now - self.before)
