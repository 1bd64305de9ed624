"""Fields of one's own: files that work, and every kind that does not."""

import builtins
import html
import importlib.util
import json
import sys
import warnings
import zipfile

import h5py
import numpy as np
import pytest
import torch
import xarray
from typer.testing import CliRunner

import verax
from verax.cli.main import app
from verax.errors import InvalidInput, InvalidParameter, MissingExtra, MissingFile, UnknownName, VeraxWarning
from verax.tasks.climate import preprocessing as steps
from verax.tasks.climate.fields import SHRINKAGE
from verax.tasks.climate.outliers import strangest

LATITUDES, LONGITUDES = np.array([45.0, 15.0, -15.0]), np.array([0.0, 90.0, 180.0, 270.0])
RNG = np.random.default_rng(0)
MIXING = RNG.normal(size=(12, 12))


def series(times=120, land=True):
    """Months of twelve cells that vary together, one of them land."""
    months = np.arange(times) % 12
    values = (RNG.normal(size=(times, 12)) @ MIXING).reshape(times, 3, 4)
    values += 10 + 5 * np.sin(months / 6 * np.pi)[:, None, None] + 0.01 * np.arange(times)[:, None, None]
    if land:
        values[:, 1, 2] = np.nan
    return values


def dataset(values=None, times=None, **renamed):
    values = series() if values is None else values
    if times is None:
        times = np.datetime64("1990-01", "M") + np.arange(len(values))
    made = xarray.Dataset(
        {"sst": (("time", "lat", "lon"), values), "area": (("lat", "lon"), np.ones((3, 4)))},
        coords={"time": times.astype("datetime64[ns]"), "lat": LATITUDES, "lon": LONGITUDES},
    )
    return made.rename(renamed)


def field(source, **options):
    return verax.task("climate/field", field=source, **options).field


def expected(values, months):
    kept = values[:, np.isfinite(values).all(0)]
    cells, _ = steps.prepare(kept, months)
    return torch.from_numpy(np.corrcoef(cells.T))


def test_a_netcdf_file_becomes_a_task(tmp_path):
    values = series()
    dataset(values).to_netcdf(tmp_path / "my.nc", engine="h5netcdf")
    task = verax.task("climate/field", field=tmp_path / "my.nc", variable="sst", breaks=2, function=3)
    assert task.features == 11
    assert task.grid.latitudes.tolist() == LATITUDES.tolist()
    assert torch.allclose(task.field.correlation, expected(values, np.arange(120) % 12))
    assert task.field.notes == ("Calendar-month means and linear trends were removed.",)
    assert task.field.name == "sst of my.nc"
    cases = task.cases(n=4)
    assert torch.allclose(cases.truth.values.sum(1), task.function.total(cases.inputs), atol=1e-6)
    # the only series of the file need not be named, and the path may be text
    again = verax.task("climate/field", field=str(tmp_path / "my.nc"))
    assert again.field.digest == task.field.digest


def test_netcdf_3_and_packed_values_with_fill_values_are_read(tmp_path):
    values = series()
    packing = {"sst": {"dtype": "int16", "scale_factor": 0.01, "_FillValue": -32767}}
    dataset(values).to_netcdf(tmp_path / "old.nc", engine="scipy", format="NETCDF3_64BIT", encoding=packing)
    made = field(tmp_path / "old.nc", variable="sst")
    assert len(made) == 11
    assert torch.allclose(made.correlation, expected(values, np.arange(120) % 12), atol=1e-2)


def test_xarray_objects_are_taken_as_they_are():
    values = series()
    made = dataset(values)
    assert field(made, variable="sst").digest == field(made["sst"]).digest
    assert torch.allclose(field(made).correlation, expected(values, np.arange(120) % 12))


def test_files_with_south_first_and_other_names_give_the_same_field_in_their_order(tmp_path):
    values = series()
    turned = dataset(values).isel(lat=slice(None, None, -1)).transpose("lon", "lat", "time")
    turned = turned.expand_dims("level").rename(lat="rows", lon="columns")
    turned["rows"].attrs["units"] = "degrees_north"
    turned["columns"].attrs["standard_name"] = "longitude"
    turned[["sst"]].to_netcdf(tmp_path / "turned.nc", engine="h5netcdf")
    found, usual = field(tmp_path / "turned.nc"), field(dataset(values))
    assert torch.equal(found.grid.latitudes, usual.grid.latitudes.flip(0))
    assert torch.equal(found.grid.ocean, usual.grid.ocean.flip(0))
    order = torch.tensor(_turned(usual.grid))
    assert torch.allclose(found.correlation, usual.correlation[order][:, order])


def _turned(grid):
    """The ocean cells with the last row first, by their places in a vector."""
    numbers = grid.scatter(torch.arange(len(grid)).double()).flip(0)
    return numbers[numbers.isfinite()].long().tolist()


