"""The correctness league: every implementation on every kind of network, against references of their own.

References are written out here and use nothing of verax: the gradient times the input, which LRP-z is on
networks of lines and kinks (Ancona et al., ICLR 2018); the path integral with 4000 midpoints; a network
whose ReLU has the backward of guided backpropagation or of a deconvnet; and sums, which DeepLIFT and
DeepSHAP promise. All of it is in float64, on the same weights, where only the spelling differs.

python benchmarks/league.py [--write]
"""

from __future__ import annotations

import argparse
import copy
import logging
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import records
from contests import composite, load, package
from correctness import TARGETS, drawn, error, output, total
from records import Result
from verax.errors import VeraxError
from verax.methods import METHODS
from verax.seeding import Streams, content_ids

X, LOW, REFERENCES = drawn(4, 3, 12, 12), drawn(4, 3, 12, 12, seed=9), drawn(3, 3, 12, 12, seed=5)
RIGHT, NEAR = 1e-3, 0.05
"""Relative errors that are called right: of formulas, and of sums over steps."""

Relu = Callable[[Tensor], Tensor]


# -- networks: the same layers, spelled in several ways ------------------------------------------------------


class Net(nn.Module):
    """Two convolutions and two dense layers; `kind` says how they are spelled and what is between them."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.a = nn.Conv2d(3, 6, 3, padding=1)
        if (
            kind == "batch norm"
        ):  # zennit merges such a layer by its place, whether the network calls it or not
            self.norm = nn.BatchNorm2d(6)
        self.b = nn.Conv2d(6, 6, 3, padding=1)
        self.c, self.d = nn.Linear(6 * 6 * 6, 16), nn.Linear(16, 5)
        self.relu, self.over = nn.ReLU(), nn.ReLU(inplace=True)
        self.one, self.two, self.three = nn.ReLU(), nn.ReLU(), nn.ReLU()
        self.average, self.most = nn.AvgPool2d(2), nn.MaxPool2d(2)
        if kind == "gated":
            self.gate = nn.Conv2d(6, 6, 1)
        self.special: Relu | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        own = self.special
        if own is not None:
            first = second = third = own
        elif self.kind == "functional":
            first = second = third = F.relu
        elif self.kind == "in-place":
            first = second = third = torch.relu_
        elif self.kind == "reused":
            first = second = third = self.relu
        else:
            first, second, third = self.one, self.two, self.three
        pool = self.most if self.kind == "pooled" else self.average
        x = self.a(x)
        if self.kind == "batch norm":
            x = self.norm(x)
        x = pool(first(x))
        y = self.b(x)
        if self.kind == "residual":
            y = y + x
        if self.kind == "gated":
            y = y * torch.tanh(self.gate(x))
        return self.d(third(self.c(second(y).flatten(1))))


class Attention(nn.Module):
    """Patches, one head of attention with its normalisation, and a dense layer with ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.norm = nn.Conv2d(3, 8, 4, 4), nn.LayerNorm(8)
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.one, self.c, self.d = nn.ReLU(), nn.Linear(8, 16), nn.Linear(16, 5)
        self.special: Relu | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        t = self.patch(x).flatten(2).transpose(1, 2)
        n = self.norm(t)
        weights = torch.softmax(self.q(n) @ self.k(n).transpose(1, 2) / 8**0.5, -1)
        t = t + weights @ self.v(n)
        return self.d((self.special or self.one)(self.c(t.mean(1))))


LINES = ("module", "functional", "in-place", "reused", "residual", "pooled", "batch norm")
"""Networks of lines and kinks."""
KINDS = (*LINES, "attention", "gated")


def network(kind: str) -> nn.Module:
    """A network with weights, biases and statistics that are not trivial."""
    with torch.random.fork_rng():
        torch.manual_seed(4)
        model = (Attention() if kind == "attention" else Net(kind)).double().eval()
        for layer in model.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.running_mean.uniform_(-0.3, 0.3)
                layer.running_var.uniform_(0.5, 2)
                layer.weight.data.uniform_(-1.5, 1.5)
    return model


