"""Convolutions with their ReLU in one pass: the same function, the same gradients, the same network."""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.func import functional_call

from verax.networks import fusion
from verax.networks import vgg as fusion_vgg
from verax.networks.fusion import fused, pairs
from verax.networks.starts import initialise


def drawn(model, seed=0):
    """The network in double precision; biases that are not zero would hide where they are lost."""
    generator = torch.Generator().manual_seed(seed)
    model = model.double()
    for weight in model.parameters():
        weight.data += 0.05 * torch.randn(weight.shape, generator=generator, dtype=torch.float64)
    return model, torch.rand(3, 3, 64, 64, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize(("name", "count"), [("cnn3", 3), ("cnn4", 4), ("vgg16", 13)])
@pytest.mark.parametrize("last", [True, False], ids=["channels last", "channels first"])
def test_networks_are_the_same_function_with_the_same_gradients(name, count, last):
    model, inputs = drawn(initialise(name, 2, 0))
    if last:
        model, inputs = (thing.to(memory_format=torch.channels_last) for thing in (model, inputs))
    weights = dict(model.named_parameters())
    inputs.requires_grad_()
    found = []
    for together in (True, False):
        given = {key: weight.detach().clone().requires_grad_() for key, weight in weights.items()}
        if together:
            assert len(pairs(model)) == count
            with fused(model):
                outputs = functional_call(model, given, inputs)
        else:
            outputs = functional_call(model, given, inputs)
        slopes = torch.autograd.grad(outputs.square().sum(), [inputs, *given.values()])
        found.append([outputs.detach(), *slopes])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12 * float(other.abs().max()))
    assert not any("forward" in module.__dict__ for module in model.modules())


def _everywhere(model, monkeypatch):
    return [torch.nn.modules.module.register_module_forward_hook(lambda module, args, output: output - 1)]


def _patched_convolution(model, monkeypatch):
    before = nn.Conv2d._conv_forward
    monkeypatch.setattr(nn.Conv2d, "_conv_forward", lambda self, *given: 2 * before(self, *given))
    return []


def _patched_layer(model, monkeypatch):
    before = model[0]._conv_forward
    model[0]._conv_forward = lambda *given: 2 * before(*given)
    return []


def _patched_curve(model, monkeypatch):
    monkeypatch.setattr(nn.ReLU, "forward", lambda self, x: x.relu() + 1)
    return []


@pytest.mark.parametrize("change", [_everywhere, _patched_convolution, _patched_layer, _patched_curve])
def test_layers_that_somebody_changed_are_left_alone(change, monkeypatch):
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU())
    x = torch.rand(2, 2, 7, 7)
    assert len(pairs(model)) == 1
    handles = change(model, monkeypatch)
    try:
        wanted = model(x)
        with fused(model):
            torch.testing.assert_close(model(x), wanted)
    finally:
        for handle in handles:
            handle.remove()


def test_numbers_for_places_and_single_pictures_are_taken():
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU())
    x = torch.rand(2, 7, 7, requires_grad=True)
    (wanted,) = torch.autograd.grad(model(x).sum(), x)
    with fused(model):
        (slope,) = torch.autograd.grad(model(x).sum(), x)
    torch.testing.assert_close(slope, wanted)
    model[0].stride = 2
    with fused(model):
        (slope,) = torch.autograd.grad(model(x[None]).sum(), x)
    (wanted,) = torch.autograd.grad(model(x[None]).sum(), x)
    torch.testing.assert_close(slope, wanted)


def test_only_what_is_asked_for_gets_a_gradient():
    layer, curve = nn.Conv2d(2, 3, 3, stride=2, padding=1), nn.ReLU()
    model = nn.Sequential(layer, curve)
    x = torch.rand(2, 2, 7, 7, requires_grad=True)
    fixed = {key: weight.detach() for key, weight in model.named_parameters()}
    with fused(model):
        (slope,) = torch.autograd.grad(functional_call(model, fixed, x).sum(), x)
    (wanted,) = torch.autograd.grad(model(x).sum(), x)
    torch.testing.assert_close(slope, wanted)
    with fused(model):
        made = model(x.detach())
    assert made.grad_fn is not None
    made.sum().backward()
    assert layer.weight.grad is not None
    assert layer.bias.grad is not None


