"""Every Python process with this folder on its path has a GPU that is none (`make test-gpu`).

Tensors of the device "cuda" lie in ordinary memory, and their operations run on the CPU (`gpu.cpp`). What is
tested on it is all that a GPU's own code paths do but speed, rounding and recorded steps: that nothing of the
CPU is mixed in, that the right kernels are chosen, how often one waits, how much memory is held.
"""

import contextlib
import ctypes
import sys
import time
from pathlib import Path
from types import SimpleNamespace

LIBRARY = Path(sys.prefix) / "pretended-gpu.so"
TOTAL = 8 * 2**30


class Event:
    """A point in time; what comes before it is over as soon as it is asked for."""

    def __init__(self, *_, **__):
        self.at = 0.0

    def record(self, *_):
        self.at = time.perf_counter()

    def elapsed_time(self, other):
        return 1e3 * (other.at - self.at)

    def synchronize(self):
        """Nothing to wait for."""

    wait = synchronize


class Stream:
    """An order of work, which there is one of."""

    def __init__(self, *_, **__):
        pass

    def wait_stream(self, other):
        """Nothing to wait for."""

    wait_event = wait_stream

    def synchronize(self):
        """Nothing to wait for."""


def cloned(storage):
    """A copy of memory, which PyTorch's own face makes for kinds of memory that it has been built with."""
    import torch

    if storage.device.type != "cuda":
        return type(storage)(storage.nbytes(), device=storage.device).copy_(storage)
    count = storage.nbytes()
    bytes_of_it = torch.empty(0, dtype=torch.uint8, device="cuda").set_(storage, 0, (count,), (1,))
    return bytes_of_it.clone().untyped_storage()


def pretend():
    """Put the library under PyTorch, which has to be asked before it is imported, and a face on it."""
    assert "torch" not in sys.modules, "the pretended GPU has to come before PyTorch"
    ctypes.CDLL(str(LIBRARY))
    import torch

    own, name = torch.ops.pretended, "a pretended GPU"
    face = {
        "_lazy_init": lambda: None,
        "_initialized": True,
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "is_bf16_supported": lambda *_: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_name": lambda *_: name,
        "get_device_capability": lambda *_: (9, 0),
        "get_device_properties": lambda *_: SimpleNamespace(
            name=name, major=9, minor=0, total_memory=TOTAL, multi_processor_count=1
        ),
        "synchronize": lambda *_: None,
        "empty_cache": lambda: None,
        "mem_get_info": lambda *_: (TOTAL - own.held(), TOTAL),
        "memory_allocated": lambda *_: own.held(),
        "max_memory_allocated": lambda *_: own.most(),
        "reset_peak_memory_stats": lambda *_: own.forget(),
        "manual_seed": lambda _: None,
        "manual_seed_all": lambda _: None,
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "set_rng_state": lambda *_: None,
        "Event": Event,
        "Stream": Stream,
        "current_stream": lambda *_: Stream(),
        "stream": lambda _: contextlib.nullcontext(),
        "device": lambda _: contextlib.nullcontext(),
    }
    for word, value in face.items():
        setattr(torch.cuda, word, value)
    torch.UntypedStorage.clone = cloned


if LIBRARY.exists():
    pretend()
