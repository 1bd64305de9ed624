"""Run-length masks as COCO writes them: runs of 0 and 1 in turn, down the columns, starting with 0."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from verax.errors import InvalidInput

_FIRST = 48  # the character '0' stands for no bit set
_PIXELS = 2**26


def decode(counts: Sequence[int], shape: tuple[int, int]) -> NDArray[np.bool_]:
    """``(H, W)`` mask of runs."""
    height, width = shape
    if min(height, width) < 1 or height * width > _PIXELS:
        raise InvalidInput(f"A run-length mask cannot have {height} x {width} pixels.")
    whole = all(type(count) is int and 0 <= count <= height * width for count in counts)
    if not whole or sum(counts) != height * width:
        raise InvalidInput(f"The runs of a mask do not add up to its {height} x {width} pixels.")
    ink = np.arange(len(counts)) % 2 == 1
    return np.repeat(ink, np.asarray(counts, np.int64)).reshape(width, height).T


def decompress(text: str | bytes) -> list[int]:
    """The runs of a compressed string.

    A number is cut into pieces of five bits, low ones first, each written as one character with a sixth bit
    that says whether more follow; the last piece carries the sign. From the fourth number on, what is
    written is the difference to the number two places before.
    """
    data = text.encode("latin-1", "replace") if isinstance(text, str) else text
    counts: list[int] = []
    value = bits = 0
    for byte in data:
        piece = byte - _FIRST
        if not 0 <= piece < 64 or bits > 30:
            raise InvalidInput("A compressed run-length mask holds a character that it cannot have.")
        value |= (piece & 0x1F) << bits
        bits += 5
        if piece & 0x20:
            continue
        if piece & 0x10:
            value -= 1 << bits
        counts.append(value + (counts[-2] if len(counts) > 2 else 0))
        value = bits = 0
    if bits:
        raise InvalidInput("A compressed run-length mask ends in the middle of a number.")
    return counts
