"""What must hold, measured: verax beside its peers, in one process, on the same networks.

python benchmarks/correctness.py           print the table
python benchmarks/correctness.py --write   rewrite docs/correctness.md
"""

from __future__ import annotations

import importlib
import logging
import math
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from verax.methods import METHODS
from verax.seeding import Streams, content_ids
from verax.version import __version__

PAGE = Path(__file__).parent.parent / "docs" / "correctness.md"
SUM, SPELLING, BATCH, FORMULA = "sum", "spelling", "batch", "formula"
TARGETS = torch.tensor([0, 1, 2, 3])


@dataclass(frozen=True)
class Row:
    """One line of the page: `measure` gives the peer's error and ours."""

    peer: str
    ours: str
    network: str
    must: str
    measure: Callable[[], tuple[float, float]]

    @property
    def package(self) -> str:
        """The distribution that the peer comes from; none where we play it ourselves."""
        known = {"Captum": "captum", "zennit": "zennit", "shap": "shap", "grad-cam": "grad-cam"}
        return known.get(self.peer.partition(" ")[0], "")


# -- networks --------------------------------------------------------------------------------------------


def drawn(*shape, seed=0):
    """Normal numbers in float64, always the same."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


X, LOW, ZERO = drawn(4, 3, 14, 14), drawn(4, 3, 14, 14, seed=9), torch.zeros(4, 3, 14, 14).double()


def layers(seed=3, activation=nn.ReLU, pool=None):
    """Two convolutions and two dense layers as modules."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = [nn.Conv2d(3, 8, 3, padding=1), activation(), pool or nn.Conv2d(8, 8, 2, 2)]
        made += [nn.Conv2d(8, 12, 3, stride=2), activation(), nn.Flatten()]
        made += [nn.Linear(108, 20), activation(), nn.Linear(20, 5)]
        return nn.Sequential(*made).double().eval()


def blocks():
    """Two blocks of convolution, ReLU and max-pooling, then two dense layers."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        made = [nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        made += [nn.Conv2d(8, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
        made += [nn.Linear(108, 20), nn.ReLU(), nn.Linear(20, 5)]
        return nn.Sequential(*made).double().eval()


class Spelled(nn.Module):
    """The weights of `layers()` with functions, or with one ReLU for all places."""

    def __init__(self, inner, reused=False):
        super().__init__()
        self.a, self.b, self.c, self.d, self.e = (inner[k] for k in (0, 2, 3, 6, 8))
        self.relu = nn.ReLU()
        self.reused = reused

    def forward(self, x):
        """The same function."""
        relu = self.relu if self.reused else F.relu
        x = relu(self.c(self.b(relu(self.a(x)))))
        return self.e(relu(self.d(x.flatten(1))))


@cache
def resnet():
    """ResNet-18 of torchvision without biases: relevance can be conserved."""
    from verax.methods import adapters

    adapters._let_torchvision_import()
    models = importlib.import_module("torchvision.models")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = models.resnet18(weights=None, num_classes=10).double().train()
        norms = [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)]
        for layer in norms:
            layer.momentum = 1.0
        model(torch.randn(4, 3, 64, 64, dtype=torch.float64))
        for layer in norms:
            layer.running_var *= torch.rand_like(layer.running_var) * 1.5 + 0.5
            layer.running_mean.zero_()
        model.fc.bias.data.zero_()
    return model.eval()


# -- errors ----------------------------------------------------------------------------------------------


def error(found: Tensor, wanted: Tensor) -> float:
    """Relative distance."""
    return float((found.detach() - wanted.detach()).norm() / wanted.detach().norm())


def output(model, x, targets=TARGETS):
    """The explained outputs."""
    return model(x).gather(1, targets[:, None])[:, 0].detach()


def total(maps):
    """The sum of each map."""
    return maps.detach().flatten(1).sum(1)


def ours(name, model, x, targets=TARGETS, **parameters):
    """A method of verax in the precision of the network."""
    chosen = METHODS.get(name)
    known = chosen.settings(parameters)
    if "streams" in chosen.special:
        known["streams"] = Streams.of(content_ids(x), "correctness")
    return chosen.function(model, x.clone(), targets, **known).detach()


def captum(name, *more):
    """A method of Captum as a function (model, x, targets, **parameters)."""

    def run(model, x, targets=TARGETS, **parameters):
        attr = importlib.import_module("captum.attr")
        made = getattr(attr, name)(model, *more)
        return made.attribute(x.clone().requires_grad_(), target=targets, **parameters).detach()

    return run


def zennit(name):
    """A composite of zennit as a function."""

    def run(model, x, targets=TARGETS):
        return METHODS.get(f"zennit:{name}").function(model, x.clone(), targets)

    return run


def guided_zennit(model, x, targets=TARGETS):
    """Guided backpropagation of zennit, which starts from one."""
    METHODS.get("zennit:EpsilonPlus")  # makes it importable
    composites = importlib.import_module("zennit.composites")
    attribution = importlib.import_module("zennit.attribution")
    start = F.one_hot(targets, 5).double()
    with attribution.Gradient(model, composites.GuidedBackprop()) as made:
        return made(x.clone().requires_grad_(), start)[1].detach()


def deep_explainer(model, x, references, targets=TARGETS):
    """DeepExplainer of shap, with its check of additivity off: we measure what it would check."""
    shap = importlib.import_module("shap")
    values = torch.as_tensor(shap.DeepExplainer(model, references).shap_values(x, check_additivity=False))
    return values.gather(-1, targets.reshape(-1, 1, 1, 1, 1).expand(*x.shape, 1))[..., 0]


# -- rows ------------------------------------------------------------------------------------------------


def answer(theirs: Callable[[], Tensor], wanted: Tensor) -> float:
    """The error of a peer's maps, as sums; infinite where it raises, which is the honest way to fail."""
    try:
        return error(total(theirs()), wanted)
    except RuntimeError:
        return math.inf


