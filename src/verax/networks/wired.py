"""Hand-wired networks: weights set by construction, so that the reasoning followed is known, not measured.

A convolution finds the looks of a world (`verax.networks.templates`), a maximum over the picture turns each
of them into a bit, and two linear layers with a ReLU between them read the label off the bits. All layers are
plain modules, so that every method runs on such a network as on any other. The idea of setting weights by
hand so that an explanation has an exact truth is from Zhang et al., "AttributionLab", 2023.

Three choices decide what explanations can see:

- A detector is linear above its threshold, not saturated: a bit is 1 where the look stands whole, and it
  falls as ink is taken away. A saturated detector would have a gradient of zero wherever it is sure.
- Logic uses an object only where it can matter. A rule becomes terms, conditions on a few objects which never
  hold together; an object that no term of a label asks about cannot change that label's output at all.
- Outputs are 1 for the label and 0 for the others; all are 0 where no rule covers a scene.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from verax.errors import InvalidParameter
from verax.networks.templates import Detector, detectors
from verax.tasks.base import Learnable
from verax.tasks.textbox.reasoning import Reasoning
from verax.tasks.textbox.scenes import ABSENT
from verax.tasks.textbox.task import TextBox

WIRED = "wired"
"""The name of wired networks in studies and commands."""

Term = Mapping[str, frozenset[str]]
"""Object -> the states that it may have; a term holds where all of them are met."""


def untrained(classes: int) -> nn.Module:
    """Built by hand from a task's reasoning, not trained; exact for the sound renderer on black."""
    raise InvalidParameter("A wired network is built from a task, not trained: task.network('wired').")


def _split(table: NDArray[np.bool_], order: list[int]) -> Iterator[dict[int, tuple[int, ...]]]:
    """Terms that hold exactly where `table` is true, and never two of them together.

    A decision tree: objects are asked in the given order, and only where their state still matters.
    """
    if table.all():
        yield {}
    elif table.any():
        axis = next(a for a in order if (table != table.take([0], a)).any())
        groups: dict[bytes, list[int]] = {}
        for state in range(table.shape[axis]):
            groups.setdefault(table.take(state, axis).tobytes(), []).append(state)
        for states in groups.values():
            for term in _split(table.take(states[:1], axis), order):
                yield {axis: tuple(states), **term}


def terms(reasoning: Reasoning) -> list[tuple[int, Term]]:
    """The reasoning as (label, term): in each scene that has a label exactly one term holds.

    The terms of a rule ask first about the objects that it names, then, because rules are ordered, about
    those of the rules before it, and only as far as the answer depends on them.
    """
    world = reasoning.world
    fired = [reasoning.rule(scene) for scene in world.scenes()]
    numbers = [-1 if rule is None else reasoning.rules.index(rule) for rule in fired]
    table = np.array(numbers).reshape([len(kind.states) for kind in world.kinds])
    result: list[tuple[int, Term]] = []
    for number, rule in enumerate(reasoning.rules):
        named = [rule.names(), *(earlier.names() for earlier in reasoning.rules[:number])]
        order = list(dict.fromkeys(i for names in named for i, n in enumerate(world.names) if n in names))
        for found in _split(table == number, order):
            term = {
                world.names[axis]: frozenset(world.kinds[axis].states[state] for state in states)
                for axis, states in found.items()
            }
            result.append((rule.label, term))
    return result


def _finder(found: tuple[Detector, ...]) -> nn.Conv2d:
    """The convolution that is 1 at a look's centre and, after a ReLU, 0 wherever the look is not near."""
    sizes = [max(d.kernel.shape[axis] for d in found) for axis in (1, 2)]
    height, width = (size + (size + 1) % 2 for size in sizes)  # odd, so that maps stay as large as the canvas
    layer = nn.Conv2d(3, len(found), (height, width), padding=(height // 2, width // 2))
    assert layer.bias is not None
    with torch.no_grad():
        layer.weight.zero_()
        for channel, detector in enumerate(found):
            rows, cols = detector.kernel.shape[1:]
            top, left = (height - rows) // 2, (width - cols) // 2
            scale = detector.exact - detector.threshold
            layer.weight[channel, :, top : top + rows, left : left + cols] = detector.kernel / scale
            layer.bias[channel] = -detector.threshold / scale
    return layer


def _logic(reasoning: Reasoning, found: tuple[Detector, ...], classes: int) -> tuple[nn.Linear, nn.Linear]:
    """Two linear layers, with a ReLU between them: terms from bits, and outputs from terms.

    A term of n conditions is ``relu(2 * (conditions that hold - n) + 1)``: 1 when all hold, 0 otherwise, and
    halfway from the kink in both cases, so that rounding cannot open it.
    """
    listed = terms(reasoning)
    ask, answer = nn.Linear(len(found), len(listed)), nn.Linear(len(listed), classes)
    with torch.no_grad():
        for tensor in (ask.weight, answer.weight, answer.bias):
            tensor.zero_()
        ask.bias.fill_(1.0)
        for row, (label, term) in enumerate(listed):
            answer.weight[label, row] = 1.0
            for column, detector in enumerate(found):
                states = term.get(reasoning.world.names[detector.kind])
                if states is None:
                    continue
                # absence is 1 minus the bits of the looks that would break it
                if ABSENT in states:
                    ask.weight[row, column] = 0.0 if detector.state in states else -2.0
                else:
                    ask.weight[row, column] = 2.0 if detector.state in states else 0.0
            ask.bias[row] -= 2.0 * sum(ABSENT not in states for states in term.values())
    return ask, answer


def wire(task: Learnable | Reasoning) -> nn.Module:
    """A network that follows a reasoning by construction, in eval mode.

    On black and with the sound renderer it follows the reasoning in every scene. With the published renderer
    it does so wherever the ink of any two objects is at least two pixels apart; closer ones can hide each
    other from the detectors.

    Args:
        task: a task on black, or a reasoning alone.

    Raises:
        InvalidParameter: there are no rules, the background is not black, or two looks are too alike.
    """
    if isinstance(task, TextBox):
        if task.background.fingerprint != "black":
            raise InvalidParameter(
                f"A wired network knows the background 'black' only, not {task.background.spec!r}."
            )
        reasoning = task.reasoning
    elif isinstance(task, Reasoning):
        reasoning = task
    else:
        raise InvalidParameter(f"A wired network is built from rules over objects; {task.name} has none.")
    found = detectors(reasoning.world)
    ask, answer = _logic(reasoning, found, max(2, reasoning.labels[-1] + 1))
    layers = [
        _finder(found),
        nn.ReLU(),
        nn.MaxPool2d(reasoning.world.canvas),
        nn.Flatten(),
        ask,
        nn.ReLU(),
        answer,
    ]
    # channels-last: the backward pass through the wide kernels takes less than half the time on CPUs
    model = nn.Sequential(*layers).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model.eval()  # type: ignore[no-any-return]
