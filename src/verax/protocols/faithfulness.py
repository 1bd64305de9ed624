"""The faithfulness protocol: the raw, signed map, asked what the network does where it points.

No truth is needed, so wrongly predicted samples are scored as well. What removed places show is black, the
background of TextBox: there removing background is free, and an object that is gone leaves a scene that the
network knows. On other backgrounds black is a hole, and every score is to be read with that in mind.
"""

from __future__ import annotations

from torch import Tensor

from verax.protocols import Prepared, Protocol, sound

BASELINE = 0.0
"""What removed places show."""


def prepare(attributions: Tensor) -> Prepared:
    """Sum the channels and keep the sign: the strongest evidence for the output goes first.

    Args:
        attributions: ``(N, C, H, W)`` or ``(N, H, W)``.
    """
    return sound.prepare(attributions, sign="signed")


PROTOCOL = Protocol(
    "faithfulness", "Signed maps, asked what the network does where they point; needs no truth.", prepare
)