def test_a_network_of_a_task_is_explained_on_the_file_that_it_was_made_from():
    for turn in (1, -1):
        data = dataset(series()).isel(lat=slice(None, None, turn))
        task = verax.task("climate/field?samples=1000", field=data)
        cases = task.cases(n=4)

        def placed(values, task=task, data=data):
            """Maps of the task on the rows of the file: by their latitudes, whatever order the task has."""
            axes = {"lat": task.grid.latitudes.numpy(), "lon": task.grid.longitudes.numpy()}
            maps = task.grid.scatter(values).numpy()
            return xarray.DataArray(maps, axes, ("time", "lat", "lon"), "sst").sel(lat=data["lat"])

        model, truth = task.function.module().float(), placed(cases.truth.values).values
        found = verax.explain(model, placed(cases.inputs), method="integrated-gradients", steps=512)
        there = np.isfinite(truth)
        assert np.array_equal(np.isfinite(found["sst"].values), there)
        assert np.corrcoef(found["sst"].values[there], truth[there])[0, 1] > 0.999


def test_times_decide_about_anomalies():
    values = series()
    daily = dataset(values, np.datetime64("1990-01-01", "D") + np.arange(120))
    plain = expected(values, None)
    with pytest.raises(InvalidInput, match=r"times that are not a month apart \(116 share .* monthly=false"):
        field(daily)
    assert torch.allclose(field(daily, monthly=False).correlation, plain)
    assert field(daily, monthly=False).notes == ("Cells were standardised as plain samples.",)
    assert torch.allclose(field(dataset(values), monthly=False).correlation, plain)
    months = daily["time"].dt.month.values
    assert torch.allclose(field(daily, monthly=True).correlation, expected(values, months))


def test_calendars_that_cannot_be_read_are_asked_about(tmp_path, monkeypatch):
    odd = dataset(series())
    odd["time"] = ("time", np.arange(120) * 30.0, {"units": "days since 1990-01-16", "calendar": "odd"})
    odd.to_netcdf(tmp_path / "odd.nc", engine="h5netcdf")
    with pytest.raises(InvalidInput, match="say monthly=true where every time is the month after the last"):
        field(tmp_path / "odd.nc", variable="sst")
    assert len(field(tmp_path / "odd.nc", variable="sst", monthly=True)) == 11


