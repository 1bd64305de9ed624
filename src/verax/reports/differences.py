"""The page of a comparison: how runs differ from the first of them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from verax.reports import INK, METHOD, MUTED, RULE, kind, leaflets, short, style, task_labels
from verax.version import __version__

if TYPE_CHECKING:
    from verax.studies.differences import Differences

NAME = "comparison.html"
_ROW = 0.27
FOOTER = (
    "Means are over buckets; intervals (95 %) are those of a paired bootstrap over seeds and pictures. "
    "p: Wilcoxon's signed-rank test over pictures, whose differences are averaged over networks first; Holm: "
    "corrected for the number of tests. Controls and the oracle never look at a network and are not tested."
)


def figure(table: pd.DataFrame, first: str, second: str, higher: bool) -> Figure:
    """Differences with their intervals, one row for each method: filled where the difference stands."""
    rows = table[[kind(str(name)) == "method" for name in table["method"]]]
    rows = rows.sort_values("difference", ascending=False, kind="stable")
    with style():
        drawn = Figure(figsize=(6.2, _ROW * len(rows) + 1.25), layout="constrained")
        axes = drawn.add_subplot()
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.set_yticks(range(len(rows)), [short(str(name)) for name in rows["method"]])
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.grid(axis="x", color=RULE, linewidth=0.8)
        axes.axvline(0, color=INK, linewidth=1.2)
        for place, row in enumerate(rows.itertuples(index=False)):
            colour = METHOD if row.differ else MUTED
            if row.high > row.low:
                axes.plot(
                    [row.low, row.high], [place, place], color=colour, linewidth=1.8,
                    marker="|", markersize=10, markeredgewidth=1.3,
                )  # fmt: skip
            face = colour if row.differ else "none"
            axes.plot(
                [row.difference], [place], marker="o", markersize=5.5, color=colour, markerfacecolor=face
            )
        reach = max((abs(float(v)) for name in ("low", "high", "difference") for v in rows[name] if v == v),
                    default=0.0) or 1.0  # fmt: skip
        axes.set_xlim(-1.08 * reach, 1.08 * reach)
        left, right = (first, second) if higher else (second, first)
        axes.set_xlabel(f"← {short(left, 28)} better      {short(right, 28)} better →")
        looks = (("stands (Holm, 5 %)", METHOD, METHOD), ("does not stand", MUTED, "none"))
        handles = [
            Line2D([], [], linestyle="none", marker="o", markersize=5.5, color=c, markerfacecolor=f, label=w)
            for w, c, f in looks
        ]
        drawn.legend(handles=handles, loc="outside lower center", ncols=2)
    return drawn


def p_words(value: float) -> str:
    """A p-value as people write it."""
    if not math.isfinite(value):
        return ""
    return "< 0.0001" if value < 0.0001 else f"{value:.4f}"


def signed(value: float) -> str:
    """A difference with its sign; 0 has none."""
    return f"{value:+.3f}" if round(value, 3) else "0.000"


def _sort(value: float) -> str:
    return f"{value:.12g}" if math.isfinite(value) else ""


def _interval(low: float, high: float) -> str:
    return f"[{signed(low)}, {signed(high)}]" if math.isfinite(low) and math.isfinite(high) else ""


def verdict(row: Any) -> str:
    """What a row of the table says: "better", "worse", "no difference", or nothing for references."""
    if not math.isfinite(row["holm"]):
        return ""
    return ("better" if row["better"] else "worse") if row["differ"] else "no difference shown"


def _row(row: dict[str, Any]) -> dict[str, Any]:
    words = verdict(row)
    return {
        "method": row["method"],
        "kind": kind(str(row["method"])),
        **{name: f"{row[name]:.3f}" for name in ("first", "second")},
        "difference": signed(row["difference"]),
        "interval": _interval(row["low"], row["high"]),
        **{name: p_words(row[name]) for name in ("p", "holm")},
        **{f"{name}_sort": _sort(row[name]) for name in ("first", "second", "difference", "p", "holm")},
        "verdict": words,
        "class": words if words in ("better", "worse") else "",
        **{name: row[name] for name in ("wins", "losses", "pictures")},
    }


def _grid(tasks: pd.DataFrame, methods: list[str], names: list[str]) -> list[dict[str, Any]]:
    known = {(row["method"], row["task"]): row for row in tasks.to_dict("records")}
    empty = {"difference": math.nan, "low": math.nan, "high": math.nan}
    rows = []
    for method in methods:
        cells = []
        for name in names:
            row = known.get((method, name), empty)
            value = signed(row["difference"]) if math.isfinite(row["difference"]) else "–"
            interval = _interval(row["low"], row["high"])
            cells.append({"value": value, "sort": _sort(row["difference"]), "interval": interval})
        rows.append({"method": method, "kind": kind(method), "cells": cells})
    return rows


def page(differences: Differences) -> str:
    """The page as text."""
    base = differences.runs[0]["label"]
    parts = []
    for run, table in differences.table.groupby("run", sort=False):
        tasks = differences.tasks[differences.tasks["run"] == run]
        names = [str(name) for name in tasks["task"].unique()]
        methods = [str(name) for name in table["method"]]
        drawn = figure(table, base, str(run), differences.higher_is_better)
        alt = (
            f"Differences of {differences.metric} between {run} and {base}; the table below has the numbers."
        )
        parts.append(
            {
                "run": run,
                "figure": leaflets.picture(drawn, alt),
                "rows": [_row(row) for row in table.to_dict("records")],
                "tasks": task_labels(names),
                "grid": _grid(tasks, methods, names),
            }
        )
    better = "higher" if differences.higher_is_better else "lower"
    return leaflets.page(
        "differences.html.j2",
        title=f"{len(differences.runs)} runs compared",
        eyebrow=f"{differences.metric}, {differences.protocol} protocol, {better} is better",
        version=__version__,
        verdict=differences.sentence(),
        notes=differences.notes,
        base=base,
        parts=parts,
        runs=differences.runs,
        footer=FOOTER,
    )


def write(differences: Differences, path: Path) -> Path:
    """Write the page; a folder gets a comparison.html."""
    return leaflets.write(path, page(differences), NAME)
