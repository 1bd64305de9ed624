"""TextBox: white letters and boxes whose meaning is decided by a reasoning.

Kim, Plumb and Talwalkar, "Sanity Simulations for Saliency Methods", ICML 2022.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from verax import registry
from verax.cases import Cases, Truth
from verax.errors import InvalidInput, InvalidParameter, UnknownName, VeraxWarning, suggestion
from verax.seeding import Streams
from verax.tasks.base import Edit, Groups
from verax.tasks.numbering import numbered
from verax.tasks.textbox import backgrounds, edits, renderers, truths
from verax.tasks.textbox.backgrounds import Background
from verax.tasks.textbox.reasoning import Reasoning
from verax.tasks.textbox.renderers import RENDERERS, Layout, Renderer
from verax.tasks.textbox.scenes import World

if TYPE_CHECKING:
    from torch import nn

VERSION = 1
"""Raised whenever a change of this package changes a picture, a label or a mask."""


def _tables(reasoning: Reasoning) -> tuple[Tensor, Tensor]:
    """States ``(B, K)`` and labels ``(B,)`` (-1: none) of all buckets, in order."""
    world = reasoning.world
    states, labels = [], []
    for scene in world.scenes():
        label = reasoning.label(scene)
        states.append([kind.states.index(scene[kind.name]) for kind in world.kinds])
        labels.append(-1 if label is None else label)
    return torch.tensor(states), torch.tensor(labels)


def _truth_tables(reasoning: Reasoning, kind: str) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Roles, and where this truth has them weights and decisive objects, of all buckets: ``(B, K)`` each."""
    scenes, names = list(reasoning.world.scenes()), reasoning.world.names
    roles = torch.tensor([truths.roles(reasoning, scene, kind) for scene in scenes], dtype=torch.int8)
    weights = decisive = None
    if kind == "shapley":
        values = [truths.shapley(reasoning, scene) for scene in scenes]
        weights = torch.tensor([[value[name] for name in names] for value in values], dtype=torch.float64)
    elif kind == "counterfactual":
        found = [truths.decisive(reasoning, scene) for scene in scenes]
        decisive = torch.tensor([[name in some for name in names] for some in found])
    return roles, weights, decisive


