"""Primary and secondary focus, setting by setting: Figures 6, 8a, 17, 18, 22, 30 and 33."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from verax.reports import INK, style
from verax.reproductions.smerf.evidence import Series
from verax.reproductions.smerf.figures import (
    DASHES,
    LINES,
    MARKERS,
    bars,
    canvas,
    intervals,
    legend,
    method_axis,
    unit_axis,
    width_for,
)
from verax.reproductions.smerf.figures.summaries import Where, ceiling, everywhere, summary
from verax.reproductions.smerf.paper_methods import COMPLEX, FIFTEEN, SEVENTEEN, SIMPLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FR, _NR = SIMPLE
_CFR, _CR1, _CR2, _CR3, _CR4 = COMPLEX

SIMPLE_LINES: dict[str, Where] = {
    "Simple-FR, text there": {_FR: [8, 9, 11, 12]},
    "Simple-FR, no text": {_FR: [7, 10]},
    "Simple-NR, Box1 there": {_NR: [8, 9, 11, 12]},
    "Simple-NR, no Box1": {_NR: [2, 3, 5, 6]},
}
"""The four lines of Figure 6a: is what must be avoided there or not?"""

COMPLEX_LINES: dict[str, Where] = {
    "CR2, text and Box1": {_CR2: [8, 9]},
    "CR2, text and Box2": {_CR2: [5, 6]},
    "CR2, text and both": {_CR2: [11, 12]},
}
"""The three lines of Figure 8a; scenes without text are left out, as in the paper."""

BUCKET_LINES: dict[str, dict[str, Where]] = {
    "Complex-CR1": {
        "Box1 only (focus: text)": {_CR1: [8, 9]},
        "Box2 only (focus: Box2)": {_CR1: [5, 6]},
        "both (focus: both boxes)": {_CR1: [11, 12]},
    },
    "Complex-CR3 (Box1 always there)": {
        "A, no Box2": {_CR3: [8]},
        "B, no Box2": {_CR3: [9]},
        "A, Box2": {_CR3: [11]},
        "B, Box2": {_CR3: [12]},
    },
    "Complex-CR4 (Box2 always there)": {
        "A, no Box1": {_CR4: [5]},
        "B, no Box1": {_CR4: [6]},
        "A, Box1": {_CR4: [11]},
        "B, Box1": {_CR4: [12]},
    },
    "Complex-FR (text always there)": {
        "no box": {_CFR: [2, 3]},
        "one box": {_CFR: [5, 6, 8, 9]},
        "both boxes": {_CFR: [11, 12]},
    },
}
"""The lines of Figure 22, one row of panels for each setting."""

OBJECTS: dict[str, tuple[Where, Where, Where]] = {
    "Simple-FR": ({_FR: [7]}, {_FR: [8, 9, 10]}, {_FR: [11, 12]}),
    "Simple-NR": ({_NR: [2, 3]}, {_NR: [5, 6, 8, 9]}, {_NR: [11, 12]}),
}
"""The buckets of Figure 6b with one, two and three objects."""


def _curves(
    axes: Axes, series: Series, metric: str, methods: Sequence[str], lines: Mapping[str, Where]
) -> None:
    """One line for each set of buckets; sets without scores are left out."""
    for number, (label, where) in enumerate(lines.items()):
        table = summary(series, metric, methods, where).reindex(list(methods))
        if table["mean"].isna().all():
            continue
        at = np.arange(len(methods)) + 0.13 * (number - (len(lines) - 1) / 2)
        colour = LINES[number]
        axes.plot(
            at,
            table["mean"].to_numpy(dtype=float),
            color=colour,
            linestyle=DASHES[number],
            marker=MARKERS[number],
            markersize=4,
            markeredgecolor="white",
            markeredgewidth=0.4,
            linewidth=1.2,
            label=label,
        )
        intervals(axes, at, table, "mean", color=colour, elinewidth=0.9, capsize=1.6)


def focus_and_avoid(
    series: Series,
    tasks: Sequence[str],
    lines: Mapping[str, Where],
    metrics: tuple[str, str] = ("pafl", "safl"),
    methods: Sequence[str] = SEVENTEEN,
) -> Figure:
    """Bars over all buckets of `tasks`, primary left and secondary right, with lines for some (6a and 8a).

    Args:
        series: the network that is shown.
        tasks: what the bars are means over.
        lines: name -> the buckets of one line.
        metrics: of the left and of the right panel.
        methods: which ones, in order.
    """
    shown = [name for name in methods if name in series.methods]
    with style():
        figure, grid = canvas(1, 2, width_for(len(shown), 2) * 0.82, 4.1, sharey=True)
        words = ("on what the reasoning uses", "on what it ignores")
        for axes, metric, word in zip(grid[0], metrics, words, strict=True):
            where = everywhere(tasks)
            table = summary(series, metric, shown, where).reindex(shown)
            bars(axes, table, colour="#c3ccd6", label="all buckets", spread=True)
            _curves(axes, series, metric, shown, lines)
            top = ceiling(series, metric, where) if metric.startswith("p") else None
            if top is not None:
                axes.axhline(
                    top, color=INK, linestyle="--", linewidth=1.1, label="the truth itself", zorder=1.5
                )
            method_axis(axes, shown)
            count = 0 if table["buckets"].isna().all() else int(table["buckets"].max())
            axes.set_title(f"{metric.upper()}: {word} ({count} buckets)", fontsize=10, loc="left")
        unit_axis(grid[0, 0], metrics[0][1:].upper())
        legend(figure, grid[0, 0], 3, "caps: 95 % intervals; thin lines on bars: deviation over buckets")
    return figure


def by_objects(
    series: Series, metrics: tuple[str, str] = ("pafl", "safl"), methods: Sequence[str] = FIFTEEN
) -> Figure:
    """How focus changes with one, two and three objects in the picture (Figure 6b).

    Args:
        series: the network that is shown.
        metrics: of the left and of the right column.
        methods: which ones, in order.
    """
    colours, hatches = ("#bcd7f0", "#4d8bc9", "#12365f"), (None, "////", None)
    shown = [name for name in methods if name in series.methods]
    with style():
        figure, grid = canvas(2, 2, width_for(len(shown), 2) * 0.85, 5.6, sharey=True, sharex=True)
        for row, (setting, parts) in enumerate(OBJECTS.items()):
            for axes, metric in zip(grid[row], metrics, strict=True):
                for number, where in enumerate(parts):
                    table = summary(series, metric, shown, where).reindex(shown)
                    label = f"{number + 1} object{'s' if number else ''}"
                    bars(
                        axes, table, colour=colours[number], hatch=hatches[number], place=0.28 * (number - 1),
                        width=0.28, label=label,
                    )  # fmt: skip
                method_axis(axes, shown)
                axes.set_title(f"{setting}: {metric.upper()}", fontsize=10, loc="left")
            unit_axis(grid[row, 0], metrics[0][1:].upper())
        legend(figure, grid[0, 0], 3, "lines on bars: 95 % intervals; secondary focus needs two objects")
    return figure


def per_bucket(
    series: Series,
    settings: Mapping[str, Mapping[str, Where]] | None = None,
    metrics: tuple[str, str] = ("pafl", "safl"),
    methods: Sequence[str] = SEVENTEEN,
) -> Figure:
    """Lines for kinds of scenes, one row of panels for each setting (Figure 22).

    Args:
        series: the network that is shown.
        settings: title -> its lines (default: those of the paper).
        metrics: of the left and of the right column.
        methods: which ones, in order.
    """
    chosen = BUCKET_LINES if settings is None else settings
    shown = [name for name in methods if name in series.methods]
    with style():
        figure, grid = canvas(len(chosen), 2, width_for(len(shown), 2) * 0.85, 3.1 * len(chosen), sharey=True)
        for row, (title, lines) in enumerate(chosen.items()):
            for axes, metric in zip(grid[row], metrics, strict=True):
                _curves(axes, series, metric, shown, lines)
                method_axis(axes, shown)
                axes.set_title(f"{title}: {metric.upper()}", fontsize=10, loc="left")
            # a kind of scene may have scores in one of the two panels only
            pair = [axes.get_legend_handles_labels() for axes in grid[row]]
            kept = {
                label: handle
                for handles, labels in pair
                for handle, label in zip(handles, labels, strict=True)
            }
            order = [label for label in lines if label in kept]
            grid[row, 0].legend(
                [kept[label] for label in order], order, fontsize=7.5, loc="upper left", ncols=2
            )
            unit_axis(grid[row, 0], metrics[0][1:].upper(), 1.15)
    return figure
