"""xarray: Datasets are explained and come back with their coordinates; bad ones are refused in a sentence."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

import verax
from verax.errors import InvalidInput, VeraxError

xr = pytest.importorskip("xarray", reason="xarray, of the extra [climate], is not installed")

ROWS, COLUMNS, SAMPLES = 4, 5, 3
OCEAN = np.ones((ROWS, COLUMNS), dtype=bool)
OCEAN[1, 1:3] = OCEAN[3, 4] = False
CELLS = int(OCEAN.sum())


def seeded(make):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make().eval()


def dense(cells):
    return seeded(lambda: nn.Sequential(nn.Linear(cells, 6), nn.ReLU(), nn.Linear(6, 1)))


def field(land=True, name="sst", seed=0):
    values = np.random.default_rng(seed).normal(size=(SAMPLES, ROWS, COLUMNS)).astype(np.float32)
    if land:
        values[:, ~OCEAN] = np.nan
    made = xr.DataArray(
        values,
        dims=("time", "lat", "lon"),
        coords={
            "time": np.array(["1982-12", "1997-12", "2015-12"], dtype="datetime64[ns]"),
            "lat": np.linspace(60, -60, ROWS),
            "lon": np.arange(COLUMNS) * 10.0,
            "season": ("time", ["DJF"] * SAMPLES),
        },
        name=name,
        attrs={"units": "K"},
    )
    made.encoding = {"dtype": "int16", "scale_factor": 0.01}
    return made


def test_a_data_array_comes_back_with_its_coordinates():
    data, model = field(), dense(CELLS)
    found = verax.explain(model, data, method="integrated-gradients", steps=8)
    assert isinstance(found, xr.Dataset)
    assert list(found.data_vars) == ["sst"]
    assert found.sst.dims == data.dims
    assert found.sst.dtype == np.float32
    for name in data.coords:
        xr.testing.assert_identical(found.coords[name], data.coords[name])
    assert np.isnan(found.sst.values[:, ~OCEAN]).all()
    vectors = torch.from_numpy(data.values[:, OCEAN])
    wanted = verax.explain(model, vectors, method="integrated-gradients", steps=8)
    np.testing.assert_array_equal(found.sst.values[:, OCEAN], wanted.numpy())
    assert found.sst.attrs["method"] == "integrated-gradients"
    assert found.sst.encoding == {}
    assert data.attrs == {"units": "K"}


def test_a_dataset_keeps_its_variables_and_the_order_of_cells():
    ice = field(name="icec", seed=1).where(field()["lat"] > 0)
    data = xr.Dataset({"sst": field(), "icec": ice, "time_bnds": (("time", "nv"), np.zeros((SAMPLES, 2)))})
    own = ~np.isnan(ice.values[0])
    model = dense(CELLS + int(own.sum()))
    found = verax.explain(model, data, 0, "gradient")
    assert list(found.data_vars) == ["sst", "icec"]
    inputs = np.concatenate([data.sst.values[:, OCEAN], ice.values[:, own]], 1)
    wanted = verax.explain(model, torch.from_numpy(inputs), 0, "gradient").numpy()
    np.testing.assert_array_equal(found.sst.values[:, OCEAN], wanted[:, :CELLS])
    np.testing.assert_array_equal(found.icec.values[:, own], wanted[:, CELLS:])


def test_networks_for_pictures_get_pictures():
    data = xr.Dataset({"a": field(False), "b": field(False, seed=1)})
    model = seeded(lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(18, 2)))
    found = verax.explain(model, data, method="gradient", targets=[0, 1, 1])
    inputs = torch.from_numpy(np.stack([data.a.values, data.b.values], 1))
    wanted = verax.explain(model, inputs, [0, 1, 1], "gradient").numpy()
    np.testing.assert_array_equal(np.stack([found.a.values, found.b.values], 1), wanted)
    with pytest.raises(InvalidInput, match=r"fill what is missing first\.$"):
        verax.explain(model, xr.Dataset({"a": field(), "b": field()}), method="gradient")


def test_a_network_of_another_size_is_said_in_one_sentence():
    places = OCEAN.size
    with pytest.raises(InvalidInput) as failed:
        verax.explain(dense(places), field(), method="gradient")
    words = str(failed.value)
    assert words.startswith(f"The network gets vectors of the {CELLS} cells that hold values")
    assert f"(the other {places - CELLS} of {places} are missing)" in words
    assert words.endswith(f"; if it takes all {places}, fill what is missing first.")
    assert f"1x{CELLS} and {places}x" in words
    with pytest.raises(InvalidInput, match=r"neither on vectors of .* nor on pictures of shape") as failed:
        verax.explain(dense(places + 1), field(False), method="gradient")
    assert str(failed.value).count("The network") == 1


def test_parameters_over_the_same_places():
    data, model = field(), dense(CELLS)
    low = field(seed=5)[0].drop_vars(["time", "season"])
    found = verax.explain(model, data, method="occlusion", baseline=low)
    vectors, b = torch.from_numpy(data.values[:, OCEAN]), torch.from_numpy(low.values[OCEAN])
    wanted = verax.explain(model, vectors, method="occlusion", baseline=b)
    np.testing.assert_array_equal(found.sst.values[:, OCEAN], wanted.numpy())
    rows = xr.zeros_like(low) + xr.DataArray(np.arange(ROWS), dims="lat")  # NaN on land, hence floats
    grouped = verax.explain(model, data, method="feature-ablation", segments=rows)
    label = torch.arange(ROWS)[:, None].expand(ROWS, COLUMNS)[torch.from_numpy(OCEAN)]
    wanted = verax.explain(model, vectors, method="feature-ablation", segments=label)
    np.testing.assert_array_equal(grouped.sst.values[:, OCEAN], wanted.numpy())
    references = verax.explain(model, data, method="deep-shap", references=field(seed=6))
    assert np.isfinite(references.sst.values[:, OCEAN]).all()


def test_what_is_read_back_from_a_file_is_what_was_explained(tmp_path):
    pytest.importorskip("h5netcdf")
    field().to_netcdf(tmp_path / "in.nc", engine="h5netcdf", encoding={"sst": {"dtype": "float32"}})
    data = xr.open_dataset(tmp_path / "in.nc", engine="h5netcdf")
    found = verax.explain(dense(CELLS), data)
    found.to_netcdf(tmp_path / "out.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "out.nc", engine="h5netcdf") as again:
        np.testing.assert_array_equal(again.sst.values, found.sst.values)
    data.close()


def _holed():
    data = field()
    data.values[1, 2, 3] = np.nan
    return data


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (lambda: _holed(), "'sst' is missing in some samples and not in others at lat -20.0, lon 30.0"),
        (lambda: field() * np.nan, "no values"),
        (lambda: field().fillna(0).astype(int), "floating-point numbers, not int64"),
        (lambda: xr.Dataset(), "must hold a variable"),
        (lambda: xr.Dataset({"a": ("x", np.zeros(3))}), "must hold a variable"),
        (lambda: field()[0, 0], "over samples and places"),
        (lambda: field()[0], r"counts samples, and here it is 'lat'.*isel\(time=\[0\]\)"),
        (lambda: field().transpose("lon", "lat", "time"), "counts samples, and here it is 'lon'"),
        (lambda: xr.Dataset({"a": field(), "b": field().transpose("lat", "time", "lon")}), "first dimension"),
        (lambda: field() / 0, r"NaN or infinite values\.$"),
        (lambda: field()[:, :2], "cannot run on them"),
    ],
)
def test_bad_data_is_refused_in_one_sentence(data, words):
    with pytest.raises(VeraxError, match=words) as caught:
        verax.explain(dense(CELLS), data())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("segments", lambda: field()[0], "whole numbers"),
        ("segments", lambda: field()[0].T, "must have the dimensions \\(lat, lon\\)"),
        ("segments", lambda: xr.Dataset({"a": field()[0], "b": field()[0]}), "as many variables"),
        ("baseline", lambda: field()[0] * np.nan, "NaN"),
    ],
)
def test_bad_parameters_are_refused_in_one_sentence(name, value, words):
    with pytest.raises(VeraxError, match=words):
        verax.explain(dense(CELLS), field(), method="feature-ablation", **{name: value()})


def test_xarray_is_never_imported_by_itself():
    code = (
        "import sys, torch, verax; from torch import nn;"
        "sys.modules['xarray'] = None;"
        "print(verax.explain(nn.Linear(3, 1), torch.ones(2, 3)).shape); assert sys.modules['xarray'] is None"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "torch.Size([2, 3])" in done.stdout
