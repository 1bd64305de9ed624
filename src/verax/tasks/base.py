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
    from typing_extensions import TypeIs

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


class Draws(Protocol):
    """Samples that are drawn in chunks, the same ones whenever they are asked for."""

    def __len__(self) -> int:
        """How many there are."""
        ...

    @property
    def chunks(self) -> int:
        """How many chunks they make."""
        ...

    def chunk(self, index: int, device: str | torch.device = "cpu") -> tuple[Tensor, Tensor]:
        """Inputs ``(N, D)`` and outputs ``(N,)`` of one chunk."""
        ...


class Known(Protocol):
    """A function whose parts are known."""

    def values(self, x: Tensor) -> Tensor:
        """``(N, D)``; what each element contributes."""
        ...

    def slope(self, x: Tensor) -> Tensor:
        """``(N, D)``; the derivative."""
        ...


class Regression(Task, Protocol):
    """A task with one number as its output, a known sum of functions of single input elements."""

    @property
    def reasoning(self) -> object:
        """What decides the output; its text names it in records."""
        ...

    @property
    def features(self) -> int:
        """How many elements an input has."""
        ...

    @property
    def function(self) -> Known:
        """What networks learn."""
        ...

    @property
    def reference(self) -> Tensor:
        """``(D,)``; the input that attributions are measured from."""
        ...

    def drawn(self, purpose: str = "train", count: int | None = None, seed: int = 0) -> Draws:
        """Samples for one of the purposes "train" and "test", which never share one."""
        ...

    def curriculum(self) -> Mapping[str, Any]:
        """Everything that networks trained on it depend on, for hashing."""
        ...

    def retell(self, cases: Cases, truth: str) -> Cases:
        """The same cases with another truth about them."""
        ...


Learnable = Trainable | Regression
"""Tasks that networks can be trained for."""


def is_regression(task: object) -> TypeIs[Regression]:
    """Whether a task is a `Regression`; asked of its class, since its properties may have to read files."""
    return all(hasattr(type(task), name) for name in ("drawn", "curriculum", "function"))


def is_learnable(task: object) -> TypeIs[Learnable]:
    """Whether networks can be trained for a task."""
    return is_regression(task) or isinstance(task, Trainable)
