"""What the paper printed and drew, as data: read from `paper.toml`, checked, typed.

Figures were read off plots, so each number carries how well it could be read.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from verax.errors import InvalidParameter, suggestion

FILE = Path(__file__).with_name("paper.toml")
Statistic = Literal["mean", "min", "std"]
Metric = Literal["pafl", "safl", "piou", "siou", "pmafl", "smafl"]
Network = Literal["plain", "robust", "vgg16", "alexnet"]
Background = Literal["black", "noise", "real"]
Relation = Literal["equals", "at most"]


@dataclass(frozen=True)
class Reference:
    """One number of the paper.

    Attributes:
        figure: where it stands.
        network: the role of the network: plain, robust, vgg16 or alexnet.
        background: black, noise or real.
        metric: of the published protocol.
        family: simple or complex.
        tasks: the settings whose buckets it summarises.
        groups: the buckets; all that have the metric where it is empty.
        statistic: mean, min or std over buckets.
        method: in the paper's abbreviation.
        value: as printed or drawn.
        uncertainty: of reading it.
        undefined: it was NaN and was drawn as 0.
        relation: whether it is a number or a bound.
        note: what makes it doubtful.
    """

    figure: str
    network: Network
    background: Background
    metric: Metric
    family: str
    tasks: tuple[str, ...]
    groups: tuple[int, ...]
    statistic: Statistic
    method: str
    value: float
    uncertainty: float
    undefined: bool
    relation: Relation
    note: str


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Setting(_Strict):
    """A column of Table 1: bucket numbers under each label, and under each set of objects."""

    label0: tuple[int, ...]
    label1: tuple[int, ...]
    focus: dict[str, tuple[int, ...]]
    avoid: dict[str, tuple[int, ...]]


class Figure14(_Strict):
    """Attribution 1 on a letter, 0.8 on Box1 and 0.001 elsewhere."""

    count: int
    pafl: float
    safl: float
    piou: float
    siou: float


class Figure15(_Strict):
    """IOU of one map of integrated gradients under several numbers of pixels."""

    count: tuple[int, ...]
    piou: tuple[float, ...]


class Figure16(_Strict):
    """As Figure 14, with Box1 growing stronger."""

    strength: tuple[float, ...]
    pafl: tuple[float, ...]
    safl: tuple[float, ...]


class Toys(_Strict):
    """The made-up maps of Appendix A.4."""

    figure14: Figure14
    figure15: Figure15
    figure16: Figure16


class _Series(_Strict):
    figure: str
    network: Network = "plain"
    background: Background = "black"
    metric: Metric
    family: Literal["simple", "complex"]
    tasks: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()
    statistic: Statistic
    uncertainty: float = Field(default=0.01, ge=0)
    relation: Relation = "equals"
    note: str = ""
    values: dict[str, float]
    undefined: tuple[str, ...] = ()
    doubtful: dict[str, str] = {}


class _File(_Strict):
    methods: dict[str, tuple[str, ...]]
    families: dict[str, tuple[str, ...]]
    table1: dict[str, Setting]
    table3: dict[str, dict[str, float]]
    accuracy: dict[str, dict[str, float]]
    toys: Toys
    series: tuple[_Series, ...]

    @model_validator(mode="after")
    def _names(self) -> _File:
        known = set(self.methods["all"])
        tasks = {task for family in self.families.values() for task in family}
        for series in self.series:
            wrong: set[str] = {*series.values, *series.undefined, *series.doubtful} - known
            wrong |= {*series.undefined, *series.doubtful} - set(series.values)
            wrong |= set(series.tasks) - set(self.families[series.family])
            if wrong:
                raise ValueError(f"{series.figure} names {sorted(wrong)}")
        for listed in (set(self.table1), set(self.table3), *map(set[str], self.accuracy.values())):
            if listed != tasks:
                raise ValueError(f"a table has the settings {sorted(listed)}")
        return self


@cache
def _file() -> _File:
    values: dict[str, Any] = tomllib.loads(FILE.read_text())
    return _File.model_validate(values)


def methods(which: str = "all") -> tuple[str, ...]:
    """Names of methods in the paper's order: "all" 17, "fifteen", "ten" (Figure 2), "weak", "baselines"."""
    lists = _file().methods
    if which == "fifteen":
        return tuple(name for name in lists["all"] if name not in lists["baselines"])
    if which not in lists:
        raise InvalidParameter(
            f"There is no list of methods {which!r}{suggestion(which, [*lists, 'fifteen'])}"
        )
    return lists[which]


def families() -> dict[str, tuple[str, ...]]:
    """Family -> its settings, in the paper's order."""
    return dict(_file().families)


def settings() -> tuple[str, ...]:
    """The seven settings in the paper's order."""
    return tuple(task for tasks in _file().families.values() for task in tasks)


def table1() -> dict[str, Setting]:
    """Setting -> labels, objects to focus on and objects to avoid, as printed."""
    return dict(_file().table1)


def table3() -> dict[str, dict[int, float]]:
    """Setting -> bucket -> accuracy of the plain network."""
    printed = _file()
    found = {}
    for task, row in printed.table3.items():
        labelled = sorted(printed.table1[task].label0 + printed.table1[task].label1)
        found[task] = {group: row.get(str(group), row["rest"]) for group in labelled}
    return found


def accuracy(background: str = "real") -> dict[str, float]:
    """Setting -> accuracy on another background (Appendix B.9)."""
    return dict(_file().accuracy[background])


def toys() -> Toys:
    """The numbers of Figures 14 to 16."""
    return _file().toys


@cache
def references() -> tuple[Reference, ...]:
    """All numbers of the figures, one by one."""
    printed = _file()
    return tuple(
        Reference(
            figure=series.figure,
            network=series.network,
            background=series.background,
            metric=series.metric,
            family=series.family,
            tasks=series.tasks or printed.families[series.family],
            groups=series.groups,
            statistic=series.statistic,
            method=method,
            value=value,
            uncertainty=series.uncertainty,
            undefined=method in series.undefined,
            relation=series.relation,
            note="; ".join(filter(None, (series.note, series.doubtful.get(method, "")))),
        )
        for series in printed.series
        for method, value in series.values.items()
    )


def headline(reference: Reference) -> bool:
    """Whether a number is one of the forty: ten methods x PAFL and PIOU x simple and complex, plain CNN."""
    return reference.figure in ("Figure 2", "Figure 2 (AFL twin)") and reference.statistic == "mean"
