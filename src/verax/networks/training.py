"""Training: one trainer, pictures rendered on the fly, deterministic by seed.

Every step draws fresh scenes (no picture is seen twice), with all labels equally likely and the buckets of
a label equally likely; for Complex-FR this gives the 1 : 3 weights of the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from verax import devices, progress, registry, seeding
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


def find_recipe(name: str | Recipe) -> Recipe:
    """The recipe called `name`, or one's own as it is."""
    if isinstance(name, Recipe):
        return name
    if name not in RECIPES:
        raise InvalidParameter(f"There is no recipe named {name!r}{suggestion(str(name), RECIPES)}")
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
    """A trained network and how it came about.

    Attributes:
        model: the network, in eval mode.
        task: what it was trained on.
        network: the architecture's name.
        seed: the training seed.
        recipe: the recipe's name ("own" for one's own).
        settings: the recipe itself.
        epochs: how many were needed.
        worst: accuracy in the worst bucket after training.
        certificate: None when it was trained on some of the buckets only.
    """

    model: nn.Module
    task: TextBox
    network: str
    seed: int
    recipe: str
    settings: Recipe
    epochs: int
    worst: float
    certificate: Certificate | None

    def save(self) -> Path:
        """Keep the network in the store, where ``task.network(...)`` and studies find it."""
        # the library stands above the trainer, so its name is resolved when it is needed
        return cast("Path", registry.load("verax.networks.library:save")(self))

    def __repr__(self) -> str:
        verdict = "not certified" if self.certificate is None else str(self.certificate)
        return f"Trained({self.network} on {self.task.name}, {self.epochs} epochs; {verdict})"


def train(
    task: TextBox,
    network: str = "cnn4",
    *,
    seed: int = 0,
    recipe: str | Recipe = "fast",
    groups: Sequence[int] | None = None,
    device: str | torch.device = "auto",
    early_stop: bool = True,
    watch: Watcher | None = None,
    quiet: bool = False,
) -> Trained:
    """Train `network` on `task`; ``.save()`` keeps the result for studies.

    The weights are rounded to half precision, as they are stored, before the certificate is made.

    Args:
        task: where the scenes and labels come from.
        network: an architecture's name.
        seed: decides the first weights and every scene.
        recipe: "fast", "published" or a `Recipe`.
        groups: train on these buckets only (a confounded world); then no certificate is made.
        device: where to compute.
        early_stop: stop after the first epoch whose network passes its certificate with half of the
            permitted errors.
        watch: called about every 20 steps, in place of the progress bar.
        quiet: no progress bar.
    """
    plan, where = find_recipe(recipe), devices.resolve(device)
    network = NETWORKS.canonical(network)
    if watch is None:
        with progress.bar(hidden=quiet) as bar:
            row = bar.add_task(f"{task.name} {network}", total=None)

            def shown(state: Progress) -> None:
                worst = "-" if state.worst is None else f"{state.worst:.3f}"
                text = f"{task.name} {network} epoch {state.epoch}/{state.epochs}"
                text += f" loss {state.loss:.4f} worst bucket {worst}"
                bar.update(row, total=state.steps, completed=state.step, description=text)

            return train(
                task,
                network,
                seed=seed,
                recipe=recipe,
                groups=groups,
                device=device,
                early_stop=early_stop,
                watch=shown,
            )
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
        if step % 20 == 0 or step == steps:
            watch(Progress(epoch, plan.epochs, step, steps, float(loss.detach()), worst))
        if step % per_epoch == 0:
            worst = _worst_bucket(model, task, chosen, seed, where)
            if early_stop and _good_enough(model, task, worst, seed, whole=groups is None):
                break
    model = model.eval().half().float()
    if groups is None:
        certificate = certify(model, task, n=500, seed=seeding.key("certify", seed))
    name = recipe if isinstance(recipe, str) else "own"
    worst = _worst_bucket(model, task, chosen, seed, where)
    return Trained(model, task, network, seed, name, plan, epoch, worst, certificate)


def _good_enough(model: nn.Module, task: TextBox, worst: float, seed: int, *, whole: bool) -> bool:
    """Whether training may stop: with half of the permitted errors, so that it holds on other samples."""
    strict = Thresholds(accuracy=0.995, follow=0.985)
    if worst < strict.accuracy:
        return False
    return (
        not whole
        or certify(model, task, n=_EVALUATED, seed=seeding.key("stop", seed), thresholds=strict).passed
    )
