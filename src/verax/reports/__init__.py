"""Reports: figures, the gallery and the page that a run is read from.

The look that they share is here. Nothing touches pyplot, so drawing keeps no state between figures and
needs no display. Colours are told apart by colour-blind readers, and what a colour says is also said by a
shape, a hatch or a word.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from markupsafe import Markup

from verax.studies.leaderboards import ORACLE, UNRANKED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER, INK, MUTED, RULE = "#fffffe", "#1c2128", "#5c6570", "#d5dae0"
METHOD, BACKGROUND = "#1f5fae", "#c5cbd3"
FOCUS, AVOID, OTHER = "#2b8fd9", "#e8701a", "#a778c4"
_DARK = {
    PAPER: "none",
    INK: "#e8ebef",
    MUTED: "#a3adb8",
    RULE: "#3a424c",
    METHOD: "#7db8ff",
    BACKGROUND: "#56606c",
}
"""What the colours become on a dark page; the rest is readable on both."""

_STYLE: Any = {
    "font.size": 10,
    "text.parse_math": False,  # a label may hold a dollar sign
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": RULE,
    "xtick.color": MUTED,
    "ytick.color": RULE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": INK,
    "figure.facecolor": PAPER,
    "axes.facecolor": "none",
    "legend.frameon": False,
    "legend.fontsize": 9,
    "hatch.color": "#ffffff",
    "hatch.linewidth": 0.8,
    "svg.fonttype": "path",
    "svg.hashsalt": "verax",  # the same run gives the same file
}


_PLACES = re.compile(r'\b(?:d|x|y)="[^"]*"|translate\([^)]*\)')
"""Positions in an SVG file; hundredths of a point are enough for them, but not for scales."""


@contextmanager
def style() -> Iterator[None]:
    """The look of all figures; restores what was set before."""
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
        yield


def settle(figure: Figure) -> None:
    """Lay a figure out once, and not again for every format."""
    if figure.get_layout_engine() is None:
        return
    with style():
        figure.draw_without_rendering()
    figure.set_layout_engine("none")


def svg(figure: Figure, dpi: int | None = None) -> bytes:
    """The figure as a vector picture, without comments and digits that nobody can see.

    Args:
        figure: what is drawn.
        dpi: of the pictures in it.
    """
    buffer = io.StringIO()
    with style():
        dots: Any = "figure" if dpi is None else dpi
        figure.savefig(buffer, format="svg", dpi=dots, metadata={"Date": None, "Creator": "verax"})
    text = re.sub(r"<!--.*?-->", "", buffer.getvalue(), flags=re.S)
    text = _PLACES.sub(lambda found: re.sub(r"(?<=\.\d\d)\d+", "", found[0]), text)
    return re.sub(r"\n\s*", "\n", text).encode()


def png(figure: Figure, dpi: int = 150) -> bytes:
    """The figure as pixels."""
    buffer = io.BytesIO()
    with style():
        figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": "verax"})
    return buffer.getvalue()


def themed(picture: bytes, dark: bool) -> bytes:
    """A vector picture for a light or a dark page, without paper of its own."""
    text = picture.decode()
    for colour, replacement in (_DARK if dark else {PAPER: "none"}).items():
        text = text.replace(colour, replacement)
    return text.encode()


_HOST = {
    PAPER: "none",
    INK: "var(--jp-content-font-color1, currentcolor)",
    MUTED: "var(--jp-content-font-color2, color-mix(in srgb, currentcolor 75%, transparent))",
    RULE: "var(--jp-border-color1, color-mix(in srgb, currentcolor 30%, transparent))",
    METHOD: "var(--jp-brand-color1, #3a7fd0)",  # can be seen on white and on black
    BACKGROUND: f"var(--jp-border-color1, {BACKGROUND})",
}
"""What the colours become inside somebody else's page: Jupyter's, or those of the text around them."""


def inline(figure: Figure, alt: str) -> Markup:
    """The figure as an SVG element that takes its colours from the page, dark ones included."""
    text = svg(figure, dpi=144).decode()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.S)
    for colour, replacement in _HOST.items():
        text = text.replace(colour, replacement)
    wide = round(figure.get_figwidth() * 96)
    head = Markup('<svg role="img" aria-label="{}" style="width:{}px;max-width:100%;height:auto"').format(
        alt, wide
    )
    opening, _, rest = text.partition(">")
    kept = re.sub(r' (?:width|height)="[^"]*"', "", opening.removeprefix("<svg"))
    return Markup(f"{head}{kept}>{rest}")  # matplotlib's own text: names in it are drawn, not written


def kind(method: str) -> str:
    """What a row stands for: "method", "control" or "oracle"."""
    return "oracle" if method == ORACLE else "control" if method in UNRANKED else "method"


def short(label: str, width: int = 30) -> str:
    """A label that fits beside an axis; what is cut is its middle, since labels often differ at the end."""
    plain = " ".join("".join(c if c.isprintable() else " " for c in label).split())
    end = width // 2 - 1
    return plain if len(plain) <= width else f"{plain[: width - end - 1]}…{plain[-end:]}"


def folded(label: str, width: int) -> str:
    """A label in one line or two, parted where it has a hyphen or a space; only what is longer is cut."""
    plain = short(label, 10 * width)
    places = [i + 1 for i, c in enumerate(plain[:width]) if c in " -/_,"]
    if len(plain) <= width or not places:
        return short(plain, width)
    return f"{plain[: places[-1]].rstrip()}\n{short(plain[places[-1] :], width)}"


def task_labels(tasks: Sequence[str]) -> list[str]:
    """Task names without their common folder."""
    folders = {name.partition("/")[0] for name in tasks if "/" in name}
    shared = len(folders) == 1 and all("/" in name for name in tasks)
    return [short(name.partition("/")[2] if shared else name, 24) for name in tasks]


def number(value: float, low: float, high: float, digits: int = 3) -> str:
    """A value with its interval, where it has one; a dash where there is no value."""
    if not math.isfinite(value):
        return "–"
    if not (math.isfinite(low) and math.isfinite(high)):
        return f"{value:.{digits}f}"
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def names(words: Sequence[str]) -> str:
    """Words as people list them."""
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]
