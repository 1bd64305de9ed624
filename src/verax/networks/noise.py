"""Noise that networks learn with: dropout (Srivastava et al., JMLR 2014) as a function of training and step.

PyTorch's own draws from a generator that belongs to the whole process, so that networks beside each other
would share it. This one needs none, and drops the same on every device, recorded or not. It is for networks
that run their parts one after the other; others may call a layer as they like (again for checkpoints, traced,
for its effect alone), and keep PyTorch's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from functools import lru_cache, partial
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from verax.networks.anatomy import untouched
from verax.networks.starts import TURN
from verax.seeding import Streams, global_streams

_MOST = 2**15 - 1
"""The largest number of 16 bits."""
_STEPS, _ROWS = 3, 64
"""What is looked at: some networks draw from the second step on, or for large batches alone."""


def layers(model: nn.Module) -> list[nn.Dropout]:
    """The dropout of a network that is made of `nn.Sequential` and layers alone; else none."""
    parts = list(model.modules())
    inner = [part for part in parts if any(True for _ in part.children())]
    found = [part for part in parts if type(part) is nn.Dropout]
    plain = all(type(part) is nn.Sequential for part in inner) and all(map(untouched, [*inner, *found]))
    return found if plain else []


class _Draws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees whether an operation takes random numbers of a generator."""

    seen = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = {each.name: each.default_value for each in func._schema.arguments}
        given |= dict(zip(given, args, strict=False)) | dict(kwargs or {})  # torch leaves out what is usual
        if torch.Tag.nondeterministic_seeded in func.tags and given.get("dropout_p", 1) != 0:
            self.seen = True
        return func(*args, **(kwargs or {}))


@lru_cache(maxsize=256)
def draws(make: Callable[[int], nn.Module], classes: int, shape: tuple[int, ...]) -> bool:
    """Whether training takes random numbers from the streams of the process; where nobody can tell, it does.

    A few steps without numbers are looked at, which sees dropout inside of attention and functions, too.
    Noise that begins later than that is not seen, and is another one in each training.

    Args:
        make: gives the network for a number of outputs.
        classes: its outputs.
        shape: of an input.
    """
    look = _Draws()  # type: ignore[no-untyped-call]
    try:
        with TURN, torch.random.fork_rng(devices=[]), global_streams(), torch.device("meta"):
            model, ids = deepcopy(make(classes)).train(), torch.zeros(1, dtype=torch.int64)
            before = _drawn()
            with drawn(model, ids), look:
                for _ in range(_STEPS):
                    model(torch.zeros(_ROWS, *shape))
            return look.seen or _drawn() != before
    except Exception:  # other people's code
        return True


def _drawn() -> tuple[object, ...]:
    """How far the global streams of Python and NumPy have come."""
    state: tuple[Any, ...] = np.random.get_state()  # type: ignore[assignment]  # noqa: NPY002
    return random.getstate(), bytes(state[1]), *state[2:]


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Let what draws from the streams of the process begin at `seed`; they are as they were afterwards."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), global_streams(seed):
        torch.manual_seed(seed)
        yield


def dropped(x: Tensor, share: float, streams: Streams) -> Tensor:
    """`x` without a share of its values, drawn with 16 bits for each, and the others as much larger."""
    if share in (0, 1):
        return x * (1 - share)
    words = streams.bits("dropout", -(-x.numel() // 4)).view(torch.int16).flatten()[: x.numel()]
    kept = words >= min(round(share * 2**16) - 2**15, _MOST)
    return x * kept.view(x.shape) / (1 - share)


@contextmanager
def drawn(model: nn.Module, ids: Tensor) -> Iterator[None]:
    """Let a network run with its `layers` drawn from a number on its device, ``(1,)``, one for each step."""
    changed, calls = layers(model), count()
    try:
        for layer in changed:
            layer.forward = partial(_forward, layer, ids, calls)  # type: ignore[method-assign]
        yield
    finally:
        for layer in changed:
            layer.__dict__.pop("forward", None)


def _forward(layer: nn.Dropout, ids: Tensor, calls: Iterator[int], x: Tensor) -> Tensor:
    if not layer.training:
        return x
    return dropped(x, layer.p, Streams.of(ids, "noise", next(calls)))
