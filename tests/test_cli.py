import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, get_origin

import pytest
import torch

from verax.cli import boards, completion, options
from verax.cli.main import main
from verax.errors import InvalidParameter
from verax.methods import METHODS
from verax.metrics import METRICS
from verax.networks import NETWORKS, network
from verax.studies import keeping, requests, running
from verax.studies.plan import compile_plan
from verax.studies.spec import Study

SMALL = ["run", "smerf-quick", "--tasks", "textbox/simple-fr", "--methods", "gradient", "--samples", "1"]


@pytest.fixture
def verax(monkeypatch, capsys, tmp_path):
    """Run the command line in this process: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["verax", *words])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        found = capsys.readouterr()
        return code, found.out, found.err

    return call


def test_run_prints_a_leaderboard_and_the_report(verax, tmp_path):
    code, out, _ = verax(*SMALL, "--out", "here")
    assert code == 0
    assert "gradient" in out
    assert "oracle" in out
    assert "1 of 1 networks certified" in out
    assert out.strip().endswith("report.html")
    for name in ("scores.parquet", "manifest.json", "report.html", "figures"):
        assert (tmp_path / "here" / name).exists()
    code, out, _ = verax("report", "here")
    assert code == 0
    assert "here/report.html" in out
    code, out, _ = verax(*SMALL, "--quiet", "--out", "here")
    assert out.startswith("Report: ")


def test_plans_say_what_is_left_and_how_long_it_takes(verax):
    code, out, _ = verax("plan", "smerf-quick", "--methods", "gradient", "--samples", "1", "--json")
    assert code == 0
    plan = json.loads(out)
    rows = {row["unit"]: row for row in plan["rows"]}
    assert plan["units"] == sum(row["units"] for row in rows.values())
    assert not any(row["done"] or row["measured"] for row in rows.values())
    assert verax(*SMALL, "--quiet", "--out", "here")[0] == 0
    code, out, _ = verax("plan", "smerf-quick", "--methods", "gradient", "--samples", "1", "--json")
    after = {row["unit"]: row for row in json.loads(out)["rows"]}
    # one of the seven networks is done, and says how long the others take
    assert (after["gradient"]["done"], after["gradient"]["units"]) == (1, 7)
    assert after["gradient"]["measured"]
    code, out, _ = verax(*SMALL, "--dry-run")
    assert code == 0
    assert "Left to do: nothing." in out
    code, out, _ = verax("plan", "sst-quick")
    assert code == 0
    assert "training" in out
    assert "guess" in out


OWN = """
import verax

def mine(model, inputs, targets):
    return inputs

@verax.method("lasting", version="1")
def lasting(model, inputs, targets):
    return inputs

@verax.metric("some-share", higher_is_better=True, bounds=(0, 1))
def share(maps, truth):
    return maps.sum((1, 2)) * 0