def shared_curve():
    curve = nn.ReLU()
    return nn.Sequential(nn.Conv2d(3, 3, 1), curve, nn.Conv2d(3, 3, 1), curve)


def shared_layer():
    layer = nn.Conv2d(3, 3, 1)
    return nn.Sequential(layer, nn.ReLU(), layer)


def watched():
    model = nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU())
    model[0].register_forward_hook(lambda module, given, made: None)
    return model


class Loose(nn.Module):
    """Runs its parts in an order of its own."""

    def __init__(self):
        super().__init__()
        self.parts = nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU())

    def forward(self, x):
        return self.parts[0](x).flatten(1)


class Otherwise(fusion_vgg.VGG16):
    """A network in which a convolution is used without its ReLU too."""

    def __init__(self):
        super().__init__(2)

    def forward(self, x):
        found = self.features[0](x)
        return (self.features[1](found) + found).flatten(1)


STRANGE = {
    "a subclass": Otherwise,
    "a ReLU in two places": shared_curve,
    "a layer in two places": shared_layer,
    "somebody watches": watched,
    "an order of its own": Loose,
    "no bias": lambda: nn.Sequential(nn.Conv2d(3, 3, 1, bias=False), nn.ReLU()),
    "groups": lambda: nn.Sequential(nn.Conv2d(3, 3, 1, groups=3), nn.ReLU()),
    "other padding": lambda: nn.Sequential(nn.Conv2d(3, 3, 3, padding=1, padding_mode="reflect"), nn.ReLU()),
    "padding by name": lambda: nn.Sequential(nn.Conv2d(3, 3, 3, padding="same"), nn.ReLU()),
    "another curve": lambda: nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU6()),
    "something between": lambda: nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.ReLU()),
}


@pytest.mark.parametrize("make", STRANGE.values(), ids=STRANGE)
def test_what_is_not_sure_is_left_alone(make):
    model = make().eval()
    inputs = torch.randn(2, 3, 5, 5)
    wanted = model(inputs)
    assert pairs(model) == []
    with fused(model):
        assert torch.equal(model(inputs), wanted)


def test_an_interruption_leaves_every_relu(monkeypatch):
    model = nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU(), nn.Conv2d(3, 3, 1), nn.ReLU())
    made = []

    def interrupted(function, layer):
        made.append(layer)
        if len(made) == 2:
            raise KeyboardInterrupt
        return lambda x: x

    monkeypatch.setattr(fusion, "partial", interrupted)
    with pytest.raises(KeyboardInterrupt), fused(model):
        pass
    assert not any("forward" in module.__dict__ for module in model.modules())


def test_an_error_puts_everything_back():
    model = nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU())
    plain = deepcopy(model)
    with pytest.raises(RuntimeError), fused(model):
        model(torch.rand(2, 4, 5, 5))
    inputs = torch.randn(2, 3, 5, 5)
    assert torch.equal(model(inputs), plain(inputs))


def test_weights_that_autocast_would_round_are_rounded():
    model, inputs = nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU()), torch.randn(2, 3, 5, 5)
    with torch.autocast("cpu", torch.bfloat16), fused(model):
        assert model(inputs).dtype == torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16):
        given = {key: weight.detach().bfloat16() for key, weight in model.named_parameters()}
        wanted = functional_call(model, given, inputs)
        with fused(model):
            assert torch.equal(functional_call(model, given, inputs), wanted)


def test_shapes_without_a_kernel_are_computed_in_parts(monkeypatch):
    """As on a GPU whose library refuses."""

    class OnGPU(torch.Tensor):
        is_cuda = True

    asked = []

    def refuse(*args):
        asked.append(args)
        raise RuntimeError("no engine")

    monkeypatch.setattr(torch, "cudnn_convolution_relu", refuse, raising=False)
    monkeypatch.setattr(fusion, "_REFUSED", set())
    x, weight, bias = torch.randn(2, 3, 5, 5).as_subclass(OnGPU), torch.randn(4, 3, 1, 1), torch.randn(4)
    for _ in range(2):
        made = fusion._fused(x, weight, bias, ((1, 1), (0, 0), (1, 1)))
    assert len(asked) == 1
    wanted = torch.conv2d(x.as_subclass(torch.Tensor), weight, bias).relu()
    assert torch.equal(made.as_subclass(torch.Tensor), wanted)
