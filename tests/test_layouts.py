"""In which layout pictures are computed, and that it changes nothing but speed."""

import gc

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import verax
from spellings import plain
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
    "view of channels as samples": lambda x: x.view(4 * len(x), 7, 7).reshape(len(x), 196),
    "strides counted": lambda x: x.as_strided((len(x), 196), (196, 1)),
    "layout asked for": lambda x: x.flatten(1) * (1 if x.is_contiguous() else 2),
    "a maximum": lambda x: F.pad(F.max_pool2d(x, 2), (0, 4, 0, 4)).flatten(1)[:, :196],
    "a choice": lambda x: torch.where(x > 0.1, x, 0).flatten(1),
    "a largest": lambda x: x.flatten(1) * x.flatten(1).max(1, keepdim=True).values,
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


def test_a_network_that_comes_to_want_the_usual_layout_gets_it():
    model, x, targets = Counted(), pictures(), torch.zeros(8, dtype=torch.int64)
    expected = gradient(model, x, targets)
    assert fastest(model, x) is OTHER
    model.way = WAYS["view"]
    torch.testing.assert_close(gradient(model, x, targets), expected)
    assert fastest(model, x) is USUAL


def test_a_network_with_other_layers_is_asked_again():
    model, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(196, 2)), pictures()
    assert fastest(model, x) is OTHER
    model[1] = nn.MaxPool2d(2)
    assert fastest(model, x) is USUAL


def test_what_cannot_be_watched_keeps_the_usual_layout():
    model, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(196, 2)), pictures()
    assert fastest(torch.jit.trace(model, x), x) is USUAL


@pytest.mark.parametrize(
    "way", [lambda x: F.dropout(x.flatten(1), 0.5, True), lambda x: (x * torch.rand(4, 1, 1)).flatten(1)]
)
def test_the_question_draws_no_random_numbers_of_the_explanation(way):
    model, x = Counted(way), pictures()
    first, second = (verax.explain(model, x, 0, "gradient") for _ in range(2))
    assert torch.equal(first, second)


def test_networks_are_not_kept_alive():
    gc.collect()  # those of tests before
    known = len(layouts._ANSWERS)
    model = Counted()
    fastest(model, pictures())
    assert len(layouts._ANSWERS) == known + 1
    del model
    gc.collect()
    assert len(layouts._ANSWERS) == known


class Strided(nn.Module):
    """Two convolutions without pooling, in several spellings, with a residual one."""

    def __init__(self, how):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(5)
            self.first, self.second = nn.Conv2d(3, 6, 3, 2), nn.Conv2d(6, 6, 3, padding=1)
            self.last = nn.Linear(6 * 7 * 7, 4)
        self.how = how

    def forward(self, x):
        if self.how == "functional":
            x = F.relu(F.conv2d(x, self.first.weight, self.first.bias, stride=2))
            x = F.conv2d(x, self.second.weight, self.second.bias, padding=1)
        elif self.how == "in-place":
            x = self.second(self.first(x).relu_())
        else:
            x = self.first(x).relu()
            x = x + self.second(x) if self.how == "residual" else self.second(x)
        return self.last(x.tanh().reshape(len(x), -1))


WAYS_TO_SPELL = ("module", "functional", "in-place", "residual")


@pytest.mark.parametrize("rows", [4, 8])
def test_a_plain_picture_has_the_same_gradient_beside_any_number_of_others(rows):
    model, x = plain(), torch.full((16, 3, 14, 14), 0.3, dtype=torch.float64)
    targets = torch.zeros(16, dtype=torch.int64)
    whole, part = gradient(model, x, targets), gradient(model, x[:rows], targets[:rows])
    torch.testing.assert_close(whole[:rows], part)


@pytest.mark.parametrize("method", ["gradient", "smoothgrad", "integrated-gradients", "deep-shap"])
@pytest.mark.parametrize("how", WAYS_TO_SPELL)
def test_maps_are_the_same_in_both_layouts(how, method, monkeypatch):
    model, x = Strided(how).double().eval(), pictures(9, torch.float64)
    assert fastest(model, x) is OTHER
    more = {"references": pictures(8, torch.float64)} if method == "deep-shap" else {}
    found = verax.explain(model, x, method=method, **more)
    monkeypatch.setattr(layouts, "_ROWS", 10**9)
    expected = verax.explain(model, x, method=method, **more)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)
    assert found.is_contiguous()
