"""The figures and tables of the paper: pure functions from scores, maps and cases to matplotlib figures.

The look that they share is here. Nothing touches pyplot. What a colour says is also said by how dark it is,
by a hatch or by a marker, so that the figures can be read in grey.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from verax.reports import INK, MUTED, RULE
from verax.reproductions.smerf.paper_methods import short

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

PRIMARY, SECONDARY = "#17703a", "#d66fc4"
"""Focus and avoid: green and magenta as in the paper; dark and light in grey."""

MEAN, LEAST = "#1f4e8c", "#f2b04a"
SIMPLE, COMPLEX, WIDER = "#9cc4ea", "#1f4e8c", "#f2b04a"
BAD = "#c22f2f"
LINES = ("#b5430d", "#e39a2d", "#0f6b68", "#58b8a4")
DASHES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D")
_COLUMN = 0.5  # inches for each method


def canvas(rows: int, columns: int, width: float, height: float, **options: Any) -> tuple[Figure, Any]:
    """A figure with a grid of axes, always as a two-dimensional array, without needless lines."""
    figure = Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, **options)
    for axes in grid.flat:
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        axes.set_axisbelow(True)
    return figure, grid


def width_for(methods: int, panels: int = 1) -> float:
    """Inches that so many methods need beside each other."""
    return max(4.2, 1.1 + _COLUMN * methods * panels)


def method_axis(axes: Axes, methods: Sequence[str]) -> None:
    """One place for each method, with the paper's short names; they stand upright where there are many."""
    axes.set_xticks(range(len(methods)), [short(name) for name in methods])
    axes.tick_params(axis="x", length=0, labelrotation=90 if len(methods) > 6 else 0, labelcolor=INK)
    axes.set_xlim(-0.6, len(methods) - 0.4)
    axes.grid(axis="y", color=RULE, linewidth=0.7)


def unit_axis(axes: Axes, label: str, top: float = 1.0) -> None:
    """A score from 0 on."""
    axes.set_ylim(0, top)
    axes.set_ylabel(label)


def bars(
    axes: Axes,
    table: pd.DataFrame,
    name: str = "mean",
    *,
    colour: str,
    place: float = 0.0,
    width: float = 0.8,
    hatch: str | None = None,
    label: str = "",
    spread: bool = False,
) -> None:
    """One bar for each row of a summary with its 95 % interval; `spread` adds the deviation over buckets."""
    at = np.arange(len(table)) + place
    value = table[name].to_numpy(dtype=float)
    axes.bar(at, value, width, color=colour, hatch=hatch, edgecolor="white", linewidth=0.5, label=label)
    if spread:
        deviation = np.nan_to_num(table["std"].to_numpy(dtype=float))
        axes.vlines(at, np.maximum(value - deviation, 0), value + deviation, color=MUTED, linewidth=0.9)
    intervals(axes, at, table, name)


def intervals(axes: Axes, at: np.ndarray[Any, Any], table: pd.DataFrame, name: str, **look: Any) -> None:
    """The 95 % interval of each row as a line with caps."""
    value = table[name].to_numpy(dtype=float)
    low, high = (table[f"{name}_{side}"].to_numpy(dtype=float) for side in ("low", "high"))
    known = np.isfinite(value) & np.isfinite(low) & np.isfinite(high)
    reach = np.stack([np.maximum(value - low, 0), np.maximum(high - value, 0)])[:, known]
    options = {"color": INK, "elinewidth": 1.6, "capsize": 2.4, "capthick": 1.1, **look}
    axes.errorbar(at[known], value[known], reach, linestyle="none", **options)


def legend(figure: Figure, axes: Axes, columns: int, title: str = "") -> None:
    """One legend for the whole figure, below it; entries that say the same appear once."""
    handles, labels = axes.get_legend_handles_labels()
    kept = dict(zip(labels, handles, strict=True))
    if kept:
        figure.legend(
            list(kept.values()), list(kept), loc="outside lower center", ncols=columns, title=title,
            title_fontsize=9, columnspacing=1.5,
        )  # fmt: skip
