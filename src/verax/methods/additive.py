"""Exact Shapley values of functions that are sums of one term for each segment."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from verax.engine.baselines import Baseline
from verax.engine.batching import budget_on, in_parts
from verax.engine.coalitions import Game
from verax.engine.segments import Spec
from verax.errors import UnsupportedOperation
from verax.methods.base import builtin
from verax.methods.limits import number_from, whole_from
from verax.seeding import Streams


def additive_values(game: Game, streams: Streams, checks: int) -> tuple[Tensor, Tensor]:
    """What each player brings alone, and how far coalitions are from the sum of their players.

    Args:
        game: the games of all samples.
        streams: the random numbers of each sample.
        checks: coalitions of about half of the players that are compared, beside that of all.

    Returns:
        Values float64 ``(N, P)``; the largest gap of each sample ``(N,)``, relative to the root of the sum of
        its squared values, with what rounding of the outputs explains taken off.
    """
    active = game.active
    drawn = streams.uniform("coalitions", game.players, checks).mT < 0.5
    everybody = torch.ones_like(active[:, None])
    coalitions = torch.cat([everybody, drawn], 1)
    worth = game.worth(coalitions)
    nobody, alone = game.one_by_one(inside=True)
    values = (alone - nobody) * active
    predicted = nobody + (coalitions.to(values) @ values[..., None])[..., 0]
    precision = torch.finfo(game.inputs.dtype).eps
    # every value has the rounding of two outputs, and a coalition adds up as many as it has players
    largest = torch.maximum(worth.abs().amax(1), nobody[:, 0].abs())
    rounding = 4 * precision * largest * active.sum(1).clamp(min=1).sqrt()
    gap = ((worth - predicted).abs().amax(1) - rounding).clamp(min=0)
    norm = values.square().sum(1).sqrt()
    return values, torch.where(gap > 0, gap / norm, 0.0)


@builtin(
    "exact-additive",
    aliases=("ExactAdditive",),
    family="perturbations",
    needs="additive",
    paper="Shapley, Contributions to the Theory of Games 1953",
    cost="1 forward for each active segment, and `checks` + 2",
    total="change",
    limits={"tolerance": number_from(0), "checks": whole_from(1)},
)
def exact_additive(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    streams: Streams,
    segments: Spec = "grid",
    size: int | None = None,
    tolerance: float = 1e-3,
    checks: int = 8,
    baseline: Baseline = 0.0,
) -> Tensor:
    """The exact Shapley values of a function that is a sum of one term for each segment.

    ::

        f(baseline with segment i of x) - f(baseline)

    Assumes that segments do not interact: then every order of joining gives each of them this same value.
    The assumption is checked on the whole input and on random halves of the segments; a network whose
    outputs differ from the sums by more than `tolerance` is refused.

    Args:
        model: the network.
        inputs: ``(N, C, ...)`` or vectors ``(N, F)``.
        targets: ``(N,)``.
        streams: the random numbers of each sample.
        segments: "grid", "slic" or whole numbers that name the segment of each place.
        size: side of a segment (default: 8 places; vectors: one feature).
        tolerance: the largest gap that counts as none, relative to the root of the summed squared values.
        checks: random halves of the segments that are compared.
        baseline: what absent segments show.
    """
    game = Game.of(model, inputs, targets, segments, size, baseline, streams)

    def values(part: slice) -> Tensor:
        found, gap = additive_values(game[part], streams[part], checks)
        worst = float(gap.max())
        if not worst <= tolerance:
            raise UnsupportedOperation(
                f"The network is not additive over these segments: outputs differ from sums by {worst:.2g} "
                f"of the size of the values, more than the tolerance of {tolerance:g}."
            )
        return game[part].spread(found)

    return in_parts(len(inputs), (checks + 4) * game.players, values, budget_on(inputs))
