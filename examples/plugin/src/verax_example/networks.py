"""A network: one convolution and a maximum."""

from torch import nn

import verax


@verax.network("example-cnn")
def example_cnn(classes=2):
    """One convolution, the maximum over the picture, a linear layer: 242 weights."""
    see = [nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten()]
    return nn.Sequential(*see, nn.Linear(8, classes))
