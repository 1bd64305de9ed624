"""`verax list`: what there is."""

from __future__ import annotations

import json as dumps
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from verax.cli.console import console
from verax.errors import UnknownName, suggestion

Rows = list[dict[str, Any]]


def _tasks() -> Rows:
    from verax.tasks import TASKS, task
    from verax.tasks.textbox import TextBox

    rows: Rows = []
    for name in TASKS:
        made = task(name)
        row: dict[str, Any] = {"name": name, "family": made.family, "buckets": len(made.groups)}
        if isinstance(made, TextBox):
            row["reasoning"] = str(made.reasoning)
        rows.append(row)
    return rows


def _networks() -> Rows:
    from verax.networks import NETWORKS, library

    rows: Rows = []
    records = [library.record(path) for path in library.shipped()]
    for name in NETWORKS:
        model = NETWORKS.get(name)(2)
        count = sum(weight.numel() for weight in model.parameters())
        shipped = [r["task"] for r in records if r["network"] == name]
        about = (NETWORKS.get(name).__doc__ or "").partition("\n")[0]
        rows.append({"name": name, "weights": count, "shipped": shipped, "about": about})
    return rows


def _methods() -> Rows:
    from verax.methods import METHODS
    from verax.methods.base import FAMILIES

    return [
        {
            "name": name,
            "aliases": METHODS.aliases(name),
            "family": (found := METHODS.get(name)).family,
            "cost": found.cost,
            "parameters": {k: repr(v) for k, v in found.parameters.items()},
            "paper": found.paper,
            "about": found.summary,
        }
        for name in sorted(METHODS, key=lambda name: FAMILIES.index(METHODS.get(name).family))
    ]


def _metrics() -> Rows:
    from verax.metrics import METRICS

    return [
        {
            "name": name,
            "protocol": (metric := METRICS.get(name)).protocol,
            "better": "higher" if metric.higher_is_better else "lower",
            "about": metric.description,
            "paper": metric.paper,
        }
        for name in METRICS
    ]


def _studies() -> Rows:
    from verax.studies.spec import presets, study

    return [
        {
            "name": name,
            "tasks": len((found := study(name)).tasks),
            "methods": len(found.methods),
            "samples": found.samples,
            "about": found.description,
        }
        for name in presets()
    ]


LISTS: dict[str, Callable[[], Rows]] = {
    "tasks": _tasks,
    "networks": _networks,
    "methods": _methods,
    "metrics": _metrics,
    "studies": _studies,
}


def _cell(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k}={v}" for k, v in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def show(
    what: Annotated[str, typer.Argument(help="tasks, networks, methods, metrics or studies.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List tasks, networks, methods, metrics or studies."""
    if what not in LISTS:
        raise UnknownName(f"There is no list of {what!r}{suggestion(what, LISTS)}")
    rows = LISTS[what]()
    if json:
        typer.echo(dumps.dumps(rows, indent=2))
        return
    # the JSON has everything; a terminal is too narrow for it
    columns = [name for name in rows[0] if name not in ("paper", "aliases", "parameters")]
    table = Table(title=f"{len(rows)} {what}")
    for name in columns:
        table.add_column(name, overflow="fold", no_wrap=name == "name")
    for row in rows:
        table.add_row(*(escape(_cell(row.get(name, ""))) for name in columns))
    console.print(table)
