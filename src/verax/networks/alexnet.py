"""AlexNet for 64 x 64 pictures, as in the SMERF study.

Krizhevsky, Sutskever and Hinton (NeurIPS 2012), in the variant of Kim, Plumb and Talwalkar (ICML 2022):
batch normalisation after every layer, the logits included, and dropout 0.4 between the dense layers.
"""

from __future__ import annotations

from torch import nn

from verax.networks.architectures import glorot


def _convolution(wide_in: int, wide_out: int, kernel: int) -> nn.Module:
    layer = nn.Conv2d(wide_in, wide_out, kernel, padding=kernel // 2)
    return nn.Sequential(layer, nn.BatchNorm2d(wide_out), nn.ReLU())


def _dense(wide_in: int, wide_out: int) -> nn.Module:
    return nn.Sequential(nn.Linear(wide_in, wide_out), nn.BatchNorm1d(wide_out), nn.ReLU(), nn.Dropout(0.4))


def alexnet(classes: int = 2) -> nn.Module:
    """AlexNet with batch normalisation (last map 4 x 4), dense 4096-4096-1000: the paper's variant."""
    return glorot(
        nn.Sequential(
            # 64 pixels in steps of 4 are 16 places; TensorFlow's "same" pads 3 before and 4 after
            nn.ZeroPad2d((3, 4, 3, 4)),
            nn.Sequential(nn.Conv2d(3, 96, 11, 4), nn.BatchNorm2d(96), nn.ReLU()),
            nn.MaxPool2d(2),
            _convolution(96, 256, 5),
            nn.MaxPool2d(2),
            _convolution(256, 384, 3),
            _convolution(384, 384, 3),
            _convolution(384, 256, 3),
            nn.MaxPool2d(2),
            nn.Flatten(),
            _dense(256 * 2 * 2, 4096),
            _dense(4096, 4096),
            _dense(4096, 1000),
            nn.Linear(1000, classes),
            nn.BatchNorm1d(classes),
        )
    )
