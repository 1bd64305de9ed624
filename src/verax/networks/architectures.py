"""The two plain networks of the SMERF paper for 64 x 64 colour pictures.

Kim, Plumb and Talwalkar (ICML 2022), appendix A.2: 3 x 3 convolutions with stride 2 and no padding, ReLU
everywhere except at the output, which is linear; weights start Glorot-uniform, biases at zero (Keras).
"""

from __future__ import annotations

from torch import nn


def glorot(model: nn.Module) -> nn.Module:
    """Start as Keras does: weights Glorot-uniform, biases zero."""
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return model


def _convolutional(
    channels: tuple[int, ...], features: int, dense: tuple[int, ...], classes: int
) -> nn.Module:
    layers: list[nn.Module] = []
    for wide_in, wide_out in zip((3, *channels), channels, strict=False):
        layers += [nn.Conv2d(wide_in, wide_out, kernel_size=3, stride=2), nn.ReLU()]
    layers.append(nn.Flatten())
    widths = (features, *dense)
    for wide_in, wide_out in zip(widths, dense, strict=False):
        layers += [nn.Linear(wide_in, wide_out), nn.ReLU()]
    layers.append(nn.Linear(widths[-1], classes))
    return glorot(nn.Sequential(*layers))


def cnn3(classes: int = 2) -> nn.Module:
    """Convolutions 32-64-64 (last map 7 x 7), dense 200: the paper's, for simple reasonings."""
    return _convolutional((32, 64, 64), 64 * 7 * 7, (200,), classes)


def cnn4(classes: int = 2) -> nn.Module:
    """Convolutions 64-128-256-64 (last map 3 x 3), dense 200-200: the paper's, for complex reasonings."""
    return _convolutional((64, 128, 256, 64), 64 * 3 * 3, (200, 200), classes)
