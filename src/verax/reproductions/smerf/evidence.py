"""Evidence: what figures and tables are drawn from, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from torch import Tensor

from verax.cases import Cases
from verax.studies.leaderboards import ORACLE, method_order, select
from verax.studies.statistics import Buckets, bucket_means

ROLES = ("plain", "robust", "alexnet", "vgg16", "resnet18", "vit")
BACKGROUNDS = ("black", "noise", "real")


def role(network: str) -> str:
    """What a network stands for in the paper: the plain CNN, the robust one, or its architecture."""
    architecture, _, recipe = network.partition("@")
    if architecture.startswith("cnn"):
        return "robust" if recipe.startswith("robust") else "plain"
    return architecture


def kind(background: str) -> str:
    """black, noise, or real: photographs, and textures in their place."""
    word = background.partition(":")[0]
    return word if word in ("black", "noise") else "real"


@dataclass(frozen=True)
class View:
    """One network on one task, seen through the first case of every bucket.

    Attributes:
        task: the task's name.
        cases: the first case of each bucket.
        predictions: what the network says about them.
        maps: label -> one map for each of the cases, ``(G, H, W)``, channels summed, magnitude at most 1.
        accuracy: one row for each bucket: group, scene, label, n, right, accuracy, low, high.
        facts: of the task and of the stored network: reasoning, recipe and the like.
    """

    task: str
    cases: Cases
    predictions: Tensor
    maps: Mapping[str, Tensor]
    accuracy: pd.DataFrame
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Series:
    """One network on one background: its scores on all tasks, and a view of each.

    Attributes:
        network: its name, as studies give it.
        background: as studies give it.
        scores: the long table of a run.
        views: one for each task, in the order of the paper.
        curve: values of Figure 15: threshold, sample, value.
    """

    network: str
    background: str
    scores: pd.DataFrame
    views: Sequence[View] = ()
    curve: pd.DataFrame | None = None
    _kept: dict[tuple[str, str], Buckets] = field(default_factory=dict, repr=False, compare=False)

    @property
    def methods(self) -> tuple[str, ...]:
        """All labels in the order of the run."""
        return method_order(self.scores)

    def buckets(self, metric: str, protocol: str = "published") -> Buckets:
        """Bucket means of one metric with bootstrap replicates; computed once."""
        if (metric, protocol) not in self._kept:
            rows = select(self.scores, protocol, metric)
            self._kept[metric, protocol] = bucket_means(rows, self.methods)
        return self._kept[metric, protocol]

    @property
    def has_oracle(self) -> bool:
        """Whether the ceilings of the metrics are known."""
        return ORACLE in self.methods


@dataclass(frozen=True)
class Evidence:
    """Everything that was run.

    Attributes:
        series: one for each network and background under the published protocol.
        sound: the plain network under the sound protocol, where it was run.
    """

    series: Sequence[Series]
    sound: Series | None = None

    def find(self, wanted: str, background: str = "black") -> Series | None:
        """The first series of a role (`ROLES`) on a kind of background (`BACKGROUNDS`)."""
        for found in self.series:
            if role(found.network) == wanted and kind(found.background) == background:
                return found
        return None

    def all_of(self, roles: Iterable[str], background: str = "black") -> list[Series]:
        """The first series of each role that was run."""
        found = [self.find(name, background) for name in roles]
        return [series for series in found if series is not None]
