"""Template detectors: one kernel for each look, with a threshold that no other scene can reach.

A kernel is twice the look minus its peak, within the look and a ring of `placement.GAP` pixels around it: ink
counts for it, and anything else, the ring included, against it. The sound renderer keeps objects that far
apart, so where a look stands nothing else enters its kernel, and the response there is one number, `exact`.
Everywhere else, and in every scene without the look, the response is at most `rival`, which is found by
searching all placements. The threshold lies halfway between the two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import conv2d, pad

from verax.errors import InvalidParameter
from verax.tasks.textbox.placement import GAP
from verax.tasks.textbox.scenes import Kind, Look, World

Floats = NDArray[np.float64]

MARGIN = 0.02
"""How far, as a share of the exact response, every other response has to stay below it."""

_FAR = 10**6  # where an absent object stands: beside nothing
_MOST = 4_000_000  # placements held at a time


@dataclass(frozen=True)
class Detector:
    """What finds one look.

    Attributes:
        kind: the position of its kind in the world.
        state: the name of the look.
        kernel: ``(3, h + 4, w + 4)`` float64.
        exact: the response where the look stands.
        rival: the largest response anywhere else, over all scenes of the sound renderer.
    """

    kind: int
    state: str
    kernel: Tensor
    exact: float
    rival: float

    @property
    def threshold(self) -> float:
        """Halfway between the exact response and its rival."""
        return (self.exact + self.rival) / 2


def picture(look: Look) -> Tensor:
    """A look on black, ``(3, h, w)`` float64."""
    ink = torch.from_numpy(look.ink.astype(np.float64))
    return torch.tensor(look.colour, dtype=torch.float64)[:, None, None] * ink


def kernel(look: Look) -> Tensor:
    """Twice the look minus its peak, with a ring around it; divided by three for the three channels."""
    drawn = picture(look)
    return (2 * pad(drawn, (GAP,) * 4) - drawn.max()) / 3


@dataclass(frozen=True)
class _Candidates:
    """Places of one kind of object, relative to a template, from which it adds to the response."""

    values: Floats
    places: NDArray[np.int64]
    size: tuple[int, int]

    @property
    def most(self) -> float:
        return float(self.values.max(initial=0.0))


def _candidates(template: Tensor, kind: Kind, itself: str | None) -> _Candidates:
    """All places of a kind in any state where it adds to the response; not the exact one of `itself`."""
    values, places = [np.zeros(0)], [np.zeros((0, 2), dtype=np.int64)]
    for state, look in kind.looks.items():
        drawn = picture(look)
        height, width = drawn.shape[1:]
        found = conv2d(template[None], drawn[None], padding=(height - 1, width - 1))[0, 0].numpy()
        where = np.argwhere(found > 0)
        offsets = where - (height - 1 + GAP, width - 1 + GAP)
        kept = np.ones(len(where), dtype=bool) if state != itself else (offsets != 0).any(1)
        values.append(found[tuple(where[kept].T)])
        places.append(offsets[kept])
    return _Candidates(np.concatenate(values), np.concatenate(places), kind.size)


def _rival(kinds: list[_Candidates]) -> float:
    """The largest sum of contributions of objects that stand apart; at most one object of each kind.

    Kinds are added one after the other; what cannot pass the best sum so far is dropped on the way. Where
    there are too many placements, the sum of the largest contributions stands in: too careful, never wrong.
    """
    kinds = sorted((kind for kind in kinds if len(kind.values)), key=lambda kind: -kind.most)
    best = max((kind.most for kind in kinds), default=0.0)
    sums, placed = np.zeros(1), np.zeros((1, 0, 2), dtype=np.int64)
    for number, kind in enumerate(kinds):
        later = sum(other.most for other in kinds[number + 1 :])
        if len(sums) * len(kind.values) > _MOST:
            return float(sums.max()) + sum(other.most for other in kinds[number:])
        apart = np.ones((len(sums), len(kind.values)), dtype=bool)
        for earlier in range(number):
            start, size = placed[:, None, earlier], np.array(kinds[earlier].size) + GAP
            after = kind.places[None] >= start + size
            before = kind.places[None] + np.array(kind.size) + GAP <= start
            apart &= (after | before).any(2)
        together = sums[:, None] + kind.values[None]
        best = max(best, float(together.max(where=apart, initial=0.0)))
        old, new = np.nonzero(apart & (together + later > best))
        alone = np.nonzero(sums + later > best)[0]
        absent = np.full((len(alone), 1, 2), _FAR)
        sums = np.concatenate([together[old, new], sums[alone]])
        placed = np.concatenate(
            [
                np.concatenate([placed[old], kind.places[new][:, None]], axis=1),
                np.concatenate([placed[alone], absent], axis=1),
            ]
        )
        if not len(sums):
            break
    return best


def detectors(world: World) -> tuple[Detector, ...]:
    """One detector for each look of a world, in the order of kinds and looks.

    Raises:
        InvalidParameter: two looks are too much alike for templates.
    """
    made = []
    for index, kind in enumerate(world.kinds):
        for state, look in kind.looks.items():
            template = kernel(look)
            exact = float((template[:, GAP:-GAP, GAP:-GAP] * picture(look)).sum())
            rival = _rival(
                [_candidates(template, other, state if other is kind else None) for other in world.kinds]
            )
            if exact - rival < MARGIN * abs(exact):
                name = kind.name if kind.plain_object else f"{kind.name} = {state}"
                raise InvalidParameter(
                    f"No network can be wired for the world {world.name!r}: "
                    f"other objects look too much like {name!r}."
                )
            made.append(Detector(index, state, template, exact, rival))
    return tuple(made)
