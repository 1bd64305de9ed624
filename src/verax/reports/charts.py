"""Charts of the page: tables in, Vega-Lite specifications out, which the page draws.

Colours are the page's own variables, so that a chart follows its theme; what a colour says is also said by
a shape, a place or a word. Names go into data and never into expressions. The same figures for papers are
in `verax.reports.figures`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from verax.reports import kind
from verax.reports.resampling import difference
from verax.studies.leaderboards import UNRANKED

if TYPE_CHECKING:
    from verax.studies.comparisons import Ranking

Spec = dict[str, Any]
Rows = list[dict[str, Any]]

ROW = 20
"""Height of a row of a chart, in pixels."""

_REFERENCE = " || ".join(f"datum.value == '{name}'" for name in sorted(UNRANKED))
_METHODS: Spec = {
    "labelLimit": 170,
    "labelPadding": 8,  # a dot at the left end would cover the end of a name
    "labelFontStyle": {"condition": {"test": _REFERENCE, "value": "italic"}, "value": "normal"},
    "labelColor": {"condition": {"test": _REFERENCE, "value": "var(--muted)"}, "value": "var(--ink)"},
    "title": None,
    "ticks": False,
    "domain": False,
}
_AXIS: Spec = {"titleAnchor": "end", "titleLimit": 420}
"""The title may reach over the names of methods, never beyond the chart."""
_STAR = (
    "M0.00,-1.00L0.25,-0.34L0.95,-0.31L0.40,0.13L0.59,0.81L0.00,0.42L-0.59,"
    "0.81L-0.40,0.13L-0.95,-0.31L-0.25,-0.34Z"
)
_SHAPES = {"method": "circle", "control": "diamond", "oracle": _STAR}
"""The same signs as in tables."""
_COLOURS = {"method": "var(--accent)", "control": "var(--muted)", "oracle": "var(--ink)"}
_REGIONS = {
    "focus": "var(--region-focus)",
    "avoid": "var(--region-avoid)",
    "other": "var(--region-other)",
    "background": "var(--region-background)",
}
_NUMBER: Spec = {"type": "quantitative", "format": ".3f"}
_BELOW: Spec = {
    "orient": "bottom",
    "title": None,
    "columns": 3,
    "columnPadding": 6,  # on a phone, more would cut the last off
    "symbolLimit": 12,
    "labelLimit": 140,
}
_LINES: Spec = {**_BELOW, "columns": 2, "symbolType": "stroke", "symbolSize": 500, "symbolStrokeWidth": 1.6}
"""Lines are told apart by their dashes, of which a short sample shows nothing; three do not fit a phone."""


@dataclass(frozen=True)
class Chart:
    """One chart.

    Attributes:
        name: its address in the page.
        title: what stands above it.
        alt: what it shows, for those who cannot see it.
        rows: its numbers; what is not finite is None, because JSON knows no NaN.
        spec: what is drawn; its data are the rows.
        height: about, in pixels, so that the page does not jump.
    """

    name: str
    title: str
    alt: str
    rows: Rows
    spec: Spec
    height: int


@dataclass
class Shelf:
    """The charts of one page."""

    charts: dict[str, Chart] = field(default_factory=dict)

    def add(self, chart: Chart) -> Chart:
        """Put a chart on the page; names are made distinct."""
        name, number = chart.name, 2
        while name in self.charts:
            name, number = f"{chart.name}-{number}", number + 1
        placed = replace(chart, name=name)
        self.charts[name] = placed
        return placed

    def data(self) -> dict[str, Any]:
        """For the script of the page."""
        return {
            name: {"title": chart.title, "alt": chart.alt, "rows": chart.rows, "spec": chart.spec}
            for name, chart in self.charts.items()
        }


def plain(value: Any) -> Any:
    """A value for JSON: numbers with five decimals, None for what is not finite."""
    if value is None or value is pd.NA:
        return None
    if isinstance(value, float) or hasattr(value, "dtype"):
        number = float(value)
        return round(number, 5) if math.isfinite(number) else None
    return value


def listed(table: Sequence[Mapping[str, Any]]) -> Rows:
    """Rows for JSON."""
    return [{str(name): plain(value) for name, value in row.items()} for row in table]


def tip(*words: str, **numbers: str) -> list[Spec]:
    """What shows on hover: fields with words, then those with numbers and what they are called."""
    return [
        *({"field": word, "type": "nominal", "title": word} for word in words),
        *({"field": field, "title": title, **_NUMBER} for field, title in numbers.items()),
    ]


def methods_axis(order: Sequence[str]) -> Spec:
    """One row for each method, in this order."""
    return {"field": "method", "type": "nominal", "sort": list(order), "axis": _METHODS}


def layer(mark: Spec, **encoding: Spec | list[Spec]) -> Spec:
    """One mark with what it shows."""
    return {"mark": mark, "encoding": encoding}


def _told(field: str, looks: Mapping[str, str]) -> Spec:
    """A field whose values are told apart by the looks given, with a legend below."""
    scale = {"domain": list(looks), "range": list(looks.values())}
    return {"field": field, "type": "nominal", "sort": None, "scale": scale, "legend": _BELOW}


def tall(rows: Rows, more: int) -> int:
    """About how high a chart with a row for each method is."""
    return ROW * len({row["method"] for row in rows}) + more


_DOT: Spec = {"type": "point", "filled": True, "size": 70, "opacity": 1}
_SIZE: Spec = {"condition": {"test": "datum.kind == 'oracle'", "value": 190}, "value": 70}
"""A star has less of its area in the middle, and caps of intervals would hide a small one."""
_CAP: Spec = {"type": "tick", "orient": "vertical", "size": 11, "thickness": 1.4}


def board(
    name: str,
    title: str,
    table: pd.DataFrame,
    label: str,
    *,
    order: Sequence[str],
    lines: Mapping[str, float | None],
) -> Chart:
    """Means with intervals, one row for each method; `lines` are levels to compare with.

    Args:
        name: of the chart.
        title: of the chart.
        table: a leaderboard.
        label: of the axis.
        order: of the methods.
        lines: word -> level; None is not drawn.
    """
    columns = ["rank", "value", "low", "high", "worst"]
    skilled = {"skill": "skill"} if table["skill"].notna().any() else {}
    columns += ["skill", "skill_low", "skill_high"] if skilled else []
    rows = listed(
        [
            {"method": str(row["method"]), "kind": kind(str(row["method"])), **{c: row[c] for c in columns}}
            for row in table.dropna(subset="value").to_dict("records")
        ]
    )
    low = min([0.0, *(row["low"] for row in rows if row["low"] is not None)])
    high = max([1.0, *(row["high"] for row in rows if row["high"] is not None)])
    y, scale = methods_axis(order), {"domain": [low - 0.03 * (low < 0), high], "nice": False}
    x: Spec = {"type": "quantitative", "scale": scale, "title": label, "axis": _AXIS}
    start, value, end = ({**x, "field": field} for field in ("low", "value", "high"))
    said = tip("method", value="mean", low="from", high="to", worst="worst bucket", **skilled)
    colour, shape = _told("kind", _COLOURS), _told("kind", _SHAPES)
    layers = [
        layer({"type": "rule", "strokeWidth": 2}, y=y, x=start, x2={"field": "high"}, color=colour),
        layer(_CAP, y=y, x=start, color=colour),
        layer(_CAP, y=y, x=end, color=colour),
        layer(_DOT, y=y, x=value, color=colour, shape=shape, size=_SIZE, tooltip=said),
    ]
    levels = [{"level": plain(level), "line": word} for word, level in lines.items() if level is not None]
    if levels:
        layers.insert(0, _levels(levels))
    alt = ", ".join(f"{row['method']} {row['value']:.2f}" for row in rows)
    spec: Spec = {"height": {"step": ROW}, "layer": layers}
    return Chart(name, title, f"{title}: {alt}.", rows, spec, tall(rows, 110))


def reordered(chart: Chart, order: Sequence[str]) -> Chart:
    """The same chart with its methods in another order, to stand beside one that has it."""
    layers = [
        {**part, "encoding": {**part["encoding"], "y": methods_axis(order)}}
        if "y" in part["encoding"]
        else part
        for part in chart.spec["layer"]
    ]
    title = f"{chart.title}, in the same order"
    return replace(chart, name=f"{chart.name}-beside", title=title, spec={**chart.spec, "layer": layers})


def _levels(levels: Rows) -> Spec:
    """Vertical lines, told apart by their dashes."""
    dashes = {"range": [[6, 3], [2, 3], [8, 3, 2, 3], [1, 0]]}
    drawn = layer(
        {"type": "rule", "color": "var(--muted)", "strokeWidth": 1.4},
        x={"field": "level", "type": "quantitative"},
        strokeDash={"field": "line", "type": "nominal", "scale": dashes, "sort": None, "legend": _LINES},
        tooltip=tip("line", level="at"),
    )
    return {**drawn, "data": {"values": levels}}


def _moved(
    method: str, families: tuple[str, str], before: tuple[float, ...], after: tuple[float, ...]
) -> dict[str, Any]:
    """A method's means on two families of tasks and the change, each with its interval."""
    low, high = difference((before[0], before[1], before[2]), (after[0], after[1], after[2]))
    parts = {families[0]: before, families[1]: after, "change": (after[0] - before[0], low, high)}
    named = {
        f"{name}{end}": value
        for name, values in parts.items()
        for end, value in zip(("", ", from", ", to"), values, strict=True)
    }
    return {"method": method, **named}


