"""How far two methods are from what the device can do: the two floors, arithmetic and memory.

The operations of one pass are counted while it runs: their floating-point operations, and the bytes that
each reads and writes if nothing is kept in between. The operation with most arithmetic, the dominating
kernel, is then run alone on the very tensors that it had; its rate is what is attainable. The floors are the
seconds that all passes would take at that rate, and at the rate of a plain copy of memory.

It is part of benchmarks/speed.py.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten
from torch.utils.flop_counter import flop_registry

import timing
import verax
from records import Result
from verax.engine.batching import rows_within_budget
from workloads import Workload, workload

METHODS = {"integrated-gradients": True, "kernel-shap": False}
"""Method -> whether its passes go backward."""
CUDA = ("resnet18-224", "cnn4", "vit-s-224")
CPU = ("cnn4",)
TARGET = 0.5


class Count(TorchDispatchMode):
    """Arithmetic and traffic of all operations, and the one with most arithmetic."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0
        self.bytes = 0
        self.by_name: Counter[str] = Counter()
        self.largest: tuple[int, Any, tuple[Any, ...], dict[str, Any]] = (0, None, (), {})

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and count it."""
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        packet = func._overloadpacket
        views = all(result.alias_info is not None for result in func._schema.returns)
        if not views:
            self.bytes += sum(map(_bytes, tree_flatten((args, kwargs, out))[0]))
        if packet in flop_registry:
            flops = flop_registry[packet](*args, **kwargs, out_val=out)
            self.flops += flops
            self.by_name[str(packet)] += flops
            if flops > self.largest[0]:
                self.largest = (flops, func, args, kwargs)
        return out


def _bytes(thing: object) -> int:
    return thing.numel() * thing.element_size() if isinstance(thing, Tensor) else 0


def counted(w: Workload, rows: int, backward: bool) -> Count:
    """What one pass of so many rows does."""
    some = w.first(rows)
    x = some.x.clone().requires_grad_(backward)
    with torch.set_grad_enabled(backward), Count() as count:
        out = w.model(x).gather(1, some.y[:, None]).sum()
        if backward:
            torch.autograd.grad(out, x)
    return count


def rows_of(model: nn.Module, function: timing.Function) -> int:
    """How many rows a call sends through the network."""
    seen = []
    hook = model.register_forward_pre_hook(lambda module, given: seen.append(len(given[0])))
    try:
        function()
    finally:
        hook.remove()
    return sum(seen)


def bandwidth(device: str) -> float:
    """Bytes a second of a plain copy."""
    source = torch.ones(2**28 if device == "cuda" else 2**24, device=device)
    out = torch.empty_like(source)
    took = timing.best({"copy": lambda: out.copy_(source)}, 0.3, device)["copy"]
    return 2 * source.numel() * 4 / took


def exact() -> Any:
    """The arithmetic that maps are computed with: full float32, fixed algorithms."""
    cudnn = torch.backends.cudnn
    return cudnn.flags(enabled=cudnn.enabled, benchmark=False, deterministic=True, allow_tf32=False)


def floor(method: str, w: Workload, device: str, copied: float) -> tuple[Result, dict[str, Any]]:
    """One method beside its floors."""
    parameters = {"steps": w.draws} if METHODS[method] else {"samples": w.coalitions, "size": w.size}

    def ours() -> Tensor:
        return verax.explain(w.model, w.x, w.y, method=method, batch_size=len(w.x), settings=parameters)

    total = rows_of(w.model, ours)
    rows = min(rows_within_budget(w.x[0]), total)
    count = counted(w, rows, METHODS[method])
    flops, func, args, kwargs = count.largest
    with exact(), torch.no_grad():
        spent = timing.best({"kernel": lambda: func(*args, **kwargs)}, 0.3, device)
    rate = flops / spent["kernel"]
    took = timing.best({"ours": ours}, 1.0, device)["ours"]
    whole, moved = count.flops / rows * total, count.bytes / rows * total
    about = {
        "method": method,
        "network": w.name,
        "batch": len(w.x),
        "rows": total,
        "rows of a pass": rows,
        "kernel": str(func._overloadpacket),
        "kernel shapes": [list(a.shape) for a in args if isinstance(a, Tensor)],
        "share of the kernel's kind": count.by_name[str(func._overloadpacket)] / count.flops,
        "FLOP": float(whole),
        "bytes": float(moved),
        "FLOP floor": whole / rate / took,
        "byte floor": moved / copied / took,
    }
    if device == "cuda":
        about |= {
            "seconds": took,
            "FLOP floor seconds": whole / rate,
            "byte floor seconds": moved / copied,
            "kernel TFLOP/s": rate / 1e12,
            "copy TB/s": copied / 1e12,
            "samples a second": len(w.x) / took,
        }
    share = whole / took / rate
    result = Result(
        "floors",
        method,
        w.name,
        len(w.x),
        device,
        ours=1.0,
        unit="call",
        ratio=share,
        target=TARGET,
        floor=max(about["FLOP floor"], about["byte floor"]),
    )
    return result, about


def measured(device: str, end: float) -> tuple[list[Result], dict[str, Any]]:
    """All floors until the clock says `end`: 256 samples on a GPU, 8 on a CPU."""
    results, details, skipped = [], [], []
    copied = bandwidth(device)
    for name in CUDA if device == "cuda" else CPU:
        for method in METHODS:
            if time.perf_counter() > end:
                skipped.append(f"{method} on {name}: no time left")
                continue
            try:
                w = workload(name, device).first(256 if device == "cuda" else 8)
                # noise: on black pictures most masks change nothing, and cost nothing
                w = replace(w, x=torch.rand(w.x.shape, generator=torch.Generator().manual_seed(1)).to(w.x))
                result, about = floor(method, w, device, copied)
            except (ImportError, torch.OutOfMemoryError) as error:
                skipped.append(f"{method} on {name}: {type(error).__name__}")
                continue
            results.append(result)
            details.append(about)
            print(f"{name} {method}: {100 * result.ratio:.0f} % of {about['kernel']}", flush=True)
    return results, {"floors": details, "floors left out": skipped}
