"""Figures: tables of a run in, matplotlib figures out."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from verax.files import write_atomically
from verax.metrics import NORMALISED
from verax.reports import (
    AVOID,
    BACKGROUND,
    FOCUS,
    INK,
    METHOD,
    MUTED,
    OTHER,
    PAPER,
    RULE,
    gallery,
    kind,
    png,
    settle,
    short,
    style,
    svg,
    task_labels,
    themed,
)
from verax.studies.leaderboards import PAIRS, SUCCESS

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from verax.studies.runs import Run

REGIONS = {"focus": FOCUS, "avoid": AVOID, "other": OTHER, "background": BACKGROUND}
LABELS = {
    "sound": "focus-share (sound protocol)",
    "published": "pafl (published protocol)",
    "sound:counterfactual": "focus-share (counterfactual truth)",
    "sound:shapley": "focus-share (Shapley truth)",
    "exact": "pearson (exact truth of every element)",
    "faithfulness": "deletion (faithfulness; lower is better)",
}
# scores from which chance can be told, and those that say where the mass of a map lies
CHANCE = [("sound", PAIRS["sound"][0]), ("sound", PAIRS["sound"][0] + NORMALISED)]
SHARES = [("sound", f"{region}-share") for region in REGIONS]
FOLDER = "figures"
_KINDS = "leaderboard|ranks|confusions|identification|success|shares|gallery|spread|atlas"
_OURS = re.compile(rf"\d\d-({_KINDS})-.*\.(svg|png)")
_WIDTH = 5.2
_ROW = 0.27
_HERO_METHODS = 11


def _canvas(rows: int, extra: float, width: float = _WIDTH) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, _ROW * rows + extra), layout="constrained")
    axes = figure.add_subplot()
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _method_axis(axes: Axes, methods: Sequence[str], width: int = 30) -> None:
    """One row for each method, best on top, references in italics."""
    axes.set_yticks(range(len(methods)), [short(name, width) for name in methods])
    axes.tick_params(axis="y", length=0)
    for text, name in zip(axes.get_yticklabels(), methods, strict=True):
        if kind(name) != "method":
            text.set(style="italic", color=MUTED)
    axes.set_ylim(len(methods) - 0.4, -0.6)


def _legend(figure: Figure, handles: Sequence[Line2D | Patch], columns: int, label: str) -> None:
    """A legend below everything; the axis label is its title, which is never cut off by long method names."""
    figure.legend(
        handles=handles, loc="outside lower center", ncols=columns, columnspacing=1.4,
        title=label, title_fontsize=10,
    )  # fmt: skip


_MARKERS: dict[str, dict[str, Any]] = {
    "method": {"marker": "o", "color": METHOD, "markersize": 5.5},
    "control": {"marker": "D", "color": MUTED, "markerfacecolor": "none", "markersize": 5.5},
    "oracle": {"marker": "*", "color": INK, "markerfacecolor": "none", "markersize": 10},
}


def _draw_board(
    axes: Axes, board: pd.DataFrame, chance: float | None = None, threshold: float | None = None
) -> list[Line2D]:
    """Dots with intervals; returns what belongs in the legend."""
    methods = [str(name) for name in board["method"]]
    _method_axis(axes, methods)
    axes.grid(axis="x", color=RULE, linewidth=0.8)
    axes.set_axisbelow(True)
    for place, row in enumerate(board.itertuples(index=False)):
        axes.axhline(place, color=RULE, linewidth=0.5, zorder=0.5)
        look = _MARKERS[kind(str(row.method))]
        if row.high > row.low:
            # Caps reach beyond the marker, so that an interval narrower than it can still be seen.
            caps: dict[str, Any] = {"marker": "|", "markersize": 11, "markeredgewidth": 1.3}
            axes.plot([row.low, row.high], [place, place], color=look["color"], linewidth=1.8, **caps)
        axes.plot([row.value], [place], linestyle="none", **look)
    axes.set_xlim(min(0.0, float(board["low"].min())) - 0.02, max(1.0, float(board["high"].max())) + 0.02)
    kinds = {kind(name) for name in methods}
    handles = [
        Line2D([], [], linestyle="none", label=word, **look)
        for word, look in _MARKERS.items()
        if word in kinds
    ]
    control = next((str(name) for name in board["control"] if name), "")
    lines: list[tuple[float | None, Any, str]] = [
        (
            float(board.loc[board["method"] == control, "value"].iloc[0]) if control else None,
            "--",
            "best control",
        ),
        (chance, ":", "chance"),
        (threshold, "-.", f"success ({threshold})"),
    ]
    for value, dashes, word in lines:
        if value is not None:
            axes.axvline(value, color=MUTED, linestyle=dashes, linewidth=1.2, zorder=1)
            handles.append(Line2D([], [], color=MUTED, linestyle=dashes, linewidth=1.2, label=word))
    return handles


def leaderboard(
    board: pd.DataFrame, label: str, *, chance: float | None = None, threshold: float | None = None
) -> Figure:
    """Means with 95 % intervals, one row for each method, controls and oracle marked.

    Args:
        board: a leaderboard (`verax.studies.leaderboards.leaderboard`).
        label: of the axis.
        chance: the score of a constant map.
        threshold: from which a bucket counts as a success.
    """
    with style():
        figure, axes = _canvas(len(board), 1.15)
        handles = _draw_board(axes, board, chance, threshold)
        _legend(figure, handles, 3, f"{label}, mean with 95 % interval")
    return figure


def chance_level(scores: pd.DataFrame, tasks: Sequence[str]) -> float | None:
    """The mean focus-share of a constant map over the buckets of `tasks`; None where the run cannot tell.

    A normalised score is (score - chance) / (1 - chance), which is solved for chance.
    """
    keys = ["network", "seed", "method", "group", "sample"]
    found = []
    for task in sorted(tasks):  # one after the other: a task may have millions of rows
        here = scores[scores["task"] == task]
        raw, scaled = (
            here.loc[(here["protocol"] == protocol) & (here["metric"] == metric), [*keys, "value"]]
            for protocol, metric in CHANCE
        )
        both = raw.merge(scaled, on=keys, suffixes=("", "_normalised"))
        both = both[both["value_normalised"] < 0.9]  # near the oracle the division would magnify rounding
        level = (both["value"] - both["value_normalised"]) / (1 - both["value_normalised"])
        found.append(level.groupby(both["group"]).mean())
    means = pd.concat(found) if found else pd.Series(dtype=float)
    return None if means.empty else float(means.mean())


def share_means(scores: pd.DataFrame, tasks: Sequence[str]) -> pd.DataFrame:
    """The mean share of each region, aggregated as on the leaderboard: index method, one column a region.

    Only samples with something to focus on count; where there is nothing to avoid, that share is 0.
    """
    names = {f"{region}-share": region for region in REGIONS}
    keys = ["group", "network", "seed"]
    parts = []
    for task in tasks:  # one method of one task after the other: they may have millions of rows
        here = scores[(scores["task"] == task) & (scores["protocol"] == "sound")]
        for method, part in here[here["metric"].isin(list(names))].groupby("method", observed=True):
            wide = part.pivot(index=[*keys, "sample"], columns="metric", values="value")
            wide = wide.set_axis(wide.columns.astype(str), axis=1)
            wide = wide.reindex(columns=list(names)).rename(columns=names)
            runs = wide.dropna(subset="focus").fillna(0.0).groupby(keys, observed=True).mean()
            parts.append(runs.assign(task=str(task), method=str(method)))
    buckets = pd.concat(parts).groupby(["task", "group", "method"]).mean().unstack("method")
    return buckets.dropna().mean().unstack(0).reindex(columns=list(REGIONS))


def shares(means: pd.DataFrame, board: pd.DataFrame) -> Figure:
    """Where the mass of each method's maps lies, as stacked bars in the order of the leaderboard.

    Args:
        means: from `share_means`.
        board: gives the order, and the interval drawn on the edge of the focus.
    """
    rows = board[board["method"].isin(means.index)]
    methods = [str(name) for name in rows["method"]]
    with style():
        figure, axes = _canvas(len(methods), 1.1)
        left = np.zeros(len(methods))
        for region, colour in REGIONS.items():
            width = means.loc[methods, region].to_numpy(dtype=float)
            hatch = "////" if region == "avoid" else None
            axes.barh(
                range(len(methods)),
                width,
                0.74,
                left,
                color=colour,
                edgecolor=PAPER,
                linewidth=0.6,
                hatch=hatch,
            )
            left += width
        for place, row in enumerate(rows.itertuples(index=False)):
            axes.plot([row.low, row.high], [place, place], color=INK, linewidth=2.4, solid_capstyle="butt")
        _method_axis(axes, methods)
        axes.set_xlim(0, 1)
        handles = [
            Patch(facecolor=c, edgecolor=PAPER, hatch="////" if r == "avoid" else None, label=r)
            for r, c in REGIONS.items()
        ]
        _legend(figure, handles, 4, "share of the map's mass (line: 95 % interval of the focus)")
    return figure


def _grid(axes: Axes, values: NDArray[np.float64], shade: NDArray[np.float64], title: str) -> None:
    """Cells from black (0) to white (1), each with its number; a dash where nothing is known."""
    for (row, column), value in np.ndenumerate(values):
        known = bool(np.isfinite(value))
        grey = float(shade[row, column])
        face = str(grey) if known else "none"
        cell = Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=face, edgecolor=MUTED, linewidth=0.6)
        axes.add_patch(cell)
        ink = MUTED if not known else "#ffffff" if grey < 0.46 else "#000000"
        text = (f"{value:.0f}" if value in (0, 1) else f"{value:.2f}") if known else "–"
        axes.text(column, row, text, ha="center", va="center", fontsize=8.5, color=ink)
    axes.set_title(title, fontsize=10, loc="left", color=INK)


def success(
    table: pd.DataFrame, methods: Sequence[str], tasks: Sequence[str], missing: set[tuple[str, str]]
) -> Figure:
    """Success above and failure below, as in Figure 7 of the SMERF paper, one row for each method.

    Args:
        table: from `verax.studies.leaderboards.success_map`.
        methods: the rows.
        tasks: the columns.
        missing: pairs of task and method that have no scores.
    """
    grids = {}
    for name in ("success", "failure"):
        wide = table.pivot(index="method", columns="task", values=name)
        grids[name] = wide.reindex(index=list(methods), columns=list(tasks)).to_numpy(dtype=float, copy=True)
        for row, method in enumerate(methods):
            for column, task in enumerate(tasks):
                if (task, method) in missing:
                    grids[name][row, column] = np.nan
    black = np.where(grids["failure"] > SUCCESS, 0.0, 1.0)
    size = (max(4.2, 2.0 + 0.46 * len(tasks)), 2 * (_ROW * len(methods) + 1.1))
    with style():
        figure = Figure(figsize=size, layout="constrained")
        top, bottom = figure.subplots(2, 1)
        _grid(top, grids["success"], grids["success"], "Success: fraction of buckets above 0.5")
        _grid(bottom, grids["failure"], black, "Failure: black where more than half fail")
        for axes in (top, bottom):
            _method_axis(axes, methods)
            axes.set_xlim(-0.5, len(tasks) - 0.5)
            axes.set_ylim(len(methods) - 0.5, -0.5)
            axes.set_xticks(
                range(len(tasks)), task_labels(tasks), rotation=40, ha="right", rotation_mode="anchor"
            )
            axes.tick_params(axis="x", length=0)
            for side in axes.spines.values():
                side.set_visible(False)
    return figure


def _hero_scene(run: Run) -> tuple[gallery.Panel, gallery.Row] | None:
    """The busiest bucket with focus and avoid of the task to show: complex-cr1 where there is one."""
    panels = [panel for panel in gallery.panels(run) if panel.rows]
    if not panels:
        return None
    order = ["complex-cr1", "complex"]
    panel = min(panels, key=lambda p: next((i for i, word in enumerate(order) if word in p.task), len(order)))
    return panel, panel.rows[-1]


def hero(
    run: Run, wanted: Sequence[str] = ("integrated-gradients", "gradient", "grad-cam", "input")
) -> Figure:
    """The picture for a front page: one scene with four maps, and the leaderboard of its family.

    Args:
        run: a finished study.
        wanted: methods to show; where some are missing, others take their place.
    """
    scene = _hero_scene(run)
    families = run.families
    family = families[scene[0].task] if scene else list(families.values())[-1]
    protocol = run.main
    board = run.leaderboard(protocol, family=family)
    board = board[board["rank"].isna() | (board["rank"] <= _HERO_METHODS)].reset_index(drop=True)
    chance = chance_level(run.some(CHANCE), [task for task, name in families.items() if name == family])
    with style():
        figure = Figure(figsize=(12, 5), dpi=100)
        axes = figure.add_axes((0.715, 0.2, 0.27, 0.66))
        handles = _draw_board(axes, board, chance if protocol == "sound" else None)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.set_xlabel(f"{LABELS[protocol]}, mean with 95 % interval", fontsize=9, color=MUTED, x=0.42)
        figure.legend(
            handles=handles, loc="lower center", bbox_to_anchor=(0.79, 0.02), ncols=5, fontsize=8.5,
            handletextpad=0.4, columnspacing=1.1,
        )  # fmt: skip
        figure.text(
            0.6,
            0.925,
            f"All {short(family, 20)} tasks: which method tells the truth?",
            fontsize=12,
            weight="bold",
        )
        if scene:
            _draw_scene(figure, *scene, wanted)
    return figure


def _draw_scene(figure: Figure, panel: gallery.Panel, row: gallery.Row, wanted: Sequence[str]) -> None:
    there = {tile.method: tile for tile in row.tiles if tile.levels is not None}
    names = [name for name in wanted if name in there]
    names += [name for name in there if name not in names and kind(name) == "method"]
    figure.text(
        0.012, 0.925, "One scene: what the network uses, and what methods say", fontsize=12, weight="bold"
    )
    title = f"{short(panel.task, 26)}: {short(row.scene, 26)}"
    _picture(figure, (0.012, 0.2, 0.265, 0.636), row.truth, title)
    handles = [
        Line2D([], [], color=FOCUS, linewidth=2.5, label="what the network uses (focus)"),
        Line2D([], [], color=AVOID, linewidth=2.5, linestyle=(0, (2, 1)), label="what it ignores (avoid)"),
    ]
    figure.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(0.004, 0.185), fontsize=8.5, handlelength=2
    )
    for place, name in enumerate(names[:4]):
        left, bottom = 0.289 + 0.135 * (place % 2), 0.552 if place < 2 else 0.2
        title = f"{short(name, 20)}{' (control)' if kind(name) == 'control' else ''}: {there[name].score}"
        _picture(figure, (left, bottom, 0.1183, 0.284), there[name].picture, title)
    note = "numbers: share of the map's mass on the focus\ngreen: for the prediction, purple: against it"
    figure.text(0.289, 0.125, note, fontsize=8.5, va="center", color=MUTED, linespacing=1.5)


def _picture(figure: Figure, box: tuple[float, float, float, float], pixels: Any, title: str) -> None:
    axes = figure.add_axes(box)
    axes.imshow(pixels, interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    for side in axes.spines.values():
        side.set(color=RULE)
    axes.set_title(title, fontsize=8.5, pad=4)


def uri(kind: str, data: bytes) -> str:
    """A picture inside a page."""
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


@dataclass
class Album:
    """Writes figures as numbered files."""

    folder: Path
    written: list[str] = field(default_factory=list)

    def add(self, title: str, figure: Figure, alt: str = "", dpi: int = 150) -> dict[str, str]:
        """Write a figure as SVG and PNG; what the page needs to show it on light and dark paper."""
        stem = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:60]
        stem = f"{len(self.written) // 2 + 1:02d}-{stem}"
        settle(figure)
        picture = svg(figure)
        for name, data in ((f"{stem}.svg", picture), (f"{stem}.png", png(figure, dpi))):
            write_atomically(self.folder / name, data)
            self.written.append(name)
        light, dark = (uri("svg+xml", themed(picture, dark)) for dark in (False, True))
        return {"light": light, "dark": dark, "alt": alt, "file": f"{FOLDER}/{stem}.svg"}

    def tidy(self) -> None:
        """Remove what an earlier report left behind: its numbers may stand for other figures now."""
        for path in self.folder.iterdir():
            if _OURS.fullmatch(path.name) and path.name not in self.written:
                path.unlink()
