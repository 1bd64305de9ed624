"""Networks and inputs that methods are timed on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

import verax
from verax.networks import dense, vit
from verax.networks.zoo import let_torchvision_import


@dataclass(frozen=True)
class Workload:
    """A network with inputs, and how much work methods get on it.

    Attributes:
        name: of the network and the size of its inputs.
        model: in eval mode, weights without gradients.
        x: ``(N, ...)``.
        y: ``(N,)``, the explained outputs.
        layer: the module whose maps CAMs look at; empty where there is none.
        draws: steps, draws and references of the methods that have them.
        size: side of a segment (pictures) or its length (vectors).
        segments: how many segments there are.
        coalitions: masks of LIME and Kernel SHAP.
        milliseconds: what one sample's forward and backward takes on one core, roughly; chooses the rows.
    """

    name: str
    model: nn.Module
    x: Tensor
    y: Tensor
    layer: str
    draws: int
    size: int
    segments: int
    coalitions: int
    milliseconds: float

    def first(self, batch: int) -> Workload:
        """The same with so many samples, repeated if need be."""
        rows = torch.arange(batch) % len(self.x)
        rows = rows.to(self.x.device)
        return Workload(
            **{**vars(self), "x": self.x.index_select(0, rows), "y": self.y.index_select(0, rows)}
        )


def _network(make: Callable[[], nn.Module], device: str) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)  # any weights will do: only the time counts
        model = make().eval().to(device)
    for weight in model.parameters():
        weight.requires_grad_(False)
    return model


def _noise(count: int, *shape: int) -> Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(0))


def _torchvision() -> nn.Module:
    let_torchvision_import()
    from torchvision import models

    return models.resnet18(weights=None, num_classes=10)


def _timm() -> nn.Module:
    let_torchvision_import()
    import timm

    return timm.create_model("vit_small_patch16_224", pretrained=False, num_classes=10)


def sizes(name: str, device: str) -> tuple[int, int, int, int]:
    """Draws, segments, their size and masks of a workload, without its network."""
    gpu = device == "cuda"
    if name == "cnn4":
        return (32 if gpu else 8), 64, 8, 100
    if name == "sst-mlp":
        return 32, 8, 64, (200 if gpu else 100)
    size = int(name.rpartition("-")[2]) // (8 if gpu else 4)
    return (32 if gpu else 8), (8 if gpu else 4) ** 2, size, (100 if gpu else 32)


@cache
def workload(name: str, device: str = "cpu") -> Workload:
    """A network by its name with up to 256 inputs; a GPU gets more draws and masks."""
    sized = dict(zip(("draws", "segments", "size", "coalitions"), sizes(name, device), strict=True))
    if name == "cnn4":
        task = verax.task("textbox/complex-cr1")
        cases = task.cases(n=26)
        model = _network(lambda: task.network("cnn4"), device)
        return Workload(
            name,
            model,
            cases.inputs[-256:].to(device),
            cases.targets[-256:].to(device),
            layer="7",
            milliseconds=2.5,
            **sized,
        )
    if name == "sst-mlp":
        x = torch.randn(256, 458, generator=torch.Generator().manual_seed(0)).to(device)
        y = torch.zeros(256, dtype=torch.int64, device=device)
        return Workload(name, _network(dense.mlp, device), x, y, layer="", milliseconds=0.03, **sized)
    pictures: dict[str, tuple[Callable[[], nn.Module], int, str, float]] = {
        "resnet18-64": (_torchvision, 64, "layer4", 8.0),
        "resnet18-224": (_torchvision, 224, "layer4", 105.0),
        "vit-64": (lambda: vit.vit(10), 64, "", 7.0),
        "vit-s-224": (_timm, 224, "", 400.0),
    }
    make, side, layer, milliseconds = pictures[name]
    count = 256 if device == "cuda" or side == 64 else 4
    x, y = _noise(count, 3, side, side).to(device), (torch.arange(count) % 10).to(device)
    return Workload(name, _network(make, device), x, y, layer=layer, milliseconds=milliseconds, **sized)


CPU = {
    "sst-mlp": (1, 32, 256),
    "cnn4": (1, 32, 256),
    "resnet18-64": (1, 32),
    "vit-64": (1, 32),
    "resnet18-224": (1, 4),
}
CUDA = {
    "cnn4": (256, 32, 1),
    "sst-mlp": (256, 32, 1),
    "resnet18-224": (256, 32, 1),
    "resnet18-64": (256, 32, 1),
    "vit-s-224": (256, 32, 1),
}
"""Network -> batches. Batch 256 of 224 pixels is for GPUs."""
