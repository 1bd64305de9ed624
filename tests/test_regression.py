"""Regression networks: their start, their training, the linear solutions, the library and the certificate."""

import copy
import json
import math

import numpy as np
import pytest
import torch
from torch import nn

import verax
from little_climate import little_task
from verax.errors import InvalidInput, InvalidParameter, MissingFile, WeightsError
from verax.networks import certificates, dense, fits, library, linear, regression
from verax.networks.regression import Schedule
from verax.networks.starts import initialise

QUICK = Schedule(rate=3e-3, batch=128, epochs=1)
ENOUGH = Schedule(rate=3e-3, batch=128, epochs=12)


@pytest.fixture(scope="module")
def task():
    return little_task()


@pytest.fixture(scope="module")
def trained(task):
    return regression.train(task, "mlp", recipe=ENOUGH, quiet=True)


def test_the_published_network_has_its_size_and_its_start():
    model = dense.mlp()
    assert sum(p.numel() for p in model.parameters()) == 410_112
    layers = [layer for layer in model if isinstance(layer, nn.Linear)]
    assert [layer.out_features for layer in layers] == [512, 256, 128, 64, 32, 16, 1]
    assert layers[-1].bias is None
    assert not layers[0].bias.any()
    assert float(layers[0].weight.detach().std()) == pytest.approx(1 / 458, rel=0.02)
    for layer in layers[1:-1]:
        spread = math.sqrt(2 / layer.in_features)
        assert float(layer.weight.detach().std()) == pytest.approx(spread, rel=0.1)
        assert float(layer.weight.detach().abs().max()) <= 2 * spread / 0.8796 + 1e-6
        assert layer.bias.any()


def test_first_weights_follow_the_seed_alone():
    a, b, c = (initialise("mlp", 1, seed, features=9)[0].weight for seed in (0, 0, 1))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


# --- linear networks --------------------------------------------------------------------------------------


def everything(task):
    parts = [task.samples.chunk(i) for i in range(task.samples.chunks)]
    return torch.cat([x for x, _ in parts]).double(), torch.cat([y for _, y in parts]).double()


@pytest.mark.parametrize("name", ["linear", "linear-intercept", "ridge"])
def test_linear_networks_solve_least_squares(task, name):
    x, y = everything(task)
    model = regression.train(task, name, quiet=True).model
    design = x if name == "linear" else torch.cat([x, torch.ones(len(x), 1).double()], 1)
    penalty = torch.zeros(design.shape[1]).double()
    if name == "ridge":
        penalty[:-1] = linear.PENALTY * len(x)
    right = torch.linalg.solve(design.T @ design + penalty.diag(), design.T @ y)
    np.testing.assert_allclose(model[0].weight[0].detach(), right[: x.shape[1]], atol=1e-6)
    if name != "linear":
        np.testing.assert_allclose(model[0].bias.item(), right[-1], atol=1e-6)


def test_moments_do_not_depend_on_chunks(task):
    from dataclasses import replace

    whole = linear.Moments.of(task.samples)
    parts = linear.Moments.of(replace(task.samples, size=300))
    assert whole.count == parts.count == 4096
    for name in ("x", "y", "xx", "xy"):
        np.testing.assert_allclose(getattr(whole, name), getattr(parts, name), rtol=1e-5, atol=1e-5)


def test_a_linear_function_is_found_exactly():
    task = little_task(breaks=0)
    fit = regression.train(task, "linear", quiet=True).certificate
    assert fit.value("r2") > 0.9999
    assert fit.value("dependence") > 0.9999
    assert fit.passed


def test_an_intercept_can_only_help(task):
    fits_ = {
        name: regression.train(task, name, quiet=True).certificate for name in ("linear", "linear-intercept")
    }
    assert fits_["linear-intercept"].value("r2") > fits_["linear"].value("r2")


# --- training ---------------------------------------------------------------------------------------------


def test_training_is_deterministic_and_learns(task, trained):
    again = [regression.train(task, "mlp", recipe=QUICK, quiet=True).model for _ in range(2)]
    for a, b in zip(*(m.parameters() for m in again), strict=True):
        assert torch.equal(a, b)
    fit = trained.certificate
    assert fit.value("r2") > 0.85
    x, y = task.held_out.chunk(0)
    with torch.no_grad():
        left = (trained.model(x)[:, 0] - y).square().mean() / y.var()
    assert float(1 - left) == pytest.approx(fit.value("r2"), abs=0.02)


def test_samples_that_are_not_kept_train_as_well(task, monkeypatch):
    monkeypatch.setattr(regression, "MEMORY", 0)
    fit = regression.train(task, "mlp", recipe=ENOUGH, quiet=True).certificate
    assert fit.value("r2") > 0.8


