"""Pictures to train on, drawn on the device: fresh ones in every step, or a fixed set seen again and again.

All labels are equally likely, and so are the buckets of a label; for Complex-FR this gives the 1 : 3 weights
of the paper. A fixed set of a task that says how often its buckets occur (`shares`) follows that instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from verax import seeding
from verax.seeding import Streams
from verax.tasks.base import Trainable

_CHUNK = 64  # steps whose layouts are drawn together: placement is a loop, and small loops are slow on a GPU
RENDERED = 8192
"""Pictures drawn at once on a GPU: it waits for launches, not for arithmetic."""


def _by_label(task: Trainable, groups: Sequence[int]) -> list[list[int]]:
    """The buckets of each label."""
    labels = task.labels(torch.tensor(groups)).tolist()
    return [[g for g, y in zip(groups, labels, strict=True) if y == label] for label in sorted(set(labels))]


def _shares(task: Trainable, groups: Sequence[int]) -> list[float] | None:
    """How often each of these buckets occurs, where the task says so; they add up to 1."""
    known = getattr(task, "shares", None)
    if known is None:
        return None
    whole = sum(known[group] for group in groups)
    return [known[group] / whole for group in groups]


def _buckets(task: Trainable, groups: Sequence[int], streams: Streams) -> Tensor:
    """A bucket for each stream: a label first, then one of its buckets."""
    table = _by_label(task, groups)
    width = max(map(len, table))
    # repeat short rows so that every label draws from a row of equal length without bias
    lengths = torch.tensor([len(row) for row in table], device=streams.ids.device)
    padded = torch.tensor([row + row[:1] * (width - len(row)) for row in table], device=streams.ids.device)
    label = streams.integers("label", len(table))
    return padded[label, streams.integers("bucket", lengths[label])]


@dataclass(frozen=True)
class Pool:
    """Laid-out scenes with their labels; pictures are drawn when they are needed."""

    task: Trainable
    groups: Tensor
    streams: Streams
    layout: Any

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def labels(self) -> Tensor:
        """The label of each scene."""
        return self.task.labels(self.groups)

    def pictures(self, rows: Tensor | slice) -> Tensor:
        """Pictures of some of the scenes."""
        return self.task.render(self.layout[rows], self.streams[rows])

    def batches(self, order: Tensor, batch: int) -> Iterator[tuple[Tensor, Tensor, Streams]]:
        """Pictures, labels and streams in the given order."""
        at_once = max(1, RENDERED // batch) * batch if order.device.type == "cuda" else batch
        labels = self.labels
        for rows in torch.split(order, at_once):
            pictures, wanted, streams = self.pictures(rows), labels[rows], self.streams[rows]
            for start in range(0, len(rows), batch):
                part = slice(start, start + batch)
                yield pictures[part], wanted[part], streams[part]


def fresh(
    task: Trainable,
    groups: Sequence[int],
    seed: int,
    steps: int,
    batch: int,
    device: torch.device,
) -> Iterator[tuple[Tensor, Tensor, Streams]]:
    """`steps` batches of pictures that are never seen again."""
    for first in range(0, steps, _CHUNK):
        count = min(_CHUNK, steps - first) * batch
        ids = torch.arange(first * batch, first * batch + count, device=device)
        streams = task.streams(ids, seed, "train")
        buckets = _buckets(task, groups, streams)
        pool = Pool(task, buckets, streams, task.lessons(buckets, streams))
        yield from pool.batches(torch.arange(count, device=device), batch)


def fixed(
    task: Trainable,
    groups: Sequence[int],
    seed: int,
    scenes: int,
    device: torch.device,
    *,
    purpose: str = "train",
    balanced: bool = True,
) -> Pool:
    """A set of scenes: `scenes` of each bucket of the label with most buckets, and as many of each label.

    Args:
        task: where scenes and labels come from.
        groups: the buckets to draw from.
        seed: of the scenes.
        scenes: how many of each bucket; on average where the task has `shares`.
        device: where to draw.
        purpose: separates this set from others.
        balanced: give labels with fewer buckets more scenes of each; otherwise all buckets have `scenes`.
    """
    table = _by_label(task, groups)
    most = max(map(len, table))
    sizes = {g: scenes * most // len(row) if balanced else scenes for row in table for g in row}
    weights = _shares(task, groups) if balanced else None
    if weights is not None:
        whole = scenes * len(groups)
        sizes = {g: round(whole * share) for g, share in zip(groups, weights, strict=True)}
    numbers = torch.tensor(sorted(sizes), device=device)
    counts = torch.tensor([sizes[g] for g in sorted(sizes)], device=device)
    buckets = numbers.repeat_interleave(counts)
    index = torch.arange(len(buckets), device=device) - (counts.cumsum(0) - counts).repeat_interleave(counts)
    streams = task.streams(buckets * 10**9 + index, seed, f"{purpose}-set")
    return Pool(task, buckets, streams, task.lessons(buckets, streams))


def shuffled(count: int, seed: int, epoch: int, device: torch.device) -> Tensor:
    """All numbers below `count` in the order of an epoch; the same on every device."""
    ids = torch.arange(count, device=device)
    return Streams.of(ids, "shuffle", seed, epoch).bits("order").argsort(stable=True)


def repeated(pool: Pool, seed: int, epochs: int, batch: int) -> Iterator[tuple[Tensor, Tensor, Streams]]:
    """All pictures of a pool in every epoch, in an order of its own."""
    for epoch in range(epochs):
        order = shuffled(len(pool), seeding.key("epoch", seed), epoch, pool.groups.device)
        if len(order) % batch == 1:
            order = order[:-1]  # batch normalisation needs two
        yield from pool.batches(order, batch)


def steps_in(pool: Pool, batch: int) -> int:
    """Batches in an epoch of `repeated`."""
    return len(pool) // batch + (len(pool) % batch > 1)
