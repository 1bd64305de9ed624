"""The letters of TextBox, frozen.

No font is looked up at run time: the two letters below are part of the task's definition. They were drawn
for verax so that their ink is, within one percent, as large and as wide-spread as that of the published
20-pixel letters (15 rows starting 4 rows under the drawing origin, 'A' on columns 0 to 13 with 102
non-zero pixels, 'B' on columns 1 to 12 with 130), which keeps the published metric ceilings where they were.
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
0000000040ff5eb0ff4000000000 0000000640f80f59ff4000000000 00000052ffaf000cf6f20a000000
000000b1ff584040acff5c000000 000000faf50b000055ffbb000000 00006fff400000000a40fd1c0000
0000ceff5300000000a7ff790000 0000ffffffffffffffffffd80000 008cffffffffffffffffffff3700
03e7ff56000000000000a4ff9600 00ffe10400000000000032ffee00 a9ff740000000000000000c1ff54
"""

_B = """
0008fffffffffff8da9016000000 0008ffffffffffffffffa0150000 0008fff0004040114ae4ff820000
0008fff0400000000063ffac0000 0008fff0000000000063ff980000 0008fff00000000f47e2ff420000
0008ffffffffffffffd456000000 0008fffffffffffffff593050000 0008fff00000000b34b8ff9f0000
0008fff000000000000bf3fd0000 0008fff0000000000000d3ff4400 0008fff000000000000bf3ff3d00
0008fff00000000b33b7ffef0900 0008fffffffffffffffffd5b0000 0008fffffffffffbe5aa39000000
"""


def _bitmap(text: str) -> NDArray[np.float32]:
    rows = [list(bytes.fromhex(row)) for row in text.split()]
    return np.asarray(rows, dtype=np.float32) / np.float32(255)


LETTERS: dict[str, NDArray[np.float32]] = {"A": _bitmap(_A), "B": _bitmap(_B)}
"""Ink of each letter: ``(15, 14)`` float32 in [0, 1]."""