@dataclass(frozen=True, eq=False)
class TextBox:
    """A task made of a reasoning, a renderer and a background.

    Attributes:
        name: how it is called in tables.
        reasoning: the rules that decide the label of a scene.
        family: the tasks that it is averaged with.
        renderer: ``"sound"`` or ``"published"``.
        background: ``"black"``, ``"noise"``, ``"noise:LOW-HIGH"``, ``"texture"``, ``"folder:PATH"``.
    """

    name: str
    reasoning: Reasoning
    family: str = "own"
    renderer: Renderer = field(default_factory=lambda: RENDERERS.get("sound"))
    background: Background = field(default_factory=backgrounds.Black)
    _states: Tensor = field(init=False, repr=False)
    _labels: Tensor = field(init=False, repr=False)
    _truths: dict[str, tuple[Tensor, Tensor | None, Tensor | None]] = field(
        init=False, repr=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        if isinstance(self.reasoning, str):
            object.__setattr__(self, "reasoning", Reasoning.parse(self.reasoning))
        if isinstance(self.renderer, str):
            object.__setattr__(self, "renderer", RENDERERS.get(self.renderer))
        if isinstance(self.background, str):
            object.__setattr__(self, "background", backgrounds.background(self.background))
        states, labels = _tables(self.reasoning)
        if len(only := sorted(set(labels.tolist()) - {-1})) == 1:
            raise InvalidInput(
                f"The reasoning {str(self.reasoning)!r} gives every scene the label {only[0]}, where a task"
                " needs at least two labels to have something to explain."
            )
        if gaps := sorted(set(range(self.reasoning.labels[-1])) - set(labels.tolist())):
            those, them = ("label", "it") if len(gaps) == 1 else ("labels", "them")
            warnings.warn(
                f"The reasoning {str(self.reasoning)!r} never gives {those} {', '.join(map(str, gaps))}: "
                f"networks have an output for {them} that no picture asks for. Count labels from 0.",
                VeraxWarning,
                stacklevel=3,
            )
        object.__setattr__(self, "_states", states)
        object.__setattr__(self, "_labels", labels)

    def __repr__(self) -> str:
        return f"TextBox({self.name!r}, {str(self.reasoning)!r})"

    @property
    def world(self) -> World:
        """The kinds of objects and the canvas."""
        return self.reasoning.world

    @property
    def classes(self) -> int:
        """How many outputs a network for it has."""
        return max(2, self.reasoning.labels[-1] + 1)

    @property
    def groups(self) -> tuple[int, ...]:
        """The buckets that have a label, numbered from 1 as in the paper."""
        return tuple(self.reasoning.buckets())

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        return (3, *self.world.canvas)

    @property
    def limits(self) -> tuple[float, float]:
        """What a certificate asks for: nearly everything, since all scenes can be told apart."""
        return (0.99, 0.97)

    def describe(self, group: int) -> str:
        """The objects of a bucket in words."""
        scenes = list(self.world.scenes())
        if not 1 <= group <= len(scenes):
            raise InvalidParameter(f"{self.name} has buckets 1 to {len(scenes)}, not {group}.")
        return self.world.describe(scenes[group - 1])

    def fingerprint(self) -> Mapping[str, Any]:
        """Everything that its cases depend on, for hashing."""
        looks = {
            kind.name: {
                s: [look.ink.shape, look.ink.tobytes().hex(), look.colour] for s, look in kind.looks.items()
            }
            for kind in self.world.kinds
        }
        return {
            "kind": "textbox",
            "version": VERSION,
            "reasoning": str(self.reasoning),
            "world": [self.world.name, self.world.canvas, looks],
            "renderer": self.renderer.name,
            "background": self.background.fingerprint,
        }

    # -- drawing -----------------------------------------------------------------------------------------

    def streams(self, ids: Tensor, seed: int, purpose: str) -> Streams:
        """Random streams of samples; all reasonings of one world share them and see the same scenes."""
        return Streams.of(ids, "textbox", self.world.name, self.renderer.name, purpose, seed)

    def layout(self, groups: Tensor, streams: Streams) -> Layout:
        """Lay out one scene for each entry of `groups`."""
        states = self._states.to(groups.device)[groups - 1]
        return self.renderer.place(streams, states, self.world)

    def lessons(self, groups: Tensor, streams: Streams) -> Layout:
        """Training sees such scenes as cases show."""
        return self.layout(groups, streams)

    def edits(self, layout: Layout, streams: Streams) -> Iterator[Edit]:
        """Every way to change one object of each scene: remove, move, swap (another look) or add it."""
        return edits.edits(self.renderer, self.world, layout, streams)

    def render(self, layout: Layout, streams: Streams) -> Tensor:
        """``(N, 3, H, W)`` float32 pictures of laid-out scenes."""
        behind = self.background.draw(streams, self.world.canvas)
        return renderers.draw(self.renderer, layout, self.world, behind)

    def group_of(self, states: Tensor) -> Tensor:
        """Bucket numbers of scenes given as state indices ``(N, K)``."""
        number = torch.zeros(len(states), dtype=torch.int64, device=states.device)
        for index, kind in enumerate(self.world.kinds):
            number = number * len(kind.states) + states[:, index]
        return number + 1

    def labels(self, groups: Tensor) -> Tensor:
        """Labels of buckets; -1 where the reasoning gives none."""
        return self._labels.to(groups.device)[groups - 1]

    def truth(self, layout: Layout, groups: Tensor, kind: str = "rule") -> Truth:
        """Focus, avoid and object masks of laid-out scenes."""
        masks = self.renderer.masks(layout, self.world)
        return self._told(masks, renderers.boxes(self.renderer, layout, self.world), groups, kind)

    def retell(self, cases: Cases, truth: str) -> Cases:
        """The same cases with another truth about them: "rule", "counterfactual" or "shapley"."""
        told = self._told(cases.truth.objects, cases.truth.boxes, cases.group, truth)
        return replace(cases, truth=told)

    def _told(self, objects: Tensor, boxes: Tensor, groups: Tensor, kind: str) -> Truth:
        if kind not in truths.TRUTHS:
            raise UnknownName(f"There is no truth named {kind!r}{suggestion(str(kind), truths.TRUTHS)}")
        if kind not in self._truths:
            self._truths[kind] = _truth_tables(self.reasoning, kind)
        roles, weights, decisive = (
            None if table is None else table.to(groups.device)[groups - 1] for table in self._truths[kind]
        )
        assert roles is not None
        return Truth.from_objects(
            objects, boxes, roles, self.world.names, weights=weights, decisive=decisive, kind=kind
        )

    def check_groups(self, group: Groups) -> tuple[int, ...]:
        """The buckets meant by `group`, checked to have a label."""
        if group is None:
            return self.groups
        chosen = tuple(map(int, group)) if isinstance(group, Iterable) else (int(group),)
        for number in chosen:
            if number not in self.groups:
                why = (
                    "the reasoning gives it no label"
                    if 1 <= number <= len(list(self.world.scenes()))
                    else "no such bucket"
                )
                have = ", ".join(map(str, self.groups))
                raise InvalidParameter(f"{self.name} has no cases of bucket {number} ({why}); it has {have}.")
        return chosen

    def cases(
        self,
        group: Groups = None,
        n: int = 20,
        seed: int = 0,
        *,
        start: int = 0,
        device: str | torch.device = "cpu",
        truth: str = "rule",
    ) -> Cases:
        """`n` cases of each bucket in `group` (default: all that have a label), from number `start` on.

        Case number i of a bucket is the same picture whatever `n`, `start`, the device and `truth` ("rule",
        "counterfactual" or "shapley"; see `verax.tasks.textbox.truths`) are.
        """
        groups, ids, seed = numbered(self, group, n, seed, start, device)
        streams = self.streams(ids, seed, "cases")
        layout = self.layout(groups, streams)
        return Cases(
            inputs=self.render(layout, streams),
            targets=self.labels(groups),
            truth=self.truth(layout, groups, truth),
            group=groups,
            ids=ids,
            task=self.name,
            seed=seed,
        )

    # -- networks ----------------------------------------------------------------------------------------

    def network(self, name: str = "cnn4", seed: int = 0) -> nn.Module:
        """The stored network of this task, in eval mode; see `verax.networks.library.network`."""
        # Tasks stand left of networks and may not import them: the name is resolved when it is needed.
        return cast("nn.Module", registry.load("verax.networks.library:network")(self, name, seed))
