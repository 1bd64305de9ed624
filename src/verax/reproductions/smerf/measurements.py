"""Measurements: bucket means of a run, laid out as the paper's figures and claims ask for them.

Row 0 of every array of draws is the measurement itself, the other rows are bootstrap replicates (images
within buckets, and training seeds where there are several). A statistic is computed on all rows alike, so
that whatever is claimed has its interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from verax.errors import InvalidInput, InvalidParameter, UnknownName, suggestion
from verax.reproductions.claims import Floats, NotTestable
from verax.reproductions.smerf import paper
from verax.studies import statistics

Undefined = Literal["zero", "ignored"]
BLACK, PLAIN = "black", "plain"

NETWORKS: dict[str, tuple[str, ...]] = {
    PLAIN: ("cnn@published", "cnn", "cnn4"),
    "robust": ("cnn@robust", "cnn4@robust"),
    "vgg16": ("vgg16@published", "vgg16"),
    "alexnet": ("alexnet@published", "alexnet"),
}
"""Role -> names of networks that play it, the best first."""

ALIASES: dict[str, tuple[str, ...]] = {"Random": ("random",), "Edge": ("edge@published",)}
"""The paper's name -> labels that stand for it when it is not there itself."""

ORACLE, EVERYTHING = "oracle", "input"
LEARNED = 0.9  # accuracy below which no try is accepted, whatever the background
DRAWS = 400
"""Replicates: enough for the second digit of an interval, which is all that a page shows."""


@dataclass(frozen=True)
class Table:
    """Bucket means of one metric, network and background.

    Attributes:
        index: one row for each bucket: task (without the world's name), group.
        methods: labels, in the order of the last axis.
        draws: ``(1 + R, B, M)`` means.
        undefined: ``(B, M)``: some map of the bucket was constant, where the original divides by zero.
    """

    index: pd.DataFrame
    methods: tuple[str, ...]
    draws: Floats
    undefined: NDArray[np.bool_]


