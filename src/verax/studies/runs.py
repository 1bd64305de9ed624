"""Runs: the folders that studies leave behind."""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
from torch import Tensor

from verax import registry
from verax.errors import InvalidParameter, MissingFile
from verax.metrics import Metric
from verax.networks.library import read_tensors
from verax.studies import agreements, leaderboards, manifests, movements, tables
from verax.studies import tiers as levels
from verax.studies.identification import TABLES, Identification
from verax.studies.listings import Leaderboard

SCORES, MANIFEST, MAPS, CASES, REPORT = (
    "scores.parquet",
    "manifest.json",
    "maps.safetensors",
    "cases.safetensors",
    "report.html",
)
IDENTIFICATION = "identification-{}.csv"
CONSISTENCY = "consistency.csv"
UNFINISHED = "unfinished"
"""Marks the manifest of a run that is being written: its scores may be there, the rest is not."""

_KEPT = 1 << 29
"""Bytes of scores that a run keeps in memory, as long as nobody asks for all of them."""


def _size(table: pd.DataFrame) -> int:
    return int(table.memory_usage().sum())


class Run:
    """A finished study.

    Attributes:
        folder: where everything is: scores.parquet, manifest.json, figures/, report.html.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._networks: frozenset[str] | None = None  # all
        self._read: dict[frozenset[tuple[str, str]], pd.DataFrame] = {}
        if not (self.folder / MANIFEST).is_file():
            raise MissingFile(f"{str(self.folder)!r} is not a run: it has no {MANIFEST}.")

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """The study, versions, hardware, seeds, hashes, certificates, timings and failures."""
        try:
            found = json.loads((self.folder / MANIFEST).read_text())
        except (OSError, ValueError) as error:
            raise MissingFile(f"The manifest of {str(self.folder)!r} cannot be read.") from error
        if isinstance(found, dict) and "model" in found and "study" not in found:
            raise MissingFile(
                f"{str(self.folder)!r} is an alignment (verax align), not a run: verax.load reads it, and "
                "verax open shows its page."
            )
        if not isinstance(found, dict) or "study" not in found:
            raise MissingFile(f"The manifest of {str(self.folder)!r} is damaged.")
        if found.get(UNFINISHED):
            raise MissingFile(
                f"The run in {str(self.folder)!r} was stopped before it was written: run its command again."
            )
        manifests.check(found, str(self.folder))
        return found

    @cached_property
    def contents(self) -> pd.DataFrame:
        """Which task, network, method, protocol and metric have scores together, in the table's order."""
        if "scores" in self.__dict__:
            return self.scores[list(tables.WORDS)].drop_duplicates().astype(str).reset_index(drop=True)
        found = tables.contents(self.folder / SCORES)
        if self._networks is not None:
            found = found[found["network"].isin(list(self._networks))].reset_index(drop=True)
        return found

    @property
    def protocols(self) -> set[str]:
        """The protocols that have scores."""
        return set(self.contents["protocol"])

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that have scores, in the order of the table."""
        return leaderboards.method_order(self.contents)

    @cached_property
    def scores(self) -> pd.DataFrame:
        """One row for each sample, method and metric, all of them in memory; `rows` reads some."""
        return tables.read(self.folder / SCORES, self._networks)

    def rows(self, protocol: str, *metrics: str) -> pd.DataFrame:
        """The scores of some metrics under one protocol, read without the others."""
        for metric in metrics:
            leaderboards.select(self.contents, protocol, metric)  # which says what there is
        return self.some([(protocol, metric) for metric in metrics])

    def some(self, kinds: Collection[tuple[str, str]]) -> pd.DataFrame:
        """The scores of some pairs of protocol and metric; of a pair that the run does not have, nothing.

        What was read last is kept, up to `_KEPT` bytes, since many tables are made of the same metric.
        """
        wanted = frozenset(kinds)
        if "scores" in self.__dict__:  # they are in memory already
            mask = np.zeros(len(self.scores), dtype=bool)
            for protocol, metric in wanted:
                mask |= (self.scores["protocol"] == protocol) & (self.scores["metric"] == metric)
            return self.scores[mask]
        if wanted not in self._read:
            found = tables.rows(self.folder / SCORES, wanted, self._networks)
            self._read[wanted] = found
            while len(self._read) > 1 and sum(map(_size, self._read.values())) > _KEPT:
                del self._read[next(iter(self._read))]
        self._read[wanted] = self._read.pop(wanted)  # the last that was used
        return self._read[wanted].copy(deep=False)

    @property
    def families(self) -> dict[str, str]:
        """Task -> family."""
        return {task["name"]: task["family"] for task in self.manifest["tasks"]}

    @property
    def tiers(self) -> dict[str, int]:
        """Network -> how firmly its truth is known; see `verax.studies.tiers`."""
        return levels.tiers(self.manifest)

    def of_tier(self, tier: int) -> Run:
        """The same run, with the scores and networks of one tier alone."""
        chosen = {network for network, known in self.tiers.items() if known == tier}
        if not chosen:
            have = sorted(set(self.tiers.values()))
            raise InvalidParameter(f"This run has scores of tier {' and '.join(map(str, have))}, not {tier}.")
        part = Run(self.folder)
        entries = {
            key: [entry for entry in self.manifest[key] if entry["network"] in chosen]
            for key in ("networks", "certificates")
        }
        # cached properties: what is put here is what they give
        part.__dict__["manifest"] = {**self.manifest, **entries}
        part._networks = frozenset(chosen)
        rows = self.contents["network"].isin(list(chosen))
        part.__dict__["contents"] = self.contents[rows].reset_index(drop=True)
        if "scores" in self.__dict__:
            part.__dict__["scores"] = self.scores[self.scores["network"].isin(chosen)]
        return part

    def by_tier(self) -> list[tuple[int, Run]]:
        """The run, parted by the tier of its networks: the tier of most trained networks first."""
        known = sorted(set(self.tiers.values()), key=lambda tier: (tier == levels.NONE, -tier))
        return [(known[0], self)] if len(known) == 1 else [(tier, self.of_tier(tier)) for tier in known]

    @property
    def main(self) -> str:
        """The protocol that leads: the first of `leaderboards.HEADLINES` that the run has."""
        return next(name for name in leaderboards.HEADLINES if name in self.protocols)

    @property
    def metrics(self) -> dict[str, Metric]:
        """The own metrics of the study by name, as its manifest tells of them."""
        return {
            entry["name"]: Metric(
                entry["name"],
                entry["about"],
                bool(entry["higher_is_better"]),
                (float(entry["bounds"][0]), float(entry["bounds"][1])),
                entry["protocol"],
                entry["paper"],
                version=entry["version"],
            )
            for entry in self.manifest.get("metrics", [])
        }

    def leaderboard(
        self, protocol: str = "sound", metric: str | None = None, family: str = leaderboards.ALL
    ) -> pd.DataFrame:
        """Methods ranked by their mean, with 95 % intervals; see `verax.studies.leaderboards.leaderboard`.

        The column tier says how firmly the truth is known: that of the weakest network that went in.
        Printed, the table leads with method, value and skill, each with its interval.
        """
        seed = int(self.manifest["study"]["seed"])
        chosen = self.rows(protocol, metric or leaderboards.HEADLINES.get(protocol, ""))
        table = leaderboards.leaderboard(
            chosen,
            self.families,
            protocol=protocol,
            metric=self.metrics.get(metric or "", metric),
            family=family,
            seed=seed,
        )
        return Leaderboard(table.assign(tier=levels.weakest(list(self.tiers.values()))))

    def truths(self, family: str = leaderboards.ALL) -> pd.DataFrame:
        """Ranks of methods under each truth, side by side; see `verax.studies.movements.ranks`."""
        seed = int(self.manifest["study"]["seed"])
        return movements.ranks(self._views(), self.families, family=family, seed=seed)

    def truth_correlations(self, family: str = leaderboards.ALL) -> pd.DataFrame:
        """How far the truths rank alike; see `verax.studies.movements.correlations`."""
        seed = int(self.manifest["study"]["seed"])
        return movements.correlations(self._views(), self.families, family=family, seed=seed)

    def _views(self) -> pd.DataFrame:
        """The scores under each truth; none where there is only one."""
        known = leaderboards.pairs(self.contents, "protocol", "metric")
        kinds = [kind for kind in movements.VIEWS.values() if kind in known]
        return self.some(kinds if len(kinds) > 1 else [])

    def buckets(self, protocol: str = "sound", metric: str | None = None) -> pd.DataFrame:
        """Every bucket's mean with its 95 % interval."""
        chosen = self.rows(protocol, metric or leaderboards.HEADLINES.get(protocol, ""))
        told = self.metrics.get(metric or "", metric)
        table = leaderboards.bucket_table(chosen, protocol=protocol, metric=told)
        scenes = {task["name"]: task["groups"] for task in self.manifest["tasks"]}
        words = [
            scenes[task].get(str(group), f"bucket {group}")
            for task, group in zip(table["task"], table["group"], strict=True)
        ]
        table.insert(2, "scene", words)
        return table

    def success_map(self, protocol: str = "published") -> pd.DataFrame:
        """Success and failure on every task, as in Figure 7 of the SMERF paper."""
        pair = leaderboards.PAIRS.get(protocol, ())
        return leaderboards.success_map(self.rows(protocol, *pair), protocol=protocol, methods=self.methods)

    def agreement(self, family: str = leaderboards.ALL) -> pd.DataFrame:
        """How far faithfulness ranks methods as the truth does; see `verax.studies.agreements.agreement`."""
        seed = int(self.manifest["study"]["seed"])
        kinds = leaderboards.pairs(self.contents, "protocol", "metric") & agreements.needed(self.protocols)
        return agreements.agreement(self.some(kinds), self.families, family=family, seed=seed)

    def identification(self) -> Identification | None:
        """What can be read off the maps about the reasoning, with the column network, where it was asked."""
        paths = {name: self.folder / IDENTIFICATION.format(name) for name in TABLES}
        if not all(path.is_file() for path in paths.values()):
            return None
        try:
            return Identification.joined([{name: pd.read_csv(path) for name, path in paths.items()}])
        except (OSError, ValueError) as error:
            raise MissingFile(f"The identification of {str(self.folder)!r} cannot be read.") from error

    def consistency(self) -> pd.DataFrame | None:
        """How alike the maps of networks trained alike are, where vectors and several trainings were studied.

        See `verax.studies.consistency`.
        """
        path = self.folder / CONSISTENCY
        if not path.is_file():
            return None
        try:
            return pd.read_csv(path)
        except (OSError, ValueError) as error:
            raise MissingFile(f"The consistency of {str(self.folder)!r} cannot be read.") from error

    @property
    def failures(self) -> list[dict[str, str]]:
        """What could not be computed, and why: unit, method, reason."""
        return list(self.manifest["failures"])

    def maps(self) -> dict[str, Tensor]:
        """``task|network|seed|method`` -> one scaled map for each bucket ``(G, H, W)``; of vectors, a few."""
        return read_tensors(self.folder / MAPS)

    def cases(self) -> dict[str, Tensor]:
        """The case behind each map: ``task|inputs``, likewise group, ids and focus and avoid, or values."""
        return read_tensors(self.folder / CASES)

    def to_csv(self, path: str | Path) -> Path:
        """Write all scores as CSV, one row for each sample, method and metric; gives the path.

        `verax.studies.exports` has other formats.
        """
        return cast("Path", registry.load("verax.studies.exports:to_csv")(self, path))

    def report(self) -> Path:
        """Write figures and the report, and give the path of ``report.html``."""
        # Studies stand left of reports and may not import them: the name is resolved when it is needed.
        return cast("Path", registry.load("verax.reports.html:write")(self))

    def _repr_html_(self) -> str:
        # pictures are drawn by reports, which stand to the right: the name is resolved when it is needed
        return cast("str", registry.load("verax.reports.notebook:run")(self))

    def __repr__(self) -> str:
        study = self.manifest["study"]
        count, lost = len(study["tasks"]), len(self.failures)
        tasks = f"{count} task{'s' * (count != 1)}"
        failed = f", {lost} failure{'s' * (lost != 1)}" if lost else ""
        return f"Run({study['name']!r}, {tasks}{failed}, folder={str(self.folder)!r})"
