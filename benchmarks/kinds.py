"""Networks that compute the same layers in nine spellings, and what everybody is asked about them."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from correctness import drawn

X = drawn(4, 3, 12, 12)
LOW, REFERENCES = drawn(1, 3, 12, 12, seed=9), drawn(3, 3, 12, 12, seed=5)
"""Samples, the baseline of those who take one, and the references of those who take several."""
SIDE = 6
"""Segments are quarters of a picture: few enough that every coalition of them can be listed."""

Relu = Callable[[Tensor], Tensor]


class Net(nn.Module):
    """Two convolutions and two dense layers; `kind` says how they are spelled and what is between them."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.a = nn.Conv2d(3, 6, 3, padding=1)
        if kind == "batch norm":  # zennit merges such a layer by its place, called or not
            self.norm = nn.BatchNorm2d(6)
        self.b = nn.Conv2d(6, 6, 3, padding=1)
        self.c, self.d = nn.Linear(6 * 6 * 6, 16), nn.Linear(16, 5)
        self.relu, self.over = nn.ReLU(), nn.ReLU(inplace=True)
        self.one, self.two, self.three = nn.ReLU(), nn.ReLU(), nn.ReLU()
        self.average, self.most = nn.AvgPool2d(2), nn.MaxPool2d(2)
        if kind == "gated":
            self.gate = nn.Conv2d(6, 6, 1)
        self.special: Relu | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        own = self.special
        if own is not None:
            first = second = third = own
        elif self.kind == "functional":
            first = second = third = F.relu
        elif self.kind == "in-place":
            first = second = third = torch.relu_
        elif self.kind == "reused":
            first = second = third = self.relu
        else:
            first, second, third = self.one, self.two, self.three
        pool = self.most if self.kind == "pooled" else self.average
        x = self.a(x)
        if self.kind == "batch norm":
            x = self.norm(x)
        x = pool(first(x))
        y = self.b(x)
        if self.kind == "residual":
            y = y + x
        if self.kind == "gated":
            y = y * torch.tanh(self.gate(x))
        return self.d(third(self.c(second(y).flatten(1))))


class Attention(nn.Module):
    """Patches, one head of attention with its normalisation, and a dense layer with ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.norm = nn.Conv2d(3, 8, 4, 4), nn.LayerNorm(8)
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.one, self.c, self.d = nn.ReLU(), nn.Linear(8, 16), nn.Linear(16, 5)
        self.special: Relu | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        t = self.patch(x).flatten(2).transpose(1, 2)
        n = self.norm(t)
        weights = torch.softmax(self.q(n) @ self.k(n).transpose(1, 2) / 8**0.5, -1)
        t = t + weights @ self.v(n)
        return self.d((self.special or self.one)(self.c(t.mean(1))))


LINES = ("module", "functional", "in-place", "reused", "residual", "pooled", "batch norm")
"""Networks of lines and kinks."""
KINDS = (*LINES, "attention", "gated")


def network(kind: str, biases: bool = True) -> nn.Module:
    """A network with weights, biases and statistics that are not trivial; or without anything it adds."""
    with torch.random.fork_rng():
        torch.manual_seed(4)
        model = (Attention() if kind == "attention" else Net(kind)).double().eval()
        for layer in model.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.running_mean.uniform_(-0.3, 0.3)
                layer.running_var.uniform_(0.5, 2)
                layer.weight.data.uniform_(-1.5, 1.5)
        if not biases:
            for name, values in (*model.named_parameters(), *model.named_buffers()):
                if name.endswith(("bias", "running_mean")):
                    values.data.zero_()
    return model


def layer_name(model: nn.Module, which: str = "last") -> str:
    """What the "first" or "last" convolution or the "pool" behind the first is called."""
    if not isinstance(model, Net):
        return "patch"
    return {"first": "a", "last": "b", "pool": "most" if model.kind == "pooled" else "average"}[which]


def segments() -> Tensor:
    """Numbers of the four quarters of a picture ``(1, 1, 12, 12)``."""
    half = torch.arange(X.shape[-1]) // SIDE
    return (2 * half[:, None] + half)[None, None]
