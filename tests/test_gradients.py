"""Noise, paths, full gradients and Deep SHAP against Captum, loops and axioms (float64)."""

import itertools

import captum.attr as captum
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import verax
from spellings import SPELLINGS, Between, Spelled, plain, residual
from verax import methods
from verax.engine import batching, convolutions, layouts
from verax.engine.baselines import baseline_of, blurred, scale_space
from verax.engine.biases import full_gradient
from verax.engine.gradients import gradient
from verax.errors import InvalidInput, InvalidParameter, UnsupportedOperation
from verax.methods import METHODS
from verax.methods.gradients import fullgrad, smoothgrad, smoothgrad_squared, vargrad
from verax.methods.paths import blur_ig, gradient_shap, guided_ig
from verax.methods.references import deep_shap
from verax.seeding import Streams

TARGETS = torch.tensor([0, 1, 2, 3, 4, 0])
NEW = (
    "smoothgrad-squared",
    "vargrad",
    "gradient-shap",
    "blur-ig",
    "guided-ig",
    "fullgrad",
    "deep-shap",
)


def drawn(*shape, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        x = torch.rand(*shape, dtype=torch.float64)
    if len(shape) == 4:
        x[:, :, :3] = 0  # exact zeros, as on a black background
    return x


X = drawn(6, 3, 14, 14)
STREAMS = Streams.of(torch.arange(6), "test")


def error(a, b):
    assert a.shape == b.shape
    return float((a - b).norm() / b.norm())


def chosen(model, x, targets=TARGETS):
    return model(x).gather(1, targets[:, None])[:, 0].detach()


def affine():
    with torch.random.fork_rng():
        torch.manual_seed(2)
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(576, 5)).double().eval()


def smooth():
    """No kinks, so that sums along a path converge at their own rate."""
    with torch.random.fork_rng():
        torch.manual_seed(2)
        layers = nn.Conv2d(3, 4, 3, 2), nn.Tanh(), nn.Flatten(), nn.Linear(144, 8), nn.Softplus()
        return nn.Sequential(*layers, nn.Linear(8, 5)).double().eval()


# -- noise -----------------------------------------------------------------------------------------------

TYPES = {"smoothgrad": smoothgrad, "smoothgrad_sq": smoothgrad_squared, "vargrad": vargrad}


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("kind", TYPES)
def test_noise_tunnel_with_the_same_noise(kind, relative, monkeypatch):
    model = plain()
    ours = TYPES[kind](model, X, TARGETS, STREAMS, samples=7, noise=0.2, relative=relative)
    width = 0.2 * ((X.amax((1, 2, 3)) - X.amin((1, 2, 3))) if relative else torch.ones(6, dtype=X.dtype))
    noise = STREAMS.normal("smoothgrad", 7, *X.shape[1:]).double() * width[:, None, None, None, None]
    # Captum repeats every sample and draws normal(0, stdevs) for the copies
    monkeypatch.setattr(torch, "normal", lambda *args, **kwargs: noise.flatten(0, 1))
    tunnel = captum.NoiseTunnel(captum.Saliency(model))
    theirs = tunnel.attribute(X, nt_type=kind, nt_samples=7, stdevs=1.0, target=TARGETS, abs=False)
    assert error(ours, theirs.detach()) < 1e-12


def test_variance_keeps_its_digits():
    class Steep(nn.Module):
        def forward(self, x):
            return (1e6 * x + 0.5 * x**2).flatten(1).sum(1, keepdim=True)

    x = drawn(4, 9).float()
    noise = STREAMS[:4].normal("smoothgrad", 500, 9)
    ours = vargrad(Steep(), x, torch.zeros(4, dtype=torch.int64), STREAMS[:4], samples=500, noise=1.0)
    wanted = noise.double().var(1, correction=0)  # the gradient is 1e6 + x + noise
    assert ((ours - wanted).abs() / wanted).max() < 0.1  # the naive formula is off by 1e5


def test_variances_do_not_depend_on_the_passes(monkeypatch):
    model, rows = plain(), []
    whole = vargrad(model, X, TARGETS, STREAMS, 7, 0.2)
    for limit in (1, 3, 20):
        monkeypatch.setattr(methods.gradients, "rows_within_budget", lambda sample, limit=limit: limit)
        rows.append(vargrad(model, X, TARGETS, STREAMS, 7, 0.2))
    assert max(error(found, whole) for found in rows) < 1e-12


