"""Protocols: how a raw attribution becomes a scored map.

``published`` does it as the paper's code did, quirks included; ``sound`` does it as it should be done;
``faithfulness`` asks the network instead of the truth; ``exact`` compares maps, number by number, with a
truth that is known for every input element. After a colon stands the truth that maps are scored
against, where it is not the rule: ``sound:counterfactual``, ``sound:shapley``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from verax.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


@dataclass(frozen=True)
class Prepared:
    """Maps that are ready for the metrics.

    Attributes:
        values: ``(N, H, W)`` or, under ``exact``, ``(N, D)`` float64, always finite.
        degenerate: ``(N,)`` bool; the raw map held NaN or infinity, or the prepared one is constant.
    """

    values: Tensor
    degenerate: Tensor


@dataclass(frozen=True)
class Protocol:
    """A named way to prepare raw attributions for the metrics."""

    name: str
    description: str
    prepare: Callable[..., Prepared]


def truth_of(protocol: str) -> str:
    """The truth that a protocol scores against: what stands behind its colon, or the rule."""
    return protocol.partition(":")[2] or "rule"


PROTOCOLS: Registry[Protocol] = Registry(
    "protocol",
    {
        "sound": "verax.protocols.sound:PROTOCOL",
        "sound:counterfactual": "verax.protocols.sound:COUNTERFACTUAL",
        "sound:shapley": "verax.protocols.sound:SHAPLEY",
        "published": "verax.protocols.published:PROTOCOL",
        "faithfulness": "verax.protocols.faithfulness:PROTOCOL",
        "exact": "verax.protocols.exact:PROTOCOL",
    },
)
