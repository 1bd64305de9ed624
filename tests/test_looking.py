"""The commands that look at results, and what all commands have in common: help, JSON, completion, start."""

import json
import os
import re
import subprocess
import sys
import webbrowser
from pathlib import Path
from types import SimpleNamespace

import pytest

from made_up_runs import scores, write
from verax.cli import completion, pages
from verax.cli.main import main
from verax.terminal import shown

ROOT = Path(__file__).parent.parent


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


@pytest.fixture
def runs(tmp_path):
    before = write(tmp_path / "runs" / "before", scores(), created="2026-01-01")
    after = write(tmp_path / "runs" / "after", scores(shift={"lrp-a": 0.2}, noise=1), created="2026-02-01")
    return str(before), str(after)


def test_compare(verax, runs, tmp_path):
    code, out, _ = verax("compare", *runs, "--out", "page.html")
    assert code == 0
    assert re.search(r"lrp-a .*< 0.0001 +better", out)
    assert "Page: page.html" in out
    assert (tmp_path / "page.html").stat().st_size > 10_000
    code, out, _ = verax("compare", *runs, "--json")
    found = json.loads(out)
    assert code == 0
    assert {row["method"]: row["differ"] for row in found["methods"]}["lrp-a"] is True
    assert {row["method"]: row["p"] for row in found["methods"]}["oracle"] is None
    code, out, _ = verax("compare", *runs, "--quiet")
    assert (code, out) == (0, "")
    code, _, err = verax("compare", runs[0])
    assert code == 2
    assert "two runs" in err


def test_compare_refuses_other_versions_of_a_task(verax, runs, tmp_path):
    other = write(tmp_path / "other", scores(), fingerprints={"textbox/simple-fr": "new"})
    code, out, err = verax("compare", runs[0], str(other))
    assert (code, out) == (2, "")
    assert len(err.strip().splitlines()) == 1
    assert "different versions of the task 'textbox/simple-fr'" in err


def test_leaderboard(verax, runs, tmp_path):
    write(
        tmp_path / "runs" / "old", scores(), fingerprints={"textbox/simple-fr": "old"}, created="2025-01-01"
    )
    code, out, _ = verax("leaderboard", "runs")
    assert code == 0
    assert re.search(r"\n +1 +lrp-a", out)
    assert "Left out: old. Its version of textbox/simple-fr" in out
    assert (tmp_path / "leaderboard.html").is_file()
    (tmp_path / "leaderboard.html").unlink()
    code, out, _ = verax("leaderboard", *runs, "--json", "--csv", "board.csv")
    assert json.loads(out)["left_out"] == []
    assert (
        (tmp_path / "board.csv").read_text().startswith("network,tier,family,task,rank,method,value,low,high")
    )
    assert not (tmp_path / "leaderboard.html").exists()


