"""Train and certify, whatever kind of task it is: `verax.train` and `verax.certify`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from verax.networks import certificates, fits, regression, training
from verax.networks.certificates import Certificate
from verax.networks.fits import Fit
from verax.networks.inference import ordinary
from verax.networks.recipes import Recipe
from verax.networks.regression import Fitted, Schedule
from verax.networks.trained import Trained
from verax.tasks import task as find_task
from verax.tasks.base import Learnable, Task, is_regression


def usual(task: Learnable) -> str:
    """The network that a task gets where none is named."""
    return "mlp" if is_regression(task) else str(getattr(task, "usual", "cnn4"))


def prepare(task: Learnable, network: str) -> Recipe | Schedule:
    """The recipe of a network; refuses one that cannot be trained on a task."""
    if is_regression(task):
        return regression.prepare(task, network)[1]
    return training.prepare(task, network)[1]


def origins(task: Learnable, network: str) -> list[str]:
    """The stored networks that the training of another one may start from, best first; mostly none."""
    if is_regression(task):
        return []
    name, plan = training.prepare(task, network)
    return training.origins(name.architecture, plan)


def train(
    task: Learnable,
    network: str | None = None,
    *,
    seed: int = 0,
    recipe: str | Recipe | Schedule | None = None,
    device: str | torch.device = "auto",
    quiet: bool = False,
    **options: Any,
) -> Trained | Fitted:
    """Train `network` on `task`; ``.save()`` keeps the result for studies.

    Args:
        task: where the samples come from.
        network: an architecture's name, or ``ARCHITECTURE@RECIPE`` (default: that of the task, mostly cnn4
            for pictures and mlp for regression).
        seed: decides the first weights and the order of samples.
        recipe: the recipe, where the name has none: "fast" (default), "published" and, for pictures,
            "swift", "published-script", "robust", "robust-swift" and "robust-EPS"; or a `Recipe`, for
            regression a `Schedule`.
        device: where to compute.
        quiet: no progress bar.
        **options: settings and watch, and what only `verax.networks.training.train` knows (groups,
            early_stop, start).
    """
    common: dict[str, Any] = {"seed": seed, "recipe": recipe, "device": device, "quiet": quiet, **options}
    with ordinary():  # the same seed gives the same weights, whatever the caller has set
        if is_regression(task):
            return regression.train(task, network or usual(task), **common)
        return training.train(task, network or usual(task), **common)


def certify(
    model: nn.Module,
    task: Task | str,
    *,
    n: int = 200,
    seed: int = 0,
    watch: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Certificate | Fit:
    """Test whether `model` follows the reasoning of `task`, or how far it is the function of a regression.

    Args:
        model: gives ``(samples, outputs)``.
        task: a task or its name.
        n: fresh scenes in each bucket, or held-out samples.
        seed: of those; they are separate from training and from `Task.cases`.
        watch: called with what is done and how much there is, for progress bars.
        **options: thresholds and batch_size of `verax.networks.certificates.certify`, or limits of
            `verax.networks.fits.certify`.
    """
    found = find_task(task)
    with ordinary():
        if is_regression(found):
            return fits.certify(model, found, n=n, seed=seed, watch=watch, **options)
        return certificates.certify(model, found, n=n, seed=seed, watch=watch, **options)
