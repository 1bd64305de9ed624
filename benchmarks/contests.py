"""Each method of verax beside everybody else who has it: how the same thing is asked of each library.

A peer is a function of a workload that gives maps. Packages are imported when they are needed, so that an
absent one leaves the race with a note instead of ending it.
"""

from __future__ import annotations

import contextlib
import importlib
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import verax
from verax.engine.segments import grid
from verax.methods import METHODS
from verax.networks.zoo import let_torchvision_import
from workloads import Workload

Run = Callable[[Workload], Tensor]
CHUNK = 64
"""Rows of a pass where a peer's chunks can be chosen; about the best for all networks here."""


@dataclass(frozen=True)
class Contest:
    """A method and its rivals.

    Attributes:
        method: of verax.
        passes: rows through the network for one sample.
        peers: implementation -> how it is asked.
        parameters: what verax is asked.
        check: "same" (maps of a peer must equal ours), "scaled" (up to scale and offset of each map) or
            "" (random numbers, or another definition with the same cost).
        backward: whether a pass has a backward.
        perturbs: whether it belongs to the perturbation methods.
        pictures: whether it needs feature maps.
        least: rows that have to go through the network for one sample, where they are fewer than `passes`.
    """

    method: str
    passes: Callable[[Workload], int] = lambda w: 1
    peers: dict[str, Run] = field(default_factory=dict)
    parameters: Callable[[Workload], dict[str, Any]] = lambda w: {}
    check: str = "same"
    backward: bool = True
    perturbs: bool = False
    pictures: bool = False
    least: int | None = None

    def takes(self, w: Workload) -> bool:
        """Whether the method has maps for such a network."""
        return not self.pictures or bool(w.layer)

    def ours(self, w: Workload) -> Tensor:
        """The map of verax."""
        return verax.explain(
            w.model, w.x, w.y, method=self.method, batch_size=len(w.x), settings=self.parameters(w)
        )


def package(peer: str) -> str:
    """The module that an implementation needs."""
    names = {"captum": "captum.attr", "zennit": "zennit.composites", "grad-cam": "pytorch_grad_cam"}
    first = peer.partition(" ")[0]
    return names.get(first, first)


def load(module: str) -> Any:
    """An optional package; torchvision's missing operators are declared first."""
    with contextlib.suppress(ImportError):
        let_torchvision_import()
    return importlib.import_module(module)


# -- Captum ------------------------------------------------------------------------------------------------


def captum(name: str, **known: Any) -> Run:
    """A class of Captum; `known` may hold functions of the workload."""

    def run(w: Workload) -> Tensor:
        made = getattr(load("captum.attr"), name)(w.model)
        given = {key: value(w) if callable(value) else value for key, value in known.items()}
        return made.attribute(w.x, target=w.y, **given).detach()

    return run


