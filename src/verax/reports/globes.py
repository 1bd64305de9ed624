"""Globes: where the cells of a vector task lie, so that the gallery can draw its maps on the Earth."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from verax.reports import gallery

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.float64]
Places = NDArray[np.int64]
Pixels = NDArray[np.uint8]


def edges(places: Floats) -> Floats:
    """Where the cells of an axis ``(n,)`` begin and end ``(n + 1,)``: half way to their neighbours.

    The first and the last cell reach as far to the outside as to the inside. A single cell is one wide.
    """
    if len(places) == 1:
        return np.array([places[0] - 0.5, places[0] + 0.5])
    middle = (places[:-1] + places[1:]) / 2
    ends = (2 * places[0] - middle[0], 2 * places[-1] - middle[-1])
    return np.concatenate([ends[:1], middle, ends[1:]])


def eastwards(longitudes: Floats) -> tuple[Places, Floats]:
    """The order of columns from west to east, and their longitudes in it, which never jump.

    Axes that go around the Earth in either direction keep their seam; others begin behind the widest gap.
    """
    steps = np.diff(unwrapped := np.unwrap(longitudes, period=360))
    if (steps > 0).all():
        return np.arange(len(longitudes)), unwrapped
    if (steps < 0).all():
        return np.arange(len(longitudes))[::-1], unwrapped[::-1]
    order = np.argsort(longitudes % 360)
    places = longitudes[order] % 360
    order = np.roll(order, -int(np.argmax(np.diff(places, prepend=places[-1] - 360))))
    return order, np.unwrap(longitudes[order] % 360, period=360)


@dataclass(frozen=True)
class Globe:
    """A grid with north up and east right.

    Attributes:
        rows: ``(D,)`` row of each cell in the drawing.
        columns: ``(D,)`` its column.
        latitudes: ``(R + 1,)`` edges of rows in degrees, from north to south.
        longitudes: ``(C + 1,)`` edges of columns in degrees, from west to east.
        degrees: False where rows and columns are merely numbered.
    """

    rows: Places
    columns: Places
    latitudes: Floats
    longitudes: Floats
    degrees: bool

    @classmethod
    def of(cls, cases: dict[str, Tensor], task: str) -> Globe:
        """The grid that a run keeps for a task."""
        cells, latitudes, longitudes = (
            cases[f"{task}|{part}"].numpy() for part in ("cells", "latitudes", "longitudes")
        )
        degrees = bool(cases[f"{task}|geographic"])
        if degrees:
            down = np.argsort(-latitudes, kind="stable")
            across, east = eastwards(longitudes)
            north, west = edges(latitudes[down]).clip(-90, 90), edges(east)
        else:
            down, across = np.arange(len(latitudes)), np.arange(len(longitudes))
            north, west = -np.arange(len(down) + 1.0), np.arange(len(across) + 1.0)
        return cls(np.argsort(down)[cells[:, 0]], np.argsort(across)[cells[:, 1]], north, west, degrees)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.latitudes) - 1, len(self.longitudes) - 1

    def ocean(self) -> NDArray[np.bool_]:
        """``(R, C)``; where there are cells."""
        mask = np.zeros(self.shape, dtype=bool)
        mask[self.rows, self.columns] = True
        return mask

    def levels(self, values: NDArray[Any]) -> Pixels:
        """Vectors ``(..., D)`` as places in the palette ``(..., R, C)``; land has the place after the last.

        Values are relative to the largest magnitude of their vector.
        """
        finite = np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
        peak = np.abs(finite).max(-1, keepdims=True, initial=0.0)
        maps = np.full((*values.shape[:-1], *self.shape), gallery.LEVELS, dtype=np.uint8)
        maps[..., self.rows, self.columns] = gallery.levels(finite / np.where(peak > 0, peak, 1))
        return maps

    def key(self) -> tuple[Any, ...]:
        """Equal for grids with the same cells in the same order: a field may run from south to north."""
        return self.data(), self.rows.tolist(), self.columns.tolist()

    def data(self) -> dict[str, Any]:
        """What the page needs to draw on it: edges, and rows of 1 (a cell) and 0 (land)."""
        return {
            "latitudes": [round(float(edge), 4) for edge in self.latitudes],
            "longitudes": [round(float(edge), 4) for edge in self.longitudes],
            "ocean": ["".join(map(str, row.astype(int))) for row in self.ocean()],
            "degrees": self.degrees,
        }


def png(levels: Pixels) -> bytes:
    """Places in the palette ``(H, W)`` as a PNG whose land is transparent."""
    image = Image.fromarray(levels)
    image.putpalette(gallery.palette().tobytes() + bytes(3))
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True, transparency=gallery.LEVELS)
    return buffer.getvalue()
