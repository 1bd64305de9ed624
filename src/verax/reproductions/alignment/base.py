"""Experiments: what each of them consists of, and how their claims are decided."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from verax.reproductions import claims
from verax.reproductions.alignment.drawing import Drawn
from verax.reproductions.alignment.measuring import Evidence
from verax.reproductions.alignment.options import Options
from verax.reproductions.claims import FAILS, HOLDS, Finding, Floats

Chapter = claims.Chapter[Evidence]
Claim = claims.Claim[Evidence]


@dataclass(frozen=True)
class Experiment:
    """A study of alignment.

    Attributes:
        name: ``alignment-...``.
        title: a question.
        paper: what the paper did and found.
        gather: trains and measures.
        chapter: its claims.
        tables: evidence -> title and table.
        figures: evidence -> figures.
    """

    name: str
    title: str
    paper: str
    gather: Callable[[Options], Evidence]
    chapter: Chapter
    tables: Callable[[Evidence], dict[str, pd.DataFrame]]
    figures: Callable[[Evidence], list[Drawn]]


def within(draws: Floats, centre: float, reach: float, what: str, more: str = "") -> Finding:
    """A claim that a quantity lies within `reach` of a number: its whole interval has to."""
    low, high = claims.limits(draws)
    holds = centre - reach < low and high < centre + reach
    outside = high < centre - reach or low > centre + reach
    return Finding(
        HOLDS if holds else FAILS,
        f"{what}: {claims.between(draws, 3)}." + (f" {more}" if more else ""),
        f"{what} within {centre - reach:.3f} and {centre + reach:.3f}",
        float(draws[0]),
        low,
        high,
        not holds and not outside,
    )


def same_verdict(
    evidence: Evidence, expected: list[tuple[dict[str, str], str, str]], score: str, words: str
) -> Finding:
    """A claim that every method gives the same verdict: one part above another one, compared by lift.

    Lifts are compared, since the larger part would win otherwise.

    Args:
        evidence: with several methods.
        expected: labels of rows, the part that has to win, the part that has to lose.
        score: that is compared.
        words: the verdict.
    """
    methods = list(dict.fromkeys(evidence.rows["method"]))
    names, flags, notes = [], [], []
    for method in methods:
        so = np.ones(1, dtype=bool)
        parts = []
        for labels, winner, loser in expected:
            lifts = []
            for part in (winner, loser):
                rows = evidence.where(method=method, part=part, **labels)
                value, chance = (Evidence(rows).draws(score + end) for end in ("", "/random"))
                lifts.append(value / chance[0])
            so = so & (lifts[0] > lifts[1])
            who = labels.get("network", "network")
            parts.append(f"{who} {winner} {lifts[0][0]:.1f} {loser} {lifts[1][0]:.1f}")
        names.append(method)
        flags.append(so)
        notes.append(f"{method}: {'; '.join(parts)}")
    found = np.stack(flags, axis=1)
    more = f"{score} as a multiple of chance: {'. '.join(notes)}."
    return claims.count(found, names, words, more=more)
