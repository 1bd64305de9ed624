"""Conditions: what must hold of numbers that a device has not computed yet.

To look at a number, one waits for all that a GPU was asked to do before. A study looks later, when the next
maps are under way; everybody else looks at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
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
        about: what is known to be right where it is not, if all doubts of its kind are unfounded.
    """

    wrong: Tensor
    error: Callable[[], Exception]
    about: Hashable = None


class Doubts:
    """What nobody has looked at yet, and what was seen to be right.

    Attributes:
        open: not looked at.
        known: seen to be right, by these doubts or by others about the same network and the same inputs.
    """

    def __init__(self, known: set[Hashable] | None = None) -> None:
        self.open: list[Doubt] = []
        self.known: set[Hashable] = set() if known is None else known

    def settle(self) -> None:
        """Look at everything, in the order in which it came up; raises the first error."""
        right = set[Hashable]()
        while self.open:
            doubt = self.open.pop(0)
            if bool(doubt.wrong):
                raise doubt.error()
            right.add(doubt.about)
        self.known |= right - {None}


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


def right(about: Hashable) -> bool:
    """Whether something was seen to be right by those who collect doubts now."""
    doubts: Doubts | None = getattr(_MINE, "doubts", None)
    return doubts is not None and about in doubts.known


def refuse(wrong: Tensor, error: Callable[[], Exception], about: Hashable = None) -> None:
    """Raise an error where a tensor of one truth value says so: now, or when doubts are settled."""
    doubts: Doubts | None = getattr(_MINE, "doubts", None)
    if doubts is not None:
        doubts.open.append(Doubt(wrong, error, about))
    elif bool(wrong):
        raise error()


@contextmanager
def later(known: set[Hashable] | None = None) -> Iterator[Doubts]:
    """Collect doubts in this thread, for whoever calls `settle`.

    Where something else goes wrong first, doubts are settled before: they say more about the reason.

    Args:
        known: what was seen to be right of the same network and the same inputs.
    """
    before = getattr(_MINE, "doubts", None)
    doubts = _MINE.doubts = Doubts(known)
    try:
        yield doubts
    except Exception:
        doubts.known = set()  # not all of them have come up
        doubts.settle()
        raise
    finally:
        _MINE.doubts = before
