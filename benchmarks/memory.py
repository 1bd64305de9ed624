"""Peak memory of 10,000 samples, a method at a time, each in a process of its own.

What is promised: beyond the inputs, one copy of them, the maps and 1 GiB for the passes.

python benchmarks/memory.py
"""

from __future__ import annotations

import resource
import subprocess
import sys

import torch
from torch import nn

import verax

SAMPLES = 10_000
METHODS = {
    "gradient": {},
    "smoothgrad": {"samples": 4},
    "integrated-gradients": {"steps": 4},
    "gradient-shap": {"samples": 4},
    "lrp-a": {},
    "deeplift-reveal-cancel": {},
    "deep-shap": {"references": 4},
    "grad-cam": {},
    "occlusion": {"window": 16, "stride": 16},
    "rise": {"samples": 16},
    "lime": {"samples": 16, "size": 16},
    "kernel-shap": {"samples": 16, "size": 16},
    "exact-shapley": {"size": 32},
}


def peak() -> float:
    """The largest memory of this process so far, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def measure(name: str) -> None:
    """Explain all samples and print what that took beyond what was there before."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 5, 4), nn.ReLU(), nn.Conv2d(8, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(392, 4)
    ).eval()
    inputs = torch.rand(SAMPLES, 3, 64, 64)
    targets = torch.arange(SAMPLES) % 4
    verax.explain(model, inputs[:2], targets[:2], method=name, **METHODS[name])
    before, size = peak(), inputs.numel() * 4 / 2**30
    verax.explain(model, inputs, targets, method=name, **METHODS[name])
    used, allowed = peak() - before, 2 * size + 1
    print(f"{name:26s}{used:6.2f} GiB of {allowed:.2f}{'' if used <= allowed else '  too much'}", flush=True)


def main() -> None:
    """Print a line for each method."""
    if len(sys.argv) > 1:
        measure(sys.argv[1])
        return
    for name in METHODS:
        subprocess.run([sys.executable, __file__, name], check=True)


if __name__ == "__main__":
    main()
