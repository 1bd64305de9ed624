"""Figures of the alignment experiments: strips of pictures, bars with chance, scatters with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray

from verax.reports import AVOID, FOCUS, INK, METHOD, MUTED, OTHER, RULE, style
from verax.reproductions.alignment.measuring import Picture

COLOURS = (METHOD, AVOID, "#2a8c5f", OTHER, "#7a6a00", "#a5428c", FOCUS)
HATCHES = ("", "//", "..", "xx", "\\\\", "--", "++")


@dataclass(frozen=True)
class Drawn:
    """A figure on the page."""

    file: str
    title: str
    note: str
    figure: Figure


def _bare(axes: Any) -> None:
    axes.set(xticks=[], yticks=[])
    for side in axes.spines.values():
        side.set(color=RULE)


def masked(image: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
    """The picture inside the mask, the rest faded, as the paper's figures have it."""
    faded = 0.82 + 0.12 * image.mean(2, keepdims=True)
    return np.where(mask[..., None], image, faded.astype(image.dtype)).astype(np.float32)


def strip(rows: Sequence[Sequence[Picture]], part: str, titles: Sequence[str]) -> Figure:
    """One row for each image: the image, what people marked, and what each network looks at.

    Args:
        rows: for each image, its picture for each network.
        part: what people marked.
        titles: of the networks.
    """
    across = 2 + len(titles)
    with style():
        figure = Figure(figsize=(1.55 * across, 1.75 * len(rows) + 0.3), layout="constrained")
        grid = figure.subplots(len(rows), across, squeeze=False)
        for line, found in zip(grid, rows, strict=True):
            first = found[0]
            panels = [(first.image, ""), (masked(first.image, first.masks[part]), "")]
            for picture in found:
                overlap, hit = picture.scores(part)
                words = f"IoU {overlap:.2f}, PG {'O' if hit else 'X'}"
                panels.append((masked(picture.image, picture.shown), words))
            for axes, (panel, words) in zip(line, panels, strict=True):
                axes.imshow(np.clip(panel, 0, 1), interpolation="nearest")
                axes.set_xlabel(words, fontsize=8, color=MUTED)
                _bare(axes)
            for axes, picture in zip(line[2:], found, strict=True):
                y, x = np.unravel_index(int(picture.heat.argmax()), picture.heat.shape)
                axes.plot([x], [y], marker="+", color="#e01b24", markersize=7, markeredgewidth=1.6)
                _outline(axes, picture.masks[part], FOCUS)
        for axes, title in zip(grid[0], ["image", f"people: {part}", *titles], strict=True):
            axes.set_title(title, fontsize=9)
    return figure


def outlines(pictures: Sequence[Picture], part: str, columns: int = 4) -> Figure:
    """Images with the outline of what people marked (blue) and of what the network looks at (orange)."""
    lines = -(-len(pictures) // columns)
    with style():
        figure = Figure(figsize=(2.1 * columns, 2.35 * lines), layout="constrained")
        grid = figure.subplots(lines, columns, squeeze=False)
        for axes in grid.flat:
            axes.set_axis_off()
        for axes, picture in zip(grid.flat, pictures, strict=False):
            axes.set_axis_on()
            axes.imshow(np.clip(picture.image, 0, 1))
            _outline(axes, picture.masks[part], FOCUS)
            _outline(axes, picture.shown, AVOID)
            y, x = np.unravel_index(int(picture.heat.argmax()), picture.heat.shape)
            axes.plot([x], [y], marker="+", color="#e01b24", markersize=8, markeredgewidth=1.6)
            overlap, hit = picture.scores(part)
            axes.set_title(picture.id[:26], fontsize=7)
            axes.set_xlabel(f"IoU {overlap:.2f}, PG {'O' if hit else 'X'}", fontsize=8, color=MUTED)
            _bare(axes)
    return figure


def _outline(axes: Any, mask: NDArray[np.bool_], colour: str) -> None:
    if mask.any() and not mask.all():
        axes.contour(mask.astype(float), levels=[0.5], colors=[colour], linewidths=1.2)


def bars(table: pd.DataFrame, score: str, rows: str, colours: str, title: str = "") -> Figure:
    """Horizontal bars with intervals; a tick marks chance.

    Args:
        table: of `measuring.summary`.
        score: its column.
        rows: the column that names the rows.
        colours: the column that names the bars within a row.
        title: above.
    """
    names, kinds = list(dict.fromkeys(table[rows])), list(dict.fromkeys(table[colours]))
    height = 0.8 / len(kinds)
    with style():
        figure = Figure(
            figsize=(6.4, 0.24 * len(names) * len(kinds) + 0.16 * len(names) + 1.2), layout="constrained"
        )
        axes = figure.add_subplot()
        for place, kind in enumerate(kinds):
            own = table[table[colours] == kind].set_index(rows)
            ys = [names.index(name) - 0.4 + (place + 0.5) * height for name in own.index]
            values = own[score].to_numpy(float)
            low, high = (own[f"{score} {end}"].to_numpy(float) for end in ("low", "high"))
            reach = [np.clip(values - low, 0, None), np.clip(high - values, 0, None)]
            axes.barh(
                ys,
                values,
                height * 0.92,
                color=COLOURS[place % len(COLOURS)],
                hatch=HATCHES[place % len(HATCHES)],
                label=str(kind),
                xerr=reach,
                error_kw={"ecolor": INK, "elinewidth": 0.9},
            )
            chance = own[f"{score} chance"].to_numpy(float)
            axes.scatter(
                chance, ys, marker="|", s=60, color=INK, zorder=3, label="chance" if place == 0 else None
            )
        axes.set_yticks(range(len(names)), [str(name) for name in names])
        axes.invert_yaxis()
        axes.set_xlabel(score)
        axes.set_title(title, fontsize=10, loc="left")
        axes.set_xlim(left=0)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.tick_params(axis="y", length=0)
        figure.legend(loc="outside lower center", ncols=min(4, len(kinds) + 1))
    return figure


def scatter(
    table: pd.DataFrame, x: str, y: str, names: str, *, groups: str | None = None, labels: bool = True
) -> Figure:
    """Points with names, and intervals where the table has ``NAME low`` and ``NAME high``."""
    kinds = [None] if groups is None else list(dict.fromkeys(table[groups]))
    with style():
        figure = Figure(figsize=(6.2, 4.4), layout="constrained")
        axes = figure.add_subplot()
        for place, kind in enumerate(kinds):
            own = table if groups is None else table[table[groups] == kind]
            reach: dict[str, Any] = {}
            for side, column in (("xerr", x), ("yerr", y)):
                if f"{column} low" in own:
                    value = own[column].to_numpy(float)
                    ends = (own[f"{column} low"].to_numpy(float), own[f"{column} high"].to_numpy(float))
                    reach[side] = [np.clip(value - ends[0], 0, None), np.clip(ends[1] - value, 0, None)]
            axes.errorbar(
                own[x],
                own[y],
                fmt="osD^v"[place % 5],
                color=COLOURS[place % len(COLOURS)],
                ecolor=RULE,
                elinewidth=1,
                label=None if kind is None else str(kind),
                **reach,
            )
            if labels:
                for name, px, py in zip(own[names], own[x], own[y], strict=True):
                    axes.annotate(str(name), (px, py), xytext=(5, 4), textcoords="offset points", fontsize=7)
        axes.set(xlabel=x, ylabel=y)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        if groups is not None:
            figure.legend(loc="outside lower center", ncols=min(4, len(kinds)))
    return figure
