"""Methods beside a plain forward + backward and beside peers, in one process, as ratios.

python benchmarks/methods.py [--repeats 5]
"""

from __future__ import annotations

import argparse
import time
import warnings

import torch
from torch import nn

import verax
from verax.engine.segments import grid
from verax.methods.adapters import _let_torchvision_import
from verax.metrics.faithfulness import deletion

_let_torchvision_import()  # before the peers, all of which import torchvision

import captum.attr as captum  # noqa: E402
import quantus  # noqa: E402
import torchvision  # noqa: E402
from zennit import composites  # noqa: E402
from zennit.attribution import Gradient  # noqa: E402
from zennit.torchvision import ResNetCanonizer  # noqa: E402

# name -> (largest ratio to a plain forward + input backward, zennit's composite, Captum's class)
RULES = {
    "lrp-epsilon": (1.5, lambda **k: composites.LayerMapComposite(_epsilon_map(), **k), None),
    "guided-backprop": (1.5, composites.GuidedBackprop, captum.GuidedBackprop),
    "deconvnet": (1.5, composites.DeconvNet, captum.Deconvolution),
    "lrp-a": (4.0, composites.EpsilonPlusFlat, None),
    "lrp-b": (4.0, composites.EpsilonAlpha2Beta1Flat, None),
    "deep-taylor": (4.0, composites.ExcitationBackprop, None),
    "deeplift-rescale": (2.5, None, captum.DeepLift),
    "deeplift-reveal-cancel": (6.0, None, None),
}


def _epsilon_map():
    from zennit.rules import Epsilon, Pass
    from zennit.types import Activation, Linear

    return [(Activation, Pass()), (Linear, Epsilon(1e-6))]


def best(functions, repeats):
    """The shortest time of each function, run in turns so that a busy machine is unfair to none of them."""
    times = dict.fromkeys(functions, float("inf"))
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            times[name] = min(times[name], time.perf_counter() - start)
    return times


def plain(model, x, y):
    """One forward and one backward to the input."""
    x = x.detach().clone().requires_grad_()
    return torch.autograd.grad(model(x).gather(1, y[:, None]).sum(), x)[0]


def by_zennit(composite, model, x, y, canonizers):
    """A map of zennit."""
    chosen = composite(canonizers=canonizers)
    with Gradient(model, chosen) as attributor:
        return attributor(x.clone().requires_grad_(), torch.eye(model(x[:1]).shape[1])[y])[1]


def rules(label, model, x, y, repeats, canonizers=()):
    """Ratios of the rule engine to a plain forward + backward, and of peers to the same."""
    for weight in model.parameters():
        weight.requires_grad_(False)
    functions = {("plain", ""): lambda: plain(model, x, y)}
    for name, (_, composite, cls) in RULES.items():
        functions[name, "verax"] = lambda name=name: verax.explain(model, x, y, method=name)
        if composite is not None:
            functions[name, "zennit"] = lambda c=composite: by_zennit(c, model, x, y, list(canonizers))
        if cls is not None:
            functions[name, "captum"] = lambda c=cls: c(model).attribute(x, target=y)
    for key, function in list(functions.items()):
        try:
            function()
        except Exception as error:  # peers refuse some networks; say so instead of a time
            print(f"  {key[1]} {key[0]} on {label}: {type(error).__name__}")
            del functions[key]
    times = best(functions, repeats)
    base = times["plain", ""]
    print(f"\n{label}: {len(x)} inputs, plain forward + backward {base * 1000:.0f} ms")
    print(f"{'method':26s}{'verax':>8s}{'at most':>9s}{'zennit':>9s}{'captum':>9s}")
    for name, (most, *_) in RULES.items():
        row = [times.get((name, who), float("nan")) / base for who in ("verax", "zennit", "captum")]
        peers = "".join(f"{r:8.2f}x" if r == r else f"{'-':>9s}" for r in row[1:])
        print(f"{name:26s}{row[0]:7.2f}x{most:8.1f}x{peers}{'' if row[0] <= most else '  too slow'}")