def _tunnel(kind: str, chunk: bool) -> Run:
    def run(w: Workload) -> Tensor:
        attr = load("captum.attr")
        own = {"nt_samples_batch_size": max(1, min(w.draws, CHUNK // len(w.x)))} if chunk else {}
        tunnel = attr.NoiseTunnel(attr.Saliency(w.model))
        return tunnel.attribute(
            w.x, nt_type=kind, nt_samples=w.draws, stdevs=0.1, target=w.y, abs=False, **own
        ).detach()

    return run


def _captum_cam(w: Workload) -> Tensor:
    attr = load("captum.attr")
    layer = w.model.get_submodule(w.layer)
    small = attr.LayerGradCam(w.model, layer).attribute(w.x, target=w.y, relu_attributions=True)
    return torch.nn.functional.interpolate(small, w.x.shape[2:], mode="bilinear").expand_as(w.x).detach()


def _guided_cam(w: Workload) -> Tensor:
    attr = load("captum.attr")
    made = attr.GuidedGradCam(w.model, w.model.get_submodule(w.layer))
    return made.attribute(w.x, target=w.y, interpolate_mode="bilinear").detach()


def _labels(w: Workload) -> Tensor:
    return grid(w.x, w.size).labels


def _together(w: Workload) -> int:
    """Masks of a sample in one pass, as somebody would choose who has read Captum's pages."""
    return max(1, CHUNK // len(w.x))


def _many(w: Workload) -> int:
    """Masks in one pass where Captum takes sample after sample."""
    return min(w.coalitions, CHUNK)


def _window(w: Workload) -> dict[str, Any]:
    if w.x.ndim == 2:  # the features of a vector have no neighbours
        return {"sliding_window_shapes": (1,)}
    return {
        "sliding_window_shapes": (w.x.shape[1], w.size, w.size),
        "strides": (w.x.shape[1], w.size // 2, w.size // 2),
    }


def _occlusion(tuned: bool) -> Run:
    def run(w: Workload) -> Tensor:
        more = {"perturbations_per_eval": _together(w)} if tuned else {}
        return load("captum.attr").Occlusion(w.model).attribute(w.x, target=w.y, **_window(w), **more)

    return run


def _lime(tuned: bool, name: str) -> Run:
    more = {"perturbations_per_eval": _many} if tuned else {}
    return captum(name, feature_mask=_labels, n_samples=lambda w: w.coalitions, **more)


def _spread(run: Run) -> Run:
    """Values of segments shared out among their numbers, as verax has them."""

    def shared(w: Workload) -> Tensor:
        labels = _labels(w).expand_as(w.x)
        counts = torch.bincount(labels[0].flatten())
        return run(w) / counts[labels]

    return shared


def _references(w: Workload) -> Tensor:
    return w.x.roll(1, 0)[:1].expand(w.draws // 4, *w.x.shape[1:]) * torch.linspace(
        0, 1, w.draws // 4, device=w.x.device
    ).reshape(-1, *[1] * (w.x.ndim - 1))


# -- zennit ------------------------------------------------------------------------------------------------


def _one_hot(w: Workload, relevance: bool) -> Callable[[Tensor], Tensor]:
    def start(out: Tensor) -> Tensor:
        chosen = torch.zeros_like(out).scatter_(1, w.y[:, None], 1.0)
        return chosen * out if relevance else chosen

    return start


def zennit(name: str, relevance: bool = True) -> Run:
    """A composite of zennit, with the canonizer that residual networks of torchvision need."""

    def run(w: Workload) -> Tensor:
        composites = load("zennit.composites")
        made = composite(name, composites, _canonizers(w))
        with load("zennit.attribution").Gradient(w.model, made) as running:
            return running(w.x.clone().requires_grad_(), _one_hot(w, relevance))[1].detach()

    return run


def _canonizers(w: Workload) -> list[Any]:
    return [load("zennit.torchvision").ResNetCanonizer()] if w.name.startswith("resnet") else []


def composite(name: str, composites: Any, canonizers: list[Any]) -> Any:
    """A composite of zennit, or one rule for all dense and convolutional layers."""
    if hasattr(composites, name):
        return getattr(composites, name)(canonizers=canonizers)
    rules, types = load("zennit.rules"), load("zennit.types")
    made = {
        "z": lambda: rules.Epsilon(1e-12),
        "epsilon": lambda: rules.Epsilon(1e-6),
        "gamma": lambda: rules.Gamma(0.25),
        "alpha1beta0": lambda: rules.AlphaBeta(1, 0),
        "alpha2beta1": lambda: rules.AlphaBeta(2, 1),
    }[name]()
    layers = [
        (types.Activation, rules.Pass()),
        (types.AvgPool, rules.Norm()),
        (load("zennit.layer").Sum, rules.Norm()),
        (types.BatchNorm, rules.Pass()),
        (types.Linear, made),
    ]
    return composites.LayerMapComposite(layers, canonizers=canonizers)


def _zennit_plain(name: str, **known: Any) -> Run:
    def run(w: Workload) -> Tensor:
        given = {key: value(w) if callable(value) else value for key, value in known.items()}
        made = getattr(load("zennit.attribution"), name)(w.model, **given)
        with made as running:
            return running(w.x.clone().requires_grad_(), _one_hot(w, False))[1].detach()

    return run


# -- shap and grad-cam -------------------------------------------------------------------------------------


def shap(name: str, **known: Any) -> Run:
    """An explainer of shap on the explained output alone."""

    def run(w: Workload) -> Tensor:
        given = {key: value(w) if callable(value) else value for key, value in known.items()}
        return METHODS.get(f"shap:{name}").function(w.model, w.x.clone(), w.y, **given)

    return run


def cam(name: str) -> Run:
    """A class of pytorch_grad_cam."""

    def run(w: Workload) -> Tensor:
        module = load("pytorch_grad_cam")
        target = load("pytorch_grad_cam.utils.model_targets").ClassifierOutputTarget
        layers = [] if name == "FullGrad" else [w.model.get_submodule(w.layer)]
        made = getattr(module, name)(model=w.model, target_layers=layers)
        with contextlib.redirect_stderr(io.StringIO()):  # a progress bar for every sample
            found = made(w.x.clone().requires_grad_(), [target(number) for number in w.y.tolist()])
        made.activations_and_grads.release()
        return torch.as_tensor(found)[:, None].to(w.x).expand_as(w.x)

    return run


# -- all of them -------------------------------------------------------------------------------------------


def _draws(w: Workload) -> int:
    return w.draws


def _windows(w: Workload) -> int:
    return w.x.shape[1] if w.x.ndim == 2 else int(2 * w.segments**0.5 - 1) ** 2


def _layer(w: Workload) -> dict[str, Any]:
    return {"layer": w.layer}


def _samples(w: Workload) -> dict[str, Any]:
    return {"samples": w.draws}


def _segments(w: Workload) -> dict[str, Any]:
    return {"size": w.size}


def _regression(w: Workload) -> dict[str, Any]:
    return {"samples": w.coalitions, "size": w.size}


def _noisy(method: str, kind: str) -> Contest:
    peers = {"captum": _tunnel(kind, False), "captum tuned": _tunnel(kind, True)}
    if kind == "smoothgrad":
        peers["zennit"] = _zennit_plain("SmoothGrad", n_iter=_draws, noise_level=0.1)
    return Contest(method, _draws, peers, _samples, check="")


CAMS = {
    "grad-cam": "GradCAM",
    "grad-cam-plus-plus": "GradCAMPlusPlus",
    "hires-cam": "HiResCAM",
    "layer-cam": "LayerCAM",
}

CONTESTS = [
    Contest(
        "gradient",
        peers={
            "captum": captum("Saliency", abs=False),
            "zennit": _zennit_plain("Gradient"),
        },
    ),
    Contest("input-x-gradient", peers={"captum": captum("InputXGradient")}),
    Contest(
        "integrated-gradients",
        _draws,
        {
            "captum": captum("IntegratedGradients", n_steps=_draws),
            "captum tuned": captum(
                "IntegratedGradients",
                n_steps=_draws,
                internal_batch_size=lambda w: max(len(w.x), CHUNK),
            ),
            "zennit": _zennit_plain("IntegratedGradients", n_iter=_draws),
        },
        lambda w: {"steps": w.draws},
        check="",
    ),
    _noisy("smoothgrad", "smoothgrad"),
    _noisy("smoothgrad-squared", "smoothgrad_sq"),
    _noisy("vargrad", "vargrad"),
    Contest(
        "gradient-shap",
        _draws,
        {
            "captum": captum("GradientShap", baselines=_references, n_samples=_draws, stdevs=0.1),
            "shap": shap("GradientExplainer", references=_references, nsamples=_draws),
        },
        lambda w: {"samples": w.draws, "references": _references(w)},
        check="",
    ),
    Contest(
        "guided-backprop",
        peers={"captum": captum("GuidedBackprop"), "zennit": zennit("GuidedBackprop", False)},
    ),
    Contest("deconvnet", peers={"captum": captum("Deconvolution"), "zennit": zennit("DeconvNet", False)}),
    Contest("lrp-z", peers={"captum": captum("LRP"), "zennit": zennit("z")}),
    Contest("lrp-epsilon", peers={"captum": captum("LRP"), "zennit": zennit("epsilon")}),
    Contest("lrp-gamma", peers={"zennit": zennit("gamma")}),
    Contest("lrp-alpha1beta0", peers={"zennit": zennit("alpha1beta0")}),
    Contest("lrp-alpha2beta1", peers={"zennit": zennit("alpha2beta1")}),
    Contest("lrp-a", peers={"zennit": zennit("EpsilonPlusFlat")}),
    Contest("lrp-b", peers={"zennit": zennit("EpsilonAlpha2Beta1Flat")}),
    Contest("deep-taylor", peers={"zennit": zennit("ExcitationBackprop")}, check=""),
    Contest("deeplift-rescale", peers={"captum": captum("DeepLift")}),
    Contest("deeplift-reveal-cancel"),
    Contest(
        "deep-shap",
        lambda w: w.draws // 4,
        {
            "captum": captum("DeepLiftShap", baselines=_references),
            "shap": shap("DeepExplainer", references=_references, check_additivity=False),
        },
        lambda w: {"references": _references(w)},
    ),
    *(
        Contest(
            ours,
            peers={"grad-cam": cam(theirs)} | ({"captum": _captum_cam} if ours == "grad-cam" else {}),
            parameters=_layer,
            check="scaled",
            pictures=True,
        )
        for ours, theirs in CAMS.items()
    ),
    Contest("guided-grad-cam", peers={"captum": _guided_cam}, parameters=_layer, pictures=True),
    Contest("fullgrad", peers={"grad-cam": cam("FullGrad")}, check="", pictures=True),
    Contest(
        "score-cam",
        lambda w: 64,
        {"grad-cam": cam("ScoreCAM")},
        _layer,
        check="",
        backward=False,
        perturbs=True,
        pictures=True,
    ),
    Contest(
        "ablation-cam",
        lambda w: 64,
        {"grad-cam": cam("AblationCAM")},
        _layer,
        check="",
        backward=False,
        perturbs=True,
        pictures=True,
        least=3,
    ),
    Contest(
        "occlusion",
        _windows,
        {"captum": _occlusion(False), "captum tuned": _occlusion(True)},
        lambda w: {"window": w.size, "stride": w.size // 2},
        backward=False,
        perturbs=True,
    ),
    Contest(
        "feature-ablation",
        lambda w: w.segments,
        {
            "captum": _spread(captum("FeatureAblation", feature_mask=_labels)),
            "captum tuned": _spread(
                captum("FeatureAblation", feature_mask=_labels, perturbations_per_eval=_together)
            ),
        },
        _segments,
        backward=False,
        perturbs=True,
    ),
    Contest(
        "lime",
        lambda w: w.coalitions,
        {"captum": _lime(False, "Lime"), "captum tuned": _lime(True, "Lime")},
        _regression,
        check="",
        backward=False,
        perturbs=True,
    ),
    Contest(
        "kernel-shap",
        lambda w: w.coalitions,
        {"captum": _lime(False, "KernelShap"), "captum tuned": _lime(True, "KernelShap")},
        _regression,
        check="",
        backward=False,
        perturbs=True,
    ),
    Contest(
        "shapley-sampling",
        lambda w: 2 * w.segments,
        {
            "captum": captum("ShapleyValueSampling", feature_mask=_labels, n_samples=2),
            "captum tuned": captum(
                "ShapleyValueSampling", feature_mask=_labels, n_samples=2, perturbations_per_eval=_together
            ),
        },
        lambda w: {"permutations": 2, "size": w.size},
        check="",
        backward=False,
        perturbs=True,
    ),
    Contest(
        "rise", lambda w: w.coalitions, parameters=lambda w: {"samples": w.coalitions}, backward=False,
        perturbs=True, pictures=True,
    ),
    Contest("blur-ig", _draws, parameters=lambda w: {"steps": w.draws}, pictures=True),
    Contest("guided-ig", _draws, parameters=lambda w: {"steps": w.draws}),
]  # fmt: skip
