"""Leaderboards and success maps: bucket means, group means, worst buckets, skill, success and failure.

Aggregation follows the SMERF code: a group's mean is the unweighted mean over the buckets of all its tasks,
its worst case the smallest bucket mean; a bucket is a success when its mean passes 0.5, a failure when more
lies on what must be avoided than on the focus.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from verax.errors import InvalidInput, InvalidParameter, UnknownName, suggestion
from verax.methods import CONTROLS
from verax.methods.controls import CONSTANT
from verax.metrics import METRICS, Metric
from verax.studies.statistics import Buckets, Floats, bucket_means, interval, levelled

ALL = "all"
ORACLE = "oracle"
HEADLINES = {
    "sound": "focus-share",
    "published": "pafl",
    "sound:counterfactual": "focus-share",
    "sound:shapley": "focus-share",
    "exact": "pearson",
    "faithfulness": "deletion",
}
"""The metric that stands for each protocol; the first protocol that a run has leads its report."""

PAIRS = {
    "sound": ("focus-share", "avoid-share"),
    "published": ("pafl", "safl"),
    "sound:counterfactual": ("focus-share", "avoid-share"),
    "sound:shapley": ("focus-share", "avoid-share"),
}
"""The metrics whose comparison makes success and failure, under each protocol."""

SKILLED = (*PAIRS, "exact")
"""Protocols whose ceiling is the truth, so that skill can be measured between it and the best control."""

SUCCESS = 0.5

UNRANKED = (*CONTROLS, *(f"{name}@published" for name in CONTROLS), CONSTANT, ORACLE)
"""Rows that never look at the network and so have no rank."""


def select(scores: pd.DataFrame, protocol: str, metric: str) -> pd.DataFrame:
    """The rows of one metric under one protocol."""
    found = scores[(scores["protocol"] == protocol) & (scores["metric"] == metric)]
    if found.empty:
        known = sorted(scores.loc[scores["protocol"] == protocol, "metric"].unique())
        if not known:
            have = sorted(scores["protocol"].unique())
            raise UnknownName(f"This run has no protocol {protocol!r}{suggestion(protocol, have)}")
        if metric in METRICS and METRICS.get(metric).protocol not in (protocol, protocol.partition(":")[0]):
            other = METRICS.get(metric).protocol
            raise UnknownName(
                f"The metric {metric!r} belongs to the protocol {other!r}, not to {protocol!r}."
            )
        raise UnknownName(f"This run has no metric {metric!r} under {protocol!r}{suggestion(metric, known)}")
    return found


def tasks_of(families: Mapping[str, str], family: str) -> list[str]:
    """The tasks of a family."""
    return [task for task, name in families.items() if name == family]


def pairs(scores: pd.DataFrame, first: str, second: str) -> set[tuple[str, str]]:
    """Which values of two columns occur together."""
    return {(str(a), str(b)) for a, b in scores[[first, second]].drop_duplicates().to_numpy()}


def method_order(scores: pd.DataFrame) -> tuple[str, ...]:
    """The methods of a run in the order in which they first occur."""
    return tuple(str(name) for name in scores["method"].unique())


def places(values: pd.Series[float], higher_is_better: bool) -> pd.Series[float]:
    """Ranks; equals share a place, and what rounding alone parts is equal."""
    level = pd.Series(levelled(values.to_numpy(np.float64)), index=values.index)
    return level.rank(method="min", ascending=not higher_is_better)


@dataclass(frozen=True)
class Standing:
    """Means over a set of buckets with bootstrap replicates: ``(M,)`` and ``(R, M)``."""

    methods: tuple[str, ...]
    point: Floats
    replicates: Floats

    @classmethod
    def mean(cls, buckets: Buckets) -> Standing:
        """Unweighted mean over buckets."""
        return cls(buckets.methods, buckets.point.mean(0), buckets.replicates.mean(1))

    @classmethod
    def worst(cls, buckets: Buckets, higher_is_better: bool) -> Standing:
        """The worst bucket mean."""
        extreme = np.min if higher_is_better else np.max
        return cls(buckets.methods, extreme(buckets.point, axis=0), extreme(buckets.replicates, axis=1))

    def skill(self, higher_is_better: bool) -> tuple[Standing, str] | None:
        """(score - control) / (oracle - control) for the best control, and its name; None without references.

        The best control is found anew in every replicate, so that the interval knows that it was chosen.
        """
        controls = [self.methods.index(name) for name in CONTROLS if name in self.methods]
        if not controls or ORACLE not in self.methods:
            return None
        oracle = self.methods.index(ORACLE)
        pick = np.argmax if higher_is_better else np.argmin
        best = controls[int(pick(self.point[controls]))]
        extreme = np.max if higher_is_better else np.min
        floor = extreme(self.replicates[:, controls], axis=1)[:, None]
        with np.errstate(invalid="ignore", divide="ignore"):
            point = (self.point - self.point[best]) / (self.point[oracle] - self.point[best])
            drawn = (self.replicates - floor) / (self.replicates[:, [oracle]] - floor)
        return Standing(self.methods, point, drawn), self.methods[best]

    def columns(self, name: str) -> dict[str, Floats]:
        """The point estimate and its interval as three columns."""
        low, high = interval(self.replicates)
        return {name: self.point, f"{name}_low": low, f"{name}_high": high}


def complete(buckets: Buckets) -> Buckets:
    """All scored buckets, and the methods that have a mean in every one of them.

    A method that failed somewhere cannot be ranked beside the others, and must not cost them a bucket.
    """
    scored = buckets.where(np.asarray((buckets.count > 0).any(axis=1)))
    whole = np.asarray((scored.count == scored.count.max(axis=1, keepdims=True, initial=0)).all(axis=0))
    if not len(scored.index) or not whole.any():
        raise InvalidInput("No method has scores in every bucket, so none can be ranked.")
    return scored.only(whole)


def leaderboard(
    scores: pd.DataFrame,
    families: Mapping[str, str],
    *,
    protocol: str = "sound",
    metric: str | Metric | None = None,
    family: str = ALL,
    seed: int = 0,
) -> pd.DataFrame:
    """Methods ranked by their mean over the buckets of a family of tasks, with 95 % intervals.

    Args:
        scores: the long table of a run.
        families: task -> family.
        protocol: "sound", "published", "faithfulness" or "exact".
        metric: default focus-share (sound), pafl (published), deletion (faithfulness) or pearson (exact); one
            that is not registered here says itself which direction it has.
        family: "simple", "complex", ..., or "all".
        seed: of the bootstrap.

    Returns:
        rank, method, value, low, high, skill, skill_low, skill_high, control, worst, worst_low, worst_high,
        buckets, samples, degenerate. Controls and the oracle have no rank; methods without scores in some
        bucket (because they failed there) have neither rank nor numbers. Under faithfulness there is no
        skill: the truth is not the ceiling of what the network can be made to do.
    """
    told = metric if isinstance(metric, Metric) else None
    metric = told.name if told else str(metric or HEADLINES.get(protocol, ""))
    chosen = select(scores, protocol, metric)
    if family != ALL:
        known = sorted(set(families.values()))
        if family not in known:
            raise InvalidParameter(
                f"This run has no family of tasks {family!r}{suggestion(family, [*known, ALL])}"
            )
        chosen = chosen[chosen["task"].isin(tasks_of(families, family))]
    higher = (told or METRICS.get(metric)).higher_is_better
    listed = method_order(chosen)
    bounds = told.bounds if told else None
    buckets = complete(bucket_means(chosen, listed, seed=seed, bounds=bounds))
    methods = buckets.methods
    mean = Standing.mean(buckets)
    table = pd.DataFrame(
        {"method": methods, **mean.columns("value"), **Standing.worst(buckets, higher).columns("worst")}
    )
    table = table.rename(columns={"value_low": "low", "value_high": "high"})
    # a sum that is far off is as large as the scale of a map: no control sets a level for it
    skill = mean.skill(higher) if protocol in SKILLED and not metric.startswith("total-gap") else None
    names = ("skill", "skill_low", "skill_high")
    if skill is None:
        table[[*names]] = np.nan
        table["control"] = ""
    else:
        for name, column in skill[0].columns("skill").items():
            table[name] = column
        table["control"] = skill[1]
    reference = table["method"].isin(UNRANKED)
    table.loc[reference, list(names)] = np.nan
    table["samples"] = buckets.count.sum(0)
    missing = pd.DataFrame({"method": [name for name in listed if name not in methods]})
    table = pd.concat([table, missing], ignore_index=True) if len(missing) else table
    table["buckets"] = len(buckets.index)
    counts = chosen.groupby("method", observed=True)["degenerate"].sum()
    table["degenerate"] = table["method"].map(counts).fillna(0).astype(int)
    table["samples"] = table["samples"].fillna(0).astype(int)
    table = table.sort_values("value", ascending=not higher, kind="stable").reset_index(drop=True)
    ranked = ~table["method"].isin(UNRANKED) & table["value"].notna()
    table.insert(0, "rank", pd.array(places(table["value"].where(ranked), higher), dtype="Int64"))
    order = ["rank", "method", "value", "low", "high", *names, "control", "worst", "worst_low", "worst_high"]
    return table[[*order, "buckets", "samples", "degenerate"]]


def success_map(
    scores: pd.DataFrame,
    *,
    protocol: str = "published",
    seed: int = 0,
    methods: tuple[str, ...] | None = None,
) -> pd.DataFrame:
    """Success and failure of every method on every task, as in Figure 7 of the SMERF paper.

    Only buckets with something to focus on *and* something to avoid count.

    Args:
        scores: the long table of a run.
        protocol: one of `PAIRS`.
        seed: of the bootstrap.
        methods: the rows of each task (default: those in the table).

    Returns:
        One row for each task and method: buckets, success (fraction of buckets whose mean passes 0.5) with
        success_low and success_high, failure (fraction in which more lies on what must be avoided) with
        failure_low and failure_high.
    """
    first, second = PAIRS[protocol]
    methods = methods or method_order(scores)
    focus = bucket_means(select(scores, protocol, first), methods, seed=seed)
    avoid = bucket_means(select(scores, protocol, second), methods, seed=seed)
    joined = focus.index.merge(avoid.index.reset_index(), on=["task", "group"], how="left")
    parts = []
    for task in pd.unique(focus.index["task"]):
        here = ((joined["task"] == task) & joined["index"].notna()).to_numpy()
        if not here.any():
            continue
        a, b = focus.where(here), joined["index"].to_numpy()[here].astype(int)
        success = Standing(methods, (a.point > SUCCESS).mean(0), (a.replicates > SUCCESS).mean(1))
        fails = (avoid.point[b] > a.point).mean(0)
        failure = Standing(methods, fails, (avoid.replicates[:, b] > a.replicates).mean(1))
        known = (a.count > 0).all(0) & (avoid.count[b] > 0).all(0)
        columns = {**success.columns("success"), **failure.columns("failure")}
        columns = {name: np.where(known, values, np.nan) for name, values in columns.items()}
        parts.append(pd.DataFrame({"task": task, "method": methods, "buckets": int(here.sum()), **columns}))
    names = ["task", "method", "buckets"]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=names)


def bucket_table(
    scores: pd.DataFrame, *, protocol: str = "sound", metric: str | Metric | None = None, seed: int = 0
) -> pd.DataFrame:
    """Every bucket's mean with its interval: task, group, method, value, low, high, samples."""
    told = metric if isinstance(metric, Metric) else None
    chosen = select(scores, protocol, told.name if told else str(metric or HEADLINES.get(protocol, "")))
    bounds = told.bounds if told else None
    buckets = bucket_means(chosen, method_order(chosen), seed=seed, bounds=bounds)
    low, high = interval(buckets.replicates)
    parts = [
        buckets.index.assign(
            method=name,
            value=buckets.point[:, i],
            low=low[:, i],
            high=high[:, i],
            samples=buckets.count[:, i],
        )
        for i, name in enumerate(buckets.methods)
    ]
    return pd.concat(parts, ignore_index=True)
