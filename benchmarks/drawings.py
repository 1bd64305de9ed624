"""Pictures of records: drawn from the JSON files alone, as SVG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch

from records import Record, Result, percent

COLOURS = ("#4269d0", "#efb118", "#ff725c", "#3ca951", "#a463f2", "#6cc5b0")
GREY = "#6b7280"
SIZES = {1: 14, 4: 26, 32: 40, 256: 80}


def save(figure: Any, path: Path) -> None:
    """Write a figure without a date, so that the same numbers give the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


def _style() -> dict[str, Any]:
    return {
        "svg.hashsalt": "verax",
        "svg.fonttype": "path",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": GREY,
        "xtick.color": GREY,
        "figure.facecolor": "white",
    }


def speed(results: list[Result], path: Path) -> None:
    """How many times as fast as the best peer: a row for each method, a dot for each network and batch."""
    raced = [r for r in results if r.league == "methods" and r.ratio is not None]
    methods = list(dict.fromkeys(r.row for r in raced))[::-1]
    networks = list(dict.fromkeys(r.network for r in raced))
    with plt.rc_context(_style()):
        figure, axes = plt.subplots(figsize=(8, 0.27 * len(methods) + 1.2))
        axes.axvspan(0.01, 0.95, color="#fde8e8", zorder=0)
        for level, style in ((1, "-"), (10, ":")):
            axes.axvline(level, color=GREY, linewidth=1, linestyle=style, zorder=1)
        for number, network in enumerate(networks):
            own = [r for r in raced if r.network == network]
            axes.scatter(
                [r.ratio for r in own],
                [methods.index(r.row) + 0.12 * (number - len(networks) / 2) for r in own],
                s=[SIZES.get(r.batch, 30) for r in own],
                color=COLOURS[number % len(COLOURS)],
                alpha=0.8,
                linewidths=0,
                label=network,
                zorder=3,
            )
        axes.set_yticks(range(len(methods)), methods)
        axes.set_xscale("log")
        low, high = min(r.ratio for r in raced), max(r.ratio for r in raced)
        axes.set_xlim(low / 1.2, high * 1.3)
        ticks = [t for t in (0.25, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500) if low / 1.2 <= t <= high * 1.3]
        axes.set_xticks(ticks, [f"{t:g}×" for t in ticks])
        axes.minorticks_off()
        axes.set_ylim(-0.7, len(methods) - 0.3)
        axes.grid(axis="y", color="#eeeeee", zorder=0)
        axes.set_axisbelow(True)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("times as fast as the best peer (larger dots: larger batches)")
        axes.legend(loc="upper center", bbox_to_anchor=(0.45, 1.07), ncol=len(networks), frameon=False)
        save(figure, path)


def metrics(results: list[Result], path: Path) -> None:
    """Metrics beside Quantus."""
    rows = [r for r in results if r.ratio is not None][::-1]
    with plt.rc_context(_style()):
        figure, axes = plt.subplots(figsize=(7, 0.34 * len(rows) + 0.9))
        axes.barh([r.row for r in rows], [r.ratio for r in rows], color=COLOURS[0], height=0.6)
        for place, r in enumerate(rows):
            blank = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # over the dotted line
            axes.text(r.ratio * 1.06, place, f"{r.ratio:.1f}×", va="center", color=GREY, bbox=blank)
        axes.axvline(20, color=GREY, linestyle=":", linewidth=1)
        axes.set_xscale("log")
        axes.set_xlim(1, max(r.ratio for r in rows) * 1.8)
        axes.set_xticks([1, 5, 20, 100], ["1×", "5×", "20×", "100×"])
        axes.minorticks_off()
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("times as fast as Quantus (dotted: the target)")
        save(figure, path)


def growth(results: list[Result], path: Path) -> None:
    """Memory and time of eight times the work."""
    panels = [
        ("memory", [r for r in results if ": memory" in r.row]),
        ("time", [r for r in results if ": time" in r.row]),
    ]
    with plt.rc_context(_style()):
        figure, all_axes = plt.subplots(1, 2, figsize=(9, 2.9), sharey=True)
        for axes, (what, rows) in zip(all_axes, panels, strict=True):
            rows = rows[::-1]
            names = [r.row.replace(f": {what} of 8 times the", ", 8 ×") for r in rows]
            for shift, who, colour in ((0.18, "verax", COLOURS[0]), (-0.18, "captum", COLOURS[1])):
                values = [r.ours if who == "verax" else r.peers.get(who, 0) for r in rows]
                axes.barh([k + shift for k in range(len(rows))], values, height=0.34, color=colour, label=who)
            axes.set_yticks(range(len(rows)), names)
            axes.set_xscale("log")
            axes.set_xlim(0.7, None)
            axes.set_xticks([1, 2, 4, 8, 16], ["1×", "2×", "4×", "8×", "16×"])
            axes.minorticks_off()
            axes.axvline(1 if what == "memory" else 8, color=GREY, linestyle=":", linewidth=1)
            axes.tick_params(axis="y", length=0)
            axes.set_title(f"{what} of 8 times the work", fontsize=9)
        all_axes[1].legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
        save(figure, path)