def test_npz_and_npy_need_no_xarray(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name.partition(".")[0] in ("xarray", "h5netcdf", "h5py"):
            raise ImportError(name)
        return real(name, *rest, **more)

    values = series()
    months = np.arange(120) % 12 + 1
    np.savez(tmp_path / "my.npz", sst=values, lat=LATITUDES, lon=LONGITUDES, months=months)
    np.save(tmp_path / "my.npy", values)
    dataset(values).to_netcdf(tmp_path / "my.nc", engine="h5netcdf")
    through = field(tmp_path / "my.nc", variable="sst")
    for name in ("xarray", "h5netcdf", "h5py"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(builtins, "__import__", without)
    made = field(tmp_path / "my.npz", variable="sst")
    assert made.digest == through.digest
    plain = field(tmp_path / "my.npy")
    assert torch.allclose(plain.correlation, expected(values, None))
    assert not plain.grid.geographic
    monthly = field(tmp_path / "my.npy", monthly=True)
    assert torch.allclose(monthly.correlation, made.correlation)
    with pytest.raises(MissingExtra, match=r"verax\[climate\]"):
        field(tmp_path / "my.nc", variable="sst")


def test_plain_samples_of_cells_and_finished_matrices(tmp_path):
    samples = RNG.normal(size=(50, 12)) @ MIXING
    np.save(tmp_path / "samples.npy", samples)
    made = field(tmp_path / "samples.npy")
    assert made.grid.shape == (1, 12)
    assert torch.allclose(made.correlation, torch.from_numpy(np.corrcoef(samples.T)))
    mask = np.zeros((4, 5, 1))
    mask.flat[::2] = 1
    cells = int(mask.sum())
    matrix = np.cov(RNG.normal(size=(cells, 40)))
    np.savez(tmp_path / "cov.npz", covariance=matrix, mask=mask)
    made = field(tmp_path / "cov.npz")
    assert len(made) == cells == 10
    assert made.grid.ocean.numpy().tolist() == (mask[:, :, 0] > 0).tolist()
    scale = np.sqrt(np.diag(matrix))
    assert torch.allclose(made.correlation, torch.from_numpy(matrix / np.outer(scale, scale)))


def test_coarsening_reads_points_or_means(tmp_path):
    values = series(times=60, land=False)
    dataset(values).to_netcdf(tmp_path / "my.nc", engine="h5netcdf")
    points = field(tmp_path / "my.nc", variable="sst", coarsen=2)
    assert points.grid.shape == (2, 2)
    assert points.grid.latitudes.tolist() == [45, -15]
    assert torch.allclose(points.correlation, expected(values[:, ::2, ::2], np.arange(60) % 12))
    means = field(tmp_path / "my.nc", variable="sst", coarsen=2, by="means")
    assert means.grid.latitudes.tolist() == [30, -15]
    assert means.grid.longitudes.tolist() == [45, 225]
    blocks = np.stack([values[:, r : r + 2, c : c + 2].mean((1, 2)) for r in (0, 2) for c in (0, 2)], 1)
    assert torch.allclose(means.correlation, expected(blocks.reshape(60, 2, 2), np.arange(60) % 12))


def test_few_samples_need_shrinkage_and_singular_matrices_get_it():
    values = series()
    short = dataset(values).isel(time=slice(0, 11))
    with pytest.raises(InvalidInput, match="11 samples of 11 cells, too few"):
        field(short, monthly=False)
    made = field(short, monthly=False, shrinkage=0.1)
    assert made.shrinkage == 0.1
    assert torch.linalg.eigvalsh(made.correlation)[0] > 0.05
    twins = values.copy()
    twins[:, 0, 1] = twins[:, 0, 0] * 2 + 1
    made = field(dataset(twins))
    assert made.shrinkage == SHRINKAGE
    assert "shrunk" in made.notes[-1]
    # enough months, but too few once the twelve means and the trend are gone
    assert field(dataset(values).isel(time=slice(0, 20))).shrinkage == SHRINKAGE


def test_too_many_cells_are_refused_before_their_matrix_is_made(tmp_path):
    np.save(tmp_path / "large.npy", np.random.default_rng(0).normal(size=(3, 101, 100)))
    with pytest.raises(InvalidInput, match=r"10100 cells, more than 10000: coarsen it"):
        field(tmp_path / "large.npy", shrinkage=0.1)


def test_a_band_of_one_latitude_is_a_grid():
    values = series()[:, :1]
    band = dataset().isel(lat=[0]).assign(sst=(("time", "lat", "lon"), values))
    assert field(band, variable="sst").grid.shape == (1, 4)


def test_cells_that_miss_some_values_are_left_out_and_counted():
    values = series()
    values[5, 0, 0] = np.nan
    made = field(dataset(values))
    assert len(made) == 10
    assert made.notes[1] == "1 cell that misses some values was left out."


def constant(values):
    values[:, 2, 3] = -1.8
    values[:, 0, 1] = np.sin(np.arange(120) % 12)  # the same every year: no anomaly is left


def test_constant_cells_are_refused_with_their_places():
    values = series()
    constant(values)
    with pytest.raises(InvalidInput, match=r"2 constant cells \(45N 90E; 15S 270E\)"):
        field(dataset(values))
    made = field(dataset(values), constant="drop")
    assert len(made) == 9
    assert "15S 270E" in made.notes[1]
    with pytest.raises(InvalidInput, match=r"11 constant cells .* and 8 more"):
        field(dataset(np.where(np.isnan(values), np.nan, 1.0)), constant="drop")


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda d: d.rename(sst="tos"), UnknownName, "no variable 'sst'"),
        (lambda d: d.isel(time=0), InvalidInput, "has no time axis; its dimensions are lat, lon"),
        (lambda d: d.isel(time=[0]), InvalidInput, "has no time axis"),
        (lambda d: d * np.nan, InvalidInput, "all land"),
        (lambda d: d.where(d.time.dt.month != 3), InvalidInput, "no cell without missing values"),
        (lambda d: d.fillna(1e20), InvalidInput, r"beyond 500 such as 1e\+20"),
        (lambda d: d.fillna(-999), InvalidInput, "beyond 500 such as -999"),
        (lambda d: d * np.inf, InvalidInput, "beyond 500"),
        (lambda d: d.rename(lat="a", lon="b"), InvalidInput, "no latitudes and longitudes"),
        (
            lambda d: d.expand_dims(depth=[0, 1]),
            InvalidInput,
            r"'depth' besides .* one of its 2 values, as ds\.isel\(depth=0\)",
        ),
        (lambda d: d.astype(str), InvalidInput, "does not hold numbers"),
    ],
)
def test_wrong_series_get_one_sentence(change, error, words):
    with pytest.raises(error, match=words) as caught:
        field(change(dataset()), variable="sst")
    assert "\n" not in str(caught.value)


def test_wrong_names_get_a_suggestion(tmp_path):
    two = dataset().assign(sss=lambda d: d.sst + 1)
    two.to_netcdf(tmp_path / "my.nc", engine="h5netcdf")
    with pytest.raises(UnknownName, match=r"no variable 'sstt' in my\.nc; did you mean 'sst'"):
        field(tmp_path / "my.nc", variable="sstt")
    # an area of cells is no series, and so not in question
    with pytest.raises(InvalidParameter, match=r"Say which variable of my\.nc is meant .*: sst, sss\."):
        field(tmp_path / "my.nc")
    with pytest.raises(MissingFile, match="is a folder; a field is one file"):
        field(tmp_path)
    np.savez(tmp_path / "my.npz", sst=series(), other=series(), lat=LATITUDES)
    with pytest.raises(UnknownName, match="did you mean 'sst'"):
        field(tmp_path / "my.npz", variable="sstt")
    with pytest.raises(InvalidParameter, match="Say which variable"):
        field(tmp_path / "my.npz")


