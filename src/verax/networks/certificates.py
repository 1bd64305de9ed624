"""Certificates: the evidence that a network follows a task's reasoning.

Kim, Plumb and Talwalkar (ICML 2022) argue that buckets which differ in one object show what a network
relies on, and check the accuracy in each bucket. A certificate does both: (a) the accuracy in every bucket
on fresh samples, and (b) interventions: in the *same* scene one object is removed, added, moved or swapped
while everything else stays as it is, and the prediction has to follow the reasoning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from verax import registry
from verax.errors import InvalidInput, InvalidParameter
from verax.networks.anatomy import device_of
from verax.networks.inference import halved, predictions
from verax.seeding import Streams
from verax.tasks.base import Task, Trainable

ACCURACY = 0.99
FOLLOW = 0.97
Z = 1.959963984540054  # two-sided 95 %

ACCURACY_COLUMNS = ["group", "scene", "label", "n", "right", "accuracy", "low", "high"]
FOLLOW_COLUMNS = ["group", "scene", "object", "edit", "n", "followed", "follow", "low", "high"]


def wilson(successes: Any, n: Any) -> tuple[Any, Any]:
    """The 95 % Wilson score interval of a proportion (Wilson, JASA 1927)."""
    k, n = np.asarray(successes, dtype=float), np.asarray(n, dtype=float)
    centre = (k + Z * Z / 2) / (n + Z * Z)
    half = Z / (n + Z * Z) * np.sqrt(k * (n - k) / n + Z * Z / 4)
    return np.clip(centre - half, 0, 1), np.clip(centre + half, 0, 1)


def enough(limit: float) -> int | None:
    """How many scenes, all of them right, have a Wilson interval above a limit; None where no number has."""
    if limit >= 1:
        return None
    count = max(1, math.floor(limit * Z * Z / (1 - limit)))  # the lower end is n / (n + Z^2)
    return count if wilson(count, count)[0] >= limit else count + 1


def too_few(n: int, limit: float) -> str:
    """Why so many scenes cannot show that a rate reaches a limit, and how many could; "" where they can."""
    need = enough(limit)
    if need is not None and n >= need:
        return ""
    could = "no number could" if need is None else f"{need} could, if all are right"
    return f"{n} scene{'s' * (n != 1)} of a bucket cannot show {limit} ({could})"


@dataclass(frozen=True)
class Thresholds:
    """What a network must reach in its worst bucket and in its worst intervention."""

    accuracy: float = ACCURACY
    follow: float = FOLLOW

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0 <= value <= 1:
                raise InvalidParameter(f"The threshold for {name} is a share from 0 to 1, not {value!r}.")


@dataclass(frozen=True)
class Certificate:
    """The evidence, and the verdict under the stated thresholds.

    Attributes:
        task: the task's name.
        accuracy: one row for each bucket: n, right, accuracy, low, high.
        interventions: one row for each bucket, object and edit: n, followed, follow, low, high.
        left_out: edits that led to a scene without a label, so that there is nothing to follow.
        thresholds: what had to be reached.
        seed: the seed of the fresh samples.
    """

    task: str
    accuracy: pd.DataFrame
    interventions: pd.DataFrame
    left_out: int
    thresholds: Thresholds
    seed: int

    @property
    def worst_accuracy(self) -> float:
        """The accuracy in the worst bucket."""
        return float(self.accuracy["accuracy"].min())

    @property
    def worst_follow(self) -> float:
        """The follow rate of the worst intervention."""
        return float(self.interventions["follow"].min())

    @property
    def passed(self) -> bool:
        """Whether the worst bucket and the worst intervention reach their thresholds."""
        limits = self.thresholds
        return self.worst_accuracy >= limits.accuracy and self.worst_follow >= limits.follow

    @property
    def doubt(self) -> str:
        """Why a passed certificate shows less than it asks for: too few scenes; "" where they are enough."""
        found = _evidence(self.accuracy, "accuracy")
        return too_few(int(found["n"]), self.thresholds.accuracy) if self.passed and found else ""

    def summary(self) -> dict[str, Any]:
        """The certificate in a few numbers, for manifests and records."""
        return {
            "task": self.task,
            "passed": self.passed,
            "worst_accuracy": self.worst_accuracy,
            "worst_accuracy_of": _evidence(self.accuracy, "accuracy"),
            "mean_accuracy": float(self.accuracy["right"].sum() / self.accuracy["n"].sum()),
            "worst_follow": self.worst_follow,
            "worst_follow_of": _evidence(self.interventions, "follow"),
            "mean_follow": float(self.interventions["followed"].sum() / self.interventions["n"].sum()),
            "samples": int(self.accuracy["n"].sum()),
            "edits": int(self.interventions["n"].sum()),
            "left_out": self.left_out,
            "thresholds": asdict(self.thresholds),
            "seed": self.seed,
        }

    def _repr_html_(self) -> str:
        # pictures are drawn by reports, which stand to the right: the name is resolved when it is needed
        return cast("str", registry.load("verax.reports.notebook:certificate")(self))

    def __repr__(self) -> str:
        return f"Certificate({self})"

    def __str__(self) -> str:
        verdict = "passes" if self.passed else "FAILS"
        verdict += f", though {self.doubt}" if self.doubt else ""
        return (
            f"{self.task}: the network {verdict}: worst bucket {self.worst_accuracy:.3f} "
            f"(needs {self.thresholds.accuracy}), worst intervention {self.worst_follow:.3f} "
            f"(needs {self.thresholds.follow})"
        )


def _evidence(table: pd.DataFrame, rate: str) -> dict[str, float] | None:
    """How many samples stand behind the worst rate, and its 95 % interval; of equals those with fewest."""
    rows = table[table[rate] == table[rate].min()]
    if rows.empty:
        return None
    row = rows.loc[rows["n"].idxmin()]
    return {"n": int(row["n"]), "low": float(row["low"]), "high": float(row["high"])}


def _count(frame: pd.DataFrame, by: list[str], hit: str, rate: str) -> pd.DataFrame:
    table = frame.groupby(by, sort=False)["hit"].agg(["size", "sum"]).reset_index()
    table = table.rename(columns={"size": "n", "sum": hit})
    table[rate] = table[hit] / table["n"]
    table["low"], table["high"] = wilson(table[hit], table["n"])
    return table


def certify(
    model: nn.Module,
    task: Task | str,
    *,
    n: int = 200,
    seed: int = 0,
    thresholds: Thresholds | None = None,
    batch_size: int = 256,
    watch: Callable[[int, int], None] | None = None,
) -> Certificate:
    """Test whether `model` follows the reasoning of `task`.

    An intervention counts as followed when the network is right about the scene before *and* after it.

    Args:
        model: gives ``(samples, classes)``.
        task: a task or its name.
        n: fresh scenes in each bucket; every applicable edit is made to each of them.
        seed: seed of those scenes; they are separate from training and from `Task.cases`.
        thresholds: what must be reached (default: what the task asks for; TextBox 0.99 in the
            worst bucket and 0.97 in the worst intervention).
        batch_size: changes speed and memory, never the result.
        watch: called with the edits that are done and their number, for progress bars.
    """
    if isinstance(task, str):
        from verax.tasks import task as lookup

        task = lookup(task)
    trial = prepare(task, device_of(model), n=n, seed=seed)
    return trial.certificate(trial.answers(model, batch_size, watch), thresholds)


class Change(NamedTuple):
    """An edit of the scenes to which it applies.

    Attributes:
        object: what is edited.
        name: of the edit.
        rows: the scenes.
        layout: these after the edit.
        labels: these should have then.
    """

    object: str
    name: str
    rows: Tensor
    layout: Any
    labels: Tensor


@dataclass(frozen=True)
class Trial:
    """What networks are asked for a certificate; the same for all networks of a task.

    Attributes:
        task: whose reasoning it is about.
        seed: of the scenes.
        groups: the bucket of each scene.
        streams: their random numbers.
        layout: the scenes.
        changes: their edits.
        left_out: edits that led to a scene without a label.
    """

    task: Trainable
    seed: int
    groups: Tensor
    streams: Streams
    layout: Any
    changes: tuple[Change, ...]
    left_out: int

    def answers(
        self,
        model: nn.Module,
        batch_size: int = 256,
        watch: Callable[[int, int], None] | None = None,
        *,
        rough: bool = False,
    ) -> list[Tensor]:
        """Whether a network is right about all scenes, and about those of each change before and after it.

        Nothing waits for a GPU here, which rounds as torch comes, or, if that is `rough` enough, computes as
        networks learn: in half precision.
        """

        def right(layout: Any, streams: Streams, labels: Tensor) -> Tensor:
            pictures = self.task.render(layout, streams)
            with halved(pictures.device, rough):
                return predictions(model, pictures, batch_size, rough=True) == labels

        before = right(self.layout, self.streams, self.task.labels(self.groups))
        found = [before]
        for done, change in enumerate(self.changes, 1):
            if watch is not None:
                watch(done, len(self.changes))
            rows = change.rows
            found.append(before[rows] & right(change.layout, self.streams[rows], change.labels))
        return found

    def certificate(self, answers: Sequence[Tensor], thresholds: Thresholds | None = None) -> Certificate:
        """The certificate of a network that gave these answers."""
        task, groups, (before, *after) = self.task, self.groups.cpu(), [tensor.cpu() for tensor in answers]
        scene = {g: task.describe(g) for g in task.groups}
        accuracy = _count(pd.DataFrame({"group": groups, "hit": before}), ["group"], "right", "accuracy")
        accuracy["scene"] = accuracy["group"].map(scene)
        accuracy["label"] = task.labels(torch.tensor(task.groups)).tolist()
        parts = [
            pd.DataFrame(
                {
                    "group": groups[change.rows.cpu()],
                    "object": change.object,
                    "edit": change.name,
                    "hit": hit,
                }
            )
            for change, hit in zip(self.changes, after, strict=True)
        ]
        interventions = _count(pd.concat(parts), ["group", "object", "edit"], "followed", "follow")
        interventions["scene"] = interventions["group"].map(scene)
        interventions = interventions.sort_values(["group", "object", "edit"]).reset_index(drop=True)
        return Certificate(
            task=task.name,
            accuracy=accuracy[ACCURACY_COLUMNS],
            interventions=interventions[FOLLOW_COLUMNS],
            left_out=self.left_out,
            thresholds=thresholds or Thresholds(*task.limits),
            seed=self.seed,
        )


def prepare(task: Task, device: torch.device, *, n: int = 200, seed: int = 0) -> Trial:
    """Fresh scenes of a task, `n` of each bucket, and all edits of them.

    Args:
        task: gives scenes and edits.
        device: where to compute.
        n: scenes in each bucket.
        seed: of those.
    """
    if not isinstance(task, Trainable):
        raise InvalidInput(f"There is no certificate for tasks like {task.name!r}.")
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise InvalidParameter(f"n must be a whole number from 1, not {n!r}.")
    groups = torch.tensor(task.groups, device=device).repeat_interleave(n)
    ids = torch.arange(len(groups), device=device) % n + groups * 10**9
    streams = task.streams(ids, seed, "certificate")
    layout = task.layout(groups, streams)
    changes, left_out = [], 0
    for edit in task.edits(layout, streams):
        labels = task.labels(task.group_of(edit.layout.states))
        known = labels >= 0
        left_out += int((~known).sum())
        if known.any():
            changes.append(
                Change(edit.object, edit.name, edit.rows[known], edit.layout[known], labels[known])
            )
    return Trial(task, seed, groups, streams, layout, tuple(changes), left_out)