def test_the_published_recipe_is_plain_descent(task):
    plan = regression.find_schedule("published", len(task.samples))
    assert plan == Schedule(0.02, 32, 50, adam=False, scaled=False)
    seen = []
    regression.train(task, "mlp", recipe=Schedule(0.02, 32, 1, False, False), watch=seen.append)
    assert seen[-1].step == 4096 // 32


def test_fast_has_enough_steps_for_few_samples():
    for count in (10, 1000, 10_000, 100_000, 1_000_000):
        plan = regression.find_schedule("fast", count)
        assert plan.batch <= 1024
        assert plan.epochs <= 50
    assert regression.find_schedule("fast", 1_000_000) == regression.SCHEDULES["fast"]
    few = regression.find_schedule("fast", 1000)
    assert few.epochs * (1000 // few.batch) > 1000


def test_refusals_are_sentences(task):
    with pytest.raises(InvalidParameter, match="is for pictures"):
        regression.train(task, "cnn4")
    with pytest.raises(InvalidParameter, match="no recipe"):
        regression.train(task, "linear@published")
    with pytest.raises(InvalidParameter, match="have no recipe 'robust'"):
        regression.train(task, "mlp@robust")
    with pytest.raises(InvalidParameter, match="is for vectors"):
        verax.train(verax.task("textbox/simple-fr"), "mlp")
    with pytest.raises(InvalidInput, match="no certificate"):
        certificates.certify(dense.mlp(), task)


def test_one_door_for_both_kinds_of_tasks(task):
    done = verax.train(task, "ridge", quiet=True)
    assert isinstance(done, regression.Fitted)
    fit = verax.certify(done.model, task, n=20)
    assert isinstance(fit, fits.Fit)


# --- the certificate --------------------------------------------------------------------------------------


def test_the_function_itself_passes_with_ones(task):
    fit = fits.certify(task.function.module(), task, n=20)
    assert fit.passed
    for name in ("r2", "gradient", "dependence", "path"):
        assert fit.value(name) == pytest.approx(1, abs=1e-4)
    assert fit.error[0] < 1e-10


def test_good_predictions_for_wrong_reasons_do_not_pass():
    """Where all cells are near copies, F of their mean predicts well, and no cell works as it does in F."""
    task = little_task(uniform=0.98)

    class Averaging(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = task.function.module()

        def forward(self, x):
            return self.inner(x.mean(1, keepdim=True).expand_as(x))

    fit = fits.certify(Averaging(), task, n=50)
    assert fit.value("r2") > fit.limits.r2
    assert fit.value("gradient") < fit.limits.gradient
    assert fit.value("dependence") < fit.limits.dependence
    assert not fit.passed


def test_dependence_is_what_setting_one_cell_does(task):
    x = task.held_out.chunk(0)[0][:30]
    model = dense.mlp(features=task.features).eval()
    table = fits.dependence(model, task, x, torch.tensor([3]))
    for row in table.itertuples():
        high, low = x.clone(), x.clone()
        high[:, 3], low[:, 3] = row.level, 0.0
        with torch.no_grad():
            assert row.network == pytest.approx(float((model(high) - model(low)).mean()), abs=1e-7)
        point = torch.zeros(1, task.features)
        point[:, 3] = row.level
        assert row.function == pytest.approx(float(task.function.total(point)), abs=1e-7)


def test_certificates_are_given_on_held_out_samples(task):
    seen = []

    class Noting(nn.Module):
        def forward(self, x):
            seen.append(x.detach().clone())
            return x.mean(1, keepdim=True)

    fits.certify(Noting(), task, n=5, seed=3)
    held = task.drawn("test", fits.HELD_OUT, 3).chunk(0)[0]
    torch.testing.assert_close(seen[0], held[: len(seen[0])])
    assert not torch.allclose(seen[0], task.drawn("train", fits.HELD_OUT, 3).chunk(0)[0][: len(seen[0])])


def test_elements_are_drawn_by_the_seed():
    found = [fits.elements(458, seed) for seed in (0, 0, 1)]
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert all(len(torch.unique(cells)) == fits.CELLS for cells in found)
    assert len(torch.unique(torch.cat([fits.elements(458, seed) for seed in range(60)]))) > 450
    assert torch.equal(fits.elements(7), torch.arange(7))


class Additional(nn.Module):
    """The function, and something else."""

    def __init__(self, task, more):
        super().__init__()
        self.function, self.more = task.function.module(), more

    def forward(self, x):
        return self.function(x) + self.more(x)[:, None]


@pytest.mark.parametrize("baseline", [0.0, 1.5])
def test_a_network_that_is_wrong_near_the_baseline_fails(baseline):
    task = verax.task("climate/analytic", baseline=baseline)
    generator = torch.Generator().manual_seed(2)
    wrong = torch.randn(task.features, generator=generator)

    def bump(x):  # no sample comes so near
        away = x - baseline
        return (away @ wrong) * torch.relu(0.2 - away.square().mean(1))

    fit = fits.certify(Additional(task, bump), task, n=20)
    for name in ("r2", "gradient", "dependence"):
        assert fit.value(name) > 0.99
    assert fit.value("path") < fit.limits.path
    assert not fit.passed


def test_a_network_that_is_wrong_in_elements_known_beforehand_fails():
    """It adds what samples of the field hardly have, in all but the 48 elements that were once looked at."""
    task = verax.task("climate/analytic")
    free = torch.ones(task.features, dtype=torch.bool)
    free[torch.linspace(0, task.features - 1, 48).round().long()] = False
    rare = torch.linalg.eigh(task.field.correlation[free][:, free])[1][:, 0].float()
    wrong = torch.zeros(task.features)
    wrong[free] = 1.6 * rare * task.function.slope(task.cases(n=20).inputs).norm(dim=1).mean()
    fit = fits.certify(Additional(task, lambda x: x @ wrong), task, n=20)
    assert fit.value("r2") > 0.99
    assert fit.value("gradient") > fit.limits.gradient
    assert fit.value("dependence") < fit.limits.dependence
    assert fit.value("path") < fit.limits.path


def test_path_is_the_mean_slope_on_the_way():
    task = little_task(baseline=0.7)
    model = nn.Linear(task.features, 1)
    with torch.no_grad():
        model.weight.copy_(torch.randn(task.features, generator=torch.Generator().manual_seed(0)))
    x = task.held_out.chunk(0)[0][:8]
    found = fits.path(model, task, x)
    right = (task.values(x) / (x - 0.7)).double()  # C(x) - C(b) is the mean slope times the way
    for row in range(8):
        both = torch.stack([model.weight.detach()[0].double(), right[row]])
        assert float(found[row]) == pytest.approx(float(torch.corrcoef(both)[0, 1]), abs=0.05)


def test_limits_decide_and_are_checked(task):
    model = initialise("mlp", 1, 0, features=task.features).eval()
    assert not fits.certify(model, task, n=5).passed
    anything = fits.Limits(r2=-9, gradient=-1, dependence=-1, path=-1)
    assert fits.certify(model, task, n=5, limits=anything).passed
    with pytest.raises(InvalidParameter, match="limit of r2"):
        fits.Limits(r2=2)
    with pytest.raises(InvalidParameter, match="whole number from 2"):
        fits.certify(model, task, n=1)


def test_r_squared_and_its_interval():
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(4000, generator=generator)
    given = y + 0.5 * torch.randn(4000, generator=generator)
    value, low, high = fits.r_squared(y, given)
    assert value == pytest.approx(float(1 - (y - given).square().mean() / y.var(correction=0)), abs=1e-6)
    assert low < value < high
    assert high - low < 0.05


# --- the library ------------------------------------------------------------------------------------------


def test_a_stored_network_comes_back_as_it_was(task, trained, tmp_path):
    path = library.save(trained, tmp_path / "networks")
    record = json.loads(path.with_suffix(".json").read_text())
    assert record["certificate"]["r2"] == pytest.approx(trained.certificate.value("r2"))
    assert record["curriculum"]["samples"] == 4096
    back = library.load(path, "mlp", 1)
    x = task.held_out.chunk(0)[0][:9]
    with torch.no_grad():
        assert torch.equal(back(x), trained.model(x))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(WeightsError, match="damaged"):
        library.load(path, "mlp", 1)


def test_networks_are_found_by_what_they_were_taught(trained):
    library.save(copy.copy(trained))
    assert library.find(little_task(), "mlp@own", 0) is not None
    assert library.find(little_task(baseline=1.0), "mlp@own", 0) is not None  # it changes the truth alone
    for other in (
        little_task(seed=1),
        little_task(count=500),
        little_task(breaks=2),
        little_task(uniform=0.3),
    ):
        assert library.find(other, "mlp@own", 0) is None
    assert library.find(little_task(), "mlp", 0) is None  # of the recipe fast
    with pytest.raises(MissingFile, match="train one"):
        library.require(little_task(), "mlp", 1)
    with pytest.raises(InvalidParameter, match="is for pictures"):
        library.require(little_task(), "cnn4", 0)


def test_half_precision_would_not_change_maps(task, trained):
    """Why single precision is a matter of large grids, not of this network."""
    cases = task.cases(n=20)
    rounded = copy.deepcopy(trained.model).half().float()
    maps = [
        verax.explain(m, cases.inputs, cases.targets, "input-x-gradient") for m in (trained.model, rounded)
    ]
    from verax.correlations import correlation

    assert float(correlation(*(m.double() for m in maps)).min()) > 0.999