def test_noise_of_nothing():
    model = plain()
    slope = gradient(model, X, TARGETS)
    assert error(smoothgrad_squared(model, X, TARGETS, STREAMS, 3, 0.0), slope**2) < 1e-13
    assert vargrad(model, X, TARGETS, STREAMS, 3, 0.0).abs().max() == 0
    flat = torch.full_like(X, 0.3)  # no range, so no relative noise
    assert (
        error(smoothgrad(model, flat, TARGETS, STREAMS, 3, 5.0, True), gradient(model, flat, TARGETS)) < 1e-13
    )


# -- gradient SHAP ---------------------------------------------------------------------------------------


def test_gradient_shap_by_a_loop():
    model, references = plain(), drawn(4, 3, 14, 14, seed=5)
    index, along = STREAMS.integers("reference", 4, 9), STREAMS.uniform("place", 9)
    wanted = torch.zeros_like(X)
    for k in range(9):
        start = references[index[:, k]]
        point = start + along[:, k, None, None, None] * (X - start)
        wanted += (X - start) * gradient(model, point, TARGETS) / 9
    assert error(gradient_shap(model, X, TARGETS, STREAMS, 9, references), wanted) < 1e-13
    assert len(index.unique()) == 4
    wanted = torch.zeros_like(X)
    noise = STREAMS.normal("baselines", 9, *X.shape[1:]).double()
    for k in range(9):
        start = 0.25 + 0.2 * noise[:, k]
        point = start + along[:, k, None, None, None] * (X - start)
        wanted += (X - start) * gradient(model, point, TARGETS) / 9
    ours = gradient_shap(model, X, TARGETS, STREAMS, 9, baseline=0.25, noise=0.2)
    assert error(ours, wanted) < 1e-13


def test_gradient_shap_equals_captum_in_expectation():
    model, references = smooth(), drawn(3, 3, 14, 14, seed=5)
    x, targets, streams = X[:2], TARGETS[:2], STREAMS[:2]
    ours = gradient_shap(model, x, targets, streams, 3000, references)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002
        theirs = captum.GradientShap(model).attribute(
            x, references, n_samples=3000, stdevs=0.0, target=targets
        )
    # baselines are drawn, so each differs from the exact mean over references by about 1 / sqrt(3000)
    exact = sum(
        captum.IntegratedGradients(model).attribute(x, r[None], targets, n_steps=100) for r in references
    )
    exact = exact.detach() / 3
    assert error(ours, exact) < 0.05
    assert error(ours, theirs.detach()) < 0.07
    rise = chosen(model, x, targets) - model(references)[:, targets].mean(0).detach()
    assert (ours.flatten(1).sum(1) - rise).abs().max() < 0.05 * chosen(model, x, targets).abs().max()


def test_gradient_shap_is_exact_for_linear_models():
    model = affine()
    drawn_start = 0.1 * STREAMS.normal("baselines", 11, *X.shape[1:]).double()
    wanted = chosen(model, X) - sum(chosen(model, drawn_start[:, k]) for k in range(11)) / 11
    assert error(gradient_shap(model, X, TARGETS, STREAMS, 11).flatten(1).sum(1), wanted) < 1e-12
    one = drawn(1, 3, 14, 14, seed=5)
    wanted = chosen(model, X) - chosen(model, one.expand_as(X))
    assert error(gradient_shap(model, X, TARGETS, STREAMS, 2, one).flatten(1).sum(1), wanted) < 1e-12


# -- blur ------------------------------------------------------------------------------------------------


def test_the_scale_space_is_a_gaussian_blur():
    from scipy import ndimage

    widths = torch.tensor([4.0, 1.5, 0.7, 0.0])
    path = scale_space(X, widths)
    assert torch.equal(path[:, 3], X)
    for k in range(3):
        wanted = ndimage.gaussian_filter(
            X.numpy(), (0, 0, float(widths[k]), float(widths[k])), mode="nearest", truncate=30
        )
        np.testing.assert_allclose(path[:, k], wanted, atol=1e-5)
    assert error(path[:, 1], blurred(X, 1.5)) < 0.01
    assert torch.allclose(scale_space(torch.ones_like(X), widths), torch.ones(1, dtype=X.dtype))


