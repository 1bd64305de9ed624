"""Put what `verax reproduce sst` found into docs/climate.md: `python tools/climate.py RUN`."""

from __future__ import annotations

import sys
from pathlib import Path

from verax.errors import MissingFile, VeraxError
from verax.files import write_atomically
from verax.reproductions.outputs import between
from verax.reproductions.sst.figures import CATALOGUE
from verax.reproductions.sst.reproduction import COMMAND, MARKDOWN

DOCS = Path(__file__).parent.parent / "docs"
DOCUMENT = DOCS / "climate.md"
MARKS = ("<!-- sst:begin -->", "<!-- sst:end -->")


def text(run: Path) -> str:
    """What a run has to say, its figures copied beside the page."""
    source = run / MARKDOWN
    if not source.is_file():
        raise MissingFile(f"{str(run)!r} has no {MARKDOWN}; write it with {COMMAND!r}.")
    parts = [source.read_text()]
    for entry in CATALOGUE:
        picture = run / "figures" / f"{entry.file}.png"
        if picture.is_file():
            # as it is: with the few colours of a small picture strong reds and blues become one
            write_atomically(DOCS / "images" / "sst" / picture.name, picture.read_bytes())
            parts.append(
                f"### Figure {entry.number}: {entry.title}\n\nIn the paper: {entry.paper}\n\n"
                f"![Figure {entry.number}](images/sst/{picture.name})\n"
            )
    return "\n" + "\n".join(parts)


def main(arguments: list[str]) -> int:
    """Fill the document from the run folder that is named."""
    if len(arguments) != 1:
        print("usage: python tools/climate.py RUN", file=sys.stderr)
        return 2
    try:
        between(DOCUMENT, *MARKS, text(Path(arguments[0])))
    except VeraxError as error:
        print(f"climate: {error}", file=sys.stderr)
        return 2
    print(f"Filled {DOCUMENT}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
