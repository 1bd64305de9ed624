"""Calls that do two things at once, lengths, and tensors from elsewhere: the same maps as written out."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from verax.engine import rules
from verax.engine.attention import AttentionLRP
from verax.engine.biases import full_gradient
from verax.engine.multipliers import Rectified, deeplift
from verax.engine.passes import propagate
from verax.engine.relevance import LRP, Composite
from verax.errors import UnsupportedOperation


def drawn(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


X, BASELINE, TARGETS = drawn(5, 4, 6), drawn(5, 4, 6, seed=1), torch.tensor([0, 1, 2, 1, 0])
W, B, C = drawn(6, 6, seed=2), drawn(6, seed=4), drawn(6, seed=5)
RULE = Composite(rules.gamma(), rules.gamma(), first=rules.alpha_beta())
ZERO = Composite(rules.epsilon(0), rules.epsilon(0), pool=rules.epsilon(0), eps=0)


class Around(nn.Module):
    """A dense layer, a function on ``(N, 4, 6)``, a ReLU and a dense layer."""

    def __init__(self, function, bias=True):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(3)
            self.first, self.last = nn.Linear(6, 6, bias).double(), nn.Linear(24, 3, bias).double()
        self.function = function

    def forward(self, x):
        return self.last(F.relu(self.function(self.first(x))).flatten(1))


def rows(function):
    """A function of matrices, on all rows of all samples."""
    return lambda x: function(x.reshape(-1, 6)).reshape(x.shape)


FUSED = {  # spelled so, and the same written out
    "addmm": (rows(lambda x: torch.addmm(B, x, W)), rows(lambda x: x @ W + B)),
    "addmm, by name": (rows(lambda x: torch.addmm(input=B, mat1=x, mat2=W)), rows(lambda x: x @ W + B)),
    "addmm, weighted": (
        rows(lambda x: torch.addmm(B, x, W, beta=0.5, alpha=-2)),
        rows(lambda x: x @ (-2 * W) + 0.5 * B),
    ),
    "addmm, no summand": (rows(lambda x: torch.addmm(B, x, W, beta=0)), rows(lambda x: x @ W)),
    "addmm, method": (rows(lambda x: B.expand_as(x).addmm(x, W)), rows(lambda x: x @ W + B)),
    "addmm, a path added": (rows(lambda x: torch.addmm(x, x, W)), rows(lambda x: x + x @ W)),
    "baddbmm": (
        lambda x: torch.baddbmm(B, x, W.expand(len(x), 6, 6)),
        lambda x: x @ W.expand(len(x), 6, 6) + B,
    ),
    "addcmul": (lambda x: torch.addcmul(B, x, C), lambda x: x * C + B),
    "addcmul, weighted": (lambda x: torch.addcmul(B, C, x, value=3), lambda x: x * (3 * C) + B),
    "addcmul, a path added": (lambda x: x.addcmul(C, x), lambda x: x + C * x),
    "addcmul, in place": (lambda x: (x + 0).addcmul_(C.expand_as(x), x), lambda x: x + 0 + C * x),
}
MAPS = {
    "lrp": lambda model: propagate(LRP(RULE), model, X, TARGETS, "output")[0],
    "attn-lrp": lambda model: propagate(AttentionLRP(RULE), model, X, TARGETS, "output")[0],
    "guided": lambda model: propagate(Rectified(True), model, X, TARGETS)[0],
    "rescale": lambda model: deeplift(model, X, BASELINE, TARGETS),
    "reveal-cancel": lambda model: deeplift(model, X, BASELINE, TARGETS, True),
}


@pytest.mark.parametrize("method", MAPS)
@pytest.mark.parametrize("name", FUSED)
def test_fused_calls_are_what_they_do(name, method):
    fused, written = (Around(function) for function in FUSED[name])
    assert torch.allclose(fused(X), written(X), rtol=1e-12)
    wanted = MAPS[method](written)
    assert wanted.abs().sum() > 0
    assert torch.allclose(MAPS[method](fused), wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", FUSED)
def test_biases_of_fused_calls_are_found(name):
    own, parts, outputs = full_gradient(Around(FUSED[name][0]), X, TARGETS)
    total = own.sum() + sum(part.sum() for part in parts)
    assert torch.allclose(total, outputs.sum(), rtol=1e-10)


def test_a_product_of_two_paths_inside_a_fused_call():
    def scores(x):
        return torch.baddbmm(0 * x[:, :, :1], x, x.transpose(1, 2), beta=0, alpha=0.3) @ x

    model = Around(scores)
    change = (model(X) - model(BASELINE)).gather(1, TARGETS[:, None])[:, 0].detach()
    assert torch.allclose(deeplift(model, X, BASELINE, TARGETS).flatten(1).sum(1), change, rtol=1e-10)
    with pytest.raises(UnsupportedOperation, match="attn-lrp"):
        propagate(LRP(ZERO), model, X, TARGETS, "output")


@pytest.mark.parametrize(
    "function", [lambda x: x + B.expand_as(x), lambda x: x + B.to(x), lambda x: x + B.type_as(x)]
)
def test_what_only_takes_the_shape_of_the_input_is_a_constant(function):
    for maps in MAPS.values():
        assert torch.allclose(maps(Around(function)), maps(Around(lambda x: x + B)), rtol=1e-9, atol=1e-12)


LENGTHS = {
    "normalize": lambda x: F.normalize(x, dim=-1),
    "normalize, usual": F.normalize,
    "norm": lambda x: x * x.norm(p=2, dim=1, keepdim=True),
    "torch.norm": lambda x: x + torch.norm(x, dim=-1, keepdim=True),
    "linalg": lambda x: x + torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True),
    "linalg.norm": lambda x: x + torch.linalg.norm(x, dim=1)[:, None],
    "response": lambda x: (
        x * (x.norm(dim=1, keepdim=True) / x.norm(dim=1, keepdim=True).mean(-1, keepdim=True))
    ),
}


@pytest.mark.parametrize("name", LENGTHS)
def test_lengths(name):
    model = Around(LENGTHS[name], bias=False)
    out, before = (model(x).gather(1, TARGETS[:, None])[:, 0].detach() for x in (X, BASELINE))
    for reveal in (False, True):
        found = deeplift(model, X, BASELINE, TARGETS, reveal).flatten(1).sum(1)
        assert torch.allclose(found, out - before, rtol=1e-10)
    for through in (False, True):
        engine = AttentionLRP(ZERO, through_softmax=through)
        found = propagate(engine, model, X, TARGETS, "output")[0].flatten(1).sum(1)
        assert torch.allclose(found, out, rtol=1e-10)
    with pytest.raises(UnsupportedOperation, match="attn-lrp and cp-lrp have one"):
        propagate(LRP(ZERO), model, X, TARGETS, "output")


def test_normalize_takes_its_divisor_for_a_constant():
    x = X.clone()
    model = Around(LENGTHS["normalize"], bias=False)
    divisor = model.first(x).detach().norm(dim=-1, keepdim=True)
    frozen = Around(lambda v: v / divisor[: len(v)], bias=False)
    point = x.clone().requires_grad_()
    slope = torch.autograd.grad(frozen(point).gather(1, TARGETS[:, None]).sum(), point)[0]
    found = propagate(AttentionLRP(ZERO), model, x[:1], TARGETS[:1], "output")[0]
    assert torch.allclose(found, (x * slope)[:1], rtol=1e-9)


@pytest.mark.parametrize(
    "function", [lambda x: F.normalize(x, p=1.0), lambda x: x.norm(p=3, dim=1, keepdim=True) + x]
)
def test_other_norms_are_refused(function):
    for run in (
        lambda: deeplift(Around(function), X, BASELINE, TARGETS),
        lambda: propagate(AttentionLRP(ZERO), Around(function), X, TARGETS, "output"),
    ):
        with pytest.raises(UnsupportedOperation, match="no rule for the operation 'norm"):
            run()


class Caching(nn.Module):
    """Keeps a tensor made from its weights in an earlier forward pass, with the graph of that pass."""

    def __init__(self):
        super().__init__()
        self.around = Around(lambda x: x + self.bias())
        self.table, self.kept = nn.Parameter(drawn(6, seed=7)), None

    def bias(self):
        if self.kept is None:
            self.kept = self.table * 2
        return self.kept

    def forward(self, x):
        return self.around(x)


@pytest.mark.parametrize("method", MAPS)
def test_what_an_earlier_pass_kept_is_a_constant(method):
    cached, fresh = Caching(), Caching()
    cached(X)
    assert cached.kept.grad_fn is not None
    assert torch.allclose(MAPS[method](cached), MAPS[method](fresh), rtol=1e-12)


class Hidden(torch.autograd.Function):
    """A step that the engine does not see."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def test_custom_functions_are_still_refused():
    for function in (Hidden.apply, lambda x: x + Hidden.apply(x).view(x.shape)):
        with pytest.raises(UnsupportedOperation, match="did not see"):
            propagate(LRP(ZERO), Around(function), X, TARGETS, "output")


def test_gates_are_constants_under_cp_lrp_and_take_half_under_attn_lrp():
    model = Around(lambda x: x * torch.sigmoid(x.mean(1, keepdim=True)), bias=False)
    plain = propagate(LRP(ZERO), model, X, TARGETS, "output")[0]
    constant = propagate(AttentionLRP(ZERO, through_softmax=False), model, X, TARGETS, "output")[0]
    half = propagate(AttentionLRP(ZERO), model, X, TARGETS, "output")[0]
    assert torch.allclose(constant, plain, rtol=1e-10)
    assert not torch.allclose(half, plain, rtol=1e-2)
