"""Pages: self-contained HTML files that load nothing, and run no script but their own."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

TEMPLATES = Path(__file__).parent / "templates"
ASSETS = Path(__file__).parent / "assets"
_CHARTS = "charts.js"


@cache
def environment() -> jinja2.Environment:
    """Templates in which every value is escaped."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def script_json(values: object) -> Markup:
    """JSON that can stand inside a script element: nothing in it can end the element or begin another."""
    text = json.dumps(values, separators=(",", ":"), allow_nan=False)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(text)


def _scripts(names: tuple[str, ...]) -> list[str]:
    """The charting library, what draws charts with it, and the scripts of a page."""
    return [
        (ASSETS / "vega.js").read_text(),
        *((TEMPLATES / name).read_text() for name in (_CHARTS, *names)),
    ]


def _policy(scripts: list[str], images: str) -> Markup:
    """A content-security policy under which nothing is requested and only these scripts run."""
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return Markup(
        f"default-src 'none'; img-src {images}; style-src 'unsafe-inline'; base-uri 'none'; "
        f"form-action 'none'; script-src {allowed}"
    )


def page(template: str, values: dict[str, Any], *, scripts: tuple[str, ...], files: bool = False) -> str:
    """A template with its values.

    Args:
        template: its name.
        values: what it shows; ``data`` is a JSON object for the scripts.
        scripts: names of templates with the page's own scripts.
        files: whether pictures lie in files beside the page.
    """
    texts = _scripts(scripts)
    images = "data: 'self' file:" if files else "data:"
    return (
        environment()
        .get_template(template)
        .render(
            **{**values, "data": script_json(values["data"])},
            policy=_policy(texts, images),
            scripts=[Markup(text) for text in texts],
        )
    )
