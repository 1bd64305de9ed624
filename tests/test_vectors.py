"""Methods on vectors: single cells and groups, against loops, closed forms and each other."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import verax
from verax.engine import batching
from verax.engine.coalitions import Game, enough
from verax.errors import InvalidInput, InvalidParameter, UnsupportedOperation
from verax.methods import shapley
from verax.methods.additive import additive_values
from verax.seeding import Streams

CELLS = 458


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Additive(nn.Module):
    """A sum of one curved term for each cell."""

    def __init__(self, cells, interaction=0.0):
        super().__init__()
        self.slopes, self.knots = drawn(5, cells), drawn(5, cells, seed=1)
        self.interaction = interaction

    def terms(self, x):
        return (self.slopes.to(x) * F.relu(x[:, None] - self.knots.to(x))).sum(1) / x.shape[1]

    def forward(self, x):
        return self.terms(x).sum(1, keepdim=True) + self.interaction * x[:, :1] * x[:, 1:2]


def regressor(cells, hidden=12, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(cells, hidden), nn.ReLU(), nn.Linear(hidden, 1)).eval()


def falls(model, x, low, groups):
    """How far the output falls with one group at the baseline, by a loop."""
    found = torch.zeros(len(x), int(groups.max()) + 1, dtype=x.dtype)
    with torch.no_grad():
        for group in range(found.shape[1]):
            hidden = torch.where(groups == group, low, x)
            found[:, group] = (model(x) - model(hidden))[:, 0]
    return found


@pytest.mark.parametrize("low", [0.0, 0.4])
def test_occlusion_hides_one_cell_after_the_other(low):
    model, x = regressor(7).double(), drawn(4, 7).double()
    x[1, 3] = low
    wanted = falls(model, x, torch.tensor(low).double(), torch.arange(7))
    maps = verax.explain(model, x, method="occlusion", baseline=low)
    torch.testing.assert_close(maps, wanted.float())
    assert maps[1, 3] == 0
    alone = verax.explain(model, x, method="feature-ablation", baseline=low)
    assert torch.equal(alone, maps)
    assert torch.equal(verax.explain(model, x, method="occlusion-1", baseline=low), maps)


def test_groups_are_hidden_together_and_share_their_fall():
    groups = torch.tensor([5, 5, 9, 5, 9, 2, 2])  # any whole numbers
    dense = torch.tensor([1, 1, 2, 1, 2, 0, 0])
    model, x = regressor(7).double(), drawn(4, 7).double()
    wanted = falls(model, x, torch.zeros(()).double(), dense)
    maps = verax.explain(model, x, method="feature-ablation", segments=groups)
    sizes = torch.bincount(dense)
    torch.testing.assert_close(maps, (wanted / sizes)[:, dense].float())
    with pytest.raises(InvalidInput, match="do not fit"):
        verax.explain(model, x, method="feature-ablation", segments=groups[:-1])


def test_occlusion_of_sequences_moves_a_window():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv1d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 2)).double()
    x = drawn(3, 2, 10).double()
    maps = verax.explain(model, x, 1, method="occlusion", window=4, stride=3)
    total, count = torch.zeros(3, 10).double(), torch.zeros(10)
    for start in (0, 3, 6):
        hidden = x.clone()
        hidden[:, :, start : start + 4] = 0
        total[:, start : start + 4] += (model(x) - model(hidden))[:, 1:].detach()
        count[start : start + 4] += 1
    torch.testing.assert_close(maps, (total / count)[:, None].expand_as(x).float())


# -- additive functions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("exact-additive", {}),
        ("occlusion", {}),
        ("feature-ablation", {}),
        ("kernel-shap", {}),
        ("kernel-shap", {"samples": 3 * CELLS}),
        ("shapley-sampling", {"permutations": 1}),
        ("deeplift-rescale", {}),
        ("deep-shap", {"noise": 0.0, "references": 1}),
    ],
)
@pytest.mark.parametrize("low", ["zeros", "tensor"])
def test_additive_functions_of_many_cells_are_solved_exactly(name, settings, low):
    model, x = Additive(CELLS).double(), drawn(2, CELLS, seed=2).double()
    b = drawn(CELLS, seed=3).double() if low == "tensor" else torch.zeros(CELLS).double()
    maps = verax.explain(model, x, method=name, baseline=b, **settings)
    wanted = model.terms(x) - model.terms(b[None])
    assert float((maps - wanted).norm() / wanted.norm()) < 1e-6


def test_lime_and_expected_gradients_find_additive_terms():
    model, x = Additive(CELLS).double(), drawn(2, CELLS, seed=2).double()
    wanted = model.terms(x) - model.terms(torch.zeros_like(x))
    for name, settings in (
        ("lime", {"ridge": 1e-6, "distance": "l2"}),
        ("gradient-shap", {"noise": 0.0, "samples": 500}),
        ("integrated-gradients", {"steps": 128}),
    ):
        maps = verax.explain(model, x, method=name, **settings).double()
        for one, truth in zip(maps, wanted, strict=True):
            assert torch.corrcoef(torch.stack([one, truth]))[0, 1] > 0.99, name


def test_too_few_coalitions_leave_values_open_and_still_add_up():
    model, x = Additive(CELLS).double(), drawn(1, CELLS, seed=2).double()
    maps = verax.explain(model, x, method="kernel-shap", samples=200).double()
    wanted = model.terms(x) - model.terms(torch.zeros_like(x))
    assert float((maps - wanted).norm() / wanted.norm()) > 0.5
    assert float((maps.sum() - wanted.sum()).abs()) < 1e-6
    assert enough(10) == 512
    assert enough(CELLS) == 4 * CELLS


def test_interactions_are_refused_by_the_exact_method():
    x = drawn(3, 20)
    for strength, refused in ((0.0, False), (1e-7, False), (0.05, True), (5.0, True)):
        model = Additive(20, strength)
        if not refused:
            verax.explain(model, x, method="exact-additive")
            continue
        with pytest.raises(UnsupportedOperation, match="not additive over these segments") as caught:
            verax.explain(model, x, method="exact-additive")
        assert "\n" not in str(caught.value)
    # within one segment everything may interact
    together = torch.arange(20).clamp(min=1)
    verax.explain(Additive(20, 5.0), x, method="exact-additive", segments=together)
    with pytest.raises(InvalidParameter, match="tolerance"):
        verax.explain(Additive(20), x, method="exact-additive", tolerance=-1.0)


def test_an_interaction_without_single_effects_is_refused():
    class Product(nn.Module):
        def forward(self, x):
            return (x[:, :1] * x[:, 1:2]).clone()

    with pytest.raises(UnsupportedOperation, match="differ from sums by inf"):
        verax.explain(Product(), drawn(2, 3), method="exact-additive")


def test_rounding_of_large_outputs_is_no_interaction():
    class Lifted(Additive):
        def forward(self, x):
            return super().forward(x) + 100.0

    x = drawn(2, CELLS, seed=2)
    values, gap = additive_values(
        Game.of(Lifted(CELLS), x, torch.zeros(2).long(), "grid", 1, 0.0), Streams.of(torch.arange(2)), 8
    )
    assert float(gap.max()) < 1e-3
    assert values.shape == x.shape


# -- many players ----------------------------------------------------------------------------------------


def test_cholesky_and_the_pseudo_inverse_agree(monkeypatch):
    model, x = regressor(30).double(), drawn(3, 30, seed=4).double()
    x[1, 4:9] = 0  # dummies
    x[2, 1:] = 0  # one player
    game = Game.of(model, x, torch.zeros(3).long(), "grid", 1, 0.0)
    streams = Streams.of(torch.arange(3))
    quick = shapley.kernel_values(game, streams, 100)
    monkeypatch.setattr(torch.linalg, "cholesky_ex", _failing)
    slow = shapley.kernel_values(game, streams, 100)
    torch.testing.assert_close(quick, slow, rtol=0, atol=1e-11)


def _failing(matrix):
    return torch.eye(matrix.shape[1]).to(matrix).expand_as(matrix), torch.ones(len(matrix), dtype=torch.int32)


def test_coalitions_that_leave_values_open_take_the_most_even_ones():
    """More rows than players, all the same: Cholesky fails and the pseudo-inverse answers."""
    rows = torch.tensor([[0.5, -0.5, 0.0, 0.0]]).double().repeat(9, 1)[None]
    ones = torch.ones(1, 9).double()
    found = shapley._least_squares(rows, 3 * ones, ones, torch.ones(1, 4, dtype=torch.bool))
    torch.testing.assert_close(found, torch.tensor([[3.0, -3.0, 0.0, 0.0]]).double())


def test_a_map_does_not_depend_on_how_samples_are_cut(monkeypatch):
    model, x = regressor(40), drawn(5, 40, seed=4)
    for name in ("kernel-shap", "lime", "shapley-sampling", "occlusion", "feature-ablation"):
        whole = verax.explain(model, x, method=name)
        monkeypatch.setattr(batching, "BUDGET", 4096)
        torch.testing.assert_close(verax.explain(model, x, method=name, batch_size=2), whole)
        monkeypatch.undo()


# -- rules -----------------------------------------------------------------------------------------------


def _relevance(model, x, bias):
    """LRP-z of a network with one hidden layer, by hand."""
    first, _, last = model
    h = F.relu(first(x))
    z = h @ last.weight.T
    r = h * last.weight * (model(x) / (model(x) if bias else z))
    u = x @ first.weight.T + (first.bias if bias else 0)
    return x * ((r / u) @ first.weight)


@pytest.mark.parametrize("name", ["lrp-z", "lrp-epsilon"])
def test_both_conventions_of_biases(name):
    model, x = regressor(6).double(), drawn(4, 6).double()
    small = {"epsilon": 1e-12} if name == "lrp-epsilon" else {}
    share = verax.explain(model, x, method=name, **small)
    torch.testing.assert_close(share, _relevance(model, x, True).float().detach(), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(share, verax.explain(model, x, method="input-x-gradient"))
    none = verax.explain(model, x, method=name, bias="none", **small)
    torch.testing.assert_close(none, _relevance(model, x, False).float().detach(), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(none.sum(1), model(x)[:, 0].float().detach(), rtol=1e-3, atol=1e-5)
    with pytest.raises(InvalidParameter, match="'share' or 'none'"):
        verax.explain(model, x, method=name, bias="split")


def test_deep_taylor_without_bounds_in_words():
    model, x = regressor(6).double(), drawn(4, 6).double()
    words = verax.explain(model, x, method="deep-taylor", low="none", high="none")
    assert torch.equal(words, verax.explain(model, x, method="deep-taylor", low=None, high=None))
    assert not torch.equal(words, verax.explain(model, x, method="deep-taylor"))
    for bad in ("nothing", math.inf, True):
        with pytest.raises(InvalidParameter, match="a finite number, 'none' or None"):
            verax.explain(model, x, method="deep-taylor", low=bad)
