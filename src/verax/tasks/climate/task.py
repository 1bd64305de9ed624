"""The climate task: regression on a field, with the exact contribution of every cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from verax import registry
from verax.cases import Cases, Truth
from verax.errors import InvalidParameter
from verax.seeding import Streams
from verax.tasks import numbering
from verax.tasks.base import Groups
from verax.tasks.climate import functions
from verax.tasks.climate.fields import Field, check_blend
from verax.tasks.climate.functions import LocalFunctions
from verax.tasks.climate.grid import Grid
from verax.tasks.climate.samples import Samples

if TYPE_CHECKING:
    from torch import nn

VERSION = 1
"""Raised whenever a change of this package changes an input or its truth."""

HELD_OUT = 10_000
"""Samples that a network is tested on, unless asked for otherwise."""


@dataclass(frozen=True, eq=False)
class Climate:
    """One field and one function on it.

    Attributes:
        name: how it is called in tables.
        origin: the field that the function is drawn from, or what makes it when it is needed.
        seed: of the function.
        breaks: K, how many break points each local function has.
        count: how many samples networks are trained on.
        baseline: "zero", a number that all cells have, or "sample:NUMBER".
        uniform: every pair of cells of the inputs has this correlation.
        globally: weight of a pattern in the inputs that is the same everywhere.
        patches: side of the patches of cells that maps are compared on; 1 compares cells.
        words: how the command line asks for it: by its name (the default), by these words, or (None) not.
    """

    name: str
    origin: Field | Callable[[], Field]
    seed: int = 0
    breaks: int = 5
    count: int = 100_000
    baseline: str | float = "zero"
    uniform: float = 0.0
    globally: float = 0.0
    patches: int = 1
    words: tuple[str, ...] | None = ()

    def __post_init__(self) -> None:
        for word, value, low in (
            ("function", self.seed, 0),
            ("breaks", self.breaks, 0),
            ("samples", self.count, 1),
            ("patches", self.patches, 1),
        ):
            if not isinstance(value, int) or isinstance(value, bool) or value < low:
                raise InvalidParameter(f"{word} must be a whole number from {low} on, not {value!r}.")
        check_blend(self.uniform, self.globally)
        _level(self.baseline)

    @cached_property
    def source(self) -> Field:
        """The field before it is blended; F is drawn from it."""
        return self.origin if isinstance(self.origin, Field) else self.origin()

    @cached_property
    def field(self) -> Field:
        """What inputs are drawn from; the function stays that of the unblended field."""
        return self.source.blend(self.uniform, self.globally)

    def told_apart(self) -> Climate:
        """The same task with what its field holds in its name, where another field has that name too."""
        mark = "&" if "?" in self.name else "?"
        return replace(self, name=f"{self.name}{mark}content={self.source.digest[:6]}", origin=self.source)

    @property
    def grid(self) -> Grid:
        """Where the cells are."""
        return self.field.grid

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done to the data of its field, in sentences."""
        return self.field.notes

    @property
    def features(self) -> int:
        """How many cells there are."""
        return len(self.field)

    @cached_property
    def segments(self) -> Tensor:
        """``(D,)`` int64; the patch of each cell, by which methods may hide and show cells together."""
        return self.grid.patches(self.patches)

    @cached_property
    def function(self) -> LocalFunctions:
        """F."""
        return LocalFunctions.draw(self.source, self.breaks, self.seed)

    @property
    def family(self) -> str:
        """The tasks that it is averaged with."""
        return "climate"

    @property
    def classes(self) -> int:
        """One output: the value of F."""
        return 1

    @property
    def groups(self) -> tuple[int, ...]:
        """All samples are of one kind."""
        return (0,)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """A vector of cells."""
        return (self.features,)

    @property
    def reasoning(self) -> str:
        """What decides the output, in words."""
        return f"the sum of a local function of each cell: {self.breaks} breaks, seed {self.seed}"

    def describe(self, group: int) -> str:
        """The only bucket."""
        self.check_groups(group)
        return "samples of the field"

    def check_groups(self, group: Groups) -> tuple[int, ...]:
        """The buckets meant by `group`, checked."""
        return numbering.buckets(self, group)

    def fingerprint(self) -> Mapping[str, Any]:
        """Everything that its cases depend on, for hashing."""
        # the function by what it is drawn with: its last digits may differ between machines
        return {
            "kind": "climate",
            "version": VERSION,
            "field": self.field.digest,
            "source": self.source.digest,
            "function": [functions.VERSION, self.seed, self.breaks],
            "baseline": str(self.baseline),
            **({"patches": self.patches} if self.patches > 1 else {}),
        }

    def curriculum(self) -> Mapping[str, Any]:
        """Everything that networks trained on it depend on: not how they are asked, but how much they see."""
        asked = ("baseline", "patches")
        kept = {name: value for name, value in self.fingerprint().items() if name not in asked}
        return {**kept, "samples": self.count}

    # -- samples -----------------------------------------------------------------------------------------

    def drawn(self, purpose: str = "train", count: int | None = None, seed: int = 0) -> Samples:
        """Samples for one of the purposes "train" and "test", which never share one."""
        if count is None:
            count = self.count if purpose == "train" else HELD_OUT
        return Samples(self.field, self.function, count, purpose, seed)

    @property
    def samples(self) -> Samples:
        """What networks are trained on."""
        return self.drawn("train")

    @property
    def held_out(self) -> Samples:
        """What networks are tested on."""
        return self.drawn("test")

    @cached_property
    def reference(self) -> Tensor:
        """``(D,)`` float32; the input that attributions are measured from."""
        level = _level(self.baseline)
        if isinstance(level, float):
            return torch.full((self.features,), level)
        return self.field.draw(Streams.of(torch.tensor([level]), "climate", "baseline", 0))[0]

    def values(self, inputs: Tensor) -> Tensor:
        """``(N, D)``; the exact attribution of every cell, C(x) - C(b)."""
        found = self.function.values(inputs)
        if not self.reference.any():
            return found
        return found - self.function.values(self.reference[None].to(inputs.device))

    def cases(
        self,
        group: Groups = None,
        n: int = 20,
        seed: int = 0,
        *,
        start: int = 0,
        device: str | torch.device = "cpu",
    ) -> Cases:
        """`n` samples that no network was trained or tested on, from number `start` on."""
        groups, ids, seed = numbering.numbered(self, group, n, seed, start, device)
        inputs = Samples(self.field, self.function, n, "cases", seed).inputs(ids)
        return Cases(inputs, torch.zeros_like(groups), self.truth(inputs), groups, ids, self.name, seed)

    def truth(self, inputs: Tensor) -> Truth:
        """What a right explanation of inputs shows: there are no objects, every cell has its value."""
        values = self.values(inputs)
        count, cells = inputs.shape
        core = ~self.grid.polar  # a field that is polar altogether is scored as it is
        patches = self.segments.to(values.device).expand_as(values) if self.patches > 1 else None
        return Truth(
            focus=values != 0,
            avoid=torch.zeros_like(values, dtype=torch.bool),
            objects=values.new_zeros(count, 0, cells, dtype=torch.bool),
            boxes=values.new_zeros(count, 0, 4, dtype=torch.int64),
            roles=values.new_zeros(count, 0, dtype=torch.int8),
            names=(),
            values=values,
            kind="exact",
            core=core.to(values.device).expand_as(values) if core.any() and not core.all() else None,
            patches=patches,
        )

    def retell(self, cases: Cases, truth: str) -> Cases:
        """There is one truth: "exact", which "rule" means here too."""
        if truth not in ("rule", "exact"):
            raise InvalidParameter(f"{self.name} knows the truth 'exact' only, not {truth!r}.")
        return cases

    def network(self, name: str = "mlp", seed: int = 0) -> nn.Module:
        """The stored network of this task, in eval mode; see `verax.networks.library.network`."""
        # Tasks stand left of networks and may not import them: the name is resolved when it is needed.
        return cast("nn.Module", registry.load("verax.networks.library:network")(self, name, seed))


def _level(baseline: str | float) -> float | int:
    """What a baseline means: a level that all cells have, or (a whole number) which sample."""
    text = str(baseline)
    number = text.removeprefix("sample:")
    # at most 18 digits fit the numbers of samples
    if number != text and number.isascii() and number.isdigit() and len(number) <= 18:
        return int(number)
    try:
        level = 0.0 if text == "zero" else float(text)
    except ValueError:
        level = float("nan")
    if not abs(level) <= 10:
        raise InvalidParameter(
            f"A baseline is 'zero', a number from -10 to 10 or 'sample:NUMBER', not {baseline!r}."
        )
    return level
