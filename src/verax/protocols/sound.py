"""The sound protocol: the raw map, channels summed, without colours, blur or rescaling."""

from __future__ import annotations

import torch
from torch import Tensor

from verax.errors import InvalidInput, InvalidParameter, suggestion
from verax.protocols import Prepared, Protocol

SIGNS = ("magnitude", "positive", "signed")

LIMIT = 1e300
"""Larger magnitudes count as infinite: sums of them would overflow."""


def as_maps(attributions: Tensor) -> Tensor:
    """Read attributions ``(N, C, H, W)`` or ``(N, H, W)`` as float64 ``(N, C, H, W)``."""
    if attributions.ndim not in (3, 4) or attributions.is_complex():
        raise InvalidInput(
            "Attributions must be real numbers of shape (N, C, H, W) or (N, H, W), "
            f"not {attributions.dtype} of shape {tuple(attributions.shape)}."
        )
    attributions = attributions.detach()
    if attributions.device.type == "mps":  # which has no float64
        attributions = attributions.cpu()
    maps = attributions.to(torch.float64)
    return maps[:, None] if maps.ndim == 3 else maps


def finite(maps: Tensor) -> Tensor:
    """Whether each number is finite; NaN and infinity are not, nor is what lies beyond `LIMIT`."""
    return maps.abs() <= LIMIT


def constant(maps: Tensor) -> Tensor:
    """Whether each map has one value everywhere: ``(N, ...)`` -> ``(N,)`` bool."""
    flat = maps.flatten(1)
    return flat.amin(1) == flat.amax(1)


def check_sign(sign: str) -> str:
    """Return `sign` if it exists."""
    if sign not in SIGNS:
        raise InvalidParameter(f"There is no sign named {sign!r}{suggestion(str(sign), SIGNS)}")
    return sign


def prepare(attributions: Tensor, sign: str = "magnitude") -> Prepared:
    """Sum the channels, then keep the magnitude, the positive part or the signed value.

    A map that holds NaN or infinity is replaced by a constant one. Every metric of this protocol takes the
    expectation over ties, so such a map scores exactly like chance: it is counted, and it is never lucky.

    Args:
        attributions: ``(N, C, H, W)`` or ``(N, H, W)``.
        sign: "magnitude" (absolute value), "positive" (negative values become 0) or "signed" (as it is).
    """
    check_sign(sign)
    maps = as_maps(attributions)
    values = maps.sum(1)
    usable = finite(maps).flatten(1).all(1)
    values = torch.where(usable[:, None, None], values, 0.0)
    if sign == "magnitude":
        values = values.abs()
    elif sign == "positive":
        values = values.clamp(min=0)
    return Prepared(values, constant(values))


PROTOCOL = Protocol(
    "sound", "Raw maps, exact masks, ties shared fairly, chance at 0 and oracle at 1.", prepare
)

COUNTERFACTUAL = Protocol(
    "sound:counterfactual", "The same, against the objects of which a change changes the label.", prepare
)

SHAPLEY = Protocol("sound:shapley", "The same, against the objects whose Shapley value is not zero.", prepare)
