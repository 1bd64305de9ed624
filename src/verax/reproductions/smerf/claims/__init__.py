"""The statements of the paper that can be checked, and what was found about each."""

from __future__ import annotations

from typing import Any

import pandas as pd

from verax.reproductions.claims import Finding
from verax.reproductions.smerf.claims import agreement, complicated, data, simple, variants
from verax.reproductions.smerf.claims.base import VERDICTS, Chapter, Claim
from verax.reproductions.smerf.measurements import Measurements, measure

__all__ = ["CHAPTERS", "CLAIMS", "VERDICTS", "Claim", "Finding", "evaluate"]

CHAPTERS: tuple[Chapter, ...] = (
    data.chapter,
    simple.chapter,
    complicated.chapter,
    agreement.chapter,
    variants.networks,
    variants.backgrounds,
)
CLAIMS: tuple[Claim, ...] = tuple(claim for chapter in CHAPTERS for claim in chapter.claims)


def evaluate(
    scores: pd.DataFrame | Measurements, *, plain: str | None = None, **options: Any
) -> list[tuple[Claim, Finding]]:
    """Decide every claim.

    Args:
        scores: long table of a run with the published protocol, or measurements made from it.
        plain: name of the network that stands for the paper's CNN; default cnn@published, cnn or cnn4.
        options: of `Measurements`.
    """
    if plain is not None:
        options["networks"] = {"plain": plain, **(options.get("networks") or {})}
    measured = measure(scores, **options)
    return [(claim, claim.evaluate(measured)) for claim in CLAIMS]
