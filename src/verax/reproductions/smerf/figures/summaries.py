"""From bucket means to the numbers that figures show: means, worst buckets and their intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from verax.reproductions.smerf.evidence import Series
from verax.reproductions.smerf.paper_methods import known
from verax.studies.leaderboards import ORACLE, success_map
from verax.studies.statistics import Buckets, interval

Where = Mapping[str, Sequence[int] | None]
"""Task -> its buckets; None stands for all of them."""


def everywhere(tasks: Sequence[str]) -> Where:
    """All buckets of some tasks."""
    return dict.fromkeys(tasks)


def within(buckets: Buckets, where: Where) -> Buckets:
    """The buckets in `where` that have a score."""
    tasks, groups = buckets.index["task"].astype(str), buckets.index["group"]
    wanted = [
        task in where and (where[task] is None or group in (where[task] or ()))
        for task, group in zip(tasks, groups, strict=True)
    ]
    return buckets.where(np.asarray(wanted, dtype=bool) & (buckets.count > 0).any(axis=1))


def summary(
    series: Series, metric: str, methods: Sequence[str], where: Where, protocol: str = "published"
) -> pd.DataFrame:
    """Mean, deviation and worst value over buckets, one row for each method.

    The mean is unweighted, the worst case is the smallest bucket mean, as in the code behind the paper. A
    method without scores in some of the buckets has no numbers.

    Returns:
        Index method; mean, mean_low, mean_high, std, least, least_low, least_high, buckets.
    """
    chosen = within(series.buckets(metric, protocol), where)
    kept = known(methods, chosen.methods)
    places = [chosen.methods.index(name) for name in kept]
    point, drawn = chosen.point[:, places], chosen.replicates[:, :, places]
    if not len(point):
        nothing = pd.DataFrame(index=pd.Index(kept, name="method"))
        return nothing.reindex(columns=[*_COLUMNS, "buckets"])
    (low, high), (least_low, least_high) = interval(drawn.mean(1)), interval(drawn.min(1))
    columns = (point.mean(0), low, high, point.std(0), point.min(0), least_low, least_high)
    table = pd.DataFrame(dict(zip(_COLUMNS, columns, strict=True)), index=pd.Index(kept, name="method"))
    # The interval of a smallest mean is skewed: the smallest of noisy means is smaller than each of them.
    for name in ("mean", "least"):
        table[f"{name}_low"] = np.fmin(table[f"{name}_low"], table[name])
        table[f"{name}_high"] = np.fmax(table[f"{name}_high"], table[name])
    return table.assign(buckets=len(point))


_COLUMNS = ("mean", "mean_low", "mean_high", "std", "least", "least_low", "least_high")


def reference(
    series: Series, metric: str, where: Where, label: str, protocol: str = "published"
) -> pd.Series | None:
    """The summary of one reference row, such as the oracle; None where it is not there."""
    table = summary(series, metric, [label], where, protocol)
    return None if table.empty or table["mean"].isna().all() else table.iloc[0]


def ceiling(series: Series, metric: str, where: Where) -> float | None:
    """What the truth itself scores on average; None where nothing is known."""
    found = reference(series, metric, where, ORACLE)
    return None if found is None else float(found["mean"])


def bucket_rows(series: Series, metric: str, methods: Sequence[str], task: str, group: int) -> pd.DataFrame:
    """One bucket: index method; mean, mean_low, mean_high."""
    return summary(series, metric, methods, {task: [group]})


def both_roles(series: Series, task: str) -> list[int]:
    """The buckets of a task that have something to focus on and something to avoid."""
    found = []
    for metric in ("pafl", "safl"):
        chosen = within(series.buckets(metric), {task: None})
        found.append(set(chosen.index["group"].tolist()))
    return sorted(found[0] & found[1])


def worst_buckets(series: Series, metric: str, task: str, methods: Sequence[str]) -> dict[str, int]:
    """The bucket in which each method has its smallest mean."""
    chosen = within(series.buckets(metric), {task: None})
    kept = known(methods, chosen.methods)
    return {
        name: int(chosen.index["group"].iloc[int(np.nanargmin(values))])
        for name in kept
        if np.isfinite(values := chosen.point[:, chosen.methods.index(name)]).any()
    }


def successes(series: Series) -> pd.DataFrame:
    """Success and failure on every task, with intervals; see `verax.studies.leaderboards.success_map`."""
    return success_map(series.scores, protocol="published")
