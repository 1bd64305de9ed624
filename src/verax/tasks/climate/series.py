"""What a file holds, before anything is done to it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verax.errors import InvalidInput
from verax.tasks.climate import preprocessing as steps
from verax.tasks.climate.arrays import check_places, check_whole
from verax.tasks.climate.grid import Grid


def unwrapped(longitudes: NDArray[Any]) -> NDArray[np.float64]:
    """Longitudes that go on beyond 360 (or below 0) where an axis crosses the seam."""
    return np.asarray(np.unwrap(longitudes.astype(np.float64), period=360))


def _means(axis: NDArray[Any], first: NDArray[np.int64]) -> NDArray[np.float64]:
    """The means of blocks of an axis, each of which begins at one of `first`."""
    return np.asarray(np.add.reduceat(axis, first) / np.diff(np.append(first, len(axis))))


def _round_means(longitudes: NDArray[Any], first: NDArray[np.int64]) -> NDArray[np.float64]:
    """Means around the globe: 359 and 1 lie about 0, not about 180; counted as the file counts them."""
    means = _means(unwrapped(longitudes), first)
    if longitudes.min() < -180 or longitudes.max() > 360:
        return means
    west = -180 if longitudes.min() < 0 else 0
    return np.asarray((means - west) % 360 + west)


@dataclass(frozen=True)
class Calendar:
    """When maps were.

    Attributes:
        months: ``(time,)`` calendar months.
        times: ``(time,)`` when each was, counted in months.
        notes: what is unusual about them, in sentences.
    """

    months: NDArray[Any]
    times: NDArray[Any]
    notes: tuple[str, ...] = ()


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
        days: ``(time,)`` days of the year, or None.
    """

    variable: str
    file: str
    values: NDArray[np.float64]
    latitudes: NDArray[Any] | None = None
    longitudes: NDArray[Any] | None = None
    months: NDArray[Any] | None = None
    years: NDArray[Any] | None = None
    days: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        if not self.values.size:
            raise InvalidInput(f"{self.what} has no values: its shape is {self.values.shape}.")
        for word, axis, size in (
            ("latitudes", self.latitudes, self.values.shape[1]),
            ("longitudes", self.longitudes, self.values.shape[2]),
        ):
            if axis is None:
                continue
            if axis.shape != (size,):
                raise InvalidInput(f"{self.what} has {size} places for {axis.size} {word}.")
            check_places(axis, word, self.what)

    @property
    def what(self) -> str:
        """The variable and its file, as a sentence begins."""
        return f"The variable {self.variable!r} of {self.file}"

    def calendar(self, monthly: bool | None) -> Calendar | None:
        """The calendar month and the time of each map, or None for plain samples.

        Months may be missing, and maps may stand in any order: means are those of calendar months, and
        trends are those of real time.

        Args:
            monthly: what the user says; by default a series with a calendar must be monthly.
        """
        if not monthly and (monthly is not None or self.months is None):
            return None
        if self.months is None:
            count = np.arange(len(self.values))
            return Calendar(count % 12 + 1, count, ("Months were counted from January on.",))
        check_whole(self.months, 1, 12, f"{self.what}: its months")
        times = self._counted(self.months)
        gaps = np.diff(np.sort(times))
        doubled = int((gaps == 0).sum())
        if doubled or np.median(gaps) != 1:
            if monthly is None:
                why = f"{doubled} share a month with another" if doubled else "most are further apart"
                raise InvalidInput(
                    f"{self.what} has times that are not a month apart ({why}): say monthly=true for "
                    "calendar-month anomalies without trend, or monthly=false for plain samples."
                )
            return Calendar(self.months, self._elapsed(times))
        missing = int(gaps.sum()) - len(gaps)
        what, verb = ("month", "is") if missing == 1 else ("months", "are")
        note = f"{missing} {what} between the first and the last {verb} missing."
        return Calendar(self.months, times, (note,) if missing else ())

    def _counted(self, months: NDArray[Any]) -> NDArray[np.float64]:
        """Months since the first one; where years are not known, from each to the next of that name."""
        if self.years is None:
            return np.append(0.0, np.cumsum(np.diff(months) % 12))
        check_whole(self.years, -100_000, 100_000, f"{self.what}: its years")
        count = 12.0 * self.years + months
        return np.asarray(count - count.min())

    def _elapsed(self, counted: NDArray[np.float64]) -> NDArray[Any]:
        """The best that is known of times that are not a month apart."""
        if self.years is None:
            return np.arange(len(counted))
        if self.days is None:
            return counted
        return np.asarray(12 * (self.years + self.days / 365.25))

    def coarser(self, step: int, by: str, share: float) -> Series:
        """Fewer points; rows and columns stay in the order of the file, as `verax.explain` takes them."""
        values, rows, columns = steps.coarsen(self.values, step, by, share)
        latitudes, longitudes = self.latitudes, self.longitudes
        if latitudes is not None:
            latitudes = latitudes[rows] if by == "points" else _means(latitudes, rows)
        if longitudes is not None:
            longitudes = longitudes[columns] if by == "points" else _round_means(longitudes, columns)
        return replace(self, values=values, latitudes=latitudes, longitudes=longitudes)

    def grid(self, ocean: NDArray[np.bool_]) -> Grid:
        """The grid with these ocean cells."""
        if self.latitudes is None or self.longitudes is None:
            return Grid.numbered(ocean)
        return Grid.of(self.latitudes, self.longitudes, ocean)