def test_open_finds_the_run_that_is_meant(verax, runs, tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(pages, "has_browser", lambda: True)
    monkeypatch.setattr(webbrowser, "open", lambda uri: shown.append(uri) or True)
    for place, run in enumerate(runs):
        (Path(run) / "report.html").write_text("<p>")
        os.utime(Path(run) / "manifest.json", (1000 + place, 1000 + place))
    newest = (tmp_path / "runs" / "after" / "report.html").resolve()
    assert verax("open")[:2] == (0, f"{newest}\n")
    assert verax("open", "made-up")[1] == f"{newest}\n"
    assert shown == [newest.as_uri()] * 2
    first = Path(runs[0]) / "report.html"
    assert verax("open", runs[0])[1] == f"{first.resolve()}\n"
    assert verax("open", "before", "--no-browser")[1] == f"{first.resolve()}\n"
    assert len(shown) == 3
    monkeypatch.setattr(pages, "has_browser", lambda: False)
    code, out, err = verax("open")
    assert (code, out) == (0, f"{newest}\n")
    assert "no browser" in err
    code, _, err = verax("open", "made-upp")
    assert code == 2
    assert "did you mean 'made-up'" in err


def test_open_without_any_run(verax):
    code, _, err = verax("open")
    assert code == 2
    assert "no run in the folder 'runs'" in err


def test_open_writes_a_report_that_is_missing(verax, runs, monkeypatch):
    from verax.studies.runs import Run

    def write_report(self):
        (self.folder / "report.html").write_text("<p>")
        return self.folder / "report.html"

    monkeypatch.setattr(Run, "report", write_report)
    code, out, _ = verax("open", runs[0], "--no-browser")
    assert code == 0
    assert Path(out.strip()).read_text() == "<p>"
    code, out, _ = verax("report", runs[1], "--json")
    assert json.loads(out)["report"].endswith("after/report.html")


def _commands(command, path=()):
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name, each in inner.items():
        yield from _commands(each, (*path, name))


def _all_commands():
    import typer

    from verax.cli.main import app

    return list(_commands(typer.main.get_command(app)))


@pytest.mark.parametrize("columns", [80, 120])
def test_help_fits_and_has_examples(verax, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", columns)
    code, out, _ = verax("--help")
    assert code == 0
    assert max(map(len, out.splitlines())) <= columns
    for word in ("Judge", "Audit", "Reproduce", "Look", "Keep", "Exit codes", "verax open"):
        assert word in out
    for path, command in _all_commands():
        code, out, _ = verax(*path, "--help")
        assert code == 0
        assert max(map(len, out.splitlines())) <= columns
        assert f"$ verax {' '.join(path)}" in out, path
        for parameter in command.params:
            if parameter.name != "help":
                assert parameter.help.strip().endswith("."), (path, parameter.name)


def test_every_command_that_gives_something_has_json():
    without = {
        " ".join(path) for path, command in _all_commands() if "json" not in {p.name for p in command.params}
    }
    assert without == {"open"}


def test_json_stands_alone_on_stdout(verax, tmp_path):
    small = ("run", "smerf-quick", "--tasks", "textbox/simple-fr", "--methods", "gradient", "--samples", "1")
    code, out, _ = verax(*small, "--certify", "2", "--out", "here", "--json")
    found = json.loads(out)
    assert code == 0
    boards = {(board["protocol"], board["family"]): board["rows"] for board in found["leaderboards"]}
    assert {row["method"] for row in boards["sound", "simple"]} >= {"gradient", "oracle"}
    assert found["units"]["computed"] == found["units"]["total"]
    assert (tmp_path / "here" / "report.html").is_file()
    fingerprints = [
        task["fingerprint"] for task in json.loads(Path("here/manifest.json").read_text())["tasks"]
    ]
    assert all(re.fullmatch("[0-9a-f]{64}", text) for text in fingerprints)
    assert json.loads(verax(*small, "--dry-run", "--json")[1])["units"] > 0
    listed = json.loads(verax("store", "ls", "--json")[1])
    assert {entry["kind"] for entry in listed} >= {"scores", "certificate"}
    assert json.loads(verax("store", "verify", "--json")[1])["sound"] == len(listed)
    assert json.loads(verax("store", "size", "--json")[1])["kinds"]["scores"]["entries"] > 0
    assert json.loads(verax("store", "gc", "--json")[1]) == {"files": 0, "size": 0}
    words = ("certify", "textbox/simple-fr", "--network", "cnn3", "--samples", "2", "--quiet")
    code, out, err = verax(*words)
    assert (code, err) == (0, "")
    assert len(out.splitlines()) == 1
    assert json.loads(verax(*words, "--json")[1])["passed"] is True


def test_examples_name_options_that_exist():
    known = {path: {o for p in command.params for o in p.opts} for path, command in _all_commands()}
    from verax.cli.console import examples

    assert examples("verax list methods").startswith("[bold]Examples")
    for path, command in _all_commands():
        for option in re.findall(r"--[a-z-]+", command.epilog):
            assert option in known[path], (path, option)


@pytest.mark.parametrize("words", [("--help",), ("--version",), ("list", "studies"), ("list", "metrics")])
def test_torch_is_not_imported_where_it_is_not_needed(words):
    code = (
        "import sys; sys.argv = ['verax', *sys.argv[1:]]\n"
        "from verax.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as stop: assert not stop.code\n"
        "assert not {'torch', 'pandas', 'matplotlib'} & set(sys.modules), 'slow'"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_importing_verax_is_next_to_nothing():
    code = (
        "import sys; before = len(sys.modules); import verax; print(len(sys.modules) - before, *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    count, *modules = done.stdout.split()
    assert int(count) < 60  # torch alone brings more than a thousand
    assert not {"torch", "numpy", "pandas"} & set(modules)


def _completed(*words):
    env = {
        "_VERAX_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    code = (
        "import sys; sys.argv = ['verax']\n"
        "from verax.cli.main import main\n"
        "try: main()\n"
        "finally: assert 'torch' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **env}
    )
    assert "Assertion" not in done.stderr
    return done.stdout.split()


def test_shells_complete_names_without_torch():
    assert _completed("verax", "run", "smerf-q") == ["smerf-quick"]
    assert "gradient,integrated-gradients" in _completed("verax", "run", "x", "--methods", "gradient,integ")
    assert "leaderboard" in _completed("verax", "lea")


def test_completion_knows_every_name_and_is_polite():
    assert completion.task("textbox/complex-cr1") == ["textbox/complex-cr1"]
    assert completion.network("cnn") == ["cnn3", "cnn4"]
    assert "focus-share" in completion.metric("focus")
    assert "gradient,gradient" not in completion.methods("gradient,grad")
    assert completion.kinds("me") == ["methods", "metrics"]
    assert completion.protocols("exact,s") == [
        "exact,sound",
        "exact,sound:counterfactual",
        "exact,sound:shapley",
    ]
    assert completion.protocols("exact,e") == []  # it is there already


def test_models_are_completed_library_by_library(monkeypatch):
    assert completion.model("t") == ["timm:", "torchvision:"]
    assert completion.model("eff") == ["efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2"]
    for library, few in (
        ("timm", {"resnet50", "vit_tiny_patch16_224"}),
        ("torchvision", {"resnet50", "vit_b_16"}),
    ):
        names = completion.model(f"{library}:")
        assert {f"{library}:{name}" for name in few} <= set(names)
        assert completion.model(f"{library}:resnet5") == [
            n for n in names if n.startswith(f"{library}:resnet5")
        ]
    assert completion.model("os:") == []  # nothing else is looked for
    monkeypatch.setattr(completion, "find_spec", lambda name: None)
    assert completion.model("timm:r") == []


def test_models_that_are_completed_are_there():
    from verax.networks.zoo import let_torchvision_import

    let_torchvision_import()
    import timm

    known = set(timm.list_models())
    found = {name.removeprefix("timm:") for name in completion.model("timm:")}
    assert len(found & known) > 0.95 * len(known)
    assert len(found - known) < 0.05 * len(known)


def test_data_sets_are_completed_where_a_name_is_enough():
    from verax.tasks.alignment import find

    names = completion.dataset("")
    assert "digits" in names
    assert "voc" not in names  # which needs a folder
    for name in completion.DRAWN:
        assert len(find(name)) > 0


def test_runs_are_completed_where_they_are(tmp_path, monkeypatch):
    for name in ("runs/one", "runs/two", "results/mine", "results/other/deep"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("runs/one", "runs/two", "results/mine"):
        (tmp_path / name / "manifest.json").touch()
    monkeypatch.chdir(tmp_path)
    context = SimpleNamespace(params={"runs": None}, command=SimpleNamespace(name="report"))
    assert completion.runs(context, "") == ["runs/one", "runs/two"]
    assert completion.runs(context, "runs/t") == ["runs/two"]
    assert completion.runs(context, "res") == []  # no run yet: the shell completes the folder
    assert completion.runs(context, "results/") == ["results/mine"]
    assert completion.runs(context, f"{tmp_path}/results/m") == [f"{tmp_path}/results/mine"]
    context.params["runs"] = ["runs/one"]
    assert completion.runs(context, "") == ["runs/two"]
    for command in ("open", "report", "compare", "leaderboard", "export"):
        assert _completed("verax", command, "runs/o") == ["runs/one"], command
    assert _completed("verax", "compare", "runs/one", "runs/") == ["runs/two"]


def test_pages_of_commands_and_names_are_up_to_date():
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "commands.py"), "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_output_that_nobody_sees_is_plain(verax, runs, monkeypatch):
    for words in (("list", "studies"), ("compare", *runs), ("leaderboard", *runs)):
        assert "\x1b" not in "".join(verax(*words)[1:]), words


def test_colours_can_be_switched_off():
    def printed(**more):
        env = {**os.environ, "FORCE_COLOR": "1", **more}
        line = [sys.executable, "-m", "verax", "list", "--help"]
        return subprocess.run(line, capture_output=True, text=True, env=env, check=True).stdout

    coloured = re.compile(r"\x1b\[[0-9;]*3[0-9]")
    assert coloured.search(printed())
    assert not coloured.search(printed(NO_COLOR="1"))


def test_a_crew_gives_each_result_as_it_is_done(tmp_path):
    from verax.reproductions.workers import Crew

    flag, seen = tmp_path / "seen", []
    with Crew(2, "verax.version") as crew:
        for item, made in crew.over(slowly, flag, [3, 0, 0, 0]):
            assert made == (item, True)
            seen.append(item)
            if len(seen) == 3:  # three are there before the slow one, which waits for this
                flag.touch()
    assert seen == [0, 0, 0, 3]


def killed(value, item):
    import os
    import signal

    if item == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def test_a_process_that_is_killed_is_missed():
    from verax.errors import OutputError
    from verax.reproductions.workers import Crew

    with Crew(2) as crew, pytest.raises(OutputError, match="was killed"):
        list(crew.over(killed, None, [0, 1, 2, 3]))


def test_a_process_that_died_is_missed_where_its_work_is_looked_at():
    from verax.errors import OutputError
    from verax.reproductions.workers import Crew

    with Crew(2) as crew:
        with pytest.raises(OutputError, match="was killed"):
            list(crew.over(killed, None, [2]))
        later = crew.over(killed, None, [0])  # what else is computed meanwhile goes on
        with pytest.raises(OutputError, match="was killed"):
            list(later)


def threads(_, item):
    import os
    import time

    time.sleep(0.2)
    return os.getpid(), [os.environ.get(f"{name}_NUM_THREADS") for name in ("OMP", "OPENBLAS", "MKL")]


def test_every_process_of_a_crew_computes_in_one_thread(monkeypatch):
    from verax.reproductions.workers import Crew

    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    with Crew(3) as crew:
        crew.start()
        assert len(crew._pool._processes) == 3
        made = [found for _, found in crew.over(threads, None, range(30))]
    assert len({number for number, _ in made}) > 1
    assert all(found == ["1", "1", "1"] for _, found in made)
    assert os.environ["OPENBLAS_NUM_THREADS"] == "3"
    assert "MKL_NUM_THREADS" not in os.environ


def slowly(flag, item):
    import time

    until = time.monotonic() + 60
    while item and not flag.exists() and time.monotonic() < until:
        time.sleep(0.02)
    return item, not item or flag.exists()


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (("run", "smerf-quick", "--method", "gradient"), "--methods or --memory"),
        (("align", "--methods", "gradient"), "--method"),
        (("store", "ls", "--kinds", "failure"), "--kind"),
        (("reproduce", "sst", "--sample", "1"), "--samples"),
    ],
)
def test_misspelt_options_get_the_nearest_first(verax, words, near):
    code, _, told = verax(*words)
    assert code == 2
    said = " ".join(told.replace("│", " ").split())
    assert f"No such option: {next(w for w in words if w[0] == '-')}; did you mean {near}" in said


def test_names_do_not_steer_the_terminal(verax, tmp_path):
    evil = "\x1b[2J\x1b]0;mine\x07\u202eevil\x9b31m\x00"
    for place in ("one", "two"):
        table = scores(methods=("gradient", evil, "random", "oracle"))
        write(tmp_path / place, table, study=evil, family=f"simple{evil}")
    for words in (["compare", "one", "two"], ["leaderboard", "one", "two"], ["compare", "one", f"two{evil}"]):
        _, out, err = verax(*words)
        said = out + err
        assert "evil" in said
        assert not set(said) & set("\x07\x9b\x00\u202e")
        assert "\x1b[2J" not in said
        assert "\x1b]" not in said


def test_what_is_not_unicode_is_printed_all_the_same():
    assert shown("caf\udce9 \u200d\N{WOMAN}") == "caf? \u200d\N{WOMAN}"
    assert shown("one\ttwo\n") == "one\ttwo\n"
