"""Explorers: the report of every run of a reproduction, linked with the reproduction's own pages."""

from __future__ import annotations

import json
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
NEEDED = "verax.reports.html"
"""What a crew imports before it writes them."""


def _report(_: None, folder: Path) -> Path:
    return Run(folder).report()


def write(page: Path, since: float, crew: Crew, quiet: bool = False) -> list[Path]:
    """Write the reports of the runs beside a reproduction's page, which then lead to each other.

    Args:
        page: of the reproduction.
        since: when it began, in seconds since 1970: older runs in its folder are somebody else's.
        crew: who writes them.
        quiet: no progress bar.

    Returns:
        The reports.
    """
    home = page.parent
    folders = sorted(
        path.parent for path in (home / RUNS).glob(f"*/{MANIFEST}") if path.stat().st_mtime >= since
    )
    pointer = json.dumps({"home": "../..", "page": page.name}) + "\n"
    for folder in folders:
        write_atomically(folder / claims.POINTER, pointer.encode())
    made: dict[Path, Path] = {}
    with progress.bar(hidden=quiet) as bar:
        row = bar.add_task("explorers of the runs", total=len(folders))
        for folder, path in crew.over(_report, None, folders):
            made[folder] = path
            bar.update(row, advance=1)
    found = [made[folder] for folder in folders]
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
