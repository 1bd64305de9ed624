"""`verax report` and `verax open`: the page of a run."""

from __future__ import annotations

import json as reader
import os
import sys
import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer

from verax import progress
from verax.cli import completion
from verax.cli.console import Json, Quiet, print_json, say
from verax.errors import MissingFile, suggestion

RUNS = Path("runs")
MANIFEST = "manifest.json"
_PAGES = ("report.html", "index.html")
_DAMAGED = (KeyError, IndexError, TypeError, ValueError, AttributeError)


def report(
    run: Annotated[
        Path, typer.Argument(help="Folder of a run or alignment.", autocompletion=completion.runs)
    ],
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write the report of a finished run or alignment again."""
    try:
        with progress.status("Writing the report", hidden=quiet):
            path = _written(run)
    except _DAMAGED as error:
        raise MissingFile(f"The run {str(run)!r} is damaged or was made by another version.") from error
    if json:
        print_json({"run": run, "report": path})
    else:
        say(f"Report: {path}")


def _written(folder: Path) -> Path:
    """The page of a run, or of an alignment, whose manifest names a model and no study."""
    from verax.studies.alignments import Alignment
    from verax.studies.runs import Run

    known = manifest(folder)
    if "model" in known and "study" not in known:
        return Alignment.load(folder).report(folder / "report.html")
    return Run(folder).report()


def manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a folder; empty where there is none that can be read."""
    try:
        found = reader.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def recent(folder: Path = RUNS) -> list[Path]:
    """The folders of runs, alignments and experiments in a folder, the newest first."""
    if not folder.is_dir():
        return []
    found = {}
    for path in folder.iterdir():
        marks = [path / name for name in (MANIFEST, "claims.json") if (path / name).is_file()]
        if marks:
            found[path] = max(mark.stat().st_mtime for mark in marks)
    return sorted(found, key=lambda path: found[path], reverse=True)


def study_of(folder: Path) -> str:
    """The name of the study behind a folder, or the folder's own."""
    study = manifest(folder).get("study")
    return str(study.get("name", folder.name)) if isinstance(study, dict) else folder.name


def locate(run: str | None) -> Path:
    """The folder or page that is meant: a path, the newest run of a study, or the newest run of all."""
    if run is not None and Path(run).exists():
        return Path(run)
    found = recent()
    if run is None:
        if not found:
            raise MissingFile("There is no run in the folder 'runs'; name one, or make one with 'verax run'.")
        return found[0]
    for folder in found:
        if run in (study_of(folder), folder.name):
            return folder
    known = dict.fromkeys([study_of(folder) for folder in found])
    raise MissingFile(
        f"There is no run {run!r}, neither a folder nor a study under 'runs'{suggestion(run, known)}"
    )


def page(place: Path) -> Path:
    """The page of a run, written where it is missing."""
    if place.is_file():
        return place
    for name in _PAGES:
        if (place / name).is_file():
            return place / name
    try:
        with progress.status("Writing the report"):
            if "study" in manifest(place):
                from verax.studies.runs import Run

                return Run(place).report()
            from verax.studies.alignments import Alignment

            return Alignment.load(place).report(place / _PAGES[0])
    except _DAMAGED as error:
        raise MissingFile(f"The run {str(place)!r} is damaged or was made by another version.") from error


def has_browser() -> bool:
    """Whether a page can be shown: text browsers would take the terminal over."""
    if sys.platform.startswith(("win", "darwin")):
        return True
    screen = any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "WSL_DISTRO_NAME")
    )
    if not screen:
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


def open_(
    run: Annotated[
        str | None,
        typer.Argument(
            help="Folder of a run, or a study whose newest run is meant (default: the newest run in runs/).",
            autocompletion=completion.runs,
        ),
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open it, or only print where it is.")] = True,
) -> None:
    """Open the report of a run in the browser; it is written first where it is missing."""
    path = page(locate(run)).resolve()
    say(str(path))
    if browser and not (has_browser() and webbrowser.open(path.as_uri())):
        typer.echo("verax: There is no browser here; open the file above in one.", err=True)
