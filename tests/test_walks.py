"""Modules and weights of a network as PyTorch gives them, and networks that nobody else's code runs in."""

import numpy as np
import pytest
import torch
from torch import nn

import verax
from verax.networks.inference import device_of, dtype_of, homely, modules_of, weights_of
from verax.networks.starts import initialise


class Own(nn.Module):
    """Says for itself what it is made of."""

    def __init__(self):
        super().__init__()
        self.shown, self.hidden = nn.Linear(2, 2), nn.Linear(2, 2)

    def named_modules(self, memo=None, prefix="", remove_duplicate=True):
        yield prefix, self
        yield from self.shown.named_modules(memo, f"{prefix}.shown", remove_duplicate)

    def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
        yield from self.shown.named_parameters(prefix, recurse, remove_duplicate)

    def forward(self, x):
        return self.hidden(self.shown(x))


def shared():
    layer = nn.Linear(3, 3)
    tied = nn.Linear(3, 3)
    tied.weight = layer.weight
    model = nn.Sequential(layer, nn.ModuleDict({"a": layer, "b": nn.ReLU()}), tied, nn.Sequential())
    model.register_module("missing", None)
    return model


MODELS = {
    "plain": lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2)),
    "none": nn.Identity,
    "shared": shared,
    "own": Own,
    "own inside": lambda: nn.Sequential(nn.Linear(2, 2), Own(), nn.ReLU()),
    "scripted": lambda: torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.ReLU())),
    "scripted inside": lambda: nn.Sequential(torch.jit.script(nn.Linear(2, 2)), nn.ReLU()),
    "parametrised": lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))),
    "resnet18": lambda: initialise("resnet18", 2, 0),
    "vit": lambda: initialise("vit", 2, 0),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", MODELS)
def test_a_walk_gives_what_pytorch_gives(name):
    model = MODELS[name]()
    assert list(map(id, modules_of(model))) == list(map(id, model.modules()))
    found = list(weights_of(model))
    if "scripted" not in name:  # whose weights are other objects every time
        assert list(map(id, found)) == list(map(id, model.parameters()))
    assert [weight.shape for weight in found] == [weight.shape for weight in model.parameters()]


def test_devices_and_types_are_those_of_the_first_weight_or_buffer():
    class Buffered(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.zeros(2, device="meta"))

    assert device_of(Buffered()) == torch.device("meta")
    assert device_of(nn.Identity()) == torch.device("cpu")
    assert dtype_of(nn.Sequential(nn.Linear(2, 2).half(), nn.Linear(2, 2)), torch.float64) == torch.float16


class Drawing(nn.Module):
    """Draws from NumPy's global stream whenever it runs."""

    def forward(self, x):
        return x * float(np.random.rand())  # noqa: NPY002


def hooked():
    model = nn.Sequential(nn.Linear(3, 2))
    model[0].register_forward_hook(lambda module, given, made: made * float(np.random.rand()))  # noqa: NPY002
    return model


def replaced():
    model = nn.Sequential(nn.Linear(3, 2))
    inner = model[0].forward
    model[0].forward = lambda x: inner(x) * float(np.random.rand())  # noqa: NPY002
    return model


@pytest.mark.parametrize("make", [lambda: nn.Sequential(nn.Linear(3, 2), Drawing()), hooked, replaced])
def test_a_network_that_draws_from_numpy_draws_the_same_and_leaves_no_trace(make):
    model, x = make(), torch.rand(2, 3)
    assert not homely(model)
    targets = torch.zeros(2, dtype=torch.long)
    maps = verax.explain(model, x, targets, method="gradient")  # also asks how many outputs there are
    _, before, place, *_ = np.random.get_state()  # noqa: NPY002
    assert torch.equal(maps, verax.explain(model, x, targets, method="gradient"))
    _, after, still, *_ = np.random.get_state()  # noqa: NPY002
    assert (before == after).all()
    assert place == still


def test_layers_of_pytorch_alone_are_homely():
    assert homely(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten()))
    assert not homely(initialise("vit", 2, 0))  # has classes of its own
