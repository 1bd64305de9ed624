"""`verax plan`: what a study would do, and how long it would take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from verax.cli import experiments, options
from verax.cli.console import Json, console, print_json
from verax.errors import InvalidParameter


def words(seconds: float) -> str:
    """A duration as people say it."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def summary(study: Any, store: Path | None) -> dict[str, Any]:
    """The plan of a study as plain values: trainings, and units and seconds for each method."""
    from verax.files import store_folder
    from verax.studies import costs, keeping
    from verax.studies.plan import compile_plan
    from verax.studies.store import Store

    folder = store_folder(store)
    plan = compile_plan(study, folder, ahead=True)
    rows: dict[str, dict[str, Any]] = {}
    for cost in costs.costs(plan, Store(folder)):
        label = cost.cell.label or "certificate"
        row = rows.setdefault(
            label,
            {
                "unit": label,
                "units": 0,
                "done": 0,
                "failed": 0,
                "seconds": 0.0,
                "measured": True,
                "kept": True,
            },
        )
        for name in ("units", "done", "failed", "seconds"):
            row[name] += getattr(cost, name)
        row["measured"] &= cost.measured
        row["kept"] &= cost.cell.kept
    return {
        "study": plan.study.name,
        "plan": plan.key,
        "networks": len(plan.subjects),
        "units": len(plan.units),
        "train": [training.name for training in plan.trainings],
        "training_seconds": costs.training_seconds(plan),
        "rows": list(rows.values()),
        "notes": [*plan.notes, *map(" ".join, keeping.unkept(plan))],
    }


def show(found: dict[str, Any]) -> None:
    """Print a plan."""
    networks = f"{found['networks']} network{'' if found['networks'] == 1 else 's'}"
    title = f"{found['study']}: {found['units']:,} units on {networks}"
    table = Table(title=escape(title), box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("", no_wrap=True)
    for name in ("units", "in the store", "failed", "left, one worker"):
        table.add_column(name, justify="right")
    for name in found["train"]:
        each = words(found["training_seconds"] / len(found["train"]))
        table.add_row(escape(name), "1", "0", "0", f"~{each}")
    for row in found["rows"]:
        left = "–" if row["done"] == row["units"] else words(row["seconds"])
        mark = "" if row["measured"] else "~"
        numbers = (f"{row['units']:,}", f"{row['done']:,}", f"{row['failed']:,}", f"{mark}{left}")
        table.add_row(escape(row["unit"]), *numbers)
    console.print(table)
    total = sum(row["seconds"] for row in found["rows"]) + found["training_seconds"]
    left = f"about {words(total)} with one worker" if total else "nothing"
    console.print(f"Left to do: {left}.", highlight=False)
    guessed = [row for row in found["rows"] if not row["measured"]]
    if guessed or found["train"]:
        once = any(row["kept"] for row in guessed) or found["train"]
        more = "; measured as soon as one of these units is in the store" if once else ""
        console.print(f"~ a rough guess{more}.", style="dim")
    if found["train"]:
        console.print("Units of networks that are not trained yet get their keys afterwards.", style="dim")
    for note in found["notes"]:
        console.print(escape(note), style="yellow", soft_wrap=True)


def plan(
    study: options.StudyName,
    methods: options.Methods = None,
    tasks: options.Tasks = None,
    networks: options.Networks = None,
    seeds: options.Seeds = None,
    protocols: options.Protocols = None,
    metrics: options.Metrics = None,
    samples: options.Samples = None,
    seed: options.Seed = None,
    certify: options.Certify = None,
    identify: options.Identify = None,
    renderer: options.Renderer = None,
    background: options.Background = None,
    field: options.Field = None,
    variable: options.Variable = None,
    store: Annotated[
        Path | None,
        typer.Option(envvar="VERAX_STORE", help="Where finished work is kept (default: the user's cache)."),
    ] = None,
    json: Json = False,
) -> None:
    """Show the units of a study, which ones are in the store, and how long the rest will take."""
    from verax.studies.requests import described

    if study.startswith(experiments.PREFIX):
        experiments.check(study)
        raise InvalidParameter(
            f"{study!r} has no units, and so no plan; a first look at it: verax run {study} --quick."
        )
    changes = options.changes(
        methods=methods,
        tasks=tasks,
        networks=networks,
        seeds=seeds,
        protocols=protocols,
        metrics=metrics,
        samples=samples,
        seed=seed,
        certify=certify,
        identify=identify,
        renderer=renderer,
        background=background,
        field=field,
        variable=variable,
    )
    found = summary(described(study, **changes), store)
    if json:
        print_json(found)
    else:
        show(found)
