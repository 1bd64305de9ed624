"""Conditions: what must hold of numbers that a device has not computed yet.

To look at a number, one waits for all that a GPU was asked to do before. A study looks later, when the next
maps are under way; everybody else looks at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from torch import Tensor

T = TypeVar("T")

_MINE = threading.local()
_KEY = "_verax_seen"


class Doubt(NamedTuple):
    """Something that may turn out to be wrong.

    Attributes:
        wrong: a truth value on a device.
        error: what to raise where it is true.
    """

    wrong: Tensor
    error: Callable[[], Exception]


class Doubts:
    """What nobody has looked at yet."""

    def __init__(self) -> None:
        self.open: list[Doubt] = []

    def settle(self) -> None:
        """Look at everything, in the order in which it came up; raises the first error."""
        while self.open:
            doubt = self.open.pop(0)
            if bool(doubt.wrong):
                raise doubt.error()


def once(tensor: Tensor, name: str, look: Callable[[], T]) -> T:
    """What a look at a tensor finds; while doubts are collected, nobody looks twice at the same numbers.

    Those who collect doubts hold the tensors themselves. Others may share the memory of one with an array,
    through which it changes unseen.
    """
    if getattr(_MINE, "doubts", None) is None or tensor.is_inference():
        return look()
    seen: dict[str, tuple[int, T]] = tensor.__dict__.setdefault(_KEY, {})
    if name not in seen or seen[name][0] != tensor._version:
        seen[name] = tensor._version, look()
    return seen[name][1]


def refuse(wrong: Tensor, error: Callable[[], Exception]) -> None:
    """Raise an error where a tensor of one truth value says so: now, or when doubts are settled."""
    doubts: Doubts | None = getattr(_MINE, "doubts", None)
    if doubts is not None:
        doubts.open.append(Doubt(wrong, error))
    elif bool(wrong):
        raise error()


@contextmanager
def later() -> Iterator[Doubts]:
    """Collect doubts in this thread, for whoever calls `settle`.

    Where something else goes wrong first, doubts are settled before: they say more about the reason. Who has
    an answer to the error settles doubts within the context of others.
    """
    before = getattr(_MINE, "doubts", None)
    doubts = _MINE.doubts = Doubts()
    try:
        yield doubts
    except Exception:
        doubts.settle()
        raise
    finally:
        _MINE.doubts = before