def adds_up(theirs, name, make, low):
    """Contributions add up to the change of the output."""

    def measure():
        model = make()
        change = output(model, X) - output(model, low)
        return (
            answer(lambda: theirs(model, X, baselines=low), change),
            error(total(ours(name, model, X, baseline=low)), change),
        )

    return measure


def same_map(theirs, name, reused=False):
    """Another spelling of the same function has the same map."""

    def measure():
        plain = layers()
        other = Spelled(layers(), reused)
        assert torch.allclose(plain(X), other(X))
        return (
            error(theirs(other, X), theirs(plain, X)),
            error(ours(name, other, X), ours(name, plain, X)),
        )

    return measure


def conserved(theirs, name):
    """Relevance adds up to the output of a network without bias."""

    def measure():
        model, x = resnet(), drawn(4, 3, 64, 64)
        wanted = output(model, x)
        # without bias the output for black is 0, so that the change from it is the output
        return answer(lambda: theirs(model, x), wanted), error(total(ours(name, model, x)), wanted)

    return measure


def same_alone(theirs, name, **parameters):
    """A sample has the same map alone and in the batch, with the same seed."""

    def seeded(x, targets):
        kept = np.random.get_state()  # noqa: NPY002 - Captum draws from NumPy's global generator, too
        with torch.random.fork_rng():
            torch.manual_seed(0)
            np.random.seed(0)  # noqa: NPY002
            maps = theirs(layers(), x, targets)
        np.random.set_state(kept)  # noqa: NPY002
        return maps

    def measure():
        def apart(function):
            return torch.cat([function(X[k : k + 1], TARGETS[k : k + 1]) for k in range(4)])

        def mine(x, targets):
            return ours(name, layers(), x, targets, **parameters)

        return error(apart(seeded), seeded(X, TARGETS)), error(apart(mine), mine(X, TARGETS))

    return measure


def smoothed(model, x, targets):
    """SmoothGrad of Captum."""
    attr = importlib.import_module("captum.attr")
    tunnel = attr.NoiseTunnel(attr.Saliency(model))
    return tunnel.attribute(x, nt_samples=10, stdevs=0.1, target=targets, abs=False).detach()


def quadrants():
    """Four segments of a picture."""
    half = torch.arange(14) // 7
    return (2 * half[:, None] + half)[None, None]


def kernel_shap(model, x, targets):
    """Kernel SHAP of Captum on four segments, with fewer draws than would make it exact."""
    return captum("KernelShap")(model, x, targets, feature_mask=quadrants(), n_samples=12)


def shap_adds_up(make):
    """DeepSHAP adds up to the output minus its mean over the references."""

    def measure():
        model, references = make(), drawn(3, 3, 14, 14, seed=5)
        means = torch.stack([output(model, references, t.expand(3)).mean() for t in TARGETS])
        change = output(model, X) - means
        mine = ours("deep-shap", model, X, references=references)
        theirs = answer(lambda: deep_explainer(model, X, references), change)
        return theirs, error(total(mine), change)

    return measure


