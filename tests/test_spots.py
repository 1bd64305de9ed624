"""Gradients where pictures differ from their baseline: the same maps as from gradients everywhere."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import verax
from spellings import SPELLINGS, Spelled, plain, residual
from test_convolutions import KERNELS, PADDINGS, SIDES, STRIDES, case
from verax.engine import convolutions, spots
from verax.engine.convolutions import QuickTransposes, natively
from verax.networks import library

G = torch.Generator().manual_seed(3)
METHODS = ["integrated-gradients", "integrated-gradients@published", "input-x-gradient", "deep-shap"]


def black(count=12, side=16, share=0.05, dtype=torch.float64):
    """Pictures with a few bright pixels on black."""
    there = torch.rand(count, 1, side, side, generator=G) < share
    return torch.rand(count, 3, side, side, dtype=dtype, generator=G) * there


@pytest.fixture
def sparing(monkeypatch):
    """Passes of any size, and the switch between few places and all of them."""
    monkeypatch.setattr(convolutions, "_WORTH_ON_CPU", 0)
    monkeypatch.setattr(spots, "_CHANNELS", 1)

    def switch(share):
        monkeypatch.setattr(spots, "_FEW", share)

    switch(0.3)
    return switch


def both(sparing, function):
    """What a function gives when few places are computed, and when all are."""
    sparing(0.3)
    quick = function()
    sparing(-1)
    return quick, function()


@pytest.mark.parametrize("block", [1, 2**20])
@pytest.mark.parametrize("stride", STRIDES)
def test_the_transpose_is_right_where_it_is_wanted_and_zero_elsewhere(stride, block, monkeypatch):
    monkeypatch.setattr(spots, "_BLOCK", block)
    for side, kernel, padding in itertools.product(SIDES, KERNELS, PADDINGS):
        call, g, expected = case(side, kernel, stride, padding)
        for share in (0.0, 0.2, 1.0):
            wanted = torch.rand(2, *side, generator=G) < share
            found = spots.transpose_at(wanted)(call, g)
            torch.testing.assert_close(found, expected * wanted[:, None])


@pytest.mark.parametrize("stride", STRIDES)
def test_all_places_that_a_wanted_pixel_reaches_are_wanted(stride):
    for side, kernel, padding in itertools.product(SIDES, KERNELS, PADDINGS):
        call, g, _ = case(side, kernel, stride, padding)
        wanted = torch.rand(2, *side, generator=G) < 0.05
        lit = (
            F.conv2d(
                wanted[:, None].double(),
                torch.ones(1, 1, *call.weight.shape[2:]).double(),
                stride=call.stride,
                padding=call.padding,
            )[:, 0]
            > 0
        )
        assert torch.equal(spots.reached(call, wanted), lit)
        # what comes back through the other places reaches no wanted pixel
        rest = natively(call, g * ~lit[:, None]) * wanted[:, None]
        assert not rest.any()


def chain(inplace):
    """Convolutions straight behind each other: with steps, with a margin, and of one pixel."""
    with torch.random.fork_rng():
        torch.manual_seed(6)
        kinds = [
            nn.Conv2d(3, 6, 3, 2, 1),
            nn.Conv2d(6, 5, 1),
            nn.Conv2d(5, 7, (2, 3), (1, 2)),
            nn.Conv2d(7, 4, 2),
        ]
        layers = [layer for conv in kinds for layer in (conv, nn.ReLU(inplace))]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 4))


NETWORKS = {
    "modules": lambda: chain(False),
    "overwriting": lambda: chain(True),
    "residual": residual,
    "plain": plain,
    **{how: lambda how=how: Spelled(plain(), how) for how in SPELLINGS},
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("method", METHODS)
def test_maps_are_those_of_gradients_everywhere(sparing, name, method):
    model = NETWORKS[name]().double().eval()
    x, low = black(), black(5)
    settings = {"references": low} if method == "deep-shap" else {}

    def maps():
        return verax.explain(model, x, torch.arange(len(x)) % 3, method=method, settings=settings)

    quick, slow = both(sparing, maps)
    torch.testing.assert_close(quick, slow, rtol=1e-9, atol=1e-12)
    assert slow.any()


@pytest.mark.parametrize("method", METHODS)
def test_certified_networks_are_explained_the_same(sparing, method):
    task = verax.task("textbox/complex-cr1")
    model = library.network(task, "cnn4").double().eval()
    cases = task.cases(n=1, seed=2)
    x, low = cases.inputs.double(), task.cases(n=1, seed=5).inputs.double()[:9]
    settings = {"references": low} if method == "deep-shap" else {}
    quick, slow = both(
        sparing, lambda: verax.explain(model, x, cases.targets, method=method, settings=settings)
    )
    torch.testing.assert_close(quick, slow, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_little_is_computed(sparing, monkeypatch, method):
    task = verax.task("textbox/complex-cr1")
    model, cases = library.network(task, "cnn4").eval(), task.cases(n=1, seed=2)
    seen = []
    original = spots.transpose_at

    def counted(wanted):
        seen.append(float(wanted.float().mean()))
        return original(wanted)

    monkeypatch.setattr(spots, "transpose_at", counted)
    settings = {"references": task.cases(n=1, seed=5).inputs[:9]} if method == "deep-shap" else {}
    verax.explain(model, cases.inputs, cases.targets, method=method, settings=settings)
    assert len(seen) >= 3
    assert max(seen) < 0.3
    assert min(seen) < 0.1


class Overwriting(nn.Module):
    """Works in place on what it has, in ways that carry gradients to other places."""

    def __init__(self, how):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(4)
            self.a, self.b = nn.Conv2d(3, 5, 3, padding=1), nn.Conv2d(5, 4, 3, stride=2)
            self.side = nn.Conv2d(3, 5, 9, padding=4)
        self.how = how

    def forward(self, x):
        if self.how == "input":
            x += x.roll(5, 2)
        h = self.a(x)
        if self.how == "sum":
            h += self.side(x)
        elif self.how == "view":
            h.view(len(h), -1)[:] += self.side(x).flatten(1)
        elif self.how == "roll":
            h = torch.relu(h).roll(3, 3)
        elif self.how == "order":
            h = h.flip(0).relu_().flip(0)
        elif self.how == "mean":
            h = torch.clamp(h, max=h.mean((2, 3), keepdim=True))
        return self.b(torch.relu_(h)).mean((2, 3))


@pytest.mark.parametrize("how", ["input", "sum", "view", "roll", "order", "mean"])
@pytest.mark.parametrize("method", ["integrated-gradients", "input-x-gradient"])
def test_what_is_overwritten_moved_or_mixed_is_wanted_everywhere(sparing, how, method):
    model, x = Overwriting(how).double().eval(), black()
    quick, slow = both(sparing, lambda: verax.explain(model, x, torch.arange(12) % 4, method=method))
    torch.testing.assert_close(quick, slow, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("how", ["sum", "roll"])
def test_deep_shap_of_what_is_overwritten_or_moved(sparing, how):
    model, x, low = Overwriting(how).double().eval(), black(4), black(3)
    quick, slow = both(
        sparing,
        lambda: verax.explain(model, x, torch.arange(4), method="deep-shap", settings={"references": low}),
    )
    torch.testing.assert_close(quick, slow, rtol=1e-9, atol=1e-12)


def test_another_baseline_wants_other_places(sparing):
    model = Spelled(plain(), SPELLINGS[0]).double().eval()
    x = black()
    grey = torch.full_like(x, 0.5)
    quick, slow = both(
        sparing,
        lambda: verax.explain(model, x, [0] * 12, method="integrated-gradients", settings={"baseline": 0.5}),
    )
    torch.testing.assert_close(quick, slow)
    assert spots.differing(x, grey) is None


def test_marks_do_not_outlive_an_overwriting():
    x, wanted = torch.zeros(1, 3, 4, 4), torch.ones(1, 4, 4, dtype=torch.bool)
    assert spots.marked(spots.mark(x, wanted)) is wanted
    x.view(-1)[0] = 1
    assert spots.marked(x) is None


def test_gradients_without_a_wish_are_whole():
    model = Spelled(plain(), SPELLINGS[0]).double().eval()
    x = black(4)
    point = x.clone().requires_grad_()
    with QuickTransposes():
        outputs = model(point)
    (found,) = torch.autograd.grad(outputs[:, 1].sum(), point)
    (expected,) = torch.autograd.grad(model(point)[:, 1].sum(), point)
    torch.testing.assert_close(found, expected)


def normed(g):
    """A gradient that depends in each place on all places."""
    return F.avg_pool2d(g / g.norm(), 9, 1, 4)


class Looking(Overwriting):
    """Changes the gradients of what it computes on the way, as `normed` says."""

    def forward(self, x):
        h = self.a(x)
        watched = h.requires_grad
        if watched and self.how == "hook":
            h.register_hook(normed)
        elif watched and self.how == "node":
            h.grad_fn.register_prehook(lambda gs: (normed(gs[0]),))
        elif watched and self.how == "kept":
            h.retain_grad()
        out = self.b(torch.relu(h)).mean((2, 3))
        if watched and self.how == "late":
            h.register_hook(normed)
        self.seen = h
        return out


@pytest.mark.parametrize("how", ["hook", "node", "late", "kept"])
def test_a_network_that_looks_at_gradients_sees_whole_ones(sparing, how):
    model, x = Looking(how).double().eval(), black(share=0.01)
    seen = []

    def maps():
        found = verax.explain(model, x, torch.arange(12) % 4, method="input-x-gradient")
        seen.append(model.seen.grad if how == "kept" else None)
        return found

    quick, slow = both(sparing, maps)
    torch.testing.assert_close(quick, slow, rtol=1e-9, atol=1e-12)
    if how == "kept":
        torch.testing.assert_close(*seen)


class Spread(Overwriting):
    """One sample, or one pixel, becomes many by the limits of a clamp."""

    def __init__(self, how):
        super().__init__(how)
        with torch.random.fork_rng():
            torch.manual_seed(5)
            self.limits = nn.Buffer(torch.randn(3, 5, 16, 16))
            self.whole = nn.Conv2d(3, 5, 16)

    def forward(self, x):
        if self.how == "samples":
            rows = [
                self.b(torch.clamp(self.a(row), self.limits)) for row in (x.split(1) if len(x) > 1 else [x])
            ]
            return torch.stack([row.mean((0, 2, 3)) for row in rows])
        return self.b(torch.clamp(self.whole(x), self.limits[0])).mean((2, 3))


@pytest.mark.parametrize(("how", "count"), [("samples", 1), ("pixels", 6)])
def test_what_a_clamp_spreads_is_wanted_everywhere(sparing, how, count):
    model, x = Spread(how).double().eval(), torch.zeros(count, 3, 16, 16, dtype=torch.float64)
    x[0, :, 3, 4] = 0.5
    quick, slow = both(sparing, lambda: verax.explain(model, x, [1] * count, method="input-x-gradient"))
    torch.testing.assert_close(quick, slow, rtol=1e-9, atol=1e-12)
    assert slow.any()


def test_windows_of_a_large_kernel_are_collected_in_blocks(monkeypatch):
    most, original = [], spots._windows

    def counted(*args):
        found = original(*args)
        most.append(found.numel())
        return found

    monkeypatch.setattr(spots, "_windows", counted)
    call, g, expected = case((40, 40), (11, 11), (1, 1), (5, 5))
    monkeypatch.setattr(spots, "_BLOCK", 2**14)
    found = spots.transpose_at(torch.ones(2, 40, 40, dtype=torch.bool))(call, g)
    torch.testing.assert_close(found, expected)
    assert max(most) <= 2**14
    assert len(most) > 1


def test_layers_of_few_channels_collect_fewer_places(monkeypatch):
    monkeypatch.setattr(spots, "_FEW", 0.3)
    monkeypatch.setattr(spots, "_CHANNELS", 32)
    wanted = torch.arange(100).view(1, 10, 10) < 10
    assert spots.few(wanted) is wanted
    assert spots.few(wanted, 64) is wanted
    assert spots.few(wanted, 3) is None
    assert spots.few(wanted & (torch.arange(100).view(1, 10, 10) < 2), 3) is not None


class Lengths(nn.Module):
    """The lengths of vectors, which have no gradient where a picture is black."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(4)
            self.a = nn.Conv2d(3, 5, 3, padding=1, bias=False)
            self.b = nn.Conv2d(5, 5, 3, padding=1, bias=False)

    def forward(self, x):
        return self.b(self.a(x)).square().sum(1).sqrt().mean((1, 2))[:, None]


def test_what_is_undefined_without_a_difference_stays_so(sparing):
    model, x = Lengths().double().eval(), black(share=0.01)
    quick, slow = both(sparing, lambda: verax.explain(model, x, [0] * 12, method="input-x-gradient"))
    assert slow.isnan().any()
    torch.testing.assert_close(quick, slow, rtol=1e-9, atol=1e-12, equal_nan=True)
