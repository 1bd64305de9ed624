"""Success and failure: Figure 7; and the attribution of a pixel: Figures 23 and 24."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from verax.reports import INK, MUTED, style
from verax.reproductions.smerf.evidence import Series
from verax.reproductions.smerf.figures import (
    PRIMARY,
    SECONDARY,
    canvas,
    intervals,
    legend,
    method_axis,
    width_for,
)
from verax.reproductions.smerf.figures.summaries import both_roles, bucket_rows, successes
from verax.reproductions.smerf.paper_methods import FIFTEEN, SEVENTEEN, TASKS, short
from verax.tasks import task as find_task

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def title(task: str) -> str:
    """A setting as the paper writes it."""
    family, _, rest = task.rpartition("/")[2].partition("-")
    return f"{family.capitalize()}-{rest.upper()}"


def _cell(axes: Axes, place: tuple[int, int], row: pd.Series | None, name: str) -> None:
    """A shade from black to white, the number and its interval below."""
    column, line = place
    value = float("nan") if row is None else float(row[name])
    # failure as in the paper: black where more than half of the buckets fail
    shade = value if name == "success" else float(value <= 0.5)
    face: Any = str(shade) if np.isfinite(value) else "none"
    axes.add_patch(
        Rectangle((column - 0.5, line - 0.5), 1, 1, facecolor=face, edgecolor=MUTED, linewidth=0.6)
    )
    ink = "white" if np.isfinite(value) and shade < 0.62 else INK
    if row is None or not np.isfinite(value):
        axes.text(column, line, "–", ha="center", va="center", color=MUTED)
        return
    axes.text(column, line - 0.14, f"{value:.2f}", ha="center", va="center", fontsize=8, color=ink)
    bounds = f"{row[f'{name}_low']:.2f}–{row[f'{name}_high']:.2f}"
    axes.text(column, line + 0.24, bounds, ha="center", va="center", fontsize=5.2, color=ink)


def success_and_failure(series: Series, methods: Sequence[str] = SEVENTEEN) -> Figure:
    """The share of buckets with PAFL above 0.5, and where SAFL is above PAFL in most of them (Figure 7).

    Args:
        series: the network that is shown.
        methods: which ones, in order.
    """
    table = successes(series).astype({"task": str, "method": str}).set_index(["task", "method"])
    shown = [name for name in methods if name in series.methods]
    tasks = [name for name in TASKS if name in table.index.get_level_values(0)]
    words = {
        "success": "success: share of buckets with PAFL > 0.5",
        "failure": "failure: share of buckets with SAFL > PAFL (black: more than half)",
    }
    with style():
        figure, grid = canvas(2, 1, 1.6 + 0.56 * len(shown), 1.7 + 0.84 * len(tasks), sharex=True)
        for axes, (name, text) in zip(grid[:, 0], words.items(), strict=True):
            for line, task in enumerate(tasks):
                for column, method in enumerate(shown):
                    there = (task, method) in table.index
                    _cell(axes, (column, line), table.loc[(task, method)] if there else None, name)
            axes.set_xlim(-0.5, len(shown) - 0.5)
            axes.set_ylim(len(tasks) - 0.5, -0.5)
            axes.set_xticks(range(len(shown)), [short(method) for method in shown], fontsize=8.5)
            counts = [int(table.loc[task]["buckets"].max()) for task in tasks]
            rows = [f"{title(task)} ({count})" for task, count in zip(tasks, counts, strict=True)]
            axes.set_yticks(range(len(tasks)), rows)
            axes.tick_params(length=0, labelcolor=INK, labelbottom=True)
            axes.set_title(text, fontsize=10, loc="left")
            for side in ("left", "bottom"):
                axes.spines[side].set_visible(False)
        figure.supxlabel(
            "In brackets: buckets with both kinds of objects. Small: 95 % intervals.",
            fontsize=8.5,
            color=MUTED,
        )
    return figure


def pixel_focus(series: Series, tasks: Sequence[str], methods: Sequence[str] = FIFTEEN) -> Figure:
    """Mean attribution of a primary and of a secondary pixel in every bucket that has both (23 and 24).

    Args:
        series: the network that is shown.
        tasks: whose buckets.
        methods: which ones, in order.
    """
    shown = [name for name in methods if name in series.methods]
    panels = [(task, group) for task in tasks for group in both_roles(series, task)]
    columns = 3
    lines = -(-len(panels) // columns)
    looks = (("pmafl", PRIMARY, "o", "primary (PMAFL)"), ("smafl", SECONDARY, "s", "secondary (SMAFL)"))
    with style():
        figure, grid = canvas(lines, columns, width_for(len(shown), 3) * 0.58, 2.0 * lines + 0.9)
        for axes, (task, group) in zip(grid.flat, panels, strict=False):
            for number, (metric, colour, marker, label) in enumerate(looks):
                table = bucket_rows(series, metric, shown, task, group).reindex(shown) * 1000
                at = np.arange(len(shown)) + 0.26 * number - 0.13
                value = table["mean"].to_numpy(dtype=float)
                axes.plot(at, value, linestyle="none", marker=marker, markersize=4, color=colour, label=label)
                intervals(axes, at, table, "mean", color=colour)
            method_axis(axes, shown)
            axes.tick_params(axis="x", labelsize=7.5)
            axes.set_ylim(bottom=0)
            scene = find_task(task).describe(group)
            axes.set_title(f"{title(task)} {group}: {scene}", fontsize=8.5, loc="left")
        for axes in grid.flat[len(panels) :]:
            axes.set_axis_off()
        figure.supylabel("mean attribution of a pixel (thousandths of the map)", fontsize=9)
        legend(figure, grid[0, 0], 2, "lines: 95 % intervals")
    return figure