def alpha_beta():
    """Alpha 1 beta 0 on one dense layer against its formula: only b+ stands in the denominator."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Linear(6, 4).double()
    x = drawn(4, 6).abs()
    positive = x * model.weight[TARGETS].clamp_min(0)
    bias = model.bias[TARGETS].clamp_min(0)
    wanted = positive / (positive.sum(1) + bias)[:, None] * output(model, x)[:, None]
    convention = ours("lrp-alpha1beta0", model, x, bias="innvestigate")
    return error(convention, wanted), error(ours("lrp-alpha1beta0", model, x), wanted)


FAILURES = [
    Row("Captum DeepLift", "deeplift-rescale", "conv-ReLU-maxpool twice, zero baseline", SUM,
        adds_up(captum("DeepLift"), "deeplift-rescale", blocks, ZERO)),
    Row("Captum DeepLift", "deeplift-rescale", "conv-ReLU-maxpool twice, random baseline", SUM,
        adds_up(captum("DeepLift"), "deeplift-rescale", blocks, LOW)),
    Row("Captum DeepLift", "deeplift-rescale", "convolutions with GELU, random baseline", SUM,
        adds_up(captum("DeepLift"), "deeplift-rescale", lambda: layers(activation=nn.GELU), LOW)),
    Row("Captum DeepLift", "deeplift-rescale", "convolutions with F.relu, random baseline", SUM,
        adds_up(captum("DeepLift"), "deeplift-rescale", lambda: Spelled(layers()), LOW)),
    Row("shap DeepExplainer", "deep-shap", "convolutions with F.relu", SUM,
        shap_adds_up(lambda: Spelled(layers()))),
    Row("shap DeepExplainer", "deep-shap", "convolutions with one ReLU module, reused", SUM,
        shap_adds_up(lambda: Spelled(layers(), reused=True))),
    Row("Captum LRP", "lrp-z", "ResNet-18 without bias", SUM, conserved(captum("LRP"), "lrp-z")),
    Row("zennit EpsilonPlus", "lrp-alpha1beta0", "ResNet-18 without bias, no canonizer", SUM,
        conserved(zennit("EpsilonPlus"), "lrp-alpha1beta0")),
    Row("Captum DeepLift", "deeplift-rescale", "ResNet-18 without bias", SUM,
        conserved(captum("DeepLift"), "deeplift-rescale")),
    Row("Captum DeepLift", "deeplift-rescale", "convolutions, F.relu for nn.ReLU", SPELLING,
        same_map(captum("DeepLift"), "deeplift-rescale")),
    Row("Captum GuidedBackprop", "guided-backprop", "convolutions, F.relu for nn.ReLU", SPELLING,
        same_map(captum("GuidedBackprop"), "guided-backprop")),
    Row("Captum Deconvolution", "deconvnet", "convolutions, F.relu for nn.ReLU", SPELLING,
        same_map(captum("Deconvolution"), "deconvnet")),
    Row("zennit GuidedBackprop", "guided-backprop", "convolutions, F.relu for nn.ReLU", SPELLING,
        same_map(guided_zennit, "guided-backprop")),
    Row("Captum GradientShap", "gradient-shap", "convolutions", BATCH,
        same_alone(lambda m, x, t: captum("GradientShap")(m, x, t, baselines=LOW, n_samples=10, stdevs=0.1),
                   "gradient-shap", samples=10)),
    Row("Captum NoiseTunnel", "smoothgrad", "convolutions", BATCH,
        same_alone(smoothed, "smoothgrad", samples=10)),
    Row("Captum KernelShap", "kernel-shap", "convolutions, 4 segments", BATCH,
        same_alone(kernel_shap, "kernel-shap", samples=12, size=7)),
    Row("iNNvestigate convention", "lrp-alpha1beta0", "one dense layer with bias", FORMULA, alpha_beta),
]  # fmt: skip


def pooled():
    """The network with max-pooling."""
    return layers(pool=nn.MaxPool2d(2))


def agreement(peer, name, theirs, make=pooled, **parameters):
    """A row where the peer is right: the distance between its map and ours, once for both."""

    def measure():
        model = make()
        distance = error(ours(name, model, X, **parameters), theirs(model, X))
        return distance, distance

    network = "conv-ReLU-maxpool modules" if make is pooled else "conv-ReLU modules"
    return Row(peer, name, network, "same map", measure)


def grad_cam(model, x):
    """Grad-CAM of Captum at the last convolution, rectified and enlarged."""
    small = captum("LayerGradCam", model[4])(model, x, relu_attributions=True)
    return F.interpolate(small, x.shape[2:], mode="bilinear").expand_as(x)


def shapley(model, x):
    """Shapley values of Captum on four segments, spread over their numbers."""
    return captum("ShapleyValues")(model, x, feature_mask=quadrants()) / (3 * 7 * 7)


AGREEMENTS = [
    agreement("Captum Saliency", "gradient", lambda m, x: captum("Saliency")(m, x, abs=False)),
    agreement("Captum InputXGradient", "input-x-gradient", captum("InputXGradient")),
    agreement("Captum IntegratedGradients", "integrated-gradients",
              lambda m, x: captum("IntegratedGradients")(m, x, n_steps=32)),
    agreement("Captum DeepLift", "deeplift-rescale",
              lambda m, x: captum("DeepLift")(m, x, baselines=LOW), layers, baseline=LOW),
    agreement("Captum GuidedBackprop", "guided-backprop", captum("GuidedBackprop")),
    agreement("Captum Deconvolution", "deconvnet", captum("Deconvolution")),
    agreement("Captum Occlusion", "occlusion",
              lambda m, x: captum("Occlusion")(m, x, sliding_window_shapes=(3, 4, 4), strides=(3, 2, 2)),
              window=4, stride=2),
    agreement("Captum ShapleyValues", "exact-shapley", shapley, size=7),
    agreement("Captum LayerGradCam", "grad-cam", grad_cam),
    agreement("zennit EpsilonPlusFlat", "lrp-a", zennit("EpsilonPlusFlat")),
    agreement("zennit EpsilonAlpha2Beta1Flat", "lrp-b", zennit("EpsilonAlpha2Beta1Flat")),
    agreement("zennit GuidedBackprop", "guided-backprop", guided_zennit),
    agreement("shap DeepExplainer", "deep-shap", lambda m, x: deep_explainer(m, x, LOW), layers,
              references=LOW),
]  # fmt: skip


# -- the page --------------------------------------------------------------------------------------------

INTRODUCTION = """# Correctness

