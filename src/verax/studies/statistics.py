"""Means with intervals: a hierarchical, paired bootstrap (seed > sample), stratified by bucket.

Every replicate draws training seeds of a task with replacement, then samples within each bucket. All
methods share the draws, so that differences between them are paired. (Efron and Tibshirani, 1993;
Field and Welsh, JRSS B 2007, for resampling clusters.)
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from verax import seeding
from verax.errors import InvalidInput
from verax.metrics import METRICS

Floats = NDArray[np.float64]
REPLICATES = 1000
LEVEL = 0.95
_RELATIVE, _ABSOLUTE = 1e-6, 1e-9


def same(one: Floats, two: Floats) -> NDArray[np.bool_]:
    """Where scores are the same but for rounding.

    Maps are float32: two methods that are one formula, and one method on two machines, differ in about the
    eighth digit. Nothing may be won, lost or ranked by that.
    """
    return np.isclose(one, two, rtol=_RELATIVE, atol=_ABSOLUTE)


def change(one: Floats, two: Floats) -> Floats:
    """`two` minus `one`; 0 where only rounding parts them."""
    result: Floats = np.where(same(one, two), 0.0, two - one)
    return result


def levelled(values: Floats) -> Floats:
    """The same numbers ``(..., M)``, those that only rounding parts made equal along the last axis."""
    order = np.argsort(values, axis=-1, kind="stable")
    found = np.take_along_axis(values, order, -1)
    for place in range(1, found.shape[-1]):
        before = found[..., place - 1]
        found[..., place] = np.where(same(found[..., place], before), before, found[..., place])
    result = np.empty_like(found)
    np.put_along_axis(result, order, found, -1)
    return result


def interval(replicates: Floats, axis: int = 0) -> tuple[Floats, Floats]:
    """The central 95 % of bootstrap replicates; NaN where none is defined, as with one sample."""
    tail = (1 - LEVEL) / 2
    nothing = np.isnan(replicates).all(axis=axis)
    if not replicates.size:  # of no method
        return np.full_like(nothing, np.nan, np.float64), np.full_like(nothing, np.nan, np.float64)
    # zeros stand in for what is undefined, because numpy would print a warning for each
    filled = np.where(np.expand_dims(nothing, axis), 0.0, replicates)
    with np.errstate(invalid="ignore"):
        low, high = np.nanquantile(filled, [tail, 1 - tail], axis=axis)
    return np.where(nothing, np.nan, low), np.where(nothing, np.nan, high)


@dataclass(frozen=True)
class Buckets:
    """Bucket means of several methods.

    Attributes:
        index: one row for each bucket: task, group.
        methods: column labels.
        point: ``(B, M)`` means.
        replicates: ``(R, B, M)`` bootstrap means.
        count: ``(B, M)`` scored samples.
    """

    index: pd.DataFrame
    methods: tuple[str, ...]
    point: Floats
    replicates: Floats
    count: NDArray[np.int64]

    def where(self, mask: NDArray[np.bool_]) -> Buckets:
        """Some of the buckets."""
        index = self.index[mask].reset_index(drop=True)
        return Buckets(index, self.methods, self.point[mask], self.replicates[:, mask], self.count[mask])

    def only(self, mask: NDArray[np.bool_]) -> Buckets:
        """Some of the methods."""
        methods = tuple(name for name, kept in zip(self.methods, mask, strict=True) if kept)
        return Buckets(
            self.index, methods, self.point[:, mask], self.replicates[:, :, mask], self.count[:, mask]
        )


def bucket_means(
    scores: pd.DataFrame,
    methods: tuple[str, ...],
    *,
    replicates: int = REPLICATES,
    seed: int = 0,
    bounds: tuple[float, float] | None = None,
) -> Buckets:
    """Bucket means of one metric under one protocol, with bootstrap replicates.

    Args:
        scores: long table with task, network, seed, method, group, sample, value; one metric and protocol.
            Networks count as seeds of their own.
        methods: the columns of the result.
        replicates: bootstrap draws.
        seed: of the draws.
        bounds: what scores can be (default: as the metric says that the table names, where it is known).
    """

    def weights(n: int, *labels: object) -> Floats:
        """How often each of `n` things is drawn, as shares ``(R, n)``; the same labels give the same draws.

        So two metrics of the same samples are resampled alike, and their comparison is paired.
        """
        found: Floats = _drawn(n, replicates, seeding.key("bootstrap", seed, *labels)) / n
        return found

    limits = _bounds(scores, bounds)
    rows, points, draws, counts = [], [], [], []
    for task, of_task in scores.groupby("task", sort=False, observed=True):
        tables = _tables(of_task, methods)
        run_weights = weights(len(tables), task)
        for group in sorted(of_task["group"].unique()):
            total = np.zeros((replicates, len(methods)))
            weight = np.zeros((replicates, len(methods)))
            evenly, number = np.zeros_like(total), np.zeros_like(total)
            means, count = [], np.zeros(len(methods), dtype=np.int64)
            lots: dict[int, tuple[Floats, Floats]] = {}
            for position, (groups, everything) in enumerate(tables):
                values = everything[groups == group]
                if not (size := len(values)):
                    continue
                known = np.isfinite(values)
                if size not in lots:
                    drawn = weights(size, task, group)  # the same images for every network and seed
                    lots[size] = drawn, drawn @ np.ones_like(known)
                drawn, share = lots[size]
                if not (whole := bool(known.all())):
                    share = drawn @ known
                filled = np.where(known, values, 0.0)
                defined = known.sum(0)
                with np.errstate(invalid="ignore", divide="ignore"):
                    mean = drawn @ filled
                    mean /= share
                    middle = filled.sum(0) / defined
                    # a bootstrap of n numbers is too narrow by sqrt((n - 1) / n); one number says nothing,
                    # but one that is defined among others that are not must not silence other networks
                    enough = np.where(defined > 1, defined, size).astype(np.float64)
                    mean -= middle
                    mean *= np.sqrt(enough / (enough - 1))
                    mean += middle
                    np.clip(mean, *limits, out=mean)  # what is widened must stay a possible score
                means.append(middle)
                usable: NDArray[np.bool_] | bool = True
                if not whole:
                    usable = share > 0
                    mean = np.where(usable, mean, 0.0)
                total += run_weights[:, position, None] * mean
                weight += run_weights[:, position, None] * usable
                evenly += mean
                number += usable
                count += defined
            with np.errstate(invalid="ignore", divide="ignore"):
                middle = evenly / number
                # the same for runs; of one alone nothing is known about others
                wider = np.sqrt(number / np.maximum(number - 1, 1))
                draws.append(np.clip(middle + (total / weight - middle) * wider, *limits))
                points.append(_mean(np.array(means)))
            counts.append(count)
            rows.append((task, int(group)))
    shape = (0, len(methods))
    return Buckets(
        pd.DataFrame(rows, columns=["task", "group"]),
        methods,
        np.array(points).reshape(len(rows), len(methods)),
        np.stack(draws, 1) if draws else np.zeros((replicates, *shape)),
        np.array(counts, dtype=np.int64).reshape(len(rows), len(methods)),
    )


def _tables(scores: pd.DataFrame, methods: tuple[str, ...]) -> list[tuple[NDArray[np.int64], Floats]]:
    """For each run of a task (network and seed) the bucket of each sample, and its scores ``(N, M)``.

    Samples are in order of bucket and number. Pivoting run by run gives the same, in ten times the time.
    """
    if scores[["network", "seed", "method"]].isna().any(axis=None):
        raise InvalidInput("The scores are damaged: a row names no method or no network.")
    run = scores.groupby(["network", "seed"], sort=False, observed=True).ngroup().to_numpy()
    codes, names = pd.factorize(scores["method"])
    buckets, bucket = np.unique(scores["group"].to_numpy(), return_inverse=True)
    numbers, number = np.unique(scores["sample"].to_numpy(), return_inverse=True)
    joint = (run * len(buckets) + bucket) * len(numbers) + number
    samples, row = np.unique(joint, return_inverse=True)
    if np.bincount(row * len(names) + codes).max(initial=0) > 1:
        raise InvalidInput("The scores are damaged: a picture has two of one method.")
    columns = {name: place for place, name in enumerate(methods)}
    column = np.array([columns.get(name, -1) for name in names], dtype=np.int64)[codes]
    # methods by samples, so that each run is laid out, and so summed, method by method
    table = np.full((len(methods), len(samples)), np.nan)
    asked = column >= 0
    table[column[asked], row[asked]] = scores["value"].to_numpy(dtype=np.float64)[asked]
    runs, group = samples // (len(buckets) * len(numbers)), samples // len(numbers) % len(buckets)
    edges = np.searchsorted(runs, np.arange(int(runs.max(initial=-1)) + 2))
    return [
        (buckets[group[first:last]], table[:, first:last].copy().T)
        for first, last in itertools.pairwise(edges.tolist())
    ]


def _drawn(n: int, replicates: int, key: int) -> NDArray[np.uint32]:
    """How often each of `n` things is drawn in `n` draws, ``(R, n)``; shared by metrics of a sample."""
    return (_often if n * replicates <= _SMALL else _seldom)(n, replicates, key)


def _draw(n: int, replicates: int, key: int) -> NDArray[np.uint32]:
    generator = np.random.default_rng(key & 0xFFFFFFFFFFFFFFFF)
    return generator.multinomial(n, np.full(n, 1 / n), size=replicates).astype(np.uint32)


_SMALL = 1 << 18  # numbers in a table of draws, which is a megabyte
# a study has about a hundred buckets, and each of its metrics asks for all of them
_often, _seldom = lru_cache(maxsize=128)(_draw), lru_cache(maxsize=8)(_draw)


def _bounds(scores: pd.DataFrame, given: tuple[float, float] | None) -> tuple[float, float]:
    """What the scores of a metric can be; anything where nobody says and the table names no known one."""
    names = scores["metric"].unique() if "metric" in scores else []
    if given is None and (len(names) != 1 or names[0] not in METRICS):
        return -np.inf, np.inf
    low, high = METRICS.get(names[0]).bounds if given is None else given
    return float(min(low, scores["value"].min())), float(max(high, scores["value"].max()))


def _mean(values: Floats) -> Floats:
    """Mean over the first axis without the undefined; NaN where nothing is defined."""
    known = np.isfinite(values)
    result: Floats = np.where(known, values, 0.0).sum(0) / known.sum(0)
    return result
