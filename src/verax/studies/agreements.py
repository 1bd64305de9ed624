"""Agreements: do metrics that ask the network rank methods as the truth does?"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from verax.metrics import METRICS
from verax.studies.leaderboards import ALL, HEADLINES, UNRANKED, complete, method_order, select, tasks_of
from verax.studies.statistics import Buckets, Floats, bucket_means, interval

_SAMPLE = ["task", "network", "seed", "sample"]


def spearman(first: Floats, second: Floats) -> Floats:
    """Rank correlation along the last axis, ties at their mean rank; NaN where a side is constant."""
    ranks = [np.asarray(rankdata(values, axis=-1), dtype=np.float64) for values in (first, second)]
    a, b = (r - r.mean(-1, keepdims=True) for r in ranks)
    with np.errstate(invalid="ignore", divide="ignore"):
        result: Floats = (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1))
    return result


def _goodness(buckets: Buckets, methods: list[str], metric: str) -> tuple[Floats, Floats]:
    """Means and their replicates, ``(M,)`` and ``(R, M)``, turned so that more is better."""
    places = [buckets.methods.index(name) for name in methods]
    sign = 1.0 if METRICS.get(metric).higher_is_better else -1.0
    return sign * buckets.point.mean(0)[places], sign * buckets.replicates.mean(1)[:, places]


def _truth(protocols: Collection[str]) -> str | None:
    """The protocol that knows the truth."""
    return next((name for name in ("sound", "published", "exact") if name in protocols), None)


def needed(protocols: Collection[str]) -> set[tuple[str, str]]:
    """The pairs of protocol and metric that `agreement` compares, in a run that has these protocols."""
    truth = _truth(protocols)
    if truth is None or "faithfulness" not in protocols:
        return set()
    metrics = [name for name in METRICS if METRICS.get(name).protocol == "faithfulness"]
    return {(truth, HEADLINES[truth])} | {("faithfulness", name) for name in metrics}


def agreement(
    scores: pd.DataFrame, families: Mapping[str, str], *, family: str = ALL, seed: int = 0
) -> pd.DataFrame:
    """Rank correlation (Spearman) of each faithfulness metric with the truth, over the ranked methods.

    The truth is focus-share of the sound protocol, or pafl where a run has only the published one. Both sides
    are means over the same samples. Replicates redraw samples, for both sides alike, so the interval says
    what other images would have given for the same methods.

    Returns:
        metric, truth, correlation (1: the same order, best first), low, high, methods. Empty where a run has
        only one side, or fewer than three methods.
    """
    columns = ["metric", "truth", "correlation", "low", "high", "methods"]
    seen = set(scores["protocol"].unique())
    protocol = _truth(seen)
    if protocol is None or "faithfulness" not in seen:
        return pd.DataFrame(columns=columns)
    here = scores[~scores["method"].isin(UNRANKED)]
    if family != ALL:
        here = here[here["task"].isin(tasks_of(families, family))]
    truth = select(here, protocol, HEADLINES[protocol])
    listed = method_order(truth)
    right = complete(bucket_means(truth, listed, seed=seed))
    known = pd.MultiIndex.from_frame(truth[_SAMPLE].drop_duplicates().astype(str))
    rows = []
    for metric in [name for name in METRICS if METRICS.get(name).protocol == "faithfulness"]:
        chosen = here[(here["protocol"] == "faithfulness") & (here["metric"] == metric)]
        # samples are few beside rows: each is looked up once
        samples = pd.MultiIndex.from_frame(chosen[_SAMPLE].drop_duplicates().astype(str))
        place = chosen.groupby(_SAMPLE, observed=True, sort=False).ngroup().to_numpy()
        chosen = chosen[samples.isin(known)[place]]
        if chosen.empty:
            continue
        left = complete(bucket_means(chosen, listed, seed=seed))
        methods = [name for name in right.methods if name in left.methods]
        if len(methods) < 3:
            continue
        (point, drawn), (wanted, wished) = (
            _goodness(left, methods, metric),
            _goodness(right, methods, HEADLINES[protocol]),
        )
        low, high = interval(spearman(drawn, wished))
        value = float(spearman(point, wanted))
        rows.append((metric, HEADLINES[protocol], value, float(low), float(high), len(methods)))
    return pd.DataFrame(rows, columns=columns)