Written by `python benchmarks/correctness.py --write`: every number is measured, in one process, in float64,
on the same weights and inputs. A test runs the rows again and compares them with this page. Versions:
{versions}.

## Where peers are wrong, or refuse

Errors are relative. *sum*: contributions add up to the change of the output (relevance: to the output).
*spelling*: the same function, written otherwise, has the same map. *batch*: a sample has the same map alone
and among others, with the same seed. *formula*: the rule as published, written out. *raises*: the peer
refuses the network, which is better than a wrong map. iNNvestigate itself is not run: its convention is
`bias="innvestigate"` of verax.

"""
MIDDLE = """
## Where peers are right

The distance between the peer's map and ours.

"""


def shown(value: float) -> str:
    """An error as people read it: percent where it is one, a power of ten where it is rounding."""
    if value == 0:
        return "0"
    if value >= 10:
        return (
            "raises" if value == math.inf else f"{value:.0f} times" if value < 1e4 else f"{value:.0e} times"
        )
    return (
        f"{100 * value:.0f} %" if value >= 0.1 else f"{100 * value:.1f} %" if value > 1e-3 else f"{value:.0e}"
    )


def installed(row: Row) -> bool:
    """Whether the peer of a row can be measured here."""
    try:
        return not row.package or bool(metadata.version(row.package))
    except metadata.PackageNotFoundError:
        return False


def measured(rows: list[Row]) -> list[tuple[Row, float, float]]:
    """The errors of every row whose peer is installed."""
    logging.getLogger("shap").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Captum speaks of hooks that it sets
        return [(row, *row.measure()) for row in rows if installed(row)]


def page() -> str:
    """The whole page."""
    peers = ("torch", "captum", "zennit", "shap")
    versions = ", ".join([f"verax {__version__}", *(f"{p} {metadata.version(p)}" for p in peers)])
    lines = [
        "| peer | network | must hold | peer's error | verax's error | method |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.peer} | {row.network} | {row.must} | {shown(theirs)} | {shown(mine)} | `{row.ours}` |"
        for row, theirs, mine in measured(FAILURES)
    ]
    right = ["| peer | network | distance | method |", "|---|---|---|---|"]
    right += [
        f"| {row.peer} | {row.network} | {shown(distance)} | `{row.ours}` |"
        for row, distance, _ in measured(AGREEMENTS)
    ]
    head = INTRODUCTION.format(versions=versions)
    return head + "\n".join(lines) + "\n" + MIDDLE + "\n".join(right) + "\n"


def main() -> None:
    """Print the page, or write it."""
    text = page()
    if "--write" in sys.argv[1:]:
        PAGE.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