# -- references --------------------------------------------------------------------------------------------


def slope(model: nn.Module, x: Tensor) -> Tensor:
    """The gradient of the explained outputs."""
    x = x.detach().clone().requires_grad_()
    return torch.autograd.grad(model(x.clone()).gather(1, TARGETS[: len(x), None]).sum(), x)[0]


def path(model: nn.Module, x: Tensor) -> Tensor:
    """The path integral from zero with 4000 midpoints."""
    steps = (torch.arange(4000, dtype=x.dtype) + 0.5) / 4000
    total_ = torch.zeros_like(x)
    for part in steps.split(100):
        points = (part[:, None, None, None, None] * x).flatten(0, 1).requires_grad_()
        chosen = TARGETS.repeat(len(part))
        grads = torch.autograd.grad(model(points.clone()).gather(1, chosen[:, None]).sum(), points)[0]
        total_ += grads.reshape(len(part), *x.shape).sum(0)
    return x * total_ / len(steps)


class Rectified(torch.autograd.Function):
    """ReLU whose backward lets positive slopes through: everywhere, or where the input was positive too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, guided: bool) -> Tensor:
        """ReLU."""
        ctx.save_for_backward(x)
        ctx.guided = guided
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """Positive slopes."""
        (x,) = ctx.saved_tensors
        kept = grads[0].clamp(min=0)
        return (kept * (x > 0) if ctx.guided else kept), None


def rectified(guided: bool) -> Callable[[nn.Module, Tensor], Tensor]:
    """Guided backpropagation or a deconvnet, written out."""

    def reference(model: nn.Module, x: Tensor) -> Tensor:
        other = copy.deepcopy(model)
        other.special = lambda value: Rectified.apply(value, guided)
        return slope(other, x)

    return reference


def times_input(model: nn.Module, x: Tensor) -> Tensor:
    """The gradient times the input."""
    return x * slope(model, x)


# -- what is compared --------------------------------------------------------------------------------------

Run = Callable[[nn.Module, Tensor, Tensor], Tensor]
"""(network, inputs, targets) -> maps"""


@dataclass(frozen=True)
class Discipline:
    """One method, its reference or what its maps must add up to, and how everybody is asked.

    Attributes:
        method: of verax.
        runs: implementation -> maps.
        reference: maps; None where only sums are known.
        sums: what maps add up to, where that is the promise.
        kinds: networks on which the reference holds.
        right: the largest error that is called right.
    """

    method: str
    runs: dict[str, Run]
    reference: Callable[[nn.Module, Tensor], Tensor] | None = None
    sums: Callable[[nn.Module, Tensor], Tensor] | None = None
    kinds: tuple[str, ...] = KINDS
    right: float = RIGHT


def ours(name: str, **parameters: Any) -> Run:
    """A method of verax in float64."""

    def run(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        chosen = METHODS.get(name)
        known = chosen.settings(parameters)
        if "streams" in chosen.special:
            known["streams"] = Streams.of(content_ids(x), "league")
        return chosen.function(model, x.clone(), targets, **known).detach()

    return run


def captum(name: str, **known: Any) -> Run:
    """A class of Captum."""

    def run(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        made = getattr(load("captum.attr"), name)(model)
        return made.attribute(x.clone().requires_grad_(), target=targets, **known).detach()

    return run


def quantus(name: str) -> Run:
    """A wrapper of Quantus."""

    def run(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        found = load("quantus").explain(
            model, x.clone().requires_grad_(), targets, method=name, reduce_axes=()
        )
        return torch.as_tensor(found).detach().double()

    return run


def zennit(name: str) -> Run:
    """A composite of zennit, or one of its rules on all layers."""

    def run(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        attribution = load("zennit.attribution")
        if name in ("Gradient", "IntegratedGradients", "SmoothGrad"):
            more = {"n_iter": 32} if name == "IntegratedGradients" else {}
            made = getattr(attribution, name)(model, **more)
        else:
            # it merges batch normalisation; there is no canonizer for residual networks of unknown classes
            merging = [load("zennit.canonizers").SequentialMergeBatchNorm()]
            made = attribution.Gradient(model, composite(name, load("zennit.composites"), merging))

        def start(out: Tensor) -> Tensor:
            chosen = F.one_hot(targets.repeat(len(out) // len(targets)), out.shape[1]).to(out)
            return chosen * out if name == "z" else chosen

        with made as running:
            return running(x.clone().requires_grad_(), start)[1].detach()

    return run


def shap(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
    """DeepExplainer of shap, with its check off: the sum is measured here."""
    run = METHODS.get("shap:DeepExplainer").function
    return run(model, x.clone(), targets, references=REFERENCES, check_additivity=False)


def change(low: Tensor) -> Callable[[nn.Module, Tensor], Tensor]:
    """The change of the output from a baseline."""
    return lambda model, x: output(model, x) - output(model, low)


def mean_change(model: nn.Module, x: Tensor) -> Tensor:
    """The change from the mean over the references."""
    means = torch.stack([output(model, REFERENCES, t.expand(3)).mean() for t in TARGETS])
    return output(model, x) - means


def _times(run: Run) -> Run:
    return lambda model, x, targets: x * run(model, x, targets)


DISCIPLINES = [
    Discipline(
        "input-x-gradient",
        {
            "verax": ours("input-x-gradient"),
            "captum": captum("InputXGradient"),
            "zennit": _times(zennit("Gradient")),
            "quantus": quantus("InputXGradient"),
        },
        times_input,
    ),
    Discipline(
        "integrated-gradients",
        {
            "verax": ours("integrated-gradients"),
            "captum": captum("IntegratedGradients", n_steps=32),
            "zennit": zennit("IntegratedGradients"),
            "quantus": quantus("IntegratedGradients"),
        },
        path,
        right=NEAR,
    ),
    Discipline(
        "guided-backprop",
        {
            "verax": ours("guided-backprop"),
            "captum": captum("GuidedBackprop"),
            "zennit": zennit("GuidedBackprop"),
        },
        rectified(True),
    ),
    Discipline(
        "deconvnet",
        {
            "verax": ours("deconvnet"),
            "captum": captum("Deconvolution"),
            "zennit": zennit("DeconvNet"),
            "quantus": quantus("Deconvolution"),
        },
        rectified(False),
    ),
    Discipline(
        "lrp-z",
        {"verax": ours("lrp-z"), "captum": captum("LRP"), "zennit": zennit("z"), "quantus": quantus("LRP")},
        times_input,
        kinds=LINES,
    ),
    Discipline(
        "deeplift-rescale",
        {
            "verax": ours("deeplift-rescale", baseline=LOW),
            "captum": captum("DeepLift", baselines=LOW),
        },
        sums=change(LOW),
    ),
    Discipline(
        "deep-shap",
        {
            "verax": ours("deep-shap", references=REFERENCES),
            "captum": captum("DeepLiftShap", baselines=REFERENCES),
            "shap": shap,
        },
        sums=mean_change,
    ),
]


def verdict(discipline: Discipline, run: Run, kind: str) -> dict[str, Any]:
    """What an implementation does on a kind of network."""
    model = network(kind)
    try:
        maps = run(copy.deepcopy(model), X, TARGETS)
    except VeraxError as refusal:
        return {"does": "refuses", "why": str(refusal).partition(";")[0][:90]}
    except Exception as failure:
        return {"does": "raises", "why": type(failure).__name__}
    if kind not in discipline.kinds:
        # nobody has a rule for it: an answer is a made-up one
        return {"does": "makes up"}
    if discipline.reference is not None:
        gap = error(maps, discipline.reference(model, X))
    else:
        gap = error(total(maps), discipline.sums(model, X))
    return {"does": "right" if gap <= discipline.right else "wrong", "error": gap}


def alone(run: Run) -> float:
    """How far the map of a sample alone is from its map in the batch, with the same seeds."""

    def seeded(part: slice) -> Tensor:
        return with_seeds(lambda: run(network("module"), X[part], TARGETS[part]))

    return error(torch.cat([seeded(slice(k, k + 1)) for k in range(len(X))]), seeded(slice(None)))


def with_seeds(function: Callable[[], Tensor]) -> Tensor:
    """Run with all global random numbers seeded."""
    kept = np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng():
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002
        maps = function()
    np.random.set_state(kept)  # noqa: NPY002
    return maps


def _noisy(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
    attr = load("captum.attr")
    tunnel = attr.NoiseTunnel(attr.Saliency(model))
    return tunnel.attribute(x.clone(), nt_samples=10, stdevs=0.1, target=targets, abs=False)


def _labels(side: int = 6) -> Tensor:
    half = torch.arange(12) // side
    return (2 * half[:, None] + half)[None, None]


RANDOM: dict[str, dict[str, Run]] = {
    "smoothgrad": {
        "verax": ours("smoothgrad", samples=10),
        "captum": _noisy,
        "zennit": zennit("SmoothGrad"),
    },
    "gradient-shap": {
        "verax": ours("gradient-shap", samples=10),
        "captum": captum("GradientShap", baselines=REFERENCES, n_samples=10, stdevs=0.1),
    },
    "kernel-shap": {
        "verax": ours("kernel-shap", samples=12, size=6),
        "captum": captum("KernelShap", feature_mask=_labels(), n_samples=12),
    },
}


def available(name: str) -> bool:
    """Whether an implementation is installed."""
    if name == "verax":
        return True
    try:
        load(package(name))
    except ImportError:
        return False
    return True


def _shown(item: tuple[str, dict[str, Any]]) -> str:
    kind, cell = item
    return f"{kind} {cell['does']}" + (f" {cell['error']:.1e}" if "error" in cell else "")


def league() -> tuple[list[Result], dict[str, Any], list[str]]:
    """All verdicts; results are how many kinds of network each implementation gets right, by method."""
    table: dict[str, dict[str, dict[str, dict[str, Any]]]] = {}
    results, skipped = [], []
    for discipline in DISCIPLINES:
        rows = table.setdefault(discipline.method, {})
        for name, run in discipline.runs.items():
            if available(name):
                rows[name] = {kind: verdict(discipline, run, kind) for kind in KINDS}
            else:
                skipped.append(f"{discipline.method} of {name}: not installed")
        worst = {
            name: max((cell.get("error", 0.0) for cell in row.values()), default=0.0)
            for name, row in rows.items()
        }
        bad = {
            name: sum(cell["does"] in ("wrong", "makes up") for cell in row.values())
            for name, row in rows.items()
        }
        results.append(
            Result(
                "correctness",
                discipline.method,
                "all kinds",
                ours=float(bad["verax"]),
                unit="kinds of network with a wrong map",
                peers={name: float(count) for name, count in bad.items() if name != "verax"},
                ratio=float(bad["verax"]),
                target=0.0,
                sense="at most",
                notes={name: f"largest error {value:.1e}" for name, value in worst.items()},
            )
        )
        for name, row in rows.items():
            print(f"{discipline.method:22s}{name:9s}{'  '.join(map(_shown, row.items()))}", flush=True)
    batches: dict[str, dict[str, float]] = {}
    for method, runs in RANDOM.items():
        batches[method] = {name: alone(run) for name, run in runs.items() if available(name)}
        print(method, batches[method], flush=True)
        results.append(
            Result(
                "batch dependence",
                method,
                "module",
                4,
                ours=batches[method]["verax"],
                unit="relative distance of a sample's map alone and in a batch",
                peers={name: gap for name, gap in batches[method].items() if name != "verax"},
                ratio=batches[method]["verax"],
                target=1e-6,
                sense="at most",
            )
        )
    return results, {"kinds": list(KINDS), "table": table, "batches": batches}, skipped


def main() -> None:
    """Measure, print, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    start = time.perf_counter()
    results, details, skipped = league()
    print(f"{time.perf_counter() - start:.0f} s")
    if asked.write:
        record = records.Record(
            "league",
            "python benchmarks/league.py --write",
            records.machine(),
            records.versions(),
            results,
            skipped,
            details,
        )
        print(records.write(record).name)


if __name__ == "__main__":
    main()
