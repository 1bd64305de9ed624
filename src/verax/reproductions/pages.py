"""Pages of reproductions: one HTML file that needs nothing else, and parts that all of them share."""

from __future__ import annotations

from pathlib import Path

import jinja2

from verax.reports.pages import TEMPLATES as STYLE

TEMPLATES = Path(__file__).parent / "templates"


def environment(own: Path) -> jinja2.Environment:
    """Templates of one reproduction, with the shared ones as ``shared/NAME``."""
    loader = jinja2.ChoiceLoader(
        [
            jinja2.PrefixLoader({"shared": jinja2.FileSystemLoader(TEMPLATES)}),
            jinja2.FileSystemLoader(own),
        ]
    )
    return jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)


def css(own: Path | None = None) -> str:
    """The look of reports, of claims and figures, and of one page."""
    shared = [TEMPLATES / "claims.css", TEMPLATES / "figures.css"]
    files = [STYLE / "report.css", *shared, *([own] if own else [])]
    return "".join(file.read_text() for file in files)
