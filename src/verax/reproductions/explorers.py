"""Explorers: the report of every run of a reproduction, linked with the reproduction's own pages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from verax import progress
from verax.files import write_atomically
from verax.reports import claims, html
from verax.reproductions.workers import Crew
from verax.studies.runs import MANIFEST, Run

RUNS = "runs"
_PAGES = ("index.html", "claims.html")
_BEFORE = "<nav>"


def _drafted(_: None, folder: Path) -> html.Draft:
    return html.draft(Run(folder))


@dataclass(frozen=True)
class Explorers:
    """Reports that are being written.

    Attributes:
        page: of the reproduction; it may be written later.
        crew: who writes them.
        drafts: folder -> its draft, as it is done.
    """

    page: Path
    crew: Crew
    drafts: dict[Path, Iterator[tuple[Path, html.Draft]]] = field(default_factory=dict)

    def add(self, folder: Path) -> None:
        """Let the crew draw a run at once, whose claims come later."""
        pointer = json.dumps({"home": "../..", "page": self.page.name}) + "\n"
        write_atomically(folder / claims.POINTER, pointer.encode())
        self.drafts[folder] = self.crew.over(_drafted, None, [folder])


def begin(page: Path, since: float, crew: Crew) -> Explorers:
    """Let a crew draw the reports of the runs beside a reproduction's page.

    Args:
        page: of the reproduction; it may be written later.
        since: when it began, in seconds since 1970: older runs in its folder are somebody else's.
        crew: who writes them.
    """
    pending = Explorers(page, crew)
    found = (page.parent / RUNS).glob(f"*/{MANIFEST}")
    for folder in sorted(path.parent for path in found if path.stat().st_mtime >= since):
        pending.add(folder)
    return pending


def finish(pending: Explorers, quiet: bool = False) -> list[Path]:
    """Write the reports with the claims, which are there now, and let the pages lead to them."""
    home, found = pending.page.parent, list[Path]()
    with progress.bar(hidden=quiet) as bar:
        row = bar.add_task("explorers of the runs", total=len(pending.drafts))
        for folder, drafts in sorted(pending.drafts.items()):
            found += [html.publish(folder, draft) for _, draft in drafts]
            bar.update(row, advance=1)
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
