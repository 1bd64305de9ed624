"""`verax list`: what there is."""

from __future__ import annotations

import json as dumps
import re
import warnings
from collections.abc import Callable
from itertools import groupby
from typing import Annotated, Any

import typer
from rich import box
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from verax import plugins
from verax.cli import completion
from verax.cli.console import Json, console, echo
from verax.errors import InvalidParameter, UnknownName, VeraxError, VeraxWarning, suggestion

Rows = list[dict[str, Any]]


def _tasks() -> Rows:
    from verax.tasks import TASKS, task

    rows: Rows = []
    for name in TASKS:
        try:
            made = task(name)
        except VeraxError as error:
            if TASKS.builtin(name):
                raise
            rows.append({"name": name, "family": "left out", "buckets": 0, "reasoning": str(error)})
            continue
        row: dict[str, Any] = {"name": name, "family": made.family, "buckets": len(made.groups)}
        if (reasoning := getattr(made, "reasoning", None)) is not None:
            row["reasoning"] = str(reasoning)
        rows.append(row)
    return rows


def _weights(network: str) -> int:
    """How many weights a network has; they are counted, not filled."""
    import torch

    from verax.networks import NETWORKS, VECTORS

    with torch.device("meta"):
        model = NETWORKS.get(network)(1 if network in VECTORS else 2)
    return sum(weight.numel() for weight in model.parameters())


def _networks() -> Rows:
    from verax.networks import NETWORKS, library, records
    from verax.networks.wired import WIRED

    rows: Rows = []
    known = [records.record(path) for path in library.shipped()]
    for name in NETWORKS:
        about = (NETWORKS.get(name).__doc__ or "").partition("\n")[0]
        if name == WIRED:
            rows.append({"name": name, "weights": "as the task needs", "shipped": [], "about": about})
            continue
        count: int | str = _weights(name) if NETWORKS.builtin(name) else "own"
        shipped = [r["task"] for r in known if r["network"] == name]
        rows.append({"name": name, "weights": count, "shipped": shipped, "about": about})
    return rows


def _methods() -> Rows:
    from verax.methods import METHODS
    from verax.methods.base import FAMILIES
    from verax.methods.cards import card

    def place(name: str) -> tuple[int, bool]:
        return FAMILIES.index(METHODS.get(name).family), "@" in name  # variants behind the methods themselves

    names = sorted(METHODS, key=place)
    return [card(name).record() for name in names]


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


def _datasets() -> Rows:
    from verax.tasks.alignment import DATA

    return [
        {
            "name": name,
            "about": (DATA.get(name).__doc__ or "").partition("\n")[0],
            "plugin": DATA.origin(name),
        }
        for name in DATA
    ]


def _plugins() -> Rows:
    """Every entry point, and whether what it names could be had."""
    from verax.methods import METHODS
    from verax.metrics import METRICS
    from verax.networks import NETWORKS
    from verax.registry import Registry
    from verax.tasks import TASKS
    from verax.tasks.alignment import DATA

    rows: Rows = []
    kinds: tuple[Registry[Any], ...] = (METHODS, METRICS, TASKS, NETWORKS, DATA)
    for group, registry in zip(plugins.GROUPS, kinds, strict=True):
        registry.names()  # takes them in
        for plugin in plugins.installed(group):
            whole = ":" not in plugin.target  # a module, whose import registers what it brings
            there = registry.origin(plugin.name) == plugin.distribution
            there = not plugins.broken(plugin) if whole else there
            row = {"name": plugin.name, "kind": registry.noun, "distribution": plugin.distribution}
            rows.append({**row, "target": plugin.target, "state": "there" if there else "left out"})
    return rows


def _studies() -> Rows:
    from verax.reproductions.alignment.questions import QUESTIONS
    from verax.studies.spec import presets, study

    alignments: Rows = [{"name": name, "about": question} for name, question in QUESTIONS.items()]
    return [
        {
            "name": name,
            "tasks": len((found := study(name)).tasks),
            "methods": len(found.methods),
            "samples": found.samples,
            "about": found.description,
        }
        for name in presets()
    ] + alignments


LISTS: dict[str, Callable[[], Rows]] = {
    "tasks": _tasks,
    "networks": _networks,
    "methods": _methods,
    "metrics": _metrics,
    "studies": _studies,
    "datasets": _datasets,
    "plugins": _plugins,
}


