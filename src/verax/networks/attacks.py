"""Adversaries: projected gradient ascent (Madry et al., ICLR 2018) within a maximal change of each pixel."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from verax.networks.anatomy import device_of
from verax.networks.inference import undisturbed
from verax.networks.losses import Loss
from verax.tasks.base import Trainable

ITERATIONS = 10


def pgd(
    model: Callable[[Tensor], Tensor],
    pictures: Tensor,
    labels: Tensor,
    start: Tensor,
    eps: float | Tensor,
    *,
    step: float | None = None,
    iterations: int = ITERATIONS,
    loss: Loss = F.cross_entropy,
) -> Tensor:
    """Pictures within `eps` of the given ones, and within [0, 1], on which the network does worse.

    Args:
        model: gives ``(samples, classes)``.
        pictures: ``(N, C, H, W)`` in [0, 1].
        labels: ``(N,)``.
        start: ``(N, C, H, W)`` in [-1, 1]; where to start from, as shares of `eps`.
        eps: largest change of a value (L-inf).
        step: change in one iteration; a third of `eps` by default, as in the paper (0.1 of 0.3).
        iterations: how many of them.
        loss: what the adversary climbs. The clipped loss of the SMERF code is flat where the network is sure,
            so that such pictures stay as they are: it makes a weak adversary.
    """
    stride = eps / 3 if step is None else step
    low, high = (pictures - eps).clamp(min=0), (pictures + eps).clamp(max=1)
    changed = (pictures + eps * start).clamp(0, 1)
    for _ in range(iterations):
        point = changed.detach().requires_grad_()
        with torch.enable_grad():
            height = loss(model(point).float(), labels)
        (slope,) = torch.autograd.grad(height, point)
        changed = torch.minimum(torch.maximum(point.detach() + stride * slope.sign(), low), high)
    return changed.detach()


def robust_accuracy(
    model: nn.Module,
    task: Trainable,
    eps: float,
    *,
    groups: Sequence[int] | None = None,
    n: int = 50,
    seed: int = 0,
    batch_size: int = 512,
) -> float:
    """The share of `n` fresh cases of each bucket (or of some) that is still right under attack."""
    device = device_of(model)
    cases = task.cases(None if groups is None else list(groups), n=n, seed=seed, device=device)
    start = task.streams(cases.ids, seed, "attack").uniform("start", *cases.inputs.shape[1:]).float() * 2 - 1
    right = []
    with undisturbed(model):
        for rows in torch.split(torch.arange(len(cases), device=device), batch_size):
            labels = cases.targets[rows]
            worse = pgd(model, cases.inputs[rows], labels, start[rows], eps)
            with torch.no_grad():
                right.append(model(worse).argmax(1) == labels)
    return float(torch.cat(right).double().mean())
