"""NetCDF files and xarray objects (extra ``[climate]``)."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verax.errors import (
    InvalidInput,
    InvalidParameter,
    MissingExtra,
    MissingFile,
    UnknownName,
    VeraxError,
    suggestion,
)
from verax.tasks.climate.series import Series

_NORTH = ("lat", "latitude", "nav_lat", "y", "j", "nlat")
_EAST = ("lon", "longitude", "nav_lon", "x", "i", "nlon")
_PARTS = ("month", "year", "dayofyear")
_INDEX = ("y", "j", "nlat", "x", "i", "nlon")
"""Names of dimensions that may be mere numbers of rows and columns."""

_TIME = ("time", "t", "date", "month", "year", "sample", "samples", "member", "realization")


def _engine(path: Path) -> str:
    """What reads this file: NetCDF 4 is HDF5, NetCDF 3 is read by SciPy."""
    try:
        with path.open("rb") as file:
            start = file.read(8)
    except OSError as error:
        raise MissingFile(f"The file {str(path)!r} cannot be read: {error.strerror or error}.") from error
    if start.startswith(b"\x89HDF"):
        return "h5netcdf"
    if start.startswith(b"CDF"):
        return "scipy"
    raise MissingFile(f"The file {str(path)!r} is not a NetCDF, NPZ or NPY file.")


def packages() -> Any:
    """xarray, when all that it needs here is installed."""
    try:
        for name in ("h5py", "h5netcdf"):
            importlib.import_module(name)
        return importlib.import_module("xarray")
    except ImportError as error:
        raise MissingExtra(
            "NetCDF files need xarray and h5netcdf; install them with: pip install 'verax[climate]'"
        ) from error


def is_xarray(source: Any) -> bool:
    """Whether something is an xarray Dataset or DataArray."""
    return type(source).__module__.partition(".")[0] == "xarray"


def read(path: Path, variable: str | None, monthly: bool | None = None, step: int = 1) -> Series:
    """A variable of a NetCDF file; `step` reads every so-many rows and columns only."""
    engine, xarray = _engine(path), packages()
    try:
        with xarray.open_dataset(path, engine=engine, decode_times=False) as opened:
            return from_xarray(opened, variable, monthly, step, path.name)
    except VeraxError:
        raise
    except MemoryError as error:
        raise MissingFile(f"The file {str(path)!r} is larger than memory, or damaged.") from error
    except (OSError, ValueError, LookupError, RuntimeError, EOFError, TypeError) as error:
        raise MissingFile(f"The file {str(path)!r} is damaged and cannot be read.") from error


def from_xarray(
    source: Any, variable: str | None, monthly: bool | None = None, step: int = 1, name: str = "the dataset"
) -> Series:
    """A variable of a Dataset, or a DataArray."""
    array = source if not hasattr(source, "data_vars") else source[_choose(source, variable, name)]
    variable = str(array.name or "unnamed")
    what = f"The variable {variable!r} of {name}"
    if array.dtype.kind not in "fiu":
        raise InvalidInput(f"{what} does not hold numbers.")
    time, north, east = _axes(array, what)
    spare = [dimension for dimension in array.dims if dimension not in (time, north, east)]
    array = array.squeeze(spare, drop=True).transpose(time, north, east)
    array = array.isel({north: slice(None, None, step), east: slice(None, None, step)})
    places = [_coordinate(array, dimension) for dimension in (north, east)]
    if any(place is None for place in places):
        places = [None, None]
    months, years, days = _months(array, time, what, monthly)
    values = np.asarray(array.values, dtype=np.float64)
    return Series(variable, name, values, places[0], places[1], months, years, days)


def _choose(dataset: Any, variable: str | None, name: str) -> str:
    """The variable that is meant."""
    known = [str(key) for key in dataset.data_vars]
    if variable is not None:
        if variable not in known:
            raise UnknownName(f"There is no variable {variable!r} in {name}{suggestion(variable, known)}")
        return variable
    series = [key for key in known if dataset[key].ndim > 2] or (known if len(known) == 1 else [])
    if len(series) != 1:
        listed = ", ".join(series or known) or "it has none"
        raise InvalidParameter(f"Say which variable of {name} is meant (--variable, variable=...): {listed}.")
    return series[0]


def _is(array: Any, dimension: str, names: tuple[str, ...], standard: str, units: str) -> bool:
    """Whether a dimension is what it should be, by its attributes or by its name."""
    about = array.coords[dimension].attrs if dimension in array.coords else {}
    return (
        about.get("standard_name") == standard
        or str(about.get("units", "")).startswith(units)
        or str(dimension).lower() in names
    )


def _axes(array: Any, what: str) -> tuple[str, str, str]:
    """The dimensions of time, rows and columns."""
    left = list(array.dims)

    def take(names: tuple[str, ...], standard: str, units: str) -> str | None:
        found = next((key for key in left if _is(array, key, names, standard, units)), None)
        if found is not None:
            left.remove(found)
        return found

    north = take(_NORTH, "latitude", "degrees_north")
    east = take(_EAST, "longitude", "degrees_east")
    dimensions = ", ".join(map(str, array.dims)) or "none"
    if north is None or east is None:
        raise InvalidInput(f"{what} has no latitudes and longitudes among its dimensions ({dimensions}).")
    left = [dimension for dimension in left if array.sizes[dimension] > 1]
    time = take(_TIME, "time", "days since")
    if time is None and len(left) == 1:
        time = left.pop()
    if time is None:
        raise InvalidInput(f"{what} has no time axis; its dimensions are {dimensions}.")
    if left:
        raise InvalidInput(
            f"{what} has the dimension {left[0]!r} besides time and place; keep one of its "
            f"{array.sizes[left[0]]} values, as ds.isel({left[0]}=0) of xarray does."
        )
    return time, north, east


def _coordinate(array: Any, dimension: str) -> NDArray[Any] | None:
    found = array.coords[dimension].values if dimension in array.coords else None
    if found is None or found.dtype.kind not in "fiu":
        return None
    name = str(dimension).lower()
    numbered = name in _INDEX and (np.abs(found) > (90 if name in _NORTH else 360)).any()
    return None if numbered else found.astype(np.float64)


def _lacks_cftime() -> bool:
    """Whether the package is missing that knows calendars of models, such as those without leap days."""
    return importlib.util.find_spec("cftime") is None


def _months(array: Any, time: str, what: str, monthly: bool | None) -> tuple[Any, Any, Any]:
    """Calendar months, years and days of the year, where the time axis knows them."""
    if time not in array.coords:
        return None, None, None
    axis = array.coords[time]
    if axis.dtype.kind in "fiu" and " since " in str(axis.attrs.get("units", "")):
        try:
            axis = importlib.import_module("xarray").decode_cf(axis.to_dataset(name="axis"))[time]
        except (ValueError, ImportError, OverflowError) as error:
            if monthly is not None:
                return None, None, None
            needs = "install cftime, or " if _lacks_cftime() else ""
            raise InvalidInput(
                f"{what} has times that cannot be read ({axis.attrs.get('calendar', 'no')} calendar, "
                f"{axis.attrs['units']!r}): {needs}say monthly=true where every time is the month after the "
                "last, or monthly=false for plain samples."
            ) from error
    if not np.issubdtype(axis.dtype, np.datetime64) and axis.dtype.kind != "O":
        return None, None, None
    months, years, days = (np.asarray(getattr(axis.dt, part).values) for part in _PARTS)
    return months, years, days
