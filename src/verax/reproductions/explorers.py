"""Explorers: the report of every run of a reproduction, linked with the reproduction's own pages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from verax import progress
from verax.files import write_atomically
from verax.reports import claims
from verax.reproductions.workers import Crew
from verax.studies.runs import MANIFEST, Run

RUNS = "runs"
_PAGES = ("index.html", "claims.html")
_BEFORE = "<nav>"


def _report(_: None, folder: Path) -> Path:
    return Run(folder).report()


@dataclass(frozen=True)
class Explorers:
    """Reports that are being written.

    Attributes:
        home: the folder of the reproduction.
        folders: of the runs.
        results: the folder and the report of each, as it is done.
    """

    home: Path
    folders: list[Path]
    results: Iterator[tuple[Path, Path]]


def begin(page: Path, since: float, crew: Crew) -> Explorers:
    """Let a crew write the reports of the runs beside a reproduction's page, whose claims are there already.

    Args:
        page: of the reproduction; it may be written later.
        since: when it began, in seconds since 1970: older runs in its folder are somebody else's.
        crew: who writes them.
    """
    home = page.parent
    folders = sorted(
        path.parent for path in (home / RUNS).glob(f"*/{MANIFEST}") if path.stat().st_mtime >= since
    )
    pointer = json.dumps({"home": "../..", "page": page.name}) + "\n"
    for folder in folders:
        write_atomically(folder / claims.POINTER, pointer.encode())
    return Explorers(home, folders, crew.over(_report, None, folders))


def finish(pending: Explorers, quiet: bool = False) -> list[Path]:
    """Wait for the reports, and let the pages of the reproduction lead to them; gives the reports."""
    home, made = pending.home, dict[Path, Path]()
    with progress.bar(hidden=quiet) as bar:
        row = bar.add_task("explorers of the runs", total=len(pending.folders))
        for folder, path in pending.results:
            made[folder] = path
            bar.update(row, advance=1)
    found = [made[folder] for folder in pending.folders]
    for name in _PAGES:
        if found and (home / name).is_file():
            text = linked((home / name).read_text(), [path.relative_to(home) for path in found])
            write_atomically(home / name, text.encode())
    return found


def linked(text: str, reports: list[Path]) -> str:
    """A page with links to reports before its contents."""
    links = Markup(", ").join(
        Markup('<a href="{}">{}</a>').format(quote(path.as_posix()), path.parent.name) for path in reports
    )
    words = Markup("<p><b>Explore the runs behind it:</b> {}</p>\n").format(links)
    return text.replace(_BEFORE, f"{words}{_BEFORE}", 1)
