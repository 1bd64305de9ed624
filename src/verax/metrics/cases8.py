"""The eight cases of Shared Interest: was the model right, and where did it look?

Boggust et al., CHI 2022. A case is a range of scores among right or wrong predictions. Cases overlap, and an
image may belong to none. As in the authors' interface, scores are rounded to two decimals before they are
compared, and both ends of a range belong to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from verax.errors import InvalidParameter, suggestion

Range = tuple[float, float]
ANY: Range = (0.0, 1.0)
COLUMNS = ("iou", "ground-truth-coverage", "saliency-coverage")


@dataclass(frozen=True)
class Case:
    """One of the eight.

    Attributes:
        name: as in the paper.
        right: whether the prediction is right.
        picture: how the regions lie, in words.
        about: what it means.
        bounds: score -> "low" or "high".
        sort: the score that orders its images, and whether the largest comes first.
    """

    name: str
    right: bool
    picture: str
    about: str
    bounds: Mapping[str, str]
    sort: tuple[str, bool]


def _four(right: bool, names: tuple[str, str, str, str], about: tuple[str, str, str, str]) -> list[Case]:
    iou, truth, shown = COLUMNS
    shapes: tuple[tuple[str, Mapping[str, str], tuple[str, bool]], ...] = (
        ("both regions are nearly the same", {iou: "high"}, (iou, True)),
        ("shown is a part of marked", {truth: "low", shown: "high"}, (shown, True)),
        ("the regions hardly overlap", {iou: "low"}, (iou, False)),
        ("marked is a part of shown", {truth: "high", shown: "low"}, (truth, True)),
    )
    return [
        Case(name, right, picture, words, bounds, sort)
        for name, words, (picture, bounds, sort) in zip(names, about, shapes, strict=True)
    ]


CASES: dict[str, Case] = {
    case.name: case
    for case in (
        *_four(
            True,
            ("Human Aligned", "Sufficient Subset", "Sufficient Context", "Context Dependant"),
            (
                "Right, and for the reasons that people marked.",
                "Right from a part of what people marked.",
                "Right with hardly any overlap with what people marked.",
                "Right from what people marked and its surroundings.",
            ),
        ),
        *_four(
            False,
            ("Confuser", "Insufficient Subset", "Distractor", "Context Confusion"),
            (
                "Wrong, although it looked where people marked.",
                "Wrong: it looked at too small a part of what people marked.",
                "Wrong, with hardly any overlap with what people marked.",
                "Wrong: the surroundings led it astray.",
            ),
        ),
    )
}
"""Name -> case, in the order of the paper."""


@dataclass(frozen=True)
class Ranges:
    """Which scores are low and which are high.

    Attributes:
        low: both ends.
        high: both ends.
        own: case -> score -> range, where a case differs; a score that a case does not name may be anything.
    """

    low: Range = (0.0, 0.20)
    high: Range = (0.65, 1.0)
    own: Mapping[str, Mapping[str, Range]] | None = None

    def __post_init__(self) -> None:
        _check(self.low, "low")
        _check(self.high, "high")
        for name, bounds in (self.own or {}).items():
            if name not in CASES:
                raise InvalidParameter(f"There is no case named {name!r}{suggestion(str(name), CASES)}")
            for score, ends in bounds.items():
                if score not in COLUMNS:
                    raise InvalidParameter(f"Cases know no score {score!r}{suggestion(str(score), COLUMNS)}")
                _check(ends, f"{score} of {name}")

    def bounds(self, case: str) -> dict[str, Range]:
        """Score -> both ends, for the scores that this case looks at."""
        found = {
            score: self.low if word == "low" else self.high for score, word in CASES[case].bounds.items()
        }
        return {**found, **(self.own or {}).get(case, {})}

    @classmethod
    def of(cls, given: str | Ranges | Mapping[str, Any] | None) -> Ranges:
        """A preset by name, a mapping with low, high and cases, or ranges as they are."""
        if isinstance(given, Ranges):
            return given
        if given is None:
            return cls()
        if isinstance(given, str):
            if given not in PRESETS:
                raise InvalidParameter(f"There are no ranges named {given!r}{suggestion(given, PRESETS)}")
            return PRESETS[given]
        rest = dict(given)
        return cls(rest.pop("low", cls.low), rest.pop("high", cls.high), rest or None)


def _check(ends: object, name: str) -> None:
    good = (
        isinstance(ends, tuple | list)
        and len(ends) == 2
        and all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends)
    )
    if not good or not 0 <= ends[0] <= ends[1] <= 1:  # type: ignore[index]
        raise InvalidParameter(f"The range {name!r} must be two numbers from 0 to 1 in order, not {ends!r}.")


PRESETS = {
    "photos": Ranges(),
    "text": Ranges((0.0, 0.30), (0.70, 1.0)),
    "melanoma": Ranges(
        own={
            "Human Aligned": {"iou": (0.39, 1.0)},
            "Sufficient Subset": {"ground-truth-coverage": (0.0, 0.30), "saliency-coverage": (0.80, 1.0)},
            "Sufficient Context": {"iou": (0.0, 0.10)},
            "Context Dependant": {"ground-truth-coverage": (0.20, 1.0), "saliency-coverage": (0.0, 0.55)},
        }
    ),
}
"""The ranges of the authors' interface: ImageNet's vehicles and dogs, reviews of beer, moles."""


def members(
    scores: Mapping[str, Tensor], right: Tensor, ranges: str | Ranges | Mapping[str, Any] | None = None
) -> dict[str, Tensor]:
    """Which images belong to each case: name -> ``(N,)`` bool.

    Args:
        scores: iou, ground-truth-coverage and saliency-coverage; NaN belongs to no case.
        right: ``(N,)``; 1 for right predictions, 0 for wrong ones, NaN where that is not known.
        ranges: see `Ranges`.
    """
    chosen = Ranges.of(ranges)
    # a hundredth of a whole number is the number that two decimals mean
    short = {name: (scores[name].double() * 100).round() / 100 for name in COLUMNS}
    known = right.double()
    result = {}
    for name, case in CASES.items():
        inside = known == float(case.right)
        for score in COLUMNS:
            low, high = chosen.bounds(name).get(score, ANY)
            inside = inside & (short[score] >= low) & (short[score] <= high)
        result[name] = inside
    return {name: inside.to(torch.bool) for name, inside in result.items()}
