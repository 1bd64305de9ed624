"""The gallery: what the network saw, what it uses, and what every method says about it."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import binary_dilation, binary_fill_holes
from torch import Tensor

from verax.errors import MissingFile, WeightsError
from verax.reports import AVOID, FOCUS, folded, short, style
from verax.studies.leaderboards import HEADLINES

if TYPE_CHECKING:
    from verax.studies.runs import Run

Pixels = NDArray[np.uint8]
Mask = NDArray[np.bool_]

COLOURS = "PRGn"
"""Diverging, safe for colour-blind readers, and unlike the colours of focus and avoid."""

LEVELS = 101
"""Colours of a map; odd, so that zero has one of its own."""

ROWS = 4
_TILES = 500  # keeps the page small however many methods there are
_ZOOM = 5
_LINE = 14  # tiles side by side in a figure


@dataclass(frozen=True)
class Tile:
    """One map as places in the palette; `score` is its sample's score, or a word where there is none."""

    method: str
    score: str
    levels: Pixels | None

    @property
    def picture(self) -> Pixels:
        """The map in colour ``(H, W, 3)``."""
        assert self.levels is not None
        return palette()[self.levels]


@dataclass(frozen=True)
class Row:
    """One bucket: the input with its truth, and one tile for each method."""

    group: int
    scene: str
    truth: Pixels
    tiles: tuple[Tile, ...]


@dataclass(frozen=True)
class Panel:
    """One task, seen through its first network."""

    task: str
    network: str
    seed: int
    rows: tuple[Row, ...]


def palette() -> Pixels:
    """The colours of a map from -1 to 1: ``(levels, 3)``."""
    colours = mpl.colormaps[COLOURS](np.linspace(0, 1, LEVELS))[:, :3]
    return np.asarray((colours * 255).round(), dtype=np.uint8)


def levels(values: NDArray[Any]) -> Pixels:
    """A map of magnitude at most 1 as places in the palette; what is not finite counts as 0.

    Colours follow the signed square root: most maps have a few strong pixels beside which the others, which
    hold much of the mass, would look like nothing.
    """
    finite = np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0).clip(-1, 1)
    rooted = np.sign(finite) * np.sqrt(np.abs(finite))
    return np.asarray(((rooted + 1) / 2 * (LEVELS - 1)).round(), dtype=np.uint8)


def outline(mask: Mask, thickness: int, *, holes: bool = False) -> Mask:
    """The pixels just outside a mask; holes, as in letters, have no outline of their own unless asked for."""
    whole = mask if holes else binary_fill_holes(mask)
    return np.asarray(binary_dilation(whole, np.ones((3, 3)), thickness) & ~whole)


def with_truth(pixels: NDArray[Any], focus: Mask, avoid: Mask) -> Pixels:
    """An input ``(C, H, W)`` of bytes, enlarged, with solid focus and dashed avoid outlines."""
    channels = pixels if pixels.shape[0] == 3 else np.repeat(pixels.mean(0, keepdims=True), 3, 0)
    image = channels.astype(np.uint8).transpose(1, 2, 0).repeat(_ZOOM, 0).repeat(_ZOOM, 1)
    down, across = np.indices(image.shape[:2])
    dashes = (down + across) // 6 % 3 < 2
    for mask, colour, where in ((avoid, AVOID, dashes), (focus, FOCUS, np.ones_like(dashes))):
        large = mask.repeat(_ZOOM, 0).repeat(_ZOOM, 1)
        image[outline(large, _ZOOM + 1) & where] = tuple(bytes.fromhex(colour[1:]))
    return np.ascontiguousarray(image)


def png(picture: Pixels) -> bytes:
    """A picture ``(H, W, 3)``, or places in the palette ``(H, W)``, as a PNG."""
    image = Image.fromarray(picture)
    if picture.ndim == 2:
        image.putpalette(palette().tobytes())
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def select(focus: Mask, avoid: Mask, count: int) -> list[int]:
    """Which buckets to show: those with focus and avoid first, then those with a focus, evenly spread.

    Buckets without a focus have no score and are shown only where there are no others.
    """
    has_focus, has_avoid = focus.any((1, 2)), avoid.any((1, 2))
    chosen: list[int] = []
    orders = (has_focus & has_avoid, has_focus & ~has_avoid) if has_focus.any() else (~has_focus,)
    for wanted in orders:
        places = np.flatnonzero(wanted)
        free = min(count - len(chosen), len(places))
        if free > 0:
            chosen += places[np.linspace(len(places) - 1, 0, free).round().astype(int)].tolist()
    return sorted(chosen)


