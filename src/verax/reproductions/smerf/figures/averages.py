"""Averages and worst cases: Figures 2, 8b, 10, 11, 12, 26, 27, 28, 29 and 32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from verax.reports import INK, style
from verax.reproductions.smerf.evidence import Series
from verax.reproductions.smerf.figures import (
    COMPLEX,
    LEAST,
    MEAN,
    SIMPLE,
    bars,
    canvas,
    intervals,
    legend,
    method_axis,
    unit_axis,
    width_for,
)
from verax.reproductions.smerf.figures.summaries import Where, everywhere, reference, summary
from verax.reproductions.smerf.paper_methods import FAMILIES, SEVENTEEN, TEN
from verax.studies.leaderboards import ORACLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def _references(axes: Axes, series: Series, metric: str, where: Where, protocol: str) -> None:
    """The ceiling that no map can pass, and what showing every object scores without any network."""
    for label, dashes, words in ((ORACLE, "--", "the truth itself"), ("input", ":", "every object (input)")):
        found = reference(series, metric, where, label, protocol)
        if found is not None:
            axes.axhline(found["mean"], color=INK, linestyle=dashes, linewidth=1.1, label=words, zorder=1.5)


def average_and_least(
    series: Series,
    metric: str = "piou",
    methods: Sequence[str] = TEN,
    *,
    protocol: str = "published",
    label: str | None = None,
) -> Figure:
    """Mean and smallest bucket mean of each method, simple settings left and complex ones right (Figure 2).

    Args:
        series: the network that is shown.
        metric: of the scores.
        methods: which ones, in order.
        protocol: of the scores.
        label: of the axis (default: the metric's name).
    """
    with style():
        shown = [name for name in methods if name in series.methods]
        figure, grid = canvas(1, 2, width_for(len(shown), 2), 3.6, sharey=True)
        for axes, (family, tasks) in zip(grid[0], FAMILIES.items(), strict=True):
            where = everywhere(tasks)
            table = summary(series, metric, shown, where, protocol)
            bars(axes, table, colour=MEAN, place=-0.2, width=0.4, label="mean over buckets")
            bars(axes, table, "least", colour=LEAST, place=0.2, width=0.4, hatch="////", label="worst bucket")
            _references(axes, series, metric, where, protocol)
            method_axis(axes, list(table.index))
            count = 0 if table.empty else int(table["buckets"].max())
            axes.set_title(f"{family} reasonings ({count} buckets)", fontsize=10, loc="left")
        unit_axis(grid[0, 0], label or metric.upper())
        legend(figure, grid[0, 0], 4, "lines on bars: 95 % intervals")
    return figure


@dataclass(frozen=True)
class Rows:
    """One curve: whose scores, over which buckets."""

    series: Series
    where: Where


def least_of(
    panels: Mapping[str, Mapping[str, Rows]], metric: str = "pafl", methods: Sequence[str] = SEVENTEEN
) -> Figure:
    """The worst bucket of each method for several sets of buckets, one panel below the other (8b and 12).

    Args:
        panels: title -> what is compared, by name.
        metric: of the scores.
        methods: which ones, in order.
    """
    colours, hatches = (SIMPLE, COMPLEX, "#f0c77f", "#8a4b08"), (None, None, "////", "////")
    with style():
        figure, grid = canvas(len(panels), 1, width_for(len(methods)), 2.5 * len(panels) + 0.7, sharey=True)
        for axes, (title, compared) in zip(grid[:, 0], panels.items(), strict=True):
            width = 0.84 / len(compared)
            shown: list[str] = []
            for number, (label, rows) in enumerate(compared.items()):
                table = summary(rows.series, metric, methods, rows.where).reindex(methods)
                shown += [name for name in table.index if name in rows.series.methods]
                bars(
                    axes,
                    table,
                    "least",
                    colour=colours[number],
                    hatch=hatches[number],
                    place=(number - (len(compared) - 1) / 2) * width,
                    width=width,
                    label=label,
                )
            method_axis(axes, methods)
            axes.set_title(title, fontsize=10, loc="left")
            unit_axis(axes, f"worst {metric.upper()}", 0.8)
        legend(figure, grid[0, 0], 4, "smallest bucket mean; lines: 95 % intervals")
    return figure


def compared(networks: Mapping[str, Series], metric: str = "piou", methods: Sequence[str] = TEN) -> Figure:
    """Mean (left) and worst bucket (right) of several networks, simple above complex (Figures 11 and 28).

    Args:
        networks: what each one is called in the legend.
        metric: of the scores.
        methods: which ones, in order.
    """
    colours, hatches = (SIMPLE, COMPLEX, LEAST, "#7a3f00", "#8d8d8d"), (None, None, "////", "////", "....")
    with style():
        figure, grid = canvas(2, 2, width_for(len(methods), 2), 5.6, sharey=True, sharex=True)
        width = 0.84 / len(networks)
        for row, (family, tasks) in enumerate(FAMILIES.items()):
            for axes, name in zip(grid[row], ("mean", "least"), strict=True):
                for number, (label, series) in enumerate(networks.items()):
                    table = summary(series, metric, methods, everywhere(tasks)).reindex(methods)
                    place = (number - (len(networks) - 1) / 2) * width
                    bars(
                        axes, table, name, colour=colours[number % 5], hatch=hatches[number % 5], place=place,
                        width=width, label=label,
                    )  # fmt: skip
                method_axis(axes, methods)
                words = "mean over buckets" if name == "mean" else "worst bucket"
                axes.set_title(f"{family}: {words}", fontsize=10, loc="left")
            unit_axis(grid[row, 0], metric.upper())
        legend(figure, grid[0, 0], 4, "lines on bars: 95 % intervals")
    return figure


def dotted(networks: Mapping[str, Series], metric: str = "piou", methods: Sequence[str] = TEN) -> Figure:
    """Simple settings dotted, complex ones solid, mean left and worst bucket right (Figures 10, 26, 27).

    Args:
        networks: one row of panels for each.
        metric: of the scores.
        methods: which ones, in order.
    """
    looks = {"simple": (":", "o", "#d0761b"), "complex": ("-", "s", COMPLEX)}
    with style():
        figure, grid = canvas(
            len(networks), 2, width_for(len(methods), 2), 2.5 * len(networks) + 0.8, sharey=True
        )
        for row, (label, series) in enumerate(networks.items()):
            for axes, name in zip(grid[row], ("mean", "least"), strict=True):
                for number, (family, tasks) in enumerate(FAMILIES.items()):
                    table = summary(series, metric, methods, everywhere(tasks)).reindex(methods)
                    dashes, marker, colour = looks[family]
                    at = np.arange(len(table)) + 0.16 * number - 0.08
                    value = table[name].to_numpy(dtype=float)
                    axes.plot(
                        at, value, linestyle=dashes, marker=marker, color=colour, markersize=4.5, label=family
                    )
                    intervals(axes, at, table, name, color=colour)
                method_axis(axes, methods)
                words = "mean over buckets" if name == "mean" else "worst bucket"
                axes.set_title(f"{label}: {words}", fontsize=10, loc="left")
            unit_axis(grid[row, 0], metric.upper())
        legend(figure, grid[0, 0], 2, "lines: 95 % intervals")
    return figure
