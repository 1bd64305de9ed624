"""Put the claims and figures of a run into docs/reproduction.md: `python tools/reproduction.py RUN`."""

from __future__ import annotations

import io
import sys
from pathlib import Path

from PIL import Image

from verax.errors import VeraxError
from verax.files import write_atomically
from verax.reproductions.outputs import between
from verax.reproductions.smerf.figures.catalogue import CATALOGUE
from verax.reproductions.smerf.page import fill

DOCS = Path(__file__).parent.parent / "docs"
DOCUMENT = DOCS / "reproduction.md"
FIGURES = ("<!-- figures:begin -->", "<!-- figures:end -->")
_WIDTH, _COLOURS = 1300, 48  # drawings need few colours, and pages should stay light


def small(picture: Path) -> bytes:
    """A picture for the web."""
    image = Image.open(picture).convert("RGB")
    if image.width > _WIDTH:
        image = image.resize((_WIDTH, round(image.height * _WIDTH / image.width)), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.quantize(_COLOURS, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def figures(run: Path) -> str:
    """All figures of a run, copied beside the page, as Markdown."""
    parts = []
    for entry in CATALOGUE:
        picture = run / "figures" / f"{entry.file}.png"
        if picture.is_file():
            write_atomically(DOCS / "images" / "smerf" / picture.name, small(picture))
            parts.append(
                f"### Figure {entry.number}: {entry.title}\n\nIn the paper: {entry.paper}\n\n"
                f"![Figure {entry.number}](images/smerf/{picture.name})\n"
            )
    return "\n".join(parts)


def main(arguments: list[str]) -> int:
    """Fill the document from the run folder that is named."""
    if len(arguments) != 1:
        print("usage: python tools/reproduction.py RUN", file=sys.stderr)
        return 2
    run = Path(arguments[0])
    try:
        fill(DOCUMENT, run)
        between(DOCUMENT, *FIGURES, f"\n{figures(run)}")
    except VeraxError as error:
        print(f"reproduction: {error}", file=sys.stderr)
        return 2
    print(f"Filled {DOCUMENT}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