def correctness(record: Record, path: Path) -> None:
    """Implementations on kinds of networks: right, refused, wrong."""
    kinds, table = record.details["kinds"], record.details["table"]
    rows = [(m, who, cells) for m, names in table.items() for who, cells in names.items()]
    codes = {"right": 0, "refuses": 1, "raises": 1, "differs": 2, "wrong": 3, "makes up": 3}
    values = [[codes[cells[kind]["does"]] for kind in kinds] for _, _, cells in rows]
    with plt.rc_context(_style()):
        figure, axes = plt.subplots(figsize=(8.6, 0.2 * len(rows) + 0.9))
        shades = ListedColormap(["#c7e9c8", "#e5e7eb", "#fde8b8", "#f7b4ae"])
        axes.imshow(values, cmap=shades, vmin=0, vmax=3, aspect="auto")
        for y, (_, _, cells) in enumerate(rows):
            for x, kind in enumerate(kinds):
                axes.text(x, y, _word(cells[kind]), ha="center", va="center", fontsize=7, color="#1f2937")
        axes.set_xticks(range(len(kinds)), kinds)
        axes.xaxis.tick_top()
        axes.set_yticks(range(len(rows)), [f"{method}   {who}" for method, who, _ in rows])
        for label, (_, who, _) in zip(axes.get_yticklabels(), rows, strict=True):
            label.set_fontweight("bold" if who == "verax" else "normal")
        for y in range(1, len(rows)):
            if rows[y][0] != rows[y - 1][0]:
                axes.axhline(y - 0.5, color="white", linewidth=3)
        axes.tick_params(length=0, colors="#1f2937")
        for spine in axes.spines.values():
            spine.set_visible(False)
        words = ("✓ right", "no map", "another map, documented", "wrong, or made up where no rule exists")
        patches = [Patch(color=shade, label=word) for shade, word in zip(shades.colors, words, strict=True)]
        above = 1 + 0.35 / figure.get_figheight()
        place = {"loc": "lower center", "bbox_to_anchor": (0.4, above)}
        axes.legend(handles=patches, ncols=4, frameon=False, fontsize=8, **place)
        save(figure, path)


def _word(cell: dict[str, Any]) -> str:
    """A verdict in a word or a number."""
    if cell["does"] in ("wrong", "differs"):
        return percent(cell["error"])
    return {"right": "✓", "makes up": "made up"}.get(cell["does"], cell["does"])


def journeys(record: Record, path: Path) -> None:
    """Whole commands: a bar for each, cut where a phase ends."""
    found = record.details["journeys"]
    words = list(dict.fromkeys(phase for journey in found.values() for phase in journey["phases"]))
    shades = plt.get_cmap("tab20").colors
    with plt.rc_context(_style()):
        figure, axes = plt.subplots(figsize=(8, 0.55 * len(found) + 1.8))
        for place, journey in enumerate(found.values()):
            start = 0.0
            for number, phase in enumerate(words):
                wide = journey["phases"].get(phase, 0.0)
                axes.barh(place, wide, left=start, color=shades[number], height=0.6)
                start += wide
            axes.text(start, place, f" {start:.0f} s", va="center", color=GREY)
        for number, phase in enumerate(words):
            axes.barh(0, 0, color=shades[number], label=phase)
        parts = [", ".join(journey.get("networks", {})) for journey in found.values()]
        names = [f"{name}\n({part})" if part else name for name, part in zip(found, parts, strict=True)]
        axes.set_yticks(range(len(found)), names)
        axes.invert_yaxis()
        axes.set_xlabel("seconds")
        axes.margins(x=0.08)
        figure.legend(loc="upper center", ncols=3, frameon=False, bbox_to_anchor=(0.5, -0.02), fontsize=8)
        save(figure, path)