def test_wrong_files_get_one_sentence(tmp_path):
    with pytest.raises(MissingFile, match="There is no file"):
        field(tmp_path / "none.nc")
    (tmp_path / "text.nc").write_text("sst")
    with pytest.raises(MissingFile, match="not a NetCDF, NPZ or NPY file"):
        field(tmp_path / "text.nc")
    dataset().to_netcdf(tmp_path / "my.nc", engine="h5netcdf")
    whole = (tmp_path / "my.nc").read_bytes()
    (tmp_path / "half.nc").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(MissingFile, match="damaged"):
        field(tmp_path / "half.nc", variable="sst")
    for name, content in (("half.npz", b"PK\x03\x04"), ("half.npy", b"\x93NUMPY")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(MissingFile, match="damaged"):
            field(tmp_path / name)
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(MissingFile, match="of numbers"):
        field(tmp_path / "objects.npy")


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"sst": np.ones((3, 4)), "lat": LATITUDES, "lon": LONGITUDES}, "no time axis"),
        ({"sst": series(), "lat": LATITUDES[:2], "lon": LONGITUDES}, "3 places for 2 latitudes"),
        ({"sst": series(), "months": np.arange(7)}, "120 times, but 7 months"),
        ({"sst": np.full((9, 3, 4), "x")}, "does not hold numbers"),
        ({"covariance": np.ones((3, 4))}, "not square"),
        ({"covariance": np.eye(3), "mask": np.ones((2, 2))}, "4 ocean cells, its matrix 3"),
        ({"correlation": np.array([[1, 2], [2, 1.0]])}, "not positive definite"),
    ],
)
def test_wrong_arrays_get_one_sentence(tmp_path, arrays, words):
    np.savez(tmp_path / "wrong.npz", **arrays)
    with pytest.raises(InvalidInput, match=words):
        field(tmp_path / "wrong.npz")


def test_wrong_options_are_refused_before_a_file_is_read():
    for options, words in (
        ({"by": "medians"}, "points or means"),
        ({"constant": "keep"}, "refuse or drop"),
        ({"coarsen": 0}, "every so-many points"),
        ({"monthly": "perhaps"}, "true or false"),
    ):
        with pytest.raises(InvalidParameter, match=words):
            field("/nowhere/my.nc", **options)
    with pytest.raises(InvalidParameter, match="needs a file"):
        verax.task("climate/field").cases(n=1)


# -- times ----------------------------------------------------------------------------------------------


def seasonal(times=240):
    """Three cells with a strong common season and a trend, whose anomalies are independent."""
    count = np.arange(times)
    common = 8 * np.cos(count / 6 * np.pi) + 0.05 * count
    return np.random.default_rng(3).normal(size=(times, 3, 4)) + common[:, None, None]


def off_diagonal(made):
    return (made.correlation - torch.eye(len(made))).abs().max()


def test_a_missing_month_does_not_switch_anomalies_off():
    values, kept = seasonal(), np.arange(240) != 100
    made = field(dataset(values).isel(time=kept))
    assert off_diagonal(made) < 0.3
    assert made.notes[1] == "1 month between the first and the last is missing."
    # counted by hand: calendar months and real time
    left = values[kept].reshape(239, -1).copy()
    months, times = np.arange(240)[kept] % 12, np.arange(240)[kept]
    for month in range(12):
        left[months == month] -= left[months == month].mean(0)
    line = np.polynomial.polynomial.polyfit(times, left, 1)
    left -= np.polynomial.polynomial.polyval(times, line).T
    assert torch.allclose(made.correlation, torch.from_numpy(np.corrcoef(left.T)), atol=1e-9)


def test_trends_are_those_of_real_time():
    values = seasonal()
    kept = np.r_[0:60, 180:240]  # ten years in between are missing
    made = field(dataset(values).isel(time=kept))
    right, _ = steps.prepare(values[kept].reshape(120, -1), kept % 12, kept)
    assert torch.allclose(made.correlation, torch.from_numpy(np.corrcoef(right.T)))
    wrong, _ = steps.prepare(values[kept].reshape(120, -1), kept % 12)
    assert not torch.allclose(made.correlation, torch.from_numpy(np.corrcoef(wrong.T)), atol=1e-3)


def test_maps_may_stand_in_any_order():
    whole = dataset(seasonal())
    shuffled = whole.isel(time=np.random.default_rng(0).permutation(240))
    assert torch.allclose(field(shuffled).correlation, field(whole).correlation)
    assert field(shuffled).notes == field(whole).notes


