"""Claims: what a paper says, and how code decides about it; shared by all reproductions."""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from verax.errors import InvalidParameter, VeraxError
from verax.studies.statistics import interval

Verdict = Literal["holds", "does not hold", "cannot hold", "not testable"]
HOLDS: Verdict = "holds"
FAILS: Verdict = "does not hold"
CANNOT: Verdict = "cannot hold"
UNTESTABLE: Verdict = "not testable"
VERDICTS: dict[Verdict, str] = {
    HOLDS: "the measurement, with its whole interval, is on the claim's side.",
    FAILS: "it is not. Where the interval reaches both sides, the verdict is marked uncertain.",
    CANNOT: "it is settled by construction, whatever the method or the data.",
    UNTESTABLE: "the run does not have what it needs.",
}
"""What each verdict means; a reproduction may say it more precisely."""

Measured = TypeVar("Measured")
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class NotTestable(VeraxError):
    """What a claim needs is not in the run."""


def limits(draws: Floats) -> tuple[float, float]:
    """The interval of a measurement. It holds the measurement: replicates of a minimum lie too low."""
    low, high = interval(draws[1:])
    return float(min(low, draws[0])), float(max(high, draws[0]))


@dataclass(frozen=True)
class Finding:
    """What was found about a claim.

    Attributes:
        verdict: holds, does not hold, cannot hold or not testable.
        measured: the measurement in words.
        rule: what has to be true for the claim to hold.
        value: the number that decides, where there is one.
        low: of its interval.
        high: of its interval.
        uncertain: the interval reaches both sides of the rule.
    """

    verdict: Verdict
    measured: str
    rule: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    uncertain: bool = False


@dataclass(frozen=True)
class Claim(Generic[Measured]):
    """A statement of the paper.

    Attributes:
        id: short name.
        topic: what it is about.
        where: in the paper.
        says: what the paper says, in our words.
        decide: measurements -> finding.
    """

    id: str
    topic: str
    where: str
    says: str
    decide: Callable[[Measured], Finding]

    def evaluate(self, measured: Measured) -> Finding:
        """The finding; a run that lacks something makes it "not testable"."""
        try:
            return self.decide(measured)
        except NotTestable as reason:
            return Finding(UNTESTABLE, str(reason))

    @property
    def code(self) -> str:
        """The source of the function that decides."""
        return inspect.getsource(self.decide)

    def as_row(self, finding: Finding) -> dict[str, Any]:
        """Claim and finding in one flat mapping, for JSON."""
        place = f"{self.decide.__module__}:{self.decide.__name__}"
        row = {"id": self.id, "topic": self.topic, "where": self.where, "says": self.says}
        return {**row, **asdict(finding), "decided_by": place, "code": self.code}


class Chapter(Generic[Measured]):
    """Collects the claims of one topic; its `claim` is a decorator."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.claims: list[Claim[Measured]] = []

    def claim(
        self, id: str, where: str, says: str
    ) -> Callable[[Callable[[Measured], Finding]], Callable[[Measured], Finding]]:
        """Declare the decorated function to decide a claim."""

        def declare(decide: Callable[[Measured], Finding]) -> Callable[[Measured], Finding]:
            self.claims.append(Claim(id, self.topic, where, says, decide))
            return decide

        return declare


def counts(found: Sequence[tuple[Claim[Any], Finding]]) -> dict[str, int]:
    """Verdict -> number of claims, in a fixed order."""
    seen = Counter(finding.verdict for _, finding in found)
    return {verdict: seen[verdict] for verdict in VERDICTS}


_PLURAL = {HOLDS: "hold", FAILS: "do not hold"}


def tally(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Verdict -> how many claims have it, in words; those that are uncertain are counted apart.

    Args:
        rows: claims as `Claim.as_row` gives them.
    """
    rows = list(rows)
    found = {}
    for verdict in VERDICTS:
        those = [row for row in rows if row["verdict"] == verdict]
        doubted = sum(bool(row["uncertain"]) for row in those)
        words = verdict if len(those) == 1 else _PLURAL.get(verdict, verdict)
        found[str(verdict)] = f"{len(those)} {words}" + (f" ({doubted} of them uncertain)" if doubted else "")
    return found


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row for JSON; what is not a number is null."""

    def value(x: Any) -> Any:
        if isinstance(x, str | bool | int) or x is None:
            return x
        return float(x) if math.isfinite(float(x)) else None

    return {name: value(x) for name, x in row.items()}


# -- deciding ----------------------------------------------------------------------------------------------


def number(value: float, digits: int = 2) -> str:
    """A number as text."""
    return f"{value:.{digits}f}"


def between(draws: Floats, digits: int = 2) -> str:
    """A measurement with its interval as text."""
    low, high = limits(draws)
    return f"{draws[0]:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def threshold(
    draws: Floats, side: Literal["above", "below"], limit: float, what: str, more: str = ""
) -> Finding:
    """A claim that a quantity lies above or below a limit: the whole interval has to.

    Args:
        draws: ``(1 + R,)``.
        side: where the claim sees the quantity.
        limit: the threshold.
        what: the quantity in words.
        more: further facts for the reader.
    """
    if math.isnan(draws[0]):
        raise NotTestable(f"{what} is not defined in this run.")
    low, high = limits(draws)
    inner, outer = (low, high) if side == "above" else (-high, -low)
    edge = limit if side == "above" else -limit
    holds = inner > edge
    measured = f"{what}: {between(draws)}." + (f" {more}" if more else "")
    return Finding(
        HOLDS if holds else FAILS,
        measured,
        f"{what} {side} {limit:g}",
        float(draws[0]),
        low,
        high,
        not holds and outer > edge,
    )


def count(
    flags: Bools, names: Sequence[str], what: str, *, least: int | None = None, more: str = ""
) -> Finding:
    """A claim that all, or at least some number, of several things are so.

    Args:
        flags: ``(1 + R, n)``: whether each is so, in the measurement and in every replicate.
        names: of the n things.
        what: what is claimed about each.
        least: how many have to be so; default all.
        more: further facts for the reader.
    """
    if flags.shape[1] != len(names):
        raise InvalidParameter(f"{flags.shape[1]} flags and {len(names)} names do not belong together.")
    totals = flags.sum(1).astype(np.float64)
    total, needed = len(names), len(names) if least is None else least
    low, high = limits(totals)
    low, high = float(np.floor(low)), float(np.ceil(high))
    holds = low >= needed
    exceptions = [name for name, so in zip(names, flags[0], strict=True) if not so]
    so = [name for name, flag in zip(names, flags[0], strict=True) if flag]
    text = f"{what}: {int(totals[0])} of {total} [{low:.0f}, {high:.0f}]"
    if exceptions and len(exceptions) <= len(so):
        text += f"; not {', '.join(exceptions)}"
    elif so and exceptions:
        text += f"; only {', '.join(so)}"
    wanted = "all" if least is None else f"at least {needed}"
    return Finding(
        HOLDS if holds else FAILS,
        f"{text}." + (f" {more}" if more else ""),
        f"{what}: {wanted} of {total}",
        totals[0],
        low,
        high,
        not holds and high >= needed,
    )


def exact(holds: bool, measured: str, rule: str, value: float | None = None) -> Finding:
    """A claim about something that has no sampling error."""
    return Finding(HOLDS if holds else FAILS, measured, rule, value)


def settled(measured: str, rule: str, value: float, low: float | None, high: float | None) -> Finding:
    """A claim that the ceiling of the metric settles whatever the method."""
    return Finding(CANNOT, measured, rule, value, low, high)