def test_blur_ig_by_a_loop():
    model = plain()
    places = [3.0 * (1 - k / 5) ** 2 for k in range(6)]
    pictures = [scale_space(X, torch.tensor([w]))[:, 0] for w in places]
    wanted = torch.zeros_like(X)
    for one, two in itertools.pairwise(pictures):
        wanted += (two - one) * gradient(model, (one + two) / 2, TARGETS)
    assert error(blur_ig(model, X, TARGETS, 5, 3.0), wanted) < 1e-4  # kernels end at 5 widths of the widest


@pytest.mark.parametrize(("make", "tolerance"), [(smooth, 1e-5), (plain, 2e-2)])
def test_blur_ig_is_complete_in_the_limit(make, tolerance):
    model = make()
    rise = chosen(model, X) - chosen(model, scale_space(X, torch.tensor([3.5]))[:, 0])
    errors = [error(blur_ig(model, X, TARGETS, steps).flatten(1).sum(1), rise) for steps in (4, 200)]
    assert errors[1] < tolerance
    assert errors[1] < errors[0] / 3


# -- guided paths ----------------------------------------------------------------------------------------


def guided_by_a_loop(model, x, x0, target, steps, fraction, distance, rule):
    """The algorithm of the paper for one sample, in the coordinates of the picture."""
    total, point = np.abs(x - x0).sum(), x0.copy()
    result = np.zeros_like(x)

    def slope_at(point):
        return gradient(model, torch.from_numpy(point)[None], target[None])[0].numpy()

    for step in range(steps):
        slope = slope_at(point)
        alpha = (step + 1) / steps
        least = x0 + max(alpha - distance, 0) * (x - x0)
        most = x0 + min(alpha + distance, 1) * (x - x0)
        left = total * (1 - alpha)
        before = point.copy()
        behind = np.abs(point - x0) < np.abs(least - x0)
        point = np.where(behind, least, point)
        while np.abs(x - point).sum() - left > 1e-9 * total:
            ranked = np.abs(slope).copy()
            ranked[np.abs(most - point) < 1e-13] = np.inf
            threshold = np.sort(ranked.ravel())[int(fraction * (ranked.size - 1))]
            subset = (ranked <= threshold) & (ranked < np.inf)
            room = np.abs(most - point)[subset].sum()
            gamma = (np.abs(x - point).sum() - left) / room
            point = np.where(subset, point + min(gamma, 1) * (most - point), point)
        weight = slope if rule == "left" else (slope + slope_at(point)) / 2
        result += weight * (point - before)
    return result


@pytest.mark.parametrize(
    ("fraction", "distance", "start"), [(0.25, 0.02, 0.0), (0.1, 0.3, 0.4), (1.0, 1.0, 0.0), (0.05, 1.0, 0.2)]
)
@pytest.mark.parametrize("rule", ["left", "trapezoid"])
def test_guided_ig_by_a_loop(fraction, distance, start, rule, monkeypatch):
    # a greedy path turns with the last digit of a slope, in which one row may differ from several
    monkeypatch.setattr(convolutions, "_WORTH_ON_CPU", 2**62)
    monkeypatch.setattr(layouts, "_ROWS", 2**62)
    model = plain()
    ours = guided_ig(model, X, TARGETS, 12, fraction, distance, rule, start)
    for k in range(len(X)):
        wanted = guided_by_a_loop(
            model, X[k].numpy(), np.full(X[k].shape, start), TARGETS[k], 12, fraction, distance, rule
        )
        np.testing.assert_allclose(ours[k], wanted, rtol=1e-6, atol=1e-9)


def test_guided_ig_without_freedom_is_integrated_gradients():
    model = plain()
    for rule, steps in (("left", 20), ("trapezoid", 21)):
        ours = guided_ig(model, X, TARGETS, 20, distance=0.0, rule=rule)
        wanted = verax.explain(model, X, TARGETS, method="IG", steps=steps, rule=rule)
        assert error(ours, wanted.double()) < 1e-6
    assert error(guided_ig(model, X, TARGETS, 20, distance=0.5), wanted.double()) > 0.05


def test_guided_ig_is_complete_in_the_limit():
    model = smooth()
    rise = chosen(model, X) - chosen(model, torch.zeros_like(X))
    for rule, tolerance in (("left", 2e-3), ("trapezoid", 1e-5)):
        few, many = (
            error(guided_ig(model, X, TARGETS, n, rule=rule).flatten(1).sum(1), rise) for n in (10, 100)
        )
        assert many < tolerance
        assert many < few / 5
    assert guided_ig(model, torch.zeros_like(X), TARGETS, 3).abs().max() == 0


