"""The gallery: what the network saw, what it uses, and what every method says about it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from verax.errors import MissingFile, WeightsError
from verax.studies.leaderboards import PAIRS, method_order

if TYPE_CHECKING:
    from verax.studies.runs import Run

Pixels = NDArray[np.uint8]

FOCUS, AVOID = "#2b8fd9", "#e8701a"
"""Readable on black and on white, and told apart by colour-blind readers; avoid is dashed as well."""

COLOURS = "PRGn"
"""Diverging, safe for colour-blind readers, and unlike the colours of focus and avoid."""

ROWS = 4
_TILES = 500  # keeps the page small however many methods there are
_LEVELS = 101  # odd, so that zero has a colour of its own
_ZOOM = 5
_STRIDE = 10**9  # TextBox ids are group * stride + index


@dataclass(frozen=True)
class Tile:
    """One map; `score` is its sample's score, or a word where there is none."""

    method: str
    score: str
    picture: Pixels | None


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


def _rgb(colour: str) -> tuple[int, int, int]:
    return tuple(bytes.fromhex(colour[1:]))  # type: ignore[return-value]


def palette() -> Pixels:
    """The colours of a map from -1 to 1: ``(levels, 3)``."""
    colours = mpl.colormaps[COLOURS](np.linspace(0, 1, _LEVELS))[:, :3]
    return (colours * 255).round().astype(np.uint8)


def levels(values: NDArray[Any]) -> Pixels:
    """A map scaled to a magnitude of at most 1 as places in the palette; what is not finite counts as 0."""
    finite = np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    return ((finite.clip(-1, 1) + 1) / 2 * (_LEVELS - 1)).round().astype(np.uint8)


def outline(mask: NDArray[np.bool_], thickness: int) -> NDArray[np.bool_]:
    """The pixels just outside a mask."""
    grown = np.pad(mask, thickness)
    for axis in (0, 1):
        grown = np.any([np.roll(grown, step, axis) for step in range(-thickness, thickness + 1)], axis=0)
    return np.asarray(grown[thickness:-thickness, thickness:-thickness] & ~mask)


def with_truth(pixels: NDArray[Any], focus: NDArray[np.bool_], avoid: NDArray[np.bool_]) -> Pixels:
    """An input ``(C, H, W)`` of bytes, enlarged, with solid focus and dashed avoid outlines."""
    grey = pixels.shape[0] not in (3,)
    image = (
        np.repeat(pixels.mean(0, keepdims=True).astype(np.uint8), 3, 0) if grey else pixels.astype(np.uint8)
    )
    image = image.transpose(1, 2, 0).repeat(_ZOOM, 0).repeat(_ZOOM, 1)
    down, across = np.indices(image.shape[:2])
    dashes = (down + across) // 6 % 3 < 2
    for mask, colour, where in ((avoid, AVOID, dashes), (focus, FOCUS, np.ones_like(dashes))):
        large = mask.repeat(_ZOOM, 0).repeat(_ZOOM, 1)
        image[outline(large, 4) & where] = _rgb(colour)
    return np.ascontiguousarray(image)


def png(picture: Pixels) -> bytes:
    """A picture as a PNG; maps, which have few colours, are stored as palette indices."""
    colours, places = np.unique(picture.reshape(-1, 3), axis=0, return_inverse=True)
    if len(colours) <= 256:
        image = Image.fromarray(places.reshape(picture.shape[:2]).astype(np.uint8), "P")
        image.putpalette(colours.tobytes())
    else:
        image = Image.fromarray(picture)
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def select(focus: NDArray[np.bool_], avoid: NDArray[np.bool_], count: int) -> list[int]:
    """Which buckets to show: those with focus and avoid first, then those with a focus, evenly spread."""
    has_focus, has_avoid = focus.any((1, 2)), avoid.any((1, 2))
    chosen: list[int] = []
    for wanted in (has_focus & has_avoid, has_focus & ~has_avoid, ~has_focus):
        places = np.flatnonzero(wanted)
        free = min(count - len(chosen), len(places))
        if free > 0:
            chosen += places[np.linspace(0, len(places) - 1, free).round().astype(int)].tolist()
    return sorted(chosen)


def first_samples(scores: pd.DataFrame, samples: int) -> dict[tuple[str, int], int]:
    """(task, group) -> the id of the first sample.

    A sample that the network got wrong may have left no row at all, so the smallest id seen is the first one
    only where all samples were seen, or where it is the one that the numbering of TextBox starts with.
    """
    found = {}
    seen = scores.groupby(["task", "group"], observed=True)["sample"].agg(["min", "nunique"])
    for (task, group), row in seen.iterrows():
        smallest, start = int(row["min"]), int(group) * _STRIDE
        if row["nunique"] >= samples or smallest == start:
            found[str(task), int(group)] = smallest
        elif 0 < smallest - start < samples:
            found[str(task), int(group)] = start
    return found


