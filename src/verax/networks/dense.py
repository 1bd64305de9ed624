"""The dense regression network of the climate benchmark.

Mamalakis, Ebert-Uphoff and Barnes (Environmental Data Science 2022): 512-256-128-64-32-16 with ReLU and one
linear output without a bias, 410,112 weights for 458 cells. It starts as in their Keras notebook: the first
layer from a narrow normal distribution with biases of zero, the others He-normal (truncated at two standard
deviations), their biases too.
"""

from __future__ import annotations

import math

from torch import Tensor, nn

WIDTHS = (512, 256, 128, 64, 32, 16)
CELLS = 458  # of the published grid
_TRUNCATED = 0.87962566103423978  # standard deviation of a standard normal cut at 2


def _he(tensor: Tensor, fan: int) -> None:
    """He-normal as Keras draws it: cut at two standard deviations, and widened so that none is lost."""
    spread = math.sqrt(2 / fan) / _TRUNCATED
    nn.init.trunc_normal_(tensor, 0.0, spread, -2 * spread, 2 * spread)


def mlp(classes: int = 1, features: int = CELLS) -> nn.Module:
    """Dense 512-256-128-64-32-16 for vectors, linear output without a bias: the published climate network."""
    layers: list[nn.Module] = []
    for wide_in, wide_out in zip((features, *WIDTHS), WIDTHS, strict=False):
        layers += [nn.Linear(wide_in, wide_out), nn.ReLU()]
    layers.append(nn.Linear(WIDTHS[-1], classes, bias=False))
    dense = [layer for layer in layers if isinstance(layer, nn.Linear)]
    nn.init.normal_(dense[0].weight, 0.0, 1 / features)
    nn.init.zeros_(dense[0].bias)
    for layer in dense[1:]:
        _he(layer.weight, layer.in_features)
        if layer.bias is not None:
            _he(layer.bias, layer.out_features)  # Keras takes the length of a bias for its fan
    return nn.Sequential(*layers)


def shallow(classes: int = 1, features: int = CELLS) -> nn.Module:
    """One hidden layer of 512: what a list cut at its first comma made of the published climate network."""
    return nn.Sequential(nn.Linear(features, WIDTHS[0]), nn.ReLU(), nn.Linear(WIDTHS[0], classes))
