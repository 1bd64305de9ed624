"""How claims about this benchmark are decided from its evidence."""

from __future__ import annotations

import numpy as np

from verax.reproductions import claims
from verax.reproductions.claims import Finding, Floats
from verax.reproductions.sst.evidence import Evidence, Fit

Chapter = claims.Chapter[Evidence]
Claim = claims.Claim[Evidence]


def at_least(found: Fit, limit: float, what: str, more: str = "") -> Finding:
    """A claim that a share of variance, given with its interval, lies above a limit."""
    value, low, high = found
    low, high = min(low, high), max(low, high)
    holds = low > limit
    measured = f"{what}: {value:.4f} [{low:.4f}, {high:.4f}]." + (f" {more}" if more else "")
    rule = f"{what} above {limit:g}"
    return Finding(
        claims.HOLDS if holds else claims.FAILS,
        measured,
        rule,
        value,
        low,
        high,
        not holds and high > limit,
    )


def within(draws: Floats, limit: float, what: str, more: str = "") -> Finding:
    """A claim that a quantity is near 0: its whole interval lies within plus and minus the limit."""
    low, high = claims.limits(draws)
    holds = -limit < low and high < limit
    measured = f"{what}: {claims.between(draws)}." + (f" {more}" if more else "")
    reaches = low < limit and high > -limit
    return Finding(
        claims.HOLDS if holds else claims.FAILS,
        measured,
        f"{what} within {-limit:g} and {limit:g}",
        float(draws[0]),
        low,
        high,
        not holds and reaches,
    )


def words(draws: Floats) -> str:
    """A measurement with its interval."""
    return claims.between(draws)


def spread(values: Floats) -> str:
    """Mean, standard deviation and range in words."""
    return (
        f"{np.mean(values):.2f} ± {np.std(values, ddof=1):.2f} ({np.min(values):.2f} to {np.max(values):.2f})"
    )
