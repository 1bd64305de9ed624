"""What every task can do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from verax.cases import Cases
from verax.seeding import Streams

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from verax.tasks.textbox.backgrounds import Background

Groups = int | Sequence[int] | None


@runtime_checkable
class Task(Protocol):
    """A little world with a known truth; any object with these members can be studied."""

    @property
    def name(self) -> str:
        """The name, such as ``textbox/complex-cr1``."""
        ...

    @property
    def family(self) -> str:
        """The set of tasks that it is averaged with, such as ``simple``."""
        ...

    @property
    def classes(self) -> int:
        """How many outputs a network for it has."""
        ...

    @property
    def groups(self) -> tuple[int, ...]:
        """The buckets that have a label."""
        ...

    def describe(self, group: int) -> str:
        """A bucket in words."""
        ...

    def fingerprint(self) -> Mapping[str, Any]:
        """Everything that its cases depend on, for hashing."""
        ...

    def cases(
        self,
        group: Groups = None,
        n: int = 20,
        seed: int = 0,
        *,
        start: int = 0,
        device: str | torch.device = "cpu",
    ) -> Cases:
        """`n` cases of each bucket in `group` (default: of all that have a label)."""
        ...


@dataclass(frozen=True)
class Edit:
    """One change made to one object in a batch of scenes; `rows` are the scenes it applies to."""

    name: str
    object: str
    rows: Tensor
    layout: Any


class Named(Protocol):
    """Something with a name."""

    @property
    def name(self) -> str:
        """How it is called in studies."""
        ...


@runtime_checkable
class Trainable(Task, Protocol):
    """A task that draws scenes without end, so that networks can be trained on it and certified.

    A layout is whatever the task needs to draw scenes: it can be indexed by a tensor or a slice, and has
    `states`. The trainer and the certificate hand it back to the task without looking at the rest.
    """

    @property
    def reasoning(self) -> object:
        """What decides the label; its text names it in records."""
        ...

    @property
    def renderer(self) -> Named:
        """What draws the scenes."""
        ...

    @property
    def background(self) -> Background:
        """What lies behind them."""
        ...

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        ...

    @property
    def limits(self) -> tuple[float, float]:
        """The accuracy in the worst bucket and the follow rate that a certificate asks for."""
        ...

    def check_groups(self, group: Groups) -> tuple[int, ...]:
        """The buckets meant by `group`, checked to have a label."""
        ...

    def streams(self, ids: Tensor, seed: int, purpose: str) -> Streams:
        """Random streams of samples."""
        ...

    def layout(self, groups: Tensor, streams: Streams) -> Any:
        """One scene for each entry of `groups`."""
        ...

    def lessons(self, groups: Tensor, streams: Streams) -> Any:
        """The same for training, where it differs: other digits, or labels that hold only mostly."""
        ...

    def render(self, layout: Any, streams: Streams) -> Tensor:
        """``(N, C, H, W)`` float32 pictures of scenes."""
        ...

    def labels(self, groups: Tensor) -> Tensor:
        """Labels of buckets; -1 where there is none."""
        ...

    def group_of(self, states: Tensor) -> Tensor:
        """Bucket numbers of scenes given by their states."""
        ...

    def edits(self, layout: Any, streams: Streams) -> Iterator[Edit]:
        """Every way to change one object of each scene, for certificates."""
        ...

    def retell(self, cases: Cases, truth: str) -> Cases:
        """The same cases with another truth about them."""
        ...
