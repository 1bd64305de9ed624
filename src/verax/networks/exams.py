"""Exams: what networks are asked while they learn and at the end, prepared once for all that share it.

Scenes are placed and edited by thousands of small operations, some of which wait for a GPU; networks of one
task and seed are asked the same.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from verax.cases import Cases
from verax.networks import certificates
from verax.networks.certificates import Trial
from verax.tasks.base import Trainable

T = TypeVar("T")

_KEPT = 24
"""Exams that are remembered: the three of each of eight trainings beside each other."""


class Exams:
    """Remembers what it has prepared last, for one training or for several in threads.

    A tensor is handed to other threads when the GPU is done with it. It may be forgotten while they use it:
    everybody waits for the answers before letting go of the questions.
    """

    def __init__(self) -> None:
        self._made: OrderedDict[tuple[object, ...], tuple[object, Any]] = OrderedDict()
        self._making = threading.Lock()  # threads would hinder each other at each of the small operations
        self._looking = threading.Lock()

    def cases(self, task: Trainable, groups: Sequence[int], n: int, seed: int, device: torch.device) -> Cases:
        """`n` cases of each bucket, one bucket after the other."""
        asked = ("cases", tuple(groups), n, seed, str(device))
        return self._found(task, asked, lambda: task.cases(list(groups), n=n, seed=seed, device=device))

    def trial(self, task: Trainable, n: int, seed: int, device: torch.device) -> Trial:
        """The scenes of a certificate, `n` of each bucket, with all of their edits."""
        asked = ("trial", n, seed, str(device))
        return self._found(task, asked, lambda: certificates.prepare(task, device, n=n, seed=seed))

    def _found(self, task: Trainable, asked: tuple[object, ...], make: Callable[[], T]) -> T:
        place = (id(task), *asked)  # the task is kept beside what was made, so that its number stays its own
        found = self._known(place)
        if found is None:
            with self._making:
                found = self._known(place)  # somebody may have made it meanwhile
                if found is None:
                    found = make()
                    device = torch.device(str(asked[-1]))
                    if device.type == "cuda":
                        torch.cuda.current_stream(device).synchronize()
                    self._keep(place, task, found)
        return found  # type: ignore[no-any-return]

    def _known(self, place: tuple[object, ...]) -> Any:
        with self._looking:
            if place in self._made:
                self._made.move_to_end(place)
                return self._made[place][1]
        return None

    def _keep(self, place: tuple[object, ...], task: Trainable, made: object) -> None:
        with self._looking:
            self._made[place] = task, made
            if len(self._made) > _KEPT:
                self._made.popitem(last=False)


_SHARED: list[Exams] = []


@contextmanager
def shared() -> Iterator[None]:
    """Let all trainings within share their exams, whatever thread they are in."""
    mine = Exams()
    _SHARED.append(mine)
    try:
        yield
    finally:
        _SHARED.remove(mine)  # which need not be the last: others may share, too


def exams() -> Exams:
    """Those that are shared, or new ones."""
    return _SHARED[-1] if _SHARED else Exams()
