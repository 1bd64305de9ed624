"""Trained networks, and how they came about."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast

from torch import nn

from verax import registry
from verax.networks.certificates import Certificate
from verax.networks.names import Name
from verax.networks.recipes import Recipe
from verax.tasks.base import Trainable

SCRATCH = "trained from scratch"


@dataclass(frozen=True)
class Start:
    """A trained network that another training starts from.

    Attributes:
        name: of the network.
        model: with its weights.
    """

    name: str
    model: nn.Module


@dataclass(frozen=True)
class Try:
    """One attempt of a recipe that may need several.

    Attributes:
        epochs: how many were begun.
        loss: of the last batch.
        ended: why it ended: "loss", "dead", "certified" or "epochs".
        train: accuracy on the training pictures, where a recipe asks for it and `test` was good enough.
        test: accuracy on test pictures, where a recipe asks for it.
    """

    epochs: int
    loss: float
    ended: str
    train: float | None = None
    test: float | None = None

    @property
    def quality(self) -> float:
        """The lowest accuracy that was measured; 0 where none was."""
        return min((share for share in (self.train, self.test) if share is not None), default=0.0)


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
        tries: what became of each attempt; the last one, or the best of all, is the network.
        start: where the weights came from before training.
        robust: accuracy under attack, of networks that were trained against an adversary.
    """

    model: nn.Module
    task: Trainable
    network: str
    seed: int
    recipe: str
    settings: Recipe
    epochs: int
    worst: float
    certificate: Certificate | None
    tries: tuple[Try, ...] = ()
    start: str = SCRATCH
    robust: float | None = None

    @property
    def name(self) -> Name:
        """The name under which it is stored."""
        return Name(self.network, self.recipe)

    def save(self) -> Path:
        """Keep the network in the store, where ``task.network(...)`` and studies find it."""
        # the library stands above the trainer, so its name is resolved when it is needed
        return cast("Path", registry.load("verax.networks.library:save")(self))

    def __repr__(self) -> str:
        verdict = "not certified" if self.certificate is None else str(self.certificate)
        return f"Trained({self.name} on {self.task.name}, {self.epochs} epochs; {verdict})"
