"""Transposes of convolutions against autograd's own, and gradients that use them."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from spellings import SPELLINGS, Spelled, Transformer, plain, residual
from verax.engine import convolutions, gradients, kernels
from verax.engine.convolutions import (
    Convolution,
    QuickTransposes,
    ahead,
    at_once,
    by_phases,
    by_windows,
    in_steps_of_one,
    natively,
    quick,
    quickly,
    transpose,
)
from verax.engine.multipliers import Rectified
from verax.engine.operations import Operation
from verax.engine.passes import propagate

G = torch.Generator().manual_seed(0)


def pair(value):
    return (value, value) if isinstance(value, int) else tuple(value)


def case(side, kernel, stride, padding, dilation=1, channels=3, groups=1):
    """A convolution, what comes back to it, and what autograd makes of that."""
    x = torch.randn(2, channels, *side, dtype=torch.float64, generator=G).requires_grad_()
    weight = torch.randn(4, channels // groups, *pair(kernel), dtype=torch.float64, generator=G)
    y = F.conv2d(x, weight, None, stride, padding, dilation, groups)
    g = torch.randn(y.shape, dtype=torch.float64, generator=G)
    call = Convolution(weight, x.shape, pair(stride), pair(padding), pair(dilation), groups)
    return call, g, torch.autograd.grad(y, x, g)[0]


SIDES, KERNELS = ((9, 12), (16, 16), (7, 5)), (1, 3, 4, (2, 5))
STRIDES, PADDINGS = (1, 2, (3, 2), 4), (0, 1, (1, 2))


@pytest.mark.parametrize("how", [natively, by_windows, by_phases, at_once])
@pytest.mark.parametrize("stride", STRIDES)
def test_every_transpose_is_the_gradient_of_the_convolution(how, stride):
    for side, kernel, padding in itertools.product(SIDES, KERNELS, PADDINGS):
        call, g, expected = case(side, kernel, stride, padding)
        torch.testing.assert_close(how(call, g), expected)


@pytest.mark.parametrize("how", [natively, by_windows])
def test_windows_may_have_gaps(how):
    call, g, expected = case((11, 9), (3, 2), 2, 1, dilation=(2, 1))
    torch.testing.assert_close(how(call, g), expected)


@pytest.mark.parametrize("how", [natively, by_windows, by_phases, at_once])
def test_the_transpose_of_nothing_is_nothing(how):
    call, g, _ = case((6, 5), (3, 2), 2, 0)
    empty = Convolution(call.weight, torch.Size((0, 3, 6, 5)), call.stride, call.padding, call.dilation, 1)
    assert how(empty, g[:0]).shape == (0, 3, 6, 5)


@pytest.mark.parametrize("cuda", [True, False])
def test_what_is_chosen_is_right_for_every_convolution(cuda):
    chosen = set()
    for side, kernel, stride, padding in itertools.product(SIDES, KERNELS, STRIDES, PADDINGS):
        for channels, dilation, groups in ((3, 1, 1), (128, 1, 1), (16, 1, 2), (3, 2, 1)):
            if any(
                s + 2 * p <= dilation * (k - 1)
                for s, p, k in zip(side, pair(padding), pair(kernel), strict=True)
            ):
                continue
            call, g, expected = case(side, kernel, stride, padding, dilation, channels, groups)
            chosen.add(quick(call, cuda))
            torch.testing.assert_close(transpose(call, cuda)(g), expected)
    assert chosen == ({None, at_once, by_windows, by_phases} if cuda else {None, at_once, by_windows})


WITHOUT_STRIDE = [
    # channels in and out, side, how the convolution is spelled for gradients and ahead, and its transpose
    ((64, 64), 6, None, None, None),
    ((128, 128), 7, kernels.by_product, kernels.by_product, in_steps_of_one),
    ((64, 128), 7, None, None, None),
    ((64, 128), 8, kernels.directly, None, in_steps_of_one),
    ((128, 128), 12, kernels.directly, None, in_steps_of_one),
    ((64, 64), 20, kernels.directly, None, in_steps_of_one),
    ((64, 128), 20, kernels.directly, kernels.by_product, in_steps_of_one),
    ((128, 128), 20, kernels.in_reverse, kernels.by_product, natively),
    ((64, 64), 40, kernels.in_reverse, None, natively),
    ((3, 64), 12, None, None, by_windows),
    ((64, 3), 12, None, None, None),
]


@pytest.mark.parametrize(("channels", "side", "way", "on", "back"), WITHOUT_STRIDE)
@pytest.mark.parametrize("padding", [0, 1, (2, 0)])
def test_without_a_stride_every_spelling_is_the_convolution(channels, side, way, on, back, padding):
    ins, outs = channels
    x = torch.randn(2, ins, side, side + 1, dtype=torch.float64, generator=G).requires_grad_()
    weight = torch.randn(outs, ins, 3, 3, dtype=torch.float64, generator=G)
    y = F.conv2d(x, weight, padding=padding)
    for spelled in (kernels.directly, kernels.in_reverse, kernels.by_product):
        torch.testing.assert_close(spelled(x.detach(), weight, pair(padding)), y.detach())
    assert kernels.spelling(weight.shape, pair(padding), x.shape[2:]) is way
    assert kernels.forward(weight.shape, pair(padding), x.shape[2:]) is on
    call = Convolution(weight, x.shape, (1, 1), pair(padding), (1, 1), 1)
    assert quick(call, cuda=True) is back
    assert quick(call, cuda=False) is None
    g = torch.randn(y.shape, dtype=torch.float64, generator=G)
    torch.testing.assert_close(transpose(call, True)(g), torch.autograd.grad(y, x, g)[0])


def test_an_empty_batch_stays_empty_in_every_spelling():
    x, weight = torch.zeros(0, 128, 4, 5), torch.zeros(130, 128, 3, 3)
    for spelled in (kernels.directly, kernels.in_reverse, kernels.by_product):
        assert spelled(x, weight, (1, 0)).shape == (0, 130, 4, 3)


class Overwritten(nn.Module):
    """Keeps one kernel for two layers."""

    def __init__(self, stride):
        super().__init__()
        self.stride = stride
        self.register_buffer("kernel", torch.zeros(3, 3, 3, 3, dtype=torch.float64))

    def forward(self, x):
        for factor in (1.0, 2.0):
            self.kernel.copy_(torch.full_like(self.kernel, factor))
            x = F.conv2d(x, self.kernel, stride=self.stride, padding=1)
        return x.mean((2, 3))


@pytest.mark.parametrize("stride", [1, 2])
def test_a_kernel_that_is_overwritten_on_the_way_is_no_reason_for_a_wrong_map(stride, as_on_a_gpu):
    x = torch.rand(2, 3, 9, 9, dtype=torch.float64, generator=G)
    for how in (torch.enable_grad(), QuickTransposes()):
        with pytest.raises(RuntimeError, match=r"inplace operation|overwritten"):
            gradient(Overwritten(stride), x, how)
    assert any(as_on_a_gpu)


def test_windows_that_take_much_memory_are_made_in_parts(monkeypatch):
    x, weight = torch.randn(5, 128, 4, 4, generator=G), torch.randn(130, 128, 3, 3, generator=G)
    whole = kernels.by_product(x, weight, (1, 1))
    monkeypatch.setattr(kernels, "_PART", 2 * x[0].numel() * 9)
    monkeypatch.setattr(kernels, "_product", lambda x, *rest, real=kernels._product: sized(real, x, *rest))
    sizes = []

    def sized(real, x, *rest):
        sizes.append(len(x))
        return real(x, *rest)

    torch.testing.assert_close(kernels.by_product(x, weight, (1, 1)), whole)
    assert sizes == [2, 2, 1]


def test_only_kernels_that_were_measured_are_spelled_otherwise():
    for shape, padding in (
        ((128, 128, 5, 5), (2, 2)),
        ((128, 128, 1, 1), (0, 0)),
        ((128, 128, 3, 3), (3, 3)),
    ):
        assert kernels.spelling(shape, padding, (16, 16)) is None
        assert kernels.forward(shape, padding, (20, 20)) is None
        call = Convolution(torch.zeros(shape), torch.Size((1, 128, 16, 16)), (1, 1), padding, (1, 1), 1)
        assert quick(call, cuda=True) is None


@pytest.mark.parametrize("bias", [None, "positional", "named"])
@pytest.mark.parametrize("way", [kernels.by_product, None])
def test_a_pass_ahead_has_its_bias(monkeypatch, bias, way):
    x, weight = torch.randn(3, 4, 6, 6, generator=G), torch.randn(5, 4, 3, 3, generator=G)
    offset = torch.randn(5, generator=G)
    args = (x, weight, *((offset,) if bias == "positional" else ()))
    kwargs = {"padding": 1, **({"bias": offset} if bias == "named" else {})}
    operation = Operation.parse(F.conv2d, args, kwargs)
    monkeypatch.setattr(kernels, "forward", lambda *_: way)
    assert ahead(operation, Convolution.of(operation), cuda=False) is operation
    run = ahead(operation, Convolution.of(operation), cuda=True)
    assert (run is operation) == (way is None)
    torch.testing.assert_close(run(x), F.conv2d(*args, **kwargs))


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((2, 1), {}),
        ((), {"stride": (2, 2), "padding": [1]}),
        ((None, 2), {"padding": 1, "dilation": 1}),
        ((), {"bias": torch.zeros(4, dtype=torch.float64), "stride": [2], "padding": (1, 1)}),
    ],
)
def test_a_call_is_read_in_every_spelling(args, kwargs):
    args = (None, *args) if args and args[0] is not None else args
    x, weight = torch.randn(2, 3, 8, 8, dtype=torch.float64), torch.randn(4, 3, 3, 3, dtype=torch.float64)
    for given in (((x, weight, *args), kwargs), ((x,), {"weight": weight, **kwargs})):
        if len(given[0]) == 1 and args:
            continue
        call = Convolution.of(Operation.parse(F.conv2d, *given))
        assert call is not None
        assert (call.stride, call.padding, call.dilation, call.groups) == ((2, 2), (1, 1), (1, 1), 1)
        assert call.weight is not None


def test_what_has_no_transpose_here_is_left_to_others():
    x, weight = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)
    for args, kwargs in (((x, weight), {"padding": "same"}), ((x[0], weight), {})):
        assert Convolution.of(Operation.parse(F.conv2d, args, kwargs)) is None
    assert Convolution.of(Operation.parse(F.linear, (x, weight[0, 0].T), {})) is None


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Choose for every network as on a GPU, where channels need not be many; tells how often it did."""
    used = []

    def choose(call, cuda):
        used.append(quick(call, True) or (by_phases if call.groups == 1 else None))
        return used[-1]

    monkeypatch.setattr(convolutions, "quick", choose)
    return used


