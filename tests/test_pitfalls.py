"""Pitfalls of numbers, spellings and threads, each found by somebody who tried to prove a map wrong."""

import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import verax
from verax.engine.biases import Biases, full_gradient
from verax.engine.multipliers import deeplift
from verax.errors import InvalidParameter, UnsupportedOperation


class Network(nn.Module):
    """Any function between two layers."""

    def __init__(self, between, width=4):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.first, self.last = nn.Conv2d(3, width, 3, padding=1), nn.Linear(width, 2)
            for weight in self.parameters():
                nn.init.normal_(weight, std=0.5)
        self.between = between
        self.eval().double()

    def forward(self, x):
        made = self.between(self.first(x))
        return self.last(made.mean((2, 3)) if made.ndim == 4 else made.mean(1))


def drawn(*shape):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return torch.rand(*shape, dtype=torch.float64)


X, TARGETS = drawn(2, 3, 6, 6), torch.tensor([0, 1])


def tokens(x):
    return F.relu(x).flatten(2).transpose(1, 2)


def fill(x):
    x = F.relu(x).clone()
    x[:, :, 0] = 2.0
    return x


CURVED = {
    "group norm": lambda x: F.relu(F.group_norm(x, 2)),
    "layer norm": lambda x: F.layer_norm(tokens(x), (4,), torch.ones(4).double(), torch.ones(4).double()),
    "softmax": lambda x: tokens(x).softmax(-1),
    "log-softmax": lambda x: tokens(x).log_softmax(-1),
    "attention": lambda x: F.scaled_dot_product_attention(tokens(x) * 2, tokens(x), tokens(x)),
    "einsum": lambda x: torch.einsum("bqd,bkd->bqk", tokens(x), tokens(x)) @ tokens(x),
    "padding": lambda x: F.pad(F.relu(x), (1, 1, 1, 1), value=1.0),
    "filling": lambda x: F.relu(x).masked_fill(torch.eye(6).bool(), 3.0),
    "assignment": fill,
    "constants beside": lambda x: torch.cat([x, torch.ones_like(x)], 2),
}


def diagonal(x):
    x = F.relu(x).clone()
    x.diagonal(dim1=2, dim2=3).mul_(0)
    return x


def strides(x):
    x = F.relu(x).clone()
    x.as_strided((len(x), 4), (x.stride(0), 1))[:, 1] = 0
    return x


@pytest.mark.parametrize("method", ["lrp-epsilon", "lrp-z", "deeplift-rescale", "fullgrad"])
@pytest.mark.parametrize("write", [diagonal, strides])
@pytest.mark.parametrize("count", [1, 2])
def test_what_is_written_through_a_view_without_a_rule_is_refused(write, method, count):
    with pytest.raises(UnsupportedOperation, match=r"'(diagonal|as_strided)'"):
        verax.explain(Network(write), X[:count].float(), TARGETS[:count], method=method)


@pytest.mark.parametrize("name", CURVED)
def test_the_full_gradient_adds_up(name):
    own, parts, output = full_gradient(Network(CURVED[name]), X, TARGETS)
    total = own.flatten(1).sum(1) + sum(part.expand(2, *part.shape[1:]).flatten(1).sum(1) for part in parts)
    torch.testing.assert_close(total, output, rtol=1e-10, atol=1e-10)


def test_a_full_gradient_that_does_not_add_up_is_refused(monkeypatch):
    monkeypatch.setattr(Biases, "linear", Biases.native)  # the biases of layers go unnoticed
    with pytest.raises(UnsupportedOperation, match="do not add up"):
        full_gradient(Network(F.relu), X, TARGETS)


HIDDEN = {
    "mask": lambda x: x * (x > 0),
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "masked_fill": lambda x: x.masked_fill(x < 0, 0),
}
SEEN = {
    "maximum": lambda x: torch.maximum(x, torch.zeros(())),
    "leaky": lambda x: F.leaky_relu(x, 0.0),
    "leaky by name": lambda x: F.leaky_relu(x, negative_slope=0.0),
    "clamp": lambda x: x.clamp(min=0.0),
}


@pytest.mark.parametrize("method", ["guided-backprop", "deconvnet"])
class TestRectifiers:
    @pytest.mark.parametrize("name", SEEN)
    def test_every_spelling_is_seen(self, method, name):
        usual = verax.explain(Network(F.relu), X, TARGETS, method=method)
        assert torch.equal(verax.explain(Network(SEEN[name]), X, TARGETS, method=method), usual)

    @pytest.mark.parametrize("name", HIDDEN)
    def test_what_cannot_be_seen_is_refused(self, method, name):
        with pytest.raises(UnsupportedOperation, match="mask"):
            verax.explain(Network(HIDDEN[name]), X, TARGETS, method=method)

    def test_traced_code_is_refused(self, method):
        with pytest.raises(UnsupportedOperation):
            verax.explain(torch.jit.trace(Network(F.relu), X), X, TARGETS, method=method)

    def test_unknown_operations_keep_their_derivative(self, method):
        model = Network(torch.cos)
        plain = verax.explain(model, X, TARGETS)
        assert torch.equal(verax.explain(model, X, TARGETS, method=method), plain)


