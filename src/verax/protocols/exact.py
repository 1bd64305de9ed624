"""The exact protocol: the raw map, compared number by number with a truth known for every input element.

It is for tasks that know the right attribution itself and not only where it lies, such as a sum of known
functions of single grid cells (Mamalakis, Ebert-Uphoff and Barnes, Environmental Data Science 2022).
"""

from __future__ import annotations

import torch
from torch import Tensor

from verax.errors import InvalidInput
from verax.protocols import Prepared, Protocol
from verax.protocols.sound import as_maps, constant, finite


def prepare(attributions: Tensor) -> Prepared:
    """Keep every number and its sign; pictures have their channels summed and are laid out as rows.

    A map that holds NaN or infinity is replaced by zeros and gets the score that a map of zeros has.

    Args:
        attributions: ``(N, D)``, ``(N, H, W)`` or ``(N, C, H, W)``.
    """
    if attributions.ndim == 2 and not attributions.is_complex():
        attributions = attributions[:, None, None]
    elif attributions.ndim < 3:
        raise InvalidInput(
            "Attributions must be real numbers of shape (N, D), (N, H, W) or (N, C, H, W), "
            f"not {attributions.dtype} of shape {tuple(attributions.shape)}."
        )
    maps = as_maps(attributions)
    usable = finite(maps).flatten(1).all(1)
    values = torch.where(usable[:, None], maps.sum(1).flatten(1), 0.0)
    return Prepared(values, constant(values))


PROTOCOL = Protocol(
    "exact", "Raw maps, compared number by number with the right attribution of every element.", prepare
)
