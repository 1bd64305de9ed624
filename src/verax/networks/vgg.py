"""VGG16 for 64 x 64 pictures, as in the SMERF study.

Simonyan and Zisserman (ICLR 2015), in the variant of Kim, Plumb and Talwalkar (ICML 2022): the convolutions
of ImageNet, frozen, then the mean over places and dense layers 1024-512-256. Pictures go in as they are,
in [0, 1]: the paper's code leaves out the preprocessing of ImageNet, too.

The ImageNet weights are never downloaded. Where torchvision has left them in PyTorch's cache, or where they
lie in ``VERAX_DATA/weights``, training starts from them; otherwise all layers are trained from scratch.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

from verax.errors import WeightsError

_BLOCKS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
_FILE = "vgg16-397923af.pth"  # torchvision's; the digits are the beginning of its SHA-256


def imagenet_file() -> Path | None:
    """Where torchvision's ImageNet weights of VGG16 are on this machine, if they are."""
    folders = [Path(torch.hub.get_dir()) / "checkpoints"]
    if data := os.environ.get("VERAX_DATA"):
        folders.append(Path(data) / "weights")
    return next((path for folder in folders if (path := folder / _FILE).is_file()), None)


def _read(path: Path) -> dict[str, Tensor]:
    """The weights of the convolutions; the file is known by its SHA-256 and read without running code."""
    wanted = path.stem.partition("-")[2]
    if not hashlib.sha256(path.read_bytes()).hexdigest().startswith(wanted):
        raise WeightsError(f"The ImageNet weights {str(path)!r} are damaged: their SHA-256 is another.")
    try:
        tensors: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, pickle.UnpicklingError) as error:
        raise WeightsError(f"The ImageNet weights {str(path)!r} cannot be read.") from error
    return {name.removeprefix("features."): t for name, t in tensors.items() if name.startswith("features.")}


class VGG16(nn.Module):
    """The thirteen convolutions, the mean over places, and four dense layers.

    Attributes:
        chained: its parts run one after the other.
    """

    chained = True

    def __init__(self, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        wide = 3
        for block in _BLOCKS:
            for channels in block:
                layers += [nn.Conv2d(wide, channels, 3, padding=1), nn.ReLU()]
                wide = channels
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        dense: list[nn.Module] = []
        for wide_in, wide_out in pairwise((512, 1024, 512, 256)):
            dense += [nn.Linear(wide_in, wide_out), nn.ReLU()]
        self.head = nn.Sequential(nn.Flatten(), *dense, nn.Linear(256, classes))
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                # sixteen layers without normalisation need the gain of ReLU, or the signal fades away
                nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
                assert layer.bias is not None
                nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of pictures."""
        return self.head(self.pool(self.features(x)))  # type: ignore[no-any-return]

    def pretrain(self) -> str:
        """Take the convolutions of ImageNet and freeze them, where they are; says what was done."""
        path = imagenet_file()
        if path is None:
            return "trained from scratch"
        self.features.load_state_dict(_read(path))
        self.features.requires_grad_(False)
        return f"convolutions of ImageNet ({path.name}), frozen"


def vgg16(classes: int = 2) -> nn.Module:
    """VGG16 (last map 4 x 4), mean over places, dense 1024-512-256; ImageNet's where they are, frozen."""
    return VGG16(classes)
