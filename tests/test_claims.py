"""What methods say about themselves is true: their claims are put to the test on small networks."""

from typing import get_args

import pytest
import torch
from torch import nn

import verax
from spellings import Transformer
from verax.cases import Truth
from verax.errors import UnsupportedOperation, VeraxError
from verax.methods import METHODS
from verax.methods.base import FAMILIES, INPUTS, NEEDS, TOTALS, Input, Need, Total
from verax.methods.completeness import completeness_error

FREE = ("nothing", "forward", "additive")
BUILTIN = [name for name in METHODS if METHODS.get(name).builtin and ":" not in name]
CHEAP = {"samples": 40, "permutations": 4, "steps": 8}
"""Claims about networks and inputs hold for any number of passes; totals need many."""
MANY = {"samples": 2000, "permutations": 16, "steps": 256}


class Opaque(nn.Module):
    """A network whose outputs are numbers and nothing else: no gradient reaches the input."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        with torch.no_grad():
            return self.inner(x.clone())


class Odd(nn.Module):
    """A differentiable network with an operation that no rule table knows."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return torch.logcumsumexp(self.inner(x), 1)


def seeded(make):
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return make().eval()


def convolutional(bias=True):
    return seeded(
        lambda: nn.Sequential(
            nn.Conv2d(3, 6, 3, 2, bias=bias),
            nn.ReLU(),
            nn.Conv2d(6, 8, 3, 2, bias=bias),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(72, 5, bias=bias),
        )
    )


def dense(features):
    return seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(features, 12), nn.ReLU(), nn.Linear(12, 5)))


PICTURES = seeded(lambda: nn.ParameterList([torch.rand(3, 3, 16, 16)]))[0].detach()
VECTORS = PICTURES[:, :, 2, :4].flatten(1)
TARGETS = torch.tensor([0, 3, 2])


def maps(name, model, inputs=PICTURES, passes=CHEAP):
    settings = {key: value for key, value in passes.items() if key in METHODS.get(name).parameters}
    nobody = torch.zeros(len(inputs), 0)
    truth = Truth(inputs > 0.5, inputs < 0.5, nobody, nobody, nobody, (), values=inputs)
    return verax.explain(model, inputs, TARGETS, method=name, truth=truth, **settings)


def works(name, model, inputs=PICTURES):
    try:
        found = maps(name, model, inputs)
    except VeraxError:
        return False
    assert found.shape == inputs.shape
    assert found.isfinite().all()
    return True


def additive():
    """A network that is a sum of one term for each segment: a linear one."""
    return seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 5)))


def needs(*words):
    return [name for name in BUILTIN if METHODS.get(name).needs in words]


def test_every_method_says_all_there_is_to_say():
    assert len(BUILTIN) >= 54
    for name in BUILTIN:
        method = METHODS.get(name)
        assert method.needs in NEEDS, name
        assert method.inputs in INPUTS, name
        assert method.total in TOTALS, name
        assert method.family in FAMILIES, name
        assert method.cost, name
        assert method.paper or method.model_free, name
    assert set(get_args(Need)) == set(NEEDS)
    assert set(get_args(Input)) == set(INPUTS)
    assert {*get_args(Total), None} == set(TOTALS)


@pytest.mark.parametrize("name", BUILTIN)
def test_only_methods_that_need_no_gradient_explain_a_network_without(name):
    free = METHODS.get(name).needs in ("nothing", "forward", "additive")
    network = additive() if METHODS.get(name).needs == "additive" else convolutional()
    if free:
        assert torch.equal(maps(name, Opaque(network)), maps(name, network))
    else:
        with pytest.raises(VeraxError):
            maps(name, Opaque(network))


class Detached(nn.Module):
    """A network that cuts its input off; its weights still have gradients."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x.detach())


class Dead(nn.Module):
    """A differentiable network that has the gradient zero."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(torch.relu(x - 10))


SLOPED = [name for name in BUILTIN if METHODS.get(name).needs not in (*FREE, "attention")]


