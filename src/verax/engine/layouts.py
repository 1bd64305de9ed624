"""How pictures lie in memory: on a CPU, convolutions are faster on pixels with their channels side by side.

The numbers are the same sums in another order, but not every network takes them: `view` wants the usual
layout, and code that counts strides itself would read other pixels. A maximum over equal numbers, as on a
plain background, would be found elsewhere, so that the last digit would decide which pixel has the gradient.
So a network is asked once, with two samples, whether it answers the same either way and chooses nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from verax.engine.convolutions import compiled
from verax.engine.operations import CATEGORIES, FACTS, Operation

_ROWS = 8
"""Fewer are not worth the question."""

_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
"""How far two sums of the same numbers may differ, as a share of the largest output."""

_ANSWERS: WeakKeyDictionary[nn.Module, dict[tuple[object, ...], bool]] = WeakKeyDictionary()
"""What networks said, for each kind of input."""


_CHOOSING = frozenset(["where", "masked_fill", "gather"])
"""Routing that may follow values; maxima are a category of their own."""


class _Watching(TorchFunctionMode):
    """Notices calls that choose between values, or that nothing is known about."""

    def __init__(self) -> None:
        super().__init__()
        self.chooses = False

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Let a call of the network pass."""
        kwargs = kwargs or {}
        name = Operation.parse(func, args, kwargs).name
        kind = CATEGORIES.get(name, "unknown")
        known = func in FACTS or (kind not in ("maxpool", "unknown") and name not in _CHOOSING)
        self.chooses |= not known
        return func(*args, **kwargs)


def fastest(model: nn.Module, inputs: Tensor) -> torch.memory_format:
    """The layout in which a network computes fastest, of those in which it computes the same."""
    usual = inputs.ndim != 4 or inputs.device.type != "cpu" or inputs.dtype not in _TOLERANCE
    if usual or len(inputs) < _ROWS:
        return torch.contiguous_format
    known, kind = _ANSWERS.setdefault(model, {}), _kind(model, inputs)
    if kind not in known:
        # two: in a batch of one, samples and channels lie in one row either way, which `view` may rely on
        known[kind] = _same(model, inputs[:2].detach())
    return torch.channels_last if known[kind] else torch.contiguous_format


def keep_usual(model: nn.Module, inputs: Tensor) -> None:
    """Remember of a network that it wants the usual layout, whatever it said before."""
    _ANSWERS.setdefault(model, {})[_kind(model, inputs)] = False


def _kind(model: nn.Module, inputs: Tensor) -> tuple[object, ...]:
    """All that the answer of a network is taken to depend on."""
    return inputs.shape[1:], inputs.dtype, inputs.device, tuple(map(type, model.modules()))


def _same(model: nn.Module, sample: Tensor) -> bool:
    """Whether a network with convolutions answers the same for samples in both layouts."""
    if not any(weight.ndim == 4 for weight in model.parameters()) or _closed(model):
        return False
    usual = sample.clone(memory_format=torch.contiguous_format)
    other = sample.clone(memory_format=torch.channels_last)
    watching = _Watching()
    try:
        # copies: a network may work in place on its input; what it draws, it draws again when it is explained
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            with watching:
                wanted = model(usual)
            if watching.chooses:
                return False
            found = model(other)
    except Exception:  # other people's code; what is wrong with it is said where it matters
        return False
    if not isinstance(wanted, Tensor) or not isinstance(found, Tensor) or wanted.shape != found.shape:
        return False
    # NaN counts as another answer
    near = (wanted - found).abs() <= _TOLERANCE[sample.dtype] * wanted.abs().max()
    return bool(near.all())


def _closed(model: nn.Module) -> bool:
    """Whether calls inside a network cannot be watched: parts of it are compiled or scripted."""
    return compiled(model) or any(isinstance(module, torch.jit.ScriptModule) for module in model.modules())
