"""Training regression networks: streamed samples, two recipes, deterministic by seed.

`fast` is verax's own: Adam with a one-cycle schedule and outputs scaled to unit variance. `published` is that
of Mamalakis, Ebert-Uphoff and Barnes (2022): plain gradient descent with a rate of 0.02 on batches of 32 for
50 epochs. Linear networks are solved, not trained, so that a recipe changes nothing about them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from verax import devices, progress, registry, seeding
from verax.errors import InvalidParameter, suggestion
from verax.networks import VECTORS, fits, linear, names
from verax.networks.fits import Fit
from verax.networks.names import Name
from verax.networks.recipes import FAST, OWN, Recipe
from verax.networks.starts import initialise
from verax.networks.steps import Stepper
from verax.networks.training import Progress
from verax.tasks.base import Draws, Regression

SOLVED = ("linear", "linear-intercept", "ridge")
"""Networks whose weights have a closed form."""

MEMORY = 6 << 30
"""Bytes of samples that are kept in memory; more are drawn anew in every epoch."""

_SMALLEST, _STEPS = 32, 64  # samples in a batch, and batches in an epoch, of small sets
_LEAST, _MOST = 1400, 50  # steps in all, and epochs: fewer would not be trained, more would only repeat
_RECORDED = 16  # steps that a GPU replays at a time
_SHOWN = 50  # steps from one report to the next
_BUFFER = 4  # chunks that are shuffled together when samples are not kept


@dataclass(frozen=True)
class Schedule:
    """How a regression network is trained.

    Attributes:
        rate: learning rate; the peak of the cycle for Adam.
        batch: samples in a step.
        epochs: how often every sample is seen.
        adam: Adam with a one-cycle schedule (Smith and Topin, 2018) instead of plain gradient descent.
        scaled: outputs are learned in units of their standard deviation, which the last layer takes back.
    """

    rate: float
    batch: int
    epochs: int
    adam: bool = True
    scaled: bool = True


SCHEDULES = {
    FAST: Schedule(rate=3e-3, batch=1024, epochs=15),
    "published": Schedule(rate=0.02, batch=32, epochs=50, adam=False, scaled=False),
}


Watcher = Callable[[Progress], None]


@dataclass(frozen=True)
class Fitted:
    """A trained regression network and how it came about.

    Attributes:
        model: the network, in eval mode.
        task: what it was trained on.
        network: the architecture's name.
        seed: the training seed.
        recipe: the recipe's name.
        settings: the recipe itself; None for a network that was solved.
        certificate: how far it is the function.
    """

    model: nn.Module
    task: Regression
    network: str
    seed: int
    recipe: str
    settings: Schedule | None
    certificate: Fit

    @property
    def name(self) -> Name:
        """The name under which it is stored."""
        return Name(self.network, self.recipe)

    @property
    def epochs(self) -> int:
        """How often every sample was seen."""
        return 1 if self.settings is None else self.settings.epochs

    def save(self) -> Path:
        """Keep the network in the store, where ``task.network(...)`` and studies find it."""
        # the library stands above the trainer, so its name is resolved when it is needed
        return cast("Path", registry.load("verax.networks.library:save")(self))

    def __repr__(self) -> str:
        return f"Fitted({self.name} on {self.task.name}; {self.certificate})"


def check_network(architecture: str, task: Regression) -> None:
    """Refuse an architecture that takes no vectors."""
    if architecture not in VECTORS:
        raise InvalidParameter(
            f"The network {architecture!r} is for pictures; {task.name} has {', '.join(VECTORS)}."
        )


def find_schedule(recipe: str, samples: int) -> Schedule:
    """The recipe called so; `fast` has smaller batches and more epochs where there are few samples."""
    if recipe not in SCHEDULES:
        raise InvalidParameter(
            f"Regression networks have no recipe {recipe!r}{suggestion(recipe, SCHEDULES)}"
        )
    plan = SCHEDULES[recipe]
    if recipe != FAST:
        return plan
    batch = min(plan.batch, max(_SMALLEST, samples // _STEPS))
    epochs = max(plan.epochs, -(-_LEAST * batch // samples))
    return replace(plan, batch=batch, epochs=min(epochs, _MOST))


def prepare(
    task: Regression, network: str = "mlp", recipe: str | Schedule | None = None
) -> tuple[Name, Schedule]:
    """The full name and the recipe of a network; refuses what cannot be trained on a task."""
    name = names.parse(network)
    check_network(name.architecture, task)
    if isinstance(recipe, str):
        if "@" in network and recipe != name.recipe:
            raise InvalidParameter(f"The network {network!r} has a recipe of its own, not {recipe!r}.")
        name = names.parse(f"{name.architecture}@{recipe}")
    if name.architecture in SOLVED and (recipe is not None or name.recipe != FAST):
        raise InvalidParameter(f"The network {name.architecture!r} is solved, not trained: it has no recipe.")
    if isinstance(recipe, Schedule):
        return Name(name.architecture, OWN), recipe
    return name, find_schedule(name.recipe, len(task.drawn("train")))


def train(
    task: Regression,
    network: str = "mlp",
    *,
    seed: int = 0,
    recipe: str | Schedule | None = None,
    device: str | torch.device = "auto",
    settings: Schedule | None = None,
    watch: Watcher | None = None,
    quiet: bool = False,
) -> Fitted:
    """Train `network` on `task`; ``.save()`` keeps the result for studies.

    Args:
        task: where the samples come from.
        network: ``mlp``, ``linear``, ``linear-intercept`` or ``ridge``; ``mlp@published`` has that recipe.
        seed: decides the first weights and the order of samples; the samples belong to the task.
        recipe: the recipe, where the name has none: "fast" (default), "published" or a `Schedule`.
        device: where to compute.
        settings: what the recipe of that name is, where it was looked up elsewhere (`prepare`).
        watch: called about every 50 steps, in place of the progress bar.
        quiet: no progress bar.
    """
    name, plan = prepare(task, network, recipe)
    plan = settings or plan
    samples = task.drawn("train")
    where = devices.resolve(device)
    model = initialise(name.architecture, task.classes, seed, features=task.features).to(where)
    with progress.bar(hidden=quiet or watch is not None) as bar:
        row = bar.add_task(f"{task.name} {name}", total=None)

        def shown(state: Progress) -> None:
            text = f"epoch {state.epoch}/{state.epochs}, loss {state.loss:.4f}"
            bar.update(row, total=state.steps, completed=state.step, doing=text)

        if name.architecture in SOLVED:
            linear.fit(name.architecture, model, samples, where)
            bar.update(row, total=1, completed=1)
            chosen = None
        else:
            _descend(model, samples, plan, seed, where, watch or shown)
            chosen = plan
    model = deepcopy(model).eval()
    proof = fits.certify(model, task, seed=seeding.key("certify", seed))
    return Fitted(model, task, name.architecture, seed, name.recipe, chosen, proof)


def _buffers(
    samples: Draws, generator: torch.Generator, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """Samples that are not kept, a few chunks at a time, in another order in every epoch."""
    order = torch.randperm(samples.chunks, generator=generator).tolist()
    for start in range(0, len(order), _BUFFER):
        parts = [samples.chunk(index, device) for index in order[start : start + _BUFFER]]
        yield torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])


def _kept(samples: Draws, features: int, device: torch.device) -> tuple[Tensor, Tensor] | None:
    """All samples in memory, or None where they would not fit."""
    if 4 * (features + 1) * len(samples) > MEMORY:
        return None
    x, y = (torch.empty(len(samples), *shape, device=device) for shape in ((features,), ()))
    done = 0
    for index in range(samples.chunks):
        some, right = samples.chunk(index, device)
        x[done : done + len(some)], y[done : done + len(some)] = some, right
        done += len(some)
    return x, y


def _descend(
    model: nn.Module, samples: Draws, plan: Schedule, seed: int, device: torch.device, watch: Watcher
) -> None:
    """Walk down the squared error."""
    features = next(m for m in model.modules() if isinstance(m, nn.Linear)).in_features
    kept = _kept(samples, features, device)
    spread = samples.chunk(0, device)[1] if kept is None else kept[1]
    scale = float(spread.double().std()) if plan.scaled and len(spread) > 1 else 1.0
    scale = scale or 1.0  # a constant function has no spread
    batch = min(plan.batch, len(samples))
    generator = torch.Generator().manual_seed(seeding.key("order", seed) & 0x7FFFFFFFFFFFFFFF)
    per_epoch = _steps_in(samples, batch, kept is None)
    steps = max(1, per_epoch * plan.epochs)
    recipe = Recipe(
        plan.rate,
        batch,
        plan.epochs,
        len(samples),
        cycle=plan.adam,
        loss="squared",
        optimiser="adam" if plan.adam else "sgd",
    )
    stepper = Stepper(model, recipe, steps, rough=False, block=_RECORDED if device.type == "cuda" else 1)
    model.train()
    step = 0
    for epoch in range(1, plan.epochs + 1):
        for x, y in [kept] if kept is not None else _buffers(samples, generator, device):
            order = torch.randperm(len(x), generator=generator).to(device)
            for rows in torch.split(order[: len(x) // batch * batch], batch * stepper.block):
                before, step = step, step + stepper(x[rows], y[rows] / scale)
                if step // _SHOWN > before // _SHOWN or step == steps:
                    watch(Progress(epoch, plan.epochs, step, steps, float(stepper.history[step - 1, 0])))
    last = [m for m in model.modules() if isinstance(m, nn.Linear)][-1]
    with torch.no_grad():
        for weight in last.parameters():
            weight.mul_(scale)


def _steps_in(samples: Draws, batch: int, buffered: bool) -> int:
    """Steps of an epoch; with buffers, what is left over in each of them is not used."""
    if not buffered:
        return len(samples) // batch
    size = -(-len(samples) // samples.chunks)
    sizes = [size] * (samples.chunks - 1) + [len(samples) - size * (samples.chunks - 1)]
    return sum(sizes) // batch  # at most: the schedule ends a few steps early
