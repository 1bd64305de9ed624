"""Put the claims and figures of a run into docs/reproduction.md.

    python tools/reproduction.py RUN
    python tools/reproduction.py RUN LATER 11,28

A later run decides the claims that the first could not test, and gives the figures with these numbers.
"""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

from PIL import Image

from verax.errors import VeraxError
from verax.files import write_atomically
from verax.reproductions.claims import UNTESTABLE
from verax.reproductions.outputs import between
from verax.reproductions.smerf.figures.catalogue import CATALOGUE
from verax.reproductions.smerf.page import BEGIN, END, JSON, MARKDOWN, counted, listed

DOCS = Path(__file__).parent.parent / "docs"
DOCUMENT = DOCS / "reproduction.md"
FIGURES = ("<!-- figures:begin -->", "<!-- figures:end -->")
_COUNTS = re.compile(r"\*\*\d+ claims: [^*]*\*\*")
_WIDTH, _COLOURS = 1300, 48  # drawings need few colours, and pages should stay light


def small(picture: Path) -> bytes:
    """A picture for the web."""
    image = Image.open(picture).convert("RGB")
    if image.width > _WIDTH:
        image = image.resize((_WIDTH, round(image.height * _WIDTH / image.width)), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.quantize(_COLOURS, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def joined(first: str, rows: list[dict[str, Any]], later: list[dict[str, Any]]) -> str:
    """The claims of a run in Markdown; those that it could not test as a later run decides them.

    Args:
        first: claims.md of the run, for what stands before the claims.
        rows: its claims, as in claims.json.
        later: those of the later run.
    """
    found = {row["id"]: row for row in later if row["verdict"] != UNTESTABLE}
    decided = [
        {**found[row["id"]], "measured": f"Second run: {found[row['id']]['measured']}"}
        if row["verdict"] == UNTESTABLE and row["id"] in found
        else row
        for row in rows
    ]
    head = first.partition(f"\n### {rows[0]['topic']}\n")[0]
    return _COUNTS.sub(lambda match: counted(decided), head, count=1) + "\n" + listed(decided)


def _claims(run: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((run / JSON).read_text())["claims"]
    return found


def figures(run: Path, later: Path | None = None, numbers: tuple[str, ...] = ()) -> str:
    """All figures of a run, some from a later one, copied beside the page, as Markdown."""
    parts = []
    for entry in CATALOGUE:
        source = later if later is not None and entry.number in numbers else run
        picture = source / "figures" / f"{entry.file}.png"
        if picture.is_file():
            write_atomically(DOCS / "images" / "smerf" / picture.name, small(picture))
            parts.append(
                f"### Figure {entry.number}: {entry.title}\n\nIn the paper: {entry.paper}\n\n"
                f"![Figure {entry.number}](images/smerf/{picture.name})\n"
            )
    return "\n".join(parts)


def main(arguments: list[str]) -> int:
    """Fill the document from the run folders that are named."""
    if len(arguments) not in (1, 3):
        print("usage: python tools/reproduction.py RUN [LATER NUMBERS]", file=sys.stderr)
        return 2
    run, later, numbers = Path(arguments[0]), None, ()
    try:
        if len(arguments) == 3:
            later, numbers = Path(arguments[1]), tuple(arguments[2].split(","))
        decided = joined((run / MARKDOWN).read_text(), _claims(run), _claims(later) if later else [])
        between(DOCUMENT, BEGIN, END, decided)
        between(DOCUMENT, *FIGURES, f"\n{figures(run, later, numbers)}")
    except (VeraxError, OSError) as error:
        print(f"reproduction: {error}", file=sys.stderr)
        return 2
    print(f"Filled {DOCUMENT}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
