"""Totals: what maps promise to add up to, who may miss it, and what the page and the terminal say of it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import verax
from verax.engine.baselines import baseline_of
from verax.errors import InvalidInput, InvalidParameter
from verax.methods import METHODS
from verax.methods.base import SLACKS
from verax.methods.completeness import completeness_error
from verax.methods.explaining import streams_of
from verax.reports import promises

EXACT = {
    "deeplift-rescale": {},
    "deeplift-reveal-cancel": {},
    "deep-shap": {"references": 3},
    "deep-shap@published": {"references": 3},
    "kernel-shap": {"size": 3, "samples": 16},
    "shapley-sampling": {"size": 3, "permutations": 3},
    "exact-shapley": {"size": 3},
    "exact-additive": {"size": 3},
}


@pytest.fixture
def data():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        conv = nn.Conv2d(2, 4, 3, padding=1)
        model = nn.Sequential(conv, nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3)).eval()
        return model, torch.rand(5, 2, 6, 6), torch.tensor([0, 1, 2, 0, 1])


def error(data, method, output="logit", **settings):
    model, x, y = data
    maps = verax.explain(model, x, y, method=method, seed=4, output=output, **settings)
    return verax.completeness(model, x, y, maps, method, seed=4, output=output, **settings)


def test_the_exact_methods_are_those_that_say_so():
    firm = {name for name in METHODS if METHODS.get(name).total and METHODS.get(name).slack == "rounding"}
    assert firm == set(EXACT)
    assert all(METHODS.get(name).slack in SLACKS for name in METHODS)


@pytest.mark.parametrize("name", EXACT)
def test_exact_methods_keep_their_promise(name, data):
    if METHODS.get(name).needs == "additive":
        torch.manual_seed(0)
        data = nn.Sequential(nn.Flatten(), nn.Linear(72, 3)).eval(), *data[1:]
    assert error(data, name, **EXACT[name]).max() < 1e-4
    assert error(data, name, baseline=0.3, **EXACT[name]).max() < 1e-4
    model, x, y = data
    maps = verax.explain(model, x, y, method=name, seed=4, **EXACT[name])
    halved = verax.completeness(model, x, y, maps / 2, name, seed=4, **EXACT[name])
    torch.testing.assert_close(halved, torch.full((5,), 0.5, dtype=torch.float64), rtol=0, atol=1e-3)


class Counting(nn.Module):
    """A network that notes how many samples it was asked about."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.asked = inner, []

    def forward(self, x):
        self.asked.append(len(x))
        return self.inner(x)


SAME = {"number": 0.3, "word": "zeros", "one": torch.rand(1, 2, 6, 6), "picture": torch.rand(2, 6, 6)}
OWN = {"mean": "mean", "each": torch.rand(5, 2, 6, 6)}


@pytest.mark.parametrize("kind", [*SAME, *OWN])
def test_the_network_is_asked_no_more_than_it_must(kind, data):
    model, x, y = data
    baseline = {**SAME, **OWN}[kind]
    method, counting = METHODS.get("deeplift-rescale"), Counting(model)
    settings = method.settings({"baseline": baseline})
    maps = verax.explain(model, x, y, method=method, baseline=baseline)
    with torch.no_grad():
        outputs = model(x)
    found = completeness_error(method, counting, x, y, maps, settings, outputs=outputs)
    assert sum(counting.asked) == (1 if kind in SAME else 5)
    assert found.max() < 1e-4
    again = completeness_error(method, model, x, y, maps, settings)
    torch.testing.assert_close(found, again, rtol=0, atol=1e-5)
    moved = completeness_error(method, model, x, y, maps, settings, outputs=outputs + torch.arange(3.0))
    assert moved[1:3].min() > 1e-2  # it is these outputs that count


def test_random_references_are_those_that_the_method_drew(data):
    model, x, y = data
    for settings in ({"references": 3}, {"references": torch.rand(4, 2, 6, 6)}, {"baseline": "noise"}):
        assert error(data, "deep-shap", **settings).max() < 1e-4
    assert error(data, "kernel-shap", baseline="noise", size=3).max() < 1e-4
    maps = verax.explain(model, x, y, method="deep-shap", references=3, noise=0.5, seed=4)
    other = verax.completeness(model, x, y, maps, "deep-shap", references=3, noise=0.5, seed=5)
    assert other.min() > 1e-3
    ids = torch.arange(5)
    maps = verax.explain(model, x, y, method="deep-shap", references=3, ids=ids)
    alone = verax.completeness(model, x[2:3], y[2:3], maps[2:3], "deep-shap", references=3, ids=ids[2:3])
    assert alone.max() < 1e-4


