"""Statements about the benchmark that can be checked, and what was found about each."""

from __future__ import annotations

from verax.reproductions.claims import Finding
from verax.reproductions.sst.claims import explaining, networks, reimplementation
from verax.reproductions.sst.claims.base import Chapter, Claim
from verax.reproductions.sst.evidence import Evidence

CHAPTERS: tuple[Chapter, ...] = (networks.chapter, explaining.chapter, reimplementation.chapter)
CLAIMS: tuple[Claim, ...] = tuple(claim for chapter in CHAPTERS for claim in chapter.claims)


def evaluate(evidence: Evidence) -> list[tuple[Claim, Finding]]:
    """Decide every claim."""
    return [(claim, claim.evaluate(evidence)) for claim in CLAIMS]
