"""Deep SHAP shares what pairs of samples and references have in common; maps are those of each pair alone."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from spellings import SPELLINGS, Spelled, Transformer, plain, residual
from verax.engine import layouts, sharing
from verax.engine.multipliers import deeplift
from verax.engine.sharing import mean_deeplift
from verax.engine.slopes import relu_slope, through_relu
from verax.errors import UnsupportedOperation
from verax.methods.references import deep_shap
from verax.seeding import Streams

G = torch.Generator().manual_seed(8)
X = torch.rand(3, 3, 16, 16, dtype=torch.float64, generator=G)
LOW = torch.rand(5, 3, 16, 16, dtype=torch.float64, generator=G)
TARGETS = torch.tensor([0, 3, 2])


def pair_by_pair(model, x, low, targets):
    """The mean over references, one sample and one reference at a time."""
    rows = [
        torch.stack([deeplift(model, x[i : i + 1], r[None], targets[i : i + 1])[0] for r in low]).mean(0)
        for i in range(len(x))
    ]
    return torch.stack(rows)


class Kinds(nn.Module):
    """Convolutions of all kinds: grouped, dilated, padded by name, without bias, transposed."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(1)
            self.a = nn.Conv2d(3, 6, 3, groups=3, padding=(1, 2), stride=(2, 1))
            self.b = nn.Conv2d(6, 6, 3, dilation=2, padding="same", bias=False)
            self.c = nn.ConvTranspose2d(6, 4, 2, stride=2)
            self.d = nn.Conv1d(4, 5, 7, stride=3)
            self.e = nn.Linear(5, 4)
        self.double().eval()

    def forward(self, x):
        x = F.relu(self.b(torch.tanh(self.a(x))))
        x = F.gelu(self.c(x)).flatten(2)
        return F.linear(F.silu(self.d(x)).mean(2), self.e.weight, bias=self.e.bias)


class TokensFirst(nn.Module):
    """Samples in the second dimension, as sequence networks have them."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(2)
            self.a, self.b = nn.Linear(16, 7).double(), nn.Linear(7, 4).double()

    def forward(self, x):
        tokens = x.flatten(1, 2).transpose(0, 1)  # (48, samples, 16)
        return self.b(torch.relu(self.a(tokens))).mean(0)


NETWORKS = {
    "plain": plain,
    "average": lambda: plain(pool="average"),
    "norm": lambda: plain(norm=True),
    **{how: lambda how=how: Spelled(plain(), how) for how in SPELLINGS},
    "residual": residual,
    "transformer": Transformer,
    "kinds": Kinds,
    "tokens-first": TokensFirst,
}


@pytest.mark.parametrize("name", NETWORKS)
def test_the_mean_is_that_of_every_pair_alone(name):
    model = NETWORKS[name]()
    found = deep_shap(model, X, TARGETS, Streams.of(torch.arange(3), "test"), LOW)
    assert torch.allclose(found, pair_by_pair(model, X, LOW, TARGETS), rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("rows", [1, 2, 5, 7, 10, 100])
def test_the_size_of_a_pass_does_not_matter(rows, monkeypatch):
    monkeypatch.setattr("verax.engine.sharing.rows_within_budget", lambda sample: rows)
    found = mean_deeplift(plain(), X, LOW, TARGETS)
    assert torch.allclose(found, pair_by_pair(plain(), X, LOW, TARGETS), rtol=1e-9, atol=1e-13)


class Overwriting(nn.Module):
    """Works in place on what its layers give, and on slices of it."""

    def __init__(self):
        super().__init__()
        self.inner = plain()

    def forward(self, x):
        for layer in self.inner:
            x = layer(x)
            if x.dim() == 4 and isinstance(layer, nn.Conv2d):
                x[:, 0] *= 0.5
                x += 0.25
                x = F.relu_(x)
        return x


def test_pairs_that_would_take_much_memory_are_fewer_in_a_pass(monkeypatch):
    sizes, real = [], sharing.propagate

    def propagate(engine, model, x, targets):
        sizes.append(len(x))
        return real(engine, model, x, targets)

    monkeypatch.setattr(sharing, "propagate", propagate)
    whole = mean_deeplift(plain(), X, LOW, TARGETS)
    assert sizes == [15]
    for limit, wanted in ((0, [5, 5, 5]), (64_000, [10, 5])):
        sizes.clear()
        monkeypatch.setattr(sharing, "_TAPE", limit)
        torch.testing.assert_close(mean_deeplift(plain(), X, LOW, TARGETS), whole)
        assert sizes == wanted


@pytest.mark.parametrize("references", [2, 9])
def test_a_network_may_overwrite_rows_that_one_sample_has_in_common(references, monkeypatch):
    monkeypatch.setattr("verax.engine.sharing.rows_within_budget", lambda sample: 3)
    model = Overwriting().eval()
    x, low = X[:2].clone(), torch.rand(references, *X.shape[1:], dtype=torch.float64, generator=G)
    y = torch.tensor([1, 2])
    expected = pair_by_pair(model, x, low, y)
    torch.testing.assert_close(mean_deeplift(model, x, low, y), expected)


def test_more_than_half_of_the_arithmetic_is_saved(monkeypatch):
    monkeypatch.setattr(layouts, "_ROWS", 2**62)  # a question about the layout is asked once, and not counted
    model, many = plain(pool="average"), LOW.repeat(8, 1, 1, 1)

    def work(function):
        with FlopCounterMode(display=False) as counter:
            function()
        return counter.get_total_flops()

    x, y = X.repeat_interleave(len(many), 0), TARGETS.repeat_interleave(len(many))
    apart = work(lambda: deeplift(model, x, many.repeat(3, 1, 1, 1), y))
    assert work(lambda: mean_deeplift(model, X, many, TARGETS)) < 0.5 * apart


class RowsOfThePicture(nn.Module):
    """A convolution whose first dimension holds 15 lines of the picture, and whose last one the samples."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(2)
            self.a, self.b = nn.Conv1d(16, 7, 1).double(), nn.Linear(7, 4).double()

    def forward(self, x):
        lines = x[:, 0, :15].permute(1, 2, 0)
        return self.b(torch.relu(self.a(lines)).mean(0).T)


