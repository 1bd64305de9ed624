"""The claims of this paper, decided from its measurements."""

from __future__ import annotations

from verax.reproductions import claims
from verax.reproductions.smerf.measurements import Measurements

Chapter = claims.Chapter[Measurements]
Claim = claims.Claim[Measurements]
VERDICTS: dict[claims.Verdict, str] = {
    **claims.VERDICTS,
    claims.CANNOT: "the metric settles it whatever the method: the truth itself, used as a map, would have "
    "had the same answer. The sentence says nothing about methods.",
    claims.UNTESTABLE: "the run does not have the network, background or method that it needs.",
}
