"""Axioms on random networks: what every method must satisfy, and what some of them promise.

The networks are drawn by hypothesis (`strategies.py`), in float64, always the same ones. What holds for every
method is parametrised over the whole registry, so that a new method is tested without being named here.
"""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import verax
from strategies import CURVES, RECTIFIERS, plans, samples, transformers
from verax.errors import VeraxError
from verax.methods import METHODS
from verax.seeding import Streams, content_ids

QUICK = {  # fewer draws where the number of draws does not matter
    "smoothgrad": {"samples": 4},
    "smoothgrad-squared": {"samples": 4},
    "vargrad": {"samples": 4},
    "smoothgrad@published": {"samples": 4},
    "integrated-gradients": {"steps": 8},
    "blur-ig": {"steps": 8},
    "guided-ig": {"steps": 8},
    "gradient-shap": {"samples": 4},
    "deep-shap": {"references": 4},
    "rise": {"samples": 40},
    "lime": {"samples": 32, "size": 4},
    "kernel-shap": {"samples": 32, "size": 4},
    "shapley-sampling": {"permutations": 4, "size": 4},
    "exact-shapley": {"size": 6},
    "exact-additive": {"size": 6, "tolerance": 1e9},  # what each segment brings alone, additive or not
    "feature-ablation": {"size": 4},
    "occlusion": {"window": 4, "stride": 2},
}
EVERY = [name for name in METHODS if METHODS.get(name).builtin and "truth" not in METHODS.get(name).special]
ATTENTION_ALONE = ("attention-rollout", "chefer")


def repeated(examples):
    """The same few networks every time."""
    return settings(max_examples=examples, deadline=None, derandomize=True, database=None)


def raw(name, model, x, targets, **parameters):
    """The method itself, in the precision of the network (`verax.explain` gives float32)."""
    chosen = METHODS.get(name)
    usual = {key: value for key, value in QUICK.get(name, {}).items() if key in chosen.parameters}
    given_ = {**usual, **parameters}
    if "size" in given_ and x.dim() == 2:
        given_["size"] = 1
    known = chosen.settings(given_)
    if "streams" in chosen.special:
        known["streams"] = Streams.of(content_ids(x), "axioms")
    return chosen.function(model, x.clone(), targets.clone(), **known).detach()


def error(a, b):
    assert a.shape == b.shape
    return float((a - b).norm() / max(float(b.norm()), 1e-12))


def total(maps):
    return maps.flatten(1).sum(1)


def chosen_output(model, x, targets):
    return model(x).gather(1, targets[:, None])[:, 0].detach()


def networks(name):
    """Networks on which a method runs: pictures for all, transformers where attention is needed."""
    return transformers() if name in ATTENTION_ALONE else plans(picture=True)


def everywhere(name):
    """All kinds of networks; what a method refuses is the business of `test_matrix.py`."""
    return st.one_of(transformers(), plans()) if name not in ATTENTION_ALONE else transformers()


def answered(name, plan, way="module"):
    """Maps, or None where the method refuses this kind of network."""
    x, targets = samples(plan)
    try:
        return raw(name, plan.build(way), x, targets)
    except VeraxError:
        return None


# -- what every method must satisfy ----------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY)
def test_implementation_invariance(name):
    """Same function, other spelling, same map; a refusal, too, does not depend on the spelling."""

    @repeated(6)
    @given(everywhere(name))
    def check(plan):
        wanted, found = answered(name, plan), answered(name, plan, plan.way)
        assert (wanted is None) == (found is None)
        if wanted is not None:
            assert error(found, wanted) < 1e-10

    check()


@pytest.mark.parametrize("name", EVERY)
def test_batch_invariance(name):
    """Alone, in a batch, in another order: the same map."""

    @repeated(3)
    @given(networks(name))
    def check(plan):
        (x, targets), model = samples(plan), plan.build()
        whole = raw(name, model, x, targets)
        alone = [raw(name, model, x[k : k + 1], targets[k : k + 1]) for k in range(len(x))]
        assert error(torch.cat(alone), whole) < 1e-10
        assert error(raw(name, model, x.flip(0), targets.flip(0)).flip(0), whole) < 1e-10

    check()


@pytest.mark.parametrize("name", EVERY)
def test_precision(name):
    """Float32 maps have the shape of the inputs, are finite, and are those of float64."""

    @repeated(3)
    @given(networks(name))
    def check(plan):
        x, targets = samples(plan)
        fine = raw(name, plan.build(), x, targets)
        maps = verax.explain(plan.build().float(), x.float(), targets, name, **_given(name))
        assert maps.dtype == torch.float32
        assert maps.shape == x.shape
        assert maps.isfinite().all()
        if "streams" not in METHODS.get(name).special:  # `explain` draws from streams of its own
            assert error(maps.double(), fine) < 1e-3
        coarse = raw(name, plan.build().float(), x.float(), targets)
        # noise can put a unit on its kink, where the last digit decides between two gradients
        drawn = "streams" in METHODS.get(name).special
        assert error(coarse.double(), fine) < (1e-2 if drawn else 1e-3)

    check()


