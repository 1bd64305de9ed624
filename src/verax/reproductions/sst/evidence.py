"""Evidence: everything that figures, tables and claims are made from."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from verax.cases import Cases
from verax.reproductions.claims import Floats, NotTestable
from verax.reproductions.sst.catalogue import DEEP
from verax.reproductions.sst.published import Behaviour, Maps
from verax.studies.runs import Run
from verax.tasks.climate import Climate

REPLICATES = 1000
Fit = tuple[float, float, float]


@dataclass(eq=False)
class Evidence:
    """What was measured.

    Row 0 of draws is the measurement, the other rows are bootstrap replicates over samples, the same ones
    for all methods and networks, so that differences are paired. They say how sure a mean over samples is,
    not how much another function or another training would change it.

    Attributes:
        task: the field, the function and how many samples networks saw.
        fewer: the same with a tenth of the samples.
        runs: main, side and fewer.
        fits: (network, "all" or "fewer") -> R2 on held-out samples with its interval.
        cases: a few samples.
        maps: method -> raw maps of those, of the main network.
        oracle: method -> mean r with the truth on F itself.
        spread: one row for each random function.
        behaviour: of the published network; None where it is not here.
        published: maps of the published network; None likewise.
        defects: name -> numbers; empty where there is no monthly series.
        recipe: the network that the published recipe gave is among the runs.
    """

    task: Climate
    fewer: Climate
    runs: list[Run]
    fits: dict[tuple[str, str], Fit]
    cases: Cases
    maps: dict[str, Tensor]
    oracle: dict[str, float]
    spread: pd.DataFrame
    behaviour: Behaviour | None = None
    published: Maps | None = None
    defects: dict[str, dict[str, Any]] = field(default_factory=dict)
    recipe: bool = False

    @cached_property
    def scores(self) -> pd.DataFrame:
        """The scores of all runs in one table; columns are plain text."""
        table = pd.concat([run.scores for run in self.runs], ignore_index=True)
        names = ("task", "network", "method", "protocol", "metric")
        return table.astype(dict.fromkeys(names, "str"))

    @cached_property
    def _index(self) -> dict[tuple[str, str, str, str], pd.Series]:
        keys = ["task", "network", "method", "metric"]
        return {
            tuple(map(str, name)): part.groupby("sample")["value"].mean()  # type: ignore[misc]
            for name, part in self.scores.groupby(keys, observed=True)
        }

    def values(
        self, method: str, network: str = DEEP, metric: str = "pearson", *, fewer: bool = False
    ) -> pd.Series:
        """The score of each sample, by its number."""
        name = (self.fewer if fewer else self.task).name
        found = self._index.get((name, network, method, metric))
        if found is None:
            raise NotTestable(f"The run has no {metric} of {method} on {network}.")
        return found

    @cached_property
    def _picks(self) -> dict[int, np.ndarray[Any, Any]]:
        return {}

    def draws(self, values: pd.Series | Floats) -> Floats:
        """``(1 + R,)``; the mean and its bootstrap replicates."""
        plain = np.asarray(values, dtype=np.float64)
        n = len(plain)
        if n not in self._picks:
            rng = np.random.default_rng(n)
            self._picks[n] = rng.integers(0, n, (REPLICATES, n))
        return np.concatenate([[plain.mean()], plain[self._picks[n]].mean(1)])

    def r(self, method: str, network: str = DEEP, metric: str = "pearson", *, fewer: bool = False) -> Floats:
        """The mean agreement of a method with the truth, with replicates."""
        return self.draws(self.values(method, network, metric, fewer=fewer))

    def fit(self, network: str = DEEP, *, fewer: bool = False) -> Fit:
        """R2 with its interval."""
        found = self.fits.get((network, "fewer" if fewer else "all"))
        if found is None:
            raise NotTestable(f"The run has no network {network!r}.")
        return found

    def on_published(self) -> Behaviour:
        """The published network's behaviour, where it is here."""
        if self.behaviour is None:
            raise NotTestable("The published network or the field COBE-SST2 is not here.")
        return self.behaviour

    def defect(self, name: str) -> dict[str, Any]:
        """One of the defects that were run."""
        if name not in self.defects:
            raise NotTestable("COBE-SST2 is not here, so that there is no monthly series.")
        return self.defects[name]