def test_guided_ig_at_kinks():
    model = plain()
    rise = chosen(model, X) - chosen(model, torch.zeros_like(X))
    both = [
        error(guided_ig(model, X, TARGETS, rule=r).flatten(1).sum(1), rise) for r in ("left", "trapezoid")
    ]
    assert both[1] < 0.05
    assert both[1] < both[0] / 2


# -- full gradients --------------------------------------------------------------------------------------


class Curved(nn.Module):
    """Operations with implicit biases, products and quotients of paths, constants on both sides."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(4)
            self.a, self.b = nn.Conv2d(3, 6, 3, 2).double(), nn.Linear(216, 5).double()

    def forward(self, x):
        x = (x - 0.3) / 0.7
        x = torch.tanh(self.a(x))
        y = 1.5 - F.gelu(x) * torch.sigmoid(x)
        y = torch.sub(y, x, alpha=0.5).clamp(-0.2, 1.1)
        y = F.relu6(4 * y) / (2 + x.exp()) + 1 / (3 + x**2)
        y = y + torch.add(x, 0.25, alpha=2) @ x.mT
        return self.b(y.flatten(1))


NETWORKS = {
    "plain": plain,
    "batch norm": lambda: plain(norm=True),
    "average pooling": lambda: plain(pool="avg", norm=True),
    "residual": residual,
    "curved": Curved,
    "smooth": smooth,
}


@pytest.mark.parametrize("name", NETWORKS)
def test_full_gradients_add_up_to_the_output(name):
    model = NETWORKS[name]()
    x = drawn(5, 3, 32, 32) if name == "residual" else X
    targets = torch.tensor([0, 1, 2, 3, 0]) if name == "residual" else TARGETS
    own, parts, outputs = full_gradient(model, x, targets)
    assert error(own, x * gradient(model, x, targets)) < 1e-12
    assert parts
    together = own.flatten(1).sum(1) + sum(part.flatten(1).sum(1) for part in parts)
    assert error(together, chosen(model, x, targets)) < 1e-12
    assert error(outputs, chosen(model, x, targets)) < 1e-12
    assert error(own.flatten(1).sum(1), outputs) > 0.01  # biases matter here


def test_full_gradients_without_bias_are_input_times_gradient():
    model = residual(bias=False)
    x, targets = drawn(4, 3, 32, 32), torch.tensor([0, 1, 2, 3])
    own, parts, _ = full_gradient(model, x, targets)
    # batch norms keep their shift, which is -mean * scale + bias: both are zero here
    assert all(part.abs().max() == 0 for part in parts)
    assert error(own.flatten(1).sum(1), chosen(model, x, targets)) < 1e-12
    wanted = own.abs().sum(1, keepdim=True).expand_as(x)
    assert error(fullgrad(model, x, targets, rescale=False), wanted) < 1e-13


def test_full_gradient_refuses_what_it_does_not_know():
    with pytest.raises(UnsupportedOperation, match="cumsum"):
        full_gradient(Between(lambda v: v.cumsum(1)), drawn(4, 6), torch.tensor([0, 1, 2, 0]))


@pytest.mark.parametrize("rescale", [True, False])
def test_fullgrad_by_hooks(rescale):
    model = plain(norm=True)
    x = X.clone().requires_grad_()
    kept = []
    handles = []
    for layer in model:
        if isinstance(layer, nn.Conv2d | nn.BatchNorm2d):

            def hook(layer, args, output):
                output.retain_grad()
                kept.append((layer, output))

            handles.append(layer.register_forward_hook(hook))
    model(x).gather(1, TARGETS[:, None]).sum().backward()
    for handle in handles:
        handle.remove()

    def psi(part):
        part = part.abs()
        if rescale:
            flat = part.flatten(1)
            part = part - flat.min(1).values[:, None, None, None]
            part = part / part.flatten(1).max(1).values[:, None, None, None]
        return F.interpolate(part, (14, 14), mode="bilinear").sum(1)

    wanted = psi((x * x.grad).detach())
    for layer, output in kept:
        bias = layer.bias
        if isinstance(layer, nn.BatchNorm2d):
            bias = bias - layer.running_mean * layer.weight / (layer.running_var + layer.eps).sqrt()
        wanted = wanted + psi((output.grad * bias[:, None, None]).detach())
    assert len(kept) == 4
    ours = fullgrad(model, X, TARGETS, rescale)
    assert error(ours[:, 0], wanted) < 1e-12
    assert torch.equal(ours[:, 0], ours[:, 2])


# -- Deep SHAP -------------------------------------------------------------------------------------------


def test_deep_shap_equals_captum_without_pooling():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, 2), nn.ReLU(), nn.Flatten())
        model = model.append(nn.Linear(200, 5)).double().eval()
    references = drawn(7, 3, 14, 14, seed=9)
    theirs = captum.DeepLiftShap(model).attribute(X, references, target=TARGETS).detach()
    assert error(deep_shap(model, X, TARGETS, STREAMS, references), theirs) < 1e-13


@pytest.mark.parametrize("make", [plain, residual])
def test_deep_shap_adds_up(make):
    model = make()
    x = X[:4] if make is plain else drawn(4, 3, 32, 32)
    targets, streams = TARGETS[:4], STREAMS[:4]
    references = drawn(5, *x.shape[1:], seed=9)
    rise = chosen(model, x, targets) - model(references)[:, targets].mean(0).detach()
    assert error(deep_shap(model, x, targets, streams, references).flatten(1).sum(1), rise) < 1e-10
    made = 0.2 + 0.3 * streams.normal("baselines", 6, *x.shape[1:]).double()
    rise = chosen(model, x, targets) - sum(chosen(model, made[:, k], targets) for k in range(6)) / 6
    ours = deep_shap(model, x, targets, streams, 6, 0.2, 0.3)
    assert error(ours.flatten(1).sum(1), rise) < 1e-10
    one = deep_shap(model, x, targets, streams, references[:1])
    lift = verax.explain(model, x, targets, method="deeplift-rescale", baseline=references[:1])
    assert error(one, lift.double()) < 1e-6


def test_noise_baselines_stay_within_the_range_and_differ():
    from verax.engine.baselines import noisy_baselines

    x = X * torch.arange(1.0, 7.0)[:, None, None, None] - 1
    made = noisy_baselines("noise", x, STREAMS, 5, 0.1)(slice(0, 6), slice(0, 5))
    low, high = x.flatten(1).aminmax(dim=1)
    assert (made >= low[:, None, None, None, None]).all()
    assert (made <= high[:, None, None, None, None]).all()
    assert not torch.equal(made[:, 0], made[:, 1])
    part = noisy_baselines("noise", x, STREAMS, 5, 0.1)(slice(2, 4), slice(1, 3))
    assert torch.equal(part, made[2:4, 1:3])
    made = noisy_baselines("mean", x, STREAMS, 5, 0.0)(slice(0, 6), slice(2, 3))
    assert torch.equal(made[:, 0], baseline_of("mean", x))


# -- what holds for all of them --------------------------------------------------------------------------


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("name", NEW)
def test_spellings_give_identical_maps(name, spelling):
    model = plain()
    settings = {"steps": 10} if name == "guided-ig" else {}
    wanted = verax.explain(model, X, TARGETS, method=name, ids=torch.arange(6), **settings)
    got = verax.explain(Spelled(model, spelling), X, TARGETS, method=name, ids=torch.arange(6), **settings)
    assert wanted.abs().sum() > 0
    assert error(got, wanted) < 1e-6


@pytest.mark.parametrize("name", NEW)
def test_maps_do_not_depend_on_the_batch(name, monkeypatch):
    model = plain()
    settings = {"steps": 10} if name == "guided-ig" else {}

    def maps(rows=slice(None), **more):
        return verax.explain(model, X[rows], TARGETS[rows], method=name, **settings, **more)

    whole = maps()
    assert error(maps(batch_size=2), whole) < 1e-6
    order = torch.tensor([4, 2, 0, 1, 3, 5])
    assert error(maps(order), whole[order]) < 1e-6
    assert error(maps(slice(3, 4)), whole[3:4]) < 1e-6
    monkeypatch.setattr(batching.rows_within_budget, "__defaults__", (588 * 3,))
    assert error(maps(), whole) < 1e-6
    assert torch.equal(maps(), maps())


@pytest.mark.parametrize("function", [deep_shap, gradient_shap])
def test_reference_sets_may_be_larger_than_a_pass(function, monkeypatch):
    model, references = plain(), drawn(7, 3, 14, 14, seed=9)
    whole = function(model, X, TARGETS, STREAMS, references=references)
    monkeypatch.setattr(batching.rows_within_budget, "__defaults__", (588 * 3,))
    assert error(function(model, X, TARGETS, STREAMS, references=references), whole) < 1e-12


def test_seeds_and_names_draw_other_numbers():
    model = plain()
    for name in ("smoothgrad-squared", "vargrad", "gradient-shap", "deep-shap"):
        one = verax.explain(model, X, TARGETS, method=name)
        assert error(verax.explain(model, X, TARGETS, method=name, seed=1), one) > 1e-3


def test_vectors_can_be_explained_where_it_makes_sense():
    model, x = Between(F.relu), drawn(4, 6)
    for name in set(NEW) - {"blur-ig", "fullgrad"}:
        assert verax.explain(model, x, torch.tensor([0, 1, 2, 0]), method=name).shape == x.shape


@pytest.mark.parametrize(
    ("name", "settings", "kind", "words"),
    [
        ("smoothgrad-squared", dict(samples=0), InvalidParameter, "'samples'.*from 1, not 0"),
        ("vargrad", dict(noise=-1.0), InvalidParameter, "'noise'.*from 0, not -1"),
        ("gradient-shap", dict(samples=0), InvalidParameter, "'samples'.*from 1, not 0"),
        ("gradient-shap", dict(references=torch.zeros(2, 5)), InvalidInput, "References must have the shape"),
        ("gradient-shap", dict(references=torch.zeros(0, 3, 14, 14)), InvalidInput, "References"),
        ("gradient-shap", dict(baseline="zero"), InvalidParameter, "did you mean 'zeros'"),
        ("blur-ig", dict(steps=0), InvalidParameter, "'steps'.*from 1, not 0"),
        ("blur-ig", dict(width=-1.0), InvalidParameter, "'width'.*above 0"),
        ("guided-ig", dict(fraction=0.0), InvalidParameter, "fraction"),
        ("guided-ig", dict(steps=0), InvalidParameter, "step"),
        ("guided-ig", dict(rule="right"), InvalidParameter, "no rule 'right'"),
        ("guided-ig", dict(distance=2.0), InvalidParameter, "distance"),
        ("deep-shap", dict(references=0), InvalidParameter, "whole number"),
        ("deep-shap", dict(references=True), InvalidParameter, "whole number"),
        ("deep-shap", dict(references=torch.zeros(2, 3, 4, 4)), InvalidInput, "References"),
    ],
)
def test_bad_parameters_get_one_sentence(name, settings, kind, words):
    with pytest.raises(kind, match=words) as caught:
        verax.explain(plain(), X, TARGETS, method=name, **settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["blur-ig", "fullgrad"])
def test_pictures_are_needed(name):
    with pytest.raises(InvalidInput, match="pictures"):
        verax.explain(Between(F.relu), drawn(4, 6), 0, method=name)


def test_names_and_facts():
    for name in NEW:
        method = METHODS.get(name)
        assert method.paper
        assert method.cost
        assert method.transfer == {"deep-shap": "shap"}.get(
            name, "gray" if name in ("smoothgrad-squared", "vargrad", "fullgrad") else "heat"
        )


class Gate(nn.Module):
    """Gives a constant where no sample of the batch is bright."""

    def __init__(self):
        super().__init__()
        self.dense, self.prior = nn.Linear(12, 3), nn.Parameter(torch.zeros(3))

    def forward(self, x):
        bright = x.flatten(1).amax(1) > 0.5
        if not bright.any():
            return self.prior.expand(len(x), 3)
        out = self.prior.expand(len(x), 3).clone()
        out[bright] = self.dense(x[bright].flatten(1))
        return out


def test_a_gate_that_stays_shut_has_a_gradient_of_zero_whatever_the_batch():
    x = torch.rand(6, 3, 2, 2, generator=torch.Generator().manual_seed(0)) / 2 + 0.5
    x[4:] *= 0.1
    model = Gate()
    whole = verax.explain(model, x, torch.zeros(6, dtype=torch.int64), "gradient", batch_size=6)
    assert whole[:4].abs().amax() > 0
    for size in (1, 2):
        apart = verax.explain(model, x, torch.zeros(6, dtype=torch.int64), "gradient", batch_size=size)
        assert torch.equal(apart, whole)
