"""Names of networks: an architecture, and the recipe by which it was trained.

``cnn4`` is the architecture trained by the recipe `fast`; ``cnn4@published`` and ``cnn4@robust-0.1`` name
another one; ``cnn4@own`` was trained by a `Recipe` (or `Schedule`) that somebody handed over. ``cnn`` is the
paper's choice: cnn3 for tasks of the family `simple`, cnn4 for all others.
"""

from __future__ import annotations

from dataclasses import dataclass

from verax.errors import UnknownName, suggestion
from verax.networks import NETWORKS, known_elsewhere
from verax.networks.recipes import FAST, OWN, added, find_recipe
from verax.tasks.base import Task

CNN = "cnn"


@dataclass(frozen=True)
class Name:
    """An architecture (or ``cnn``) and a recipe."""

    architecture: str
    recipe: str = FAST

    def __str__(self) -> str:
        return self.architecture if self.recipe == FAST else f"{self.architecture}@{self.recipe}"

    def on(self, task: Task) -> Name:
        """The same with the architecture that ``cnn`` stands for on a task."""
        if self.architecture != CNN:
            return self
        return Name("cnn3" if task.family == "simple" else "cnn4", self.recipe)


def parse(text: str) -> Name:
    """Read ``ARCHITECTURE`` or ``ARCHITECTURE@RECIPE``."""
    architecture, at, recipe = str(text).partition("@")
    if architecture != CNN and architecture not in NETWORKS:
        known = [CNN, *NETWORKS]
        raise UnknownName(f"There is no network named {str(text)!r}{suggestion(architecture, known)}")
    if at and recipe != OWN:
        find_recipe(recipe)
    canonical = architecture if architecture == CNN else NETWORKS.canonical(architecture)
    return Name(canonical, recipe if at else FAST)


def everywhere(text: str) -> bool:
    """Whether other processes know a network: this one added neither its architecture nor its recipe."""
    name = parse(text)
    return not added(name.recipe) and (name.architecture == CNN or known_elsewhere(name.architecture))