def kept_scores(run: Run, protocol: str, cases: dict[str, Tensor]) -> dict[tuple[Any, ...], float]:
    """(task, network, seed, method, group, sample) -> the score of a case whose map was kept."""
    kept = {
        (name.removesuffix("|ids"), group, sample)
        for name, ids in cases.items()
        if name.endswith("|ids")
        for group, sample in zip(
            cases[name.removesuffix("ids") + "group"].tolist(), ids.tolist(), strict=True
        )
    }
    table = run.some([(protocol, HEADLINES[protocol])])
    table = table[table["sample"].isin({sample for _, _, sample in kept})]
    names = [table[column].astype(str) for column in ("task", "network", "method")]
    return {
        (task, network, seed, method, group, sample): float(value)
        for task, network, method, seed, group, sample, value in zip(
            *names, table["seed"], table["group"], table["sample"], table["value"], strict=True
        )
        if (task, group, sample) in kept
    }


def panels(run: Run) -> list[Panel]:
    """What there is to see of every task; empty where a run kept no maps."""
    try:
        maps, cases = run.maps(), run.cases()
    except (MissingFile, WeightsError):
        return []
    manifest = run.manifest
    protocol = run.main
    scores = kept_scores(run, protocol, cases)
    methods = run.methods
    tasks = [task for task in manifest["tasks"] if f"{task['name']}|focus" in cases]  # vectors have an atlas
    count = max(1, min(ROWS, _TILES // max(1, len(tasks) * len(methods))))
    found = []
    for task in tasks:
        name = str(task["name"])
        subject = next((s for s in manifest["networks"] if s["task"] == name), None)
        inputs, focus, avoid, groups, ids = (
            cases[f"{name}|{part}"].numpy() for part in ("inputs", "focus", "avoid", "group", "ids")
        )
        if subject is None or inputs.ndim != 4:  # only pictures can be shown
            continue
        focus, avoid = focus.astype(bool), avoid.astype(bool)
        network, seed = str(subject["network"]), int(subject["seed"])
        rows = []
        for place in select(focus, avoid, count):
            group = int(groups[place])
            tiles = []
            for method in methods:
                stored = maps.get(f"{name}|{network}|{seed}|{method}")
                value = scores.get((name, network, seed, method, group, int(ids[place])))
                word = f"{value:.2f}" if value is not None else "wrong" if focus[place].any() else "no focus"
                if stored is None:
                    tiles.append(Tile(method, "failed", None))
                else:
                    tiles.append(Tile(method, word, levels(stored[place].float().numpy())))
            scene = str(task.get("groups", {}).get(str(group), f"bucket {group}"))
            truth = with_truth(inputs[place], focus[place], avoid[place])
            rows.append(Row(group, scene, truth, tuple(tiles)))
        found.append(Panel(name, network, seed, tuple(rows)))
    return found


def figure(panel: Panel) -> Figure:
    """The grid of one task as one picture: rows are buckets, columns the input and the methods."""
    tiles = len(panel.rows[0].tiles)
    lines = math.ceil(tiles / _LINE)
    across = min(tiles, _LINE)
    cell, gap, caption, title = 1.0, 0.12, 0.24, 0.3 if lines > 1 else 0.0
    step = cell + caption + gap + title
    width, height = (across + 1) * (cell + gap) + 1.6, len(panel.rows) * lines * step + 1.1
    with style():
        drawn = Figure(figsize=(width, height))
        drawn.suppressComposite = True  # many pictures in one would be resampled, which is slow
        axes = drawn.add_axes((0, 0, 1, 1))
        axes.set_axis_off()

        def place(column: int, line: int, name: str, score: str, picture: Pixels | None) -> None:
            left, top = 0.7 + column * (cell + gap), 1.05 + line * step
            if picture is not None:
                axes.imshow(picture, extent=(left, left + cell, top + cell, top), interpolation="none")
            axes.text(left + cell / 2, top + cell + 0.12, score, ha="center", va="center", fontsize=8)
            if lines > 1:
                words = folded(name, 17)
                axes.text(left + cell / 2, top - 0.04, words, ha="center", va="bottom", fontsize=6.5)
            elif line == 0:
                axes.text(left + 0.1, top - 0.07, short(name, 24), rotation=30, fontsize=8, va="bottom")

        for down, row in enumerate(panel.rows):
            middle = 1.05 + down * lines * step + cell / 2
            axes.text(0.4, middle, short(row.scene, 18), rotation=90, ha="center", va="center", fontsize=7.5)
            place(0, down * lines, "input and truth", "", row.truth)
            for number, tile in enumerate(row.tiles):
                line, column = divmod(number, _LINE)
                picture = None if tile.levels is None else tile.picture
                place(column + 1, down * lines + line, tile.method, tile.score, picture)
        axes.set(xlim=(0, width), ylim=(height, 0), aspect="auto")
    return drawn