def kernel_shap(label, model, x, y, size):
    """Kernel SHAP of 16 pictures with 64 segments and 100 coalitions; Captum as it comes and tuned."""
    shap = captum.KernelShap(model)
    known = {"target": y, "feature_mask": grid(x, size).labels, "n_samples": 100}

    def ours():
        return verax.explain(model, x, y, method="kernel-shap", samples=100, size=size)

    return {
        f"kernel-shap, {label}, default": (50, ours, lambda: shap.attribute(x, **known)),
        f"kernel-shap, {label}, tuned": (
            10,
            ours,
            lambda: shap.attribute(x, perturbations_per_eval=100, **known),
        ),
    }


def pictures():
    """TextBox and the network that comes with it."""
    task = verax.task("textbox/complex-cr1")
    cases = task.cases(n=4)
    return task.network("cnn4"), cases.inputs, cases.targets


def races():
    """Name -> (least ratio, ours, a peer's)."""
    model, x, y = pictures()

    def ours(name, **parameters):
        return lambda: verax.explain(model, x, y, method=name, **parameters)

    occlusion = captum.Occlusion(model)
    window = {"sliding_window_shapes": (3, 8, 8), "strides": (3, 4, 4), "target": y}
    rows = {
        "gradient, Captum": (0.8, ours("gradient"), lambda: captum.Saliency(model).attribute(x, y)),
        "integrated-gradients, 32 steps, Captum tuned": (
            1,
            ours("integrated-gradients"),
            lambda: captum.IntegratedGradients(model).attribute(
                x, target=y, n_steps=32, internal_batch_size=320
            ),
        ),
        "occlusion 8/4, Captum default": (1, ours("occlusion"), lambda: occlusion.attribute(x, **window)),
        "occlusion 8/4, Captum tuned": (
            1,
            ours("occlusion"),
            lambda: occlusion.attribute(x, perturbations_per_eval=8, **window),
        ),
    }
    rows |= kernel_shap("cnn4", model, x[-16:], y[-16:], 8)
    torch.manual_seed(0)  # any weights will do: only the time counts
    small = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(784, 4)
    )
    noise, classes = torch.rand(16, 3, 32, 32), torch.arange(16) % 4
    rows |= kernel_shap("small cnn", small.eval(), noise, classes, 4)
    maps = {"TextBox, cnn4": (model, x, y), "noise, small cnn": (small, noise, classes)}
    for label, (network, inputs, targets) in maps.items():
        rows[f"deletion in 32 steps, {label}, Quantus"] = (10, *deletions(network, inputs, targets))
    return rows


def deletions(model, x, y):
    """The deletion curve of Quantus, which is called pixel flipping there, and ours."""
    found = verax.explain(model, x, y, method="gradient").sum(1, keepdim=True)
    step = x[0, 0].numel() // 32
    flipping = quantus.PixelFlipping(
        features_in_step=step, perturb_baseline="black", disable_warnings=True, display_progressbar=False
    )
    arrays = x.numpy(), y.numpy(), found.numpy()

    def theirs():
        return flipping(model=model, x_batch=arrays[0], y_batch=arrays[1], a_batch=arrays[2], batch_size=64)

    return lambda: deletion(model, x, y, found.expand_as(x), steps=32), theirs


def main() -> None:
    """Print ratios beside what is promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    warnings.filterwarnings("ignore")
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}")
    model, x, y = pictures()
    rules("cnn4, TextBox", model, x[:64], y[:64], repeats)
    torch.manual_seed(0)
    resnet = torchvision.models.resnet18().eval()
    rules(
        "ResNet-18, 112 x 112",
        resnet,
        torch.rand(16, 3, 112, 112),
        torch.arange(16),
        repeats,
        [ResNetCanonizer()],
    )
    print(f"\n{'how many times as fast as a peer':54s}{'verax':>9s}{'peer':>9s}{'ratio':>8s}{'at least':>9s}")
    for name, (least, ours, theirs) in races().items():
        times = best({"ours": ours, "theirs": theirs}, min(3, repeats))
        ratio = times["theirs"] / times["ours"]
        print(
            f"{name:54s}{1000 * times['ours']:7.0f}ms{1000 * times['theirs']:7.0f}ms"
            f"{ratio:7.1f}x{least:8.1f}x"
            f"{'' if ratio >= least else '  too slow'}",
            flush=True,
        )


if __name__ == "__main__":
    main()
