"""Experiments: what each of them consists of, and how their claims are decided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from verax.reproductions import claims
from verax.reproductions.alignment.drawing import Drawn
from verax.reproductions.alignment.measuring import Evidence
from verax.reproductions.alignment.options import Options
from verax.reproductions.claims import FAILS, HOLDS, Finding, Floats

Chapter = claims.Chapter[Evidence]
Claim = claims.Claim[Evidence]
Side = Literal["above", "below"]


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


def apart(ours: Floats, other: Floats, side: Side, limit: float, what: str, more: str = "") -> Finding:
    """A claim about the difference of two quantities, both of which are named."""
    both = f"{claims.between(ours, 3)} and {claims.between(other, 3)}"
    return claims.threshold(ours - other, side, limit, what, f"{both}; {more}" if more else f"{both}.")


def beyond_chance(
    value: Floats, chance: Floats, side: Side, limit: float, what: str, more: str = ""
) -> Finding:
    """A claim about the pointing game and what chance gives for a part of that size."""
    words = f"PG {claims.between(value, 3)}, chance {chance[0]:.3f}"
    return claims.threshold(value - chance, side, limit, what, f"{words}; {more}" if more else f"{words}.")


@dataclass(frozen=True)
class More:
    """An expectation: one network looks at one part more than another network, or than at another part.

    Attributes:
        network: of which it is said.
        part: that it looks at.
        than: another network, or another part.
    """

    network: str
    part: str
    than: str


def same_verdict(evidence: Evidence, test: str, expected: Sequence[More], score: str, words: str) -> Finding:
    """A claim that every method confirms all expectations; lifts are compared, so that size is no merit.

    Args:
        evidence: with several methods.
        test: the test set.
        expected: what has to be so.
        score: that is compared.
        words: the verdict.
    """
    networks = set(evidence.rows["network"])

    def lift(method: str, network: str, part: str) -> Floats:
        labels = {"method": method, "test": test, "network": network, "part": part}
        value, chance = (evidence.draws(score + end, **labels) for end in ("", "/random"))
        result: Floats = value / chance[0]
        return result

    methods, flags, notes = list(dict.fromkeys(evidence.rows["method"])), [], []
    for method in methods:
        so = np.ones(1, dtype=bool)
        parts = []
        for each in expected:
            other = (each.than, each.part) if each.than in networks else (each.network, each.than)
            ours, theirs = lift(method, each.network, each.part), lift(method, *other)
            so = so & (ours > theirs)
            parts.append(f"{each.network} {each.part} {ours[0]:.1f}, {' '.join(other)} {theirs[0]:.1f}")
        flags.append(so)
        notes.append(f"{method}: {'; '.join(parts)}")
    more = f"{score} as a multiple of chance, {'. '.join(notes)}."
    return claims.count(np.stack(flags, axis=1), methods, words, more=more)