def _given(name):
    return {key: value for key, value in QUICK.get(name, {}).items() if key in METHODS.get(name).parameters}


def _state(model):
    hooks = [(m._forward_hooks, m._backward_hooks, m._forward_pre_hooks) for m in model.modules()]
    return (
        {key: value.clone() for key, value in model.state_dict().items()},
        [module.training for module in model.modules()],
        [sum(map(len, kept)) for kept in hooks],
        [weight.requires_grad for weight in model.parameters()],
        [weight.grad for weight in model.parameters()],
    )


@pytest.mark.parametrize("name", EVERY)
def test_nothing_is_disturbed_and_nothing_is_left_to_chance(name):
    """Weights, modes, hooks, gradients, inputs and the global generator stay; a second call agrees."""

    @repeated(2)
    @given(networks(name))
    def check(plan):
        (x, targets), model = samples(plan), plan.build(plan.way)
        next(model.children()).train()  # modes of all kinds
        next(model.parameters()).requires_grad_(False)
        before, kept, drawn = _state(model), x.clone(), torch.random.get_rng_state()
        first = verax.explain(model, x, targets, name, **_given(name))
        after = _state(model)
        assert all(torch.equal(value, after[0][key]) for key, value in before[0].items())
        assert after[1:] == before[1:]
        assert torch.equal(x, kept)
        assert not x.requires_grad
        assert torch.equal(torch.random.get_rng_state(), drawn)
        torch.rand(3)  # another global state
        again = verax.explain(copy.deepcopy(model), x, targets, name, **_given(name))
        assert torch.equal(first, again)

    check()


# -- completeness ----------------------------------------------------------------------------------------


def _baseline(plan):
    return 0.5 * samples(plan, salt=1)[0][:1]


SUMS_EXACTLY = {
    "deeplift-rescale": {},
    "deeplift-reveal-cancel": {},
    "exact-shapley": {},
    "kernel-shap": {"samples": 6},  # at any number of coalitions
    "shapley-sampling": {"permutations": 1},
}


@pytest.mark.parametrize("name", SUMS_EXACTLY)
@repeated(12)
@given(plan=st.one_of(plans(), transformers()))
def test_contributions_add_up_to_the_change(name, plan):
    (x, targets), model, low = samples(plan), plan.build(plan.way), _baseline(plan)
    change = chosen_output(model, x, targets) - chosen_output(model, low.expand_as(x), targets)
    assert error(total(raw(name, model, x, targets, baseline=low, **SUMS_EXACTLY[name])), change) < 1e-8


@repeated(12)
@given(plan=plans())
def test_deep_shap_adds_up_to_the_change_from_the_mean(plan):
    (x, targets), model, low = samples(plan), plan.build(plan.way), samples(plan, 5, salt=2)[0]
    means = torch.stack([chosen_output(model, low, targets[k].expand(5)).mean() for k in range(len(x))])
    found = total(raw("deep-shap", model, x, targets, references=low))
    assert error(found, chosen_output(model, x, targets) - means) < 1e-9


@repeated(12)
@given(plan=plans(activations=("softplus", "tanh", "silu")))
def test_integrated_gradients_add_up_to_the_change(plan):
    """Exactly, up to the quadrature, where the network is smooth; max-pooling has kinks."""
    (x, targets), model, low = samples(plan), plan.build(plan.way), _baseline(plan)
    change = chosen_output(model, x, targets) - chosen_output(model, low.expand_as(x), targets)
    kinks = plan.picture and plan.pool == "max"
    steps, tolerance = (400, 2e-2) if kinks else (64, 1e-5)
    found = total(raw("integrated-gradients", model, x, targets, baseline=low, steps=steps))
    assert error(found, change) < tolerance


@pytest.mark.parametrize(("name", "tolerance"), [("lrp-z", 1e-8), ("attn-lrp", 1e-2), ("cp-lrp", 1e-2)])
@repeated(12)
@given(plan=plans(bias=False, activations=(*RECTIFIERS, "tanh", "elu", "silu")))
def test_relevance_is_conserved_without_bias(name, tolerance, plan):
    """All of it by LRP-z; the stabiliser of the others takes a little."""
    (x, targets), model = samples(plan), plan.build(plan.way)
    found = total(raw(name, model, x, targets))
    assert error(found, chosen_output(model, x, targets)) < tolerance


# -- linearity -------------------------------------------------------------------------------------------


class Combined(nn.Module):
    """a f + b g."""

    def __init__(self, f, g, a, b):
        super().__init__()
        self.f, self.g, self.a, self.b = f, g, a, b

    def forward(self, x):
        return self.a * self.f(x) + self.b * self.g(x)


