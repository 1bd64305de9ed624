"""In which layout pictures are computed, and that it changes nothing but speed."""

import gc

import pytest
import torch
from torch import nn

import verax
from spellings import SPELLINGS, Spelled, plain, residual
from verax.engine import layouts
from verax.engine.gradients import gradient
from verax.engine.layouts import fastest

USUAL, OTHER = torch.contiguous_format, torch.channels_last
G = torch.Generator().manual_seed(0)


@pytest.fixture(autouse=True)
def as_usual(monkeypatch):
    monkeypatch.setattr(layouts, "_ROWS", 8)


class Counted(nn.Module):
    """A small network that counts how often it runs, with a way out of its convolution."""

    def __init__(self, way=lambda x: x.flatten(1)):
        super().__init__()
        self.conv, self.way, self.passes = nn.Conv2d(3, 4, 3, 2), way, 0
        self.last = nn.Linear(4 * 7 * 7, 3)

    def forward(self, x):
        self.passes += 1
        return self.last(self.way(self.conv(x).relu()))


def pictures(count=8, dtype=torch.float32):
    return torch.rand(count, 3, 16, 16, dtype=dtype, generator=G)


def test_a_network_is_asked_once_for_each_kind_of_input():
    model, x = Counted(), pictures()
    assert fastest(model, x) is OTHER
    assert model.passes == 2
    assert fastest(model, pictures(20)) is OTHER
    assert model.passes == 2
    assert fastest(model.double(), x.double()) is OTHER
    assert model.passes == 4


WAYS = {
    "view": lambda x: x.view(len(x), -1),
    "strides counted": lambda x: x.as_strided((len(x), 196), (196, 1)),
    "layout asked for": lambda x: x.flatten(1) * (1 if x.is_contiguous() else 2),
    "nothing to compare": lambda x: x.flatten(1) * float("nan"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_network_that_answers_otherwise_keeps_the_usual_layout(way):
    model, x = Counted(WAYS[way]), pictures()
    assert fastest(model, x) is USUAL
    found = gradient(model, x, torch.zeros(8, dtype=torch.int64))
    point = x.clone().requires_grad_()
    expected = torch.autograd.grad(model(point)[:, 0].sum(), point)[0]
    torch.testing.assert_close(found, expected, equal_nan=True)


def test_few_pictures_vectors_and_networks_without_convolutions_are_not_asked():
    model = Counted()
    assert fastest(model, pictures(7)) is USUAL
    assert fastest(model, torch.rand(9, 3)) is USUAL
    assert model.passes == 0
    assert fastest(nn.Sequential(nn.Flatten(), nn.Linear(768, 2)), pictures()) is USUAL


def test_a_network_that_fails_says_so_itself_later():
    model = Counted(lambda x: x.no_such_thing)
    assert fastest(model, pictures()) is USUAL


def test_networks_are_not_kept_alive():
    known = len(layouts._ANSWERS)
    model = Counted()
    fastest(model, pictures())
    assert len(layouts._ANSWERS) == known + 1
    del model
    gc.collect()
    assert len(layouts._ANSWERS) == known


NETWORKS = {
    "module": plain,
    **{how: lambda how=how: Spelled(plain(), how) for how in SPELLINGS},
    "residual": residual,
}


@pytest.mark.parametrize("method", ["gradient", "smoothgrad", "integrated-gradients", "deep-shap"])
@pytest.mark.parametrize("name", NETWORKS)
def test_maps_are_the_same_in_both_layouts(name, method, monkeypatch):
    model = NETWORKS[name]().double().eval()
    x = pictures(9, torch.float64)
    more = {"references": pictures(8, torch.float64)} if method == "deep-shap" else {}
    found = verax.explain(model, x, method=method, **more)
    monkeypatch.setattr(layouts, "_ROWS", 10**9)
    expected = verax.explain(model, x, method=method, **more)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)
    assert found.is_contiguous()
