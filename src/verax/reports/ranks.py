"""Mean ranks with the critical difference, drawn and in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from verax.errors import VeraxError
from verax.reports import INK, METHOD, MUTED, RULE, charts, short, style
from verax.studies import comparisons
from verax.studies.leaderboards import HEADLINES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from verax.reports.charts import Shelf
    from verax.reports.figures import Album
    from verax.studies.comparisons import Compared, Ranking
    from verax.studies.runs import Run


def figure(ranking: Ranking) -> Figure:
    """Methods on an axis of mean ranks, best on the left; a bar joins those that are tied (Demšar 2006)."""
    names, values = list(ranking.ranks), np.array(list(ranking.ranks.values()))
    half = (len(names) + 1) // 2
    bars = ranking.tied()
    with style():
        top = 0.5 + 0.2 * len(bars)
        made = Figure(figsize=(7.2, 0.8 + 0.26 * half + 0.2 * len(bars)), layout="constrained")
        axes = made.add_subplot()
        first, last = 1.0, float(len(names))
        margin = 0.42 * (last - first)
        axes.set_xlim(first - margin, last + margin)
        axes.set_ylim(top + half + 0.2, -1.6)
        axes.axis("off")
        axes.plot([first, last], [0, 0], color=INK, linewidth=1)
        for place in range(1, len(names) + 1):
            axes.plot([place, place], [0, -0.15], color=INK, linewidth=1)
            axes.text(place, -0.25, str(place), ha="center", va="bottom", color=MUTED, fontsize=8)
        axes.plot([first, first + ranking.critical], [-1.1, -1.1], color=MUTED, linewidth=2)
        axes.text(
            first, -1.2, f"critical difference {ranking.critical:.2f}", va="bottom", color=MUTED, fontsize=8
        )
        for row, run in enumerate(bars):
            low, high = ranking.ranks[run[0]], ranking.ranks[run[-1]]
            axes.plot([low - 0.05, high + 0.05], [0.25 + 0.2 * row] * 2, color=METHOD, linewidth=3.5)
        for index, (name, value) in enumerate(zip(names, values, strict=True)):
            left = index < half
            height = top + (index if left else len(names) - 1 - index)
            edge = first - 0.1 if left else last + 0.1
            axes.plot([value, value, edge], [0, height, height], color=RULE, linewidth=0.9, zorder=0)
            words = f"{short(name, 24)}  {value:.1f}" if left else f"{value:.1f}  {short(name, 24)}"
            at = edge - 0.1 if left else edge + 0.1
            axes.text(at, height, words, ha="right" if left else "left", va="center", fontsize=9)
    return made


def sentence(ranking: Ranking, differing: int, pairs: int) -> str:
    """What the tests say, in words."""
    p = "p < 0.001" if ranking.p < 0.001 else f"p = {ranking.p:.3f}"
    return (
        f"Friedman over {ranking.blocks} buckets: chi-square {ranking.statistic:.1f}, {p}; "
        f"{differing} of {pairs} pairs of methods differ after Holm's correction (Wilcoxon, 5 %)."
    )


def unit(ranking: Ranking, pairs: int) -> str:
    """What the test of a pair counts, what its interval draws again, and why the two may disagree."""
    words = (
        f"The unit of the test is the bucket: it asks whether one method is ahead in bucket after bucket, "
        f"{ranking.blocks} of them, and p is corrected for {pairs} pairs. The interval keeps these buckets, "
        "draws only their samples again (and trainings, where there are several), and is for one pair alone, "
        "so that it can exclude 0 where the test says nothing."
    )
    if comparisons.hopeless(ranking.blocks, pairs):
        least = comparisons.least(ranking.blocks)
        words += (
            f" Over {ranking.blocks} buckets p is never below {least:.2g}, which the correction makes "
            f"{min(1.0, least * pairs):.2g}: no pair can differ."
        )
    return words


def tests(run: Run, protocol: str, families: Sequence[str]) -> dict[str, Compared]:
    """Ranks and tests of pairs of each family that can be ranked."""
    found = {}
    for family in families:
        try:
            scores = run.rows(protocol, HEADLINES[protocol])
            found[family] = comparisons.compared(scores, run.families, protocol=protocol, family=family)
        except VeraxError:
            continue  # too few methods or buckets
    return found


def parts(
    tested: Mapping[str, Compared], protocol: str, album: Album | None = None, shelf: Shelf | None = None
) -> list[dict[str, Any]]:
    """One entry for each family that was tested: chart (with a shelf), sentence, pairs and a note on them."""
    result = []
    for family, (found, pairs) in tested.items():
        name, chart = f"ranks-{protocol}-{family}", None
        if album is not None:
            album.add(name, figure(found))
        if shelf is not None:
            chart = shelf.add(charts.ranks(name, f"Mean ranks on {family} tasks", found))
        text = sentence(found, int(pairs["differ"].sum()), len(pairs))
        part = {"family": family, "chart": chart, "sentence": text, "note": unit(found, len(pairs))}
        result.append({**part, "pairs": pairs.to_dict("records")})
    return result
