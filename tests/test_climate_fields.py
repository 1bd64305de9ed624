"""Grids, pre-processing, and the fields that come with the package or its data."""

import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from verax.errors import InvalidInput, InvalidParameter, MissingFile
from verax.seeding import Streams
from verax.tasks.climate import cobe
from verax.tasks.climate import preprocessing as steps
from verax.tasks.climate.analytic import analytic, nino
from verax.tasks.climate.fields import SHRINKAGE, Field
from verax.tasks.climate.grid import Grid

ROWS = [36, 29, 16, 18, 16, 21, 21, 25, 28, 26, 30, 28, 29, 35, 35, 36, 22, 7]
HERE = Path(os.environ.get("VERAX_DATA", "/nowhere")) / cobe.EXTRACT
needs_cobe = pytest.mark.skipif(not HERE.is_file(), reason=f"VERAX_DATA has no {cobe.EXTRACT}")


@pytest.fixture
def small():
    return Grid.of([60, 0, -30], [0, 90, 180, 270], [[1, 0, 1, 1], [1, 1, 1, 1], [0, 0, 1, 1]])


def test_vectors_and_maps_are_the_same_thing(small):
    vectors = torch.arange(2 * len(small)).reshape(2, -1).float()
    maps = small.scatter(vectors)
    assert maps.shape == (2, 3, 4)
    assert maps.isnan()[0].equal(~small.ocean)
    assert small.gather(maps).equal(vectors)
    assert maps[0][small.ocean].equal(vectors[0])  # row by row
    with pytest.raises(InvalidInput, match="9 ocean cells"):
        small.scatter(torch.zeros(1, 8))
    with pytest.raises(InvalidInput, match="do not fit the grid"):
        small.gather(torch.zeros(1, 4, 3))


def test_distances_are_those_of_great_circles(small):
    distances = small.distances()
    cells = [tuple(cell) for cell in small.cells.tolist()]
    quarter = math.pi / 2 * 6371
    assert distances[cells.index((1, 0)), cells.index((1, 1))] == pytest.approx(quarter)
    assert distances[cells.index((0, 0)), cells.index((1, 0))] == pytest.approx(quarter * 60 / 90)
    assert distances[cells.index((1, 0)), cells.index((1, 2))] == pytest.approx(2 * quarter)
    assert distances.diagonal().abs().max() == 0
    with pytest.raises(InvalidParameter, match="no distances"):
        Grid.numbered(np.ones((2, 2))).distances()


