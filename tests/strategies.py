"""Random small networks for hypothesis, each in several spellings of the same function."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import nn

from spellings import ATTENTION, Transformer

CLASSES = 4
WAYS = ("module", "functional", "in-place", "reused", "operators")

RECTIFIERS = ("relu", "leaky")
CURVES = ("softplus", "tanh", "elu", "silu")
MODULES = {
    "relu": nn.ReLU,
    "leaky": lambda inplace=False: nn.LeakyReLU(0.1, inplace),
    "softplus": lambda inplace=False: nn.Softplus(),
    "tanh": lambda inplace=False: nn.Tanh(),
    "elu": lambda inplace=False: nn.ELU(inplace=inplace),
    "silu": lambda inplace=False: nn.SiLU(inplace),
}
FUNCTIONS = {
    "relu": torch.relu,
    "leaky": lambda x: F.leaky_relu(x, 0.1),
    "softplus": F.softplus,
    "tanh": torch.tanh,
    "elu": F.elu,
    "silu": F.silu,
}
IN_PLACE = {
    "relu": torch.relu_,
    "leaky": lambda x: F.leaky_relu_(x, 0.1),
    "softplus": F.softplus,
    "tanh": lambda x: x.tanh_(),
    "elu": F.elu_,
    "silu": lambda x: F.silu(x, inplace=True),
}


@dataclass(frozen=True)
class Plan:
    """What a random network is made of; `picture` inputs are 2 x 12 x 12, others vectors of 6."""

    picture: bool
    widths: tuple[int, ...]
    activation: str
    bias: bool
    residual: bool
    pool: str
    seed: int
    way: str = "functional"

    @property
    def shape(self):
        return (2, 12, 12) if self.picture else (6,)

    def build(self, way="module"):
        return Network(self, way)


class Add(nn.Module):
    """A residual connection as a module."""

    def forward(self, a, b):
        return a + b


class Network(nn.Module):
    """Convolutions or dense layers, with a head; spelled as `way` says, in float64."""

    def __init__(self, plan, way="module"):
        super().__init__()
        self.plan, self.way = plan, way
        before = (plan.shape[0], *plan.widths)
        with torch.random.fork_rng():
            torch.manual_seed(plan.seed)
            self.layers = nn.ModuleList(
                nn.Conv2d(a, b, 3, padding=1, bias=plan.bias)
                if plan.picture
                else nn.Linear(a, b, bias=plan.bias)
                for a, b in zip(before, plan.widths, strict=False)
            )
            self.head = nn.Linear(plan.widths[-1] * (9 if plan.picture else 1), CLASSES, bias=plan.bias)
            for layer in (*self.layers, self.head):
                if plan.bias:
                    layer.bias.data.uniform_(-0.3, 0.3)
        one = MODULES[plan.activation]()
        own = [MODULES[plan.activation]() for _ in plan.widths]
        self.activations = nn.ModuleList([one] * len(own) if way == "reused" else own)
        self.add, self.flat = Add(), nn.Flatten()
        self.pool = nn.MaxPool2d(2) if plan.pool == "max" else nn.AvgPool2d(2)
        self.double().eval()

    def linear(self, layer, x):
        if self.way == "functional":
            if self.plan.picture and layer is not self.head:
                return F.conv2d(x, layer.weight, layer.bias, padding=1)
            return F.linear(x, layer.weight, layer.bias)
        if self.way == "operators" and isinstance(layer, nn.Linear):
            x = x @ layer.weight.T
            return x if layer.bias is None else x + layer.bias
        return layer(x)

    def activate(self, number, x):
        if self.way in ("functional", "operators"):
            return FUNCTIONS[self.plan.activation](x)
        if self.way == "in-place":
            return IN_PLACE[self.plan.activation](x)
        return self.activations[number](x)

    def join(self, y, x):
        if self.way == "in-place":  # not onto y: some activations keep it for their backward pass
            x = x.clone()
            x += y
            return x
        return {"module": self.add, "operators": torch.Tensor.add}.get(self.way, torch.add)(y, x)

    def shrink(self, x):
        if self.way in ("module", "reused"):
            return self.pool(x)
        return (F.max_pool2d if self.plan.pool == "max" else F.avg_pool2d)(x, 2)

    def forward(self, x):
        for number, layer in enumerate(self.layers):
            y = self.activate(number, self.linear(layer, x))
            x = self.join(y, x) if self.plan.residual and y.shape == x.shape else y
            if self.plan.picture and number == 0:
                x = self.shrink(x)
        if self.plan.picture:
            x = self.shrink(x)
            x = self.flat(x) if self.way == "module" else x.reshape(len(x), -1)
        return self.linear(self.head, x)


@dataclass(frozen=True)
class Tokens:
    """A random vision transformer on 3 x 16 x 16."""

    token: bool
    bias: bool
    depth: int
    seed: int
    way: str = "written"
    shape = (3, 16, 16)

    def build(self, way="module"):
        model = Transformer(way, self.bias, self.token, wide=8, depth=self.depth)
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            for weight in model.parameters():
                if weight.dim() > 1 and weight.abs().sum() > 0:
                    weight.data.add_(0.2 * torch.randn_like(weight))
        return model


@st.composite
def plans(draw, picture=None, bias=None, activations=(*RECTIFIERS, *CURVES)):
    """A network of one to three layers; two layers of one width may have a residual connection."""
    wide = draw(st.integers(3, 6))
    same = draw(st.booleans())
    widths = tuple(wide if same else draw(st.integers(3, 6)) for _ in range(draw(st.integers(1, 3))))
    return Plan(
        picture=draw(st.booleans()) if picture is None else picture,
        widths=widths,
        activation=draw(st.sampled_from(activations)),
        bias=draw(st.booleans()) if bias is None else bias,
        residual=draw(st.booleans()),
        pool=draw(st.sampled_from(["max", "avg"])),
        seed=draw(st.integers(0, 10**6)),
        way=draw(st.sampled_from(WAYS[1:])),
    )


@st.composite
def transformers(draw):
    """A transformer of one or two layers."""
    return Tokens(
        token=draw(st.booleans()),
        bias=draw(st.booleans()),
        depth=draw(st.integers(1, 2)),
        seed=draw(st.integers(0, 10**6)),
        way=draw(st.sampled_from(ATTENTION[1:])),
    )


def samples(plan, count=3, salt=0):
    """Inputs and targets of a plan: numbers that float32 holds exactly, away from zero."""
    generator = torch.Generator().manual_seed(plan.seed + 7919 * salt + 1)
    x = torch.rand(count, *plan.shape, generator=generator) * 0.9 + 0.1
    sign = torch.rand(count, *plan.shape, generator=generator) < 0.7
    return torch.where(sign, x, -x).double(), torch.arange(count) % CLASSES
