"""Comparisons: which differences between methods stand, and which ranks are tied.

Blocks are buckets: every method has a mean in each of them. All pairs are compared with the signed-rank test
of Wilcoxon over blocks, corrected by Holm (Scandinavian Journal of Statistics 1979); ranks with the test of
Friedman and the critical difference of Nemenyi, as Demšar (JMLR 2006) proposes for many data sets.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from verax.errors import InvalidInput
from verax.metrics import METRICS
from verax.studies.leaderboards import ALL, HEADLINES, UNRANKED, complete, method_order, select, tasks_of
from verax.studies.statistics import LEVEL, Buckets, Floats, bucket_means, change, interval, levelled, same


@dataclass(frozen=True)
class Ranking:
    """Mean ranks of methods over buckets.

    Attributes:
        ranks: method -> mean rank, the best (smallest) first.
        statistic: Friedman's chi-square.
        p: its p-value.
        critical: mean ranks closer than this are tied at the 5 % level (Nemenyi).
        blocks: buckets that were ranked in.
    """

    ranks: dict[str, float]
    statistic: float
    p: float
    critical: float
    blocks: int

    def tied(self) -> list[tuple[str, ...]]:
        """The largest runs of neighbouring methods whose ranks are closer than the critical difference."""
        names, values = list(self.ranks), list(self.ranks.values())
        ends = [max(j for j in range(len(values)) if values[j] - v < self.critical) for v in values]
        runs = [(i, end) for i, end in enumerate(ends) if end > i and (i == 0 or end > ends[i - 1])]
        return [tuple(names[i : end + 1]) for i, end in runs]


Compared = tuple[Ranking, pd.DataFrame]
"""Mean ranks, and the table of all pairs."""


def holm(p: Floats) -> Floats:
    """Holm's step-down correction of p-values."""
    order = np.argsort(p)
    steps = np.maximum.accumulate(p[order] * (len(p) - np.arange(len(p))))
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(steps, 1.0)
    return corrected


def signed_rank(differences: Floats) -> float:
    """The two-sided p-value of Wilcoxon's signed-rank test; 1 where nothing differs.

    Differences that rounding makes count as none.
    """
    kept = differences[~same(differences, np.zeros_like(differences))]
    return float(stats.wilcoxon(kept).pvalue) if len(kept) else 1.0


def least(blocks: int) -> float:
    """The smallest p that the signed-rank test can give: one method is ahead in every block."""
    return float(min(1.0, 2.0 ** (1 - blocks)))


def hopeless(blocks: int, pairs: int) -> bool:
    """Whether so few blocks can tell no two methods apart once p is corrected for the number of pairs."""
    return least(blocks) * pairs >= 1 - LEVEL


def _blocks(
    scores: pd.DataFrame, families: Mapping[str, str], protocol: str, metric: str, family: str, seed: int
) -> tuple[Buckets, float]:
    """Bucket means of the ranked methods and the sign that makes more better."""
    here = scores[~scores["method"].isin(UNRANKED)]
    if family != ALL:
        here = here[here["task"].isin(tasks_of(families, family))]
    chosen = select(here, protocol, metric)
    sign = 1.0 if METRICS.get(metric).higher_is_better else -1.0
    return complete(bucket_means(chosen, method_order(chosen), seed=seed)), sign


def compared(
    scores: pd.DataFrame,
    families: Mapping[str, str],
    *,
    protocol: str = "sound",
    metric: str | None = None,
    family: str = ALL,
    seed: int = 0,
) -> Compared:
    """What `ranking` and `paired` give, from bucket means that are made once."""
    metric = metric or HEADLINES.get(protocol, "")
    blocks, sign = _blocks(scores, families, protocol, metric, family, seed)
    return _ranking(blocks, sign), _paired(blocks)


def paired(
    scores: pd.DataFrame,
    families: Mapping[str, str],
    *,
    protocol: str = "sound",
    metric: str | None = None,
    family: str = ALL,
    seed: int = 0,
) -> pd.DataFrame:
    """Every pair of ranked methods: the mean difference, its interval, p, and p after Holm's correction.

    Returns:
        first, second, difference (first minus second, in the metric's own direction), low, high, p, holm,
        differ (holm below 0.05); the interval is of the paired hierarchical bootstrap.
    """
    metric = metric or HEADLINES.get(protocol, "")
    return _paired(_blocks(scores, families, protocol, metric, family, seed)[0])


def _paired(blocks: Buckets) -> pd.DataFrame:
    rows = []
    for a, b in itertools.combinations(range(len(blocks.methods)), 2):
        difference = change(blocks.point[:, b], blocks.point[:, a])
        low, high = interval((blocks.replicates[:, :, a] - blocks.replicates[:, :, b]).mean(1))
        p = signed_rank(difference)
        rows.append((blocks.methods[a], blocks.methods[b], difference.mean(), float(low), float(high), p))
    table = pd.DataFrame(rows, columns=["first", "second", "difference", "low", "high", "p"])
    table["holm"] = holm(table["p"].to_numpy(dtype=np.float64))
    table["differ"] = table["holm"] < 1 - LEVEL
    return table


def ranking(
    scores: pd.DataFrame,
    families: Mapping[str, str],
    *,
    protocol: str = "sound",
    metric: str | None = None,
    family: str = ALL,
    seed: int = 0,
) -> Ranking:
    """Mean ranks over buckets with Friedman's test and the critical difference."""
    metric = metric or HEADLINES.get(protocol, "")
    return _ranking(*_blocks(scores, families, protocol, metric, family, seed))


def _ranking(blocks: Buckets, sign: float) -> Ranking:
    count, methods = blocks.point.shape
    if methods < 3 or count < 2:
        raise InvalidInput("Ranks need at least three methods and two buckets.")
    ranks = np.asarray(stats.rankdata(-sign * levelled(blocks.point), axis=1))  # equals share a rank
    mean = ranks.mean(0)
    varies = bool((ranks != ranks[:, :1]).any())
    test = stats.friedmanchisquare(*ranks.T) if varies else None
    quantile = float(stats.studentized_range.ppf(LEVEL, methods, np.inf)) / np.sqrt(2)
    order = np.argsort(mean, kind="stable")
    return Ranking(
        {blocks.methods[i]: float(mean[i]) for i in order},
        float(test.statistic) if test else 0.0,
        float(test.pvalue) if test else 1.0,
        quantile * float(np.sqrt(methods * (methods + 1) / (6 * count))),
        count,
    )
