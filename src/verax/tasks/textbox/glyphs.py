"""The letters of TextBox, frozen.

No font is looked up at run time: the two letters below, 15 rows high, are part of the task's definition.
They are DejaVu Sans at the size whose ink comes nearest to that of the published 20-pixel letters ('A': 104
pixels with ink, 72.1 pixels of intensity; 'B': 128 and 93.9; published: 100 and 69.5, 130 and 89.9), which
keeps the ceilings of the published metrics where they were.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

ROWS_ABOVE = 4
"""Empty rows between the drawing origin of the published text box and the ink."""

BOX = (19, 13)
"""Height and width of the published text box."""

_A = """
000000000078ffff230000000000 0000000000d6ffff810000000000 0000000035ffc2f8df0100000000
0000000094ff5eb0ff3f00000000 00000006ecf80f59ff9e00000000 00000052ffaf000cf6f20a000000
000000b1ff580000acff5c000000 000015faf50b000055ffbb000000 00006fffaa0000000af4fd1c0000
0000ceff5300000000a7ff790000 002dffffffffffffffffffd80000 008cffffffffffffffffffff3700
03e7ff56000000000000a4ff9600 4affe10400000000000032ffee07 a9ff740000000000000000c1ff54
"""

_B = """
00f0fffffffffceab85100000000 00f0ffffffffffffffff82000000 00f0ff20000008289efffc170000
00f0ff200000000001e7ff400000 00f0ff200000000001e7ff2b0000 00f0ff20000007269bffce010000
00f0fffffffffffff89e16000000 00f0ffffffffffffffd344000000 00f0ff200000041c6cf7fb390000
00f0ff2000000000007effb20000 00f0ff20000000000050ffdf0000 00f0ff2000000000007fffd80000
00f0ff200000031c6bf7ff910000 00f0ffffffffffffffffd6130000 00f0fffffffffef2ca7a0b000000
"""


def _bitmap(text: str) -> NDArray[np.float32]:
    rows = [list(bytes.fromhex(row)) for row in text.split()]
    return np.asarray(rows, dtype=np.float32) / np.float32(255)


LETTERS: dict[str, NDArray[np.float32]] = {"A": _bitmap(_A), "B": _bitmap(_B)}
"""Ink of each letter: ``(15, 14)`` float32 in [0, 1]."""