class Measurements:
    """The published scores of a run, and of the same run on other backgrounds.

    Args:
        scores: long table of a run with the published protocol, on black.
        networks: role (plain, robust, vgg16, alexnet) -> name of a network, or family -> name of a network.
        backgrounds: "noise" or "real" -> long table of a run on it.
        certificates: as in the manifest of the run; on other backgrounds they have a ``background``.
        identifiability: method -> (accuracy, low, high, chance) of naming the reasoning from a map.
        renderer: of the run's pictures.
        replicates: bootstrap draws.
        seed: of the bootstrap.
    """

    def __init__(
        self,
        scores: pd.DataFrame,
        *,
        networks: Mapping[str, str | Mapping[str, str]] | None = None,
        backgrounds: Mapping[str, pd.DataFrame] | None = None,
        certificates: Sequence[Mapping[str, Any]] = (),
        identifiability: Mapping[str, tuple[float, float, float, float]] | None = None,
        renderer: str = "published",
        replicates: int = DRAWS,
        seed: int = 0,
    ) -> None:
        for role in networks or {}:
            if role not in NETWORKS:
                raise InvalidParameter(f"There is no role {role!r} for a network{suggestion(role, NETWORKS)}")
        if "published" not in set(scores["protocol"].unique()):
            raise InvalidInput("The paper's claims need scores under the published protocol.")
        self.scores = {BLACK: _published(scores)} | {
            name: _published(table) for name, table in (backgrounds or {}).items()
        }
        self.certificates = list(certificates)
        self.identifiability = dict(identifiability or {})
        self.renderer, self.replicates, self.seed = renderer, replicates, seed
        self._given = dict(networks or {})
        self._tables: dict[tuple[str, str, str, Undefined], Table] = {}

    @cached_property
    def networks(self) -> dict[str, dict[str, str]]:
        """Role -> family -> name of the network, for the roles that the run has."""
        known = set(self.scores[BLACK]["network"])
        found: dict[str, dict[str, str]] = {}
        for role, names in NETWORKS.items():
            given = self._given.get(role)
            if isinstance(given, str):
                given = dict.fromkeys(paper.families(), given)
            if given is None:
                match = next((name for name in names if name in known), None)
                given = dict.fromkeys(paper.families(), match) if match is not None else None
            elif missing := set(given.values()) - known:
                name = sorted(missing)[0]
                raise UnknownName(f"This run has no network {name!r}{suggestion(name, sorted(known))}")
            if given is not None:
                found[role] = dict(given)
        return found

    @cached_property
    def seeds(self) -> int:
        """Training seeds of the plain network."""
        rows = self.scores[BLACK]
        return int(rows.loc[rows["network"].isin(self.networks.get(PLAIN, {}).values()), "seed"].nunique())

    def table(
        self, metric: str, network: str = PLAIN, background: str = BLACK, undefined: Undefined = "zero"
    ) -> Table:
        """Bucket means of one metric.

        Args:
            metric: of the published protocol.
            network: its role.
            background: black, noise or real.
            undefined: what a constant map scores where the original gets NaN: 0, or nothing at all.
        """
        key = (metric, network, background, undefined)
        if key not in self._tables:
            self._tables[key] = self._table(*key)
        return self._tables[key]

    def draws(
        self,
        metric: str,
        methods: Sequence[str],
        *,
        family: str | None = None,
        tasks: Sequence[str] = (),
        groups: Sequence[int] = (),
        both: bool = False,
        network: str = PLAIN,
        background: str = BLACK,
        undefined: Undefined = "zero",
    ) -> Floats:
        """Bucket means ``(1 + R, B, M)`` of the buckets meant, for the methods asked for.

        Args:
            metric: of the published protocol.
            methods: the paper's names, "oracle" or "input".
            family: simple or complex; without it and without `tasks`, all settings.
            tasks: some settings only.
            groups: some buckets only.
            both: only buckets with something to focus on and something to avoid.
            network: its role.
            background: black, noise or real.
            undefined: see `table`.
        """
        table = self.table(metric, network, background, undefined)
        chosen = self.buckets(metric, family, tasks, groups, both, network, background)
        columns = [self._column(table, name, network) for name in methods]
        found: Floats = table.draws[:, chosen][:, :, columns]
        known = np.isfinite(found[0])
        if undefined == "zero" and not known.all():
            lost = methods[int(np.flatnonzero(~known.all(0))[0])]
            raise NotTestable(f"{lost} has no {metric.upper()} in some bucket of this run.")
        if undefined == "zero" and not np.isfinite(found).all():
            # replicates that are NaN would compare as false, and settle claims either way
            raise NotTestable("One image in each bucket says nothing about others: a claim needs two.")
        return found

    def buckets(
        self,
        metric: str,
        family: str | None = None,
        tasks: Sequence[str] = (),
        groups: Sequence[int] = (),
        both: bool = False,
        network: str = PLAIN,
        background: str = BLACK,
    ) -> NDArray[np.int64]:
        """Positions of the buckets meant in the table of a metric."""
        index = self.table(metric, network, background).index
        wanted = tuple(tasks) or (paper.families()[family] if family else paper.settings())
        missing = [task for task in wanted if task not in set(index["task"])]
        if missing:
            raise NotTestable(f"The run has no {metric.upper()} of {network} on {missing[0]} ({background}).")
        self._check_learned(wanted, network, background)
        mask = index["task"].isin(wanted).to_numpy()
        if groups:
            mask = mask & index["group"].isin(groups).to_numpy()
        if both:
            other = {"p": "s", "s": "p"}[metric[0]] + metric[1:]
            pairs = set(self.table(other, network, background).index.itertuples(index=False, name=None))
            mask = mask & np.array([pair in pairs for pair in index.itertuples(index=False, name=None)])
        return np.flatnonzero(mask)

    def _check_learned(self, tasks: Sequence[str], network: str, background: str) -> None:
        """Refuse settings whose network never learned them: the paper accepts none below 0.9."""
        where = None if background == BLACK else background
        names = set(self.networks.get(network, {}).values())
        for row in self.certificates:
            task, right = str(row["task"]).rpartition("/")[2], float(row.get("mean_accuracy", 1.0))
            meant = task in tasks and row["network"] in names and row.get("background") == where
            if meant and right < LEARNED:
                raise NotTestable(
                    f"The {network} network of this run did not learn {task} on the {background} background: "
                    f"it is right about {right:.0%} of the scenes."
                )

    def any_undefined(
        self, metric: str, method: str, positions: NDArray[np.int64], network: str, background: str
    ) -> bool:
        """Whether the original would have got NaN for the mean over some buckets."""
        table = self.table(metric, network, background)
        return bool(table.undefined[positions, self._column(table, method, network)].any())

    def _column(self, table: Table, method: str, network: str) -> int:
        for name in (method, *ALIASES.get(method, ())):
            if name in table.methods:
                return table.methods.index(name)
        raise NotTestable(f"The run has no {method} for the {network} network.")

    def _table(self, metric: str, network: str, background: str, undefined: Undefined) -> Table:
        if background not in self.scores:
            raise NotTestable(f"The run was not done on the {background} background.")
        if network not in self.networks:
            raise NotTestable(f"The run has no {network} network.")
        rows = self.scores[background]
        names = rows["family"].map(self.networks[network])
        rows = rows[(rows["metric"] == metric) & (rows["network"] == names)]
        if rows.empty:
            raise NotTestable(f"The run has no {metric.upper()} of the {network} network on {background}.")
        methods = tuple(pd.unique(rows["method"]))
        lost = rows["degenerate"].astype(bool) & (not metric.endswith("iou"))
        used = rows.assign(value=rows["value"].mask(lost)) if undefined == "ignored" else rows
        means = statistics.bucket_means(used, methods, replicates=self.replicates, seed=self.seed)
        counts = rows[lost].groupby(["task", "group", "method"]).size()
        flags = np.array(
            [[counts.get((t, g, m), 0) > 0 for m in methods] for t, g in means.index.itertuples(index=False)]
        )
        # the bootstrap widens few samples about their mean, and so may leave the metrics' range, 0 and more
        draws = np.concatenate([means.point[None], np.maximum(means.replicates, 0.0)])
        return Table(means.index, methods, draws, flags)


def measure(scores: pd.DataFrame | Measurements, **options: Any) -> Measurements:
    """Measurements as they are, or from a long table of scores with options of `Measurements`."""
    return scores if isinstance(scores, Measurements) else Measurements(scores, **options)


def _published(scores: pd.DataFrame) -> pd.DataFrame:
    """The rows of the seven settings under the published protocol, as plain strings, with their family."""
    families = {task: family for family, tasks in paper.families().items() for task in tasks}
    rows = scores[scores["protocol"].astype(str) == "published"]
    for column in ("task", "network", "method", "metric"):
        rows = rows.assign(**{column: rows[column].astype(str)})
    rows = rows.assign(task=rows["task"].str.rpartition("/")[2])
    rows = rows[rows["task"].isin(families)]
    order = {task: position for position, task in enumerate(paper.settings())}
    rows = rows.sort_values("task", key=lambda column: column.map(order), kind="stable")
    return rows.assign(family=rows["task"].map(families))
