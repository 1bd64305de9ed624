"""The networks of the alignment experiments, small enough to be trained while one waits."""

from __future__ import annotations

from torch import Tensor, nn


class DigitNet(nn.Module):
    """The network of experiment 1: two convolutions and two dense layers, log-probabilities.

    The published one has channel-wise dropout on a vector, which is plain dropout.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 32, 3),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Dropout2d(0.25),
            nn.Flatten(),
            nn.Linear(9216, 128),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(128, 10),
            nn.LogSoftmax(1),
        )

    def forward(self, x: Tensor) -> Tensor:
        """``(N, 3, 28, 28)`` -> ``(N, 10)``."""
        result: Tensor = self.layers(x)
        return result


class SmallNet(nn.Module):
    """Convolutions with batch normalisation, the mean over places, one dense layer.

    The last feature map has a quarter of the picture's resolution, so that Grad-CAM can point at a mouth.

    Args:
        outputs: number of classes.
        widths: channels of the convolutions; the first two halve the picture.
    """

    def __init__(self, outputs: int, widths: tuple[int, ...] = (16, 32, 48, 64)) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before = 3
        for place, width in enumerate(widths):
            layers += [nn.Conv2d(before, width, 3, stride=2 if place < 2 else 1, padding=1, bias=False)]
            layers += [nn.BatchNorm2d(width), nn.ReLU()]
            before = width
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(before, outputs)

    def embed(self, x: Tensor) -> Tensor:
        """Penultimate features ``(N, C)``."""
        return self.features(x).mean((2, 3))  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        """``(N, 3, H, W)`` -> ``(N, outputs)``."""
        result: Tensor = self.head(self.embed(x))
        return result
