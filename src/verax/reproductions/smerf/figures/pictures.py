"""Pictures of scenes and maps: Figures 5, 9, 13, 19 to 21, 25 and 31."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from torch import Tensor

from verax.cases import Cases, Role
from verax.errors import InvalidInput
from verax.methods.base import METHODS
from verax.protocols import published
from verax.reports import INK, MUTED, style
from verax.reproductions.smerf.evidence import Series, View
from verax.reproductions.smerf.figures import BAD, PRIMARY, SECONDARY
from verax.reproductions.smerf.figures.successes import title
from verax.reproductions.smerf.figures.summaries import worst_buckets
from verax.reproductions.smerf.paper_methods import FIFTEEN, SHAP, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHARED = (5, 9, 11, 12)
"""Buckets that every setting has, of several kinds: the inputs of Figures 9 and 25."""

_CELL = 0.92  # inches
_LOOK = {Role.FOCUS: (PRIMARY, "-"), Role.AVOID: (SECONDARY, (0, (3, 1.5))), Role.OTHER: (MUTED, ":")}


def _grid(
    rows: int, columns: int, left: float = 0.75, top: float = 0.45, below: float = 0.17
) -> tuple[Figure, Any]:
    """Square cells without axes at fixed places: an automatic layout of hundreds of cells takes minutes."""
    bottom, cell = 0.5, _CELL + below
    width, height = left + _CELL * columns + 0.1, top + cell * rows + bottom
    figure = Figure(figsize=(width, height))
    grid = figure.subplots(
        rows,
        columns,
        squeeze=False,
        gridspec_kw={
            "left": left / width,
            "right": 1 - 0.1 / width,
            "top": 1 - top / height,
            "bottom": (bottom + below) / height,
            "wspace": 0.05,
            "hspace": below / _CELL + 0.03,
        },
    )
    for axes in grid.flat:
        axes.set_xticks([])
        axes.set_yticks([])
        for spine in axes.spines.values():
            spine.set_visible(False)
    return figure, grid


def _frames(axes: Axes, cases: Cases, number: int, thickness: float = 1.3) -> None:
    """The boxes of the objects: solid green where the reasoning looks, dashed magenta where it must not."""
    for box, role in zip(cases.truth.boxes[number].tolist(), cases.truth.roles[number].tolist(), strict=True):
        if role not in _LOOK:
            continue
        row0, row1, col0, col1 = box
        colour, dashes = _LOOK[Role(role)]
        axes.add_patch(
            Rectangle(
                (col0 - 1, row0 - 1),
                col1 - col0 + 1,
                row1 - row0 + 1,
                fill=False,
                edgecolor=colour,
                linestyle=dashes,
                linewidth=thickness,
            )
        )


def _boxes_legend(figure: Figure, *more: Line2D) -> None:
    handles = [
        Line2D([], [], color=PRIMARY, label="primary: what the reasoning uses"),
        Line2D([], [], color=SECONDARY, linestyle="--", label="secondary: what it ignores"),
        Line2D([], [], color=MUTED, linestyle=":", label="neither"),
        *more,
    ]
    columns = 2 if figure.get_figwidth() < 7.4 else len(handles)
    figure.legend(handles=handles, loc="lower center", ncols=columns)


def _show(axes: Axes, picture: Tensor | NDArray[Any], **options: Any) -> None:
    pixels = picture.detach().cpu().numpy() if isinstance(picture, Tensor) else picture
    if pixels.ndim == 3:
        pixels = pixels.transpose(1, 2, 0)
    axes.imshow(pixels, interpolation="nearest", **options)
    axes.set_xlim(-1.5, pixels.shape[1] + 0.5)
    axes.set_ylim(pixels.shape[0] + 0.5, -1.5)


def blank(axes: Axes, words: str) -> None:
    """A cell of which there is nothing to show."""
    axes.text(0.5, 0.5, words, ha="center", va="center", fontsize=7.5, color=MUTED, transform=axes.transAxes)


def scored_picture(label: str, maps: Tensor) -> Tensor:
    """What the published metrics see of kept maps ``(G, H, W)``: coloured, blurred and moved to [0, 1].

    Kept maps have their channels summed, so that transfers which look at single channels are approximate.
    """
    name = "deep-shap@published" if label == SHAP else label
    transfer = METHODS.get(name).transfer if name in METHODS else "heat"
    values = published.prepare(maps.double()[:, None], transfer).values
    low, high = values.amin((1, 2), keepdim=True), values.amax((1, 2), keepdim=True)
    return (values - low) / torch.where(high > low, high - low, 1.0)


def _place(view: View, group: int) -> int | None:
    found = (view.cases.group == group).nonzero()[:, 0]
    return int(found[0]) if len(found) else None


def samples(views: Sequence[View]) -> Figure:
    """One picture of every bucket and setting with its boxes, label and prediction (Figures 13 and 31).

    Args:
        views: one for each setting, the columns.
    """
    groups = range(1, 13)
    with style():
        figure, grid = _grid(len(groups), len(views), top=0.55, below=0.22)
        for column, view in enumerate(views):
            grid[0, column].text(
                0.5, 1.24, title(view.task), ha="center", fontsize=8.5, transform=grid[0, column].transAxes
            )
            for row, group in enumerate(groups):
                axes, place = grid[row, column], _place(view, group)
                if place is None:
                    blank(axes, "no label")
                    continue
                _show(axes, view.cases.inputs[place])
                _frames(axes, view.cases, place)
                label, said = int(view.cases.targets[place]), int(view.predictions[place])
                colour = INK if label == said else BAD
                axes.set_title(f"{label}, said {said}", fontsize=6.5, color=colour, pad=2)
        for row, group in enumerate(groups):
            grid[row, 0].set_ylabel(str(group), rotation=0, ha="right", va="center", fontsize=9, labelpad=6)
        figure.supylabel("bucket; above each picture its label and what the network said", fontsize=9, x=0.01)
        _boxes_legend(figure)
    return figure


def workflow(view: View) -> Figure:
    """How a setting is tested bucket by bucket: scenes, labels and accuracies (Figure 5).

    Args:
        view: of one setting; the paper shows Complex-FR.
    """
    accuracy = view.accuracy.set_index("group")
    labels = sorted({int(y) for y in view.cases.targets})
    rows = [[g for g in accuracy.index if accuracy.loc[g, "label"] == y] for y in labels]
    width = max(map(len, rows))
    with style():
        figure, grid = _grid(len(rows), width, top=0.7, below=0.5)
        for line, (label, groups) in enumerate(zip(labels, rows, strict=True)):
            for column in range(width):
                axes = grid[line, column]
                if column >= len(groups):
                    axes.set_axis_off()
                    continue
                place = _place(view, groups[column])
                assert place is not None
                _show(axes, view.cases.inputs[place])
                _frames(axes, view.cases, place)
                found = accuracy.loc[groups[column]]
                scene = str(found["scene"]).replace(" + ", "+")  # three objects are as wide as the picture
                axes.set_title(f"{groups[column]}: {scene}", fontsize=6, pad=2)
                axes.set_xlabel(
                    f"right {found['accuracy']:.3f}\n[{found['low']:.3f}, {found['high']:.3f}]", fontsize=6.6
                )
            grid[line, 0].set_ylabel(f"label {label}", fontsize=9)
        figure.suptitle(f"{title(view.task)}: {view.facts.get('reasoning', '')}", fontsize=9.5)
        _boxes_legend(figure)
    return figure


def identify(views: Sequence[View], methods: Sequence[str], groups: Sequence[int] = SHARED) -> Figure:
    """The maps of one method for the same pictures and every network: can they be told apart? (9 and 25).

    Args:
        views: one for each setting, the columns.
        methods: one block of rows for each.
        groups: the pictures, one row of each block; every setting must have them.
    """
    rows = [(method, group) for method in methods for group in groups]
    with style():
        figure, grid = _grid(len(rows), len(views) + 1, below=0.03)
        for line, (method, group) in enumerate(rows):
            first = _place(views[0], group)
            if first is None:
                raise InvalidInput(f"{views[0].task} has no bucket {group} to compare.")
            _show(grid[line, 0], views[0].cases.inputs[first])
            grid[line, 0].set_ylabel(f"{short(method)}, {group}", fontsize=8)
            for column, view in enumerate(views, 1):
                axes, place = grid[line, column], _place(view, group)
                if place is None or method not in view.maps:
                    blank(axes, "not run")
                    continue
                values = scored_picture(method, view.maps[method])[place]
                _show(axes, values, cmap="gray", vmin=0, vmax=1)
                _frames(axes, view.cases, place)
        for column, name in enumerate(["input", *(title(view.task) for view in views)]):
            grid[0, column].set_title(name, fontsize=8, pad=3)
        _boxes_legend(figure)
    return figure


def worst_samples(
    series: Series, task: str, methods: Sequence[str] = FIFTEEN, metric: str = "pafl"
) -> Figure:
    """A map of every method and bucket; the bucket in which a method is worst has a red frame (19 to 21).

    Args:
        series: the network that is shown.
        task: the setting.
        methods: the columns.
        metric: whose smallest bucket mean is meant.
    """
    view = next(found for found in series.views if found.task == task)
    shown = [name for name in methods if name in view.maps]
    worst = worst_buckets(series, metric, task, shown)
    roles = view.cases.truth.roles
    places = [i for i in range(len(view.cases)) if (roles[i] == Role.FOCUS).any()]
    means: Mapping[tuple[str, int], float] = _means(series, metric, task)
    with style():
        figure, grid = _grid(len(places), len(shown) + 1)
        for line, place in enumerate(places):
            group = int(view.cases.group[place])
            _show(grid[line, 0], view.cases.inputs[place])
            _frames(grid[line, 0], view.cases, place)
            grid[line, 0].set_ylabel(f"bucket {group}", fontsize=8)
            for column, method in enumerate(shown, 1):
                axes = grid[line, column]
                values = scored_picture(method, view.maps[method])[place]
                _show(axes, values, cmap="gray", vmin=0, vmax=1)
                _frames(axes, view.cases, place, 0.7)
                marked = worst.get(method) == group
                value = means.get((method, group), float("nan"))
                axes.set_xlabel(
                    f"{'worst: ' if marked else ''}{value:.2f}", fontsize=6.8, labelpad=1,
                    color=BAD if marked else MUTED,
                )  # fmt: skip
                if marked:
                    for spine in axes.spines.values():
                        spine.set(visible=True, color=BAD, linewidth=2.2)
        for column, name in enumerate(["input", *(short(method) for method in shown)]):
            grid[0, column].set_title(name, fontsize=8.5, pad=3)
        _boxes_legend(
            figure, Line2D([], [], color=BAD, linewidth=2.2, label=f"worst bucket ({metric.upper()})")
        )
    return figure


def _means(series: Series, metric: str, task: str) -> dict[tuple[str, int], float]:
    buckets = series.buckets(metric)
    here = np.flatnonzero(buckets.index["task"].astype(str) == task)
    return {
        (name, int(buckets.index["group"].iloc[row])): float(buckets.point[row, column])
        for row in here
        for column, name in enumerate(buckets.methods)
    }
