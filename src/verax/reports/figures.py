"""Figures: tables of a run in, matplotlib figures out.

Nothing here touches pyplot, so drawing keeps no state between figures and needs no display. Colours are
told apart by colour-blind readers, and what a colour says is also said by a shape, a hatch or a word.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from verax.metrics import NORMALISED
from verax.reports import gallery
from verax.studies.leaderboards import CONTROLS, ORACLE, PAIRS, SUCCESS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from verax.studies.runs import Run

PAPER, INK, MUTED, RULE = "#fffffe", "#1c2128", "#5c6570", "#d5dae0"
METHOD, BACKGROUND = "#1f5fae", "#c5cbd3"
FOCUS, AVOID, OTHER = gallery.FOCUS, gallery.AVOID, "#a778c4"
_DARK = {
    PAPER: "none",
    INK: "#e8ebef",
    MUTED: "#a3adb8",
    RULE: "#3a424c",
    METHOD: "#7db8ff",
    BACKGROUND: "#56606c",
}
"""What the colours become on a dark page; the rest is readable on both."""

REGIONS = {"focus": FOCUS, "avoid": AVOID, "other": OTHER, "background": BACKGROUND}
LABELS = {"sound": "focus-share (sound protocol)", "published": "pafl (published protocol)"}
_WIDTH = 5.8
_ROW = 0.27
_STYLE = {
    "font.size": 10,
    "text.parse_math": False,  # a label may hold a dollar sign
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": RULE,
    "xtick.color": MUTED,
    "ytick.color": RULE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": INK,
    "figure.facecolor": PAPER,
    "axes.facecolor": "none",
    "legend.frameon": False,
    "legend.fontsize": 9,
    "hatch.color": PAPER,
    "hatch.linewidth": 0.8,
    "svg.fonttype": "path",
    "svg.hashsalt": "verax",  # the same run gives the same file
}


@contextmanager
def style() -> Iterator[None]:
    """The look of all figures; restores what was set before."""
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
        yield


def svg(figure: Figure) -> bytes:
    """The figure as a vector picture."""
    buffer = io.BytesIO()
    with style():
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": "verax"})
    return buffer.getvalue()


def png(figure: Figure, dpi: int = 150) -> bytes:
    """The figure as pixels."""
    buffer = io.BytesIO()
    with style():
        figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": "verax"})
    return buffer.getvalue()


def themed(picture: bytes, dark: bool) -> bytes:
    """A vector picture for a light or a dark page, without paper of its own."""
    text = picture.decode()
    for colour, replacement in (_DARK if dark else {PAPER: "none"}).items():
        text = text.replace(colour, replacement)
    return text.encode()


def kind(method: str) -> str:
    """What a row stands for: "method", "control" or "oracle"."""
    return "oracle" if method == ORACLE else "control" if method in CONTROLS else "method"


def short(label: str, width: int = 30) -> str:
    """A label that fits beside an axis."""
    plain = " ".join("".join(c if c.isprintable() else " " for c in label).split())
    return plain if len(plain) <= width else plain[: width - 1] + "…"


def task_labels(tasks: Sequence[str]) -> list[str]:
    """Task names without their common folder."""
    folders = {name.partition("/")[0] for name in tasks if "/" in name}
    shared = len(folders) == 1 and all("/" in name for name in tasks)
    return [short(name.partition("/")[2] if shared else name, 24) for name in tasks]


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


_MARKERS: dict[str, dict[str, Any]] = {
    "method": {"marker": "o", "color": METHOD, "markersize": 7},
    "control": {"marker": "D", "color": MUTED, "markerfacecolor": "none", "markersize": 6},
    "oracle": {"marker": "*", "color": INK, "markerfacecolor": "none", "markersize": 11},
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
        axes.plot(
            [row.low, row.high], [place, place], color=look["color"], linewidth=2.2, solid_capstyle="butt"
        )
        axes.plot([row.value], [place], linestyle="none", **look)
    axes.set_xlim(min(0.0, float(board["low"].min())) - 0.02, max(1.0, float(board["high"].max())) + 0.02)
    kinds = {kind(name) for name in methods}
    handles = [
        Line2D([], [], linestyle="none", label=word, **look)
        for word, look in _MARKERS.items()
        if word in kinds
    ]
    control = next((str(name) for name in board["control"] if name), "")
    lines: list[tuple[float | None, str, str]] = [
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
        axes.set_xlabel(f"{label}, mean with 95 % interval")
        figure.legend(
            handles=handles, loc="outside lower center", ncols=3, handletextpad=0.5, columnspacing=1.4
        )
    return figure


def chance_level(scores: pd.DataFrame, tasks: Sequence[str]) -> float | None:
    """The mean focus-share of a constant map over the buckets of `tasks`; None where the run cannot tell.

    A normalised score is (score - chance) / (1 - chance), which is solved for chance.
    """
    name = PAIRS["sound"][0]
    here = scores[scores["task"].isin(list(tasks)) & (scores["protocol"] == "sound")]
    keys = ["task", "network", "seed", "method", "group", "sample"]
    parts = [here[here["metric"] == metric].set_index(keys)["value"] for metric in (name, name + NORMALISED)]
    both = pd.concat(parts, axis=1, keys=["score", "normalised"]).dropna()
    both = both[both["normalised"] < 0.9]  # near the oracle the division would magnify rounding
    if both.empty:
        return None
    level = (both["score"] - both["normalised"]) / (1 - both["normalised"])
    return float(level.groupby(["task", "group"], observed=True).mean().mean())


def share_means(scores: pd.DataFrame, tasks: Sequence[str]) -> pd.DataFrame:
    """The mean share of each region, aggregated as on the leaderboard: index method, one column a region.

    Only samples with something to focus on count; where there is nothing to avoid, that share is 0.
    """
    names = {f"{region}-share": region for region in REGIONS}
    chosen = (
        scores["task"].isin(list(tasks))
        & (scores["protocol"] == "sound")
        & scores["metric"].isin(list(names))
    )
    keys = ["task", "group", "method", "network", "seed"]
    table = scores[chosen].astype({"metric": str, "method": str, "task": str, "network": str})
    wide = table.pivot(index=[*keys, "sample"], columns="metric", values="value").reindex(columns=list(names))
    wide = wide.rename(columns=names).dropna(subset="focus").fillna(0.0)
    buckets = wide.groupby(keys).mean().groupby(["task", "group", "method"]).mean().unstack("method")
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
        axes.set_xlabel("share of the map's mass; the line is the 95 % interval of the focus")
        handles = [
            Patch(facecolor=c, edgecolor=PAPER, hatch="////" if r == "avoid" else None, label=r)
            for r, c in REGIONS.items()
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=4, columnspacing=1.4)
    return figure


def _grid(axes: Axes, values: np.ndarray[Any, Any], shade: np.ndarray[Any, Any], title: str) -> None:
    """Cells from black (0) to white (1), each with its number; hatched where nothing is known."""
    for (row, column), value in np.ndenumerate(values):
        known = np.isfinite(value)
        grey = float(shade[row, column]) if known else 0.85
        face = str(grey) if known else "none"
        axes.add_patch(
            Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=face, edgecolor=MUTED, linewidth=0.6)
        )
        ink = MUTED if not known else "#ffffff" if grey < 0.55 else "#000000"
        text = f"{value:.2f}" if known else "–"
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
    grids = {
        name: table.pivot(index="method", columns="task", values=name)
        .reindex(index=list(methods), columns=list(tasks))
        .to_numpy(dtype=float, copy=True)
        for name in ("success", "failure")
    }
    for row, method in enumerate(methods):
        for column, task in enumerate(tasks):
            if (task, method) in missing:
                grids["success"][row, column] = grids["failure"][row, column] = np.nan
    height = 2 * (_ROW * len(methods) + 0.35) + 1.4
    width = max(4.2, 2.2 + 0.52 * len(tasks))
    with style():
        figure = Figure(figsize=(width, height), layout="constrained")
        top, bottom = figure.subplots(2, 1)
        _grid(top, grids["success"], grids["success"], "Success: fraction of buckets")
        black = np.where(grids["failure"] > SUCCESS, 0.0, 1.0)
        _grid(bottom, grids["failure"], black, "Failure: black where more than half of the buckets fail")
        for axes in (top, bottom):
            _method_axis(axes, methods)
            axes.set_xlim(-0.5, len(tasks) - 0.5)
            axes.set_ylim(len(methods) - 0.5, -0.5)
            axes.set_xticks([])
            for side in axes.spines.values():
                side.set_visible(False)
        bottom.set_xticks(
            range(len(tasks)), task_labels(tasks), rotation=40, ha="right", rotation_mode="anchor"
        )
        bottom.tick_params(axis="x", length=0)
    return figure


def _hero_scene(run: Run) -> tuple[gallery.Panel, gallery.Row] | None:
    """The busiest bucket with focus and avoid of the task to show: complex-cr1 where there is one."""
    panels = gallery.panels(run)
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
    families: Mapping[str, str] = run.families
    family = families[scene[0].task] if scene else next(reversed(families.values()))
    protocol = next(name for name in PAIRS if name in set(run.scores["protocol"].astype(str)))
    board = run.leaderboard(protocol, family=family)
    chance = chance_level(run.scores, [task for task, name in families.items() if name == family])
    with style():
        figure = Figure(figsize=(12, 5), dpi=100)
        axes = figure.add_axes((0.69, 0.2, 0.295, 0.66))
        handles = _draw_board(axes, board, chance if protocol == "sound" else None)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.set_xlabel(f"{LABELS[protocol]}, mean with 95 % interval", fontsize=9, color=MUTED)
        axes.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.36, -0.13), ncols=5, fontsize=8,
                    handletextpad=0.3, columnspacing=0.9)  # fmt: skip
        figure.text(0.575, 0.925, f"All {family} tasks: who tells the truth?", fontsize=13, weight="bold")
        if scene:
            _draw_scene(figure, *scene, wanted)
    return figure


def _draw_scene(figure: Figure, panel: gallery.Panel, row: gallery.Row, wanted: Sequence[str]) -> None:
    there = [tile for tile in row.tiles if tile.picture is not None]
    first = [tile for name in wanted for tile in there if tile.method == name]
    rest = [tile for tile in there if tile not in first and kind(tile.method) == "method"]
    figure.text(0.012, 0.925, "One scene, four explanations", fontsize=13, weight="bold")
    _picture(
        figure, (0.012, 0.2, 0.265, 0.636), row.truth, f"{short(panel.task, 26)}: {short(row.scene, 26)}"
    )
    handles = [
        Line2D([], [], color=FOCUS, linewidth=2.5, label="what the network uses (focus)"),
        Line2D([], [], color=AVOID, linewidth=2.5, linestyle=(0, (2, 1)), label="what it ignores (avoid)"),
    ]
    figure.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(0.004, 0.185), fontsize=8.5, handlelength=2
    )
    for place, tile in enumerate([*first, *rest][:4]):
        assert tile.picture is not None
        left, bottom = 0.292 + 0.127 * (place % 2), 0.545 if place < 2 else 0.2
        _picture(figure, (left, bottom, 0.12, 0.288), tile.picture, f"{short(tile.method, 22)}  {tile.score}")
    figure.text(0.292, 0.13, "green: for the prediction, purple: against it;\nnumbers: share of the map's mass on the focus",
                fontsize=8.5, va="center", color=MUTED)  # fmt: skip


def _picture(figure: Figure, box: tuple[float, float, float, float], pixels: Any, title: str) -> None:
    axes = figure.add_axes(box)
    axes.imshow(pixels, interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    for side in axes.spines.values():
        side.set(color=RULE)
    axes.set_title(title, fontsize=8.5, pad=4)
