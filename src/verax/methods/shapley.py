"""Shapley values: what each player adds to the output, averaged over all orders of joining.

Shapley, "A value for n-person games", 1953. The players are segments of the input; an absent one shows the
baseline. A player that equals the baseline is a dummy: its value is 0 and it takes no part in any draw, as
in the reference implementation of Kernel SHAP. Values of a sample add up to f(input) - f(baseline).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from verax.engine.baselines import Baseline
from verax.engine.batching import budget_on, in_parts
from verax.engine.coalitions import Game, enough
from verax.engine.segments import Spec
from verax.errors import InvalidParameter
from verax.methods.base import builtin
from verax.methods.limits import whole_from
from verax.seeding import Streams

MOST = 16
"""Players of an exact game; 2**16 coalitions."""


def _listed(numbers: Tensor, active: Tensor) -> Tensor:
    """The coalitions ``(N, M, P)`` whose k-th active player is in when bit k of a number ``(M,)`` is set."""
    rank = (active.cumsum(1) - 1).clamp(0, 62)
    return ((numbers[None, :, None] >> rank[:, None]) & 1).bool() & active[:, None]


def _keys(streams: Streams, label: str, draws: int, active: Tensor) -> Tensor:
    """A uniform number for each draw and player ``(N, draws, P)``; dummies come after all others.

    Drawn player by player, so that a sample's numbers do not change when another one has more players.
    """
    drawn = streams.uniform(label, active.shape[1], draws).transpose(1, 2)
    return drawn + 2.0 * ~active[:, None]


def _drawn(streams: Streams, draws: int, active: Tensor) -> Tensor:
    """Random coalitions ``(N, draws, P)`` of active players, sizes by the Shapley kernel."""
    count = active.sum(1)[:, None]
    size = torch.arange(1, active.shape[1] + 1, device=active.device)
    proper = size < count
    # all coalitions of one size together weigh (n - 1) / (s (n - s))
    weight = torch.where(proper, 1.0 / (size * (count - size)).clamp(min=1).to(torch.float64), 0.0)
    ladder = weight.cumsum(1)
    height = streams.uniform("size", draws) * ladder[:, -1:]
    sizes = torch.searchsorted(ladder, height, right=True)  # counted from 0, as places in a sorted row are
    keys = _keys(streams, "players", draws, active)
    last = keys.sort(dim=2).values.gather(2, sizes.clamp(max=active.shape[1] - 1)[..., None])
    return (keys <= last) & active[:, None]


def kernel(players: Tensor, size: Tensor) -> Tensor:
    """The Shapley kernel, weight of one coalition: (n - 1) / (C(n, s) s (n - s)); 0 for none and for all."""
    n, s = players.to(torch.float64), size.to(torch.float64)
    proper = (s > 0) & (s < n)
    s = torch.where(proper, s, 1.0)
    rest = torch.where(proper, n - s, 1.0)
    ways = torch.lgamma(s + rest + 1) - torch.lgamma(s + 1) - torch.lgamma(rest + 1)
    return torch.where(proper, (s + rest - 1) / (s * rest) * torch.exp(-ways), 0.0)


def _inverse_times(matrix: Tensor, right: Tensor, filling: Tensor | float = 0.0) -> Tensor:
    """The pseudo-inverse of symmetric matrices times right-hand sides ``(N, n, 1)``.

    Where nothing is left open, by Cholesky's method, thirty times as fast as the pseudo-inverse.

    Args:
        matrix: ``(N, n, n)``.
        right: ``(N, n, 1)``.
        filling: projections on directions that `matrix` leaves open and `right` has no part in.
    """
    size = matrix.diagonal(dim1=1, dim2=2).mean(1)[:, None, None].clamp(min=1e-300)
    factor, failed = torch.linalg.cholesky_ex(matrix + size * filling)
    pivots = factor.diagonal(dim1=1, dim2=2).square()
    sound = (failed == 0) & (pivots.amin(1) > 1e-8 * size[:, 0, 0])
    found = torch.cholesky_solve(right, factor)
    if not sound.all():
        hard = ~sound
        found[hard] = torch.linalg.pinv(matrix[hard], rtol=1e-10, hermitian=True) @ right[hard]
    return found


def _merged(rows: Tensor, wanted: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Rows that were drawn several times, or whose complement was, as one: what is wanted, and weights.

    The first of them has all the weight, the others none.
    """
    gram = rows @ rows.mT
    size = gram.diagonal(dim1=1, dim2=2).sqrt()
    cosine = gram / (size[:, :, None] * size[:, None, :]).clamp(min=1e-300)
    sign = cosine.sign() * (cosine.abs() > 1 - 1e-9)  # one player more or less changes it by far more
    total = (sign.abs() @ weights[..., None])[..., 0]
    mean = (sign @ (weights * wanted)[..., None])[..., 0] / total.clamp(min=1e-300)
    later = sign.tril(-1).any(2)
    return mean, torch.where(later, 0.0, total)


