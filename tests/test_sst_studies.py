"""Studies of vector tasks from the file to the report: training, references, scores, maps and commands."""

import json
import shlex
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
import xarray
from matplotlib.backends.backend_agg import FigureCanvasAgg
from typer.testing import CliRunner

import verax
from little_climate import little_field, little_task
from verax import tasks
from verax.cli.main import app
from verax.errors import InvalidParameter, InvalidStudy, MissingFile
from verax.networks import library, regression, teaching
from verax.reports import agreement, atlas
from verax.studies import consistency, leaderboards, plan, requests, spec
from verax.studies.runs import Run
from verax.tasks.climate.fields import Field
from verax.tasks.climate.grid import Grid
from verax.tasks.climate.task import Climate

STUDY = {
    "name": "little",
    "tasks": ["little/climate"],
    "networks": ["ridge", "mlp"],
    "seeds": [0, 1],
    "methods": [
        "gradient",
        "input-x-gradient",
        {"name": "integrated-gradients", "label": "ig, right", "baseline": "task"},
        {"name": "gradient-shap", "label": "expected", "references": "task:20", "samples": 8},
    ],
    "protocols": ["exact"],
    "samples": 8,
    "certify": 5,
    "missing": "train",
}

SUBJECTS = [("ridge", 0), ("mlp", 0), ("mlp", 1)]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sst")
    task = little_task(baseline=0.5)
    quick = regression.Schedule(3e-3, 128, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(regression.SCHEDULES, "fast", quick)
        patch.setattr(regression, "_LEAST", 1)
        run = verax.run(STUDY, tasks=[task], store=folder / "store", out=folder / "run", quiet=True)
    return task, run, folder


def test_a_study_trains_what_is_missing_and_keeps_it(made):
    task, run, folder = made
    assert not run.failures
    for network, seed in (("ridge", 0), ("mlp", 0), ("mlp", 1)):
        assert library.find(task, network, seed, folder / "store") is not None
    # a network that is solved has no seeds
    assert [(n["network"], n["seed"]) for n in run.manifest["networks"]] == [
        ("ridge", 0),
        ("mlp", 0),
        ("mlp", 1),
    ]
    assert [entry["network"] for entry in run.manifest["trained"]] == ["ridge", "mlp", "mlp"]
    again = verax.run(STUDY, tasks=[task], store=folder / "store", out=folder / "run", quiet=True)
    assert again.manifest["reused_units"] == len(again.manifest["units"])
    assert again.manifest["trained"] == []


def test_references_are_those_that_mean_something_on_vectors(made):
    _, run, _ = made
    labels = {str(name) for name in run.scores["method"].unique()}
    assert {"input", "random", "oracle"} <= labels
    assert not {"edge", "centre"} & labels
    board = run.leaderboard("exact").set_index("method")
    assert board.loc["oracle", "value"] == pytest.approx(1)
    assert abs(board.loc["random", "value"]) < 0.3
    assert board["rank"].isna()[["oracle", "input", "random"]].all()
    assert board["control"].isin(["input", "random"]).all()


def test_scores_are_those_of_explaining_by_hand(made):
    task, run, folder = made
    model = library.network(task, "mlp", 1, folder / "store")
    cases = task.cases(n=8)
    maps = verax.explain(model, cases.inputs, cases.targets, "integrated-gradients", baseline=task.reference)
    right = verax.score(maps, cases, "exact")
    rows = run.scores[(run.scores["method"] == "ig, right") & (run.scores["seed"] == 1)]
    for metric in ("pearson", "spearman/core", "total-gap"):
        found = rows[(rows["metric"] == metric) & (rows["network"] == "mlp")].sort_values("sample")["value"]
        np.testing.assert_allclose(found, right[metric], atol=1e-6)


def test_certificates_have_the_seed_of_their_network(made):
    _, run, _ = made
    entries = run.manifest["certificates"]
    assert [(e["network"], e["seed"]) for e in entries] == SUBJECTS
    assert all(0 < e["limits"]["r2"] <= 1 for e in entries)
    fitted = agreement.networks(run)
    (found,) = (row["fit"][0] for row in fitted["rows"] if row["network"] == "ridge")
    assert found.startswith(f"{entries[0]['r2']:.3f} [")


def test_networks_trained_alike_are_compared(made):
    task, run, folder = made
    table = run.consistency()
    assert set(table["network"]) == {"mlp"}  # there is one ridge regression
    row = table[table["method"] == "gradient"].iloc[0]
    cases = task.cases(n=8)
    maps = [
        verax.explain(
            library.network(task, "mlp", s, folder / "store"), cases.inputs, cases.targets, "gradient"
        )
        for s in (0, 1)
    ]
    assert row["pairs"] == 1
    assert row["value"] == pytest.approx(consistency.between(maps)[0], abs=2e-3)
    assert consistency.between([maps[0], maps[0]]) == [pytest.approx(1)]


def test_the_report_has_maps_measures_and_certificates(made):
    _, run, _ = made
    page = run.report().read_text()
    words = (
        "pearson, no pole",
        "Each network",
        "trained alike",
        "land is blank",
        "R²",
        "dependence",
        ">path<",
    )
    for word in words:
        assert word in page
    assert "worst follow rate" not in page
    drawn = {path.name for path in (run.folder / "figures").iterdir()}
    assert any("atlas-little-climate" in name for name in drawn)
    assert any("spread-climate" in name for name in drawn)


def test_charts_put_cells_where_they_are(made):
    task, run, _ = made
    chart = atlas.charts(run)[0]
    assert chart.extent == (-29.5, 330.5 + 0.0, pytest.approx(-60), pytest.approx(114.25))
    land = ~task.grid.ocean.numpy()
    for plot in chart.plots:
        grey = (plot.picture == np.array(atlas.LAND)).all(2)
        assert (grey[land]).all()
    values = torch.zeros(len(task.grid))
    values[0], values[-1] = 1.0, -1.0
    picture = atlas.raster(values.numpy(), task.grid.cells.numpy(), task.grid.shape)
    assert picture[0, 0].tolist() == [0, 68, 27]
    assert picture[3, 4].tolist() == [64, 0, 75]


@pytest.mark.parametrize(
    ("longitudes", "flipped", "west", "east", "labels"),
    [
        ([340.0, 350.0, 0.0, 10.0], False, 335, 375, ["340°", "350°", "0°", "10°"]),
        ([10.0, 0.0, 350.0, 340.0], True, -25, 15, ["-20°", "-10°", "0°", "10°"]),
        ([170.0, 175.0, -180.0, -175.0], False, 167.5, 187.5, ["170°", "180°"]),
        ([40.0, 30.0, 20.0, 10.0], True, 5, 45, ["10°", "20°", "30°", "40°"]),
    ],
)
def test_charts_go_around_the_seam_and_have_east_right(tmp_path, longitudes, flipped, west, east, labels):
    grid = Grid.of([20.0, 10.0, 0.0], longitudes, np.ones((3, 4), dtype=bool))
    task = Climate("seam", Field.of("seam", grid, torch.eye(12) + 0.1), count=300)
    study = {**STUDY, "networks": ["ridge"], "seeds": [0], "methods": ["gradient"], "certify": 0}
    run = verax.run(study, tasks=[task], store=tmp_path / "store", out=tmp_path / "run", quiet=True)
    chart = atlas.charts(run)[0]
    assert chart.extent == pytest.approx((west, east, -5, 25))
    inputs = run.cases()["seam|inputs"][0].numpy()
    right = atlas.raster(inputs, grid.cells.numpy(), grid.shape)
    assert (chart.plots[0].picture == (right[:, ::-1] if flipped else right)).all()
    last = [panel for panel in atlas.figure(chart).axes if panel.axison][-1]
    assert [label.get_text() for label in last.get_xticklabels()] == labels


def test_charts_draw_uneven_latitudes_where_they_are(tmp_path):
    rows, columns = np.array([60.0, 20.0, 10.0, -5.0]), np.array([0.0, 10.0, 20.0])
    ocean = np.ones((4, 3), dtype=bool)
    ocean[1, 1] = False
    grid = Grid.of(rows, columns, ocean)
    task = Climate("uneven", Field.of("uneven", grid, torch.eye(11) + 0.1), count=300)
    study = {**STUDY, "networks": ["ridge"], "seeds": [0], "methods": ["gradient"], "certify": 0}
    run = verax.run(study, tasks=[task], store=tmp_path / "store", out=tmp_path / "run", quiet=True)
    chart = atlas.charts(run)[0]
    assert chart.edges[0].tolist() == [-5, 5, 15, 25]
    assert chart.edges[1].tolist() == [80, 40, 15, 2.5, -12.5]  # half-way between neighbours
    assert chart.extent == (-5, 25, -12.5, 80)
    made = atlas.figure(chart)
    made.set_dpi(100)
    canvas = FigureCanvasAgg(made)
    canvas.draw()
    pixels, panel = np.asarray(canvas.buffer_rgba())[..., :3], made.axes[0]
    for row, latitude in enumerate(rows):
        for column, longitude in enumerate(columns):
            for nudge in (-2.0, 0.0, 2.0):  # a cell has its colour from edge to edge
                x, y = panel.transData.transform((longitude + nudge, latitude + nudge))
                shown = pixels[pixels.shape[0] - 1 - int(y), int(x)]
                wanted = chart.plots[0].picture[row, column]
                assert np.abs(shown.astype(int) - wanted.astype(int)).max() <= 2


def test_charts_end_at_the_pole(made):
    _, run, _ = made
    for panel in atlas.figure(atlas.charts(run)[0]).axes:
        assert not panel.axison or panel.get_ylim()[1] <= 90


def test_the_command_line_runs_trains_and_certifies(made, monkeypatch, tmp_path):
    _, run, _ = made
    command = CliRunner()
    shown = command.invoke(app, ["report", str(run.folder)])
    assert shown.exit_code == 0, shown.output
    monkeypatch.setitem(regression.SCHEDULES, "fast", regression.Schedule(3e-3, 256, 1))
    monkeypatch.setattr(regression, "_LEAST", 1)
    trained = command.invoke(app, ["train", "climate/analytic?samples=512", "--network", "ridge"])
    assert "R2" in trained.output or "r2" in trained.output
    certified = command.invoke(
        app, ["certify", "climate/analytic?samples=512", "--network", "ridge", "--json"]
    )
    assert json.loads(certified.stdout)["limits"]["gradient"] == 0.5
    assert certified.exit_code == 1  # half a thousand samples are not enough


def test_a_field_of_ones_own_goes_through(tmp_path):
    rng = np.random.default_rng(0)
    months = rng.normal(size=(240, 3, 5)) + rng.normal(size=(240, 1, 1))
    months[:, 1, 2] = np.nan
    where = {
        "time": pd.date_range("1990-01", periods=240, freq="MS"),
        "lat": [30.0, 0.0, -30.0],
        "lon": np.arange(0.0, 50, 10),
    }
    path = tmp_path / "mine.nc"
    both = {"sst": (("time", "lat", "lon"), months), "other": (("time", "lat", "lon"), months * 2)}
    xarray.Dataset(both, where).to_netcdf(path, engine="h5netcdf")
    words = ["run", "sst-quick", "--field", str(path), "--variable", "sst", "--networks", "ridge"]
    words += ["--methods", "input-x-gradient,occlusion", "--samples", "3", "--certify", "2"]
    words += ["--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    run = Run(tmp_path / "out")
    assert run.manifest["tasks"][0]["elements"] == 14
    assert run.manifest["study"]["field"] == str(path)
    assert run.manifest["tasks"][0]["name"].startswith("climate/field?field=mine.nc&variable=sst")
    assert run.manifest["tasks"][0]["field"] == "sst of mine.nc"
    assert run.manifest["tasks"][0]["preprocessing"] == [
        "Calendar-month means and linear trends were removed."
    ]
    assert f"--field {path}" in (tmp_path / "out" / "report.html").read_text()
    with pytest.raises(InvalidStudy, match="Only climate tasks"):
        verax.run("smerf-quick", field=path)
    with pytest.raises(InvalidStudy, match="needs the field"):
        verax.run("sst-quick", variable="sst")


def test_the_command_of_a_network_trains_it_again(tmp_path, monkeypatch):
    """Also from another folder, and with names that a shell or a task's name would cut."""
    monkeypatch.chdir(tmp_path)
    values = np.random.default_rng(0).normal(size=(90, 3, 4))
    places = {"lat": [30.0, 0.0, -30.0], "lon": [0.0, 5.0, 10.0, 15.0]}
    (tmp_path / "my data").mkdir()
    path = tmp_path / "my data" / "a & b?.nc"
    both = {name: (("time", "lat", "lon"), values) for name in ("sea surface", "other")}
    xarray.Dataset(both, places).to_netcdf(path, engine="h5netcdf")
    options = {"variable": "sea surface", "monthly": False, "shrinkage": 0.05, "samples": 300, "breaks": 2}
    task = verax.task("climate/field", field=path.relative_to(tmp_path), **options)
    stored = verax.train(task, "ridge", quiet=True).save()
    record = json.loads(stored.with_suffix(".json").read_text())
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    stored.unlink()
    with pytest.raises(MissingFile) as missing:
        task.network("ridge")
    assert str(missing.value).endswith(record["command"])
    assert CliRunner().invoke(app, shlex.split(record["command"])[1:]).exit_code in (0, 1)
    assert json.loads(stored.with_suffix(".json").read_text()) == record
    shown = ["certify", *shlex.split(record["command"])[2:], "--json"]
    assert json.loads(CliRunner().invoke(app, shown).stdout)["task"] == task.name


def test_what_the_command_line_cannot_name_is_trained_in_python():
    values = np.random.default_rng(0).normal(size=(90, 3, 4))
    own = verax.task(
        "climate/field", field=xarray.DataArray(values, dims=("time", "lat", "lon")), samples=300
    )
    for task in (own, little_task(count=300)):
        command = library.command(verax.train(task, "ridge", quiet=True))
        assert command == "verax.train(task, 'ridge', seed=0).save()"
        with pytest.raises(MissingFile, match=r"verax\.train\(task, 'ridge', seed=0\)\.save\(\)"):
            task.network("ridge")


def test_climate_networks_are_mlps_unless_asked_otherwise(monkeypatch):
    monkeypatch.setitem(regression.SCHEDULES, "fast", regression.Schedule(3e-3, 256, 1))
    monkeypatch.setattr(regression, "_LEAST", 1)
    words = ["climate/analytic?samples=512"]
    assert "_mlp_seed0" in CliRunner().invoke(app, ["train", *words]).output.replace("\n", "")
    certified = CliRunner().invoke(app, ["certify", *words, "--json"])
    assert json.loads(certified.stdout)["task"] == words[0]
    known = {"shapes": "shapes-cnn", "textbox/simple-fr": "cnn4", "climate/analytic": "mlp"}
    assert {name: teaching.usual(verax.task(name)) for name in known} == known


def test_options_are_part_of_a_name():
    task = verax.task("climate/analytic?function=3&breaks=0")
    assert task.name == "climate/analytic?function=3&breaks=0"
    assert (task.seed, task.breaks) == (3, 0)
    assert verax.task("climate/analytic", function=3).name == "climate/analytic?function=3"
    assert verax.task("climate/analytic?function=0").name == "climate/analytic"
    assert verax.task("climate/analytic?baseline=sample:1").baseline == "sample:1"
    assert tasks.is_builtin("climate/analytic?function=3")
    with pytest.raises(InvalidParameter, match="NAME\\?OPTION=VALUE"):
        verax.task("climate/analytic?function")
    with pytest.raises(InvalidParameter, match="has the options"):
        verax.task("climate/analytic?colour=1")


@pytest.fixture
def plain_files(tmp_path):
    rng = np.random.default_rng(0)
    paths = [
        tmp_path / name for name in ("one.npy", "two.npy", "b/one.npy", "odd & long|" + 99 * "x" + ".npy")
    ]
    (tmp_path / "b").mkdir()
    for path in paths:
        np.save(path, rng.normal(size=(90, 12)))
    return paths


def test_a_field_is_named_by_its_file_and_how_it_is_read(plain_files):
    def name(path, **options):
        return verax.task("climate/field", field=path, **options).name

    one, two, _, odd = plain_files
    assert name(one) == name(str(one), coarsen=1) == "climate/field?field=one.npy"
    assert name(two, function=3) == "climate/field?field=two.npy&function=3"
    assert name(one, shrinkage=0.1, monthly=False, breaks=2) == (
        "climate/field?field=one.npy&monthly=false&shrinkage=0.1&breaks=2"
    )
    assert name(one, variable="one") == "climate/field?field=one.npy&variable=one"
    short = name(odd).removeprefix("climate/field?field=")
    assert len(short) == 40
    assert not set(short) & set("&|?=/ ")
    other = odd.with_name(odd.name.replace("&", "+"))
    odd.rename(other)
    assert name(other) != f"climate/field?field={short}"
    assert "/" not in name(xarray.DataArray(np.load(one).reshape(90, 3, 4), dims=("time", "lat", "lon")))[8:]


def test_one_task_twice_is_refused_and_files_of_one_name_are_told_apart(plain_files, tmp_path):
    one, two, other, _ = plain_files
    again = other.with_name("again") / other.name
    again.parent.mkdir()
    shutil.copy(one, again)

    def compiled(*names):
        study = spec.study({**STUDY, "tasks": list(names), "networks": ["linear"], "missing": "skip"})
        return plan.compile_plan(study, tmp_path)

    def field(path):
        return f"climate/field?field={path}&samples=200"

    for names in ([field(one), field(again)], ["climate/analytic", "climate/analytic?function=0"]):
        with pytest.raises(InvalidStudy, match="could not be told apart"):
            compiled(*names)
    for path in (one, two, other):
        library.save(regression.train(verax.task(field(path)), "linear", quiet=True), tmp_path / "networks")
    names = [subject.task.name for subject in compiled(field(one), field(two)).subjects]
    assert names == [f"climate/field?field={path.name}&samples=200" for path in (one, two)]
    both = compiled(field(one), field(other))
    marks = [verax.task(field(path)).field.digest[:6] for path in (one, other)]
    assert [s.task.name for s in both.subjects] == [f"{names[0]}&content={mark}" for mark in marks]
    assert len({s.weights for s in both.subjects}) == len({u.key for u in both.units}) // 7 == 2


def test_vectors_ask_for_the_exact_protocol(tmp_path):
    tasks.register(little_task("little/other"))
    study = spec.study({**STUDY, "tasks": ["little/other"], "protocols": ["sound", "exact"]})
    with pytest.raises(InvalidStudy, match="the protocol 'exact' is for, not 'sound'"):
        plan.compile_plan(study, tmp_path)
    study = spec.study({**STUDY, "tasks": ["little/other"], "identify": 3})
    with pytest.raises(InvalidStudy, match="identify = 0"):
        plan.compile_plan(study, tmp_path)


@pytest.mark.parametrize(
    "name", [name for name in spec.presets() if name.startswith("sst") and name != "sst-superpixels"]
)
def test_presets_name_tasks_methods_and_networks_that_exist(name):
    found = spec.study(name)
    assert found.missing == "train"
    assert found.protocols == ["exact"]
    for entry in found.tasks:
        assert verax.task(entry).name == entry
    for method, entry in ((verax.methods.METHODS.get(m.name), m) for m in found.methods):
        method.settings(entry.parameters)
    for network in found.networks:
        regression.check_network(network.partition("@")[0], verax.task(found.tasks[0]))


def test_core_leaves_the_pole_out():
    field = little_field()
    cases = little_task().cases(n=2)
    assert cases.truth.core.shape == cases.inputs.shape
    assert int((~cases.truth.core[0]).sum()) == 6
    assert torch.equal(~cases.truth.core[0], field.grid.polar)


def test_scores_frame_has_every_metric(made):
    _, run, _ = made
    metrics = set(run.scores["metric"].astype(str))
    assert {"pearson", "spearman", "sign-agreement", "top-overlap", "mass", "total-gap"} <= metrics
    assert {f"{name}/core" for name in ("pearson", "mass")} <= metrics
    assert isinstance(run.buckets("exact"), pd.DataFrame)


def test_labels_of_a_study_keep_their_parameters():
    known = spec.study(STUDY)
    label = "ig, right"
    kept, plain = requests._method_entries([label, "lime"], spec.labelled(STUDY))
    assert (kept["name"], kept["label"], kept["parameters"]) == (
        "integrated-gradients",
        label,
        {"baseline": "task"},
    )
    assert plain == "lime"
    assert spec.study(STUDY, methods=[kept, plain]).methods[0] == known.methods[2]


def test_a_gap_of_sums_has_no_skill_and_equals_share_a_place(made):
    _, run, _ = made
    board = run.leaderboard("exact", metric="total-gap")
    assert board["skill"].isna().all()
    scores = run.scores[run.scores["method"] == "gradient"]
    twin = pd.concat([run.scores, scores.assign(method="twin")], ignore_index=True)
    board = leaderboards.leaderboard(twin, run.families, protocol="exact").set_index("method")
    assert board.loc["twin", "rank"] == board.loc["gradient", "rank"]


def test_weights_without_their_record_are_trained_again(made, tmp_path):
    task, _, folder = made
    shutil.copytree(folder / "store" / "networks", tmp_path / "networks")
    path = library.find(task, "ridge", 0, tmp_path)
    path.with_suffix(".json").unlink()
    assert library.find(task, "ridge", 0, tmp_path) is None
