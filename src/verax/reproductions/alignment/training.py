"""Training of the networks of the alignment experiments, kept in the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from verax import devices, progress
from verax.errors import WeightsError
from verax.files import store_folder, write_atomically
from verax.seeding import Streams
from verax.studies.units import content_hash
from verax.tasks.alignment import AnnotatedImages, stream

VERSION = 1
Draw = Callable[[int, Tensor], tuple[Tensor, Tensor]]
"""Epoch and numbers of images -> images in [0, 1] and labels."""


@dataclass(frozen=True)
class Recipe:
    """How a network is trained.

    Attributes:
        epochs: passes over the images.
        batch: images in a step.
        rate: learning rate; divided by 5 at the milestones of Adam, times `decay` after each epoch of SGD.
        optimiser: "sgd" (momentum 0.5) or "adam" (weight decay 1e-4).
        decay: factor of the rate after each epoch.
    """

    epochs: int
    batch: int
    rate: float
    optimiser: str = "sgd"
    decay: float = 0.7


DIGITS = Recipe(4, 64, 0.01)
"""As published: SGD with momentum 0.5, the rate times 0.7 after each of 4 epochs."""


@dataclass(frozen=True)
class Lesson:
    """What a network is trained on.

    Attributes:
        name: for progress bars.
        count: images.
        draw: gives some of them.
        fingerprint: all that they depend on.
    """

    name: str
    count: int
    draw: Draw
    fingerprint: Mapping[str, Any]


def held(images: AnnotatedImages, batch: int = 256) -> Lesson:
    """A lesson that reads or draws its images once and keeps them as bytes."""
    levels, labels = [], []
    for part in stream(images, batch):
        levels.append((part.images * 255).round().to(torch.uint8))
        labels.append(part.labels)
    every, known = torch.cat(levels), torch.cat(labels)

    def draw(_: int, rows: Tensor) -> tuple[Tensor, Tensor]:
        return every[rows].float() / 255, known[rows]

    return Lesson(images.name, len(images), draw, images.fingerprint())


def trained(
    make: Callable[[], nn.Module],
    lesson: Lesson,
    recipe: Recipe,
    seed: int,
    *,
    device: str = "auto",
    store: Path | None = None,
    quiet: bool = False,
) -> nn.Module:
    """A network that has learnt a lesson, in eval mode on its device; from the store where it is there.

    Weights are drawn, images shuffled and dropped out by the seed alone.
    """
    where = devices.resolve(device)
    with torch.random.fork_rng(devices=[where] if where.type == "cuda" else []):
        torch.manual_seed(seed)
        model = make()
        known = {
            "version": VERSION,
            "network": str(model),
            "data": dict(lesson.fingerprint),
            "recipe": asdict(recipe),
            "seed": seed,
        }
        path = store_folder(store) / "alignment" / f"{lesson.name}-{content_hash(known)[:16]}.safetensors"
        if path.is_file():
            try:
                model.load_state_dict(load_tensors(path.read_bytes()))
            except Exception as error:  # whatever a damaged file makes the reader raise
                raise WeightsError(f"The file {str(path)!r} is damaged; remove it.") from error
        else:
            _train(model.to(where), lesson, recipe, seed, where, quiet)
            state = {name: value.cpu().contiguous() for name, value in model.state_dict().items()}
            write_atomically(path, save_tensors(state))
    return model.to(where).eval()


def _train(
    model: nn.Module, lesson: Lesson, recipe: Recipe, seed: int, device: torch.device, quiet: bool
) -> None:
    model.train().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    weights = model.parameters()
    optimiser: torch.optim.Optimizer
    if recipe.optimiser == "sgd":
        optimiser = torch.optim.SGD(weights, recipe.rate, momentum=0.5)
    else:
        optimiser = torch.optim.Adam(weights, recipe.rate, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, 1, recipe.decay)
    steps = -(-lesson.count // recipe.batch)
    with progress.bar(hidden=quiet) as bar:
        row = bar.add_task(f"training on {lesson.name}", total=recipe.epochs * steps)
        for epoch in range(recipe.epochs):
            order = Streams.of(torch.arange(lesson.count), "alignment", seed, epoch).uniform("order")
            for rows in torch.split(order.argsort(stable=True), recipe.batch):
                images, labels = lesson.draw(epoch, rows)
                images = images.to(device, memory_format=torch.channels_last)
                optimiser.zero_grad(set_to_none=True)
                # of log-probabilities this is the published loss: their softmax is already 1
                cross_entropy(model(images), labels.to(device)).backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                bar.advance(row)
            schedule.step()
