"""Studies that read the reasoning off the maps: tables, what is kept, what fails, and what the page shows."""

from __future__ import annotations

import time

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure
from typer.testing import CliRunner

import verax
from verax.cli.main import app
from verax.reports import identifiability
from verax.studies import plan, readings, spec
from verax.studies.identification import TABLES, identify
from verax.tasks.textbox.settings import SETTINGS

SEVEN = [f"textbox/{name}" for name in SETTINGS]
TWO = ["textbox/simple-nr", "textbox/complex-cr3"]
METHODS = ["input-x-gradient", {"name": "smoothgrad", "label": "smoothgrad", "samples": 3}]
ASKED = {
    "name": "read",
    "tasks": TWO,
    "networks": ["cnn4", "wired"],
    "protocols": ["sound"],
    "samples": 3,
    "certify": 0,
    "identify": 2,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("readings")


@pytest.fixture(scope="module")
def done(folder):
    return verax.run({**ASKED, "methods": METHODS}, out=folder / "run", store=folder / "store", quiet=True)


def brute_force(network, samples):
    """The accuracy of input x gradient, picture by picture, with nothing but autograd and the rules."""
    tasks = [verax.task(name) for name in SEVEN]
    names = tasks[0].world.names
    scenes = dict(enumerate(tasks[0].world.scenes(), 1))
    groups = (2, 3, 5, 6, 8, 9, 11, 12)
    right = []
    for place, task in enumerate(tasks):
        model, cases = task.network(network), task.cases(group=groups, n=samples, seed=0)
        for i in range(len(cases)):
            x = cases.inputs[i : i + 1].clone().requires_grad_()
            (slope,) = torch.autograd.grad(model(x)[0, cases.targets[i]], x)
            mass = (x * slope).detach()[0].sum(0).abs().double()
            if not mass.any():
                mass += 1  # a map without mass says nothing, as a constant one does
            objects = cases.truth.objects[i]
            shares = np.array([float(mass[o].sum() / mass.sum()) for o in objects])
            shares = np.append(shares, 1 - shares.sum())
            misfits = []
            for other in tasks:
                focus = other.reasoning.focus(scenes[int(cases.group[i])])
                both = []
                for weigh in (lambda o: 1, lambda o: int(o.sum())):
                    goal = [weigh(o) if n in focus else 0 for n, o in zip(names, objects, strict=True)]
                    goal = np.array([*goal, 0 if focus else 1]) / (sum(goal) or 1)
                    both.append(np.abs(goal - shares).sum() / 2)
                misfits.append(min(both))
            best = np.array(misfits) <= min(misfits) + 1e-6
            right.append(best[place] / best.sum())
    return np.mean(right)


@pytest.mark.parametrize("network", ["cnn4", "wired"])
def test_a_reading_by_hand_gives_the_same_accuracy(network):
    table = identify(SEVEN, ["input-x-gradient"], network=network, samples=1).accuracy.set_index("method")
    assert table.loc["input-x-gradient", "image"] == pytest.approx(brute_force(network, 1))


def test_a_study_reads_what_identify_reads(done):
    found = done.identification()
    assert found is not None
    assert set(found.accuracy["network"]) == {"cnn4", "wired"}
    assert set(found.accuracy["method"]) == {"input-x-gradient", "smoothgrad", "oracle"}  # no controls
    for network in ("cnn4", "wired"):
        alone = identify(TWO, ["input-x-gradient"], network=network, samples=2)
        for name, table in alone.tables().items():
            here = found.tables()[name]
            here = here[(here["network"] == network) & (here["method"] != "smoothgrad")]
            pd.testing.assert_frame_equal(
                here.drop(columns="network").reset_index(drop=True), table, rtol=1e-4, atol=1e-5
            )


def test_maps_that_were_scored_are_read_as_maps_that_are_made_again(done, folder, monkeypatch):
    monkeypatch.setattr(readings, "_code", lambda: "readings as nobody kept them")
    again = verax.run({**ASKED, "methods": METHODS}, out=folder / "two", store=folder / "store", quiet=True)
    assert again.manifest["reused_units"] == len(again.manifest["units"])
    for name in TABLES:
        pd.testing.assert_frame_equal(
            again.identification().tables()[name], done.identification().tables()[name]
        )


def test_finished_readings_are_not_read_again(done, folder, monkeypatch):
    def never(*_):
        raise AssertionError("read again")

    monkeypatch.setattr(readings.Reader, "read", never)
    again = verax.run({**ASKED, "methods": METHODS}, out=folder / "three", store=folder / "store", quiet=True)
    pd.testing.assert_frame_equal(again.identification().accuracy, done.identification().accuracy)


def test_a_study_that_does_not_ask_leaves_nothing_behind(done, folder):
    target = folder / "four"
    for pictures in (2, 0):
        study = {**ASKED, "methods": ["input-x-gradient"], "networks": ["wired"], "identify": pictures}
        run = verax.run(study, out=target, store=folder / "store", quiet=True)
        assert (run.identification() is not None) == bool(pictures)
    assert identifiability.part(run) is None


def test_lineups_are_of_one_training_that_all_tasks_have(tmp_path):
    study = spec.study({**ASKED, "methods": ["gradient"], "identify": 50})
    compiled = plan.compile_plan(study, tmp_path)
    assert readings.pictures(compiled) == study.samples  # no more than there are
    found = readings.readings(compiled)
    assert [(r.network, r.label) for r in found] == [
        (network, label) for network in ("cnn4", "wired") for label in ("gradient", "oracle")
    ]
    assert all([u.subject.task.name for u in r.cells] == TWO for r in found)
    alone = spec.study({**ASKED, "tasks": TWO[:1], "methods": ["gradient"]})
    assert readings.readings(plan.compile_plan(alone, tmp_path)) == []


@pytest.mark.filterwarnings("ignore::verax.errors.VeraxWarning")
def test_a_method_that_fails_has_no_reading(folder):
    def broken(model, inputs, targets):
        raise RuntimeError("no")

    study = {**ASKED, "networks": ["wired"], "methods": ["gradient"]}
    run = verax.run(study, methods=["gradient", broken], out=folder / "five", store=folder / "s", quiet=True)
    assert "reading wired: broken" in {failure["unit"] for failure in run.failures}
    assert set(run.identification().accuracy["method"]) == {"gradient", "oracle"}


@pytest.mark.filterwarnings("ignore::verax.errors.VeraxWarning")
def test_a_method_that_failed_is_not_tried_again_where_nothing_stops_it(folder):
    asked = []

    def leaves(model, inputs, targets):
        asked.append(len(inputs))
        raise SystemExit(3)

    def hangs(model, inputs, targets):
        for _ in range(200):
            time.sleep(0.1)
        return inputs

    study = {**ASKED, "networks": ["wired"], "methods": ["gradient"], "samples": 2}
    started = time.monotonic()
    run = verax.run(
        study,
        methods=["gradient", leaves, hangs],
        out=folder / "six",
        store=folder / "s",
        quiet=True,
        executor="inline",
        time_limit=0.5,
    )
    assert time.monotonic() - started < 15
    assert len(asked) == len(TWO)
    kinds = {failure["unit"]: failure["kind"] for failure in run.failures}
    assert kinds == {
        **{f"{name} wired seed 0: leaves": "method" for name in TWO},
        **{f"{name} wired seed 0: hangs": "time" for name in TWO},
        "reading wired: leaves": "method",
        "reading wired: hangs": "method",
    }
    assert set(run.identification().accuracy["method"]) == {"gradient", "oracle"}


@pytest.mark.filterwarnings("ignore::verax.errors.VeraxWarning")
def test_overwrite_holds_for_readings_too(folder, monkeypatch):
    study = {**ASKED, "networks": ["wired"], "methods": ["gradient"], "samples": 2, "protocols": ["sound"]}
    where = {"store": folder / "policies", "quiet": True}
    verax.run({**study, "identify": 0}, out=folder / "seven", **where)
    run = verax.run(study, out=folder / "eight", overwrite="never", **where)
    assert run.identification() is None
    assert {failure["reason"] for failure in run.failures} == {"not computed: --overwrite never"}
    verax.run(study, out=folder / "eight", **where)
    read = readings.Reader.read
    seen = []
    monkeypatch.setattr(readings.Reader, "read", lambda *given: seen.append(0) or read(*given))
    verax.run(study, out=folder / "eight", overwrite="never", **where)
    assert not seen
    assert not verax.run(study, out=folder / "eight", overwrite="all", **where).failures
    assert len(seen) == 2


def test_the_page_and_the_terminal_show_it(done):
    page = done.report().read_text()
    assert "Can the reasoning be read off a map?" in page
    assert len(list(done.folder.glob("figures/*-confusions-*.svg"))) == 2
    assert len(list(done.folder.glob("figures/*-identification-accuracy.png"))) == 1
    part = identifiability.part(done)
    assert [entry["network"] for entry in part["networks"]] == ["wired", "cnn4"]  # cnn4 has no certificate
    for entry in part["networks"]:
        assert entry["sentence"] in page.replace("&#39;", "'")
        assert entry["rows"][0]["method"] == "oracle"
        for row in entry["rows"]:
            assert row["where"].split(" [")[0] in page


def test_confusions_are_drawn_as_opacity():
    cells = [("m", a, b, float(a == b)) for a in "xyz" for b in "xyz"]
    table = pd.DataFrame(cells, columns=["method", "true", "guessed", "share"])
    drawn = identifiability.confusions(table, ["m"], list("xyz"))
    assert isinstance(drawn, Figure)
    faces = [patch.get_facecolor()[3] for patch in drawn.axes[0].patches if patch.get_fill()]
    np.testing.assert_allclose(np.reshape(faces, (3, 3)), np.eye(3))
    assert drawn.axes[0].get_title(loc="left") == "m 1.00"


def test_what_is_not_above_chance_is_named():
    row = {"network": "n", "chance": 0.5, "pictures": 4}
    table = pd.DataFrame(
        [
            {**row, "method": "sees", "image": 0.9, "image_low": 0.8, "image_high": 1.0},
            {**row, "method": "blind", "image": 0.5, "image_low": 0.5, "image_high": 0.5},
            {**row, "method": "oracle", "image": 1.0, "image_low": 1.0, "image_high": 1.0},
        ]
    )
    words = identifiability.sentence(table, "n")
    assert (
        "with sees (share of maps 0.90 [0.80, 1.00]; chance is 0.50, the truth itself reaches 1.00)" in words
    )
    assert words.endswith("Not clearly above chance: blind.")
    assert identifiability.order(table) == ["oracle", "sees", "blind"]


def test_the_command_takes_the_number_of_pictures(tmp_path):
    words = ["run", "smerf-sound", "--tasks", ",".join(TWO), "--networks", "wired", "--methods", "gradient"]
    more = ["--samples", "2", "--seeds", "1", "--certify", "0", "--identify", "1", "--protocols", "sound"]
    places = ["--out", str(tmp_path / "run"), "--store", str(tmp_path / "store"), "--device", "cpu"]
    result = CliRunner().invoke(app, [*words, *more, *places])
    assert result.exit_code == 0, result.output
    assert "Can the reasoning be read off a map?" in result.output
    assert (tmp_path / "run" / "identification-confusion.csv").is_file()


def test_wired_networks_are_laid_out_channels_last():
    weight = verax.task("textbox/simple-fr").network("wired")[0].weight
    assert weight.is_contiguous(memory_format=torch.channels_last)
