"""Put the claims and figures of a run into docs/reproduction.md.

    python tools/reproduction.py RUN
    python tools/reproduction.py RUN LATER 11,28

A later run decides the claims that the first could not test, and gives the figures with these numbers.
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from PIL import Image

from verax.errors import VeraxError
from verax.files import write_atomically
from verax.reproductions.outputs import between
from verax.reproductions.smerf.figures.catalogue import CATALOGUE
from verax.reproductions.smerf.page import BEGIN, END, MARKDOWN, fill

DOCS = Path(__file__).parent.parent / "docs"
DOCUMENT = DOCS / "reproduction.md"
FIGURES = ("<!-- figures:begin -->", "<!-- figures:end -->")
_UNTESTED = "not testable"
_VERDICT = re.compile(r"\*\*(holds|does not hold|cannot hold|not testable)\*\*")
_WIDTH, _COLOURS = 1300, 48  # drawings need few colours, and pages should stay light


def small(picture: Path) -> bytes:
    """A picture for the web."""
    image = Image.open(picture).convert("RGB")
    if image.width > _WIDTH:
        image = image.resize((_WIDTH, round(image.height * _WIDTH / image.width)), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.quantize(_COLOURS, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def joined(first: str, later: str) -> str:
    """The claims of a run in Markdown; those that it could not test as a later run decides them."""
    rows = {cells[1]: cells for cells in map(_cells, later.splitlines()) if len(cells) == 5}
    lines = []
    for line in first.splitlines():
        cells = _cells(line)
        found = rows.get(cells[1]) if len(cells) == 5 and _UNTESTED in cells[3] else None
        if found is not None and _UNTESTED not in found[3]:
            line = f"|{found[1]}| Second run: {found[2].strip()} |{found[3]}|"
        lines.append(line)
    text = "\n".join(lines) + "\n"
    verdicts = [_VERDICT.search(cells[3]) for cells in map(_cells, lines) if len(cells) == 5]
    words = [found[1] for found in verdicts if found is not None]

    def counted(match: re.Match[str]) -> str:
        return f"{words.count(match[2])} {match[2]}"

    head, start, rest = text.partition(" claims: ")
    counts, end, rest = rest.partition(".**")
    return head + start + re.sub(r"(\d+) ([a-z ]+)", counted, counts) + end + rest


def _cells(line: str) -> list[str]:
    return line.split("|")


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
        fill(DOCUMENT, run)
        if len(arguments) == 3:
            later, numbers = Path(arguments[1]), tuple(arguments[2].split(","))
            both = [(folder / MARKDOWN).read_text() for folder in (run, later)]
            between(DOCUMENT, BEGIN, END, joined(*both))
        between(DOCUMENT, *FIGURES, f"\n{figures(run, later, numbers)}")
    except VeraxError as error:
        print(f"reproduction: {error}", file=sys.stderr)
        return 2
    print(f"Filled {DOCUMENT}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
