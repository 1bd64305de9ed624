"""Methods beside Captum, in one process, on the same network and inputs.

python benchmarks/methods.py
"""

from __future__ import annotations

import time

import captum.attr as captum
import torch
from captum._utils.models.model import Model
from torch import nn

import verax
from verax.engine.segments import grid


class LeastSquares(Model):
    """The linear regression of Captum's Kernel SHAP, solved at once and without scikit-learn."""

    def fit(self, train_data, **kwargs):
        """Solve the normal equations."""
        z, y, w = (torch.cat([batch[k] for batch in train_data]).double() for k in range(3))
        part = (w / w.sum())[:, None]
        z, y = z - (part * z).sum(0), y.reshape(-1) - (part[:, 0] * y.reshape(-1)).sum()
        weighted = (z * w[:, None]).T
        self.weights = torch.linalg.lstsq(weighted @ z, weighted @ y, driver="gelsd").solution

    def representation(self):
        """The values of the segments."""
        return self.weights[None]

    def __call__(self, x):
        """The prediction for coalitions."""
        return x @ self.weights


def race(ours, theirs, repeats=3):
    """Best times of two functions, run in turns."""
    times = ([], [])
    for _ in range(repeats):
        for function, kept in zip((ours, theirs), times, strict=True):
            start = time.perf_counter()
            function()
            kept.append(time.perf_counter() - start)
    return min(times[0]), min(times[1])


def kernel_shap(label, model, x, y, size):
    """Kernel SHAP of 16 pictures with 64 segments and 100 coalitions; Captum as it comes and tuned."""
    shap = captum.KernelShap(model)
    shap.interpretable_model = LeastSquares()
    known = {"target": y, "feature_mask": grid(x, size).labels, "n_samples": 100}

    def ours():
        return verax.explain(model, x, y, method="kernel-shap", samples=100, size=size)

    return {
        f"kernel-shap, {label}, Captum default": (ours, lambda: shap.attribute(x, **known)),
        f"kernel-shap, {label}, Captum tuned": (
            ours,
            lambda: shap.attribute(x, perturbations_per_eval=100, **known),
        ),
    }


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
    rows |= kernel_shap("TextBox, cnn4", model, x[-16:], y[-16:], 8)
    torch.manual_seed(0)  # any weights will do: only the time counts
    small = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(784, 4)
    )
    rows |= kernel_shap("32 x 32, 2 layers", small.eval(), torch.rand(16, 3, 32, 32), torch.arange(16) % 4, 4)
    print(f"{'method':48s}{'verax':>9s}{'captum':>9s}{'ratio':>8s}")
    for name, pair in rows.items():
        fast, slow = race(*pair)
        print(f"{name:48s}{fast:8.2f}s{slow:8.2f}s{slow / fast:7.1f}x")


if __name__ == "__main__":
    main()
