"""`verax data`: data that the package does not carry."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verax.cli.console import Json, print_json, say
from verax.errors import UnknownName, suggestion


def data(
    name: Annotated[str, typer.Argument(help="cobe-sst2 (sea-surface temperature) or sea-ice.")],
    url: Annotated[str | None, typer.Option(help="Another place to fetch the NetCDF file from.")] = None,
    file: Annotated[Path | None, typer.Option(help="A NetCDF file that is here already.")] = None,
    unchecked: Annotated[bool, typer.Option(help="Keep data whose checksum is not the known one.")] = False,
    again: Annotated[bool, typer.Option(help="Fetch them although they are here.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
    json: Json = False,
) -> None:
    """Fetch COBE-SST2 from NOAA PSL once, and keep the points and years of the published benchmark."""
    from verax.tasks.climate import cobe, download

    if name not in cobe.VARIABLES:
        raise UnknownName(f"There are no data named {name!r}{suggestion(name, cobe.VARIABLES)}")
    path = download.obtain(name, url=url, file=file, unchecked=unchecked, again=again, quiet=quiet)
    if json:
        print_json({"data": name, "path": path, "task": f"climate/{name}"})
    else:
        say(f"{path}: the task climate/{name} can be used now.")
