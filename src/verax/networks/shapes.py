"""The network of the study of squares and circles, for 65 x 65 pictures of one channel.

Mamalakis, Barnes and Ebert-Uphoff (2022), arXiv 2202.03407; weights start Glorot-uniform, biases at zero.
"""

from __future__ import annotations

from torch import nn

from verax.networks.architectures import glorot


def shapes_cnn(classes: int = 2) -> nn.Module:
    """Convolutions 32-32-64 with max-pooling (last map 4 x 4), dense 128-64: 184,546 weights."""
    return glorot(
        nn.Sequential(
            nn.Conv2d(1, 32, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 32, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * 4 * 4, 128),
            nn.ReLU(),
            nn.Linear(128, 64),
            nn.ReLU(),
            nn.Linear(64, classes),
        )
    )
