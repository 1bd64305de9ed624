"""What every task can do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from verax.cases import Cases

if TYPE_CHECKING:
    import torch

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
