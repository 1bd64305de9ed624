"""Spurious manipulations: a change of the picture within a fixed region tells the label, nothing else does.

In the manner of Zhou et al. (AAAI 2022): labels are dealt out anew, so that the content of a picture says
nothing, and a manipulation goes with the label. A network that is better than chance must look at the region.
With a `reliance` below 1 the manipulation goes with the label in that share of the training pictures only,
which bounds the accuracy that can be reached; a certificate measures how far a network follows it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from verax.cases import Role, Truth
from verax.errors import InvalidParameter, UnknownName, suggestion
from verax.seeding import Streams
from verax.tasks.base import Edit
from verax.tasks.drawn import Drawn
from verax.tasks.manipulations import CANVAS, MANIPULATIONS, Manipulation
from verax.tasks.textbox import backgrounds
from verax.tasks.textbox.backgrounds import Background
from verax.tasks.textbox.renderers import RENDERERS, Renderer
from verax.tasks.textbox.textures import Texture

VERSION = 1
"""Raised whenever a change of this package changes a picture, a label or a mask."""


@dataclass(frozen=True)
class Marks:
    """Pictures before they are drawn; `states` ``(N, 1)`` int64 says which are manipulated."""

    states: Tensor

    def __getitem__(self, index: Tensor | slice) -> Marks:
        """Some of the pictures."""
        return Marks(self.states[index])


@dataclass(frozen=True, eq=False)
class Spurious(Drawn):
    """Two labels: 0 for pictures as they are, 1 for manipulated ones.

    Attributes:
        name: how it is called in tables; the registered tasks add reliance and strength to theirs.
        manipulation: one of `MANIPULATIONS`.
        reliance: the share of training pictures in which the manipulation goes with the label, 0.5 to 1.
        strength: how much of the manipulation is to be seen, above 0 and up to 1.
        background: the pictures: ``"texture"`` (default) or ``"folder:PATH"``.
        family: the tasks that it is averaged with.
    """

    name: str
    manipulation: str
    reliance: float = 1.0
    strength: float = 1.0
    background: Background = field(default_factory=Texture)
    family: str = "worlds"

    def __post_init__(self) -> None:
        if self.manipulation not in MANIPULATIONS:
            hint = suggestion(str(self.manipulation), MANIPULATIONS)
            raise UnknownName(f"There is no manipulation named {self.manipulation!r}{hint}")
        if not 0.5 <= self.reliance <= 1:
            raise InvalidParameter(f"The reliance is a share from 0.5 (none) to 1, not {self.reliance!r}.")
        if not 0 < self.strength <= 1:
            raise InvalidParameter(f"The strength lies above 0 and up to 1, not {self.strength!r}.")
        if isinstance(self.background, str):
            object.__setattr__(self, "background", backgrounds.background(self.background))

    @classmethod
    def graded(cls, name: str, **settings: Any) -> Spurious:
        """The task whose name says its reliance and its strength, so that their networks stay apart."""
        parts = [
            f"-{word}{settings[word]:g}" for word in ("reliance", "strength") if settings.get(word, 1) != 1
        ]
        return cls(name + "".join(parts), **settings)

    @property
    def _manipulation(self) -> Manipulation:
        return MANIPULATIONS[self.manipulation]

    @property
    def renderer(self) -> Renderer:
        """Nothing overlaps, as under `sound`."""
        return RENDERERS.get("sound")

    @property
    def reasoning(self) -> str:
        """What decides the label, in words."""
        return (
            f"{self._manipulation.about} -> 1; as it is -> 0 "
            f"(reliance {self.reliance:g}, strength {self.strength:g})"
        )

    @property
    def classes(self) -> int:
        """Manipulated or not."""
        return 2

    @property
    def groups(self) -> tuple[int, ...]:
        """Pictures as they are, and manipulated ones."""
        return (1, 2)

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        return (3, *CANVAS)

    @property
    def limits(self) -> tuple[float, float]:
        """What a certificate asks for; a manipulation cannot be seen in every picture."""
        return (0.95, 0.9)

    def describe(self, group: int) -> str:
        """The bucket in words."""
        self.check_groups(group)
        return "as it is" if group == 1 else self.manipulation

    def fingerprint(self) -> Mapping[str, Any]:
        """Everything that its cases depend on, for hashing; they do not depend on the reliance."""
        return {
            "kind": "spurious",
            "version": VERSION,
            "manipulation": self.manipulation,
            "strength": self.strength,
            "background": self.background.fingerprint,
        }

    # -- drawing -----------------------------------------------------------------------------------------

    def streams(self, ids: Tensor, seed: int, purpose: str) -> Streams:
        """Random streams of samples; all manipulations share them and see the same pictures."""
        return Streams.of(ids, "spurious", purpose, seed)

    def layout(self, groups: Tensor, streams: Streams) -> Marks:
        """Pictures whose manipulation goes with the label."""
        return Marks((groups - 1)[:, None])

    def lessons(self, groups: Tensor, streams: Streams) -> Marks:
        """Pictures to train on: the manipulation goes with the label as often as `reliance` says."""
        wrong = streams.uniform("reliance", 1) >= self.reliance
        return Marks((groups - 1)[:, None] ^ wrong.long())

    def render(self, layout: Marks, streams: Streams) -> Tensor:
        """``(N, 3, H, W)`` float32 pictures."""
        pictures = self.background.draw(streams, CANVAS)
        changed = torch.lerp(pictures, self._manipulation.change(pictures, streams), self.strength)
        where = self._manipulation.region.to(pictures.device) & (layout.states[:, 0, None, None] == 1)
        return torch.where(where[:, None], changed, pictures)

    def labels(self, groups: Tensor) -> Tensor:
        """1 for manipulated pictures."""
        return groups - 1

    def group_of(self, states: Tensor) -> Tensor:
        """Bucket numbers of states."""
        return states[:, 0] + 1

    def edits(self, layout: Marks, streams: Streams) -> Iterator[Edit]:
        """Add the manipulation to the same picture, or take it away."""
        for name, state in (("add", 0), ("remove", 1)):
            rows = (layout.states[:, 0] == state).nonzero()[:, 0]
            if len(rows):
                yield Edit(name, "region", rows, Marks(1 - layout.states[rows]))

    def truth(self, layout: Marks) -> Truth:
        """The region is in focus, manipulated or not, and the rest of the picture is to be avoided."""
        count, device = len(layout.states), layout.states.device
        region = self._manipulation.region.to(device)
        rows, cols = region.any(1).nonzero()[:, 0], region.any(0).nonzero()[:, 0]
        ends = [int(rows[0]), int(rows[-1]) + 1, int(cols[0]), int(cols[-1]) + 1]
        boxes = torch.tensor([ends, [0, CANVAS[0], 0, CANVAS[1]]], device=device)
        roles = torch.tensor([Role.FOCUS, Role.AVOID], dtype=torch.int8, device=device)
        return Truth.from_objects(
            torch.stack([region, ~region]).repeat(count, 1, 1, 1),
            boxes.repeat(count, 1, 1),
            roles.repeat(count, 1),
            ("region", "rest"),
        )
