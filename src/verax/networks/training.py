"""Training: one trainer, pictures rendered on the fly, deterministic by seed.

Every step draws fresh scenes (no picture is seen twice), with all labels equally likely and the buckets of
a label equally likely; for Complex-FR this gives the 1 : 3 weights of the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from verax import devices, seeding
from verax.errors import InvalidParameter, suggestion
from verax.networks import NETWORKS
from verax.networks.certificates import Certificate, Thresholds, certify
from verax.networks.inference import predictions
from verax.tasks.textbox.task import TextBox


@dataclass(frozen=True)
class Recipe:
    """How to train.

    Attributes:
        rate: learning rate; the peak when `cycle` is set.
        batch: scenes in a step.
        epochs: at most so many.
        scenes: scenes in an epoch, times the number of buckets.
        cycle: one-cycle schedule (Smith and Topin, 2018) instead of a constant rate.
        clip: largest gradient norm; without it one seed in ten dies at the peak of the cycle.
    """

    rate: float
    batch: int
    epochs: int
    scenes: int
    cycle: bool
    clip: float | None = None


RECIPES = {
    "fast": Recipe(rate=1.5e-3, batch=512, epochs=15, scenes=15_000, cycle=True, clip=1.0),
    "published": Recipe(rate=1e-4, batch=128, epochs=10, scenes=15_000, cycle=False),
}
"""`fast`: one-cycle. `published`: Adam 1e-4, at most 10 epochs, batch 128 (appendix A.2 of the paper)."""


@dataclass(frozen=True)
class Progress:
    """What a progress bar shows after each report."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    worst: float | None


Watcher = Callable[[Progress], None]
_EVALUATED = 200  # scenes in each bucket after every epoch
_CHUNK = 64  # steps whose layouts are drawn together: placement is a loop, and small loops are slow on a GPU


def recipe(name: str | Recipe) -> Recipe:
    """The recipe called `name`."""
    if isinstance(name, Recipe):
        return name
    if name not in RECIPES:
        raise InvalidParameter(f"There is no recipe named {name!r}{suggestion(name, RECIPES)}")
    return RECIPES[name]


def initialise(name: str, classes: int, seed: int) -> nn.Module:
    """A fresh network whose first weights depend on `seed` alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seeding.key("initialise", name, classes, seed) & 0x7FFFFFFFFFFFFFFF)
        return NETWORKS.get(name)(classes)


def _buckets(task: TextBox, groups: Sequence[int], streams: seeding.Streams) -> Tensor:
    """A bucket for each stream: a label first, then one of its buckets."""
    labels = task.labels(torch.tensor(groups)).tolist()
    table = [[g for g, y in zip(groups, labels, strict=True) if y == label] for label in sorted(set(labels))]
    width = max(map(len, table))
    # repeat short rows so that every label draws from a row of equal length without bias
    lengths = torch.tensor([len(row) for row in table], device=streams.ids.device)
    padded = torch.tensor([row + row[:1] * (width - len(row)) for row in table], device=streams.ids.device)
    label = streams.integers("label", len(table))
    return padded[label, streams.integers("bucket", lengths[label])]


def batches(
    task: TextBox, groups: Sequence[int], seed: int, steps: int, batch: int, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """`steps` batches of fresh pictures and labels."""
    for first in range(0, steps, _CHUNK):
        count = min(_CHUNK, steps - first) * batch
        ids = torch.arange(first * batch, first * batch + count, device=device)
        streams = task.streams(ids, seed, "train")
        buckets = _buckets(task, groups, streams)
        layout = task.layout(buckets, streams)
        labels = task.labels(buckets)
        for start in range(0, count, batch):
            part = slice(start, start + batch)
            yield task.render(layout[part], streams[part]), labels[part]


def _worst_bucket(
    model: nn.Module, task: TextBox, groups: Sequence[int], seed: int, device: torch.device
) -> float:
    cases = task.cases(list(groups), n=_EVALUATED, seed=seeding.key("validate", seed), device=device)
    right = (predictions(model, cases.inputs) == cases.targets).double()
    return float(right.reshape(len(groups), -1).mean(1).min())


@dataclass(frozen=True)
class Trained:
    """A trained network, its certificate (None for a subset of buckets) and how long it was trained."""

    model: nn.Module
    certificate: Certificate | None
    epochs: int
    worst: float


def train(
    task: TextBox,
    network: str = "cnn4",
    *,
    seed: int = 0,
    how: str | Recipe = "fast",
    groups: Sequence[int] | None = None,
    device: str | torch.device = "auto",
    early_stop: bool = True,
    watch: Watcher | None = None,
    half: bool = False,
) -> Trained:
    """Train `network` on `task`.

    Args:
        task: where the scenes and labels come from.
        network: an architecture's name.
        seed: decides the first weights and every scene.
        how: a recipe or its name.
        groups: train on these buckets only (a confounded world); then no certificate is made.
        device: where to compute.
        early_stop: stop after the first epoch whose network passes its certificate with half of the
            permitted errors.
        watch: called about every 20 steps, for progress bars.
        half: round the weights to half precision, as shipped, before the certificate is made.
    """
    plan, where = recipe(how), devices.resolve(device)
    chosen = task.check_groups(list(groups) if groups is not None else None)
    model = initialise(network, task.classes, seed).to(where)
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    fast = where.type == "cuda"
    optimiser = torch.optim.Adam(model.parameters(), plan.rate, fused=fast)
    per_epoch = max(1, plan.scenes * len(chosen) // plan.batch)
    steps = per_epoch * plan.epochs
    cycle = (
        torch.optim.lr_scheduler.OneCycleLR(optimiser, plan.rate, total_steps=steps) if plan.cycle else None
    )
    certificate: Certificate | None = None
    worst: float | None = None
    epoch = 1
    model.train()
    for step, (pictures, labels) in enumerate(batches(task, chosen, seed, steps, plan.batch, where), 1):
        epoch = (step - 1) // per_epoch + 1
        with torch.autocast("cuda", torch.bfloat16, enabled=fast):
            loss = F.cross_entropy(model(pictures), labels)
        optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        if plan.clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), plan.clip)
        optimiser.step()
        if cycle is not None:
            cycle.step()
        if watch is not None and (step % 20 == 0 or step == steps):
            watch(Progress(epoch, plan.epochs, step, steps, float(loss.detach()), worst))
        if step % per_epoch == 0:
            worst = _worst_bucket(model, task, chosen, seed, where)
            if early_stop and _good_enough(model, task, worst, seed, whole=groups is None):
                break
    model.eval()
    if half:
        model = model.half().float()
    if groups is None:
        certificate = certify(model, task, n=500, seed=seeding.key("certify", seed))
    return Trained(model, certificate, epoch, _worst_bucket(model, task, chosen, seed, where))


def _good_enough(model: nn.Module, task: TextBox, worst: float, seed: int, *, whole: bool) -> bool:
    """Whether training may stop: with half of the permitted errors, so that it holds on other samples."""
    strict = Thresholds(accuracy=0.995, follow=0.985)
    if worst < strict.accuracy:
        return False
    return (
        not whole
        or certify(model, task, n=_EVALUATED, seed=seeding.key("stop", seed), thresholds=strict).passed
    )
