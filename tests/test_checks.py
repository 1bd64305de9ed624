import pytest
import torch
from torch import nn

import verax
from verax.errors import MissingExtra, UnknownName
from verax.methods import METHODS
from verax.metrics import focus, overlap, pointing


def failed(report):
    return {check.name for check in report.checks if check.passed is False}


OURS = [
    name
    for name in METHODS
    if METHODS.get(name).builtin
    and METHODS.get(name).family not in ("truth", "attention", "peers")
    and METHODS.get(name).needs != "additive"
]


@pytest.mark.parametrize("name", OURS)
def test_every_method_of_ours_conforms(name):
    report = verax.check_method(name)
    assert report.passed, str(report)


def by_backward(model, inputs, targets):
    inputs.requires_grad_()
    model(inputs).gather(1, targets[:, None]).sum().backward()
    return inputs.grad


def noisy(model, inputs, targets):
    return torch.rand_like(inputs)


def batch_dependent(model, inputs, targets):
    return inputs - inputs.mean(0)


def overwriting(model, inputs, targets):
    inputs += 1
    return inputs.clone()


def training(model, inputs, targets):
    model.train()
    return inputs


def hooked(model, inputs, targets):
    model.head.register_forward_hook(lambda *a: None)
    return inputs


def classless(model, inputs, targets):
    x = inputs.clone().requires_grad_()
    return torch.autograd.grad(model(x).sum(), x)[0]


def by_modules(model, inputs, targets):
    """The gradient with negative signals stopped at ReLU modules only."""
    handles = [
        m.register_full_backward_hook(lambda mod, gi, go: (gi[0].clamp_min(0),))
        for m in model.modules()
        if isinstance(m, nn.ReLU)
    ]
    x = inputs.clone().requires_grad_()
    maps = torch.autograd.grad(model(x).gather(1, targets[:, None]).sum(), x)[0]
    for handle in handles:
        handle.remove()
    return maps


UNTOUCHED = "leaves network and inputs untouched"


@pytest.mark.parametrize(
    ("method", "fault"),
    [
        (by_backward, UNTOUCHED),
        (noisy, "does not depend on the order"),
        (batch_dependent, "does not depend on the batch"),
        (overwriting, UNTOUCHED),
        (training, UNTOUCHED),
        (hooked, UNTOUCHED),
        (classless, "depends on the explained class"),
        (by_modules, "same map for the functional spelling of a network"),
        (lambda m, x, t: x * float("nan"), "gives finite maps of the inputs' shape"),
        (lambda m, x, t: x[:, 0, 0], "gives finite maps of the inputs' shape"),
        (lambda m, x, t: 1 / 0, "gives finite maps of the inputs' shape"),
    ],
)
def test_each_fault_is_found(method, fault):
    report = verax.check_method(method)
    assert fault in failed(report)
    assert not report.passed
    assert "DOES NOT CONFORM" in str(report)


def test_known_failures_of_peers_are_found():
    functional = "same map for the functional spelling of a network"
    for name in ("captum:GuidedBackprop", "captum:DeepLift"):
        assert functional in failed(verax.check_method(name))
    assert verax.check_method("captum:IntegratedGradients").passed


def test_our_metrics_conform():
    def maps(attributions):
        return attributions.sum(1).abs().double()

    metrics = {
        "focus": lambda m, t: focus.shares(maps(m), t)["focus"],
        "rank": lambda m, t: overlap.rank_accuracy(maps(m), t.focus),
        "iou": lambda m, t: overlap.iou(maps(m), t.focus),
        "pointing": lambda m, t: pointing.pointing(maps(m), t.focus),
    }
    for metric in metrics.values():
        report = verax.check_metric(metric)
        assert report.passed, str(report)


def first_maximum(maps, truth):
    """The pointing game with ties broken by index order: a lucky hit for what stands first."""
    place = maps.sum(1).flatten(1).nan_to_num().argmax(1)
    return truth.focus.flatten(1)[torch.arange(len(maps)), place].float()


@pytest.mark.parametrize(
    ("metric", "fault"),
    [
        (first_maximum, "breaks ties without regard to position"),
        (lambda m, t: m.flatten(1).sum(1), "does not depend on the scale of a map"),
        (lambda m, t: m.flatten(1).sum(1) / m.flatten(1).sum(1), "scores degenerate maps"),
        (lambda m, t: (m - m.mean(0)).flatten(1).norm(dim=1), "does not depend on the batch"),
        (lambda m, t: m.sum(), "gives one score for each sample"),
    ],
)
def test_faulty_metrics_are_found(metric, fault):
    assert fault in failed(verax.check_metric(metric))


def test_adapters_name_what_is_missing():
    with pytest.raises(UnknownName, match="did you mean 'IntegratedGradients'"):
        verax.explain(nn.Linear(2, 2), torch.rand(1, 2), method="captum:IntegratedGradient")
    with pytest.raises(UnknownName, match="no method named 'captun:Saliency'"):
        verax.explain(nn.Linear(2, 2), torch.rand(1, 2), method="captun:Saliency")


def test_a_missing_extra_gives_the_command(monkeypatch):
    import importlib

    real = importlib.import_module

    def missing(name, *rest):
        if name.startswith("captum"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(MissingExtra, match=r"pip install 'verax\[compare\]'"):
        METHODS.get("captum:Lime")


def test_adapters_agree_with_ours_where_peers_are_right():
    task = verax.task("textbox/simple-nr")
    cases, model = task.cases(n=1), task.network()

    def maps(name, **parameters):
        return verax.explain(model, cases.inputs, cases.targets, method=name, **parameters)

    pairs = [
        (maps("captum:InputXGradient"), maps("input-x-gradient")),
        (maps("captum:GuidedBackprop"), maps("guided-backprop")),
        (maps("captum:DeepLift"), maps("deeplift-rescale")),
        (maps("zennit:EpsilonPlusFlat"), maps("lrp-a")),
        (maps("zennit:EpsilonAlpha2Beta1Flat"), maps("lrp-b")),
        (maps("captum:IntegratedGradients", n_steps=32), maps("integrated-gradients")),
    ]
    for theirs, ours in pairs:
        assert (theirs - ours).norm() < 1e-3 * ours.norm()


def test_a_refusal_is_no_fault_and_is_said_once():
    report = verax.check_method("attention-rollout")
    assert not report.passed
    assert len(report.checks) == 1
    assert "could not be checked" in str(report)


def test_a_method_that_raises_is_said_once():
    def broken(model, inputs, targets):
        raise ZeroDivisionError("oh")

    report = verax.check_method(broken)
    assert len(report.checks) == 1
    assert "DOES NOT CONFORM" in str(report)


def test_buffers_that_are_left_behind_are_noticed():
    def careless(model, inputs, targets):
        model.register_buffer("kept", inputs.detach().clone())
        return inputs.clone()

    failed = [check for check in verax.check_method(careless).checks if check.passed is False]
    assert "left behind" in "".join(check.detail for check in failed)