def _least_squares(rows: Tensor, wanted: Tensor, weights: Tensor, active: Tensor) -> Tensor:
    """Weighted least squares of rows ``(N, K, P)``: ``(N, P)``, the shortest of all solutions.

    Samples with fewer rows than active players have the Gram matrix of the rows inverted, the others that of
    the players: rows have zero sum, so it leaves open the mean of the active players and the dummies, which
    are filled in; that changes no solution.
    """
    found = rows.new_zeros(len(rows), rows.shape[2], 1)
    short = active.sum(1) > rows.shape[1]
    if short.any():
        some = rows[short]
        mean, heavy = _merged(some, wanted[short], weights[short])
        root = heavy.sqrt()[..., None]
        x = some * root
        found[short] = x.mT @ _inverse_times(
            x @ x.mT, mean[..., None] * root, torch.diag_embed(1.0 * (heavy == 0))
        )
    if not short.all():
        known = ~short
        root = weights[known].sqrt()[..., None]
        # the active players first: no sample has more of them here than rows
        order = (
            active[known].to(torch.int8).sort(dim=1, descending=True, stable=True).indices[:, : rows.shape[1]]
        )
        there = active[known].gather(1, order).to(rows)
        x = rows[known].gather(2, order[:, None].expand(-1, rows.shape[1], -1)) * root
        mean = there[:, :, None] * there[:, None, :] / there.sum(1).clamp(min=1)[:, None, None]
        values = _inverse_times(
            x.mT @ x, x.mT @ (wanted[known][..., None] * root), mean + torch.diag_embed(1 - there)
        )
        found[known] = found[known].scatter(1, order[..., None], values)
    return found[..., 0]


def kernel_values(game: Game, streams: Streams, pairs: int) -> Tensor:
    """Kernel SHAP values of the players from `pairs` coalitions and their complements: float64 ``(N, P)``.

    With phi = (f(x) - f(b)) / n + u and sum(u) = 0, the residuals of a coalition z and of its complement
    depend on u through one number, (f(z) - f(not z)) / 2, so each pair is one row of the regression, and
    rows of zero sum keep sum(u) at 0: the constraint holds without a penalty or an elimination.
    """
    active = game.active
    count = active.sum(1)
    numbers = torch.arange(1, pairs + 1, device=active.device)
    # the last active player is always in the complement, so each pair is listed once
    everything = 2.0 ** (count - 1).to(torch.float64) - 1 <= pairs
    chosen = torch.zeros(len(active), pairs, active.shape[1], dtype=torch.bool, device=active.device)
    if everything.any():
        chosen = torch.where(everything[:, None, None], _listed(numbers, active), chosen)
    if not everything.all():
        chosen = torch.where(everything[:, None, None], chosen, _drawn(streams, pairs, active))
    size = chosen.sum(2)
    listed = (numbers < 2.0 ** (count[:, None] - 1).to(torch.float64)) * kernel(count[:, None], size)
    weights = torch.where(everything[:, None], listed, 1.0)
    ends = torch.stack([active, torch.zeros_like(active)], 1)
    worth = game.worth(torch.cat([chosen, ~chosen & active[:, None], ends], 1))
    total = (worth[:, -2] - worth[:, -1])[:, None]
    half = (worth[:, :pairs] - worth[:, pairs:-2]) / 2
    share = size / count.clamp(min=1).to(torch.float64)[:, None]
    rows = (chosen.to(torch.float64) - share[..., None]) * active[:, None]
    unequal = _least_squares(rows, half - (share - 0.5) * total, weights, active)
    return (total / count.clamp(min=1)[:, None] + unequal) * active


@builtin(
    "kernel-shap",
    aliases=("KernelSHAP", "KS"),
    family="perturbations",
    needs="forward",
    paper="Lundberg and Lee, NeurIPS 2017",
    cost="up to `samples` + 2 forwards",
    total="change",
    limits={"samples": whole_from(2).or_none()},
)
def kernel_shap(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    streams: Streams,
    samples: int | None = None,
    segments: Spec = "grid",
    size: int | None = None,
    baseline: Baseline = 0.0,
) -> Tensor:
    """What each segment adds to the output on average (Shapley values), by weighted least squares.

    Coalitions come in pairs with their complements (Covert and Lee, AISTATS 2021). A sample whose
    coalitions are no more than `samples` has all of them, weighted by the kernel, and so the exact values;
    for others the sizes are drawn by the kernel, and where that leaves values open the most even ones are
    taken. Values always add up to f(input) - f(baseline). A function that is a sum of one term for each
    segment has its exact values from three coalitions for each segment on.

    Args:
        model: the network.
        inputs: ``(N, C, ...)`` or vectors ``(N, F)``.
        targets: ``(N,)``.
        streams: the random numbers of each sample.
        samples: coalitions; an odd number is rounded down (default: 512, or 4 for each segment where that is
            more).
        segments: "grid", "slic" or whole numbers that name the segment of each place.
        size: side of a segment (default: 8 places; vectors: one feature).
        baseline: what absent segments show.
    """
    game = Game.of(model, inputs, targets, segments, size, baseline, streams)
    pairs = (enough(game.players) if samples is None else samples) // 2

    def values(part: slice) -> Tensor:
        return game[part].spread(kernel_values(game[part], streams[part], pairs))

    return in_parts(len(inputs), (2 * pairs + 2) * game.players, values, budget_on(inputs))


