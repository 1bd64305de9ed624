"""Methods beside Captum, in one process, on the same network and inputs.

python benchmarks/methods.py
"""

from __future__ import annotations

import time

import captum.attr as captum
import torch

import verax


def race(ours, theirs, repeats=3):
    """Best times of two functions, run in turns."""
    times = ([], [])
    for _ in range(repeats):
        for function, kept in zip((ours, theirs), times, strict=True):
            start = time.perf_counter()
            function()
            kept.append(time.perf_counter() - start)
    return min(times[0]), min(times[1])


def main() -> None:
    """Print seconds and ratios."""
    task = verax.task("textbox/complex-cr1")
    model, cases = task.network("cnn4"), task.cases(n=4)
    x, y = cases.inputs, cases.targets
    print(f"{len(x)} pictures, cnn4, {torch.get_num_threads()} threads")

    def ours(name, **parameters):
        return lambda: verax.explain(model, x, y, method=name, **parameters)

    rows = {
        "gradient": (ours("gradient"), lambda: captum.Saliency(model).attribute(x, y)),
        "integrated-gradients, 32 steps": (
            ours("integrated-gradients"),
            lambda: captum.IntegratedGradients(model).attribute(
                x, target=y, n_steps=32, internal_batch_size=320
            ),
        ),
        "occlusion 8/4, Captum default": (
            ours("occlusion"),
            lambda: captum.Occlusion(model).attribute(x, (3, 8, 8), target=y, strides=(3, 4, 4)),
        ),
        "occlusion 8/4, Captum tuned": (
            ours("occlusion"),
            lambda: captum.Occlusion(model).attribute(
                x, (3, 8, 8), target=y, strides=(3, 4, 4), perturbations_per_eval=8
            ),
        ),
    }
    print(f"{'method':34s}{'verax':>9s}{'captum':>9s}{'ratio':>8s}")
    for name, pair in rows.items():
        fast, slow = race(*pair)
        print(f"{name:34s}{fast:8.2f}s{slow:8.2f}s{slow / fast:7.1f}x")


if __name__ == "__main__":
    main()
