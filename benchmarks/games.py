"""References for methods that hide parts of a picture: loops over windows, coalitions and orders.

Nothing of verax is used, and nothing is shared: every coalition is a picture of its own.
"""

from __future__ import annotations

from itertools import pairwise, permutations, product

import numpy as np
import torch
from torch import Tensor, nn

from correctness import output
from kinds import SIDE, segments
from references import Reference

Values = dict[tuple[bool, ...], Tensor]
"""Coalition -> the explained output of every sample."""


def occlusion(window: int, stride: int = 1) -> Reference:
    """How far the output falls under a window, averaged over those that cover a place (Zeiler, 2014)."""

    def reference(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        drops, counts = torch.zeros_like(x), torch.zeros_like(x)
        whole = output(model, x.clone(), targets)
        starts = range(0, x.shape[-1] - window + 1, stride)
        for top, left in product(starts, starts):
            hidden = x.clone()
            hidden[:, :, top : top + window, left : left + window] = 0
            drop = whole - output(model, hidden, targets)
            drops[:, :, top : top + window, left : left + window] += drop[:, None, None, None]
            counts[:, :, top : top + window, left : left + window] += 1
        return drops / counts

    return reference


def singly(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
    """How far the output falls without one number."""
    whole = output(model, x.clone(), targets)
    found = torch.zeros_like(x).flatten(1)
    for place in range(found.shape[1]):
        hidden = x.clone().flatten(1)
        hidden[:, place] = 0
        found[:, place] = whole - output(model, hidden.reshape(x.shape), targets)
    return found.reshape(x.shape)


def worth(model: nn.Module, x: Tensor, targets: Tensor) -> Values:
    """The output for every coalition of the segments; absent ones are zero."""
    labels = segments()
    found = {}
    for coalition in product((False, True), repeat=int(labels.max()) + 1):
        shown = torch.tensor(coalition)[labels].to(x)
        found[coalition] = output(model, x * shown, targets)
    return found


def spread(values: Tensor, x: Tensor) -> Tensor:
    """Values of segments ``(N, P)`` shared out among the numbers of each segment."""
    return values[:, segments()[0]].expand_as(x) / (x.shape[1] * SIDE * SIDE)


def _without(coalition: tuple[bool, ...], player: int) -> tuple[bool, ...]:
    return tuple(inside and number != player for number, inside in enumerate(coalition))


def ablation(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
    """How far the output falls without a segment."""
    values = worth(model, x, targets)
    everybody = max(values, key=sum)
    drops = [values[everybody] - values[_without(everybody, player)] for player in range(len(everybody))]
    return spread(torch.stack(drops, 1), x)


def shapley(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
    """What a segment adds to those before it, averaged over all orders (Shapley, 1953)."""
    values = worth(model, x, targets)
    players = len(max(values, key=sum))
    gains = torch.zeros(len(x), players, dtype=x.dtype)
    orders = list(permutations(range(players)))
    for order in orders:
        joined = [tuple(player in order[:place] for player in range(players)) for place in range(players + 1)]
        for player, (before, after) in zip(order, pairwise(joined), strict=True):
            gains[:, player] += values[after] - values[before]
    return spread(gains / len(orders), x)


def proximity(shown: int, players: int) -> float:
    """How much a coalition of `shown` segments counts: the cosine kernel of LIME for pictures."""
    return float(np.exp(-(((1 - (shown / players) ** 0.5) / 0.25) ** 2)))


def lime(draws: int, penalty: float = 1.0) -> Reference:
    """Weighted ridge regression on all coalitions, each as often as it is drawn on average (LIME, 2016)."""

    def reference(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        values = worth(model, x, targets)
        rows = np.array([(1.0, *coalition) for coalition in values])
        weights = np.array([proximity(sum(coalition), len(coalition)) for coalition in values])
        weights *= draws / len(values)
        punished = penalty * np.diag([0.0] + [1.0] * (rows.shape[1] - 1))  # the constant is free
        wanted = torch.stack(list(values.values())).numpy()
        found = np.linalg.solve(rows.T * weights @ rows + punished, rows.T * weights @ wanted)
        return spread(torch.from_numpy(found[1:].T.copy()), x)

    return reference
