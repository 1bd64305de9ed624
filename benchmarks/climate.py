"""A million samples of a field and F of each: time, peak memory, and a plain Python loop for comparison.

What is promised: under 60 s on two cores (target 30), at least 100 times the loop, memory for a chunk unless
samples are kept. Every line is measured in a process of its own.

python benchmarks/climate.py [--samples 1000000] [--device cpu] [--field analytic]
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import verax

LOOPED = 300


def peak() -> float:
    """The largest memory of this process so far, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def looped(task, count: int) -> np.ndarray:
    """F as one writes it first: a draw at a time, a cell at a time, a piece at a time."""
    rng = np.random.default_rng(0)
    lower = task.field.factor().numpy().astype(float)
    knots, slopes = task.function.knots.tolist(), task.function.slopes.tolist()
    out = []
    for _ in range(count):
        sample = lower @ rng.standard_normal(len(lower))
        total = 0.0
        for cell, x in enumerate(sample):
            edges = [-float("inf"), *knots[cell], float("inf")]
            for piece, slope in enumerate(slopes[cell]):
                left, right = edges[piece], edges[piece + 1]
                total += slope * (min(max(x, left), right) - min(max(0.0, left), right))
        out.append(total / len(lower))
    return np.array(out)


def generate(task, mode: str, device: str) -> None:
    """Draw all samples and F, as `mode` keeps them."""
    if mode == "loop":
        looped(task, LOOPED)
        return
    with tempfile.TemporaryDirectory() as folder:
        kept = task.samples.keep(mode, device=device, folder=Path(folder))
        if mode == "fresh":
            for index in range(kept.chunks):
                kept.chunk(index, device)
        if device != "cpu":
            torch.cuda.synchronize()


def measure(mode: str, samples: int, device: str, field: str) -> None:
    """Print the seconds that `mode` takes for all samples, and the peak memory."""
    task = verax.task(f"climate/{field}", samples=samples)
    task.drawn("test", 2000).chunk(0, device)  # factor and closed form are made once
    before, start, busy = peak(), time.perf_counter(), time.process_time()
    generate(task, mode, device)
    more = samples / LOOPED if mode == "loop" else 1
    took, busy = time.perf_counter() - start, time.process_time() - busy
    print(took * more, busy * more, peak(), peak() - before)


def main() -> None:
    """Print a line for each way to keep samples."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--field", default="analytic")
    parser.add_argument("--mode")
    asked = parser.parse_args()
    if asked.mode:
        measure(asked.mode, asked.samples, asked.device, asked.field)
        return
    modes = ["loop", "fresh", "memory"] + (["mapped"] if asked.device == "cpu" else [])
    print(f"{asked.samples} samples of {asked.field} on {asked.device}, {torch.get_num_threads()} threads")
    plain = 0.0
    for mode in modes:
        done = subprocess.run(
            [sys.executable, __file__, "--mode", mode, *sys.argv[1:]],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        took, busy, most, more = map(float, done.stdout.split())
        plain = plain or took
        words = f"(from {LOOPED})" if mode == "loop" else f"{plain / took:.0f} times the loop"
        print(
            f"{mode:8s}{took:8.1f} s, {busy:.1f} s of processors, peak {most:.2f} GiB (+{more:.2f}), {words}",
            flush=True,
        )


if __name__ == "__main__":
    main()
