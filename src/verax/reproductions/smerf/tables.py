"""Paper against ours: every number that can be read off the paper, beside what was measured.

Aggregation is the paper's: a bucket's mean over its images, then mean, minimum or standard deviation over
the buckets of all settings meant, each bucket counting once. Images without objects of the role are left
out. A constant map has no AFL in the original: its NaN runs through the means and is drawn as 0. Both
readings are given: *measured* leaves such images out, *drawn* does as the plots did.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from verax.errors import InvalidParameter
from verax.reproductions.claims import Floats, NotTestable, limits
from verax.reproductions.smerf import paper
from verax.reproductions.smerf.measurements import Measurements
from verax.reproductions.smerf.paper import Reference

TARGET = 0.06
"""Mean absolute difference over the forty numbers of Figure 2 that a reproduction should not exceed."""

INSIDE, OUTSIDE, MISSING = "inside", "outside", "not in this run"
COLUMNS = [
    "figure",
    "network",
    "background",
    "metric",
    "family",
    "tasks",
    "groups",
    "statistic",
    "method",
    "paper",
    "uncertainty",
    "relation",
    "ours",
    "low",
    "high",
    "drawn",
    "difference",
    "state",
    "headline",
    "note",
]


def summarise(draws: Floats, statistic: str) -> Floats:
    """Mean, minimum or standard deviation over buckets: ``(1 + R, B, M)`` -> ``(1 + R, M)``.

    Buckets in which nothing is defined are left out.
    """
    known = np.isfinite(draws)
    count = known.sum(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean: Floats = np.where(known, draws, 0.0).sum(1) / count
        match statistic:
            case "mean":
                return mean
            case "min":
                least = np.where(known, draws, np.inf).min(1, initial=np.inf)
                return np.where(count > 0, least, np.nan)
            case "std":
                squares = np.where(known, draws - mean[:, None], 0.0) ** 2
                return np.asarray(np.sqrt(squares.sum(1) / count))
    raise InvalidParameter(f"A statistic is mean, min or std, not {statistic!r}.")


@dataclass(frozen=True)
class Match:
    """Our side of one number: draws ``(1 + R,)`` as measured, and the number as it would have been drawn."""

    draws: Floats
    drawn: float

    def like(self, reference: Reference) -> Floats:
        """The draws to hold against the paper's number: 0 where both it and ours were drawn from NaN."""
        return np.full_like(self.draws, self.drawn) if reference.undefined else self.draws


def match(reference: Reference, measured: Measurements) -> Match:
    """Our side of one number of the paper."""
    network, background = reference.network, reference.background
    draws = measured.draws(
        reference.metric,
        [reference.method],
        tasks=reference.tasks,
        groups=reference.groups,
        network=network,
        background=background,
        undefined="ignored",
    )
    positions = measured.buckets(
        reference.metric, None, reference.tasks, reference.groups, False, network, background
    )
    ours = summarise(draws, reference.statistic)[:, 0]
    lost = measured.any_undefined(reference.metric, reference.method, positions, network, background)
    return Match(ours, 0.0 if lost else float(ours[0]))


def _row(reference: Reference, measured: Measurements) -> dict[str, object]:
    row: dict[str, object] = {
        "figure": reference.figure,
        "network": reference.network,
        "background": reference.background,
        "metric": reference.metric,
        "family": reference.family,
        "tasks": " ".join(reference.tasks),
        "groups": " ".join(map(str, reference.groups)),
        "statistic": reference.statistic,
        "method": reference.method,
        "paper": reference.value,
        "uncertainty": reference.uncertainty,
        "relation": reference.relation,
        "headline": paper.headline(reference),
        "note": "; ".join(filter(None, ("NaN drawn as 0" if reference.undefined else "", reference.note))),
    }
    try:
        found = match(reference, measured)
    except NotTestable as reason:
        return {**row, "state": MISSING, "note": "; ".join(filter(None, (str(row["note"]), str(reason))))}
    held = found.like(reference)
    low, high = limits(held)
    near = low - reference.uncertainty <= reference.value
    if reference.relation == "at most":
        near = low <= reference.value + reference.uncertainty
    else:
        near = near and reference.value <= high + reference.uncertainty
    ours_low, ours_high = limits(found.draws)
    return {
        **row,
        "ours": float(found.draws[0]),
        "low": ours_low,
        "high": ours_high,
        "drawn": found.drawn,
        "difference": float(held[0]) - reference.value,
        "state": INSIDE if near else OUTSIDE,
    }


def comparison(measured: Measurements) -> pd.DataFrame:
    """All numbers of the paper's figures beside ours.

    Returns:
        One row for each number: where it is from; paper with its reading error; ours with its 95 % interval
        (as measured) and as drawn; the difference (ours - paper; from ours as drawn where the paper's number
        was drawn from NaN); state: inside when the intervals of the two meet, outside, or not in this run.
    """
    rows = [_row(reference, measured) for reference in paper.references()]
    return pd.DataFrame(rows, columns=COLUMNS)


@dataclass(frozen=True)
class Headline:
    """How far the reproduction is from the paper on the forty numbers of Figure 2.

    Attributes:
        value: mean absolute difference, NaN of the paper against ours as drawn.
        low: of its interval.
        high: of its interval.
        drawn: the same with everything as drawn.
        measured: the same without the numbers that the paper drew from NaN.
        numbers: how many of the forty the run has.
        inside: how many of them are inside.
    """

    value: float
    low: float
    high: float
    drawn: float
    measured: float
    numbers: int
    inside: int

    @property
    def reached(self) -> bool:
        """Whether all forty are there and close enough."""
        return self.numbers == sum(map(paper.headline, paper.references())) and self.value <= TARGET


def headline(measured: Measurements, table: pd.DataFrame | None = None) -> Headline:
    """The mean absolute difference over ten methods x PAFL and PIOU x simple and complex, plain CNN."""
    wanted = [reference for reference in paper.references() if paper.headline(reference)]
    gaps, drawn, plain = [], [], []
    for reference in wanted:
        try:
            found = match(reference, measured)
        except NotTestable:
            continue
        gaps.append(np.abs(found.like(reference) - reference.value))
        drawn.append(abs(found.drawn - reference.value))
        if not reference.undefined:
            plain.append(abs(float(found.draws[0]) - reference.value))
    if not gaps:
        return Headline(np.nan, np.nan, np.nan, np.nan, np.nan, 0, 0)
    means = np.mean(gaps, axis=0)
    low, high = limits(means)
    rows = comparison(measured) if table is None else table
    inside = int((rows["headline"] & (rows["state"] == INSIDE)).sum())
    return Headline(
        float(means[0]), low, high, float(np.mean(drawn)), float(np.mean(plain)), len(gaps), inside
    )
