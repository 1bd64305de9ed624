import io
from dataclasses import replace

import pytest
import torch
from rich.console import Console
from torch import nn

import verax
from verax.errors import MissingExtra, UnknownName
from verax.methods import METHODS
from verax.metrics import METRICS, focus, overlap, pointing
from verax.metrics.own import described


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


def switching(model, inputs, targets):
    torch.set_grad_enabled(False)
    return inputs.clone()


def freezing(model, inputs, targets):
    model.requires_grad_(False)
    return inputs.clone()


def asking(model, inputs, targets):
    inputs.requires_grad_()
    return inputs.detach().clone()


def retargeting(model, inputs, targets):
    targets += 1
    return inputs.clone()


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
        (switching, UNTOUCHED),
        (freezing, UNTOUCHED),
        (asking, UNTOUCHED),
        (retargeting, UNTOUCHED),
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


def declared(function, **facts):
    usual = {"higher_is_better": True, "bounds": (0, 1)}
    return described("declared", function, **{**usual, **facts})


def focus_share(maps, truth):
    total = maps.sum((1, 2))
    share = (maps * truth.focus).sum((1, 2)) / total.clamp(min=1e-300)
    return torch.where(total > 0, share, truth.focus.double().mean((1, 2)))


def test_a_registered_metric_is_held_to_what_it_says():
    assert verax.check_metric(declared(focus_share)).passed
    direction, bounds = "the truth scores no worse than chance", "stays within its bounds"
    assert failed(verax.check_metric(declared(focus_share, higher_is_better=False))) == {direction}
    assert failed(verax.check_metric(declared(focus_share, bounds=(0, 0.5)))) == {bounds}

    def greedy(maps, truth):
        truth.focus[:] = True
        maps += 1
        return focus_share(maps, truth)

    assert "leaves maps and truth untouched" in failed(verax.check_metric(declared(greedy)))
    assert "gives the same scores twice" in failed(
        verax.check_metric(lambda maps, truth: torch.rand(len(maps)))
    )


def test_a_function_is_known_by_what_it_was_registered_as():
    verax.metric("known", higher_is_better=True, bounds=(0, 1))(focus_share)
    try:
        for subject in (focus_share, "known"):
            report = verax.check_metric(subject)
            assert report.subject == "known"
            assert report.passed, str(report)
    finally:
        METRICS.unregister("known")


def exact_gap(maps, truth):
    right = truth.values.flatten(1)
    gap = (maps / maps.abs().amax(1, keepdim=True).clamp(min=1e-300) - right).abs().sum(1)
    return gap / right.abs().sum(1).clamp(min=1)


def test_metrics_of_an_exact_truth_are_checked_on_one():
    made = declared(exact_gap, protocol="exact", higher_is_better=False, bounds=(0, float("inf")))
    report = verax.check_metric(made)
    assert report.passed, str(report)


@pytest.mark.parametrize("name", ["textbox/simple-fr", "worlds/three-labels", "shapes", "climate/analytic"])
def test_our_tasks_conform(name):
    report = verax.check_task(name)
    assert report.passed, str(report)


class Faulty:
    """A task that is changed in one respect."""

    def __init__(self, **changes):
        self._inner = verax.task("textbox/complex-cr1")
        self._changes = changes

    def __getattr__(self, name):
        return self._changes.get(name) or getattr(self._inner, name)

    def cases(self, group=None, n=20, seed=0, *, start=0, device="cpu"):
        cases = self._inner.cases(group, n, seed, start=start, device=device)
        change = self._changes.get("change")
        return change(cases) if change else cases


def altered(**tensors):
    def change(cases):
        truth = {k: v(cases) for k, v in tensors.items() if k in ("focus", "avoid")}
        rest = {k: v(cases) for k, v in tensors.items() if k not in truth}
        return replace(cases, truth=replace(cases.truth, **truth), **rest)

    return change


@pytest.mark.parametrize(
    ("changes", "fault", "words"),
    [
        (
            {"change": altered(inputs=lambda c: torch.rand(c.inputs.shape))},
            "gives the same cases twice",
            "global random numbers",
        ),
        (
            {
                "change": altered(
                    inputs=lambda c: c.inputs * torch.linspace(0.5, 1, len(c))[:, None, None, None]
                )
            },
            "a case depends on its number alone",
            "start=2 gives other inputs",
        ),
        ({"change": lambda c: c[:-1]}, "gives n cases of every bucket", "has 3 of 4"),
        (
            {"change": altered(ids=lambda c: c.ids * 0)},
            "every case has an id of its own",
            "stand there twice",
        ),
        (
            {"change": altered(inputs=lambda c: c.inputs * 255)},
            "inputs, targets and truth have the shapes and types of cases",
            "pictures must lie between 0 and 1",
        ),
        (
            {"change": altered(targets=lambda c: 1 - c.targets)},
            "targets are labels of their buckets",
            "says another thing about bucket",
        ),
        (
            {"change": altered(targets=lambda c: c.targets + 2)},
            "targets are labels of their buckets",
            "none of the classes 0 to 1",
        ),
        (
            {"change": altered(avoid=lambda c: c.truth.focus)},
            "focus and avoid do not overlap, and are those of the objects",
            "in focus and to be avoided",
        ),
        (
            {"change": altered(focus=lambda c: c.truth.focus.roll(1, -1) & ~c.truth.avoid)},
            "focus and avoid do not overlap, and are those of the objects",
            "the focus mask is not that of the objects",
        ),
        (
            {"fingerprint": lambda: {"me": object()}},
            "says what it is in plain values",
            "another one each time",
        ),
        ({"describe": lambda group: group}, "says what it is in plain values", "not described in words"),
    ],
)
def test_faulty_tasks_are_found(changes, fault, words):
    report = verax.check_task(Faulty(**changes))
    found = {check.name: check.detail for check in report.failures}
    assert words in found[fault]
    assert not report.passed


def test_what_is_no_task_is_said_once():
    report = verax.check_task(nn.ReLU())
    assert len(report.checks) == 1
    assert report.checks[0].detail == "it has no 'name'"


def test_a_report_is_a_table_for_terminals():
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(verax.check_method(lambda model, inputs, targets: inputs[:, 0, 0]))
    text = console.export_text()
    assert "DOES NOT CONFORM" in text
    assert "FAIL" in text
    assert "must return the shape of its inputs" in text
