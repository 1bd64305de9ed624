"""`verax.show`: inputs, truth outlines and signed maps side by side, in the colours of the gallery."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from markupsafe import Markup
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from verax.cases import Cases
from verax.errors import InvalidInput, InvalidParameter, VeraxError
from verax.files import make_folder, write_atomically
from verax.methods.limits import whole_from
from verax.metrics.scoring import score
from verax.reports import atlas, gallery, inline, png, short, style, svg
from verax.studies.leaderboards import HEADLINES
from verax.studies.runs import Run
from verax.tasks import task as find_task

MOST = 8
"""Cases that are shown unless more are asked for."""

_SIDE = 320  # pixels of a picture's longer side
_CELL = 1.35  # inches
_ACROSS = 6  # inputs side by side, where there is no map
_SHORT = 21  # letters of a name that stand level above a picture
_KINDS = (".png", ".svg", ".html")
OUTLINES = "Blue line: what the reasoning uses (focus). Dashed orange line: objects that it ignores (avoid)."
COLOURS = (
    "Green is positive (it speaks for the output), purple negative, each map relative to its strongest "
    "value; colours follow the square root, so that weak values can be seen."
)
Maps = Tensor | NDArray[Any] | Mapping[str, Tensor | NDArray[Any]]


@dataclass(frozen=True)
class Tile:
    """One picture ``(H, W, 3)`` with its name and what stands under it."""

    name: str
    caption: str
    pixels: gallery.Pixels


@dataclass(frozen=True)
class Picture:
    """What `show` drew; notebooks show it, and `save` keeps it.

    Attributes:
        rows: a title and tiles for each case, all rows with the same names.
        legend: what lines and colours mean, and how many cases are not shown.
        cases: how many cases are shown; those without maps stand side by side, several in a row.
        given: how many cases there were.
    """

    rows: tuple[tuple[str, tuple[Tile, ...]], ...]
    legend: str
    cases: int
    given: int

    @cached_property
    def figure(self) -> Figure:
        """The picture as a matplotlib figure."""
        tiles = self.rows[0][1]
        tall, wide = tiles[0].pixels.shape[:2]
        width, gap, caption, left, top = _CELL, 0.12, 0.22, 0.45, 0.35
        height = width * tall / wide
        slanted = any(len(tile.name) > _SHORT for tile in tiles)
        top += 0.55 if slanted else 0.0
        size = (
            left + len(tiles) * (width + gap) + (0.6 if slanted else 0.0),
            top + len(self.rows) * (height + caption),
        )
        with style():
            drawn = Figure(figsize=size)
            axes = drawn.add_axes((0, 0, 1, 1))
            axes.set_axis_off()
            for down, (title, line) in enumerate(self.rows):
                upper = top + down * (height + caption)
                words = short(title, max(8, round(height * 14)))
                axes.text(
                    0.25, upper + height / 2, words, rotation=90, ha="center", va="center", fontsize=7.5
                )
                for column, tile in enumerate(line):
                    start = left + column * (width + gap)
                    extent = (start, start + width, upper + height, upper)
                    axes.imshow(tile.pixels, extent=extent, interpolation="nearest")
                    middle = start + width / 2
                    axes.text(
                        middle, upper + height + 0.1, tile.caption, ha="center", va="center", fontsize=8
                    )
                    if down == 0 and slanted:
                        axes.text(
                            start + 0.1, upper - 0.07, short(tile.name), rotation=30, fontsize=8, va="bottom"
                        )
                    elif down == 0:
                        axes.text(middle, upper - 0.1, tile.name, ha="center", va="bottom", fontsize=8)
            axes.set(xlim=(0, size[0]), ylim=(size[1], 0), aspect="auto")
        return drawn

    def save(self, path: str | Path) -> Path:
        """Write a .png, .svg or .html file; gives its path."""
        where = Path(path).expanduser()
        if where.suffix.lower() not in _KINDS:
            raise InvalidParameter(
                f"A picture is saved as one of {', '.join(_KINDS)}, not as {where.name!r}."
            )
        make_folder(where.absolute().parent)
        match where.suffix.lower():
            case ".png":
                content = png(self.figure)
            case ".svg":
                content = svg(self.figure)
            case _:
                content = f"<!doctype html><meta charset=utf-8>{self._repr_html_()}".encode()
        write_atomically(where, content)
        return where

    def _repr_html_(self) -> str:
        names = ", ".join(tile.name or tile.caption for tile in self.rows[0][1])
        return str(
            Markup(
                '<figure style="margin:0">{}'
                '<figcaption style="font-size:0.85em;max-width:82ch">{}</figcaption></figure>'
            ).format(inline(self.figure, f"Pictures of cases: {names}"), self.legend)
        )

    def __repr__(self) -> str:
        number = f"{self.cases} of {self.given}" if self.cases < self.given else str(self.cases)
        each = 1 if self.cases != len(self.rows) else len(self.rows[0][1])
        cases = f"{number} case{'s' * (self.given != 1)}"
        return f"Picture({cases}, {each} picture{'s' * (each != 1)} of each)"


def show(
    maps: Maps | Cases | None,
    cases: Cases | Tensor | NDArray[Any] | None = None,
    *,
    titles: Sequence[str] | None = None,
    scores: bool = True,
    most: int = MOST,
) -> Picture:
    """Draw inputs, truth outlines and maps side by side.

    Args:
        maps: what `explain` gave: attributions with the shape of the inputs or ``(N, H, W)``; several of
            them by their names, ``{"gradient": maps, ...}``; or None for the cases alone.
        cases: the cases that were explained; ``show(cases)`` shows them alone. Of own inputs: a tensor or an
            array ``(N, C, H, W)`` or ``(N, D)``, which has no truth and no scores; pictures that are not in
            [0, 1], as normalised ones, are stretched to it.
        titles: a word for each case, such as its label (default: the scene of its bucket; its number as a
            bucket where the task is not known by name, and as a case where the task has one bucket alone).
        scores: say the focus-share (of vectors the correlation with the truth) under each map.
        most: how many cases are shown: the first ones.

    Returns:
        A picture that notebooks show and `.save(path)` keeps.
    """
    if isinstance(maps, Cases) and cases is None:
        maps, cases = None, maps
    if isinstance(maps, Run):
        raise InvalidInput(
            "show draws maps of cases, show(maps, cases): a run shows itself as the last line of a "
            "notebook's cell, and run.report() writes its page."
        )
    if cases is None or isinstance(maps, Cases):
        raise InvalidInput(
            "show needs the maps and what was explained: show(maps, cases), or show(maps, inputs) of yours."
        )
    given = cases.inputs if isinstance(cases, Cases) else _own(cases)
    named = {} if maps is None else dict(maps) if isinstance(maps, Mapping) else {"map": maps}
    if len(given) == 0:
        raise InvalidInput("There are no cases to show.")
    whole_from(1).check(most, "most")
    if titles is not None and len(titles) != len(given):
        raise InvalidInput(f"There are {len(titles)} titles for {len(given)} cases.")
    count = min(most, len(given))
    checked = {str(name): _checked(name, values, given)[:count] for name, values in named.items()}
    some = cases[:count].to("cpu") if isinstance(cases, Cases) else given[:count]
    inputs = some.inputs if isinstance(some, Cases) else some
    if titles is not None:
        labels = [str(getattr(title, "item", lambda title=title: title)()) for title in titles][:count]
    else:
        labels = _scenes(some) if isinstance(some, Cases) else [f"input {n}" for n in range(1, count + 1)]
    judged = scores and isinstance(some, Cases)
    under = {
        name: _scores(values, some) if judged and isinstance(some, Cases) else [""] * count
        for name, values in checked.items()
    }
    draw = _pictures if inputs.ndim == 4 else _vectors
    lines = list(draw(some, checked, under))
    dropped = [f"{count} of {len(given)} cases shown."] if count < len(given) else []
    outlines = [OUTLINES] if inputs.ndim == 4 and isinstance(some, Cases) else []
    if len(lines[0]) == 1:  # inputs alone stand side by side
        alone = [replace(line[0], name="", caption=label) for line, label in zip(lines, labels, strict=True)]
        parts = [alone[first : first + _ACROSS] for first in range(0, len(alone), _ACROSS)]
        legend = " ".join([*outlines, *dropped])
        return Picture(tuple(("", tuple(part)) for part in parts), legend, count, len(given))
    words = [*outlines, COLOURS]
    if checked and judged and isinstance(some, Cases):
        words.append(f"Under each map: its {_headline(some)[1]}.")
    rows = tuple(zip(labels, lines, strict=True))
    return Picture(rows, " ".join([*words, *dropped]), count, len(given))


def _headline(cases: Cases) -> tuple[str, str]:
    """The protocol and the score that stand for it."""
    protocol = "exact" if cases.inputs.ndim == 2 else "sound"
    return protocol, HEADLINES[protocol]


def _scenes(cases: Cases) -> list[str]:
    """What is in each case, where its task can say it, or its bucket; of the only one there is: the case."""
    groups = cases.group.tolist()
    try:
        task = find_task(cases.task)
    except VeraxError:
        return [f"bucket {group}" for group in groups]
    if len(task.groups) == 1:
        return [f"case {number}" for number in range(1, len(groups) + 1)]
    return [str(task.describe(group)) for group in groups]


def _numbers(values: object, noun: str) -> Tensor:
    """Numbers as a tensor; what holds none is refused in one sentence."""
    try:
        found = torch.as_tensor(values if isinstance(values, Tensor) else np.asarray(values))
        return found.detach().cpu().double()
    except (TypeError, ValueError, RuntimeError):
        raise InvalidInput(
            f"{noun} must be a tensor or an array of numbers, not {type(values).__name__}."
        ) from None


def _own(inputs: object) -> Tensor:
    """Inputs that belong to no task."""
    found = _numbers(inputs, "What was explained, if not cases,")
    if found.ndim not in (2, 4):
        raise InvalidInput(
            f"Inputs are pictures (samples, channels, height, width) or vectors (samples, elements), not of "
            f"shape {tuple(found.shape)}."
        )
    return found


def _checked(name: object, values: object, inputs: Tensor) -> Tensor:
    """One number for each place: ``(N, H, W)`` or ``(N, D)``."""
    found, shape = _numbers(values, f"Maps {str(name)!r}"), tuple(inputs.shape)
    if tuple(found.shape) == shape:
        return found.sum(1) if found.ndim == 4 else found
    if len(shape) == 4 and tuple(found.shape) == (shape[0], *shape[2:]):
        return found
    raise InvalidInput(
        f"Maps {str(name)!r} of shape {tuple(found.shape)} do not fit inputs of shape {shape}."
    )


def _scores(values: Tensor, cases: Cases) -> list[str]:
    """The headline score of each map; empty where it has none."""
    protocol, metric = _headline(cases)
    column = score(values, cases, protocol)[metric]
    return ["no focus" if value != value else f"{value:.2f}" for value in column.tolist()]


def _scaled(values: Tensor) -> NDArray[np.float64]:
    """Values relative to their largest magnitude."""
    finite = np.nan_to_num(values.numpy(), nan=0.0, posinf=0.0, neginf=0.0)
    peak = np.abs(finite).max(initial=0.0)
    scaled: NDArray[np.float64] = finite / peak if peak else finite
    return scaled


def _photograph(pixels: Tensor) -> gallery.Pixels:
    """A picture ``(C, H, W)`` of any range as colours; of channels that are not three, the mean."""
    three = pixels if len(pixels) == 3 else pixels.mean(0, keepdim=True).expand(3, -1, -1)
    shown = torch.nan_to_num(three)
    low, high = float(shown.min()), float(shown.max())
    if low < 0 or high > 1:
        shown = (shown - low) / (high - low if high > low else 1)
    levels = (shown.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0)
    return np.ascontiguousarray(levels.numpy())


def _inputs(some: Cases | Tensor) -> Iterator[tuple[str, gallery.Pixels]]:
    """Pictures with their names; those of cases with the outlines of the truth."""
    if not isinstance(some, Cases):
        yield from (("input", _photograph(pixels)) for pixels in some)
        return
    inputs = (some.inputs.clamp(0, 1) * 255).round().to(torch.uint8).numpy()
    focus, avoid = some.truth.focus.numpy(), some.truth.avoid.numpy()
    for pixels, used, ignored in zip(inputs, focus, avoid, strict=True):
        yield "input and truth", gallery.with_truth(pixels, used, ignored)


def _pictures(
    some: Cases | Tensor, maps: Mapping[str, Tensor], scores: Mapping[str, list[str]]
) -> Iterator[tuple[Tile, ...]]:
    for place, (word, pixels) in enumerate(_inputs(some)):
        picture = Image.fromarray(pixels)
        picture.thumbnail((_SIDE, _SIDE), Image.Resampling.LANCZOS)
        tiles = [
            Tile(name, scores[name][place], gallery.palette()[gallery.levels(_scaled(values[place]))])
            for name, values in maps.items()
        ]
        yield Tile(word, "", np.asarray(picture)), *tiles


def _vectors(
    some: Cases | Tensor, maps: Mapping[str, Tensor], scores: Mapping[str, list[str]]
) -> Iterator[tuple[Tile, ...]]:
    """Vectors on their grid, where the task has one; otherwise as fields, row by row."""
    inputs = some.inputs if isinstance(some, Cases) else some
    cells, shape = _places(some)
    blank = [""] * len(inputs)
    shown = [("input field", inputs, blank)]
    if isinstance(some, Cases) and some.truth.values is not None:
        shown.append(("truth", some.truth.values, blank))
    shown += [(name, values, scores[name]) for name, values in maps.items()]
    for place in range(len(inputs)):
        yield tuple(
            Tile(name, captions[place], atlas.raster(values[place].numpy(), cells, shape))
            for name, values, captions in shown
        )


def _places(some: Cases | Tensor) -> tuple[NDArray[Any], tuple[int, int]]:
    try:
        grid = getattr(find_task(some.task), "grid", None) if isinstance(some, Cases) else None
    except VeraxError:
        grid = None
    count = (some.inputs if isinstance(some, Cases) else some).shape[1]
    if grid is not None and len(grid) == count:
        return grid.cells.numpy(), grid.shape
    side = int(np.ceil(np.sqrt(count)))
    return np.stack(np.divmod(np.arange(count), side), 1), (-(-count // side), side)
