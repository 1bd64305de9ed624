"""Implementations in the correctness league: how the same thing is asked of each library.

An entrant gets a network of its own, inputs and targets, and gives maps. Peers are set up as their pages say;
what somebody cannot be told stands in the discipline (`disciplines`), not here.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contests import composite, load, package
from games import proximity
from kinds import SIDE, layer_name, segments
from references import NOISE
from verax.methods import METHODS
from verax.seeding import Streams, content_ids

Run = Callable[[nn.Module, Tensor, Tensor], Tensor]
"""(network, inputs, targets) -> maps"""


def available(name: str) -> bool:
    """Whether an implementation is installed."""
    if name == "verax":
        return True
    try:
        load(package(name))
    except ImportError:
        return False
    return True


def ours(name: str, which: str = "", **parameters: Any) -> Run:
    """A method of verax in float64; `which` layer it looks at."""

    def run(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        chosen = METHODS.get(name)
        known = chosen.settings(parameters | ({"layer": layer_name(model, which)} if which else {}))
        if "streams" in chosen.special:
            known["streams"] = Streams.of(content_ids(x), "league")
        return chosen.function(model, x.clone(), targets, **known).detach()

    return run


def times_input(run: Run) -> Run:
    """Maps times the inputs."""
    return lambda model, x, targets: x * run(model, x, targets)


# -- Captum and Quantus, which asks Captum -----------------------------------------------------------------


def captum(name: str, **known: Any) -> Run:
    """A class of Captum."""

    def run(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        made = getattr(load("captum.attr"), name)(model)
        return made.attribute(x.clone().requires_grad_(), target=targets, **known).detach()

    return run


def tunnel(kind: str, draws: int) -> Run:
    """Gradients of Captum under noise."""

    def run(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        attr = load("captum.attr")
        noisy = attr.NoiseTunnel(attr.Saliency(model))
        known = {"nt_type": kind, "nt_samples": draws, "stdevs": NOISE, "abs": False}
        return noisy.attribute(x.clone(), target=targets, **known).detach()

    return run


def captum_rule(name: str, **known: Any) -> Run:
    """LRP of Captum with one rule for all dense layers and convolutions, set as its page says."""

    def run(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        rules = load("captum.attr._utils.lrp_rules")
        for layer in model.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                layer.rule = getattr(rules, name)(**known)
        return captum("LRP")(model, x, targets)

    return run


def captum_cam(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
    """Grad-CAM of Captum, rectified as in the paper and enlarged."""
    made = load("captum.attr").LayerGradCam(model, model.get_submodule(layer_name(model)))
    small = made.attribute(x.clone(), target=targets, relu_attributions=True)
    return F.interpolate(small, x.shape[2:], mode="bilinear").expand_as(x).detach()


def captum_guided_cam(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
    """Guided Grad-CAM of Captum."""
    made = load("captum.attr").GuidedGradCam(model, model.get_submodule(layer_name(model)))
    known = {"interpolate_mode": "bilinear"}
    return made.attribute(x.clone().requires_grad_(), target=targets, **known).detach()


def shared_out(run: Run) -> Run:
    """Values of segments shared out among their numbers, as verax has them."""
    return lambda model, x, targets: run(model, x, targets) / (x.shape[1] * SIDE * SIDE)


def captum_game(name: str, **known: Any) -> Run:
    """A method of Captum on the four segments."""
    return shared_out(captum(name, feature_mask=segments(), **known))


def captum_lime(draws: int) -> Run:
    """LIME of Captum with the kernel and the regression that LIME has for pictures."""

    def near(original: Tensor, perturbed: Tensor, coalition: Tensor, **_: Any) -> float:
        return proximity(int(coalition.sum()), coalition.numel())

    def run(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        ridge = load("captum._utils.models.linear_model").SkLearnRidge(alpha=1.0)
        made = load("captum.attr").Lime(model, interpretable_model=ridge, similarity_func=near)
        known = {"feature_mask": segments(), "n_samples": draws, "perturbations_per_eval": 64}
        return made.attribute(x.clone(), target=targets, **known).detach()

    return shared_out(run)


def quantus(name: str, last: bool = False, **known: Any) -> Run:
    """A wrapper of Quantus; `last`: on the last convolution."""

    def run(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        # it keeps options of one call for the next where it is not given a dictionary
        layer = {"layer": model.get_submodule(layer_name(model))} if last else {}
        given: dict[str, Any] = {"xai_lib_kwargs": layer}
        leaf = x.clone().requires_grad_()
        found = load("quantus").explain(model, leaf, targets, method=name, reduce_axes=(), **given, **known)
        return torch.as_tensor(found).detach().double().expand_as(x)

    return run


# -- zennit ------------------------------------------------------------------------------------------------


def _composite(name: str, **known: Any) -> Any:
    """A composite of zennit, or one of its rules on all layers; batch normalisation is merged."""
    composites = load("zennit.composites")
    # there is no canonizer for residual networks of unknown classes
    merging = [load("zennit.canonizers").SequentialMergeBatchNorm()]
    rules, types = load("zennit.rules"), load("zennit.types")
    if name == "deep-taylor":
        layers = [
            (types.Activation, rules.Pass()),
            (types.AvgPool, rules.Norm()),
            (types.Linear, rules.ZPlus(zero_params="bias")),
        ]
        box = [(types.Convolution, rules.ZBox(**known))]
        return composites.SpecialFirstLayerMapComposite(layers, box, canonizers=merging)
    if not hasattr(rules, name):
        return composite(name, composites, merging)
    layers = [
        (types.Activation, rules.Pass()),
        (types.AvgPool, rules.Norm()),
        (types.Linear, getattr(rules, name)(**known)),
    ]
    return composites.LayerMapComposite(layers, canonizers=merging)


def zennit(name: str, relevance: bool = False, positive: bool = False, **known: Any) -> Run:
    """An attributor, a composite or a rule of zennit.

    Args:
        name: of it.
        relevance: whether the output is what is handed back; else one.
        positive: whether only positive outputs are.
        known: parameters of the attributor or the rule.
    """

    def run(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        attribution = load("zennit.attribution")
        if name in ("Gradient", "IntegratedGradients", "SmoothGrad"):
            made = getattr(attribution, name)(model, **known)
        else:
            made = attribution.Gradient(model, _composite(name, **known))

        def start(out: Tensor) -> Tensor:
            chosen = F.one_hot(targets.repeat(len(out) // len(targets)), out.shape[1]).to(out)
            return chosen * (out.clamp(min=0) if positive else out) if relevance else chosen

        with made as running:
            return running(x.clone().requires_grad_(), start)[1].detach()

    return run


def zennit_smooth(draws: int) -> Run:
    """SmoothGrad of zennit, whose noise is a share of each sample's range: sample by sample."""

    def run(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        def alone(k: int) -> Tensor:
            one = x[k : k + 1]
            level = NOISE / float(one.max() - one.min())
            return zennit("SmoothGrad", n_iter=draws, noise_level=level)(model, one, targets[k : k + 1])

        return torch.cat([alone(k) for k in range(len(x))])

    return run


# -- shap and grad-cam -------------------------------------------------------------------------------------


def shap(name: str, **known: Any) -> Run:
    """An explainer of shap for networks of PyTorch."""
    return lambda model, x, targets: METHODS.get(f"shap:{name}").function(model, x.clone(), targets, **known)


def shap_game(name: str, **known: Any) -> Run:
    """A model-agnostic explainer of shap on the four segments, which are shown or zero."""

    def run(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        package, labels, found = load("shap"), segments()[0, 0], torch.zeros_like(x)
        nobody, everybody = np.zeros((1, 4)), np.ones((1, 4))
        for k, target in enumerate(targets.tolist()):

            def worth(rows: Any, k: int = k, target: int = target) -> Any:
                shown = torch.as_tensor(np.asarray(rows, dtype=float))[:, labels]
                with torch.no_grad():
                    return model(x[k] * shown[:, None])[:, target].numpy()

            if name in ("KernelExplainer", "SamplingExplainer"):
                made = getattr(package, name)(worth, nobody)
                values = made.shap_values(everybody, silent=True, **known)
            else:
                made = getattr(package, name)(worth, package.maskers.Independent(nobody))
                values = made(everybody, **known).values
            found[k] = torch.as_tensor(np.asarray(values)).reshape(4)[labels]
        return found

    return shared_out(run)


def cam(name: str, which: str = "last") -> Run:
    """A class of pytorch_grad_cam."""

    def run(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        module = load("pytorch_grad_cam")
        target = load("pytorch_grad_cam.utils.model_targets").ClassifierOutputTarget
        # FullGrad looks at all biases, and says so when it is given a layer
        layers = [] if name == "FullGrad" else [model.get_submodule(layer_name(model, which))]
        made = getattr(module, name)(model=model, target_layers=layers)
        with contextlib.redirect_stderr(io.StringIO()):  # a progress bar for every sample
            found = made(x.clone().requires_grad_(), [target(number) for number in targets.tolist()])
        made.activations_and_grads.release()
        return torch.as_tensor(found)[:, None].to(x).expand_as(x)

    return run
