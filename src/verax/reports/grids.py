"""Grids of the page: methods down, tasks or buckets across, stronger colour for more, or for better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from verax.reports import task_labels
from verax.reports.charts import ROW, Chart, Spec, layer, listed, methods_axis, tall, tip
from verax.studies.leaderboards import SUCCESS

_FEW, _STEP = 2, 84  # columns that get a width of their own, in pixels; two fit a phone
_WORDS = {
    "success": ("focus", f"share of buckets above {SUCCESS}"),
    "failure": ("avoid", "share of buckets with more on what must be avoided than on the focus"),
}


def heat(
    name: str,
    title: str,
    table: Sequence[Mapping[str, Any]],
    *,
    across: str,
    columns: Sequence[str],
    methods: Sequence[str],
    colour: str = "focus",
    chosen: tuple[str, Sequence[str]] | None = None,
    higher: bool = True,
) -> Chart:
    """Numbers from 0 to 1; one row for each method.

    Args:
        name: of the chart.
        title: of the chart.
        table: rows with method, value, low, high and the columns.
        across: the field of the columns.
        columns: their order.
        methods: the order of the rows.
        colour: "focus" or "avoid".
        chosen: a field, and its values, of which the page shows one at a time.
        higher: whether large numbers have the strong colour, or small ones.
    """
    rows, y = listed(table), methods_axis(methods)
    axis = {
        "labelAngle": 0 if len(columns) == 1 else -40,
        "labelLimit": 130,
        "title": None,
        "ticks": False,
        "domain": False,
    }
    axis["labelOverlap"] = False  # they are turned, so that neighbours stand clear of each other
    x: Spec = {"field": across, "type": "nominal", "sort": list(columns), "axis": axis}
    value: Spec = {"field": "value", "type": "quantitative"}
    ends = [0.03, 1] if higher else [1, 0.03]
    strength = {**value, "scale": {"domain": [0, 1], "range": ends, "clamp": True}, "legend": None}
    face = f"var(--region-{colour})"
    cells = layer(
        {"type": "rect", "fill": face, "stroke": "var(--rule)", "strokeWidth": 0.6},
        x=x,
        y=y,
        fillOpacity=strength,
        tooltip=tip("method", across, value="value", low="from", high="to"),
    )
    dark = "datum.value > 0.55" if higher else "datum.value < 0.45"
    strong = {"test": dark, "value": f"var(--on-{colour})"}
    room = {"test": "width > 25 * domain('x').length", "value": 1}  # else numbers would run into another
    numbers = layer(
        {"type": "text", "fontSize": 10, "aria": False},
        x=x,
        y=y,
        text={**value, "format": ".2f"},
        color={"condition": strong, "value": "var(--ink)"},
        opacity={"condition": room, "value": 0},
    )
    spec: Spec = {"height": {"step": ROW + 2}, "layer": [cells, numbers]}
    if len(columns) <= _FEW:  # as wide as the page, they would be bars
        spec |= {"width": {"step": _STEP}, "autosize": {"type": "pad"}}
    if chosen:
        spec["params"] = [{"name": "chosen", "value": chosen[1][0]}]
        # the field is a constant of this module; its values come as data
        spec["transform"] = [{"filter": f"datum['{chosen[0]}'] == chosen"}]
    height = tall(rows, 110) + 2 * len(methods)
    return Chart(name, title, f"{title}, as a grid of numbers.", rows, spec, height)


def success(
    name: str,
    title: str,
    table: pd.DataFrame,
    methods: Sequence[str],
    tasks: Sequence[str],
    missing: set[tuple[str, str]],
) -> list[Chart]:
    """Success and failure of every method on every task (Figure 7 of the SMERF paper)."""
    labels = dict(zip(tasks, task_labels(tasks), strict=True))
    made = []
    for what, (colour, words) in _WORDS.items():
        rows = [
            {
                "method": str(row["method"]),
                "task": labels[str(row["task"])],
                "value": row[what],
                "low": row[f"{what}_low"],
                "high": row[f"{what}_high"],
            }
            for row in table.to_dict("records")
            if str(row["task"]) in labels and (str(row["task"]), str(row["method"])) not in missing
        ]
        made.append(
            heat(
                f"{name}-{what}",
                f"{what.capitalize()}, {title}: {words}",
                rows,
                across="task",
                columns=list(labels.values()),
                methods=methods,
                colour=colour,
            )
        )
    return made


def profiles(
    name: str, title: str, buckets: pd.DataFrame, methods: Sequence[str], higher: bool = True
) -> Chart:
    """The mean of every bucket, one task at a time, with what its scenes hold."""
    columns = ["task", "scene", "group", "method", "value", "low", "high"]
    plain = buckets[columns].astype({"task": str, "scene": str, "method": str, "group": int})
    tasks = list(dict.fromkeys(plain["task"]))
    scenes = list(dict.fromkeys(plain.sort_values("group", kind="stable")["scene"]))
    rows: list[dict[str, Any]] = [{str(k): v for k, v in row.items()} for row in plain.to_dict("records")]
    title += "" if higher else " (lower is better, and dark)"
    chosen = ("task", tasks)
    return heat(
        name, title, rows, across="scene", columns=scenes, methods=methods, chosen=chosen, higher=higher
    )
