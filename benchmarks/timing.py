"""Clocks: functions in turns, so that a busy machine is unfair to none, and the peak memory of one call."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import accumulate
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

Function = Callable[[], object]
MOST = 200
"""Turns at most; the shortest of more is no shorter."""


def wait(device: str = "cpu") -> None:
    """Until a GPU has done everything that it was asked for."""
    if device == "cuda":
        torch.cuda.synchronize()


def _children() -> float:
    """Seconds of the processor that finished child processes had."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


CLOCKS = {"cpu": time.process_time, "processes": _children}


def once(function: Function, device: str = "cpu") -> float:
    """Seconds of one call; on a CPU those of the processor, which a busy machine lengthens least.

    The device "processes" is for calls that start other processes, whose time it is.
    """
    clock = CLOCKS.get(device, time.perf_counter)
    wait(device)
    start = clock()
    function()
    wait(device)
    return clock() - start


SLOW = 3.0
"""Seconds of a call that is long enough to be measured once."""


def best(
    functions: Mapping[str, Function], seconds: float, device: str = "cpu", least: int = 2
) -> dict[str, float]:
    """The shortest time of each function, run in turns until `seconds` are spent, but `least` times.

    A function that takes long has one turn.
    """
    times = dict.fromkeys(functions, float("inf"))
    end = time.perf_counter() + seconds
    for turn in range(MOST):
        for name, function in functions.items():
            if not SLOW < times[name] < float("inf"):
                times[name] = min(times[name], once(function, device))
        if turn + 1 >= least and time.perf_counter() > end:
            break
    return times


def peak_memory(function: Function, device: str = "cpu") -> float | None:
    """MiB that a call needs beyond what was there before; None where the system cannot say.

    The function should have been called before: a first call keeps things for the next one.

    On a CPU it is the peak of the process's resident memory, which Linux can be asked to forget.
    """
    gc.collect()
    if device == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        function()
        torch.cuda.synchronize()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # what was freed and kept would hide what is needed
        Path("/proc/self/clear_refs").write_text("5")
    except (OSError, AttributeError):
        return None
    before = _high()
    function()
    after = _high()
    return None if before is None or after is None else after - before


def peak_of_tensors(function: Function, device: str = "cpu") -> float:
    """MiB of tensors that a call makes and keeps at the same time, at the most; the same in every run.

    Unlike `peak_memory` it does not see what others than PyTorch keep, nor what the system adds.
    """
    gc.collect()
    if device == "cuda":
        return peak_memory(function, device) or 0.0
    os.environ.setdefault("KINETO_LOG_LEVEL", "9")  # the profiler would tell of each start
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as seen:
        function()
    events = [event for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    return max(accumulate((event.nbytes() for event in events), initial=0)) / 2**20


def _high() -> float | None:
    """The peak of the resident memory in MiB."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    return None
