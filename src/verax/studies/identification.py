"""Identification: can the reasoning of a network be read off its maps?

The same pictures are explained for networks of several tasks of one world. Every map is read at the level of
objects, and the reasoning whose focus fits best is its guess (`verax.metrics.contrast`). Reasonings that have
the same focus in a picture cannot be told apart there; equals share the guess, so the oracle, not 1, is the
ceiling, and a map that never looks at the network is right exactly once in R times.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

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


@dataclass(frozen=True)
class Identification:
    """What maps say about which reasoning is at work.

    Attributes:
        accuracy: one row for each method: image, image_low, image_high (each picture on its own), panel,
            panel_low, panel_high (one picture of every bucket together), chance, pictures.
        confusion: method, true, guessed, share; the shares of a true reasoning make 1.
        contrast: method, first, second, where, where_low, where_high (share of the change that lies on the
            objects of which only one reasoning makes use), moved, moved_low, moved_high (change in pictures
            in which the two have the same focus, where nothing should change).
    """

    accuracy: pd.DataFrame
    confusion: pd.DataFrame
    contrast: pd.DataFrame


def shared_groups(tasks: Sequence[TextBox]) -> tuple[int, ...]:
    """The buckets in which every task has a label."""
    common = set(tasks[0].groups).intersection(*(task.groups for task in tasks))
    return tuple(sorted(common))


def _resampled(values: Floats, strata: Floats, seed: int) -> tuple[float, float, float]:
    """The mean over pictures with its 95 % interval; pictures are redrawn within their bucket."""
    known = np.isfinite(values)
    if not known.any():
        return float("nan"), float("nan"), float("nan")
    generator = np.random.default_rng(seeding.key("identification", seed) & 0xFFFFFFFFFFFFFFFF)
    total, count = np.zeros(REPLICATES), np.zeros(REPLICATES)
    for stratum in np.unique(strata):
        here = np.where(known, values, 0.0)[strata == stratum]
        weights = generator.multinomial(len(here), np.full(len(here), 1 / len(here)), size=REPLICATES)
        total += weights @ here
        count += weights @ known[strata == stratum]
    point = float(values[known].mean())
    size = int(np.unique(strata, return_counts=True)[1].min())
    if size == 1:
        return point, float("nan"), float("nan")  # one picture says nothing about others
    # a bootstrap of n numbers is too narrow by sqrt((n - 1) / n)
    drawn = point + (total / np.where(count > 0, count, np.nan) - point) * np.sqrt(size / (size - 1))
    low, high = interval(drawn)
    return point, float(low), float(high)


def _maps(
    models: Sequence[nn.Module], cases: Sequence[Cases], method: str, seed: int, device: torch.device
) -> Tensor:
    """Prepared maps ``(R, N, H, W)`` of the networks for the same pictures, each for its own label."""
    made = []
    for model, told in zip(models, cases, strict=True):
        raw = explaining.explain(
            model,
            told.inputs.to(device),
            told.targets.to(device),
            method,
            seed=seed,
            ids=told.ids.to(device),
            truth=told.truth.map(lambda tensor: tensor.to(device)),
        )
        made.append(sound.prepare(raw).values.cpu())
    return torch.stack(made)


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
    worlds = [find_task(name) for name in tasks]
    known = [world for world in worlds if isinstance(world, TextBox)]
    if len(known) < 2 or len(known) < len(worlds) or len({task.world for task in known}) > 1:
        raise InvalidParameter("Reasonings are told apart among at least two TextBox tasks of one world.")
    groups = shared_groups(known)
    if not groups:
        raise InvalidParameter("There is no bucket in which all of these tasks have a label.")
    where = torch.device(device)
    models = [library.network(task, network, network_seed).to(where) for task in known]
    cases = [task.cases(group=groups, n=samples, seed=seed) for task in known]
    focus = torch.stack([told.truth.roles == Role.FOCUS for told in cases])
    masks = torch.stack([told.truth.focus for told in cases])
    areas = cases[0].truth.objects.sum((2, 3))
    bucket = cases[0].group.numpy().astype(np.float64)
    names = [task.name for task in known]
    rows, cells, pairs = [], [], []
    for method in dict.fromkeys([*methods, ORACLE]):
        if watch is not None:
            watch(method)
        maps = _maps(models, cases, method, seed, where)
        misfits = contrast.misfit(contrast.place_shares(maps, cases[0].truth.objects), focus, areas)
        guess = contrast.guesses(misfits)  # (R, N, R)
        panels = misfits.reshape(len(known), len(groups), samples, len(known)).mean(1)
        right = torch.diagonal(guess, dim1=0, dim2=2).mean(1).numpy()
        panel = torch.diagonal(contrast.guesses(panels), dim1=0, dim2=2).mean(1).numpy()
        image = _resampled(right, bucket, seed)
        whole = _resampled(panel, np.zeros(samples), seed)
        rows.append((method, *image, *whole, 1 / len(known), len(bucket)))
        table = guess.mean(1).numpy()
        cells += [
            (method, names[a], names[b], float(table[a, b]))
            for a, b in itertools.product(range(len(names)), repeat=2)
        ]
        for a, b in itertools.combinations(range(len(names)), 2):
            # objects, not masks, decide where reasonings differ
            differ = focus[a] ^ focus[b]
            mask = (cases[0].truth.objects & differ[:, :, None, None]).any(1)
            share = contrast.change_share(maps[a], maps[b], mask).numpy()
            same = (~differ.any(1) & masks[a].flatten(1).any(1)).numpy()
            moved = np.where(same, contrast.change(maps[a], maps[b]).numpy(), np.nan)
            found = (*_resampled(share, bucket, seed), *_resampled(moved, bucket, seed))
            pairs.append((method, names[a], names[b], *found))
    spread = ["", "_low", "_high"]
    image_columns = [f"{name}{end}" for name in ("image", "panel") for end in spread]
    pair_columns = [f"{name}{end}" for name in ("where", "moved") for end in spread]
    return Identification(
        pd.DataFrame(rows, columns=["method", *image_columns, "chance", "pictures"]),
        pd.DataFrame(cells, columns=["method", "true", "guessed", "share"]),
        pd.DataFrame(pairs, columns=["method", "first", "second", *pair_columns]),
    )