@pytest.mark.parametrize("hide", [Opaque, Detached])
@pytest.mark.parametrize("name", SLOPED)
def test_a_network_that_hides_its_input_is_refused_in_a_sentence(name, hide):
    with pytest.raises(UnsupportedOperation, match="no gradient with respect to the input"):
        maps(name, hide(convolutional()))


def test_gradients_of_attention_that_do_not_exist_are_refused():
    with pytest.raises(UnsupportedOperation, match="no gradient with respect to the input"):
        maps("chefer", Opaque(Transformer()))


@pytest.mark.parametrize("name", SLOPED)
def test_a_gradient_of_zero_is_allowed(name):
    found = maps(name, Dead(convolutional(bias=False)))
    assert bool(found.any()) == (name == "deconvnet")  # which does not ask what a ReLU let through


@pytest.mark.parametrize("name", BUILTIN)
def test_only_methods_with_rules_refuse_an_unknown_operation(name):
    claim = METHODS.get(name).needs
    expected = claim in ("nothing", "forward", "gradient", "feature map")
    assert works(name, Odd(convolutional())) == expected


@pytest.mark.parametrize("name", BUILTIN)
def test_only_methods_that_look_at_a_feature_map_refuse_a_network_without(name):
    claim = METHODS.get(name).needs
    expected = claim not in ("feature map", "attention", "additive")
    assert works(name, dense(3 * 16 * 16)) == expected


@pytest.mark.parametrize("name", BUILTIN)
def test_only_methods_that_look_at_attention_refuse_a_network_without(name):
    assert works(name, convolutional()) == (METHODS.get(name).needs not in ("attention", "additive"))


@pytest.mark.parametrize("name", needs("additive"))
def test_methods_for_additive_networks_explain_them_and_refuse_others(name):
    assert works(name, additive())
    assert not works(name, Transformer())


@pytest.mark.parametrize("name", needs("attention", "forward", "gradient", "feature map", "nothing"))
def test_methods_that_need_no_rules_explain_a_transformer(name):
    assert works(name, Transformer())


@pytest.mark.parametrize("name", BUILTIN)
def test_only_methods_for_pictures_refuse_vectors(name):
    method = METHODS.get(name)
    network = seeded(lambda: nn.Linear(12, 5)) if method.needs == "additive" else dense(12)
    assert works(name, network, VECTORS) == (method.inputs == "any")


class Sequences(nn.Module):
    """One attention layer over tokens and a mean."""

    def __init__(self):
        super().__init__()
        self.attend, self.head = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 5)

    def forward(self, x):
        return self.head((x + self.attend(x, x, x, need_weights=False)[0]).mean(1))


@pytest.mark.parametrize(
    "name", [name for name in BUILTIN if METHODS.get(name).inputs == "pictures or sequences"]
)
def test_methods_for_sequences_explain_sequences(name):
    assert works(name, seeded(Sequences), PICTURES[:, 0, :, :8])


@pytest.mark.parametrize("name", BUILTIN)
def test_methods_that_never_look_at_the_network_never_do(name):
    never = METHODS.get(name).needs == "nothing"
    assert never == METHODS.get(name).model_free
    if never:
        other = convolutional(bias=False)
        assert torch.equal(maps(name, convolutional()), maps(name, other))


@pytest.mark.parametrize("name", [name for name in BUILTIN if METHODS.get(name).total])
def test_a_promised_total_is_kept(name):
    # without biases, which keep a share of the relevance; nothing is promised about that share
    method, inputs = METHODS.get(name), PICTURES.double()
    network = convolutional(bias=method.total != "output").double()
    network = additive().double() if method.needs == "additive" else network
    found = maps(name, network, inputs, MANY)
    settings = method.settings({key: value for key, value in MANY.items() if key in method.parameters})
    error = completeness_error(method, network, inputs, TARGETS, found, settings)
    assert error is not None
    # points drawn at random along the path meet the total on average only
    assert error.max() < (0.1 if method.slack == "draws" else 0.02), error