LINEAR = (  # for all a and b
    *("gradient", "input-x-gradient", "smoothgrad", "integrated-gradients", "gradient-shap", "blur-ig"),
    *("deeplift-rescale", "deeplift-reveal-cancel", "deep-shap", "lrp-z"),
    *("occlusion", "feature-ablation", "rise", "lime", "kernel-shap", "shapley-sampling", "exact-shapley"),
    "exact-additive",
)
POSITIVE = ("deconvnet", "guided-backprop")  # their rules keep signs apart: for positive a and b
UP_TO_EPSILON = (  # the sum itself is shared with a stabiliser of 1e-6
    *("lrp-epsilon", "lrp-gamma", "lrp-alpha1beta0", "lrp-alpha2beta1", "lrp-a", "lrp-b"),
    *("attn-lrp", "cp-lrp"),
)
# Not linear: magnitudes, squares and variances (gradient@published, smoothgrad-squared, vargrad, fullgrad),
# rectified maps (CAMs, Deep Taylor), paths that depend on the network (guided-ig), attention weights.


@pytest.mark.parametrize("name", [*LINEAR, *POSITIVE, *UP_TO_EPSILON])
def test_linearity(name):
    weight = st.floats(0.3, 3.0)

    @repeated(4)
    @given(plans(picture=True), plans(picture=True), weight, weight, st.booleans())
    def check(one, other, a, b, turned):
        b = -b if turned and name not in POSITIVE else b
        (x, targets), f, g = samples(one), one.build(), other.build(other.way)
        apart = a * raw(name, f, x, targets) + b * raw(name, g, x, targets)
        tolerance = 1e-2 if name in UP_TO_EPSILON else 1e-8
        assert error(raw(name, Combined(f, g, a, b), x, targets), apart) < tolerance

    check()


# -- dummy and symmetry ----------------------------------------------------------------------------------


class Blind(nn.Module):
    """A network on vectors whose first layer gives feature 2 the weight zero."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        with torch.no_grad():
            inner.layers[0].weight[:, 2] = 0

    def forward(self, x):
        return self.inner(x)


class Halves(nn.Module):
    """A network on pictures that sees the left half alone."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x * (torch.arange(x.shape[-1], device=x.device) < 6).to(x.dtype))


# Drawn masks (RISE, LIME), maps of a coarse grid (CAMs) and flat rules (presets A and B) spread values.
SHARP = [
    name
    for name in EVERY
    if METHODS.get(name).family in ("gradients", "references", "relevance")
    and name not in ("fullgrad", "lrp-a", "lrp-b", "lrp-a@published", "lrp-b@published")
]
SHARP += [
    "feature-ablation",
    "exact-additive",
    "attn-lrp",
    "cp-lrp",
    "guided-grad-cam",
    "exact-shapley",
    "kernel-shap",
    "shapley-sampling",
]


@pytest.mark.parametrize("name", [*SHARP, "occlusion"])
def test_a_dummy_gets_nothing(name):
    pictures_alone = name in ("blur-ig", "guided-grad-cam", "occlusion")

    @repeated(4)
    @given(plans(picture=pictures_alone))
    def check(plan):
        x, targets = samples(plan)
        more = {"samples": 64} if name == "kernel-shap" else {}  # all coalitions of 6 features
        if pictures_alone:
            maps = raw(name, Halves(plan.build()), x, targets)[..., 6 + (4 if name == "occlusion" else 0) :]
        else:
            maps = raw(name, Blind(plan.build()), x, targets, **more)[:, 2]
        assert maps.abs().max() < 1e-12

    check()


class Exchangeable(nn.Module):
    """f(x) + f(x with features 1 and 4 exchanged)."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) + self.inner(x[:, [0, 4, 2, 3, 1, 5]])


# Methods that draw for each feature apart are symmetric in expectation alone.
SYMMETRIC = {
    name: {}
    for name in EVERY
    if METHODS.get(name).family in ("gradients", "references", "relevance")
    and "streams" not in METHODS.get(name).special
    and name not in ("fullgrad", "blur-ig")
}
SYMMETRIC |= {
    "feature-ablation": {},
    "exact-additive": {},
    "attn-lrp": {},
    "cp-lrp": {},
    "exact-shapley": {},
    "kernel-shap": {"samples": 64},
}
SYMMETRIC |= {"deep-shap": {"references": 2, "noise": 0.0}}


@pytest.mark.parametrize("name", SYMMETRIC)
def test_exchangeable_features_get_equal_values(name):
    @repeated(4)
    @given(plans(picture=False))
    def check(plan):
        x, targets = samples(plan)
        x[:, 4] = x[:, 1]
        maps = raw(name, Exchangeable(plan.build()), x, targets, **SYMMETRIC[name])
        assert (maps[:, 1] - maps[:, 4]).abs().max() < 1e-9 * max(1.0, float(maps.abs().max()))

    check()


def test_the_networks_are_all_kinds():
    """The strategies draw what they promise."""
    seen = set()

    @repeated(60)
    @given(plans())
    def look(plan):
        seen.update([plan.activation, plan.pool, plan.way, plan.bias, ("residual", plan.residual)])
        x, _ = samples(plan)
        outputs = plan.build()(x)
        assert error(plan.build(plan.way)(x), outputs) < 1e-12

    look()
    assert {*RECTIFIERS, *CURVES, "max", "avg", "functional", "in-place", "reused", "operators"} <= seen
    assert {True, False, ("residual", True)} <= seen
