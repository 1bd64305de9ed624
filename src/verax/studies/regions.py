"""Regions: what is kept of maps and marks while images pass, so that no picture is explained again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
from torch import Tensor

from verax.metrics import cases8
from verax.studies import thumbnails
from verax.studies.alignments import Alignment

COLUMNS = ("region/marked", "region/shown")
"""Columns of both regions in the parts of a run that has not ended yet; empty where none was kept."""
Codes = tuple[str, str]


class Regions:
    """Both regions of the images that may still get a picture.

    Pictures are the first of some queues (`thumbnails.queues`), and which images these are is known at the
    end. An image that is not among the first of a queue so far never comes among them again, so that about
    ten times as many regions as pictures are held at the most, however many images pass.

    Args:
        count: how many pictures there will be.
        total: how many images will pass.
        facts: of the alignment, for the ranges of its cases.
    """

    def __init__(self, count: int, total: int, facts: Mapping[str, Any]) -> None:
        self._count, self._facts = count, facts
        self._even = set(thumbnails.evenly(total, count))
        self._codes: dict[int, Codes] = {}
        self._rows = pd.DataFrame()

    def __len__(self) -> int:
        return len(self._codes)

    def get(self, row: int) -> Codes | None:
        """The marked and the shown region of an image; None where they were not kept."""
        return self._codes.get(row)

    def add(self, rows: pd.DataFrame, regions: Callable[[], tuple[Tensor, Tensor]]) -> pd.DataFrame:
        """Keep what may be shown of the next images; gives their rows with the columns of it.

        Args:
            rows: the table of the images.
            regions: gives their marked and shown regions ``(N, H, W)``, if any of them may be shown.
        """
        if not self._count:
            return rows
        wanted = self._sorted_out(rows)
        places = [place for place, row in enumerate(rows["index"]) if row in wanted]
        codes: list[Codes | None] = [None] * len(rows)
        if places:
            made = zip(*(thumbnails.encoded(part[places]) for part in regions()), strict=True)
            for place, both in zip(places, made, strict=True):
                codes[place] = self._codes[int(rows["index"].iloc[place])] = both
        columns = {
            name: [None if both is None else both[side] for both in codes]
            for side, name in enumerate(COLUMNS)
        }
        return rows.assign(**columns)

    def read(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Take what was kept from a part of an earlier run; gives its rows without the columns of it."""
        if not set(COLUMNS) <= set(rows):
            return rows
        own = rows.drop(columns=[*COLUMNS])
        if self._count:
            wanted = self._sorted_out(own)
            for row, *both in zip(rows["index"].tolist(), *(rows[name] for name in COLUMNS), strict=True):
                if row in wanted and all(isinstance(code, str) for code in both):
                    self._codes[row] = (both[0], both[1])
        return own

    def _sorted_out(self, rows: pd.DataFrame) -> set[int]:
        """The numbers of all images so far that may be shown; what was kept of others is dropped."""
        known = pd.concat([self._rows, rows], ignore_index=True).astype({"right": "boolean"})
        known.index = pd.Index(known["index"])
        found = Alignment(known, self._facts)
        members = found.members() if set(cases8.COLUMNS) <= set(found.metrics) else {}
        wanted = {row for queue in thumbnails.queues(known, members, self._count) for row in queue}
        wanted |= self._even & set(known["index"].tolist())
        self._rows = known[known["index"].isin(wanted)]
        self._codes = {row: both for row, both in self._codes.items() if row in wanted}
        return wanted