def _cell(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _print_table(what: str, rows: Rows) -> None:
    if not rows:
        console.print(f"There are no {what}.")
        return
    # the JSON has everything; a terminal is too narrow for it
    columns = [name for name in rows[0] if name != "paper"]
    table = Table(title=f"{len(rows)} {what}")
    for name in columns:
        table.add_column(name, overflow="fold", no_wrap=name == "name")
    for row in rows:
        table.add_row(*(escape(_cell(row.get(name, ""))) for name in columns))
    console.print(table)


def _print_methods(rows: Rows) -> None:
    """Methods by family; where the terminal is narrow, names break before their @ and words are shortened."""
    from verax.methods.cards import short_paper

    wide = console.width >= 110
    table = Table(title=f"{len(rows)} methods", box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for heading in ("name", "passes", "needs", "sum", "paper"):
        narrow = 11 if heading == "needs" and not wide else None
        table.add_column(heading, overflow="fold", no_wrap=heading in ("name", "paper"), max_width=narrow)
    for family, members in groupby(rows, key=lambda row: str(row["family"])):
        table.add_section()
        table.add_row(f"[bold]{family}[/]")
        for row in members:
            name, cost = row["name"], row["cost"].replace("`", "")
            if not wide:
                name = name.replace("@", "\n  @") if len(name) > 22 else name
                cost = re.sub("backwards?", "bwd", re.sub("forwards?", "fwd", cost))
                cost = cost.replace("fwd and bwd", "fwd+bwd")
            words = (f" {name}", cost, row["needs"] or "?", row["total"] or "-", short_paper(row["paper"]))
            table.add_row(*map(escape, words))
    console.print(table)
    console.print(
        "sum: what a map adds up to, the output or its change from a baseline.\n"
        "All about one of them: verax list methods NAME. All about all: --json."
    )


def _show_one(what: str, name: str, json: bool) -> None:
    """One entry: what it is, all that is known about it and, of a method, its parameters."""
    parameters: dict[str, dict[str, Any]] = {}
    details: list[str] = []
    if what == "methods":
        from verax.methods.cards import card

        found = card(name)
        row, facts, details = found.record(), dict[str, Any](found.facts()), list(found.details)
        parameters = row["parameters"]
    else:
        rows = {str(row["name"]): row for row in LISTS[what]()}
        if name not in rows:
            raise UnknownName(f"There is no {name!r} among the {what}{suggestion(name, rows)}")
        row = rows[name]
        facts = {key: value for key, value in row.items() if key not in ("name", "about")}
    if json:
        typer.echo(dumps.dumps(row, indent=2, default=repr))
        return
    console.print(f"[bold]{escape(row['name'])}[/]", highlight=False)
    for part in [row.get("about", ""), *details]:
        if part:
            console.print(Padding(escape(part), (0, 0, 1, 0)), highlight=False)
    grid = Table.grid(padding=(0, 2))
    for key, value in facts.items():
        grid.add_row(f"[dim]{key}[/]", escape(_cell(value)))
    console.print(grid)
    if parameters:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for heading in ("parameter", "default", "meaning"):
            table.add_column(heading, no_wrap=heading == "parameter", overflow="fold")
        for key, about in parameters.items():
            table.add_row(key, escape(repr(about["default"])), escape(about["about"]))
        console.print(table)


def show(
    what: Annotated[
        str | None,
        typer.Argument(
            help="tasks, networks, methods, metrics, studies, datasets or plugins.",
            autocompletion=completion.kinds,
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Argument(help="All about one of them.", autocompletion=completion.entries)
    ] = None,
    json: Json = False,
) -> None:
    """List tasks, networks, methods, metrics, studies, data sets or plugins, or show one of them."""
    if what is None:
        raise InvalidParameter(f"Say what is to be listed: {', '.join(LISTS)}.")
    if what not in LISTS:
        raise UnknownName(f"There is no list of {what!r}{suggestion(what, LISTS)}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VeraxWarning)  # what was left out is said below
        if name is not None:
            _show_one(what, name, json)
        else:
            _show_all(what, json)
    for sentence in plugins.reports():
        echo(f"verax: {sentence}", err=True)


def _show_all(what: str, json: bool) -> None:
    rows = LISTS[what]()
    if json:
        typer.echo(dumps.dumps(rows, indent=2, default=repr))
    elif what == "methods":
        _print_methods(rows)
    else:
        _print_table(what, rows)
