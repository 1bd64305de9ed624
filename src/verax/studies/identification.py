"""Identification: can the reasoning of a network be read off its maps?

The same pictures are explained for networks of several tasks of one world. Every map is read at the level of
objects, and the reasoning whose focus fits best is its guess (`verax.metrics.contrast`). Reasonings that have
the same focus in a picture cannot be told apart there; equals share the guess, so the oracle, not 1, is the
ceiling, and a map that never looks at the network is right exactly once in R times.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from verax import methods as explaining
from verax import seeding
from verax.cases import Cases, Role
from verax.errors import InvalidParameter
from verax.metrics import contrast
from verax.networks import library
from verax.protocols import sound
from verax.studies.statistics import REPLICATES, Floats, interval
from verax.tasks import task as find_task
from verax.tasks.textbox import TextBox

ORACLE = "oracle"
TABLES = ("accuracy", "confusion", "contrast")
Explain = Callable[[int, Cases], Tensor]
"""The number of a task and its cases in, prepared maps ``(N, H, W)`` of its network out."""


@dataclass(frozen=True)
class Identification:
    """What maps say about which reasoning is at work.

    Attributes:
        accuracy: one row for each method: image, image_low, image_high (each picture on its own), panel,
            panel_low, panel_high (one picture of every bucket together), where and moved as in `contrast`,
            over all pairs of networks, chance, pictures.
        confusion: method, true, guessed, share; the shares of a true reasoning make 1.
        contrast: method, first, second, where, where_low, where_high (share of the change that lies on the
            objects of which only one reasoning makes use), moved, moved_low, moved_high (change in pictures
            in which the two have the same focus, where nothing should change).
    """

    accuracy: pd.DataFrame
    confusion: pd.DataFrame
    contrast: pd.DataFrame

    def tables(self) -> dict[str, pd.DataFrame]:
        """The three tables by name."""
        return {name: getattr(self, name) for name in TABLES}

    @classmethod
    def joined(cls, parts: Sequence[Mapping[str, pd.DataFrame]]) -> Identification:
        """Several identifications below each other."""
        return cls(*(pd.concat([part[name] for part in parts], ignore_index=True) for name in TABLES))


def comparable(tasks: Sequence[TextBox]) -> bool:
    """Whether there is anything to tell apart: several tasks, of one world, whose pictures are the same."""
    looks = {(task.world, task.renderer.name, task.background.fingerprint) for task in tasks}
    return len(tasks) >= 2 and len(looks) == 1


def shared_groups(tasks: Sequence[TextBox]) -> tuple[int, ...]:
    """The buckets in which every task has a label."""
    common = set(tasks[0].groups).intersection(*(task.groups for task in tasks))
    return tuple(sorted(common))


def _resampled(values: Floats, strata: Floats, seed: int) -> tuple[float, float, float]:
    """The mean over pictures with its 95 % interval; pictures are redrawn within their bucket."""
    known = np.isfinite(values)
    if not known.any():
        return float("nan"), float("nan"), float("nan")
    _, first, sizes = np.unique(strata, return_inverse=True, return_counts=True)
    order, weights = np.argsort(first, kind="stable"), _redrawn(tuple(sizes.tolist()), seed)
    total = weights @ np.where(known, values, 0.0)[order]
    count = weights @ known[order].astype(np.float64)
    point, size = float(values[known].mean()), int(sizes.min())
    if size == 1:
        return point, float("nan"), float("nan")  # one picture says nothing about others
    # a bootstrap of n numbers is too narrow by sqrt((n - 1) / n)
    drawn = point + (total / np.where(count > 0, count, np.nan) - point) * np.sqrt(size / (size - 1))
    low, high = interval(drawn.clip(0, 1))  # all of these are shares
    return point, float(low), float(high)


@lru_cache(maxsize=4)
def _redrawn(sizes: tuple[int, ...], seed: int) -> Floats:
    """How often each picture is drawn in each replicate, stratum after stratum; the same for every method."""
    generator = np.random.default_rng(seeding.key("identification", seed) & 0xFFFFFFFFFFFFFFFF)
    parts = [generator.multinomial(n, np.full(n, 1 / n), size=REPLICATES) for n in sizes]
    return np.concatenate(parts, 1).astype(np.float64)


def _nanmean(values: Floats) -> Floats:
    """The mean over the first axis of what is known; NaN where nothing is."""
    known = np.isfinite(values)
    count = known.sum(0)
    total = np.where(known, values, 0.0).sum(0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


@dataclass(frozen=True)
class Lineup:
    """Several tasks of one world before the same pictures.

    Attributes:
        tasks: at least two.
        samples: pictures in each bucket in which all tasks have a label.
        seed: of the pictures and of the intervals.
    """

    tasks: tuple[TextBox, ...]
    samples: int
    seed: int

    @cached_property
    def groups(self) -> tuple[int, ...]:
        """The buckets in which all tasks have a label."""
        return shared_groups(self.tasks)

    @cached_property
    def cases(self) -> list[Cases]:
        """The same pictures, told for each task."""
        return [task.cases(group=self.groups, n=self.samples, seed=self.seed) for task in self.tasks]

    @cached_property
    def focus(self) -> Tensor:
        """``(R, N, K)`` bool: which objects each reasoning makes use of in each picture."""
        return torch.stack([told.truth.roles == Role.FOCUS for told in self.cases])

    def read(self, label: str, explain: Explain) -> Identification:
        """Explain the pictures for every network and read the reasoning off the maps.

        Args:
            label: the name of the method in the tables.
            explain: gives the maps of a task's network.
        """
        truth, bucket = self.cases[0].truth, self.cases[0].group.numpy().astype(np.float64)
        names, count = [task.name for task in self.tasks], len(self.tasks)
        maps = torch.stack([explain(place, told) for place, told in enumerate(self.cases)])  # (R, N, H, W)
        masses = contrast.unit_mass(maps)
        shares = contrast.place_shares(masses, truth.objects)
        misfits = contrast.misfit(shares, self.focus, truth.objects.sum((2, 3)))
        guess = contrast.guesses(misfits)  # (R, N, R)
        panels = contrast.guesses(misfits.reshape(count, len(self.groups), self.samples, count).mean(1))
        right, panel = (torch.diagonal(g, dim1=0, dim2=2).mean(1).numpy() for g in (guess, panels))
        table = guess.mean(1).numpy()
        cells = [
            (label, names[a], names[b], float(table[a, b]))
            for a, b in itertools.product(range(count), repeat=2)
        ]
        rows, wheres, moves = [], [], []
        for a, b in itertools.combinations(range(count), 2):
            # objects, not masks, decide where reasonings differ
            differ = self.focus[a] ^ self.focus[b]
            mask = (truth.objects & differ[:, :, None, None]).any(1)
            moved, share = contrast.change(masses[a], masses[b], mask)
            wheres.append(share.numpy())
            same = (~differ.any(1) & self.focus[a].any(1)).numpy()
            moves.append(np.where(same, moved.numpy(), np.nan))
            found = [_resampled(values[-1], bucket, self.seed) for values in (wheres, moves)]
            rows.append((label, names[a], names[b], *found[0], *found[1]))
        numbers = [
            *_resampled(right, bucket, self.seed),
            *_resampled(panel, np.zeros(self.samples), self.seed),
            *_resampled(_nanmean(np.stack(wheres)), bucket, self.seed),
            *_resampled(_nanmean(np.stack(moves)), bucket, self.seed),
        ]
        return Identification(
            pd.DataFrame(
                [(label, *numbers, 1 / count, len(bucket))],
                columns=["method", *_spread("image", "panel", "where", "moved"), "chance", "pictures"],
            ),
            pd.DataFrame(cells, columns=["method", "true", "guessed", "share"]),
            pd.DataFrame(rows, columns=["method", "first", "second", *_spread("where", "moved")]),
        )


def _spread(*names: str) -> list[str]:
    return [f"{name}{end}" for name in names for end in ("", "_low", "_high")]


def identify(
    tasks: Sequence[str | TextBox],
    methods: Sequence[str],
    *,
    network: str = "wired",
    network_seed: int = 0,
    samples: int = 20,
    seed: int = 0,
    device: str | torch.device = "cpu",
    watch: Callable[[str], None] | None = None,
) -> Identification:
    """Explain the same pictures for the networks of several tasks and read the reasoning off the maps.

    Args:
        tasks: at least two TextBox tasks of one world.
        methods: names; the oracle is added as the ceiling.
        network: "wired", or an architecture that is stored for every task.
        network_seed: its training seed.
        samples: pictures in each bucket in which all tasks have a label.
        seed: of the pictures, of random methods and of the intervals.
        device: where to explain.
        watch: called with the name of each method as it starts.
    """
    known = [world for world in map(find_task, tasks) if isinstance(world, TextBox)]
    if len(known) < len(tasks) or not comparable(known):
        raise InvalidParameter("Reasonings are told apart among at least two TextBox tasks of one world.")
    if not shared_groups(known):
        raise InvalidParameter("There is no bucket in which all of these tasks have a label.")
    where = torch.device(device)
    models = [library.network(task, network, network_seed).to(where) for task in known]
    lineup = Lineup(tuple(known), samples, seed)
    parts = []
    for method in dict.fromkeys([*methods, ORACLE]):
        if watch is not None:
            watch(method)

        def explain(place: int, cases: Cases, method: str = method) -> Tensor:
            told = cases.to(where)
            raw = explaining.explain(
                models[place], told.inputs, told.targets, method, seed=seed, ids=told.ids, truth=told.truth
            )
            return sound.prepare(raw).values.cpu()

        parts.append(lineup.read(method, explain).tables())
    return Identification.joined(parts)
