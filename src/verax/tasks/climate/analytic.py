"""The field that comes with the package: no data, the grid and the ocean of the published benchmark.

Correlations fall off with great-circle distance (a Matérn 3/2 function of the chord, which is positive
definite on the sphere), and the tropical Pacific swings together, as in El Niño.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from verax.tasks.climate.fields import Field
from verax.tasks.climate.grid import RADIUS, Grid

LATITUDES = np.arange(89.5, -90, -10)
LONGITUDES = np.arange(0.5, 360, 10)
REACH = 1800.0  # kilometres; the length scale of the kernel
NUGGET = 1e-4  # of the variance belongs to each cell alone, as rounded measurements do

# One hexadecimal number for each row from north to south, the leftmost bit first; 1 is ocean.
_OCEAN = (
    "fffffffff dfffffe43 ce0072ba3 a001f61ff 0003ff03f c40dff07f 0407ff9fe 0b4fffcfe 03fffffbe "
    "87cffff0f cffffff87 cff1fff8f dff0fff9f fffffffbf fffffffbf fffffffff e1007ffbf 0000fc008"
)


def ocean() -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """``(18, 36)``: the 458 points of the published benchmark."""
    return np.array([[bit == "1" for bit in f"{int(row, 16):036b}"] for row in _OCEAN.split()])


def _bump(grid: Grid, north: float, east: float, tall: float, wide: float) -> Tensor:
    """A pattern with its peak at a place and the given widths in degrees."""
    latitude = grid.latitudes[grid.cells[:, 0]]
    longitude = grid.longitudes[grid.cells[:, 1]]
    aside = (longitude - east + 180).remainder(360) - 180
    return torch.exp(-(((latitude - north) / tall) ** 2) / 2 - ((aside / wide) ** 2) / 2)


def nino(grid: Grid) -> Tensor:
    """``(D,)`` an ENSO-like pattern: a warm tongue, cold water west of it, warm Indian Ocean."""
    return (
        _bump(grid, 0, 235, 9, 35)
        - 0.5 * _bump(grid, 28, 170, 12, 28)
        - 0.5 * _bump(grid, -28, 195, 12, 30)
        + 0.4 * _bump(grid, -5, 70, 15, 20)
        + 0.25 * _bump(grid, 10, 320, 12, 20)
    )


@lru_cache(maxsize=1)
def analytic() -> Field:
    """The embedded field with 458 cells."""
    grid = Grid.of(LATITUDES, LONGITUDES, ocean())
    chord = 2 * RADIUS * torch.sin(grid.distances() / (2 * RADIUS))
    scaled = 3**0.5 * chord / REACH
    kernel = (1 + scaled) * torch.exp(-scaled)
    pattern = 1.5 * nino(grid)
    covariance = kernel + torch.outer(pattern, pattern)
    identity = torch.eye(len(grid), dtype=torch.float64)
    return Field.of("analytic", grid, covariance + NUGGET * covariance.diagonal() * identity)
