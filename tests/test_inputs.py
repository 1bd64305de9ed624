"""What comes from outside: models, inputs, targets, maps, ids, seeds and parameters, good and bad."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import verax
from verax.engine.outputs import OUTPUTS
from verax.errors import InvalidInput, InvalidParameter, VeraxError
from verax.methods import METHODS
from verax.methods.limits import finite, number_above, number_from, one_of, whole_from
from verax.metrics import faithfulness

NAN, INF = math.nan, math.inf


class Net(nn.Module):
    """Convolutions with one output or several; one output may also come as ``(N,)``."""

    def __init__(self, classes=3, flat=False):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.conv, self.head = nn.Conv2d(2, 4, 3, padding=1), nn.Linear(4 * 36, classes)
        self.flat = flat

    def forward(self, x):
        out = self.head(self.conv(x).relu().flatten(1))
        return out[:, 0] if self.flat else out


class Raising(nn.Module):
    """Raises something that is no RuntimeError, at once or from its second call on."""

    def __init__(self, good=0):
        super().__init__()
        self.inner, self.left = Net(), good

    def forward(self, x):
        self.left -= 1
        return self.inner(x) if self.left >= 0 else 1 / 0


@pytest.fixture
def x():
    return torch.rand(2, 2, 6, 6, generator=torch.Generator().manual_seed(1))


TARGETS = torch.tensor([0, 2])


def refused(call, kind, words=None):
    with pytest.raises(kind, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)


# -- parameters ------------------------------------------------------------------------------------------


def test_limits_of_numbers_and_words():
    assert all(map(finite, [0, -2.5, np.float32(1), np.int64(3)]))
    assert not any(map(finite, [True, "1", None, NAN, INF, -INF, 10**400, [1], torch.ones(())]))
    assert [whole_from(1).holds(value) for value in (0, 1, 1.0, np.int64(2), True)] == [0, 1, 0, 1, 0]
    assert [number_from(0, 1).holds(value) for value in (-1e-9, 0, 1, 1.1)] == [0, 1, 1, 0]
    assert [number_above(0, 1).holds(value) for value in (0, 1e-9, 1, 1.1)] == [0, 1, 1, 0]
    assert number_above(0).or_none().holds(None)
    assert not number_above(0).holds(None)
    refused(lambda: one_of("a", "b").check("c", "It"), InvalidParameter, "It must be 'a' or 'b', not 'c'.")
    refused(lambda: whole_from(1).check(torch.zeros(3, 3), "It"), InvalidParameter, "not a Tensor")


def test_every_parameter_of_a_built_in_method_has_a_limit():
    """A default must keep within its limit, and nothing plain is let through that cannot be meant."""
    for name in METHODS:
        method = METHODS.get(name)
        assert set(method.limits) == set(method.parameters), name
        method.settings(method.parameters)
        for word in method.parameters:
            for value in (NAN, INF, object()):
                with pytest.raises(InvalidParameter, match=repr(word)):
                    method.settings({word: value})


BAD = [
    ("lrp-epsilon", {"epsilon": -1.0}),
    ("lrp-gamma", {"gamma": -2.0}),
    ("attn-lrp", {"epsilon": -1e-6}),
    ("deep-taylor", {"low": 1.0, "high": 0.0}),
    ("lrp-a", {"bias": "splt"}),
    ("attention-rollout", {"residual": 1.5}),
    ("smoothgrad", {"noise": INF}),
    ("smoothgrad", {"samples": 0}),
    ("centre", {"width": 0.0}),
    ("centre", {"width": -1.0}),
    ("grad-cam", {"layer": 3}),
    ("grad-cam", {"relu": None}),
    ("gradient-shap", {"references": 5}),
    ("gradient-shap", {"samples": -3}),
    ("gradient-shap", {"noise": -3.0}),
    ("integrated-gradients", {"steps": -1}),
    ("integrated-gradients", {"baseline": NAN}),
    ("integrated-gradients", {"baseline": [0.0]}),
    ("deep-shap", {"references": 0}),
    ("deep-shap", {"noise": NAN}),
    ("blur-ig", {"width": -3.0}),
    ("occlusion", {"window": 2, "stride": 3}),
]


@pytest.mark.parametrize(("name", "settings"), BAD)
def test_impossible_parameters_are_refused(name, settings, x):
    refused(lambda: verax.explain(Net(), x, TARGETS, name, settings=settings), InvalidParameter)
    if METHODS.get(name).total is not None:
        maps = torch.zeros_like(x)
        asked = lambda: verax.completeness(Net(), x, TARGETS, maps, name, settings=settings)  # noqa: E731
        refused(asked, InvalidParameter)


@pytest.mark.parametrize("bad", [NAN, INF])
def test_tensors_as_parameters_must_be_finite(bad, x):
    broken = torch.full_like(x, bad)
    for name, word in (("IG", "baseline"), ("gradient-shap", "references"), ("deep-shap", "references")):
        refused(
            lambda name=name, word=word: verax.explain(Net(), x, TARGETS, name, settings={word: broken}),
            InvalidInput,
            "NaN or infinite",
        )


def test_numbers_of_numpy_are_numbers(x):
    model = Net()
    ours = verax.explain(model, x, TARGETS, "smoothgrad", samples=3, noise=0.5, seed=4)
    theirs = verax.explain(
        model, x, TARGETS, "smoothgrad", samples=np.int64(3), noise=np.float64(0.5), seed=np.int64(4)
    )
    assert torch.equal(ours, theirs)


# -- inputs, ids, seeds, models ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"ids": "ab"}, InvalidInput, "ids must be 2 whole numbers"),
        ({"ids": [0.5, 1.2]}, InvalidInput, "ids must be 2 whole numbers"),
        ({"ids": [1]}, InvalidInput, "ids must be 2 whole numbers"),
        ({"seed": "a"}, InvalidParameter, "seed must be a whole number, not 'a'"),
        ({"seed": 0.5}, InvalidParameter, "seed must be a whole number"),
        ({"settings": 3}, InvalidParameter, "settings must be a mapping"),
        ({"settings": {1: 2}}, InvalidParameter, "no parameter 1"),
        ({"truth": 3}, InvalidInput, "The truth must be"),
        ({"inputs": torch.rand(2, 2, 6, 6).to_sparse()}, InvalidInput, "dense"),
        ({"inputs": torch.rand(2, 2, 6, 6).to(torch.float8_e4m3fn)}, InvalidInput, "not float8_e4m3fn"),
        ({"inputs": np.array([["a"]])}, InvalidInput, "real numbers"),
        ({"targets": [0, 10**30]}, InvalidInput, "whole numbers"),
        ({"model": Raising()}, InvalidInput, "ZeroDivisionError: division by zero"),
        ({"model": Raising(1)}, VeraxError, "ZeroDivisionError: division by zero"),
    ],
)
def test_what_explain_refuses(change, kind, words, x):
    given = {"model": Net(), "inputs": x, "targets": TARGETS, "method": "smoothgrad", **change}
    refused(lambda: verax.explain(**given), kind, words)


@pytest.mark.parametrize("weights", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("values", [torch.float32, torch.float64])
def test_completeness_takes_what_explain_takes(weights, values, x):
    model = Net().to(weights)
    x = x.to(values)
    maps = verax.explain(model, x, None, "deeplift-rescale")
    found = verax.completeness(model, x, None, maps, "deeplift-rescale")
    assert found.shape == (2,)
    assert found.max() < (1e-4 if weights == torch.float32 else 0.1)
    assert torch.equal(found, verax.completeness(model, x, None, maps.numpy(), "deeplift-rescale"))


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"maps": None}, InvalidInput, "Attributions must be a tensor, not NoneType"),
        ({"maps": torch.zeros(1, 2, 6, 6)}, InvalidInput, "do not fit"),
        ({"model": 3}, InvalidInput, "torch.nn.Module, not int"),
        ({"model": Raising()}, InvalidInput, "ZeroDivisionError"),
        ({"model": Raising(1)}, InvalidInput, "ZeroDivisionError"),
        ({"seed": "a"}, InvalidParameter, "seed"),
        ({"settings": 3}, InvalidParameter, "mapping"),
        ({"inputs": torch.rand(2, 72), "maps": torch.rand(2, 72), "method": "blur-ig"}, InvalidInput, None),
    ],
)
def test_what_completeness_refuses(change, kind, words, x):
    given = {"model": Net(), "inputs": x, "targets": TARGETS, "maps": x, "method": "IG", **change}
    refused(lambda: verax.completeness(**given), kind, words)


# -- which output --------------------------------------------------------------------------------------------


def test_the_outputs_that_can_be_explained(x):
    model = Net()
    logits = model(x).detach()
    for name, function in OUTPUTS.items():
        for sample, target in [(0, 0), (0, 1), (1, 2)]:
            row = logits[sample]
            others = [float(value) for place, value in enumerate(row) if place != target]
            share = math.exp(row[target]) / sum(math.exp(value) for value in row)
            wanted = {
                "logit": float(row[target]),
                "probability": share,
                "log-probability": math.log(share),
                "margin": float(row[target]) - max(others),
            }[name]
            assert float(function(logits)[sample, target]) == pytest.approx(wanted, abs=1e-6)


def test_the_gradient_of_a_margin_is_a_difference_of_gradients(x):
    model = Net()
    logits = model(x)
    for target in range(3):
        rival = logits.clone().index_fill(1, torch.tensor(target), -INF).argmax(1)
        ours = verax.explain(model, x, target, "gradient", output="margin")
        own, best = (verax.explain(model, x, y, "gradient") for y in (target, rival))
        torch.testing.assert_close(ours, own - best)


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("output", [name for name in OUTPUTS if name != "logit"])
def test_one_output_has_nothing_but_its_logit(output, flat, x):
    model, targets = Net(1, flat), torch.zeros(2, dtype=torch.int64)
    words = f"one output, so there is no {output}"
    for call in (
        lambda: verax.explain(model, x, targets, "gradient", output=output),
        lambda: verax.completeness(model, x, targets, x, "IG", output=output),
        lambda: faithfulness.deletion(model, x, targets, x, output=output),
    ):
        refused(call, InvalidParameter, words)
    assert verax.explain(model, x, targets, "gradient").abs().sum() > 0
    assert faithfulness.deletion(model, x, targets, x, output="logit").shape == (2,)


# -- faithfulness --------------------------------------------------------------------------------------------

METRICS = {
    "deletion": faithfulness.deletion,
    "insertion": faithfulness.insertion,
    "pixel_flipping": faithfulness.pixel_flipping,
    "infidelity": lambda *given, **more: faithfulness.infidelity(*given, samples=4, **more),
    "max_sensitivity": lambda model, x, y, maps, **more: faithfulness.max_sensitivity(
        model, x, y, "gradient", samples=2, attributions=maps, **more
    ),
}


@pytest.mark.parametrize("name", METRICS)
def test_metrics_convert_what_explain_converts(name, x):
    model, function = Net(), METRICS[name]
    maps = verax.explain(model, x, TARGETS, "gradient")
    wanted = function(model, x, TARGETS, maps)
    assert wanted.isfinite().all()
    for given in (
        (x.double(), TARGETS, maps),
        (x, [0, 2], maps),
        (x.numpy(), TARGETS.to(torch.int32), maps.numpy()),
    ):
        assert torch.equal(function(model, *given), wanted)


@pytest.mark.parametrize("name", METRICS)
def test_what_metrics_refuse(name, x):
    cases = [
        ({"model": 3}, InvalidInput, "torch.nn.Module"),
        ({"model": Raising()}, InvalidInput, "ZeroDivisionError"),
        ({"model": Raising(1)}, VeraxError, "ZeroDivisionError"),
        ({"x": x * NAN}, InvalidInput, "Sample 0"),
        ({"x": x[:0], "y": TARGETS[:0], "maps": x[:0]}, InvalidInput, "samples"),
        ({"x": None}, InvalidInput, "must be a tensor"),
        ({"y": [0, 3]}, InvalidInput, "outputs 0 to 2"),
        ({"y": [0]}, InvalidInput, "2 whole numbers"),
        ({"y": [0.0, 1.0]}, InvalidInput, "2 whole numbers"),
        ({"maps": x[:1]}, InvalidInput, "do not fit"),
        ({"maps": x[0]}, InvalidInput, "do not fit"),
        ({"maps": "maps"}, InvalidInput, "must be a tensor"),
    ]
    for change, kind, words in cases:
        given = {"model": Net(), "x": x, "y": TARGETS, "maps": x, **change}
        refused(lambda given=given: METRICS[name](*given.values()), kind, words)


@pytest.mark.parametrize("name", ["pixel_flipping", "infidelity", "max_sensitivity"])
@pytest.mark.parametrize("change", [{"ids": [1]}, {"ids": "ab"}, {"ids": [0.5, 1.2]}, {"seed": "a"}])
def test_metrics_refuse_bad_ids_and_seeds(name, change, x):
    refused(lambda: METRICS[name](Net(), x, TARGETS, x, **change), VeraxError, next(iter(change)))


def test_metrics_refuse_numbers_that_are_none(x):
    for bad in (NAN, INF, -1.0, "much"):
        for name, word in (("infidelity", "noise"), ("max_sensitivity", "radius")):
            with pytest.raises(InvalidParameter, match=word):
                METRICS[name](Net(), x, TARGETS, x, **{word: bad})
    refused(
        lambda: faithfulness.deletion(Net(), x, TARGETS, x, baseline=NAN), InvalidParameter, "baseline.*nan"
    )
    refused(lambda: faithfulness.perturbation_area([1.0]), InvalidInput, "tensor")


class Asked(nn.Module):
    """Counts how often it runs."""

    def __init__(self, outputs=3):
        super().__init__()
        self.last, self.passes = nn.Linear(4, outputs), 0

    def forward(self, x):
        self.passes += 1
        return self.last(x)


def test_a_network_is_asked_once_how_many_outputs_it_has():
    model, x, y = Asked(), torch.rand(2, 4), torch.tensor([0, 2])
    for passes in (2, 3, 4):
        verax.explain(model, x, y, "gradient")
        assert model.passes == passes
    with pytest.raises(InvalidInput, match="Target 3 does not exist: the network has outputs 0 to 2"):
        verax.explain(model, x, torch.tensor([0, 3]), "gradient")


def test_a_network_is_asked_again_when_it_has_other_layers_or_a_target_seems_wrong():
    model, x = Asked(3), torch.rand(2, 4)
    verax.explain(model, x, torch.tensor([0, 2]), "gradient")
    model.last = nn.Linear(4, 2)
    with pytest.raises(InvalidInput, match="outputs 0 to 1"):
        verax.explain(model, x, torch.tensor([0, 2]), "gradient")
    model.last = nn.Linear(4, 9)
    verax.explain(model, x, torch.tensor([0, 8]), "gradient")
    model.last.weight.data, model.last.bias.data = torch.rand(12, 4), torch.rand(12)
    verax.explain(model, x, torch.tensor([0, 11]), "gradient")


class Moody(Asked):
    """Has other outputs than it said."""

    def forward(self, x):
        return super().forward(x)[:, : 2 if self.passes else 3]


def test_a_network_that_changes_its_mind_is_refused_before_a_target_is_looked_up():
    model, x = Moody(), torch.rand(2, 4)
    model.passes = -1
    with pytest.raises(InvalidInput, match="had 3 outputs, and now has 2"):
        verax.explain(model, x, torch.tensor([0, 2]), "gradient")


class Narrowed(Asked):
    """Shows only some of its outputs, as a tensor or among other things."""

    shown, among = 3, False

    def forward(self, x):
        scores = super().forward(x)[:, : self.shown]
        return {"logits": scores} if self.among else scores


@pytest.mark.parametrize("change", [{"shown": 2}, {"among": True}])
@pytest.mark.parametrize("method", ["gradient", "occlusion"])
def test_a_network_whose_outputs_changed_since_it_was_asked_is_asked_again(change, method):
    model, x, y = Narrowed(), torch.rand(2, 4), torch.tensor([0, 1])
    expected = verax.explain(model, x, y, method)
    for name, value in change.items():
        setattr(model, name, value)
    assert torch.equal(verax.explain(model, x, y, method), expected)
    passes = model.passes
    verax.explain(model, x, y, "gradient")
    assert model.passes == passes + 1 + model.among  # it is remembered, or not trusted, at once


def test_metrics_ask_a_network_each_time_how_many_outputs_it_has():
    model, x = Narrowed(), torch.rand(2, 4)
    method, y = "integrated-gradients", torch.tensor([0, 2])
    maps = verax.explain(model, x, y, method)
    for measured in (
        lambda: faithfulness.deletion(model, x, y, maps, output="logit"),
        lambda: verax.completeness(model, x, y, maps, method),
    ):
        model.shown = 3
        verax.explain(model, x, y, method)
        model.shown = 2
        refused(measured, InvalidInput, "Target 2 does not exist: the network has outputs 0 to 1")


def test_outputs_may_depend_on_the_size_of_the_input():
    model = nn.Identity()
    for width, target in ((4, 3), (6, 5), (4, None)):
        x = torch.rand(2, width)
        y = None if target is None else torch.full((2,), target)
        assert verax.explain(model, x, y, "gradient").shape == x.shape
