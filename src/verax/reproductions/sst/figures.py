"""Figures 1 to 5 of the paper, each a function of the evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from verax.correlations import average_ranks, correlation
from verax.reports import INK, MUTED, RULE, style
from verax.reproductions.sst import charts
from verax.reproductions.sst.catalogue import (
    DEEP,
    DEEP_TAYLOR,
    GRADIENT,
    INTEGRATED,
    LINEAR,
    LRP_AB,
    LRP_Z,
    OCCLUSION,
    PAPER,
    PRODUCT,
    SMOOTH,
    TITLES,
)
from verax.reproductions.sst.evidence import Evidence

COLOURS = ("#1f5fae", "#d9662b", "#2a8c5f", "#a5428c", "#7a6a00")
"""Told apart by colour-blind readers; line styles say the same."""

DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (4, 1.2, 1, 1.2)), (0, (8, 2)))
BINS = np.linspace(-0.5, 1.0, 51)
BLIND = (LRP_AB, DEEP_TAYLOR)
_PER_MILLE = 1000


@dataclass(frozen=True)
class Entry:
    """A figure.

    Attributes:
        number: in the paper.
        title: of ours.
        paper: what the paper shows.
        draw: evidence -> figure.
        note: evidence -> what is seen here.
    """

    number: int
    title: str
    paper: str
    draw: Callable[[Evidence], Figure]
    note: Callable[[Evidence], str]

    @property
    def file(self) -> str:
        """Name of its files."""
        return f"figure{self.number}"


def _sheet(width: float, height: float) -> Figure:
    """An empty figure with a margin, so that no label touches its edge."""
    figure = Figure(figsize=(width, height))
    figure.set_layout_engine("constrained", w_pad=0.08, h_pad=0.06)
    return figure


def _plain(axes: Any) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.tick_params(labelsize=8.5)


def _truth(evidence: Evidence, place: int) -> Tensor:
    assert evidence.cases.truth.values is not None
    return evidence.cases.truth.values[place]


def pipeline(evidence: Evidence) -> Figure:
    """Figure 1: samples of the field, what F makes of a hundred, and an attribution beside its truth."""
    grid = evidence.task.grid
    inputs = evidence.cases.inputs
    peak = float(inputs[:3].abs().max().ceil())
    y = evidence.task.function.total(evidence.task.cases(n=100, seed=0).inputs)
    with style():
        figure = _sheet(10, 7.6)
        rows: Any = figure.subfigures(3, 1, height_ratios=[1, 0.85, 1.15])
        maps = rows[0].subplots(1, 3)
        for place, axes in enumerate(maps):
            shown = charts.draw(axes, grid, inputs[place], peak, left=place == 0)
            axes.set_title(f"(a) synthetic sample {int(evidence.cases.ids[place])}", fontsize=9.5)
        charts.colour_bar(rows[0], shown, maps, "standard deviations")
        axes = rows[1].subplots()
        axes.axhline(0, color=RULE, linewidth=0.9)
        axes.plot(np.arange(len(y)), y.numpy(), color=COLOURS[0], linewidth=1.2, marker="o", markersize=2.6)
        axes.set(xlim=(-1, len(y)), xlabel="sample", ylabel="y = F(x)")
        axes.set_title("(b) what the known function makes of a hundred samples", fontsize=9.5)
        _plain(axes)
        both = rows[2].subplots(1, 2)
        pair = (
            ("(c) truth: C of every cell", _truth(evidence, 0)),
            ("(d) integrated gradients", evidence.maps[INTEGRATED][0]),
        )
        level = max(float(values.abs().max()) for _, values in pair) * _PER_MILLE
        for place, (axes, (title, values)) in enumerate(zip(both, pair, strict=True)):
            shown = charts.draw(axes, grid, values * _PER_MILLE, level, left=place == 0)
            axes.set_title(title, fontsize=9.5)
        charts.colour_bar(rows[2], shown, both, "contribution × 1000")
    return figure


def _pipeline_note(evidence: Evidence) -> str:
    y = evidence.task.function.total(evidence.task.cases(n=100, seed=0).inputs)
    return (
        f"The field is {evidence.task.field.name}; y of these samples lies between {float(y.min()):.2f} and "
        f"{float(y.max()):.2f} (in the paper roughly -0.2 to 0.25, with another F)."
    )


def _cells(evidence: Evidence, count: int = 4) -> list[int]:
    """Cells in the tropical Pacific, the North Atlantic, the Southern and the Indian Ocean."""
    grid = evidence.task.grid
    wanted = ((0, 240), (40, 320), (-50, 120), (-10, 80))
    north = grid.latitudes[grid.cells[:, 0]]
    east = grid.longitudes[grid.cells[:, 1]]
    found = []
    for latitude, longitude in wanted[:count]:
        aside = (east - longitude + 180).remainder(360) - 180
        found.append(int(((north - latitude).square() + aside.square()).argmin()))
    return list(dict.fromkeys(found))


def local_functions(evidence: Evidence) -> Figure:
    """Figure 2: the map of a slope, and the local functions of a few cells."""
    grid, function = evidence.task.grid, evidence.task.function
    cells = _cells(evidence)
    x = torch.linspace(-3, 3, 601)
    with style():
        figure = _sheet(8.4, 7.2)
        upper, lower = figure.subplots(2, 1, height_ratios=[1.1, 1])
        shown = charts.draw(upper, grid, function.slopes[:, 0])
        upper.set_title("slope of the leftmost piece", fontsize=10)
        charts.colour_bar(figure, shown, upper, "slope (before dividing by D)")
        every = function.values(x[:, None].expand(-1, len(function)).contiguous()) / function.scale
        lower.axhline(0, color=RULE, linewidth=0.9)
        lower.axvline(0, color=RULE, linewidth=0.9)
        for number, cell in enumerate(cells):
            colour = COLOURS[number % len(COLOURS)]
            place = grid.cells[cell]
            lower.plot(x, every[:, cell], color=colour, linestyle=DASHES[number % 5], label=grid.place(place))
            bends = function.knots[cell]
            heights = np.interp(bends.numpy(), x.numpy(), every[:, cell].numpy())
            lower.plot(bends, heights, "o", color=colour, markersize=3.6)
            if grid.geographic:
                upper.plot(
                    float(grid.longitudes[place[1]]),
                    float(grid.latitudes[place[0]]),
                    "os^D"[number % 4],
                    markerfacecolor=colour,
                    markeredgecolor="white",
                    markersize=8,
                )
        lower.set(xlim=(-3, 3), xlabel="x, in standard deviations", ylabel="D × C(x)")
        lower.set_title("local functions of four cells; dots are break points", fontsize=10)
        lower.legend(loc="best", ncols=2)
        _plain(lower)
    return figure


def _functions_note(evidence: Evidence) -> str:
    return (
        f"Slopes are maps drawn from the field, so that neighbours react alike; each of the "
        f"{len(evidence.task.function)} functions has {evidence.task.breaks} breaks and is 0 at 0."
    )


def _pair(values: Tensor, truth: Tensor) -> tuple[float, float]:
    """Pearson's and Spearman's correlation of one map."""
    a, b = values[None].double(), truth[None].double()
    return float(correlation(a, b)), float(correlation(average_ranks(a), average_ranks(b)))


def sample_maps(evidence: Evidence, place: int) -> Figure:
    """Figures 3 and 4: the truth of one sample and eight maps, with r and rho."""
    grid, truth = evidence.task.grid, _truth(evidence, place)
    with style():
        figure = _sheet(10.4, 7.4)
        axes = figure.subplots(3, 3).flatten()
        charts.draw(axes[0], grid, truth, below=False)
        y = float(evidence.task.function.total(evidence.cases.inputs[place : place + 1]))
        axes[0].set_title(f"truth, y = {y:.3f}", fontsize=10, fontweight="bold")
        for number, name in enumerate(PAPER, 1):
            values = evidence.maps[name][place]
            held, word = (truth.abs(), "|truth|") if name in BLIND else (truth, "truth")
            r, rho = _pair(values.abs() if name in BLIND else values, held)
            charts.draw(axes[number], grid, values, left=number % 3 == 0, below=number >= 6)
            title = f"{TITLES[name]}\nr = {r:.2f}, ρ = {rho:.2f}"
            title = f"{title} with {word}" if name in BLIND else title
            if not values.any():
                title = f"{TITLES[name]}\nempty: it explains outputs above 0 only"
            axes[number].set_title(title, fontsize=9.5)
        figure.supxlabel(
            "Each map is relative to its largest magnitude: red speaks for a higher output, blue for a lower "
            "one; grey is land.",
            fontsize=9,
            color=MUTED,
        )
    return figure


def _sample_note(place: int) -> Callable[[Evidence], str]:
    def note(evidence: Evidence) -> str:
        truth = _truth(evidence, place)
        words = [
            f"{TITLES[name].lower()} {_pair(evidence.maps[name][place], truth)[0]:.2f}"
            for name in (INTEGRATED, PRODUCT, OCCLUSION, GRADIENT)
        ]
        which = "95th" if place == 0 else "5th"
        return (
            f"Sample {int(evidence.cases.ids[place])}, whose output is the {which} percentile; the samples "
            f"of the paper are not published. r with the truth: {', '.join(words)}. Deep Taylor has squared "
            "weights at the input here, as its authors advise for inputs without bounds; the toolbox of the "
            "paper has them at the output."
        )

    return note


def _histogram(
    axes: Any, series: Sequence[tuple[str, np.ndarray[Any, Any]]], title: str, place: str = "upper left"
) -> None:
    for number, (label, values) in enumerate(series):
        inside = np.clip(values, BINS[0], BINS[-1])  # what lies outside is counted at the edge
        heights, _ = np.histogram(inside, BINS, density=True)
        axes.stairs(
            heights,
            BINS,
            color=COLOURS[number],
            linewidth=1.6,
            linestyle=DASHES[number],
            label=f"{label}: {values.mean():.2f}",
        )
        axes.stairs(heights, BINS, fill=True, color=COLOURS[number], alpha=0.12)
    axes.set(xlim=(BINS[0], BINS[-1]), ylabel="density")
    axes.set_title(title, fontsize=10, loc="left")
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * (1.08 if place == "upper left" else 1.25))
    axes.legend(loc=place, fontsize=8.5, title="mean correlation", title_fontsize=8.5)
    axes.axvline(0, color=RULE, linewidth=0.9, zorder=0)
    _plain(axes)


def histograms(evidence: Evidence) -> Figure:
    """Figure 5: how the correlation with the truth varies over samples, in three panels."""

    def of(method: str, network: str = DEEP, metric: str = "pearson") -> np.ndarray[Any, Any]:
        return np.asarray(evidence.values(method, network, metric))

    with style():
        figure = _sheet(7.6, 9.4)
        first, second, third = figure.subplots(3, 1)
        _histogram(
            first,
            [("linear model", of(PRODUCT, LINEAR)), ("neural network", of(PRODUCT))],
            "(a) input × gradient",
        )
        several = (OCCLUSION, PRODUCT, INTEGRATED, GRADIENT, SMOOTH)
        _histogram(second, [(TITLES[name], of(name)) for name in several], "(b) the neural network")
        _histogram(
            third,
            [
                ("LRP-αβ with positive truth", of(LRP_AB, metric="pearson/positive")),
                ("LRP-αβ with |truth|", of(LRP_AB, metric="pearson/magnitude")),
                ("LRP-z with truth", of(LRP_Z)),
            ],
            "(c) layer-wise relevance propagation",
        )
        third.set_xlabel(
            "correlation of a map with the truth, over cells (what is below -0.5 is in the first bin)",
            color=INK,
        )
    return figure


def _histogram_note(evidence: Evidence) -> str:
    words = [f"{TITLES[name].lower()} {float(evidence.r(name)[0]):.2f}" for name in (*PAPER[:4], OCCLUSION)]
    return (
        f"Mean correlations over {len(evidence.values(PRODUCT))} samples: {', '.join(words)}. "
        f"The network explains {100 * evidence.fit()[0]:.1f} % of the variance."
    )


CATALOGUE = (
    Entry(
        1,
        "The benchmark from samples to attributions",
        "Maps of three synthetic samples, y of a hundred samples, and a truth beside an attribution.",
        pipeline,
        _pipeline_note,
    ),
    Entry(
        2,
        "The known function",
        "Top: the map of a slope; bottom: the local functions of chosen cells.",
        local_functions,
        _functions_note,
    ),
    Entry(
        3,
        "A sample with a high output",
        "The truth of test sample 979,476 and eight maps with r and rho in their titles.",
        lambda evidence: sample_maps(evidence, 0),
        _sample_note(0),
    ),
    Entry(
        4,
        "A sample with a low output",
        "The same for test sample 995,903.",
        lambda evidence: sample_maps(evidence, 1),
        _sample_note(1),
    ),
    Entry(
        5,
        "Agreement with the truth over samples",
        "Three panels of histograms: input x gradient of linear model and network; five methods; LRP.",
        histograms,
        _histogram_note,
    ),
)
