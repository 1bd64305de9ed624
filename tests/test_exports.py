"""A run for other tools: CSV, Parquet and MLflow."""

import csv
import importlib
import json
import os
import posixpath
import shutil
import sys
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import verax
from verax.cli.main import app
from verax.errors import InvalidParameter, MissingExtra, MissingFile, OutputError
from verax.files import atomically, write_atomically
from verax.studies import exports
from verax.studies.runs import Run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    base = tmp_path_factory.mktemp("exported")
    study = {"name": "small", "tasks": ["textbox/simple-fr"], "networks": ["wired"], "samples": 2}
    methods = ["gradient", {"name": "integrated-gradients", "label": "ig, 4 <steps>", "steps": 4}]
    made = {**study, "methods": methods, "protocols": ["sound", "sound:shapley"], "certify": 5}
    return verax.run(made, out=base / "run", store=base / "store", quiet=True, device="cpu")


def test_csv_has_every_score(run, tmp_path):
    path = run.to_csv(tmp_path / "new" / "scores.csv")
    found = pd.read_csv(path)
    assert list(found.columns) == list(run.scores.columns)
    assert len(found) == len(run.scores)
    assert found["value"].tolist() == pytest.approx(run.scores["value"].tolist(), rel=1e-15)
    assert found["method"].tolist() == run.scores["method"].tolist()
    with pytest.raises(OutputError, match="is a folder; name a file"):
        run.to_csv(tmp_path)


EVIL = ["=1+1", "+gradient", "-gradient", "@sum", "\tx", "\rx"]


