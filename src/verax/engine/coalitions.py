"""Games: the segments of an input are the players, the explained output is what a coalition is worth."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from verax.engine.baselines import Baseline, baseline_of
from verax.engine.masking import pair_outputs
from verax.engine.segments import Segments, Spec, segments_of
from verax.seeding import Streams

WORD = 48
"""Players in one exact float64 number."""

COALITIONS, EACH = 512, 4


def enough(players: int) -> int:
    """How many coalitions a regression on players has unless told otherwise: 512, or 4 for each player.

    With fewer coalitions than players, values stay open; with 4 for each one, pairs of complements give twice
    as many equations as there are values.
    """
    return max(COALITIONS, EACH * players)


def _same(coalitions: Tensor) -> Tensor:
    """A number for each row of ``(N, M, P)`` bool, equal for equal rows of the same sample: ``(N * M,)``."""
    samples, count, players = coalitions.shape
    found = torch.arange(samples, device=coalitions.device).repeat_interleave(count)
    powers = 2.0 ** torch.arange(WORD, device=coalitions.device, dtype=torch.float64)
    for first in range(0, players, WORD):
        bits = coalitions[..., first : first + WORD].to(torch.float64)
        _, word = torch.unique((bits @ powers[: bits.shape[-1]]).flatten(), return_inverse=True)
        _, found = torch.unique(found * (samples * count) + word, return_inverse=True)
    return found


@dataclass(frozen=True)
class Game:
    """The games of all samples.

    Attributes:
        model: the network.
        inputs: ``(N, ...)``.
        targets: ``(N,)``.
        filling: what absent players show, shape of `inputs`.
        segments: which numbers belong to which player.
        active: ``(N, P)``, players that differ from the filling; all others are dummies, worth exactly 0.
    """

    model: nn.Module
    inputs: Tensor
    targets: Tensor
    filling: Tensor
    segments: Segments
    active: Tensor

    @classmethod
    def of(
        cls,
        model: nn.Module,
        inputs: Tensor,
        targets: Tensor,
        segments: Spec,
        size: int | None,
        baseline: Baseline,
        streams: Streams | None = None,
        most: int | None = None,
    ) -> Game:
        """Cut the inputs into players; see `segments_of` and `baseline_of`."""
        filling = baseline_of(baseline, inputs, streams)
        cut = segments_of(segments, inputs, size, most)
        return cls(model, inputs, targets, filling, cut, cut.active(inputs, filling))

    @property
    def players(self) -> int:
        """How many players there are."""
        return self.segments.count

    def __getitem__(self, part: slice) -> Game:
        """The games of some of the samples."""
        return replace(
            self,
            inputs=self.inputs[part],
            targets=self.targets[part],
            filling=self.filling[part],
            segments=self.segments[part],
            active=self.active[part],
        )

    def worth(self, coalitions: Tensor) -> Tensor:
        """The explained output of coalitions ``(N, M, P)`` bool: float64 ``(N, M)``.

        Coalitions of a sample that differ in dummies only have one masked input, so they share one pass.
        """
        samples, count, players = coalitions.shape
        effective = coalitions & self.active[:, None]
        same = _same(effective)
        order = torch.arange(samples * count, device=same.device)
        first = torch.full((int(same.max()) + 1,), samples * count, device=same.device)
        first = first.scatter_reduce_(0, same, order, "amin")
        flat = effective.reshape(-1, players)

        def make(who: Tensor, which: Tensor) -> Tensor:
            # floats are spread over places ten times as fast as bools
            return self.segments.masks(flat.index_select(0, which).to(self.inputs.dtype), who)

        found = pair_outputs(self.model, self.inputs, self.targets, self.filling, first // count, first, make)
        return found.to(torch.float64)[same].reshape(samples, count)

    def one_by_one(self, *, inside: bool) -> tuple[Tensor, Tensor]:
        """The explained output where one player is shown alone, or is the only one hidden: ``(N, P)``.

        Before it that of no such player ``(N, 1)``: where nobody is shown, or nobody is hidden.

        Masks are made pass by pass: no table of all players by all players is ever kept. Dummies, which
        change nothing, have no pass of their own.

        Args:
            inside: show each player alone; otherwise hide it alone.
        """
        # nobody, as if one more player; a pass of its own would be a small one
        who, which = F.pad(self.active, (0, 1), value=True).nonzero(as_tuple=True)

        def make(samples: Tensor, players: Tensor) -> Tensor:
            chosen = F.one_hot(players, self.players + 1)[:, :-1].to(self.inputs.dtype)
            return self.segments.masks(chosen if inside else 1 - chosen, samples)

        found = pair_outputs(self.model, self.inputs, self.targets, self.filling, who, which, make)
        found = found.to(torch.float64)
        nobody = found[which == self.players][:, None]
        values = nobody.repeat(1, self.players + 1)
        values[who, which] = found
        return nobody, values[:, :-1]

    def spread(self, values: Tensor) -> Tensor:
        """Values of players ``(N, P)`` as maps; see `Segments.spread`."""
        return self.segments.spread(values, self.inputs)
