"""Which cases are meant: their buckets and their ids, checked."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Protocol

import torch
from torch import Tensor

from verax.errors import InvalidParameter
from verax.tasks.base import Groups

_GROUP_STRIDE = 10**9  # ids are group * stride + index, so that they can be read by eye
_MAX_CASES = 10**6


class Bucketed(Protocol):
    """A task that knows its buckets."""

    def check_groups(self, group: Groups) -> tuple[int, ...]:
        """The buckets meant by `group`, checked to have a label."""
        ...


class Grouped(Protocol):
    """Something with a name and buckets."""

    @property
    def name(self) -> str:
        """How it is called."""
        ...

    @property
    def groups(self) -> tuple[int, ...]:
        """Its buckets."""
        ...


def buckets(task: Grouped, group: Groups) -> tuple[int, ...]:
    """The buckets meant by `group`, checked to be among those of a task."""
    if group is None:
        return task.groups
    chosen = tuple(map(int, group)) if isinstance(group, Iterable) else (int(group),)
    for number in chosen:
        if number not in task.groups:
            have = ", ".join(map(str, task.groups))
            raise InvalidParameter(f"{task.name} has no cases of bucket {number}; it has {have}.")
    return chosen


def numbered(
    task: Bucketed, group: Groups, n: int, seed: int, start: int, device: str | torch.device
) -> tuple[Tensor, Tensor, int]:
    """Buckets and ids of `n` cases of each bucket in `group` from number `start` on, and the seed."""
    for word, value, low in (("n", n, 1), ("start", start, 0)):
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= _MAX_CASES:
            raise InvalidParameter(
                f"{word} must be a whole number from {low} to {_MAX_CASES}, not {value!r}."
            )
    try:
        seed = operator.index(seed)
    except TypeError as error:
        raise InvalidParameter(f"A seed is a whole number, not {seed!r}.") from error
    chosen = torch.tensor(task.check_groups(group), device=device)
    groups = chosen.repeat_interleave(n)
    ids = groups * _GROUP_STRIDE + torch.arange(start, start + n, device=device).repeat(len(chosen))
    return groups, ids, seed