def test_scores_that_are_not_there_are_said(run, tmp_path):
    folder = shutil.copytree(run.folder, tmp_path / "empty")
    (folder / "scores.parquet").unlink()
    for write in (exports.to_csv, exports.to_parquet):
        with pytest.raises(MissingFile, match="cannot be read"):
            write(verax.load(folder), tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_names_in_csv_are_no_formulas_and_numbers_stay(run, tmp_path):
    table = pq.read_table(run.folder / "scores.parquet")
    rows = len(EVIL) + 1
    part = table.slice(0, rows).to_pandas()
    part["method"] = [*EVIL, "a=b"]
    part["value"] = [-1.5, *part["value"][1:]]
    (tmp_path / "evil").mkdir()
    shutil.copy(run.folder / "manifest.json", tmp_path / "evil" / "manifest.json")
    pq.write_table(pa.Table.from_pandas(part, preserve_index=False), tmp_path / "evil" / "scores.parquet")
    path = Run(tmp_path / "evil").to_csv(tmp_path / "evil.csv")
    with path.open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [row["method"] for row in found] == [*(f"'{name}" for name in EVIL), "a=b"]
    assert float(found[0]["value"]) == -1.5
    assert [row["task"] for row in found] == part["task"].tolist()
    shown = exports.defused(part)
    assert shown["method"].tolist() == [row["method"] for row in found]
    pd.testing.assert_series_equal(shown["value"], part["value"])


def test_no_two_things_have_one_name_in_mlflow():
    methods = ["a:b", "a;b", "a-b", "gradient", "gradient/low", "x/../y", "x/./y"]
    names = [("sound", "iou", method) for method in methods] + [
        ("sound", "iou/core", "b"),
        ("sound", "iou", "core/b"),
    ]
    stems = exports.metric_stems(names)
    keys = [stem + ending for stem in stems.values() for ending in ("/mean", "/low", "/high", "/skill")]
    assert len(set(keys)) == len(keys)
    assert stems["sound", "iou", "a-b"] == "sound/iou/a-b"
    assert stems["sound", "iou", "gradient"] == "sound/iou/gradient"
    assert exports.metric_stems(names[::-1]) == stems
    assert all(posixpath.normpath(stem) == stem for stem in stems.values())


def test_the_command_writes_beside_the_run(run, tmp_path):
    done = CliRunner().invoke(app, ["export", str(run.folder), "--format", "parquet"])
    assert done.exit_code == 0, done.output
    assert len(pd.read_parquet(run.folder.parent / "run.parquet")) == len(run.scores)
    target = tmp_path / "a.csv"
    done = CliRunner().invoke(app, ["export", str(run.folder), "--out", str(target)])
    assert done.exit_code == 0
    assert target.is_file()


def test_the_format_follows_the_ending_of_the_file(run, tmp_path):
    for name, read in (("a.parquet", pd.read_parquet), ("a.csv", pd.read_csv), ("b.CSV", pd.read_csv)):
        done = CliRunner().invoke(app, ["export", str(run.folder), "--out", str(tmp_path / name), "--json"])
        assert done.exit_code == 0, done.output
        assert len(read(tmp_path / name)) == len(run.scores)
        assert json.loads(done.output)["format"] == name.partition(".")[2].lower()
    exports.export(run, path=tmp_path / "c.parquet")
    assert (tmp_path / "c.parquet").read_bytes() == (tmp_path / "a.parquet").read_bytes()
    assert exports.export(run, "parquet", tmp_path / "plain") == tmp_path / "plain"
    assert len(pd.read_parquet(tmp_path / "plain")) == len(run.scores)


@pytest.mark.parametrize(
    ("format", "name", "words"),
    [
        ("csv", "a.parquet", "ends in .parquet, but csv is asked for"),
        ("parquet", "a.csv", "ends in .csv, but parquet is asked for"),
        (
            None,
            "a.xyz",
            "ends in .xyz, which is no format of a table: name one that ends in .csv or .parquet",
        ),
        ("csv", "a.csv.gz", "ends in .gz, which is no format of a table"),
        (None, "scores", "has no ending that names a format: name one that ends in .csv or .parquet"),
    ],
)
def test_an_ending_that_says_something_else_is_refused(run, tmp_path, format, name, words):
    with pytest.raises(InvalidParameter) as caught:
        exports.export(run, format, tmp_path / name)
    assert words in str(caught.value)
    assert not list(tmp_path.iterdir())
    with pytest.raises(OutputError, match="is a folder; name a file"):
        exports.export(run, path=tmp_path)


@pytest.mark.parametrize(
    ("format", "options", "words"),
    [
        ("parket", {}, "did you mean 'parquet'"),
        ("csv", {"experiment": "x"}, "csv has no option 'experiment'"),
        ("mlflow", {"path": "a"}, "MLflow keeps runs itself"),
    ],
)
def test_what_cannot_be_is_refused(run, format, options, words):
    with pytest.raises(InvalidParameter, match=words):
        exports.export(run, format, **options)


class Tracker(ModuleType):
    """Takes what MLflow takes."""

    def __init__(self):
        super().__init__("mlflow")
        self.params, self.metrics, self.artifacts, self.calls = {}, {}, [], []

    def set_tracking_uri(self, uri):
        self.calls.append(("tracking", uri))

    def set_experiment(self, name):
        self.calls.append(("experiment", name))

    @contextmanager
    def start_run(self, run_name):
        self.calls.append(("run", run_name))
        yield SimpleNamespace(info=SimpleNamespace(run_id="abc"))

    def log_params(self, params):
        assert all(len(value) <= 500 for value in params.values())
        self.params.update(params)

    def log_metrics(self, metrics):
        self.metrics.update(metrics)

    def log_artifact(self, path):
        self.artifacts.append(path.rpartition("/")[2])


def test_mlflow_gets_the_study_the_leaderboards_and_the_files(run, monkeypatch):
    tracker = Tracker()
    monkeypatch.setitem(sys.modules, "mlflow", tracker)
    done = CliRunner().invoke(
        app, ["export", str(run.folder), "--format", "mlflow", "--experiment", "e", "--tracking", "here"]
    )
    assert done.exit_code == 0, done.output
    assert "MLflow run: abc" in done.output
    assert tracker.calls == [
        ("tracking", Path("here").resolve().as_uri()),
        ("experiment", "e"),
        ("run", "run"),
    ]
    board = run.leaderboard().set_index("method")
    assert tracker.metrics["sound/focus-share/gradient/mean"] == board["value"]["gradient"]
    assert tracker.metrics["sound/focus-share/gradient/skill"] == board["skill"]["gradient"]
    assert "sound-shapley/focus-share/ig- 4 -steps-/mean" in tracker.metrics  # names that MLflow takes
    assert all(value == value for value in tracker.metrics.values())
    names = set(tracker.metrics)  # each is a file where MLflow keeps runs in a folder
    assert not any(other.startswith(f"{name}/") for name in names for other in names)
    assert tracker.params["methods"] == "gradient, ig, 4 <steps>"
    assert tracker.params["samples"] == "2"
    assert "scores.parquet" in tracker.artifacts
    assert "manifest.json" in tracker.artifacts


def test_a_server_that_refuses_is_one_sentence(run, monkeypatch):
    tracker = Tracker()

    def refuse(metrics):
        raise ConnectionError("no route\nto host")

    tracker.log_metrics = refuse
    monkeypatch.setitem(sys.modules, "mlflow", tracker)
    with pytest.raises(OutputError, match=r"MLflow did not take the run: ConnectionError: no route to host$"):
        exports.to_mlflow(run, tracking="http://nowhere")
    with pytest.raises(OutputError, match=r"Name a folder or the address of a server \(--tracking\)\.$"):
        exports.to_mlflow(run)


@pytest.mark.skipif(find_spec("mlflow") is None, reason="MLflow is not installed")
def test_mlflow_itself_takes_a_run(run, tmp_path, monkeypatch):
    mlflow = importlib.import_module("mlflow")
    for name in ("MLFLOW_ALLOW_FILE_STORE", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    found = exports.to_mlflow(run, "mine", str(tmp_path / "kept"))
    seen = mlflow.get_run(found)
    assert seen.data.params["samples"] == "2"
    value = run.leaderboard().set_index("method")["value"]["gradient"]
    assert seen.data.metrics["sound/focus-share/gradient/mean"] == pytest.approx(value)
    assert {path.path for path in mlflow.MlflowClient().list_artifacts(found)} >= {
        "scores.parquet",
        "manifest.json",
    }


def test_without_mlflow_there_is_a_command(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(MissingExtra, match="pip install mlflow"):
        exports.to_mlflow(run)


def test_a_pipe_or_a_device_is_not_replaced(tmp_path):
    """As root, a file could take the place of /dev/null."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OutputError, match="not a file"):
        write_atomically(tmp_path / "pipe", b"scores")
    with pytest.raises(OutputError, match="not a file"), atomically(tmp_path / "pipe") as path:
        path.write_bytes(b"scores")
    assert (tmp_path / "pipe").is_fifo()
    assert [entry.name for entry in tmp_path.iterdir()] == ["pipe"]
