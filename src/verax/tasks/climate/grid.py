"""A grid of latitudes and longitudes, and which of its points are ocean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from verax.errors import InvalidInput, InvalidParameter
from verax.tasks.climate.arrays import check_places

RADIUS = 6371.0
"""Of the Earth, in kilometres."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Rows of latitudes, columns of longitudes and the ocean cells among them.

    Vectors over a grid hold the D ocean cells only, row by row in the order of the file (north to south in
    published data).

    Attributes:
        latitudes: ``(R,)`` float64, in degrees north.
        longitudes: ``(C,)`` float64, in degrees east.
        cells: ``(D, 2)`` int64; row and column of each ocean cell.
        geographic: False where a file has no coordinates and rows and columns are merely numbered.
    """

    latitudes: Tensor
    longitudes: Tensor
    cells: Tensor
    geographic: bool = True

    @classmethod
    def of(
        cls, latitudes: ArrayLike, longitudes: ArrayLike, ocean: ArrayLike, geographic: bool = True
    ) -> Grid:
        """The grid whose ocean cells are those where the ``(R, C)`` mask is true."""
        if geographic:
            for word, axis in (("latitudes", latitudes), ("longitudes", longitudes)):
                check_places(np.asarray(axis), word, "The grid")
        rows, columns = (
            torch.from_numpy(np.array(x, dtype=np.float64)).flatten() for x in (latitudes, longitudes)
        )
        mask = torch.from_numpy(np.array(ocean, dtype=bool))
        if tuple(mask.shape) != (len(rows), len(columns)):
            raise InvalidInput(
                f"An ocean mask of shape {tuple(mask.shape)} does not fit {len(rows)} latitudes "
                f"and {len(columns)} longitudes."
            )
        if not mask.any():
            raise InvalidInput("The grid has no ocean cell: every value of every cell is missing.")
        return cls(rows, columns, mask.nonzero(), geographic)

    @classmethod
    def numbered(cls, ocean: ArrayLike) -> Grid:
        """A grid whose rows and columns are merely numbered."""
        rows, columns = np.shape(ocean)
        return cls.of(np.arange(rows), np.arange(columns), ocean, geographic=False)

    def __len__(self) -> int:
        """How many ocean cells there are."""
        return len(self.cells)

    def __repr__(self) -> str:
        rows, columns = self.shape
        return f"Grid({rows} x {columns}, {len(self)} ocean cells)"

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.latitudes), len(self.longitudes)

    @cached_property
    def ocean(self) -> Tensor:
        """``(R, C)`` bool; where the ocean cells are."""
        mask = torch.zeros(self.shape, dtype=torch.bool)
        mask[self.cells[:, 0], self.cells[:, 1]] = True
        return mask

    @property
    def rows(self) -> Tensor:
        """``(D,)`` the row of each ocean cell."""
        return self.cells[:, 0]

    @property
    def polar(self) -> Tensor:
        """``(D,)`` bool; cells within a degree of a pole, which are near copies of one another."""
        if not self.geographic:
            return torch.zeros(len(self), dtype=torch.bool)
        return self.latitudes[self.rows].abs() > 89

    def scatter(self, values: Tensor, land: float = math.nan) -> Tensor:
        """Maps ``(..., R, C)`` of vectors ``(..., D)``, with `land` where there is no ocean."""
        if values.shape[-1] != len(self):
            raise InvalidInput(
                f"A vector holds one value for each of the {len(self)} ocean cells of this grid, "
                f"and {values.shape[-1]} were given."
            )
        row, column = self.cells.to(values.device).unbind(1)
        maps = values.new_full((*values.shape[:-1], *self.shape), land)
        maps[..., row, column] = values
        return maps

    def gather(self, maps: Tensor) -> Tensor:
        """Vectors ``(..., D)`` of the ocean cells of maps ``(..., R, C)``."""
        if tuple(maps.shape[-2:]) != self.shape:
            raise InvalidInput(f"Maps of shape {tuple(maps.shape[-2:])} do not fit the grid {self.shape}.")
        row, column = self.cells.to(maps.device).unbind(1)
        return maps[..., row, column]

    def unit_vectors(self) -> Tensor:
        """``(D, 3)`` float64; where the ocean cells lie on the unit sphere."""
        if not self.geographic:
            raise InvalidParameter("This grid has no latitudes and longitudes, hence no distances.")
        latitude = torch.deg2rad(self.latitudes[self.cells[:, 0]])
        longitude = torch.deg2rad(self.longitudes[self.cells[:, 1]])
        flat = latitude.cos()
        return torch.stack([flat * longitude.cos(), flat * longitude.sin(), latitude.sin()], 1)

    def distances(self) -> Tensor:
        """``(D, D)`` float64; great-circle distances between ocean cells in kilometres."""
        at = self.unit_vectors()
        # half the chord instead of the cosine, whose digits are lost between near points
        chord = torch.cdist(at, at, compute_mode="donot_use_mm_for_euclid_dist")
        return 2 * RADIUS * torch.asin((chord / 2).clamp(max=1))

    def patches(self, size: int) -> Tensor:
        """``(D,)`` int64; the number of the square patch of `size` x `size` points that holds each cell.

        Patches without ocean have no number, so that they are counted as they are scored.
        """
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise InvalidParameter(f"A patch has a size of 1, 2, 3 ... points, not {size!r}.")
        across = -(-self.shape[1] // size)
        where = self.cells // size
        numbers: Tensor = torch.unique(where[:, 0] * across + where[:, 1], return_inverse=True)[1]
        return numbers

    def place(self, cell: Sequence[int] | Tensor) -> str:
        """A point in words, such as ``80.5S 290.5E``."""
        row, column = int(cell[0]), int(cell[1])
        if not self.geographic:
            return f"row {row} column {column}"
        latitude, longitude = float(self.latitudes[row]), float(self.longitudes[column])
        return f"{abs(latitude):g}{'S' if latitude < 0 else 'N'} {longitude:g}E"


def listing(grid: Grid, cells: Tensor, most: int = 3) -> str:
    """Some points in words: the first few and how many more."""
    words = "; ".join(grid.place(cell) for cell in cells[:most])
    return words if len(cells) <= most else f"{words} and {len(cells) - most} more"
