"""Linear baselines: least squares with and without an intercept, and ridge regression.

Solved exactly from sums over chunks, so that a million samples need no more memory than one chunk. The
published comparison has no intercept; with one the same data are explained far better, so both are here.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from verax.networks.dense import CELLS
from verax.tasks.base import Draws

PENALTY = 0.01
"""Of ridge regression, relative to the variance of an input element, which is 1."""

_ROWS = 4096  # summed at once: float64 copies of a whole chunk would be large


def linear(classes: int = 1, features: int = CELLS) -> nn.Module:
    """Least squares without an intercept, as published."""
    return nn.Sequential(nn.Linear(features, classes, bias=False))


def linear_intercept(classes: int = 1, features: int = CELLS) -> nn.Module:
    """Least squares with an intercept."""
    return nn.Sequential(nn.Linear(features, classes))


def ridge(classes: int = 1, features: int = CELLS) -> nn.Module:
    """Ridge regression with an intercept, which is not penalised."""
    return nn.Sequential(nn.Linear(features, classes))


@dataclass(frozen=True)
class Moments:
    """Sums over samples in float64: how many, of x, of y, of x x' and of x y."""

    count: int
    x: Tensor
    y: Tensor
    xx: Tensor
    xy: Tensor

    @classmethod
    def of(cls, samples: Draws, device: str | torch.device = "cpu") -> Moments:
        """Sum over all chunks."""
        count, sums = 0, [torch.zeros((), dtype=torch.float64, device=device)] * 4
        for index in range(samples.chunks):
            both = samples.chunk(index, device)
            for x, y in zip(*(torch.split(part, _ROWS) for part in both), strict=True):
                x, y, count = x.double(), y.double(), count + len(x)
                parts = (x.sum(0), y.sum(), x.T @ x, x.T @ y)
                sums = [total + part for total, part in zip(sums, parts, strict=True)]
        return cls(count, *sums)

    def solve(self, *, intercept: bool, penalty: float = 0.0) -> tuple[Tensor, Tensor]:
        """Coefficients ``(D,)`` and intercept of the smallest squared error, the shortest of them."""
        n = self.count
        mean_x, mean_y = (self.x / n, self.y / n) if intercept else (self.x * 0, self.y * 0)
        spread = self.xx / n - torch.outer(mean_x, mean_x)
        both = self.xy / n - mean_x * mean_y
        spread = spread + penalty * torch.eye(len(spread), dtype=spread.dtype, device=spread.device)
        found = torch.linalg.lstsq(spread.cpu(), both.cpu()[:, None], driver="gelsd").solution[:, 0]
        found = found.to(spread.device)
        return found, mean_y - mean_x @ found


def fit(name: str, model: nn.Module, samples: Draws, device: str | torch.device = "cpu") -> None:
    """Set the weights of one of the linear networks to what fits the samples best."""
    layer = next(m for m in model.modules() if isinstance(m, nn.Linear))
    penalty = PENALTY if name == "ridge" else 0.0
    weight, offset = Moments.of(samples, device).solve(intercept=layer.bias is not None, penalty=penalty)
    with torch.no_grad():
        layer.weight.copy_(weight[None])
        if layer.bias is not None:
            layer.bias.copy_(offset[None])
