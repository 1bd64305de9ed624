"""Networks before training."""

from __future__ import annotations

import threading
from copy import deepcopy
from weakref import WeakSet

import torch
from torch import nn

from verax import seeding
from verax.networks import NETWORKS

TURN = threading.RLock()
"""Held by who draws from torch's generator for all threads; an architecture may start from another one."""
_GIVEN: WeakSet[nn.Module] = WeakSet()
"""What networks were made of."""


def initialise(
    name: str, classes: int, seed: int, attempt: int = 0, *, features: int | None = None
) -> nn.Module:
    """A fresh network whose first weights depend on `seed` (and on the number of the try) alone.

    Args:
        name: the architecture.
        classes: how many outputs it has.
        seed: of the weights.
        attempt: number of the try.
        features: how many elements an input has, for networks that take vectors.
    """
    labels = (name, classes, seed) if attempt == 0 else (name, classes, seed, attempt)
    with TURN, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seeding.key("initialise", *labels) & 0x7FFFFFFFFFFFFFFF)
        make = NETWORKS.get(name)
        made = make(classes) if features is None else make(classes, features)
        if any(part in _GIVEN for part in made.modules()):
            made = deepcopy(made)  # an architecture gave the same part twice: threads may train both
        _GIVEN.update(made.modules())
        return made


def bare(name: str, classes: int, *, features: int | None = None) -> nn.Module:
    """A network of verax's own without any weights, for those that are stored: drawing first ones takes time.

    Args:
        name: the architecture.
        classes: how many outputs it has.
        features: how many elements an input has, for networks that take vectors.
    """
    make = NETWORKS.get(name)
    with torch.device("meta"):
        return make(classes) if features is None else make(classes, features)
