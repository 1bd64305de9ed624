"""Verax beside one library at a time: for those who have to choose between two."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from reasons import LEVEL
from records import Result
from writing import table, times

WORDS = """Verax beside one library at a time, in all rows of methods that both were measured in, with the
better of that library as it comes and tuned. *ahead*: verax is at least as fast. *median*, *worst*, *best*:
how many times as fast. *no map*: the library refuses or raises there. *other map*: its map is 1 % away or
more from that of verax, which is no race; the correctness league says whose is right.

"""


def _cost(result: Result, library: str) -> float | None:
    """What a library takes for the same map, at its best; None where it gives none."""
    names = [name for name in result.peers if name.removesuffix(" tuned") == library]
    fair = [result.peers[name] for name in names if name not in result.notes]
    return min(fair, default=None)


def _missed(result: Result, library: str) -> str | None:
    """Why a library is not in the race, if it was asked."""
    notes = [note for name, note in result.notes.items() if name.removesuffix(" tuned") == library]
    kinds = {note.partition(":")[0] for note in notes} - {"not installed", "too long to race"}
    return None if not kinds else "another map" if "another map" in kinds else "no map"


def libraries(results: Iterable[Result]) -> list[str]:
    """All that were asked, those with the most rows first."""
    counts: dict[str, int] = {}
    for result in results:
        for library in {name.removesuffix(" tuned") for name in (*result.peers, *result.notes)}:
            counts[library] = counts.get(library, 0) + 1
    return sorted(counts, key=lambda library: (-counts[library], library))


def _row(name: str, what: str, own: Sequence[Result], library: str) -> list[str] | None:
    ratios = [cost / r.ours for r in own if (cost := _cost(r, library)) is not None]
    missed = [_missed(r, library) for r in own if _cost(r, library) is None]
    if not ratios:
        return None
    ahead, behind = sum(ratio >= 1 for ratio in ratios), sum(ratio < LEVEL for ratio in ratios)
    counts = (len(ratios), ahead, len(ratios) - ahead - behind, behind)
    spread = (statistics.median(ratios), min(ratios), max(ratios))
    others = missed.count("no map"), missed.count("another map")
    return [name, what, *map(str, counts), *map(times, spread), *map(str, others)]


def shown(results: Iterable[Result]) -> str:
    """A row for one sample and one for more, for each library."""
    raced = [r for r in results if r.league == "methods"]
    parts = (
        ("1", [r for r in raced if r.batch == 1]),
        ("more", [r for r in raced if r.batch > 1]),
    )
    found = [_row(library, what, own, library) for library in libraries(raced) for what, own in parts if own]
    head = ("library", "samples", "rows", "ahead", "level", "behind")
    head += ("median", "worst", "best", "no map", "other map")
    return WORDS + table(head, [row for row in found if row is not None])
