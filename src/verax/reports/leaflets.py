"""Leaflets: small pages of tables and figures over several runs, each one file that needs no other."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verax.files import make_folder, write_atomically
from verax.reports import svg, themed
from verax.reports.pages import TEMPLATES, environment

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE, SCRIPTS = "sheet.css", ("sideways.js", "sheet.js")


def digest(text: str) -> str:
    """The hash by which a content-security policy knows a script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def uri(picture: bytes, kind: str = "svg+xml") -> str:
    """A picture as an address."""
    return f"data:image/{kind};base64,{base64.b64encode(picture).decode()}"


def picture(figure: Figure, alt: str) -> dict[str, str]:
    """A figure for light and dark pages."""
    vector = svg(figure)
    return {"light": uri(themed(vector, False)), "dark": uri(themed(vector, True)), "alt": alt}


def page(template: str, **values: Any) -> str:
    """A page; everything that is put into it is escaped."""
    style = (TEMPLATES / STYLE).read_text()
    script = "".join((TEMPLATES / name).read_text() for name in SCRIPTS)
    return (
        environment()
        .get_template(template)
        .render(style=style, script=script, style_hash=digest(style), script_hash=digest(script), **values)
    )


def write(path: Path, text: str, name: str) -> Path:
    """Write a page; a folder gets one called `name`."""
    where = path / name if path.is_dir() or not path.suffix else path
    make_folder(where.parent)
    write_atomically(where, text.encode())
    return where