def gradient(model, x, how):
    point = x.clone().requires_grad_()
    with how:
        out = model(point.clone())
    return torch.autograd.grad(out[:, 1].sum(), point)[0]


NETWORKS = {
    **{how: lambda how=how: Spelled(plain(), how) for how in SPELLINGS},
    "residual": residual,
    "transformer": lambda: Transformer("module"),
    "grouped": lambda: nn.Sequential(
        nn.Conv2d(3, 6, 3, 2), nn.ReLU(True), nn.Conv2d(6, 6, 3, 2, groups=3), nn.Flatten(), nn.Linear(54, 4)
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_are_those_of_autograd(name, as_on_a_gpu):
    model = NETWORKS[name]().double().eval()
    x = torch.rand(3, 3, 16, 16, dtype=torch.float64, generator=G)
    expected = gradient(model, x, torch.enable_grad())
    torch.testing.assert_close(gradient(model, x, QuickTransposes()), expected)
    assert name == "transformer" or any(as_on_a_gpu)


@pytest.mark.parametrize("way", [kernels.directly, kernels.in_reverse, kernels.by_product])
@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_are_those_of_autograd_in_every_spelling(name, way, as_on_a_gpu, monkeypatch):
    model = NETWORKS[name]().double().eval()
    x = torch.rand(3, 3, 16, 16, dtype=torch.float64, generator=G)
    expected = gradient(model, x, torch.enable_grad())

    def spelling(shape, padding, sides):
        used.append(shape)
        return None if min(padding) < 0 else way

    used = []
    monkeypatch.setattr(kernels, "spelling", spelling)
    monkeypatch.setattr(kernels, "forward", spelling)
    monkeypatch.setattr(convolutions, "ahead", lambda operation, call, cuda: ahead(operation, call, True))
    torch.testing.assert_close(gradient(model, x, QuickTransposes()), expected)
    assert used or name in ("transformer", "grouped")  # whose convolutions take strides


class Made(nn.Module):
    """Its kernel depends on its input."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3, 3, 3, generator=G, dtype=torch.float64))

    def forward(self, x):
        return F.conv2d(x, self.weight * x.mean(), stride=2).sum((2, 3))


def test_a_kernel_that_follows_the_input_keeps_its_gradient(as_on_a_gpu):
    model, x = Made(), torch.rand(3, 3, 9, 9, dtype=torch.float64, generator=G)
    expected = gradient(model, x, torch.enable_grad())
    torch.testing.assert_close(gradient(model, x, QuickTransposes()), expected)


def test_weights_get_no_gradient_and_inputs_without_one_none(as_on_a_gpu):
    model, x = plain().double(), torch.rand(2, 3, 16, 16, dtype=torch.float64, generator=G)
    with QuickTransposes():
        model.requires_grad_(False)(x)
    assert not as_on_a_gpu  # nothing is asked of this input
    gradient(model.requires_grad_(), x, QuickTransposes())
    assert as_on_a_gpu
    assert all(weight.grad is None for weight in model.parameters())


def test_other_precisions_and_transforms_take_the_usual_way(as_on_a_gpu):
    layer = nn.Conv2d(3, 4, 3, 2)
    x = torch.rand(2, 3, 9, 9, generator=G)
    per_sample = torch.func.vmap(torch.func.grad(lambda one: layer(one[None]).sum()))
    with QuickTransposes():
        found = per_sample(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert layer(x.clone().requires_grad_()).dtype == torch.bfloat16
    torch.testing.assert_close(found, per_sample(x))
    assert not as_on_a_gpu


def test_small_passes_and_compiled_networks_take_the_usual_way(monkeypatch):
    monkeypatch.setattr(convolutions, "_WORTH_ON_CPU", 2**17)
    for rows, quick_one in ((10, False), (11, True)):
        with quickly(plain(), torch.zeros(rows, 3, 64, 64)) as mode:
            assert isinstance(mode, QuickTransposes) is quick_one
    in_place = plain()
    in_place.compile()
    for model in (torch.compile(plain()), in_place, nn.Sequential(in_place)):
        with quickly(model, torch.zeros(11, 3, 64, 64)) as mode:
            assert mode is None


def test_a_layer_is_itself_with_any_weight_and_bias(monkeypatch):
    monkeypatch.setattr(convolutions, "_WORTH_ON_CPU", 0)
    x = torch.randn(2, 3, 9, 9, dtype=torch.float64, generator=G).requires_grad_()
    weight, other = (torch.randn(4, 3, 3, 3, dtype=torch.float64, generator=G) for _ in range(2))
    bias = torch.randn(4, dtype=torch.float64, generator=G)
    run = convolutions.layer(Operation.parse(F.conv2d, (x, weight, bias, 2), {}))
    for w, b in ((weight, bias), (other, None)):
        z, expected = run(x, w, b), F.conv2d(x, w, b, 2)
        assert "_Linear" in type(z.grad_fn).__name__
        torch.testing.assert_close(z, expected)
        g = torch.randn(z.shape, dtype=torch.float64, generator=G)
        found, wanted = (torch.autograd.grad(out, x, g)[0] for out in (z, expected))
        torch.testing.assert_close(found, wanted)


class Again(nn.Module):
    """Runs a part of itself again in the backward pass, in which a convolution keeps nothing for its own."""

    def __init__(self, **options):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.conv = nn.Conv2d(3, 4, 3, 2).double()
        self.options = options

    def part(self, x, y):
        return self.conv(x).mean((2, 3)), y.exp().mean((1, 2, 3))

    def forward(self, x):
        y = torch.sin(3 * x)
        both = checkpoint(self.part, x, y, use_reentrant=False, **self.options) if self.options else None
        made, factor = both or self.part(x, y)
        return made * factor[:, None]


@pytest.mark.parametrize("check", ["default", "none"])
@pytest.mark.parametrize("how", ["autograd", "engine"])
def test_parts_that_run_again_in_the_backward_pass_keep_their_gradient(how, check, as_on_a_gpu, monkeypatch):
    monkeypatch.setattr(convolutions, "_WORTH_ON_CPU", 0)
    x = torch.rand(3, 3, 16, 16, dtype=torch.float64, generator=G)
    targets = torch.ones(3, dtype=torch.int64)
    model = Again(determinism_check=check)
    if how == "engine":
        found = propagate(Rectified(gate=True), model, x, targets)[0]
    else:
        found = gradients.gradient(model, x, targets)
    torch.testing.assert_close(found, gradient(Again(), x, torch.enable_grad()))
    assert not any(as_on_a_gpu)


class Adapting(nn.Module):
    """Takes a step of its own with the gradient of its weights, before it answers."""

    def __init__(self, unused):
        super().__init__()
        self.conv, self.unused = nn.Conv2d(3, 4, 3, 2).double(), unused

    def forward(self, x):
        loss = self.conv(x).square().sum()
        (slope,) = torch.autograd.grad(loss, self.conv.weight, create_graph=True, allow_unused=self.unused)
        step = 0 if slope is None else slope
        return F.conv2d(x, self.conv.weight - 0.01 * step, stride=2).tanh().mean((2, 3))


@pytest.mark.parametrize("unused", [False, True])
def test_a_network_that_takes_derivatives_itself_keeps_its_gradient(unused, as_on_a_gpu, monkeypatch):
    monkeypatch.setattr(convolutions, "_WORTH_ON_CPU", 0)
    model, x = Adapting(unused), torch.rand(3, 3, 9, 9, dtype=torch.float64, generator=G)
    expected = gradient(model, x, torch.enable_grad())
    torch.testing.assert_close(gradients.gradient(model, x, torch.ones(3, dtype=torch.int64)), expected)
    assert any(as_on_a_gpu)