def test_gaps_close_with_steps_and_draws(data):
    for name, few, many, limit in (
        ("integrated-gradients", {"steps": 1, "rule": "left"}, {"steps": 256}, 0.01),
        ("blur-ig", {"steps": 1}, {"steps": 128}, 0.05),
        ("gradient-shap", {"samples": 2}, {"samples": 2048}, 0.2),
    ):
        assert error(data, name, **many).median() < limit
        assert error(data, name, **many).median() < error(data, name, **few).median()
    pool = torch.rand(3, 2, 6, 6)
    assert error(data, "gradient-shap", samples=1024, references=pool).median() < 0.2


def test_biases_keep_a_part_of_relevance_and_nothing_else_does(data):
    model = data[0]
    assert error(data, "lrp-epsilon").max() > 0.01
    for layer in (model[0], model[3]):
        nn.init.zeros_(layer.bias)
    assert error(data, "lrp-epsilon").max() < 1e-3
    assert error(data, "lrp-epsilon", epsilon=1.0).max() > 0.1


def test_by_hand_for_another_output(data):
    model, x, y = data
    maps = verax.explain(model, x, y, method="integrated-gradients", output="probability", baseline="mean")
    low = baseline_of("mean", x)
    with torch.no_grad():
        change = (model(x).softmax(1) - model(low).softmax(1)).double().gather(1, y[:, None])[:, 0]
    wanted = (maps.double().flatten(1).sum(1) - change).abs() / change.abs()
    found = verax.completeness(
        model, x, y, maps, "integrated-gradients", output="probability", baseline="mean"
    )
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-6)


def test_what_is_refused(data):
    model, x, y = data
    with pytest.raises(InvalidParameter, match="'gradient' promises no total"):
        verax.completeness(model, x, y, x, "gradient")
    with pytest.raises(InvalidInput, match="do not fit"):
        verax.completeness(model, x, y, x[:, :1], "deep-shap")
    with pytest.raises(InvalidParameter, match="did you mean 'references'"):
        verax.completeness(model, x, y, x, "deep-shap", reference=3)
    with pytest.raises(InvalidInput, match="ids must be"):
        streams_of(METHODS.get("deep-shap"), x, torch.arange(2), 0)


def manifest(slack="rounding", median=0.2, total="change"):
    gaps = [{"median": median, "largest": 3.0}, {"median": median, "largest": 0.5}]
    units = [{"method": "made", "task": str(k), "completeness_error": gap} for k, gap in enumerate(gaps)]
    promise = {"label": "made", "total": total, "slack": slack}
    silent = {"label": "silent", "total": None, "slack": "rounding"}
    old = {"label": "made by an older version"}
    return {"methods": [promise, silent, old], "units": [*units, {"method": "silent", "task": "0"}]}


def test_only_broken_promises_are_alarms():
    assert "made: half of its maps miss the promised total by 20 %" in promises.alarms(manifest())[0]
    assert "more steps" in promises.alarms(manifest("steps"))[0]
    assert promises.alarms(manifest(median=0.01)) == []
    broken = promises.alarms(manifest("steps", median=float("nan")))
    assert broken == ["made: half of its maps or more are not finite and have no total."]
    for slack in ("biases", "draws", "path"):
        assert promises.alarms(manifest(slack, 0.98)) == []


def test_rows_of_the_page():
    made, silent, old = promises.rows(manifest("biases", 1e-6))
    assert made["total"] == "the change of the output from its baseline"
    assert "by design" in made["slack"]
    assert (made["median"], made["largest"]) == ("below 0.01 %", "300 %")
    assert {silent[name] for name in ("total", "slack", "median", "largest")} == {"–"}
    assert old["median"] == "–"


def test_baselines_that_do_not_fit_are_told_beside_all_inputs(data):
    model, x, y = data
    with pytest.raises(InvalidInput, match=r"inputs of shape \(5, 2, 6, 6\)"):
        verax.completeness(model, x, y, x, "deeplift-rescale", baseline=torch.zeros(1, 1, 2, 6, 6))
