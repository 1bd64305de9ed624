"""COBE-SST2: monthly sea-surface temperature and sea ice (Hirahara et al. 2014), as NOAA PSL hands it out."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from verax.errors import InvalidInput, MissingFile
from verax.files import store_folder
from verax.tasks.climate import preprocessing as steps
from verax.tasks.climate.arrays import check_whole, load
from verax.tasks.climate.fields import Field
from verax.tasks.climate.grid import Grid

EXTRACT = "climate/cobe2_10deg_points_1950_2019.npz"
"""Below VERAX_DATA: every tenth point of 1950 to 2019, temperature and ice."""

VARIABLES = {"cobe-sst2": "sst", "sea-ice": "icec"}
MONTHS = 840
FACTS = (460, 458, 630, 630, 51.3)
"""Of the published field: points, cells, pairs above 0.99, how many of them are polar, largest eigenvalue."""


def stored(name: str) -> Path:
    """Where `verax data` puts what it reduced."""
    return store_folder() / "climate" / f"{name}.npz"


def extract_path(name: str) -> Path:
    """Where the data lie: the extract under VERAX_DATA, or what `verax data` put into the store."""
    data = os.environ.get("VERAX_DATA")
    if data and (Path(data) / EXTRACT).is_file():
        return Path(data) / EXTRACT
    if stored(name).is_file():
        return stored(name)
    raise MissingFile(
        f"COBE-SST2 is not here: run 'verax data {name}', or put {EXTRACT} into the folder VERAX_DATA."
    )


def read(path: Path, variable: str) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
    """The series ``(840, 18, 36)`` of a variable, and latitudes, longitudes and months."""
    names = (variable, "lat", "lon", "year_month")
    arrays = load(path, names, "an extract of COBE-SST2")
    if set(arrays) != set(names) or any(array.dtype.kind not in "fiu" for array in arrays.values()):
        raise MissingFile(f"The file {str(path)!r} is damaged or not an extract of COBE-SST2.")
    series = arrays[variable].astype(np.float64)
    if series.shape != (MONTHS, 18, 36) or arrays["year_month"].shape != (MONTHS, 2):
        raise InvalidInput(f"The file {str(path)!r} does not hold {MONTHS} months of 18 x 36 points.")
    check_whole(arrays["year_month"][:, 1], 1, 12, f"The file {str(path)!r}: its months")
    about = {"lat": arrays["lat"], "lon": arrays["lon"], "months": arrays["year_month"][:, 1]}
    return series, about


def field(name: str = "cobe-sst2") -> Field:
    """The field called "cobe-sst2" (sea-surface temperature) or "sea-ice", pre-processed as published."""
    return _field(name, str(extract_path(name)))


@lru_cache(maxsize=4)
def _field(name: str, path: str) -> Field:
    series, about = read(Path(path), VARIABLES[name])
    with np.errstate(invalid="ignore"):
        series[np.abs(series) > 500] = np.nan
    ocean = np.asarray(np.isfinite(series).all(0))
    cells, flat = steps.prepare(series[:, ocean], about["months"])
    # points under permanent ice, or without any, have no spread: the original's 0 / 0 left them out too
    before = int(ocean.sum())
    ocean[ocean] = ~flat
    grid = Grid.of(about["lat"], about["lon"], ocean)
    made = Field.of(name, grid, torch.from_numpy(steps.correlations(cells[:, ~flat])))
    if name == "cobe-sst2":
        check_facts(made, before)
    return made


def check_facts(made: Field, before: int) -> None:
    """Refuse data that do not have the properties of the published field.

    Args:
        made: the field.
        before: how many points had values, before constant ones were removed.
    """
    near = (made.correlation.triu(1) > 0.99).nonzero()
    polar = int((made.grid.rows[near] == 0).all(1).sum())
    top = float(torch.linalg.eigvalsh(made.correlation)[-1])
    found = (before, len(made), len(near), polar, round(top, 1))
    if found != FACTS:
        raise InvalidInput(
            f"These data are not those of the paper: points, cells, pairs above 0.99, polar pairs and the "
            f"largest eigenvalue are {found} instead of {FACTS}."
        )
