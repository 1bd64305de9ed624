"""Nothing of a pass stays in memory after it, however the network works in place."""

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import verax
from spellings import SPELLINGS, Spelled, plain, residual
from verax.engine.mode import Engine
from verax.engine.multipliers import deeplift
from verax.errors import UnsupportedOperation

G = torch.Generator().manual_seed(5)
X, Y = torch.rand(3, 3, 16, 16, generator=G), torch.tensor([0, 1, 2])
METHODS = (
    "gradient",
    "guided-backprop",
    "lrp-z",
    "lrp-a",
    "deep-taylor",
    "deeplift-rescale",
    "deeplift-reveal-cancel",
    "fullgrad",
)


class Overwriting(nn.Module):
    """Overwrites what one of its layers has been given or has made."""

    def __init__(self, what):
        super().__init__()
        self.what = what
        with torch.random.fork_rng():
            torch.manual_seed(2)
            self.first, self.second = nn.Conv2d(3, 4, 3, 2), nn.Conv2d(4, 4, 3, padding=1)
            self.norm, self.last = nn.BatchNorm2d(4), nn.Linear(4, 4)

    def forward(self, x):
        y = self.first(x)
        if "norm" in self.what:
            y = self.norm(y)
        y = F.relu_(y) if "relu" in self.what else F.relu(y)
        z = self.second(y)
        if "sum" in self.what:
            z += y
        if "bias" in self.what:
            z += 0.5
        z = F.relu_(z) if "relu" in self.what else F.relu(z)
        return self.last(z.mean((2, 3)))


NETWORKS = {
    **{how: lambda how=how: Spelled(plain(), how).float() for how in SPELLINGS},
    "residual": lambda: residual().float(),
    **{
        what: lambda what=what: Overwriting(what)
        for what in ("relu", "norm relu", "sum", "sum relu", "norm sum relu", "bias", "bias relu")
    },
}


def living():
    return sum(isinstance(thing, torch.Tensor) for thing in gc.get_objects())


@pytest.mark.filterwarnings("ignore")  # of things that torch looks at
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("method", METHODS)
def test_every_tensor_of_a_pass_goes_with_it(method, name):
    model = NETWORKS[name]().eval()

    def explain():
        verax.explain(model, X, Y, method=method)

    explain()
    gc.collect()
    gc.disable()  # a GPU is full long before Python looks for circles
    try:
        before = living()
        explain()
        assert living() == before
    finally:
        gc.enable()


def test_a_pass_that_is_refused_leaves_nothing():
    class Strange(nn.Module):
        def forward(self, x):
            y = F.conv2d(x, torch.ones(4, 3, 3, 3))
            y += 1
            kept.append(weakref.ref(y))
            return torch.fft.fft(y).real.mean((2, 3))

    kept: list[weakref.ref] = []
    for _ in range(2):
        with pytest.raises(UnsupportedOperation):
            deeplift(Strange(), X, torch.zeros_like(X), Y)
    gc.collect()
    assert [reference() for reference in kept] == [None] * len(kept)


def test_an_engine_that_saw_nothing_has_nothing_to_release():
    engine = Engine()
    engine.release()
    assert engine.nodes == []