def slopes(
    name: str,
    title: str,
    first: pd.DataFrame,
    second: pd.DataFrame,
    families: tuple[str, str],
    label: str,
) -> Chart:
    """How means move from one family of tasks to another: two dots a method, joined."""
    before, after = (
        {
            str(row["method"]): (row["value"], row["low"], row["high"])
            for row in table.dropna(subset="value").to_dict("records")
        }
        for table in (first, second)
    )
    rows = listed(
        [_moved(method, families, before[method], after[method]) for method in after if method in before]
    )
    dots = [
        {
            "method": row["method"],
            "family": family,
            "value": row[family],
            "low": row[f"{family}, from"],
            "high": row[f"{family}, to"],
            "change": row["change"],
            "least": row["change, from"],
            "most": row["change, to"],
        }
        for row in rows
        for family in families
    ]
    ends = [{"method": row["method"], "from": row[families[0]], "to": row[families[1]]} for row in rows]
    y = methods_axis([row["method"] for row in rows])
    x: Spec = {"type": "quantitative", "title": label, "scale": {"zero": True}, "axis": _AXIS}
    colour = _told("family", dict(zip(families, ("var(--muted)", "var(--accent)"), strict=True)))
    shape = _told("family", dict(zip(families, ("diamond", "circle"), strict=True)))
    joint: Spec = {"type": "rule", "color": "var(--rule)", "strokeWidth": 3}
    numbers = {"value": "mean", "low": "from", "high": "to", "change": "change"}
    said = tip("method", "family", **numbers, least="change from", most="change to")
    lines = layer(joint, y=y, x={**x, "field": "from"}, x2={"field": "to"})
    thin: Spec = {"type": "rule", "strokeWidth": 1.4}
    spans = layer(thin, y=y, x={**x, "field": "low"}, x2={"field": "high"}, color=colour)
    points = layer(_DOT, y=y, x={**x, "field": "value"}, color=colour, shape=shape, tooltip=said)
    spec: Spec = {
        "height": {"step": ROW},
        "layer": [
            {**lines, "data": {"values": ends}},
            *({**part, "data": {"values": dots}} for part in (spans, points)),
        ],
    }
    alt = ", ".join(f"{row['method']} {row['change']:+.2f}" for row in rows)
    return Chart(name, title, f"{title}: {alt}.", rows, spec, tall(rows, 100))