"""


def test_plans_and_runs_say_what_is_not_kept(verax, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / "plan_of_mine.py"
    path.write_text(OWN)
    few = ("--tasks", "textbox/simple-fr", "--samples", "1", "--certify", "0")
    both = ("--methods", f"{path}:mine,{path}:lasting", *few)
    promise = "as soon as one of these units is in the store"
    reason = (
        "Results of mine are not kept in the store, but computed in every run: nobody can know whether the "
        "code of a method without a version has changed."
    )
    try:
        code, out, _ = verax("plan", "smerf-quick", *both)
        said = " ".join(out.split())
        assert code == 0
        assert reason in said
        assert 'With @verax.method("mine", version="1") they are kept' in said
        assert promise in said  # of the other
        rows = json.loads(verax("plan", "smerf-quick", *both, "--json")[1])["rows"]
        assert [row["unit"] for row in rows if not row["kept"]] == ["mine"]
        out = verax("run", "smerf-quick", *both, "--out", "here")[1]
        assert reason in out
        said = " ".join(verax("plan", "smerf-quick", *both)[1].split())
        assert "rough guess." in said  # what is left is never in the store
        assert promise not in said
        only = ("--methods", f"{path}:lasting", *few)
        assert "not kept" not in verax("plan", "smerf-quick", *only)[1]
        assert "not kept" not in verax("run", "smerf-quick", *only, "--out", "there")[1]
        said = " ".join(verax("plan", "smerf-quick", *only, "--metrics", f"{path}:share")[1].split())
        assert "Scores of a study with some-share are not kept in the store" in said
        assert 'With @verax.metric("some-share", ..., version="1") they are kept' in said
    finally:
        sys.modules.pop("plan_of_mine", None)
        for registry, name in ((METHODS, "mine"), (METHODS, "lasting"), (METRICS, "some-share")):
            registry.unregister(name)


def test_results_on_own_networks_without_a_version_are_not_kept(tmp_path):
    study = {"name": "s", "tasks": ["textbox/simple-fr"], "networks": ["mine", "cnn4"], "missing": "train"}
    study["methods"] = ["gradient"]
    try:
        for version, said in ((None, ["Results on mine are not kept in the store"]), ("1", [])):
            network("mine", version=version)(lambda classes: torch.nn.Linear(1, classes))
            plan = compile_plan(Study.model_validate(study), tmp_path, ahead=True)
            found = keeping.unkept(plan)
            assert [what.partition(", but")[0] for what, _ in found] == said
            assert bool(found) == (not all(cell.kept for cell in plan.cells))
    finally:
        NETWORKS.unregister("mine")


def test_plans_are_asked_like_runs(verax, tmp_path):
    """What `run` would do with the same options, without doing it."""
    options = ("--methods", "gradient", "--tasks", "textbox/complex-cr1", "--protocols", "published")
    options += ("--samples", "2", "--certify", "0", "--seed", "3", "--background", "black")
    code, planned, _ = verax("plan", "smerf-quick", *options, "--json")
    assert code == 0
    assert verax("run", "smerf-quick", *options, "--dry-run", "--json") == (0, planned, "")
    assert "on 1 network " in verax("plan", "smerf-quick", *options)[1]
    assert verax("run", "smerf-quick", *options, "--quiet", "--out", "here")[0] == 0
    done = json.loads(verax("plan", "smerf-quick", *options, "--json")[1])
    assert {row["unit"]: row["done"] for row in done["rows"]} == {
        row["unit"]: row["units"] for row in json.loads(planned)["rows"]
    }
    for wrong, word in (
        (("--tasks", "textbox/complx-cr1"), "did you mean 'textbox/complex-cr1'"),
        (("--seeds", "one"), "Seeds are whole numbers such as 0,1,2, not 'one'"),
    ):
        code, out, err = verax("plan", "smerf-quick", *wrong)
        assert (code, out) == (2, "")
        assert word in err


@pytest.mark.parametrize("what", ["tasks", "networks", "methods", "metrics", "studies"])
def test_lists(verax, what):
    code, out, _ = verax("list", what, "--json")
    rows = json.loads(out)
    assert code == 0
    assert all(row["name"] for row in rows)
    code, table, _ = verax("list", what)
    assert code == 0
    assert rows[0]["name"] in table
    if what == "methods":
        assert {row["name"] for row in rows} >= {"gradient", "input-x-gradient", "smoothgrad"}
        assert {row["name"] for row in rows} >= {"integrated-gradients", "grad-cam", "occlusion"}
        assert {row["name"] for row in rows} >= {"random", "edge", "input", "oracle"}


@pytest.mark.parametrize("columns", [80, 120])
def test_the_table_of_methods_fits(verax, monkeypatch, columns):
    from verax.cli import listing

    monkeypatch.setattr(listing.console, "width", columns)
    code, out, _ = verax("list", "methods")
    assert code == 0
    assert max(map(len, out.splitlines())) <= columns
    lines = [line.split() for line in out.splitlines()]
    for name in METHODS:
        start = name.split("@")[0] if len(name) > 22 and columns == 80 else name
        assert any(words[:1] == [start] for words in lines), name
    assert "Sundararajan 2017" in out


def test_all_about_one(verax):
    code, out, _ = verax("list", "methods", "LRP-A")
    assert code == 0
    assert out.startswith("lrp-a\n")
    assert "Montavon" in out
    assert "how far denominators" in out
    code, out, _ = verax("list", "methods", "IG", "--json")
    row = json.loads(out)
    assert row["name"] == "integrated-gradients"
    assert row["parameters"]["steps"] == {"default": 32, "about": "points on the line."}
    assert row["total"] == "change"
    wanted = {"aliases", "family", "paper", "cost", "needs", "inputs", "about", "details"}
    assert wanted <= set(row)
    code, out, _ = verax("list", "networks", "cnn4")
    assert code == 0
    assert "textbox/complex-cr1" in out


def test_certify(verax):
    code, out, _ = verax("certify", "textbox/complex-cr2", "--network", "cnn4", "--samples", "20")
    assert code == 0
    assert "passes, though 20 scenes of a bucket cannot show 0.99 (381 could, if all are right)" in out
    assert "swap B" in out
    code, out, _ = verax("certify", "textbox/simple-fr", "--network", "cnn3", "--samples", "5", "--json")
    assert json.loads(out)["passed"] is True


def test_certify_says_no_with_exit_code_1(verax):
    from verax.networks import library
    from verax.tasks import task

    other = library.find(task("textbox/complex-cr1"), "cnn4", 0)
    code, out, _ = verax("certify", "textbox/complex-cr2", "--weights", str(other), "--samples", "20")
    assert code == 1
    assert "FAILS" in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run", "smerf-quik"], "did you mean 'smerf-quick'"),
        (["run", "smerf-quick", "--tasks", "simple-fr"], "did you mean 'textbox/simple-fr'"),
        (["run", "nothing.toml"], "cannot be read"),
        ([*SMALL[:-4], "--methods", "gradiant"], "did you mean 'gradient'"),
        ([*SMALL[:2], "--tasks", "textbox/simpel-fr"], "did you mean 'textbox/simple-fr'"),
        ([*SMALL[:-1], "0"], "samples"),
        ([*SMALL, "--seed", "-3"], "seed"),
        ([*SMALL, "--device", "cuda:77"], "cuda:77"),
        ([*SMALL, "--device", "gpu"], "did you mean 'cuda'"),
        ([*SMALL, "--methods", ""], "methods"),
        (["list", "metrix"], "did you mean 'metrics'"),
        (["list"], "what is to be listed: tasks, "),
        (["list", "methods", "gradcam"], "did you mean 'grad-cam'"),
        (["store", "ls", "--kind", "failures"], "did you mean 'failure'"),
        (["run", "smerf-quick", "--protocols", "exact"], "not the value of every element"),
        (["list", "methods", "lrp-epsilom"], "did you mean 'lrp-epsilon'"),
        (["list", "studies", "smerf-quik"], "did you mean 'smerf-quick'"),
        (["certify", "textbox/complex-cr2", "--network", "cnn9"], "no network named"),
        (["certify", "textbox/complex-cr2", "--weights", "no.safetensors"], "cannot be read"),
        (["certify", "textbox/complex-cr2", "--seed", "99"], "verax train"),
        (["train", "textbox/simple-fr", "--recipe", "slow"], "no recipe"),
        (["train", "textbox/simple-fr", "--background", "folder:nowhere"], "no folder"),
        (["report", "nowhere"], "not a run"),
    ],
)
def test_bad_input_gets_one_sentence_and_exit_code_2(verax, words, sentence, tmp_path):
    code, out, err = verax(*words)
    assert code == 2
    assert sentence in err
    assert err.startswith("verax: ")
    assert len(err.strip().splitlines()) == 1
    assert "Traceback" not in err + out
    assert list(tmp_path.iterdir()) == []


def test_no_gpu_where_one_is_asked_for(verax):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    code, _, err = verax(*SMALL, "--device", "cuda")
    assert code == 2
    assert "this machine has no such device" in err


def test_output_that_cannot_be_written(verax, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = verax(*SMALL, "--out", "file/below")
    assert code == 2
    assert "Cannot write" in err


def test_a_failing_method_gives_exit_code_1(verax):
    from verax import method

    @method("test-broken")
    def broken(model, inputs, targets):
        raise ValueError("no idea")

    try:
        code, out, _ = verax(*SMALL, "--methods", "test-broken,gradient", "--out", "here")
        assert code == 1
        assert "no idea" in out
    finally:
        METHODS.unregister("test-broken")


def test_ctrl_c_keeps_what_is_finished_and_says_how_to_go_on(tmp_path):
    words = [sys.executable, "-m", "verax", "run", "smerf-quick", "--samples", "2"]
    environment = {**os.environ, "VERAX_STORE": str(tmp_path / "store")}
    process = subprocess.Popen(
        words,
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # a shell that runs the tests in the background lets its children ignore Ctrl-C
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and len(list((tmp_path / "store").rglob("*.json"))) < 4:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=240)
    assert process.returncode == 130
    assert "are finished and kept. Run the same command to go on." in err
    assert "Traceback" not in err
    assert len(list((tmp_path / "store").rglob("*.json"))) >= 4


def test_ctrl_c_while_workers_start_is_answered_once(tmp_path):
    words = [sys.executable, "-m", "verax", "run", "smerf-quick", "--samples", "2", "--workers", "2"]
    process = subprocess.Popen(
        words,
        cwd=tmp_path,
        env={**os.environ, "VERAX_STORE": str(tmp_path / "store")},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )

    def workers():
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        return [pid for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not workers():
        time.sleep(0.01)
    time.sleep(0.3)  # they import now
    assert workers()
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, err = process.communicate(timeout=240)
    assert process.returncode == 130
    assert "Run the same command to go on." in err
    assert "Traceback" not in err


def test_help_needs_no_torch():
    code = """