def _scores(run: Run, protocol: str, firsts: dict[tuple[str, int], int]) -> dict[tuple[Any, ...], float]:
    """(task, network, seed, group, method) -> the score of the first sample of the bucket."""
    table = run.scores[(run.scores["protocol"] == protocol) & (run.scores["metric"] == PAIRS[protocol][0])]
    keys = zip(
        table["task"].astype(str), table["network"].astype(str), table["seed"], table["group"],
        table["method"].astype(str), table["sample"], table["value"], strict=True,
    )  # fmt: skip
    return {tuple(key): value for *key, sample, value in keys if firsts.get((key[0], key[3])) == sample}


def panels(run: Run) -> list[Panel]:
    """What there is to see of every task; empty where a run kept no maps."""
    try:
        maps, cases = run.maps(), run.cases()
    except (MissingFile, WeightsError):
        return []
    manifest = run.manifest
    protocol = next(name for name in PAIRS if name in set(run.scores["protocol"].astype(str)))
    firsts = first_samples(run.scores, int(manifest["study"].get("samples", 1)))
    scores = _scores(run, protocol, firsts)
    seen = method_order(run.scores)
    methods = [str(entry["label"]) for entry in manifest["methods"] if entry["label"] in seen]
    colours = palette()
    tasks = [task for task in manifest["tasks"] if f"{task['name']}|inputs" in cases]
    count = max(1, min(ROWS, _TILES // max(1, len(tasks) * len(methods))))
    found = []
    for task in tasks:
        name = str(task["name"])
        subject = next((s for s in manifest["networks"] if s["task"] == name), None)
        inputs, focus, avoid, groups = (
            cases[f"{name}|{part}"].numpy() for part in ("inputs", "focus", "avoid", "group")
        )
        if subject is None or inputs.ndim != 4:
            continue
        network, seed = str(subject["network"]), int(subject["seed"])
        rows = []
        for place in select(focus.astype(bool), avoid.astype(bool), count):
            group = int(groups[place])
            tiles = []
            for method in methods:
                stored = maps.get(f"{name}|{network}|{seed}|{method}")
                if stored is None:
                    tiles.append(Tile(method, "failed", None))
                    continue
                value = scores.get((name, network, seed, group, method))
                lone = (
                    "no focus"
                    if not focus[place].any()
                    else "wrong"
                    if (name, group) in firsts
                    else "not known"
                )
                picture = colours[levels(stored[place].float().numpy())]
                tiles.append(Tile(method, lone if value is None else f"{value:.2f}", picture))
            scene = str(task.get("groups", {}).get(str(group), f"bucket {group}"))
            truth = with_truth(inputs[place], focus[place].astype(bool), avoid[place].astype(bool))
            rows.append(Row(group, scene, truth, tuple(tiles)))
        found.append(Panel(name, network, seed, tuple(rows)))
    return found


def figure(panel: Panel, shorten: Any = str) -> Figure:
    """The grid of one task as one picture: rows are buckets, columns the input and the methods.

    Args:
        panel: what to draw.
        shorten: makes a label fit.
    """
    columns = 1 + len(panel.rows[0].tiles)
    cell, gap, label = 1.0, 0.12, 0.24
    width = columns * (cell + gap) + 0.9
    height = len(panel.rows) * (cell + label + gap) + 1.15
    drawn = Figure(figsize=(width, height))
    axes = drawn.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    for down, row in enumerate(panel.rows):
        top = 1.1 + down * (cell + label + gap)
        axes.text(
            0.45,
            top + cell / 2,
            shorten(row.scene),
            rotation=90,
            ha="center",
            va="center",
            fontsize=7.5,
            wrap=True,
        )
        pictures: Sequence[tuple[str, str, Pixels | None]] = [
            ("input and truth", "", row.truth),
            *((tile.method, tile.score, tile.picture) for tile in row.tiles),
        ]
        for across, (title, score, picture) in enumerate(pictures):
            left = 0.8 + across * (cell + gap)
            if picture is not None:
                axes.imshow(picture, extent=(left, left + cell, top + cell, top), interpolation="nearest")
            axes.text(left + cell / 2, top + cell + 0.11, score, ha="center", va="center", fontsize=8)
            if down == 0:
                axes.text(left + 0.1, top - 0.08, shorten(title), rotation=30, fontsize=8, va="bottom")
    axes.set(xlim=(0, width), ylim=(height, 0), aspect="auto")
    return drawn
