"""`verax data`: whole or not at all."""

import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import xarray
from typer.testing import CliRunner

from verax.cli.main import app
from verax.errors import InvalidInput, MissingFile, UnknownName
from verax.tasks.climate import cobe, download


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A file like NOAA's: monthly values on a grid of 1 degree, with years before and after."""
    times = np.arange(np.datetime64("1949-11", "M"), np.datetime64("2020-03", "M"))
    rng = np.random.default_rng(0)
    coarse = rng.normal(15, 5, (len(times), 18, 36)).round(3).astype(np.float32)
    values = np.full((len(times), 180, 360), 7.0, np.float32)
    values[:, ::10, ::10] = coarse
    values[:, 50, 100] = np.nan
    made = xarray.Dataset(
        {"sst": (("time", "lat", "lon"), values)},
        coords={
            "time": times.astype("datetime64[ns]"),
            "lat": np.arange(89.5, -90, -1),
            "lon": np.arange(0.5, 360),
        },
    )
    path = tmp_path_factory.mktemp("noaa") / "sst.mon.mean.nc"
    made.to_netcdf(path, engine="h5netcdf", encoding={"sst": {"zlib": True, "complevel": 1}})
    coarse[:, 5, 10] = np.nan
    return path, coarse[2:842]


@pytest.fixture
def server(original):
    """Serves the file under /whole, half of it under /half, half without a length under /short."""
    data = original[0].read_bytes()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path == "/missing":
                self.send_error(404)
                return
            self.send_response(200)
            if self.path != "/short":
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data if self.path == "/whole" else data[: len(data) // 2])

        def log_message(self, *words):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{made.server_port}"
        made.shutdown()


@pytest.fixture
def known(original, monkeypatch):
    monkeypatch.setitem(download.CHECKSUMS, "sst", download.checksum(original[1].astype(np.float64)))


def test_a_download_is_reduced_and_nothing_else_is_kept(server, known, original, own_store):
    path = download.obtain("cobe-sst2", url=f"{server}/whole", quiet=True)
    assert path == own_store / "climate" / "cobe-sst2.npz"
    assert [item.name for item in path.parent.iterdir()] == ["cobe-sst2.npz"]
    values, about = cobe.read(path, "sst")
    np.testing.assert_array_equal(values, original[1])
    assert about["lat"].tolist() == list(np.arange(89.5, -90, -10))
    assert about["months"].tolist() == [*range(1, 13)] * 70
    before = path.stat().st_mtime_ns
    assert download.obtain("cobe-sst2", url="http://127.0.0.1:9/never", quiet=True) == path  # here already
    assert path.stat().st_mtime_ns == before


def test_what_was_fetched_is_found_by_the_task(server, known, monkeypatch):
    monkeypatch.delenv("VERAX_DATA", raising=False)
    path = download.obtain("cobe-sst2", url=f"{server}/whole", quiet=True)
    assert cobe.extract_path("cobe-sst2") == path
    with pytest.raises(MissingFile, match="verax data sea-ice"):
        cobe.extract_path("sea-ice")


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("half", "broke off after .* nothing was kept"),
        ("short", "damaged"),
        ("missing", "Cannot fetch .*Not Found"),
    ],
)
def test_a_broken_download_leaves_nothing_behind(server, known, own_store, page, words):
    with pytest.raises(MissingFile, match=words):
        download.obtain("cobe-sst2", url=f"{server}/{page}", quiet=True)
    assert list(own_store.iterdir()) == []


def test_a_broken_download_keeps_what_was_there(server, known):
    path = download.obtain("cobe-sst2", url=f"{server}/whole", quiet=True)
    before = path.read_bytes()
    with pytest.raises(MissingFile):
        download.obtain("cobe-sst2", url=f"{server}/half", again=True, quiet=True)
    assert path.read_bytes() == before
    assert [item.name for item in path.parent.iterdir()] == ["cobe-sst2.npz"]


def test_an_interrupt_leaves_nothing_behind(server, known, own_store, monkeypatch):
    def stop(*words):
        raise KeyboardInterrupt

    monkeypatch.setattr(download, "reduced", stop)
    with pytest.raises(KeyboardInterrupt):
        download.obtain("cobe-sst2", url=f"{server}/whole", quiet=True)
    assert list(own_store.iterdir()) == []


def test_other_data_are_refused_unless_asked_for(original, own_store):
    with pytest.raises(InvalidInput, match="has not the known checksum"):
        download.obtain("cobe-sst2", file=original[0], quiet=True)
    assert list(own_store.iterdir()) == []
    assert download.obtain("cobe-sst2", file=original[0], unchecked=True, quiet=True).is_file()


def test_files_that_are_something_else_are_refused(tmp_path, own_store):
    small = xarray.Dataset(
        {"sst": (("time", "lat", "lon"), np.ones((24, 18, 36)))},
        coords={
            "time": (np.datetime64("1950-01", "M") + np.arange(24)).astype("datetime64[ns]"),
            "lat": np.arange(85.0, -90, -10),
            "lon": np.arange(5.0, 360, 10),
        },
    )
    small.to_netcdf(tmp_path / "small.nc", engine="h5netcdf")
    with pytest.raises(InvalidInput, match="840 months"):
        download.obtain("cobe-sst2", file=tmp_path / "small.nc", quiet=True)
    with pytest.raises(MissingFile, match="There is no file"):
        download.obtain("cobe-sst2", file=tmp_path / "none.nc", quiet=True)
    with pytest.raises(MissingFile, match="Cannot fetch"):
        download.obtain("cobe-sst2", url="nonsense", quiet=True)
    assert list(own_store.iterdir()) == []


def test_the_known_checksum_is_that_of_the_extract():
    path = Path(os.environ.get("VERAX_DATA", "/nowhere")) / cobe.EXTRACT
    if not path.is_file():
        pytest.skip(f"VERAX_DATA has no {cobe.EXTRACT}")
    for variable in cobe.VARIABLES.values():
        assert download.checksum(cobe.read(path, variable)[0]) == download.CHECKSUMS[variable]


def test_the_command(server, known, own_store):
    done = CliRunner().invoke(app, ["data", "cobe-sst2", "--url", f"{server}/whole", "--quiet"])
    assert done.exit_code == 0
    assert "climate/cobe-sst2 can be used now" in done.output
    done = CliRunner().invoke(app, ["data", "cobe-sst"])
    assert isinstance(done.exception, UnknownName)
    assert "did you mean 'cobe-sst2'" in str(done.exception)
