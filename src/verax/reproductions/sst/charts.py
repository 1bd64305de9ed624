"""Maps on latitudes and longitudes, land in grey, with matplotlib alone."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.colors import Normalize
from numpy.typing import NDArray
from torch import Tensor

from verax.reports import MUTED, RULE
from verax.tasks.climate import Grid

LAND = "#bfc4c9"
COLOURS = "RdBu_r"


def raster(grid: Grid, values: Tensor | NDArray[Any]) -> NDArray[np.float64]:
    """A vector ``(D,)`` as a picture ``(R, C)`` with north above and NaN on land."""
    flat = torch.as_tensor(values, dtype=torch.float64)
    picture = np.full(grid.shape, np.nan)
    picture[grid.cells[:, 0], grid.cells[:, 1]] = flat.numpy()
    return picture if grid.latitudes[0] > grid.latitudes[-1] else picture[::-1]


def edges(places: Tensor) -> tuple[float, float]:
    """Where the first and the last cell of an axis end."""
    half = abs(float(places[1] - places[0])) / 2 if len(places) > 1 else 0.5
    return float(places.min()) - half, float(places.max()) + half


def draw(
    axes: Any,
    grid: Grid,
    values: Tensor | NDArray[Any],
    peak: float | None = None,
    *,
    left: bool = True,
    below: bool = True,
) -> Any:
    """Draw one map; colours are symmetric about 0, up to `peak` (default: its largest magnitude).

    Args:
        axes: where.
        grid: of the cells.
        values: ``(D,)``.
        peak: the magnitude that has the strongest colour.
        left: write latitudes.
        below: write longitudes.
    """
    picture = raster(grid, values)
    top = peak if peak is not None else float(np.nanmax(np.abs(picture)))
    west, east = edges(grid.longitudes)
    south, north = edges(grid.latitudes)
    shown = axes.imshow(
        np.ma.masked_invalid(picture),
        cmap=mpl.colormaps[COLOURS].with_extremes(bad=LAND),
        norm=Normalize(-(top or 1.0), top or 1.0),
        extent=(west, east, south, north),
        interpolation="nearest",
        aspect="auto",
    )
    axes.set(xlim=(west, east), ylim=(max(south, -90), min(north, 90)))
    if grid.geographic:
        across = [d for d in range(60, 360, 120) if west < d < east]
        along = [d for d in (-60, 0, 60) if south < d < north]
        axes.set_xticks(across, [f"{d}°E" for d in across] if below else [""] * len(across))
        axes.set_yticks(along, [_latitude(d) for d in along] if left else [""] * len(along))
    else:
        axes.set(xticks=[], yticks=[])
    axes.tick_params(length=2, labelsize=7.5, labelcolor=MUTED)
    for side in axes.spines.values():
        side.set(color=RULE)
    return shown


def _latitude(degrees: int) -> str:
    return "0°" if degrees == 0 else f"{abs(degrees)}°{'N' if degrees > 0 else 'S'}"


def colour_bar(figure: Any, shown: Any, axes: Any, label: str) -> None:
    """A slim colour bar beside one or several maps."""
    bar = figure.colorbar(shown, ax=axes, fraction=0.035, pad=0.015, aspect=24)
    bar.set_label(label, fontsize=8.5)
    bar.ax.tick_params(labelsize=7.5, length=2, labelcolor=MUTED)
    bar.outline.set_edgecolor(RULE)
