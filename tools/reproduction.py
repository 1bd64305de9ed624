"""Put the claims of a run into docs/reproduction.md: `python tools/reproduction.py RUN`."""

from __future__ import annotations

import sys
from pathlib import Path

from verax.errors import VeraxError
from verax.reproductions.smerf.page import fill

DOCUMENT = Path(__file__).parent.parent / "docs" / "reproduction.md"


def main(arguments: list[str]) -> int:
    """Fill the document from the run folder that is named."""
    if len(arguments) != 1:
        print("usage: python tools/reproduction.py RUN", file=sys.stderr)
        return 2
    try:
        fill(DOCUMENT, arguments[0])
    except VeraxError as error:
        print(f"reproduction: {error}", file=sys.stderr)
        return 2
    print(f"Filled {DOCUMENT}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
