"""What a file holds, before anything is done to it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verax.errors import InvalidInput
from verax.tasks.climate import preprocessing as steps
from verax.tasks.climate.grid import Grid


@dataclass(frozen=True)
class Series:
    """Maps over time.

    Attributes:
        variable: its name.
        file: where it comes from.
        values: ``(time, R, C)`` float64, NaN on land.
        latitudes: ``(R,)``, or None where they are not known.
        longitudes: ``(C,)``, or None.
        months: ``(time,)`` calendar months, or None.
        years: ``(time,)``, or None.
        regular: whether the times are a month apart.
    """

    variable: str
    file: str
    values: NDArray[np.float64]
    latitudes: NDArray[Any] | None = None
    longitudes: NDArray[Any] | None = None
    months: NDArray[Any] | None = None
    years: NDArray[Any] | None = None
    regular: bool = True

    def __post_init__(self) -> None:
        for word, axis, size in (
            ("latitudes", self.latitudes, self.values.shape[1]),
            ("longitudes", self.longitudes, self.values.shape[2]),
        ):
            if axis is not None and axis.shape != (size,):
                raise InvalidInput(f"{self.what} has {size} places for {axis.size} {word}.")

    @property
    def what(self) -> str:
        """The variable and its file, as a sentence begins."""
        return f"The variable {self.variable!r} of {self.file}"

    def calendar(self, monthly: bool | None) -> NDArray[Any] | None:
        """The calendar month of each time, or None for plain samples.

        Args:
            monthly: what the user says; by default a series is monthly when its times are a month apart.
        """
        if monthly is None:
            monthly = self.months is not None and self.regular
        if not monthly:
            return None
        if self.months is not None:
            return self.months
        return np.arange(len(self.values)) % 12

    def coarser(self, step: int, by: str, share: float) -> Series:
        """Fewer points; rows from north to south."""
        values, rows, columns = steps.coarsen(self.values, step, by, share)

        def axis(of: NDArray[Any] | None, first: NDArray[np.int64]) -> NDArray[Any] | None:
            if of is None:
                return None
            if by == "points":
                return of[first]
            return np.add.reduceat(of, first) / np.diff(np.append(first, len(of)))

        latitudes, longitudes = axis(self.latitudes, rows), axis(self.longitudes, columns)
        if latitudes is not None and latitudes[0] < latitudes[-1]:
            values, latitudes = values[:, ::-1], latitudes[::-1]
        return replace(self, values=values, latitudes=latitudes, longitudes=longitudes)

    def grid(self, ocean: NDArray[np.bool_]) -> Grid:
        """The grid with these ocean cells."""
        if self.latitudes is None or self.longitudes is None:
            return Grid.numbered(ocean)
        return Grid.of(self.latitudes, self.longitudes, ocean)