def test_both_poles_are_poles():
    grid = Grid.of([89.5, 45.0, -45.0, -89.5], [0.0, 180.0], np.ones((4, 2)))
    assert grid.polar.tolist() == [True, True, False, False, False, False, True, True]
    assert not Grid.numbered(np.ones((99, 2))).polar.any()


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_patches_number_every_square_with_ocean_once(size):
    grid = analytic().grid
    patches = grid.patches(size)
    for one in range(int(patches.max()) + 1):
        squares = {tuple(cell) for cell in (grid.cells[patches == one] // size).tolist()}
        assert len(squares) == 1  # and none is empty
    assert len({tuple(cell) for cell in (grid.cells // size).tolist()}) == int(patches.max()) + 1


def test_grids_refuse_what_does_not_fit(small):
    with pytest.raises(InvalidInput, match="does not fit"):
        Grid.of([0, 1], [0, 1, 2], np.ones((3, 2)))
    with pytest.raises(InvalidInput, match="no ocean cell"):
        Grid.of([0, 1], [0, 1], np.zeros((2, 2)))
    with pytest.raises(InvalidParameter, match="A patch has a size"):
        small.patches(0)
    assert small.place([2, 3]) == "30S 270E"
    assert Grid.numbered(np.ones((2, 2))).place([1, 0]) == "row 1 column 0"


def test_the_embedded_field_is_like_the_sea():
    field = analytic()
    assert torch.bincount(field.grid.rows).tolist() == ROWS
    roots = torch.linalg.eigvalsh(field.correlation)
    assert roots[0] > 5e-5
    assert 40 < roots[-1] < 60
    assert 25 < roots.sum() ** 2 / (roots**2).sum() < 40
    near = (field.correlation.triu(1) > 0.99).nonzero()
    assert len(near) == 630
    assert field.grid.polar[near].all()
    # El Nino: the eastern and central Pacific go together, the western Pacific goes against them
    at = {field.grid.place(cell): number for number, cell in enumerate(field.grid.cells)}
    assert field.correlation[at["0.5S 220.5E"], at["0.5S 260.5E"]] > 0.6
    assert field.correlation[at["0.5S 230.5E"], at["29.5N 170.5E"]] < -0.2
    assert nino(field.grid).argmax() == at["0.5S 240.5E"]


def test_draws_have_the_correlations_of_the_field():
    field = analytic()
    drawn = field.draw(Streams.of(torch.arange(40_000), "test")).double()
    assert drawn.mean(0).abs().max() < 5 / 200
    assert (drawn.T.cov() - field.correlation).abs().max() < 0.04
    factor = field.factor()
    assert factor.dtype == torch.float32
    assert torch.allclose(factor @ factor.T, field.correlation.float(), atol=1e-5)
    assert factor.triu(1).abs().max() == 0


def test_blends_make_cells_alike():
    field = analytic()
    even = field.blend(uniform=0.3).correlation
    assert torch.allclose(even[0, 1:], torch.tensor(0.3, dtype=torch.float64))
    more = field.blend(globally=0.4)
    assert torch.allclose(more.correlation, 0.6 * field.correlation + 0.4)
    assert field.blend() is field
    assert len({field.digest, more.digest, field.blend(globally=0.5).digest}) == 3
    for wrong in ({"uniform": 1.0}, {"globally": -0.1}, {"uniform": 0.1, "globally": 0.1}, {"uniform": "x"}):
        with pytest.raises(InvalidParameter):
            field.blend(**wrong)


def test_matrices_are_made_definite_or_refused():
    grid = Grid.numbered(np.ones((1, 3)))
    twins = torch.tensor([[4.0, 4.0, 0.0], [4.0, 4.0, 0.0], [0.0, 0.0, 1.0]])
    field = Field.of("twins", grid, twins)
    assert field.shrinkage == SHRINKAGE
    assert field.correlation[0, 1] == pytest.approx(1 - SHRINKAGE)
    assert "0.01" in field.notes[0]
    assert torch.isfinite(field.factor()).all()
    with pytest.raises(InvalidInput, match="singular and needs shrinkage"):
        Field.of("twins", grid, twins, shrinkage=0.0)
    impossible = torch.tensor([[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]])
    with pytest.raises(InvalidInput, match=r"not positive definite: its smallest eigenvalue is -0\.8"):
        Field.of("impossible", grid, impossible)
    for wrong, words in (
        (torch.ones(2, 2), "does not fit 3 ocean cells"),
        (torch.full((3, 3), math.nan), "finite entries"),
        (torch.eye(3) * torch.tensor([1, 0, 1]), "positive diagonal"),
        (torch.eye(3) + torch.tensor([0.0, 0.0, 0.5]), "symmetric"),
    ):
        with pytest.raises(InvalidInput, match=words):
            Field.of("wrong", grid, wrong)
    with pytest.raises(InvalidParameter, match="Shrinkage is a weight"):
        Field.of("wrong", grid, torch.eye(3), shrinkage=1.0)


def test_anomalies_use_all_years_of_a_month():
    rng = np.random.default_rng(0)
    series, months = rng.normal(size=(48, 2, 3)), np.arange(48) % 12 + 1
    made = steps.anomalies(series, months)
    for month in range(12):
        np.testing.assert_allclose(made[month::12], series[month::12] - series[month::12].mean(0))
    cycle = np.tile(rng.normal(size=(12, 1, 1)), (4, 1, 1))
    assert np.abs(steps.anomalies(cycle, months)).max() < 1e-12


def test_trends_are_those_of_least_squares():
    rng = np.random.default_rng(1)
    series = rng.normal(size=(30, 2)) + np.arange(30)[:, None] * [0.5, -2.0]
    made = steps.detrend(series)
    for cell in range(2):
        line = np.polyfit(np.arange(30), series[:, cell], 1)
        np.testing.assert_allclose(
            made[:, cell], series[:, cell] - np.polyval(line, np.arange(30)), atol=1e-12
        )


def test_prepared_cells_have_unit_variance_and_constant_ones_are_named():
    rng = np.random.default_rng(2)
    months = np.arange(36) % 12
    seasonal = np.sin(months)
    series = np.stack([rng.normal(size=36), np.full(36, -1.8), seasonal, seasonal + rng.normal(size=36)], 1)
    cells, flat = steps.prepare(series, months)
    assert flat.tolist() == [False, True, True, False]
    np.testing.assert_allclose(cells[:, ~flat].std(0, ddof=1), 1)
    assert steps.prepare(series, None)[1].tolist() == [False, True, False, False]
    np.testing.assert_allclose(steps.correlations(cells[:, ~flat]), np.corrcoef(cells[:, ~flat].T))


def test_coarsening_by_points_and_by_means():
    series = np.arange(2 * 5 * 4, dtype=float).reshape(2, 5, 4)
    series[:, 0, 1] = np.nan
    points, rows, columns = steps.coarsen(series, 2)
    assert rows.tolist() == [0, 2, 4]
    assert columns.tolist() == [0, 2]
    np.testing.assert_array_equal(points, series[:, ::2, ::2])
    means, _, _ = steps.coarsen(series, 2, "means")
    assert means[0, 0, 0] == pytest.approx(np.mean([0, 4, 5]))
    assert means[1, 2, 1] == pytest.approx(np.mean([38, 39]))  # a block at the edge is smaller
    assert np.isnan(steps.coarsen(series, 2, "means", 0.75)[0][0, 0, 0])
    for wrong in ((0,), (2, "medians"), (2, "means", 1.5)):
        with pytest.raises(InvalidParameter):
            steps.coarsen(series, *wrong)


@needs_cobe
def test_cobe_is_the_published_field():
    field = cobe.field("cobe-sst2")
    assert torch.bincount(field.grid.rows).tolist() == ROWS
    roots = torch.linalg.eigvalsh(field.correlation)
    assert roots[-1] == pytest.approx(51.3, abs=0.05)
    assert roots[0] == pytest.approx(3.2e-5, rel=0.05)
    off = field.correlation[~torch.eye(458, dtype=torch.bool)]
    assert off.mean() == pytest.approx(0.057, abs=1e-3)
    assert off.abs().mean() == pytest.approx(0.120, abs=1e-3)
    assert off.min() == pytest.approx(-0.574, abs=1e-3)
    assert not field.shrinkage
    assert field.grid.ocean.equal(analytic().grid.ocean)  # the embedded mask
    assert field.grid.latitudes.equal(analytic().grid.latitudes)
    assert field.grid.longitudes.equal(analytic().grid.longitudes)


@needs_cobe
def test_cobe_knows_el_nino():
    series, about = cobe.read(HERE, "sst")
    cell, _ = steps.prepare(series[:, 9, 24], about["months"])
    for year, level in ((1982, 3.72), (1997, 3.61), (2015, 3.48), (1988, -2.20)):
        assert cell[(year - 1950) * 12 + 11] == pytest.approx(level, abs=0.01)


@needs_cobe
def test_sea_ice_has_the_cells_where_ice_comes_and_goes():
    field = cobe.field("sea-ice")
    ice, _ = cobe.read(HERE, "icec")
    changing = np.ptp(ice, axis=0) > 0  # counted here by another road: the raw values
    assert field.grid.ocean.numpy().tolist() == changing.tolist()
    assert field.grid.latitudes[field.grid.rows].abs().min() > 35
    assert not field.shrinkage


@needs_cobe
def test_other_data_than_the_published_are_refused(tmp_path, monkeypatch):
    with np.load(HERE) as file:
        arrays = dict(file)
    arrays["sst"] = arrays["sst"] + np.random.default_rng(0).normal(size=arrays["sst"].shape).astype("f4")
    (tmp_path / "climate").mkdir()
    np.savez(tmp_path / cobe.EXTRACT, **arrays)
    monkeypatch.setenv("VERAX_DATA", str(tmp_path))
    with pytest.raises(InvalidInput, match="not those of the paper"):
        cobe.field("cobe-sst2")


def test_missing_and_damaged_extracts_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("VERAX_DATA", str(tmp_path))
    with pytest.raises(MissingFile, match="run 'verax data cobe-sst2'"):
        cobe.field("cobe-sst2")
    (tmp_path / "climate").mkdir()
    (tmp_path / cobe.EXTRACT).write_bytes(b"PK\x03\x04 half of it")
    with pytest.raises(MissingFile, match="damaged"):
        cobe.field("cobe-sst2")
    np.savez(
        tmp_path / cobe.EXTRACT, sst=np.zeros((5, 18, 36)), lat=0, lon=0, year_month=np.zeros((5, 2), int)
    )
    with pytest.raises(InvalidInput, match="840 months"):
        cobe.field("cobe-sst2")


def test_damaged_members_and_months_of_extracts_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("VERAX_DATA", str(tmp_path))
    (tmp_path / "climate").mkdir()
    path = tmp_path / cobe.EXTRACT
    arrays = {
        "sst": np.random.default_rng(0).normal(size=(840, 18, 36)),
        "lat": np.arange(18.0),
        "lon": np.arange(36.0),
        "year_month": np.stack([np.arange(840) // 12, np.arange(840) % 12 + 1.0], 1),
    }
    np.savez_compressed(path, **arrays)
    data = bytearray(path.read_bytes())
    data[5000:5060] = b"\xff" * 60
    path.write_bytes(data)
    with pytest.raises(MissingFile, match="damaged"):
        cobe.read(path, "sst")
    np.savez(path, **{**arrays, "lat": np.full(18, "x")})
    with pytest.raises(MissingFile, match="damaged or not an extract"):
        cobe.read(path, "sst")
    arrays["year_month"][3, 1] = np.nan
    np.savez(path, **arrays)
    with pytest.raises(InvalidInput, match="its months are not all whole numbers from 1 to 12: number 4"):
        cobe.read(path, "sst")


def test_both_poles_are_polar():
    grid = Grid.of([89.5, 89, 0, -89, -89.5], [0, 1], np.ones((5, 2)))
    assert grid.polar.tolist() == [True] * 2 + [False] * 6 + [True] * 2
    assert not Grid.numbered(np.ones((100, 1))).polar.any()


def test_blends_of_cells_that_are_all_the_same_are_refused():
    for blend in ({"globally": 0.9999999999999}, {"uniform": 0.9999999999999999}):
        with pytest.raises(InvalidParameter, match="too near 1"):
            analytic().blend(**blend)
    assert torch.isfinite(analytic().blend(globally=0.99).factor()).all()


def test_times_of_trends_may_be_uneven():
    times = np.array([0, 1, 2, 10, 11, 30])
    series = np.random.default_rng(4).normal(size=(6, 2)) + times[:, None]
    line = np.polynomial.polynomial.polyfit(times, series, 1)
    left = series - np.polynomial.polynomial.polyval(times, line).T
    np.testing.assert_allclose(steps.detrend(series, times), left, atol=1e-12)
    np.testing.assert_allclose(steps.detrend(series, np.ones(6)), series - series.mean(0))


def test_another_place_is_another_field():
    matrix = torch.eye(4) + 0.1

    def digest(latitudes, longitudes, ocean=((1, 1), (1, 1)), geographic=True):
        return Field.of("one", Grid.of(latitudes, longitudes, ocean, geographic), matrix).digest

    made = [
        digest([10, 0], [0, 10]),
        digest([20, 0], [0, 10]),
        digest([10, 0], [0, 20]),
        digest([10, 0], [0, 10], geographic=False),
        digest([10, 0], [0, 10, 20], ((1, 1, 0), (1, 1, 0))),
        digest([10, 0], [0, 10, 20], ((1, 1, 0), (1, 0, 1))),
    ]
    assert len(set(made)) == len(made)
    assert digest([10, 0], [0, 10]) == made[0]


@pytest.mark.parametrize(("lowest", "fine"), [(-1e-4, True), (-0.01, False)])
def test_only_noise_below_zero_is_mended(lowest, fine):
    """A correlation slightly above 1 makes the smallest eigenvalue slightly negative."""
    matrix = torch.eye(4, dtype=torch.float64)
    matrix[0, 1] = matrix[1, 0] = 1 - lowest
    grid = Grid.of([10, 0], [0, 10], np.ones((2, 2)))
    if fine:
        assert Field.of("noisy", grid, matrix).shrinkage == SHRINKAGE
    else:
        with pytest.raises(InvalidInput, match=r"not positive definite: its smallest eigenvalue is -0\.01"):
            Field.of("wrong", grid, matrix)


def test_small_variation_is_variation_and_rounding_is_not():
    noise = np.random.default_rng(0).normal(size=(120, 3))
    kelvin = 300 + noise * [1e-4, 1.0, 0.0]
    cells, flat = steps.prepare(kelvin, np.arange(120) % 12)
    assert flat.tolist() == [False, False, True]
    assert cells[:, :2].std(0, ddof=1) == pytest.approx(1)


def test_samples_do_not_depend_on_the_number_of_threads():
    """Not in the last digit, which a network that learns from them would amplify."""
    own, before = analytic(), torch.get_num_threads()
    factors = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            factors.append(replace(own, name=f"with {threads}")._factor64)
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*factors)
