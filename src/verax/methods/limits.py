"""Limits: which values a parameter may have, checked before any network is run.

A limit is checked wherever parameters are read, by `explain`, by `completeness` and when a study is planned,
so that an impossible value is one sentence and never a map or a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real

from torch import Tensor

from verax.errors import InvalidParameter


@dataclass(frozen=True)
class Limit:
    """What a value must be, in words and as a test."""

    words: str
    holds: Callable[[object], bool]

    def check(self, value: object, name: str) -> None:
        """Refuse a value beyond the limit in one sentence that begins with `name`."""
        if not self.holds(value):
            raise InvalidParameter(f"{name} must be {self.words}, not {shown(value)}.")

    def or_none(self) -> Limit:
        """The limit, or nothing at all."""
        return Limit(f"{self.words} or None", lambda value: value is None or self.holds(value))


def shown(value: object) -> str:
    """A value as a sentence names it: plain ones as they are written, others by their type."""
    return repr(value) if isinstance(value, bool | int | float | str | None) else f"a {type(value).__name__}"


def finite(value: object, low: float = -math.inf, high: float = math.inf) -> bool:
    """Whether a value is a number from `low` to `high`, neither NaN nor infinite; true and false are none."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        number = float(value)
    except OverflowError:
        return False
    return math.isfinite(number) and low <= number <= high


def whole_from(low: int) -> Limit:
    """Whole numbers from `low`."""
    return Limit(
        f"a whole number from {low}", lambda value: isinstance(value, Integral) and finite(value, low)
    )


def number_from(low: float, high: float = math.inf) -> Limit:
    """Finite numbers from `low` to `high`, both included."""
    end = f" to {high:g}" if high < math.inf else ""
    return Limit(f"a finite number from {low:g}{end}", lambda value: finite(value, low, high))


def number_above(low: float, high: float = math.inf) -> Limit:
    """Finite numbers above `low`, which is not included, to `high`, which is."""
    end = f", at most {high:g}" if high < math.inf else ""
    return Limit(
        f"a finite number above {low:g}{end}", lambda value: finite(value, low, high) and value != low
    )


def one_of(*words: str) -> Limit:
    """One of some words."""
    quoted = [repr(word) for word in words]
    return Limit(
        f"{', '.join(quoted[:-1])} or {quoted[-1]}", lambda value: isinstance(value, str) and value in words
    )


NUMBER = Limit("a finite number", finite)
WHOLE = Limit("a whole number", lambda value: isinstance(value, Integral) and finite(value))
WORD = Limit("a word", lambda value: isinstance(value, str))
SWITCH = Limit("true or false", lambda value: isinstance(value, bool))

USUAL: Mapping[str, Limit] = {
    "baseline": Limit(
        "a finite number, a word or a tensor",
        lambda value: isinstance(value, bool | str | Tensor) or finite(value),
    ),
    "epsilon": number_from(0),
    "gamma": number_from(0),
    "layer": WORD.or_none(),
    "noise": number_from(0),
    "rule": WORD,
    "samples": whole_from(1),
    "segments": Limit("a word or a tensor", lambda value: isinstance(value, str | Tensor)),
    "size": whole_from(1).or_none(),
    "steps": whole_from(1),
}
"""The limits of parameters that mean the same in every method of this package."""