@pytest.mark.parametrize(
    "activation", [nn.Sigmoid(), nn.Softplus(), nn.Tanh(), nn.GELU(), nn.SiLU(), nn.ReLU()]
)
@pytest.mark.parametrize("gap", [2**-24, 2**-22, 2**-16, 2**-10])
def test_contributions_survive_cancellation(activation, gap):
    """Two large contributions that nearly cancel: the change of the output is mostly rounding in float32."""
    model = nn.Sequential(nn.Linear(2, 1, bias=False), activation)
    model[0].weight.data = torch.tensor([[1.0, -1.0]])
    x, zero = torch.tensor([[1.0, 1.0 - gap]]), torch.zeros(1, 2)
    target = torch.zeros(1, dtype=torch.int64)
    rough = deeplift(model, x, zero, target)
    exact = deeplift(model.double(), x.double(), zero.double(), target)
    torch.testing.assert_close(rough.double(), exact, rtol=2e-3, atol=0)


def test_softmax_survives_cancellation():
    model = nn.Sequential(nn.Linear(2, 3, bias=False), nn.Softmax(1))
    model[0].weight.data = torch.tensor([[1.0, -1.0], [2.0, -2.0], [-1.0, 1.0]])
    for gap in (2**-24, 2**-20, 2**-12, 0.5):
        x, zero = torch.tensor([[1.0, 1.0 - gap]]), torch.zeros(1, 2)
        rough = deeplift(model.float(), x, zero, torch.tensor([1]))
        exact = deeplift(model.double(), x.double(), zero.double(), torch.tensor([1]))
        torch.testing.assert_close(rough.double(), exact, rtol=1e-3, atol=1e-9)


def test_reveal_cancel_behind_weights_of_both_signs_that_are_not_told():
    model = Network(lambda x: F.relu(F.interpolate(x, scale_factor=2, mode="bicubic")))
    start = drawn(2, 3, 6, 6).flip(0)
    shares = deeplift(model, X, start, TARGETS, reveal_cancel=True)
    change = (model(X) - model(start)).gather(1, TARGETS[:, None])[:, 0]
    torch.testing.assert_close(shares.flatten(1).sum(1), change, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "method", ["lrp-epsilon", "lrp-alpha2beta1", "deeplift-rescale", "deeplift-reveal-cancel"]
)
def test_a_constant_may_enlarge_a_layer(method):
    shift = torch.tensor([0.1, -0.2, 0.3, -0.4]).double()[:, None, None]
    spelled = Network(lambda x: F.relu(x + shift), width=1)
    spelled.last = nn.Linear(4, 2).double()
    assert verax.explain(spelled, X, TARGETS, method=method).isfinite().all()


def test_a_constant_that_cancels_a_layer_leaves_finite_relevance():
    model = Network(lambda x: F.relu(x * 0 + 1) - 1.0 + F.relu(x))
    model.first.bias.data.zero_()
    assert verax.explain(model, X * 0, TARGETS, method="lrp-epsilon").isfinite().all()


def test_misspelt_conventions_are_refused():
    with pytest.raises(InvalidParameter, match="must be 'split', 'none' or 'innvestigate'"):
        verax.explain(Network(F.relu), X, TARGETS, method="lrp-alpha2beta1", bias="splitt")


def test_undefined_gradients_do_not_stop_the_guided_path():
    model = Network(lambda x: torch.sqrt((x**2).sum(1, keepdim=True)) * x)
    model.first.bias.data.zero_()
    assert verax.explain(model, X, TARGETS, method="guided-ig", steps=4).isnan().any()


@pytest.mark.parametrize("method", ["lrp-epsilon", "deeplift-rescale", "guided-backprop"])
def test_checkpointing_is_refused_in_one_sentence(method):
    layer = nn.Sequential(nn.Conv2d(4, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.Sigmoid()).double()
    model = Network(lambda x: checkpoint(layer, x, use_reentrant=False))
    with pytest.raises(UnsupportedOperation, match="checkpointing"):
        verax.explain(model, X, TARGETS, method=method)


def test_score_cam_under_autocast():
    model = Network(F.relu).float()
    usual = verax.explain(model, X.float(), TARGETS, method="score-cam")
    with torch.autocast("cpu", torch.bfloat16):
        found = verax.explain(model, X.float(), TARGETS, method="score-cam")
    assert (found - usual).norm() < 0.2 * usual.norm()


def test_threads_take_turns():
    model = nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.5), nn.ReLU(), nn.Linear(16, 2)).train()
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    x = drawn(3, 6).float()
    usual = verax.explain(model, x, 1, method="integrated-gradients")
    found = []

    def work():
        found.extend(verax.explain(model, x, 1, method="integrated-gradients", steps=32) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 80
    assert all(torch.equal(maps, usual) for maps in found)
    assert all(module.training for module in model.modules())
    assert all(torch.equal(weight.grad, torch.ones_like(weight)) for weight in model.parameters())
