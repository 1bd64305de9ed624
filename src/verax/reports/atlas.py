"""The gallery of vector tasks on a grid: inputs, truth and maps on latitudes and longitudes, land in grey."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from verax.errors import MissingFile, WeightsError
from verax.reports import MUTED, RULE, gallery, short, style

if TYPE_CHECKING:
    from torch import Tensor

    from verax.studies.runs import Run

LAND = (200, 200, 200)
ACROSS = 4
_CHARTS = 6  # keeps the page small however many tasks there are


@dataclass(frozen=True)
class Plot:
    """One map in colour ``(R, C, 3)`` with its name and score."""

    name: str
    score: str
    picture: NDArray[np.uint8]


@dataclass(frozen=True)
class Chart:
    """One case: its input, its truth, and what every method says about it.

    Attributes:
        task: its name.
        network: that was explained.
        seed: of the network's training.
        sample: the id of the case.
        plots: the maps.
        extent: west, east, south and north edge in degrees; None where the grid is merely numbered.
        edges: where the columns end, from west to east, and the rows, from north to south, in degrees; None
            where all are equally wide, or the grid is merely numbered.
    """

    task: str
    network: str
    seed: int
    sample: int
    plots: tuple[Plot, ...]
    extent: tuple[float, float, float, float] | None
    edges: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None


def raster(values: NDArray[Any], cells: NDArray[Any], shape: tuple[int, int]) -> NDArray[np.uint8]:
    """A vector ``(D,)`` in colour on its grid ``(R, C, 3)``, relative to its largest magnitude, land grey."""
    finite = np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    peak = np.abs(finite).max(initial=0.0)
    picture = np.empty((*shape, 3), dtype=np.uint8)
    picture[:] = LAND
    picture[cells[:, 0], cells[:, 1]] = gallery.palette()[gallery.levels(finite / peak if peak else finite)]
    return picture


def edges_of(places: NDArray[Any]) -> NDArray[np.float64]:
    """Where the cells of an axis end, rising: half-way to the next, and as far beyond the outer ones."""
    rising = np.sort(places.astype(np.float64))
    if len(rising) == 1:
        return np.array([rising[0] - 0.5, rising[0] + 0.5])
    between = (rising[1:] + rising[:-1]) / 2
    return np.concatenate([[2 * rising[0] - between[0]], between, [2 * rising[-1] - between[-1]]])


def _even(edges: NDArray[np.float64]) -> bool:
    """Whether all cells of an axis are equally wide, but for the rounding of coordinates in files."""
    widths = np.diff(edges)
    return bool(np.ptp(widths) <= 1e-3 * widths.max())


def charts(run: Run) -> list[Chart]:
    """What there is to see of every vector task on a grid; empty where a run kept no maps."""
    try:
        cases = run.cases()
        there = [str(t["name"]) for t in run.manifest["tasks"] if f"{t['name']}|cells" in cases]
        maps = run.maps() if there else {}  # those of many pictures are large
    except (MissingFile, WeightsError):
        return []
    each = 3 if len(there) <= 2 else 1
    found: list[Chart] = []
    for task in there[: _CHARTS if each == 1 else 2]:
        subject = next((s for s in run.manifest["networks"] if s["task"] == task), None)
        if subject is not None:
            found += _of(run, task, subject, maps, cases, each)
    return found


def _of(
    run: Run,
    task: str,
    subject: dict[str, Any],
    maps: dict[str, Tensor],
    cases: dict[str, Tensor],
    count: int,
) -> list[Chart]:
    network, seed = str(subject["network"]), int(subject["seed"])
    held = {name: cases[f"{task}|{name}"].numpy() for name in ("cells", "latitudes", "longitudes")}
    shape = (len(held["latitudes"]), len(held["longitudes"]))
    extent, edges, across = None, None, held["longitudes"]
    if bool(cases[f"{task}|geographic"]):
        across = np.unwrap(across, period=360)  # an axis may cross the seam of 0 and 360
        east, north = edges_of(across), edges_of(held["latitudes"])
        extent = (float(east[0]), float(east[-1]), float(north[0]), float(north[-1]))
        edges = None if _even(east) and _even(north) else (east, north[::-1])
    along = -1 if held["latitudes"][0] < held["latitudes"][-1] else 1

    def drawn(values: NDArray[Any]) -> NDArray[np.uint8]:
        picture = raster(values, held["cells"], shape)
        return picture[::along, :: -1 if across[0] > across[-1] else 1]

    table = run.some([("exact", "pearson")])
    table = table[table["task"] == task]
    table = table[(table["network"] == network) & (table["seed"] == seed)]
    found = []
    ids = cases[f"{task}|ids"].tolist()
    for place, sample in enumerate(ids[:count]):
        scores = table[table["sample"] == sample].astype({"method": str}).set_index("method")["value"]
        plots = [
            Plot("input field", "", drawn(cases[f"{task}|inputs"][place].numpy())),
            Plot("truth", "", drawn(cases[f"{task}|values"][place].numpy())),
        ]
        for method in run.methods:
            stored = maps.get(f"{task}|{network}|{seed}|{method}")
            if stored is not None and method not in ("oracle", "input") and place < len(stored):
                score = scores.get(method)
                word = "" if score is None else f"r = {score:.2f}"
                plots.append(Plot(method, word, drawn(stored[place].float().numpy())))
        found.append(Chart(task, network, seed, int(sample), tuple(plots), extent, edges))
    return found


def figure(chart: Chart) -> Figure:
    """All maps of one case, with latitudes and longitudes where the grid has them."""
    rows = math.ceil(len(chart.plots) / ACROSS)
    tall, wide = chart.plots[0].picture.shape[:2]
    ratio = tall / wide if chart.extent is None else (chart.extent[3] - chart.extent[2]) / (
        chart.extent[1] - chart.extent[0]
    )  # fmt: skip
    height = 2.4 * min(max(ratio, 0.3), 1.5)
    with style():
        made = Figure(figsize=(2.4 * ACROSS, rows * (height + 0.42)), layout="constrained")
        axes = np.atleast_1d(made.subplots(rows, ACROSS)).flatten()
        for number, panel in enumerate(axes):
            if number >= len(chart.plots):
                panel.set_axis_off()
                continue
            plot = chart.plots[number]
            if chart.edges is None:
                panel.imshow(plot.picture, extent=chart.extent, interpolation="nearest", aspect="auto")
            else:  # in SVG cells would be shapes, one by one
                panel.pcolormesh(*chart.edges, plot.picture, rasterized=True)
            title = f"{short(plot.name, 24)}  {plot.score}" if plot.score else plot.name
            panel.set_title(title, fontsize=8.5, pad=3)
            for side in panel.spines.values():
                side.set(color=RULE)
            _ticks(panel, chart.extent, left=number % ACROSS == 0, below=number + ACROSS >= len(chart.plots))
    return made


def _ticks(axes: Any, extent: tuple[float, float, float, float] | None, *, left: bool, below: bool) -> None:
    """Degrees along the outer maps."""
    axes.set(xticks=[], yticks=[])
    if extent is None:
        return
    west, east, south, north = extent
    step = 90 if east - west > 180 else 30 if east - west > 60 else 10
    across = [d for d in range(-720, 721, step) if west < d < east]
    along = [d for d in range(-90, 91, 45 if north - south > 90 else 15) if south < d < north]
    axes.set_xticks(across, [f"{d % 360 if abs(d) >= 360 else d}°" for d in across] if below else [])
    axes.set_ylim(max(south, -90), min(north, 90))  # half a cell may lie beyond a pole
    axes.set_yticks(along, [f"{abs(d)}°{'S' if d < 0 else 'N' if d else ''}" for d in along] if left else [])
    axes.tick_params(length=2, labelsize=7, labelcolor=MUTED)
