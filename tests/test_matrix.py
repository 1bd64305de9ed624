"""Every method on every kind of network: finite maps of the right shape, or one sentence that says why not.

The refusals are written down here. A method that suddenly refuses fails, and so does one that suddenly runs.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import verax
from spellings import Transformer
from verax.errors import VeraxError
from verax.methods import METHODS

FEWER = {
    "rise": {"samples": 100},
    "guided-ig": {"steps": 20},
    "shapley-sampling": {"permutations": 2},
    "exact-shapley": {"size": 16},
}


class Residual(nn.Module):
    """A residual network of functions: batch normalisation, shortcut with a projection, in-place sums."""

    def __init__(self):
        super().__init__()
        self.stem, self.a = nn.Conv2d(3, 6, 3, 2, 1), nn.Conv2d(6, 8, 3, 2, 1)
        self.b, self.skip = nn.Conv2d(8, 8, 3, 1, 1), nn.Conv2d(6, 8, 1, 2)
        self.norms, self.head = nn.ModuleList(nn.BatchNorm2d(c) for c in (6, 8, 8)), nn.Linear(8, 4)

    def norm(self, number, x):
        own = self.norms[number]
        return F.batch_norm(x, own.running_mean, own.running_var, own.weight, own.bias)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(0, self.stem(x))), 3, 2, 1)
        y = F.relu(self.norm(1, self.a(x)), inplace=True)
        y = self.norm(2, self.b(y))
        y += self.skip(x)
        return F.linear(F.adaptive_avg_pool2d(torch.relu(y), 1).flatten(1), self.head.weight, self.head.bias)


class Sequence(nn.Module):
    """A convolutional network on sequences."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.head = nn.Conv1d(3, 6, 5, padding=2), nn.Conv1d(6, 8, 3, 2), nn.Linear(8, 3)

    def forward(self, x):
        x = F.max_pool1d(F.relu(self.a(x)), 2)
        return self.head(F.relu(self.b(x)).mean(2))


class Additive(nn.Module):
    """A sum of one term for each cell, with kinks."""

    def __init__(self):
        super().__init__()
        self.slopes, self.knots = (nn.Parameter(torch.randn(5, 458)) for _ in range(2))

    def forward(self, x):
        return (self.slopes * F.relu(x[:, None] - self.knots)).sum(1).mean(1, keepdim=True)


def _seeded(make):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make()


def _textbox():
    task = verax.task("textbox/complex-cr1")
    cases = task.cases(n=1)
    return task.network("cnn4"), cases.inputs[-2:], cases.targets[-2:], cases.truth[-2:]


def _additive():
    """A sum of one curved term for each of 458 cells, as the known function of the climate task is."""
    return _drawn(Additive, 458, classes=1)


def _drawn(make, *shape, classes):
    model, x = _seeded(make).eval(), _seeded(lambda: torch.rand(2, *shape))
    return model, x, torch.arange(2) % classes, None


NETWORKS = {
    "cnn4 of TextBox": _textbox,
    "functional residual network": lambda: _drawn(Residual, 3, 32, 32, classes=4),
    "vision transformer": lambda: _drawn(lambda: Transformer("fused").float(), 3, 16, 16, classes=5),
    "regressor on vectors": lambda: _drawn(
        lambda: nn.Sequential(nn.Linear(7, 9), nn.ReLU(), nn.Linear(9, 1)), 7, classes=1
    ),
    "sequence network": lambda: _drawn(Sequence, 3, 20, classes=3),
    "additive function of 458 cells": _additive,
}
FLAT = ("regressor on vectors", "sequence network", "additive function of 458 cells")
PICTURES = "need pictures|needs pictures"

REFUSALS = {("oracle", network): "needs the truth" for network in NETWORKS if network != "cnn4 of TextBox"}
for _network in FLAT:
    for _name in (
        *("grad-cam", "grad-cam-plus-plus", "hires-cam", "layer-cam", "score-cam", "ablation-cam"),
        *("guided-grad-cam", "grad-cam@published", "fullgrad", "blur-ig"),
        *("edge", "edge@published"),
    ):
        REFUSALS[_name, _network] = PICTURES
for _network in NETWORKS:
    if not _network.startswith("additive"):
        REFUSALS["exact-additive", _network] = "not additive"
    if _network != "vision transformer":
        for _name in ("attention-rollout", "chefer"):
            REFUSALS[_name, _network] = "no attention"
for _name in (
    *("lrp-z", "lrp-epsilon", "lrp-gamma", "lrp-alpha1beta0", "lrp-alpha2beta1", "lrp-a", "lrp-b"),
    *("deep-taylor", "deep-taylor@published", "lrp-epsilon@published", "lrp-a@published", "lrp-b@published"),
):
    REFUSALS[_name, "vision transformer"] = "no rule for the operation 'layer_norm'"


@pytest.fixture(scope="module")
def made():
    return {name: make() for name, make in NETWORKS.items()}


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("name", [name for name in METHODS if METHODS.get(name).builtin])
def test_maps_or_one_sentence(made, name, network):
    model, x, targets, truth = made[network]
    call = {"method": name, "truth": truth, **FEWER.get(name, {})}
    if x.dim() < 4 and name == "exact-shapley":
        call.pop("size")
    reason = REFUSALS.get((name, network))
    if reason is None:
        maps = verax.explain(model, x, targets, **call)
        assert maps.shape == x.shape
        assert maps.isfinite().all()
        rectified = METHODS.get(name).family == "cams" or name.startswith("deep-taylor")  # may be empty
        assert rectified or maps.abs().sum() > 0
        return
    with pytest.raises(VeraxError, match=reason) as caught:
        verax.explain(model, x, targets, **call)
    sentence = str(caught.value)
    assert sentence.endswith(".")
    assert "\n" not in sentence


def test_the_table_names_what_exists():
    """A method that was renamed does not leave its refusals behind."""
    assert {name for name, _ in REFUSALS} <= set(METHODS)
