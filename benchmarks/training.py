"""Training on one machine, phase by phase.

python benchmarks/training.py                         all seven settings, recipe fast, cnn4
python benchmarks/training.py --network cnn@published --seeds 3
python benchmarks/training.py --network cnn@robust --tasks simple-fr complex-cr1
python benchmarks/training.py --plain                 without CUDA graphs, for comparison
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections import Counter
from pathlib import Path

import torch

import verax
from verax import devices
from verax.networks import batches, certificates, steps, training
from verax.tasks.textbox.settings import SETTINGS

SPENT: Counter[str] = Counter()


def wait(device):
    """Until the GPU has done everything that it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize()


@contextlib.contextmanager
def phase(name, device):
    """Add the time of a block to its phase."""
    wait(device)
    start = time.perf_counter()
    yield
    wait(device)
    SPENT[name] += time.perf_counter() - start


def timed(function, name, device):
    """The same function, with its time counted."""

    def wrapped(*args, **options):
        with phase(name, device):
            return function(*args, **options)

    return wrapped


def measure_phases(device):
    """Count the time inside the trainer; waiting for the GPU at every phase makes it a little longer."""
    batches.Pool.pictures = timed(batches.Pool.pictures, "rendering", device)
    verax.TextBox.layout = timed(verax.TextBox.layout, "placement", device)
    steps.Stepper.__call__ = timed(steps.Stepper.__call__, "forward and backward", device)
    training._worst_bucket = timed(training._worst_bucket, "evaluation", device)
    training._accuracy = timed(training._accuracy, "evaluation", device)
    training.certify = timed(certificates.certify, "certification", device)
    training.robust_accuracy = timed(training.robust_accuracy, "evaluation", device)


def run(names, network, seeds, device, options):
    """Train everything; gives one row for each network."""
    rows = []
    for name in names:
        for seed in range(seeds):
            wait(device)
            start = time.perf_counter()
            done = verax.train(
                verax.task(f"textbox/{name}", **options), network, seed=seed, device=device, quiet=True
            )
            wait(device)
            verdict = done.certificate.summary()
            row = {
                "task": name,
                "seed": seed,
                "seconds": round(time.perf_counter() - start, 2),
                "epochs": done.epochs,
                "tries": len(done.tries),
                "ended": done.tries[-1].ended,
                "train": done.tries[-1].train,
                "test": done.tries[-1].test,
                "worst bucket": verdict["worst_accuracy"],
                "worst follow": verdict["worst_follow"],
                "robust": done.robust,
                "passed": verdict["passed"],
            }
            print(" ".join(f"{k}={v}" for k, v in row.items()), flush=True)
            rows.append(row)
    return rows


def main() -> None:
    """Train without and then with a clock in every phase."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--network", default="cnn4")
    parser.add_argument("--tasks", nargs="*", default=list(SETTINGS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--renderer", default="sound")
    parser.add_argument("--background", default="black")
    parser.add_argument("--plain", action="store_true", help="no CUDA graphs")
    parser.add_argument("--phases", action="store_true", help="a second round that measures the phases")
    parser.add_argument("--out", type=Path, help="write the rows as JSON")
    chosen = parser.parse_args()
    device = devices.resolve(chosen.device)
    print(f"{devices.describe(device)}, torch {torch.__version__}, network {chosen.network}")
    if chosen.plain:
        steps.Stepper.recorded = False
    options = {"renderer": chosen.renderer, "background": chosen.background}
    if device.type == "cuda":  # the first use of a GPU takes seconds, whatever it is used for
        torch.nn.functional.conv2d(
            torch.rand(8, 3, 64, 64, device=device), torch.rand(8, 3, 3, 3, device=device)
        ).sum().item()
    start = time.perf_counter()
    rows = run(chosen.tasks, chosen.network, chosen.seeds, device, options)
    total = time.perf_counter() - start
    print(f"{len(rows)} networks in {total:.1f} s")
    if device.type == "cuda":
        print(f"peak memory {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB")
    if chosen.phases:
        measure_phases(device)
        start = time.perf_counter()
        run(chosen.tasks, chosen.network, chosen.seeds, device, options)
        SPENT["everything else"] = time.perf_counter() - start - sum(SPENT.values())
        for name, seconds in SPENT.most_common():
            print(f"{name:22} {seconds:8.2f} s")
    if chosen.out:
        chosen.out.write_text(json.dumps({"seconds": total, "networks": rows}, indent=2))


if __name__ == "__main__":
    main()
