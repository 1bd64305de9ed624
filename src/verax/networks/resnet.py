"""ResNet-18 for small pictures: He, Zhang, Ren and Sun, "Deep Residual Learning" (CVPR 2016).

The first layer is 3 x 3 with stride 1 and there is no pooling behind it, as is usual for small pictures, so
that the last map of 64 x 64 pixels is 8 x 8. The coarse one begins with stride 2: a quarter of the
arithmetic, and a last map of 4 x 4, as those of AlexNet and VGG16 in the SMERF study are.
"""

from __future__ import annotations

from torch import Tensor, nn


def _convolution(wide_in: int, wide_out: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    layer = nn.Conv2d(wide_in, wide_out, kernel, stride, kernel // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return [layer, nn.BatchNorm2d(wide_out)]


class Block(nn.Module):
    """Two convolutions and the way around them."""

    def __init__(self, wide_in: int, wide_out: int, stride: int) -> None:
        super().__init__()
        self.through = nn.Sequential(
            *_convolution(wide_in, wide_out, 3, stride), nn.ReLU(), *_convolution(wide_out, wide_out, 3)
        )
        same = stride == 1 and wide_in == wide_out
        self.around = nn.Identity() if same else nn.Sequential(*_convolution(wide_in, wide_out, 1, stride))
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """The sum of both ways."""
        return self.relu(self.through(x) + self.around(x))  # type: ignore[no-any-return]


def resnet18(classes: int = 2) -> nn.Module:
    """ResNet-18 for small pictures: 3 x 3 first layer, four stages of two blocks (last map 8 x 8)."""
    return _resnet18(classes, 1)


def coarse(classes: int = 2) -> nn.Module:
    """ResNet-18 whose first layer has stride 2 (last map 4 x 4): four times as fast."""
    return _resnet18(classes, 2)


def _resnet18(classes: int, stride: int) -> nn.Module:
    layers = [*_convolution(3, 64, 3, stride), nn.ReLU()]
    wide = 64
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(wide, width, stride), Block(width, width, 1)]
        wide = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))
