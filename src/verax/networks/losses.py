"""What training makes small."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from verax.errors import InvalidParameter, suggestion

_EDGE = 1e-7  # the epsilon of Keras


def clipped(outputs: Tensor, labels: Tensor) -> Tensor:
    """Binary cross-entropy of *linear* outputs that are taken for probabilities, as the SMERF code does.

    Keras clips them to [1e-7, 1 - 1e-7]: outside, nothing is learned, and a network whose outputs all start
    there is dead. The mean runs over samples and outputs; targets are one-hot.
    """
    outputs = outputs.float()
    wanted = torch.zeros_like(outputs).scatter_(1, labels[:, None], 1.0)
    share = outputs.clamp(_EDGE, 1 - _EDGE)
    return -(wanted * share.log() + (1 - wanted) * (1 - share).log()).mean()


def squared(outputs: Tensor, wanted: Tensor) -> Tensor:
    """The mean squared error of the first output."""
    return (outputs[:, 0] - wanted).square().mean()


Loss = Callable[[Tensor, Tensor], Tensor]
LOSSES: dict[str, Loss] = {"cross-entropy": F.cross_entropy, "clipped": clipped, "squared": squared}


def find_loss(name: str) -> Loss:
    """The loss called `name`."""
    if name not in LOSSES:
        raise InvalidParameter(f"There is no loss named {name!r}{suggestion(str(name), LOSSES)}")
    return LOSSES[name]
