"""Listings: tables of a few rows that are read, and how leaderboards print."""

from __future__ import annotations

import shutil
import textwrap
from itertools import zip_longest
from typing import Any

import pandas as pd

_NARROWEST = 12
_SHORT = 24  # cells of at most so many letters are never broken
_GAP = "  "


def _word(value: Any) -> str:
    if isinstance(value, float):
        return "–" if value != value else f"{value:.3f}"
    return str(value)


def _sizes(natural: list[int], width: int) -> list[int]:
    """How wide columns are: long ones share what short ones leave of the width."""
    room = width - len(_GAP) * (len(natural) - 1) - sum(size for size in natural if size <= _SHORT)
    long = sum(size for size in natural if size > _SHORT)
    if long <= room:
        return natural
    return [size if size <= _SHORT else max(_NARROWEST, size * room // long) for size in natural]


def _fits(sizes: list[int], width: int) -> bool:
    return sum(sizes) + len(_GAP) * (len(sizes) - 1) <= width


def text(table: pd.DataFrame, width: int) -> str:
    """All rows and columns of a table; long cells are wrapped so that lines fit `width`.

    Columns that do not fit stand in further blocks, which begin with the first column again.
    """
    rows = [[str(name) for name in table.columns]]
    rows += [[_word(value) for value in row] for row in table.itertuples(index=False)]
    columns = [list(cells) for cells in zip(*rows, strict=True)]
    left = [len(table) > 0 and isinstance(table.iloc[0, place], str) for place in range(len(columns))]
    blocks: list[list[int]] = []
    for place in range(1, len(columns)):
        kept = [*blocks[-1], place] if blocks else [0, place]
        natural = [max(map(len, columns[each])) for each in kept]
        if blocks and not _fits(_sizes(natural, width), width):
            blocks.append([0, place])
        else:
            blocks[-1:] = [kept]
    return "\n\n".join(
        _block([columns[each] for each in block], [left[each] for each in block], width)
        for block in blocks or [[0]]
    )


def _block(columns: list[list[str]], left: list[bool], width: int) -> str:
    sizes = _sizes([max(map(len, cells)) for cells in columns], width)
    lines = []
    for cells in zip(*columns, strict=True):
        wrapped = [textwrap.wrap(cell, size) or [""] for cell, size in zip(cells, sizes, strict=True)]
        for parts in zip_longest(*wrapped, fillvalue=""):
            placed = zip(parts, sizes, left, strict=True)
            line = _GAP.join(part.ljust(size) if words else part.rjust(size) for part, size, words in placed)
            lines.append(line.rstrip())
    return "\n".join(lines)


class Listing(pd.DataFrame):  # type: ignore[misc]  # pandas has no types here
    """A table that prints all that it holds, as wide as the terminal; what is cut from it is a plain one."""

    @property
    def _constructor(self) -> Any:
        return pd.DataFrame

    def __repr__(self) -> str:
        return text(self, shutil.get_terminal_size((100, 24)).columns)

    def _repr_html_(self) -> str:
        with pd.option_context("display.max_colwidth", None):
            return str(self.to_html(index=False, float_format="{:.3f}".format, na_rep="–", border=0))


_INTERVALS = {
    "value": ("low", "high"),
    "skill": ("skill_low", "skill_high"),
    "worst": ("worst_low", "worst_high"),
}
_FIRST = ("method", "value", "skill", "rank", "worst")


def _joined(table: pd.DataFrame) -> pd.DataFrame:
    """A leaderboard to be read: methods, values and skill first, and intervals beside their values."""
    found = {str(name): list(table[name]) for name in table.columns}
    for name, ends in _INTERVALS.items():
        if name in found and all(end in found for end in ends):
            low, high = (found.pop(end) for end in ends)
            found[name] = [_estimate(*numbers) for numbers in zip(found[name], low, high, strict=True)]
    if "rank" in found:
        found["rank"] = ["" if pd.isna(rank) else str(rank) for rank in found["rank"]]
    order = [name for name in _FIRST if name in found]
    return pd.DataFrame({name: found[name] for name in [*order, *(n for n in found if n not in order)]})


def _estimate(value: Any, low: Any, high: Any) -> str:
    if pd.isna(value):
        return "–"
    return f"{value:.3f}" if pd.isna(low) or pd.isna(high) else f"{value:.3f} [{low:.3f}, {high:.3f}]"


class Leaderboard(pd.DataFrame):  # type: ignore[misc]  # pandas has no types here
    """A leaderboard, whose columns are numbers; printed, it leads with methods, values and skill.

    What is cut from it is a plain table.
    """

    @property
    def _constructor(self) -> Any:
        return pd.DataFrame

    def __repr__(self) -> str:
        return text(_joined(self), shutil.get_terminal_size((100, 24)).columns)

    def _repr_html_(self) -> str:
        return str(_joined(self).to_html(index=False, border=0))
