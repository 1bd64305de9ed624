"""Cases: what a task hands out, and the truth about each one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import cast

import torch
from torch import Tensor

from verax import registry
from verax.errors import InvalidInput


class Role(IntEnum):
    """What an object is to the rule that decides a scene."""

    ABSENT = -1
    OTHER = 0
    FOCUS = 1
    AVOID = 2


@dataclass(frozen=True)
class Truth:
    """What a right explanation of each case shows.

    Masks have the shape of pictures ``(H, W)`` or, where inputs are vectors, that of the inputs ``(D,)``.

    Attributes:
        focus: ``(N, H, W)`` or ``(N, D)`` bool; elements that the reasoning uses.
        avoid: likewise; those of objects that it ignores.
        objects: ``(N, K, H, W)`` or ``(N, K, D)`` bool; the elements of each object (K may be 0).
        boxes: ``(N, K, 4)`` int64; half-open rectangles (row0, row1, col0, col1), zeros where absent.
        roles: ``(N, K)`` int8; the `Role` of each object.
        names: the K object names.
        values: the exact attribution of every input element, where it is known.
        weights: ``(N, K)`` float64; how much each object counts (its Shapley value), where that is known.
        decisive: ``(N, K)`` bool; a change of the object, absent ones included, would change the label.
        kind: which truth it is: "rule", "counterfactual" or "shapley".
        core: ``(N, D)`` bool; the elements that exact scores are also given on alone, where there are others
            that would count the same thing many times (on a globe: all but the rows at the poles).
        patches: ``(N, D)`` int64; the patch of each element, where exact scores are those of patches, each
            counted once, with the sum of what its elements deserve.
    """

    focus: Tensor
    avoid: Tensor
    objects: Tensor
    boxes: Tensor
    roles: Tensor
    names: tuple[str, ...]
    values: Tensor | None = None
    weights: Tensor | None = None
    decisive: Tensor | None = None
    kind: str = "rule"
    core: Tensor | None = None
    patches: Tensor | None = None

    @classmethod
    def from_objects(
        cls,
        objects: Tensor,
        boxes: Tensor,
        roles: Tensor,
        names: Sequence[str],
        *,
        weights: Tensor | None = None,
        decisive: Tensor | None = None,
        kind: str = "rule",
    ) -> Truth:
        """Derive the focus and avoid masks from objects and their roles."""

        def union(role: Role) -> Tensor:
            return (objects & (roles == role)[:, :, None, None]).any(1)

        return cls(
            union(Role.FOCUS),
            union(Role.AVOID),
            objects,
            boxes,
            roles,
            tuple(names),
            weights=weights,
            decisive=decisive,
            kind=kind,
        )

    def __repr__(self) -> str:
        what = f"objects {', '.join(self.names)}" if self.names else "a value for every element"
        return f"Truth({len(self.focus)} cases, {self.kind}, {what})"

    @property
    def ideal(self) -> Tensor:
        """The map that says the truth: its values, objects by their weights, or the focus mask."""
        if self.values is not None:
            return self.values
        if self.weights is None:
            return self.focus
        area = self.objects.sum((2, 3)).clamp(min=1)
        each = self.weights.abs() / area  # an object's weight is shared by its pixels
        return (self.objects * each[:, :, None, None]).sum(1)

    def map(self, function: Callable[[Tensor], Tensor]) -> Truth:
        """Apply `function` to every tensor."""
        return join([self], lambda parts: function(parts[0]))

    def __getitem__(self, index: slice | Tensor) -> Truth:
        """The truth of some of the cases."""
        return self.map(lambda tensor: tensor[index])


def join(parts: Sequence[Truth], function: Callable[[list[Tensor]], Tensor]) -> Truth:
    """Combine the tensors of several truths, field by field."""
    first = parts[0]

    def field(name: str) -> Tensor:
        return function([getattr(part, name) for part in parts])

    def known(name: str) -> Tensor | None:
        return None if getattr(first, name) is None else field(name)

    return Truth(
        field("focus"),
        field("avoid"),
        field("objects"),
        field("boxes"),
        field("roles"),
        first.names,
        known("values"),
        known("weights"),
        known("decisive"),
        first.kind,
        known("core"),
        known("patches"),
    )


@dataclass(frozen=True)
class Cases:
    """A batch of cases.

    Attributes:
        inputs: ``(N, C, H, W)`` float32 in [0, 1], or vectors ``(N, D)`` float32.
        targets: ``(N,)`` int64; the label that the reasoning gives, or the output that is explained.
        truth: what a right explanation shows.
        group: ``(N,)`` int64; the bucket of each case.
        ids: ``(N,)`` int64; unique within (task, seed).
        task: the name of the task they come from.
        seed: the seed they were drawn with.
    """

    inputs: Tensor
    targets: Tensor
    truth: Truth
    group: Tensor
    ids: Tensor
    task: str = ""
    seed: int = 0

    def __len__(self) -> int:
        return len(self.ids)

    def _repr_html_(self) -> str:
        # pictures are drawn by reports, which stand to the right: the name is resolved when it is needed
        return cast("str", registry.load("verax.reports.notebook:cases")(self))

    def __repr__(self) -> str:
        groups = ", ".join(map(str, torch.unique(self.group).tolist()))
        return f"Cases({len(self)} of {self.task or 'no task'}, buckets {groups}, seed {self.seed})"

    def map(self, function: Callable[[Tensor], Tensor]) -> Cases:
        """Apply `function` to every tensor."""
        return Cases(
            function(self.inputs),
            function(self.targets),
            self.truth.map(function),
            function(self.group),
            function(self.ids),
            self.task,
            self.seed,
        )

    def __getitem__(self, index: slice | Tensor | Sequence[int]) -> Cases:
        """Some of the cases."""
        chosen = index if isinstance(index, slice | Tensor) else torch.as_tensor(index)
        return self.map(lambda t: t[chosen.to(t.device) if isinstance(chosen, Tensor) else chosen])

    def to(self, device: str | torch.device) -> Cases:
        """The same cases on another device."""
        return self.map(lambda t: t.to(device))

    @classmethod
    def concatenate(cls, parts: Sequence[Cases]) -> Cases:
        """Join batches of the same task."""
        if not parts:
            raise InvalidInput("There are no cases to join.")
        return cls(
            torch.cat([part.inputs for part in parts]),
            torch.cat([part.targets for part in parts]),
            join([part.truth for part in parts], torch.cat),
            torch.cat([part.group for part in parts]),
            torch.cat([part.ids for part in parts]),
            parts[0].task,
            parts[0].seed,
        )
