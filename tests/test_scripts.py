"""Methods and metrics from files that somebody names: FILE.py:NAME."""

import re
import shlex
import subprocess
import sys
from html import unescape

import pytest

import verax
from verax.cli.main import main
from verax.errors import InvalidParameter, MissingFile, UnknownName
from verax.methods.base import METHODS
from verax.metrics import METRICS
from verax.studies import scripts

GXS = """
import torch
import verax

with open("imports.txt", "a") as file:
    file.write("x")


def gxs(model, inputs, targets):
    x = inputs.clone().requires_grad_()
    score = model(x).gather(1, targets[:, None]).sum()
    return inputs * torch.autograd.grad(score, x)[0].sign()


@verax.method("decorated")
def some(model, inputs, targets):
    return gxs(model, inputs, targets)


@verax.metric("ground-share", higher_is_better=False, bounds=(0, 1))
def ground(maps, truth):
    return (maps * ~truth.objects.any(1)).sum((1, 2)) / maps.sum((1, 2)).clamp(min=1e-300)


def bare(maps, truth):
    return maps.sum((1, 2))
"""
FEW = ["--tasks", "textbox/simple-fr", "--samples", "1", "--certify", "0"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder that nothing of is left over in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    modules, methods, metrics = set(sys.modules), set(METHODS), set(METRICS)
    yield tmp_path
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
    for registry, known in ((METHODS, methods), (METRICS, metrics)):
        for name in set(registry) - known:
            registry.unregister(name)


def command(*words):
    return subprocess.run(
        [sys.executable, "-m", "verax", *words], capture_output=True, text=True, check=False, timeout=300
    )


def repeated(page):
    return unescape(re.search(r"To repeat it</h3>\s*<pre>(.*?)</pre>", page, re.S)[1])


def test_a_function_of_a_file_is_judged_by_workers_too_and_can_be_repeated(here):
    (here / "my_gxs.py").write_text(GXS)
    words = ["--methods", "my_gxs.py:gxs,gradient", "--metrics", "my_gxs.py:ground-share", *FEW]
    done = command("run", "smerf-quick", *words, "--executor", "processes", "--workers", "2", "--out", "a")
    assert done.returncode == 0, done.stderr
    there = verax.Run("a")
    assert {"gxs", "gradient"} <= set(there.scores["method"])
    assert "ground-share" in set(there.scores["metric"])
    # this process and both workers have read it, each once
    assert (here / "imports.txt").read_text() == "xxx"
    line = repeated((here / "a" / "report.html").read_text())
    assert "my_gxs.py:gxs" in line
    assert "my_gxs.py:ground-share" in line
    again = command(*shlex.split(line)[1:], "--executor", "inline", "--out", "b")
    assert again.returncode == 0, again.stderr
    assert verax.Run("b").scores.equals(there.scores)


def test_a_file_whose_name_is_taken_stays_with_this_process(here):
    (here / "random.py").write_text(GXS)  # workers would import another
    chosen = {"tasks": ["textbox/simple-fr"], "samples": 1, "certify": 0, "quiet": True}
    one = verax.run("smerf-quick", methods=["random.py:gxs"], executor="processes", workers=2, **chosen)
    assert not one.failures
    assert (here / "imports.txt").read_text() == "x"


def test_names_are_those_of_decorators_or_of_functions(here):
    (here / "names.v2.py").write_text(GXS)
    assert scripts.method("names.v2.py:gxs") == "gxs"
    assert scripts.method("names.v2.py:decorated") == "decorated"
    assert scripts.method("./names.v2.py:some") == "decorated"
    assert scripts.metric("names.v2.py:ground") == "ground-share"
    assert (here / "imports.txt").read_text() == "x"
    assert scripts.source(METHODS.get("gxs")) == "names.v2.py:gxs"
    assert scripts.method("captum:Saliency") == "captum:Saliency"


@pytest.mark.parametrize(
    ("named", "kind", "words"),
    [
        ("gone.py:gxs", MissingFile, "no file 'gone.py'"),
        ("good.py:gsx", UnknownName, "no method 'gsx' in 'good.py'; did you mean 'gxs'?"),
        ("good.py:gradient", UnknownName, "no method 'gradient' in 'good.py'; known: decorated, gxs, some"),
        ("good.py", InvalidParameter, "such as good.py:decorated"),
        ("good.py:bare", InvalidParameter, "'good.py': Method 'bare' must be callable as (model, inputs,"),
        ("raises.py:x", InvalidParameter, "'raises.py' cannot be imported: NameError: name 'zero' is not "),
        ("raises.py:x", InvalidParameter, "(raises.py:3)"),
        ("syntax.py:x", InvalidParameter, "(syntax.py:2)"),
        ("leaves.py:x", InvalidParameter, "cannot be imported: SystemExit: 3 (leaves.py:1)"),
        ("needs.py:x", InvalidParameter, "No module named 'not_there' (needs.py:1)"),
        ("takes.py:x", InvalidParameter, "'gradient' is a method of verax itself"),
        ("empty.py:x", UnknownName, "write a function (model, inputs, targets) into it"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_sentence(here, named, kind, words):
    (here / "good.py").write_text(GXS)
    (here / "raises.py").write_text("import torch\n\nx = zero\n")
    (here / "syntax.py").write_text("x = 1\ndef f(:\n")
    (here / "leaves.py").write_text("raise SystemExit(3)\n")
    (here / "needs.py").write_text("import not_there\n")
    (here / "takes.py").write_text(
        "import verax\n\n@verax.method('gradient')\ndef x(m, i, t):\n    return i\n"
    )
    (here / "empty.py").write_text("import torch\n")
    with pytest.raises(kind) as caught:
        scripts.method(named)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_metric_of_a_file_says_its_direction(here):
    (here / "measure.py").write_text(GXS)
    with pytest.raises(InvalidParameter, match=r"@verax.metric\('bare', higher_is_better"):
        scripts.metric("measure.py:bare")


def test_study_files_run_no_code(here):
    (here / "code.py").write_text(GXS)
    study = {"name": "s", "tasks": ["textbox/simple-fr"], "methods": ["code.py:gxs"]}
    with pytest.raises(UnknownName, match=r"FILE\.py:NAME behind --methods"):
        verax.run(study, quiet=True)
    assert not (here / "imports.txt").exists()


def test_experiments_take_no_files(monkeypatch, capsys, here):
    (here / "code.py").write_text(GXS)
    monkeypatch.setattr(sys, "argv", ["verax", "run", "alignment-mnist", "--methods", "code.py:gxs"])
    with pytest.raises(SystemExit):
        main()
    assert "takes none from files: verax align --method" in capsys.readouterr().err


def test_an_unknown_method_says_how_own_ones_are_given(monkeypatch, capsys, here):
    monkeypatch.setattr(sys, "argv", ["verax", "plan", "smerf-quick", "--methods", "qqqq"])
    with pytest.raises(SystemExit):
        main()
    assert "FILE.py:NAME" in capsys.readouterr().err


def test_a_method_from_python_is_repeated_in_python(here):
    def only_here(model, inputs, targets):
        return inputs

    chosen = {"tasks": ["textbox/simple-fr"], "samples": 1, "certify": 0}
    done = verax.run("smerf-quick", methods=[only_here, "gradient"], quiet=True, **chosen)
    code = repeated(done.report().read_text())
    assert code.startswith("import verax\n")
    assert "verax run" not in code
    spaces = {}
    exec(code.replace("verax.run(", "done = verax.run(quiet=True, study="), spaces)
    assert spaces["done"].scores.equals(done.scores)
