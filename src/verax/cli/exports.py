"""`verax export`: a run for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verax.cli import completion
from verax.cli.console import Json, print_json, say


def export(
    run: Annotated[Path, typer.Argument(help="Folder of a run.", autocompletion=completion.runs)],
    format: Annotated[
        str | None, typer.Option(help="csv, parquet or mlflow (default: as the file ends, else csv).")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File (default: beside the run, called after it).")] = None,
    experiment: Annotated[str | None, typer.Option(help="With mlflow: the experiment.")] = None,
    tracking: Annotated[
        str | None, typer.Option(help="With mlflow: address of the server, or a folder.")
    ] = None,
    json: Json = False,
) -> None:
    """Write all scores of a run as a table, or log the run to MLflow."""
    from verax.studies import exports
    from verax.studies.runs import Run

    given = {"experiment": experiment, "tracking": tracking}
    options = {name: value for name, value in given.items() if value is not None}
    format = exports.format_of(format, out)
    made = exports.export(Run(run), format, out, **options)
    if json:
        print_json({"format": format, "mlflow_run" if format == "mlflow" else "path": str(made)})
    else:
        say(f"MLflow run: {made}" if format == "mlflow" else f"Scores: {made}")
