"""`verax data`: fetch COBE-SST2 once, keep what the paper used of it, and throw the rest away."""

from __future__ import annotations

import hashlib
import io
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verax.errors import InvalidInput, MissingFile, OutputError, VeraxError
from verax.files import make_folder, unless_empty, write_atomically
from verax.progress import bar, status
from verax.tasks.climate import cobe, netcdf

ADDRESS = "https://downloads.psl.noaa.gov/Datasets/COBE2/{variable}.mon.mean.nc"
STEP = 10
YEARS = (1950, 2019)
CHECKSUMS = {
    "sst": "491f0816b2cd2747041cfa6d1d1f197b6d313d6ae1ebffef87d21b1ae1b7d576",
    "icec": "aa28f474ffe308c6f58496f97066bd54386f8d22646648840ac7ad51489e76df",
}
"""SHA-256 of the reduced values in thousandths; the whole file grows by a month every month."""

_BLOCK = 1 << 20
_PATIENCE = 60  # seconds without a byte


def checksum(values: NDArray[np.float64]) -> str:
    """SHA-256 of values in thousandths, which do not depend on how a file packs its numbers."""
    whole = np.where(np.isfinite(values), np.round(values * 1000), -(10**6)).astype("<i4")
    return hashlib.sha256(whole.tobytes()).hexdigest()


def obtain(
    name: str,
    *,
    url: str | None = None,
    file: Path | None = None,
    unchecked: bool = False,
    again: bool = False,
    quiet: bool = False,
) -> Path:
    """Put the reduced data of "cobe-sst2" or "sea-ice" into the store; gives where they are.

    Args:
        name: one of `verax.tasks.climate.cobe.VARIABLES`.
        url: another place to fetch the NetCDF file from.
        file: a NetCDF file that is here already.
        unchecked: keep the data although their checksum is not the known one.
        again: fetch them although they are here.
        quiet: no progress bar.
    """
    target, variable = cobe.stored(name), cobe.VARIABLES[name]
    if target.is_file() and not again:
        return target
    netcdf.packages()  # before half a gigabyte is fetched
    with unless_empty(target.parent):
        make_folder(target.parent)
        if file is not None:
            with status(f"Reading {file.name}", quiet):
                data = reduced(file, variable, unchecked)
        else:
            address = url or ADDRESS.format(variable=variable)
            with fetched(address, target.parent, quiet) as path, status(f"Reading {path.name}", quiet):
                data = reduced(path, variable, unchecked)
        write_atomically(target, data)
    return target


@contextmanager
def fetched(url: str, folder: Path, quiet: bool = False) -> Iterator[Path]:
    """A file from the net that lies in `folder` for a while, and not a moment when it is not whole."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as place:
        path = Path(place) / "download.nc"
        try:
            _fetch(url, path, quiet)
        except VeraxError:
            raise
        except (urllib.error.URLError, HTTPException, TimeoutError, ConnectionError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            reason = getattr(reason, "strerror", None) or reason
            raise MissingFile(
                f"Cannot fetch {url} ({reason}); a file that was fetched elsewhere can be given with --file."
            ) from error
        except OSError as error:
            raise OutputError(f"Cannot write below {str(folder)!r}: {error.strerror or error}.") from error
        yield path


def _fetch(url: str, path: Path, quiet: bool) -> None:
    with (
        urllib.request.urlopen(url, timeout=_PATIENCE) as answer,
        path.open("wb") as file,
        bar(quiet) as rows,
    ):
        length = answer.headers.get("Content-Length")
        total = int(length) if length and length.isdigit() else None
        row = rows.add_task(f"{url.rpartition('/')[2]} (MiB)", total=total and total / _BLOCK)
        done = 0
        while block := answer.read(_BLOCK):
            file.write(block)
            done += len(block)
            rows.update(row, completed=round(done / _BLOCK, 1))
    if total is not None and done != total:
        raise MissingFile(
            f"The download of {url} broke off after {done} of {total} bytes; nothing was kept, try again."
        )


def reduced(path: Path, variable: str, unchecked: bool = False) -> bytes:
    """An NPZ file with every tenth point of the published years."""
    if not path.is_file():
        raise MissingFile(f"There is no file {str(path)!r}.")
    series = netcdf.read(path, variable, step=STEP)
    if series.months is None or series.years is None or series.latitudes is None:
        raise InvalidInput(f"{series.what} has no calendar or no coordinates.")
    here = (series.years >= YEARS[0]) & (series.years <= YEARS[1])
    values = series.values[here]
    with np.errstate(invalid="ignore"):
        values[np.abs(values) > 500] = np.nan  # as the original recognises missing values
    if values.shape != (cobe.MONTHS, 18, 36) or series.latitudes[0] < 0:
        raise InvalidInput(
            f"{series.what} does not hold the {cobe.MONTHS} months of {YEARS[0]} to {YEARS[1]} on a grid of "
            "1 degree from north to south."
        )
    if not unchecked and checksum(values) != CHECKSUMS[variable]:
        raise InvalidInput(
            f"{series.what} has not the known checksum, so it is damaged or a new version: nothing was kept "
            "('--unchecked' keeps it)."
        )
    arrays: dict[str, Any] = {
        variable: values.astype(np.float32),
        "lat": series.latitudes.astype(np.float32),
        "lon": np.asarray(series.longitudes, dtype=np.float32),
        "year_month": np.stack([series.years[here], series.months[here]], 1).astype(np.int16),
    }
    packed = io.BytesIO()
    np.savez_compressed(packed, **arrays)
    return packed.getvalue()
