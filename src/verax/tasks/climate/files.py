"""Fields of one's own: NetCDF by way of xarray, NPZ and NPY without it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from verax.errors import InvalidInput, InvalidParameter, MissingFile, UnknownName, VeraxWarning, suggestion
from verax.tasks.climate import netcdf
from verax.tasks.climate import preprocessing as steps
from verax.tasks.climate.arrays import load
from verax.tasks.climate.fields import MOST_CELLS, Field
from verax.tasks.climate.grid import Grid, listing
from verax.tasks.climate.outliers import strangest
from verax.tasks.climate.series import Series

MATRICES = ("covariance", "correlation")
CONSTANT = ("refuse", "drop")
FEWEST_CELLS = 3
"""Maps of fewer cells have no shape to compare."""

_MONTHS = ("months", "month", "year_month")


@dataclass(frozen=True)
class Reading:
    """How a file becomes a field.

    Attributes:
        variable: which one, where a file has several.
        coarsen: every how many rows and columns there is a point.
        by: ``points`` or ``means``.
        share: under ``means``, more than this share of a block is ocean.
        monthly: calendar-month anomalies without trend (True) or plain samples (False); by default a series
            with a calendar must be monthly, and one without is plain samples.
        shrinkage: weight of the identity matrix in the correlations; by default 0, or more where they are
            singular.
        constant: ``refuse`` or ``drop`` cells that never change.
    """

    variable: str | None = None
    coarsen: int = 1
    by: str = "points"
    share: float = 0.5
    monthly: bool | None = None
    shrinkage: float | None = None
    constant: str = "refuse"

    def __post_init__(self) -> None:
        for word, value, known in (("by", self.by, steps.COARSENINGS), ("constant", self.constant, CONSTANT)):
            if value not in known:
                raise InvalidParameter(f"The option {word!r} is {' or '.join(known)}, not {value!r}.")
        if self.variable is not None and not isinstance(self.variable, str):
            raise InvalidParameter(f"The option 'variable' is the name of one, not {self.variable!r}.")
        steps.check_step(self.coarsen)
        for word, weight in (
            ("share", self.share),
            ("shrinkage", 0.0 if self.shrinkage is None else self.shrinkage),
        ):
            if not isinstance(weight, int | float) or isinstance(weight, bool) or not 0 <= weight < 1:
                raise InvalidParameter(f"The option {word!r} is a number from 0 to below 1, not {weight!r}.")
        if self.monthly not in (None, True, False):
            raise InvalidParameter(f"The option 'monthly' is true or false, not {self.monthly!r}.")


def field(source: Any, reading: Reading | None = None) -> Field:
    """The field of a file (``.nc``, ``.npz``, ``.npy``) or of an xarray Dataset or DataArray.

    An NPZ file holds a series ``(time, rows, columns)``, and may hold ``lat``, ``lon`` and ``months``; or it
    holds a matrix ``covariance`` or ``correlation`` of the cells of a ``mask``. An NPY file holds a series,
    or samples ``(samples, cells)``. Land is NaN.
    """
    made = _field(source, reading or Reading())
    if len(made) < FEWEST_CELLS:
        raise InvalidInput(f"The field {made.name!r} has {len(made)} cells, fewer than {FEWEST_CELLS}.")
    return made


def _field(source: Any, reading: Reading) -> Field:
    if netcdf.is_xarray(source):
        return _from_series(netcdf.from_xarray(source, reading.variable, reading.monthly), reading)
    path = _path(source)
    if not _of_numpy(path):
        # every tenth point of a large file is read alone, not after the rest
        points = reading.coarsen if reading.by == "points" and reading.coarsen > 1 else 1
        series = netcdf.read(path, reading.variable, reading.monthly, points)
        return _from_series(series, replace(reading, coarsen=1) if points > 1 else reading)
    arrays = load(path)
    matrix = next((name for name in MATRICES if name in arrays), None)
    if matrix is not None and reading.variable in (None, matrix):
        return _from_matrix(path, arrays[matrix], arrays, reading)
    return _from_series(_raw(path, arrays, reading), reading)


def _path(source: Any) -> Path:
    """The file that is meant, which is there."""
    if not isinstance(source, str | PathLike):
        raise InvalidParameter(
            f"A field is the path of a file or an xarray object, not {type(source).__name__}."
        )
    path = Path(source)
    try:
        path = path.expanduser()
        there, folder = path.is_file(), path.is_dir()
    except (OSError, RuntimeError, ValueError):  # no such home, or a name that no file can have
        there = folder = False
    if not there:
        text = str(path)
        text = repr(text if len(text) < 300 else text[:300] + "...")
        raise MissingFile(
            f"{text} is a folder; a field is one file." if folder else f"There is no file {text}."
        )
    return path


def _of_numpy(path: Path) -> bool:
    """Whether a file is NPY or NPZ, by its name or by how it begins."""
    if path.suffix.lower() in (".npy", ".npz"):
        return True
    try:
        with path.open("rb") as file:
            return file.read(6).startswith((b"PK\x03\x04", b"\x93NUMPY"))
    except OSError as error:
        raise MissingFile(f"The file {str(path)!r} cannot be read: {error.strerror or error}.") from error


def _raw(path: Path, arrays: dict[str, NDArray[Any]], reading: Reading) -> Series:
    about = {name: arrays[name] for name in ("lat", "lon", *_MONTHS) if name in arrays}
    name = reading.variable
    if not arrays:
        raise InvalidInput(f"The file {path.name} holds no array.")
    if name is None and len(arrays) == 1:
        name = next(iter(arrays))
    series = {key: array for key, array in arrays.items() if key not in about and array.ndim > 1}
    if name is None and len(series) == 1:
        name = next(iter(series))
    if name is None:
        listed = ", ".join(series or arrays)
        raise InvalidParameter(
            f"Say which variable of {path.name} is meant (--variable, variable=...): {listed}."
        )
    if name not in arrays:
        raise UnknownName(f"The file {path.name} has no variable {name!r}{suggestion(name, arrays)}")
    values, what = arrays[name], f"The variable {name!r} of {path.name}"
    if values.dtype.kind not in "fiu":
        raise InvalidInput(f"{what} does not hold numbers.")
    flat = values.ndim == 2 and "lat" not in about
    if flat:
        values = values[:, None, :]  # samples of cells: a grid of one row
    if values.ndim != 3:
        raise InvalidInput(f"{what} has the shape {values.shape} and no time axis before rows and columns.")
    months, years = next((about[key] for key in _MONTHS if key in about), None), None
    if months is not None:
        if months.ndim == 2 and months.shape[1] == 2:
            years, months = months.T
        if months.shape != values.shape[:1]:
            raise InvalidInput(f"{what} has {len(values)} times, but {months.size} months are given.")
    values = values.astype(np.float64)
    return Series(name, path.name, values, about.get("lat"), about.get("lon"), months, years)


def _from_matrix(
    path: Path, matrix: NDArray[Any], arrays: dict[str, NDArray[Any]], reading: Reading
) -> Field:
    """A field whose matrix somebody has estimated already."""
    if matrix.dtype.kind not in "fiu":
        raise InvalidInput(f"The matrix in {path.name} does not hold numbers.")
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InvalidInput(f"The matrix in {path.name} is not square but {matrix.shape}.")
    given = arrays.get("mask", np.ones((1, len(matrix))))
    if given.dtype.kind not in "bfiu":
        raise InvalidInput(f"The mask in {path.name} does not hold numbers.")
    mask = np.nan_to_num(given) > 0.5
    if mask.ndim == 3 and mask.shape[2] == 1:
        mask = mask[:, :, 0]
    if mask.ndim != 2:
        raise InvalidInput(f"The mask in {path.name} has the shape {given.shape}, not rows and columns.")
    if int(mask.sum()) != len(matrix):
        raise InvalidInput(
            f"The mask in {path.name} has {int(mask.sum())} ocean cells, its matrix {len(matrix)}."
        )
    placed = "lat" in arrays and "lon" in arrays
    grid = Grid.of(arrays["lat"], arrays["lon"], mask) if placed else Grid.numbered(mask)
    return Field.of(path.stem, grid, torch.from_numpy(matrix.astype(np.float64)), reading.shrinkage)


def _from_series(raw: Series, reading: Reading) -> Field:
    """Coarsen, remove land, make anomalies and estimate the correlations."""
    steps.check_values(raw.values, raw.what)  # before means can hide them
    if (odd := strangest(raw.values)) is not None:
        place = raw.grid(np.ones(raw.values.shape[1:], dtype=bool)).place((odd.row, odd.column))
        warnings.warn(
            f"{raw.what} has the value {odd.value:.6g} at {place} (time {odd.time + 1} of "
            f"{len(raw.values)}), {odd.score:.0f} robust standard deviations from the rest of its cell: if "
            "it stands for a missing value, mark it as NaN.",
            VeraxWarning,
            stacklevel=2,
        )
    raw = raw.coarser(reading.coarsen, reading.by, reading.share)
    values = raw.values
    finite = np.isfinite(values)
    ocean, some = np.asarray(finite.all(0)), np.asarray(finite.any(0))
    if not some.any():
        raise InvalidInput(f"{raw.what} is all land: every value of every cell is missing.")
    if not ocean.any():
        raise InvalidInput(f"{raw.what} has no cell without missing values.")
    if len(values) < 3:
        raise InvalidInput(f"{raw.what} has {len(values)} times, too few for correlations.")
    calendar = raw.calendar(reading.monthly)
    months, times = (None, None) if calendar is None else (calendar.months, calendar.times)
    how = "Cells were standardised as plain samples."
    notes = [how if calendar is None else "Calendar-month means and linear trends were removed."]
    if calendar is not None:
        notes.extend(calendar.notes)
    if months is not None and len(np.unique(months)) == len(months):
        raise InvalidInput(
            f"{raw.what} has {len(months)} months and none of them twice: anomalies need more than a year."
        )
    if partly := int((some & ~ocean).sum()):
        words = "cell that misses some values was" if partly == 1 else "cells that miss some values were"
        notes.append(f"{partly} {words} left out.")
    cells, flat = steps.prepare(values[:, ocean], months, times)
    if flat.any():
        grid = raw.grid(ocean)
        count = int(flat.sum())
        places = f"{count} constant {'cell' if count == 1 else 'cells'}"
        places += f" ({listing(grid, grid.cells[torch.from_numpy(flat)])})"
        if reading.constant == "refuse" or flat.all():
            hint = "" if flat.all() else "; ?constant=drop behind the task's name leaves such cells out"
            raise InvalidInput(f"{raw.what} has {places}{hint}.")
        notes.append(f"Left out: {places}.")
        ocean[ocean] = ~flat
        cells = cells[:, ~flat]
    if cells.shape[1] > MOST_CELLS:
        raise InvalidInput(
            f"{raw.what} has {cells.shape[1]} cells, more than {MOST_CELLS}: coarsen it, as by coarsen=10."
        )
    if len(cells) <= cells.shape[1] and not reading.shrinkage:
        raise InvalidInput(
            f"{raw.what} has {len(cells)} samples of {cells.shape[1]} cells, too few for correlations: "
            "coarsen it, or give a shrinkage such as 0.05."
        )
    matrix = torch.from_numpy(steps.correlations(cells))
    return Field.of(f"{raw.variable} of {raw.file}", raw.grid(ocean), matrix, reading.shrinkage, tuple(notes))
