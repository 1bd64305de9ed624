"""Wordings tell functions of one name apart, and say the same of the same code anywhere."""

import functools
import subprocess
import sys

import pytest
import torch

from verax.methods.base import describe
from verax.wordings import wording

CODE = """
import functools
import torch

LEVEL = 0.5
CACHE = {}
calls = 0


class Scale:
    factor = 2

    def __init__(self, power):
        self.power = power

    def __call__(self, x):
        return x * self.factor

    @staticmethod
    def half(x):
        return x / 2


def helper(x, shift=1):
    return inner(x) + shift


def inner(x):
    return x.abs() if x.ndim in {1, 2, 3} else Scale.half(x)


def mine(model, inputs, targets):
    global calls
    calls += 1
    CACHE[calls] = inputs
    return [helper(x) * LEVEL for x in inputs]


def other(x):
    return x


def twice(function):
    @functools.wraps(function)
    def run(*given):
        return function(*given) * 2
    return run


def made(step):
    def run(model, inputs, targets):
        return inputs * step
    return run


@torch.no_grad()
def quiet(model, inputs, targets):
    return helper(inputs)


loud = twice(quiet)
part = functools.partial(mine, targets=1)
callable_ = Scale(3)
small, large = made(1), made(2)
if __name__ == "__main__":
    import verax.wordings
    print({name: verax.wordings.wording(globals()[name]) for name in NAMES})
"""
NAMES = ("mine", "quiet", "loud", "part", "callable_", "small", "large")


def read(folder, code=CODE, run=True):
    """What a file with this code has."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "some.py"
    path.write_text(code)
    found = {"__name__": path.stem}
    exec(compile(code, str(path), "exec"), found)
    return found


def worded(found):
    return {name: wording(found[name]) for name in NAMES}


def test_the_same_code_has_the_same_wording_in_any_file_run_and_process(tmp_path):
    first, second = read(tmp_path / "a"), read(tmp_path / "b")
    known = worded(first)
    assert len(set(known.values())) == len(NAMES)
    first["mine"](None, [torch.ones(2)], None)  # which counts, and keeps something
    first["callable_"].power = 7
    assert worded(first) == worded(second) == known
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "run.py").write_text(f"NAMES = {NAMES!r}\n" + CODE)
    done = subprocess.run(
        [sys.executable, tmp_path / "c" / "run.py"], capture_output=True, text=True, check=True, timeout=120
    )
    assert eval(done.stdout) == known


@pytest.mark.parametrize(
    ("before", "after", "moved"),
    [
        ("* LEVEL for", "/ LEVEL for", {"mine", "part"}),
        ("LEVEL = 0.5", "LEVEL = 0.6", {"mine", "part"}),
        ("shift=1", "shift=2", {"mine", "part", "quiet", "loud"}),
        ("x.abs()", "x.sign()", {"mine", "part", "quiet", "loud"}),
        ("{1, 2, 3}", "{1, 2, 4}", {"mine", "part", "quiet", "loud"}),
        ("return x / 2", "return x / 3", {"mine", "part", "quiet", "loud", "callable_"}),
        ("factor = 2", "factor = 3", {"mine", "part", "quiet", "loud", "callable_"}),
        ("function(*given) * 2", "function(*given) * 3", {"loud"}),
        ("targets=1)", "targets=2)", {"part"}),
        ("made(1)", "made(3)", {"small"}),
        ("inputs * step", "inputs + step", {"small", "large"}),
        ("def other(x):\n    return x", "def other(x):\n    return -x", set()),
        ("CACHE = {}", "CACHE = {1: 2}", set()),
    ],
)
def test_what_a_function_names_is_in_its_wording_and_nothing_else(tmp_path, before, after, moved):
    assert CODE.count(before) == 1
    known = worded(read(tmp_path / "a"))
    changed = worded(read(tmp_path / "b", CODE.replace(before, after)))
    assert {name for name in NAMES if known[name] != changed[name]} == moved


def test_modules_beside_a_function_are_read_and_packages_are_not(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path / "a"))
    text = "import beside_it\n\ndef mine(model, inputs, targets):\n    return beside_it.helper(inputs)\n"
    found = []
    for number in (1, 2):
        (tmp_path / "a").mkdir(exist_ok=True)
        (tmp_path / "a" / "beside_it.py").write_text(f"def helper(x):\n    return x * {number}\n")
        monkeypatch.delitem(sys.modules, "beside_it", raising=False)
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        found.append(wording(read(tmp_path / "a", text)["mine"]))
    monkeypatch.delitem(sys.modules, "beside_it")
    assert found[0] != found[1]
    assert all(found)


def test_what_has_no_code_has_no_wording():
    assert wording(torch.relu) == wording(functools.partial(torch.relu)) == wording(3) == ""
    assert describe("mine", lambda m, i, t: i).wording != describe("mine", lambda m, i, t: -i).wording