def test_doubled_missing_and_yearly_times_are_asked_about():
    values = seasonal()
    times = np.datetime64("1990-01", "M") + np.arange(240)
    doubled = times.astype("datetime64[ns]").copy()
    doubled[50] = doubled[51]
    with pytest.raises(InvalidInput, match=r"not a month apart \(1 share .*monthly=true"):
        field(dataset(values, doubled))
    assert off_diagonal(field(dataset(values, doubled), monthly=True)) < 0.3
    none = times.astype("datetime64[ns]").copy()
    none[7] = np.datetime64("NaT")
    for monthly in (None, True):
        with pytest.raises(InvalidInput, match=r"its months are not all whole numbers .* number 8 is nan"):
            field(dataset(values, none), monthly=monthly)
    yearly = np.datetime64("1790", "Y") + np.arange(240)
    with pytest.raises(InvalidInput, match=r"not a month apart \(most are further apart\)"):
        field(dataset(values, yearly))
    for wrong in (doubled, none, yearly):
        made = field(dataset(values, wrong), monthly=False)
        assert torch.allclose(made.correlation, expected(values, None))


def test_a_single_year_has_no_anomalies():
    with pytest.raises(InvalidInput, match="10 months and none of them twice"):
        field(dataset(series()).isel(time=slice(0, 10)))


