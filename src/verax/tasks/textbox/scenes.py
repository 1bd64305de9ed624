"""Scenes: which objects exist, how they look, and which combinations of them there are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from verax.errors import InvalidInput, InvalidParameter, UnknownName, suggestion
from verax.tasks.textbox import glyphs

Scene = Mapping[str, str | bool | None]
"""Object name -> state: `True`/`False` for objects with one look, the name of the look or None otherwise."""

ABSENT = "none"
PRESENT = "present"
MAX_SCENES = 4096  # every reasoning is checked on every scene


def _white() -> tuple[float, float, float]:
    return (1.0, 1.0, 1.0)


@dataclass(frozen=True, eq=False)
class Look:
    """One appearance of an object.

    Attributes:
        ink: ``(h, w)`` float32 in [0, 1]; how far the colour covers the background.
        colour: red, green, blue in [0, 1].
    """

    ink: NDArray[np.float32]
    colour: tuple[float, float, float] = field(default_factory=_white)

    def __post_init__(self) -> None:
        if isinstance(self.ink, str | Path):
            raise InvalidParameter(
                f"The ink of a look is a matrix of numbers from 0 to 1, not a file: read {str(self.ink)!r} "
                "with numpy.asarray(PIL.Image.open(FILE).convert('L')) / 255."
            )
        try:
            ink = np.array(self.ink, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise InvalidParameter(
                f"The ink of a look must be a matrix of numbers from 0 to 1, not {type(self.ink).__name__}."
            ) from error
        if ink.ndim != 2 or ink.size == 0 or not np.isfinite(ink).all() or ink.min() < 0 or ink.max() > 1:
            raise InvalidParameter("The ink of a look must be a matrix of numbers from 0 to 1.")
        if not (ink > 0).any():
            raise InvalidParameter("The ink of a look must cover at least one pixel.")
        if len(self.colour) != 3 or not all(0 <= c <= 1 for c in self.colour):
            raise InvalidParameter(f"A colour is three numbers from 0 to 1, not {self.colour!r}.")
        ink.setflags(write=False)
        object.__setattr__(self, "ink", ink)

    @classmethod
    def box(cls, height: int, width: int, colour: tuple[float, float, float] = (1.0, 1.0, 1.0)) -> Look:
        """A filled rectangle."""
        if height < 1 or width < 1:
            raise InvalidParameter("A box needs a height and a width of at least one pixel.")
        return cls(np.ones((height, width), dtype=np.float32), colour)


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of object: its name and its looks (state name -> look)."""

    name: str
    looks: Mapping[str, Look]

    def __post_init__(self) -> None:
        if not self.name.isidentifier() or self.name in ("and", "or", "not", "otherwise"):
            raise InvalidParameter(
                f"An object needs a name made of letters, digits and '_', not {self.name!r}."
            )
        if not self.looks or ABSENT in self.looks:
            raise InvalidParameter(
                f"Object {self.name!r} needs at least one look, and none named {ABSENT!r}."
            )

    @classmethod
    def plain(cls, name: str, look: Look) -> Kind:
        """An object that is there or is not."""
        return cls(name, {PRESENT: look})

    @property
    def states(self) -> tuple[str, ...]:
        """All states, absence first."""
        return (ABSENT, *self.looks)

    @property
    def plain_object(self) -> bool:
        """Whether the object has one look only."""
        return tuple(self.looks) == (PRESENT,)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width that hold every look."""
        shapes = [look.ink.shape for look in self.looks.values()]
        return max(s[0] for s in shapes), max(s[1] for s in shapes)

    def state(self, value: object) -> str:
        """Read a state as a person writes it: True, False, None, "none" or the name of a look."""
        if value is None or value is False or value == ABSENT:
            return ABSENT
        if value is True:
            if self.plain_object:
                return PRESENT
            raise InvalidInput(f"{self.name!r} needs one of {', '.join(self.looks)}, not just True.")
        if value in self.looks:
            return str(value)
        raise UnknownName(f"{self.name!r} has no state {value!r}{suggestion(str(value), self.states)}")


@dataclass(frozen=True, eq=False)
class World:
    """The kinds of objects that scenes are made of, and the canvas they stand on.

    The order of `kinds` fixes the numbers of the buckets: the first kind changes slowest.
    """

    name: str
    kinds: tuple[Kind, ...]
    canvas: tuple[int, int] = (64, 64)

    def __post_init__(self) -> None:
        names = [kind.name for kind in self.kinds]
        if not names or len(set(names)) != len(names):
            raise InvalidParameter(f"World {self.name!r} needs objects with names of their own.")
        if math.prod(len(kind.states) for kind in self.kinds) > MAX_SCENES:
            raise InvalidParameter(f"World {self.name!r} has more than {MAX_SCENES} different scenes.")
        for kind in self.kinds:
            if kind.size[0] > self.canvas[0] or kind.size[1] > self.canvas[1]:
                raise InvalidParameter(f"Object {kind.name!r} does not fit on a canvas of {self.canvas}.")

    @property
    def names(self) -> tuple[str, ...]:
        """The object names, in order."""
        return tuple(kind.name for kind in self.kinds)

    def kind(self, name: str) -> Kind:
        """The kind of object called `name`."""
        for kind in self.kinds:
            if kind.name == name:
                return kind
        raise UnknownName(f"There is no object named {name!r}{suggestion(name, self.names)}")

    def complete(self, scene: Scene) -> dict[str, str]:
        """Check a scene and give every object a state; objects that it leaves out are absent."""
        for name in scene:
            self.kind(name)
        return {kind.name: kind.state(scene.get(kind.name)) for kind in self.kinds}

    def scenes(self) -> Iterator[dict[str, str]]:
        """All combinations of states; the k-th (from 1) is bucket k."""
        for states in itertools.product(*(kind.states for kind in self.kinds)):
            yield dict(zip(self.names, states, strict=True))

    def bucket(self, scene: Scene) -> int:
        """The number of the bucket that `scene` belongs to."""
        complete = self.complete(scene)
        number = 0
        for kind in self.kinds:
            number = number * len(kind.states) + kind.states.index(complete[kind.name])
        return number + 1

    def describe(self, scene: Scene) -> str:
        """The present objects in words, such as ``A + box1``; text-like looks by their name."""
        complete = self.complete(scene)
        words = [
            k.name if k.plain_object else complete[k.name] for k in self.kinds if complete[k.name] != ABSENT
        ]
        return " + ".join(words) or "empty"


TEXTBOX = World(
    "textbox",
    (
        Kind.plain("box1", Look.box(10, 10)),
        Kind.plain("box2", Look.box(4, 4)),
        Kind("text", {letter: Look(ink) for letter, ink in glyphs.LETTERS.items()}),
    ),
)
"""The world of Kim, Plumb and Talwalkar (ICML 2022); its twelve buckets are numbered as in the paper."""
