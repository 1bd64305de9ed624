"""The terminal: what others wrote, as names of files and methods, is shown there and never obeyed."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

_KEPT = "\n\t"
_JOINERS = "\u200c\u200d"  # part of how some scripts and emoji are written


def shown(text: str) -> str:
    """A text without what would steer a terminal or turn the direction of reading around.

    Control characters go, of which escape sequences are made, and marks that nobody sees; what cannot be
    encoded, as in names of files that are not Unicode, becomes a question mark.
    """
    if text.isascii() and text.isprintable():
        return text
    kept = (c for c in text if c in _KEPT or c in _JOINERS or unicodedata.category(c) not in ("Cc", "Cf"))
    return "".join(kept).encode("utf-8", "replace").decode()


class Terminal(Console):
    """A console whose texts are `shown`; colours are its own."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The pieces of something that is printed."""
        for piece in super().render(renderable, options):
            yield piece if piece.control else Segment(shown(piece.text), piece.style)