def test_months_of_arrays_may_have_gaps_too(tmp_path):
    values, kept = seasonal(), np.arange(240) != 100
    count = np.arange(240)[kept]
    np.savez(tmp_path / "months.npz", sst=values[kept], months=count % 12 + 1)
    pairs = np.stack([1990 + count // 12, count % 12 + 1], 1)
    np.savez(tmp_path / "years.npz", sst=values[kept], year_month=pairs)
    through = field(dataset(values).isel(time=kept))
    for name in ("months", "years"):
        made = field(tmp_path / f"{name}.npz")
        assert torch.allclose(made.correlation, through.correlation)
        assert made.notes == through.notes


@pytest.mark.parametrize(
    ("months", "words"),
    [
        (np.where(np.arange(120) == 4, np.nan, np.arange(120) % 12 + 1), "number 5 is nan"),
        (np.arange(120) % 12, "from 1 to 12: number 1 is 0"),
        (np.arange(120) % 12 + 1.5, "whole numbers"),
        (np.full(120, "jan"), "its months are not numbers"),
        (np.repeat(np.arange(12) + 1, 10), "not a month apart"),
        (np.stack([np.full(120, np.nan), np.arange(120) % 12 + 1], 1), "its years are not all whole"),
    ],
)
def test_months_that_are_none_are_refused(tmp_path, months, words):
    np.savez(tmp_path / "months.npz", sst=series(), months=months)
    with pytest.raises(InvalidInput, match=words):
        field(tmp_path / "months.npz")


def test_no_number_comes_from_memory_that_nobody_wrote():
    months = np.where(np.arange(24) == 4, np.nan, np.arange(24) % 12 + 1.0)
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
        made = steps.anomalies(np.ones((24, 2)), months)
    assert np.isnan(made[4]).all()


def test_months_are_counted_from_january_with_a_note(tmp_path):
    np.save(tmp_path / "my.npy", series())
    assert "Months were counted from January on." in field(tmp_path / "my.npy", monthly=True).notes


# -- values and places ----------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["points", "means"])
@pytest.mark.parametrize("value", [-99.99, 99.0, 0.0])
def test_a_single_wrong_value_is_named_with_its_cell(tmp_path, by, value):
    values = 300 + RNG.normal(size=(120, 6, 6))  # kelvin
    values[17, 3, 2] = value
    axes = {"lat": np.linspace(50, -50, 6), "lon": np.arange(6) * 10.0}
    np.savez(tmp_path / "filled.npz", sst=values, **axes)
    words = rf"has the value {value:g} at 10S 20E \(time 18 of 120\), \d+ robust standard deviations"
    with pytest.warns(VeraxWarning, match=words):
        field(tmp_path / "filled.npz", coarsen=3, by=by) if by == "means" else field(tmp_path / "filled.npz")
    values[17, 3, 2] = np.nan
    np.savez(tmp_path / "marked.npz", sst=values, **axes)
    assert len(field(tmp_path / "marked.npz")) == 35


PLAUSIBLE = {
    "normal": lambda rng: rng.normal(size=(600, 8, 8)),
    "short": lambda rng: rng.normal(size=(6, 20, 20)),
    "rain": lambda rng: rng.gamma(0.3, 100, size=(600, 8, 8)),
    "heavy": lambda rng: rng.standard_t(5, size=(600, 8, 8)),
    "ice": lambda rng: np.clip(rng.normal(-1.5, 1, size=(600, 8, 8)), 0, 1),
    "seasons": lambda rng: (
        40 * np.sin(np.arange(600) / 6 * np.pi)[:, None, None] + rng.normal(size=(600, 8, 8))
    ),
    "uneven": lambda rng: rng.normal(size=(600, 8, 8)) * np.geomspace(1e-3, 100, 64).reshape(8, 8),
    "steps": lambda rng: (np.arange(600) > 500)[:, None, None] * 3.0 + rng.normal(size=(600, 8, 8)),
}


@pytest.mark.parametrize("kind", PLAUSIBLE)
def test_plausible_extremes_are_let_be(kind):
    for seed in range(20):
        assert strangest(PLAUSIBLE[kind](np.random.default_rng(seed))) is None


def test_the_strangest_value_is_found_beside_land_and_constant_cells():
    values = np.random.default_rng(0).normal(size=(50, 3, 4))
    values[:, 0, 0], values[:, 1, 1] = np.nan, 5.0
    values[3, 2, 3], values[4, 2, 3], values[5, 0, 1] = -99.99, -99.99, 60.0
    found = strangest(values)
    assert (found.time, found.row, found.column, found.value) == (5, 0, 1, 60.0)  # two are no single one
    assert strangest(np.full((5, 2, 2), np.nan)) is None


def test_records_protect_each_other_and_missing_values_hide_nothing():
    values = np.random.default_rng(0).normal(size=(240, 4, 5))
    values[:6, 2, 2] = [30, 40, 50, 60, 70, 80]
    assert strangest(values) is None
    values[:9, 1, 1], values[9, 1, 1] = np.nan, -99.0
    assert strangest(values[:24]).value == -99.0


@pytest.mark.parametrize("by", ["points", "means"])
def test_fill_values_cannot_hide_in_means(tmp_path, by):
    values = RNG.normal(size=(120, 6, 6)) + 20
    values[:, 3, 3] = -999  # a mean of nine is -93
    np.savez(tmp_path / "filled.npz", sst=values)
    with pytest.raises(InvalidInput, match="beyond 500 such as -999: mark missing values as NaN, and"):
        field(tmp_path / "filled.npz", coarsen=3, by=by)


@pytest.mark.parametrize(
    ("places", "words"),
    [
        ([45, np.nan, -15], "latitudes that are missing"),
        ([400, 15, -15], "the latitude 400"),
        ([45, 45, -15], "latitudes that are there twice"),
        ([45, -15, 15], "latitudes that neither rise nor fall"),
    ],
)
def test_latitudes_that_are_none_are_refused(tmp_path, places, words):
    with pytest.raises(InvalidInput, match=words):
        field(dataset().assign_coords(lat=np.array(places, dtype=float)))
    np.savez(tmp_path / "matrix.npz", covariance=np.eye(12), mask=np.ones((3, 4)), lat=places, lon=LONGITUDES)
    with pytest.raises(InvalidInput, match=words):
        field(tmp_path / "matrix.npz")


def test_numbers_of_rows_and_columns_are_not_taken_for_places():
    numbered = dataset(lat="j", lon="i").assign_coords(j=[100, 200, 300], i=[0, 1, 2, 3])
    assert not field(numbered).grid.geographic


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        (
            {"sst": series(), "lat": np.array(list("abc")), "lon": LONGITUDES},
            "latitudes that are not numbers",
        ),
        ({"covariance": np.eye(3), "mask": np.array([list("abc")])}, "mask .* does not hold numbers"),
        ({"covariance": np.eye(3), "mask": np.ones(3)}, r"shape \(3,\), not rows and columns"),
        ({"covariance": np.eye(3, dtype=bool)}, "matrix .* does not hold numbers"),
        ({"covariance": np.eye(3), "mask": np.ones((1, 3)), "lat": ["a"], "lon": [0, 1, 2]}, "not numbers"),
        ({"sst": np.ones((9, 0, 4))}, r"no values: its shape is \(9, 0, 4\)"),
        ({"sst": np.ones((0, 3, 4))}, "no values"),
        ({"sst": np.ones((1, 3, 4))}, "has 1 times, too few"),
        ({"covariance": np.eye(1)}, "1 cells, fewer than 3"),
        ({"sst": RNG.normal(size=(9, 1, 2))}, "2 cells, fewer than 3"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_other_wrong_arrays_get_one_sentence(tmp_path, arrays, words):
    np.savez(tmp_path / "wrong.npz", **arrays)
    with pytest.raises(InvalidInput, match=words):
        field(tmp_path / "wrong.npz")


def test_a_field_near_a_pole_is_scored_as_it_is():
    task = verax.task("climate/field", field=dataset().assign_coords(lat=[89.9, 89.5, 89.1]))
    cases = task.cases(n=3)
    assert cases.truth.core is None
    assert verax.score(cases.truth.values.clone(), cases, "exact")["pearson"].mean() == pytest.approx(1)


# -- files ----------------------------------------------------------------------------------------------


def header(path, shape):
    with path.open("wb") as file:
        about = {"descr": "<f8", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, about)
        file.write(bytes(64))


def test_arrays_that_no_memory_holds_are_refused(tmp_path):
    header(tmp_path / "huge.npy", (10**7, 10**6))
    with zipfile.ZipFile(tmp_path / "huge.npz", "w") as file:
        file.write(tmp_path / "huge.npy", "sst.npy")
    for name in ("huge.npy", "huge.npz"):
        with pytest.raises(MissingFile, match="larger than memory, or damaged"):
            field(tmp_path / name)


def test_netcdf_files_that_no_memory_holds_are_refused(tmp_path):
    with h5py.File(tmp_path / "huge.nc", "w") as file:
        file.create_dataset("sst", (10**6, 10**5, 10**5), "f4", chunks=(1, 100, 100))
        for name, dimension in enumerate(("time", "lat", "lon")):
            file.create_dataset(dimension, (file["sst"].shape[name],), "f4", chunks=(1000,))
            file[dimension].make_scale(dimension)
            file["sst"].dims[name].attach_scale(file[dimension])
    with pytest.raises(MissingFile, match="larger than memory, or damaged"):
        field(tmp_path / "huge.nc", variable="sst")


def broken_deflate(path, **arrays):
    np.savez_compressed(path, **arrays)
    data = bytearray(path.read_bytes())
    data[200:260] = b"\xff" * 60
    path.write_bytes(data)


def test_damaged_and_foreign_members_of_archives(tmp_path):
    broken_deflate(tmp_path / "zlib.npz", sst=series())
    with pytest.raises(MissingFile, match="damaged"):
        field(tmp_path / "zlib.npz")
    with zipfile.ZipFile(tmp_path / "text.npz", "w") as file:
        file.writestr("sst.npy", "hello")
    with pytest.raises(InvalidInput, match="holds no array"):
        field(tmp_path / "text.npz")
    np.save(tmp_path / "sst.npy", series())
    with zipfile.ZipFile(tmp_path / "more.npz", "w") as file:
        file.writestr("readme.txt", "hello")
        file.write(tmp_path / "sst.npy", "sst.npy")
    assert field(tmp_path / "more.npz").digest == field(tmp_path / "sst.npy").digest


def test_files_are_known_by_their_content_too(tmp_path):
    np.savez(tmp_path / "my.npz", sst=series())
    made = field(tmp_path / "my.npz").digest
    for name in ("MY.NPZ", "12", "my.data"):
        (tmp_path / name).write_bytes((tmp_path / "my.npz").read_bytes())
        assert verax.task(f"climate/field?field={tmp_path / name}").field.digest == made


@pytest.mark.parametrize("name", ["~nosuchuser/x.nc", "x" * 5000 + ".nc", "a\0b.nc", "1.5"])
def test_names_that_no_file_has(name):
    with pytest.raises(MissingFile, match="There is no file") as caught:
        verax.task(f"climate/field?field={name}")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("source", [12, 1.5, [1, 2], np.zeros((3, 4, 5))])
def test_what_is_no_file_is_refused(source):
    with pytest.raises(InvalidParameter, match="A field is the path of a file or an xarray object"):
        field(source)


def test_a_file_without_times_is_told_so(tmp_path):
    dataset()[["area"]].to_netcdf(tmp_path / "area.nc", engine="h5netcdf")
    with pytest.raises(InvalidInput, match="no time axis; its dimensions are lat, lon"):
        field(tmp_path / "area.nc")


# -- options --------------------------------------------------------------------------------------------


def test_options_that_are_no_numbers_are_refused():
    for options, words in (
        ({"shrinkage": "abc"}, "'shrinkage' is a number from 0"),
        ({"shrinkage": float("nan")}, "'shrinkage' is a number from 0"),
        ({"share": "abc"}, "'share' is a number from 0"),
        ({"share": 7}, "'share' is a number from 0"),
        ({"variable": 3}, "'variable' is the name of one"),
    ):
        with pytest.raises(InvalidParameter, match=words):
            field("/nowhere/my.nc", **options)


def test_true_and_false_are_read_behind_a_name(tmp_path):
    np.savez(tmp_path / "my.npz", sst=series(), months=np.arange(120) % 12 + 1)
    for word, value in (("true", True), ("False", False)):
        made = verax.task(f"climate/field?field={tmp_path / 'my.npz'}&monthly={word}").field
        assert made.digest == field(tmp_path / "my.npz", monthly=value).digest


def test_names_that_look_like_numbers_stay_names(tmp_path):
    np.savez(tmp_path / "my.npz", **{"3": series(), "4": series()})
    made = verax.task(f"climate/field?field={tmp_path / 'my.npz'}&variable=3").field
    assert made.name == "3 of my.npz"


def around(longitudes, values=None):
    """A series of three rows at these longitudes."""
    values = RNG.normal(size=(120, 3, len(longitudes))) if values is None else values
    times = (np.datetime64("1990-01", "M") + np.arange(120)).astype("datetime64[ns]")
    axes = {"time": times, "lat": LATITUDES, "lon": np.asarray(longitudes, dtype=float)}
    return xarray.DataArray(values, axes, ("time", "lat", "lon"), name="sst")


@pytest.mark.parametrize(
    ("longitudes", "means"),
    [
        ([340, 350, 0, 10, 20, 30], [345, 5, 25]),
        ([350, 359, 3, 12], [354.5, 7.5]),
        ([345, 355, 5, 15], [350, 10]),
        ([358, 0, 2, 4], [359, 3]),
        ([359, 1, 3, 5], [0, 4]),
        ([160, 175, -175, -160], [167.5, -167.5]),
        ([170, 179, -177, -160], [174.5, -168.5]),
        ([179, -177, -160, -140], [-179, -150]),
        ([20, 10, 0, 350, 340, 330], [15, 355, 335]),
        ([355, 358, 361, 364], [356.5, 362.5]),
        ([-190, -180, -170, -160], [-185, -165]),
        ([0, 90, 180, 270], [45, 225]),
    ],
)
def test_means_of_longitudes_go_around_the_seam(longitudes, means):
    made = field(around(longitudes), coarsen=2, by="means")
    assert made.grid.longitudes.tolist() == pytest.approx(means)


def test_points_keep_the_longitudes_of_the_file():
    assert field(around([350, 355, 0, 5, 10, 15]), coarsen=2).grid.longitudes.tolist() == [350, 0, 10]


@pytest.mark.parametrize("longitudes", [[0, 90, 180, 270, 360], [-180, -90, 0, 90, 180], [5, 100, 365]])
def test_a_cyclic_point_is_one_place_twice(longitudes):
    with pytest.raises(InvalidInput, match=f"twice .{longitudes[0]} and {longitudes[-1]}.: leave one"):
        field(around(longitudes))


def test_options_are_given_once():
    with pytest.raises(InvalidParameter, match="'function' is given twice"):
        verax.task("climate/analytic?function=1&function=2")


def test_a_plan_says_what_was_done_to_data(tmp_path):
    values = seasonal()
    np.savez(
        tmp_path / "my.npz", sst=np.delete(values, 100, 0), months=np.delete(np.arange(240) % 12 + 1, 100)
    )
    study = {
        "name": "own",
        "tasks": ["climate/field?samples=500"],
        "field": str(tmp_path / "my.npz"),
        "networks": ["ridge"],
        "methods": ["gradient", "input-x-gradient"],
        "protocols": ["exact"],
        "samples": 2,
        "certify": 0,
        "missing": "train",
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error", VeraxWarning)  # nothing is wrong with such a field
        run = verax.run(study, out=tmp_path / "run", quiet=True)
    told = (
        "sst of my.npz: Calendar-month means and linear trends were removed. "
        "1 month between the first and the last is missing."
    )
    assert html.escape(told) in run.report().read_text()
    (tmp_path / "my.toml").write_text(
        "".join(f"{name} = {json.dumps(value)}\n" for name, value in study.items())
    )
    words = ["run", str(tmp_path / "my.toml"), "--out", str(tmp_path / "again")]
    assert told in CliRunner().invoke(app, words).output


@pytest.mark.parametrize(
    ("there", "words"), [(False, "install cftime, or say monthly"), (True, ": say monthly")]
)
def test_calendars_of_models_need_a_package_or_a_word(monkeypatch, there, words):
    known = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: (object() if there else None) if name == "cftime" else known(name),
    )
    units = {"units": "days since 1990-01-16", "calendar": "odd"}  # which no package knows
    plain = dataset().drop_vars("time").assign_coords(time=("time", np.arange(120), units))
    with pytest.raises(InvalidInput, match=words):
        field(plain, variable="sst")
    made = field(plain, variable="sst", monthly=True)
    assert "Calendar-month means" in made.notes[0]


def test_trends_of_weeks_are_those_of_real_time():
    """Over several years, with a gap, against NumPy's own line."""
    weeks = np.datetime64("1990-01-01", "D") + 7 * np.arange(240)
    weeks[120:] += 700
    values = series(240, land=False) + 0.01 * (weeks - weeks[0]).astype(int)[:, None, None]
    made = dataset(values, weeks)
    months = made["time"].dt.month.values
    left = values.reshape(240, -1).copy()
    for month in range(1, 13):
        left[months == month] -= left[months == month].mean(0)
    years = made["time"].dt.year.values + made["time"].dt.dayofyear.values / 365.25
    left -= np.stack([np.polyval(np.polyfit(years, column, 1), years) for column in left.T], 1)
    found = field(made, variable="sst", monthly=True).correlation
    assert torch.allclose(found, torch.from_numpy(np.corrcoef(left.T)), atol=1e-9)


def test_every_other_month_is_not_monthly():
    values = series(land=False)
    made = dataset(values, np.datetime64("1990-01", "M") + 2 * np.arange(120))
    with pytest.raises(InvalidInput, match=r"not a month apart \(most are further apart\)"):
        field(made, variable="sst")
    months = 2 * np.arange(120) % 12 + 1
    assert torch.allclose(
        field(made, variable="sst", monthly=True).correlation, expected(values, months), atol=1e-2
    )
