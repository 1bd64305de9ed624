"""The published network: a Keras file, read with h5py alone.

Only arrays of the expected shapes and types are read, from the file itself: no pickles, no code, no links to
other files. A file that is anything else is refused before its arrays fill memory.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from verax.errors import MissingExtra, MissingFile, WeightsError
from verax.networks.dense import CELLS, WIDTHS, mlp

FILE = "climate/mamalakis_published_network.h5"
"""Below VERAX_DATA: the network of Mamalakis et al. (2022), MIT licence."""

STEPS = "optimizer_weights/SGD/iterations:0"
_SIZES = (CELLS, *WIDTHS, 1)


@dataclass(frozen=True, eq=False)
class Published:
    """The published network.

    Attributes:
        model: with its weights, in eval mode.
        steps: how many steps of gradient descent its optimiser had counted; None where the file has none.
    """

    model: nn.Module
    steps: int | None


def find() -> Path | None:
    """Where the file is, or None."""
    data = os.environ.get("VERAX_DATA")
    path = Path(data) / FILE if data else None
    return path if path is not None and path.is_file() else None


def _h5py() -> Any:
    try:
        return importlib.import_module("h5py")
    except ImportError as error:
        raise MissingExtra(
            "The published network needs h5py; install it with: pip install 'verax[climate]'"
        ) from error


def _array(file: Any, name: str, shape: tuple[int, ...], kinds: str, path: Path) -> np.ndarray[Any, Any]:
    """One array of the file, refused where it is not what it should be."""
    h5py = _h5py()
    wrong = WeightsError(f"{path.name!r} is not the published network: {name!r} is not what it should be.")
    here = file
    for part in name.split("/"):
        link = here.get(part, getlink=True) if isinstance(here, h5py.Group) else None
        if not isinstance(link, h5py.HardLink):  # links may lead out of the file
            raise wrong
        here = here[part]
    if not isinstance(here, h5py.Dataset) or here.shape != shape or here.dtype.kind not in kinds:
        raise wrong
    if here.is_virtual or here.external or here.dtype.itemsize > 8:
        raise wrong
    found = np.asarray(here[()])
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        raise wrong
    return found


def load(path: str | Path) -> Published:
    """The network in `path`, rebuilt as verax's own ``mlp``."""
    path = Path(path)
    if not path.is_file():
        raise MissingFile(f"There is no file {str(path)!r}.")
    h5py = _h5py()
    model = mlp()
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    try:
        with h5py.File(path, "r") as file, torch.no_grad():
            for number, (layer, below, above) in enumerate(zip(layers, _SIZES, _SIZES[1:], strict=False), 1):
                place = f"model_weights/dense_{number}/dense_{number}"
                kernel = _array(file, f"{place}/kernel:0", (below, above), "f", path)
                layer.weight.copy_(torch.from_numpy(kernel.astype(np.float32).T.copy()))
                if layer.bias is not None:
                    bias = _array(file, f"{place}/bias:0", (above,), "f", path)
                    layer.bias.copy_(torch.from_numpy(bias.astype(np.float32)))
            steps = int(_array(file, STEPS, (), "iu", path)) if STEPS in file else None
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        if isinstance(error, WeightsError):
            raise
        raise WeightsError(f"{path.name!r} is damaged or not an HDF5 file.") from error
    return Published(model.eval(), steps)