import sys
sys.argv = ["verax", "--help"]
from verax.cli.main import app
try:
    app()
except SystemExit:
    pass
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "certify" in done.stdout


def test_faithfulness_has_a_table_and_broken_promises_a_warning(verax, tmp_path):
    code, out, _ = verax(*SMALL, "--protocols", "sound,faithfulness", "--certify", "0", "--out", "here")
    assert code == 0
    assert "(faithfulness)" in out
    assert "insertion" in out
    assert "promised total" not in out
    (tmp_path / "few.toml").write_text(
        'name = "few"\ntasks = ["textbox/simple-fr"]\nsamples = 1\ncertify = 0\nprotocols = ["sound"]\n'
        'methods = [{ name = "integrated-gradients", steps = 1, rule = "left" }]\n'
    )
    code, out, _ = verax("run", "few.toml", "--out", "there")
    assert code == 0
    assert "more steps would bring them closer" in " ".join(out.split())


def test_the_command_line_leaves_broken_pipes_to_python(verax):
    """With SIGPIPE at its default, a worker that dies ended the whole study without a word."""
    before = signal.getsignal(signal.SIGPIPE)
    verax("--version")
    assert signal.getsignal(signal.SIGPIPE) is before is signal.SIG_IGN


@pytest.mark.parametrize("words", [["list", "methods"], ["list", "methods", "--json"], ["--help"]])
def test_a_reader_that_goes_away_ends_it_quietly_and_as_shells_expect(words):
    command = [sys.executable, "-m", "verax", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(60) == 141  # 128 + SIGPIPE


@pytest.mark.parametrize(
    "option", [["--dry-run"], ["--workers", "2"], ["--keep-maps"], ["--overwrite", "all"]]
)
def test_experiments_on_alignment_refuse_options_that_they_would_ignore(verax, option):
    code, _, errors = verax("run", "alignment-mnist", *option)
    assert code == 2
    assert f"has no option {option[0]}" in errors


def test_open_completes_runs_by_their_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("smerf-quick", "smerf-2", "other"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "manifest.json").write_text("{}")
    (tmp_path / "runs" / "smerf-empty").mkdir()

    def offered(command, words):
        context = SimpleNamespace(params={}, command=SimpleNamespace(name=command))
        return completion.runs(context, words)

    assert offered("open", "smerf") == ["smerf-2", "smerf-quick"]
    assert offered("compare", "smerf") == []  # which takes paths alone
    assert offered("compare", "runs/o") == offered("open", "runs/o") == ["runs/other"]


def test_the_end_says_what_it_has_cost(verax, tmp_path):
    words = [*SMALL, "--certify", "0", "--out", "here"]
    code, out, _ = verax(*words)
    text = " ".join(out.split())
    assert code == 0
    assert "No certificates made (certify = 0); " in text
    assert "0 of 0" not in text
    assert re.search(r"computed in \d+ s on cpu, 0 of \d+ units taken from the store\.", text)
    _, out, _ = verax(*words)
    text = " ".join(out.split())
    assert re.search(r"all \d+ units taken from the store\.", text)
    assert "computed in" not in text
    assert "none, all from the store" in (tmp_path / "here" / "report.html").read_text()


def test_trainings_are_part_of_what_it_has_cost():
    manifest = {"reused_units": 1, "total_units": 3, "seconds": 2.2, "hardware": {"device": "cpu"}}
    taught = [{"seconds": 3.0}, {"seconds": 4.4}]
    said = boards._effort({**manifest, "trained": taught})
    assert (
        said == "2 networks trained (together 7 s), computed in 2 s on cpu, 1 of 3 units taken from the store"
    )


def test_run_names_every_background(verax):
    _, out, _ = verax("run", "--help")
    assert "texture" in out


def test_what_the_system_refuses_is_one_sentence(verax):
    long = 300 * "a"
    for line in (
        ("plan", "smerf-quick", "--store", long),
        ("plan", "smerf-quick", "--methods", f"{long}.py:mine"),
        ("report", long),
        ("compare", long, long),
        ("certify", "textbox/simple-fr", "--weights", f"{long}.safetensors"),
    ):
        code, out, err = verax(*line)
        assert (code, out) == (2, ""), line
        assert re.fullmatch(
            r"verax: The system answered 'File name too long' for '\.\.\.a{20,}.*'\.", err.strip()
        )
        assert len(err) < 200


def test_a_study_that_is_a_pipe_is_not_waited_for(verax, tmp_path):
    os.mkfifo(tmp_path / "endless.toml")
    code, _, err = verax("plan", "endless.toml")
    assert (code, err) == (
        2,
        "verax: The study 'endless.toml' cannot be read: it is a pipe or a device, not a file.\n",
    )


def test_experiments_have_no_plan(verax):
    code, _, err = verax("plan", "alignment-mnist")
    assert code == 2
    assert "verax run alignment-mnist --quick" in err
    assert "did you mean 'alignment-mnist'" in verax("plan", "alignment-mnst")[2]


SAID = {
    "methods": ("gradient, edge", ["gradient", "edge"]),
    "tasks": ("textbox/simple-fr,textbox/simple-nr", ["textbox/simple-fr", "textbox/simple-nr"]),
    "networks": ("cnn3,cnn4", ["cnn3", "cnn4"]),
    "seeds": ("0,1", [0, 1]),
    "protocols": ("sound,published", ["sound", "published"]),
    "metrics": ("one,two", ["one", "two"]),
    "samples": ("2", 2),
    "seed": ("3", 3),
    "certify": ("4", 4),
    "identify": ("5", 5),
    "renderer": ("published", "published"),
    "background": ("black", "black"),
    "field": ("sea.nc", Path("sea.nc")),
    "variable": ("sst", "sst"),
}


@pytest.mark.parametrize("command", [["plan"], ["run", "--dry-run"], ["run"]])
def test_what_is_said_of_a_study_reaches_it(verax, monkeypatch, command):
    """Each word by itself, and none of them changes another."""

    def described(study, **changes):
        found.append((study, changes))
        raise InvalidParameter("That is all.")

    declared = {name.lower() for name, value in vars(options).items() if get_origin(value) is Annotated}
    assert declared - {"studyname"} == SAID.keys()
    for module in (requests, running):
        monkeypatch.setattr(module, "described", described)
    for name, (word, value) in SAID.items():
        found = []
        assert verax(*command, "smerf-quick", f"--{name}", word)[0] == 2
        assert found == [("smerf-quick", {**dict.fromkeys(SAID), name: value})]
