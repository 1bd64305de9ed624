"""What tasks that draw their scenes have in common: cases from layouts, one truth, a usual network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from torch import Tensor

from verax import registry
from verax.cases import Cases, Truth
from verax.errors import InvalidParameter
from verax.seeding import Streams
from verax.tasks import numbering
from verax.tasks.base import Groups

if TYPE_CHECKING:
    from torch import nn


class Drawn(ABC):
    """A task whose cases are layouts that it draws; it knows one truth."""

    truths: ClassVar[tuple[str, ...]] = ("rule",)
    """Names of the one truth, its own first."""

    usual: ClassVar[str] = "cnn4"
    """The network that is meant where none is named."""

    name: str

    @property
    @abstractmethod
    def groups(self) -> tuple[int, ...]:
        """The buckets that have a label."""

    @abstractmethod
    def streams(self, ids: Tensor, seed: int, purpose: str) -> Streams:
        """Random streams of samples."""

    @abstractmethod
    def layout(self, groups: Tensor, streams: Streams) -> Any:
        """One scene for each entry of `groups`."""

    @abstractmethod
    def render(self, layout: Any, streams: Streams) -> Tensor:
        """``(N, C, H, W)`` float32 pictures of scenes."""

    @abstractmethod
    def labels(self, groups: Tensor) -> Tensor:
        """Labels of buckets."""

    @abstractmethod
    def truth(self, layout: Any) -> Truth:
        """What a right explanation of scenes shows."""

    def check_groups(self, group: Groups) -> tuple[int, ...]:
        """The buckets meant by `group`, checked."""
        return numbering.buckets(self, group)

    def retell(self, cases: Cases, truth: str) -> Cases:
        """The same cases: there is one truth."""
        if truth not in self.truths:
            raise InvalidParameter(f"{self.name} knows the truth {self.truths[0]!r} only, not {truth!r}.")
        return cases

    def cases(
        self,
        group: Groups = None,
        n: int = 20,
        seed: int = 0,
        *,
        start: int = 0,
        device: str | torch.device = "cpu",
    ) -> Cases:
        """`n` cases of each bucket in `group` (default: all), from number `start` on."""
        groups, ids, seed = numbering.numbered(self, group, n, seed, start, device)
        streams = self.streams(ids, seed, "cases")
        layout = self.layout(groups, streams)
        pictures = self.render(layout, streams)
        return Cases(pictures, self.labels(groups), self.truth(layout), groups, ids, self.name, seed)

    def network(self, name: str = "", seed: int = 0) -> nn.Module:
        """The stored network of this task, in eval mode; see `verax.networks.library.network`."""
        # Tasks stand left of networks and may not import them: the name is resolved when it is needed.
        find = registry.load("verax.networks.library:network")
        return cast("nn.Module", find(self, name or self.usual, seed))
