"""Movements: how the ranking of methods changes with the truth that they are measured against."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from verax.metrics import METRICS
from verax.studies.agreements import spearman
from verax.studies.leaderboards import ALL, UNRANKED, complete, method_order, pairs, select, tasks_of
from verax.studies.statistics import Floats, bucket_means, interval

VIEWS = {
    "rule": ("sound", "focus-share"),
    "counterfactual": ("sound:counterfactual", "focus-share"),
    "shapley": ("sound:shapley", "focus-share"),
    "shapley-distance": ("sound:shapley", "object-distance"),
}
"""Name -> (protocol, metric): the ways to read the truth that are set side by side."""


def kendall(first: Floats, second: Floats) -> Floats:
    """Kendall's tau-b along the last axis; NaN where a side is constant (Kendall, Biometrika 1945)."""
    left, right = np.triu_indices(first.shape[-1], 1)
    a, b = (np.sign(values[..., left] - values[..., right]) for values in (first, second))
    with np.errstate(invalid="ignore", divide="ignore"):
        result: Floats = (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1))
    return result


@dataclass(frozen=True)
class _View:
    methods: tuple[str, ...]
    point: Floats
    replicates: Floats
    sign: float

    def of(self, methods: list[str]) -> tuple[Floats, Floats]:
        """Goodness of some methods and its replicates: more is better."""
        places = [self.methods.index(name) for name in methods]
        return self.sign * self.point[places], self.sign * self.replicates[:, places]


def _views(scores: pd.DataFrame, families: Mapping[str, str], family: str, seed: int) -> dict[str, _View]:
    here = scores[~scores["method"].isin(UNRANKED)]
    if family != ALL:
        here = here[here["task"].isin(tasks_of(families, family))]
    known = pairs(here, "protocol", "metric")
    found = {}
    for name, (protocol, metric) in VIEWS.items():
        if (protocol, metric) in known:
            chosen = select(here, protocol, metric)
            # replicates are drawn by task, bucket and seed, so that all views redraw the same images
            means = complete(bucket_means(chosen, method_order(chosen), seed=seed))
            sign = 1.0 if METRICS.get(metric).higher_is_better else -1.0
            found[name] = _View(means.methods, means.point.mean(0), means.replicates.mean(1), sign)
    return found


def ranks(
    scores: pd.DataFrame, families: Mapping[str, str], *, family: str = ALL, seed: int = 0
) -> pd.DataFrame:
    """Value and rank of every method under each truth that a run has.

    Returns:
        method, truth, metric, value, low, high, rank, rank_low, rank_high, in the order of the first truth;
        intervals of ranks are those of the redrawn images. Empty where a run has only one truth.
    """
    columns = ["method", "truth", "metric", "value", "low", "high", "rank", "rank_low", "rank_high"]
    views = _views(scores, families, family, seed)
    if len(views) < 2:
        return pd.DataFrame(columns=columns)
    parts = []
    for name, view in views.items():
        low, high = interval(view.replicates)
        drawn = np.asarray(rankdata(-view.sign * view.replicates, axis=1, method="average"))
        rank_low, rank_high = interval(drawn)
        parts.append(
            pd.DataFrame(
                {
                    "method": view.methods,
                    "truth": name,
                    "metric": VIEWS[name][1],
                    "value": view.point,
                    "low": low,
                    "high": high,
                    "rank": rankdata(-view.sign * view.point, method="average"),
                    "rank_low": rank_low,
                    "rank_high": rank_high,
                }
            )
        )
    table = pd.concat(parts, ignore_index=True)
    first = parts[0].sort_values("rank", kind="stable")["method"].tolist()
    order = {method: place for place, method in enumerate(first)}
    return table.sort_values(
        ["method", "truth"],
        key=lambda c: c.map(order if c.name == "method" else list(VIEWS).index),
        kind="stable",
    ).reset_index(drop=True)


def correlations(
    scores: pd.DataFrame, families: Mapping[str, str], *, family: str = ALL, seed: int = 0
) -> pd.DataFrame:
    """How far two truths rank the methods alike, for every pair of truths that a run has.

    Returns:
        first, second, methods, spearman, spearman_low, spearman_high, kendall, kendall_low, kendall_high.
        Pairs with fewer than three methods are left out.
    """
    rows = []
    for (one, a), (two, b) in itertools.combinations(_views(scores, families, family, seed).items(), 2):
        methods = [name for name in a.methods if name in b.methods]
        if len(methods) < 3:
            continue
        (point, drawn), (other, redrawn) = a.of(methods), b.of(methods)
        row: dict[str, object] = {"first": one, "second": two, "methods": len(methods)}
        for name, function in (("spearman", spearman), ("kendall", kendall)):
            low, high = interval(function(drawn, redrawn))
            row |= {
                name: float(function(point, other)),
                f"{name}_low": float(low),
                f"{name}_high": float(high),
            }
        rows.append(row)
    names = [f"{name}{end}" for name in ("spearman", "kendall") for end in ("", "_low", "_high")]
    return pd.DataFrame(rows, columns=["first", "second", "methods", *names])