def shares(name: str, title: str, means: pd.DataFrame, methods: Sequence[str]) -> Chart:
    """Where the mass of each method's maps lies, as stacked bars."""
    there = [method for method in methods if method in means.index]
    rows = listed(
        [
            {"method": method, "region": region, "place": place, "share": means.loc[method, region]}
            for method in there
            for place, region in enumerate(_REGIONS)
        ]
    )
    x: Spec = {
        "field": "share",
        "type": "quantitative",
        "stack": True,
        "scale": {"domain": [0, 1]},
        "title": "share of the map's mass",
        "axis": _AXIS,
    }
    bars = layer(
        {"type": "bar", "stroke": "var(--card)", "strokeWidth": 1},
        y=methods_axis(there),
        x=x,
        color=_told("region", _REGIONS),
        order={"field": "place", "type": "quantitative"},
        tooltip=tip("method", "region", share="share"),
    )
    alt = ", ".join(f"{method} {means.loc[method, 'focus']:.2f}" for method in there)
    spec: Spec = {"height": {"step": ROW}, **bars}
    return Chart(name, title, f"{title}; on the focus: {alt}.", rows, spec, tall(rows, 110))


def ranks(name: str, title: str, ranking: Ranking) -> Chart:
    """Mean ranks with half the critical difference to each side: bars that overlap are tied.

    Bars end at the first and the last rank, beyond which there is none. Two that overlap do so between their
    dots, so that this parts none.
    """
    half, last = ranking.critical / 2, len(ranking.ranks)
    rows = listed(
        [
            {"method": method, "rank": rank, "low": max(rank - half, 1), "high": min(rank + half, last)}
            for method, rank in ranking.ranks.items()
        ]
    )
    y = methods_axis(list(ranking.ranks))
    x: Spec = {
        "type": "quantitative",
        "scale": {"domain": [1, last], "nice": False},
        "title": "mean rank over buckets",
        "axis": {**_AXIS, "tickMinStep": 1, "format": "d"},
    }
    said = tip("method", rank="mean rank", low="from", high="to")
    bar: Spec = {"type": "bar", "height": 7, "color": "var(--accent)", "opacity": 0.3, "cornerRadius": 3}
    dot = {**_DOT, "color": "var(--accent)"}
    layers = [
        layer(bar, y=y, x={**x, "field": "low"}, x2={"field": "high"}, tooltip=said),
        layer(dot, y=y, x={**x, "field": "rank"}, tooltip=said),
    ]
    alt = ", ".join(f"{method} {rank:.1f}" for method, rank in ranking.ranks.items())
    spec: Spec = {"height": {"step": ROW}, "layer": layers}
    return Chart(name, title, f"{title}: {alt}.", rows, spec, tall(rows, 80))