def test_rows_that_are_no_samples_are_noticed_and_taken_one_by_one():
    assert len(X) * len(LOW) == 15  # as many lines as pairs, so that the shapes tell nothing
    model = RowsOfThePicture()
    with pytest.raises(UnsupportedOperation):
        mean_deeplift(model, X, LOW, TARGETS)
    found = deep_shap(model, X, TARGETS, Streams.of(torch.arange(3), "test"), LOW)
    assert torch.allclose(found, pair_by_pair(model, X, LOW, TARGETS), rtol=1e-9, atol=1e-13)


def test_a_network_that_branches_is_refused_as_before():
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = plain()

        def forward(self, x):
            return self.inner(x) if x.mean() > 0.3 else -self.inner(x)

    with pytest.raises(UnsupportedOperation):
        deep_shap(Branching(), X, TARGETS, Streams.of(torch.arange(3), "test"), LOW * 0.1)


def test_slopes_of_relu_are_the_quotient_and_its_limits():
    x = torch.tensor([2.0, -2.0, 3.0, -1.0, 1.0, -1.0, 0.0, 1.0, 1 + 1e-7], dtype=torch.float64)
    low = torch.tensor([1.0, -1.0, -1.0, 3.0, 1.0, -1.0, 0.0, 0.0, 1.0], dtype=torch.float64)
    quotient = (x.relu() - low.relu()) / (x - low)
    limits = torch.where(x == low, (x > 0).double(), quotient)
    torch.testing.assert_close(relu_slope(x, low), limits)
    m = torch.randn(9, 9, dtype=torch.float64, generator=G)
    pairs = through_relu(m, x[:, None], low[None])
    torch.testing.assert_close(pairs.diagonal(), m.diagonal() * limits)
    assert relu_slope(torch.tensor([float("nan")]), torch.tensor([1.0])).isnan().all()


class Padded(nn.Module):
    """Adds rows until their number is a multiple of four, and takes them off again."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(3)
            layers = nn.Flatten(), nn.Linear(768, 5), nn.ReLU(), nn.Linear(5, 4)
        self.inner = nn.Sequential(*layers).double()

    def forward(self, x):
        more = -len(x) % 4
        return self.inner(torch.cat([x, x[:1].expand(more, *x.shape[1:])]))[: len(x)]


def test_a_network_that_pads_its_batch_is_taken_pair_by_pair():
    # twelve pairs need no padding, three references do
    x, low, targets = X[[0, 1, 2, 0]], LOW[:3], TARGETS[[0, 1, 2, 0]]
    found = deep_shap(Padded(), x, targets, Streams.of(torch.arange(4), "test"), low)
    assert torch.allclose(found, pair_by_pair(Padded(), x, low, targets), rtol=1e-9, atol=1e-13)


class Halved(nn.Module):
    """Takes its batch in two halves."""

    def __init__(self):
        super().__init__()
        self.inner = plain()

    def forward(self, x):
        return torch.cat([self.inner(part) for part in x.chunk(2)])


def test_a_network_that_divides_its_batch_is_taken_pair_by_pair():
    model, x, targets = Halved().float(), X[[0, 1]].float(), TARGETS[[0, 1]]
    low = LOW[:1].float() + 0.02 * LOW[1:5].float()  # so close that no sum tells one for the other
    found = deep_shap(model, x, targets, Streams.of(torch.arange(2), "test"), low)
    wanted = pair_by_pair(model, x, low, targets)
    assert torch.allclose(found, wanted, atol=1e-5 * float(wanted.abs().max()))