def sampled_values(game: Game, streams: Streams, permutations: int) -> Tensor:
    """Mean marginal contributions over random orders and their reverses: float64 ``(N, P)``."""
    active = game.active
    count = active.sum(1)[:, None, None]
    most = int(count.max())
    keys = _keys(streams, "orders", -(-permutations // 2), active)
    forth = keys.argsort(dim=2).argsort(dim=2)
    back = torch.where(active[:, None], count - 1 - forth, forth)
    place = torch.stack([forth, back], 2).flatten(1, 2)[:, :permutations]
    joined = torch.arange(most + 1, device=place.device)
    coalitions = place[:, :, None] < joined[:, None]
    worth = game.worth(coalitions.flatten(1, 2)).reshape(*place.shape[:2], most + 1)
    # dummies come last and may lie beyond the longest order; any step will do, it is masked below
    gains = worth.diff(dim=2).gather(2, place.clamp(max=most - 1)) if most else torch.zeros_like(keys[:, :1])
    return gains.mean(1) * active


@builtin(
    "shapley-sampling",
    aliases=("ShapleySampling", "SVS"),
    family="perturbations",
    needs="forward",
    paper="Castro, Gomez and Tejada, Computers & Operations Research 2009",
    cost="`permutations` forwards for each active segment",
    total="change",
    limits={"permutations": whole_from(1)},
)
def shapley_sampling(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    streams: Streams,
    permutations: int = 16,
    segments: Spec = "grid",
    size: int | None = None,
    baseline: Baseline = 0.0,
) -> Tensor:
    """What each segment adds to the output (Shapley values), averaged over random orders of joining.

    Every second order is the one before in reverse (antithetic, Mitchell et al., JMLR 2022). The
    contributions of one order telescope, so values add up to f(input) - f(baseline) exactly.

    Args:
        model: the network.
        inputs: ``(N, C, ...)`` or vectors ``(N, F)``.
        targets: ``(N,)``.
        streams: the random numbers of each sample.
        permutations: orders of joining.
        segments: "grid", "slic" or whole numbers that name the segment of each place.
        size: side of a segment (default: 8 places; vectors: one feature).
        baseline: what absent segments show.
    """
    game = Game.of(model, inputs, targets, segments, size, baseline, streams)

    def values(part: slice) -> Tensor:
        return game[part].spread(sampled_values(game[part], streams[part], permutations))

    return in_parts(len(inputs), permutations * (game.players + 1) * game.players, values, budget_on(inputs))


def exact_values(game: Game) -> Tensor:
    """Shapley values from all coalitions of the active players: float64 ``(N, P)``."""
    active = game.active
    # samples with fewer active players get dummies beside them, which changes no value
    n = max(1, int(active.sum(1).max()))
    numbers = torch.arange(2**n, device=active.device)
    inside = ((numbers[:, None] >> torch.arange(n, device=active.device)) & 1).bool()
    size = inside.sum(1, keepdim=True)
    weight = [math.factorial(s) * math.factorial(n - 1 - s) / math.factorial(n) for s in range(n)]
    table = torch.tensor(weight, dtype=torch.float64, device=active.device)
    joins, stays = table[(size - 1).clamp(min=0)], table[size.clamp(max=n - 1)]
    factors = torch.where(inside, joins, -stays)
    ranked = game.worth(_listed(numbers, active)) @ factors
    rank = (active.cumsum(1) - 1).clamp(0, n - 1)
    return ranked.gather(1, rank) * active


@builtin(
    "exact-shapley",
    aliases=("ExactShapley",),
    family="perturbations",
    needs="forward",
    paper="Shapley, Contributions to the Theory of Games 1953",
    cost="2**n forwards for n active segments",
    total="change",
)
def exact_shapley(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    segments: Spec = "grid",
    size: int | None = None,
    baseline: Baseline = 0.0,
) -> Tensor:
    """What each segment adds to the output (Shapley values), exactly, from all coalitions of segments.

    ::

        sum over S without i of |S|! (n - 1 - |S|)! / n! * (f(S + i) - f(S))

    For at most 16 segments that differ from the baseline.

    Args:
        model: the network.
        inputs: ``(N, C, ...)`` or vectors ``(N, F)``.
        targets: ``(N,)``.
        segments: "grid", "slic" or whole numbers that name the segment of each place.
        size: side of a segment (default: 8 places, for vectors 1, or as many more as make 16 segments).
        baseline: what absent segments show.
    """
    game = Game.of(model, inputs, targets, segments, size, baseline, most=MOST)
    most = int(game.active.sum(1).max())
    if most > MOST:
        raise InvalidParameter(
            f"Exact Shapley values need at most {MOST} segments that differ from the baseline, not {most}; "
            "choose a larger size or another Shapley method."
        )
    return in_parts(
        len(inputs), 2**most * game.players, lambda part: game[part].spread(exact_values(game[part]))
    )
