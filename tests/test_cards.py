"""Cards say what the registry and the docstrings say, and the committed page is theirs."""

import importlib.util
import inspect
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import verax
from spellings import Transformer
from test_claims import BUILTIN, PICTURES, TARGETS, additive, convolutional
from verax.cases import Truth
from verax.methods import METHODS
from verax.methods.cards import card, read

TOOL = Path(__file__).parent.parent / "tools" / "cards.py"


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("cards_tool", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_committed_page_is_up_to_date(tool):
    assert tool.PAGE.read_text() == tool.page(), "run: make cards"


def test_a_page_that_lags_behind_is_noticed(tool, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(tool.sys, "argv", ["cards.py", "--check"])
    assert tool.main() == 0
    monkeypatch.setattr(tool, "PAGE", tmp_path / "cards.md")
    assert tool.main() == 1
    tool.PAGE.write_text(tool.page().replace("`epsilon`", "`eps`"))
    assert tool.main() == 1
    assert "make cards" in capsys.readouterr().out


def test_every_method_has_a_card_and_a_picture(tool):
    text = tool.PAGE.read_text()
    assert re.findall(r"^### (\S+) ", text, re.MULTILINE) == [of.method.name for of in tool.members()]
    assert {of.method.name for of in tool.members()} == set(BUILTIN)
    drawn = {path.stem for path in tool.PICTURES.iterdir()}
    assert drawn == {tool.anchor(of.method.name) for of in tool.members() if tool.has_picture(of)}
    assert sum(path.stat().st_size for path in tool.PICTURES.iterdir()) < 600_000


@pytest.mark.parametrize("name", BUILTIN)
def test_docstrings_say_enough(name):
    found = card(name)
    assert re.fullmatch(r"[A-Z].{20,108}\.", found.summary), found.summary
    assert all(parameter.about for parameter in found.parameters)
    function = METHODS.get(name).function
    _, _, described = read(inspect.getdoc(function))
    assert not described or set(described) == set(inspect.signature(function).parameters)


def test_examples_run_as_written(tool):
    examples = re.findall(r"^```python\n(.*?)^```", tool.PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(examples) == len(BUILTIN)
    nobody = torch.zeros(len(PICTURES), 0)
    truth = Truth(PICTURES[:, 0] > 0.5, PICTURES[:, 0] < 0.5, nobody, nobody, nobody, ())
    cases = SimpleNamespace(truth=truth)
    for code in examples:
        name = re.search(r'method="([^"]+)"', code)[1]
        fitting = {"attention": Transformer, "additive": additive}
        model = fitting.get(METHODS.get(name).needs, convolutional)()
        scope = {"verax": verax, "model": model, "inputs": PICTURES, "targets": TARGETS, "cases": cases}
        exec(code, scope)
        assert scope["maps"].shape == PICTURES.shape, name


def test_docstrings_are_taken_apart():
    def function(model, inputs, targets, width=2.0):
        """Say what it is.

        It is also known as that::

            a * b
              + c

        More than
        one line.

        Args:
            model: the network.
            inputs: what goes in: numbers.
            targets: ``(N,)``.
            width: of something
                rather long.

        Returns:
            nothing of interest: not a parameter.
        """

    summary, details, described = read(inspect.getdoc(function))
    assert summary == "Say what it is."
    assert details == ["It is also known as that:", "    a * b\n      + c", "More than one line."]
    assert list(described) == ["model", "inputs", "targets", "width"]
    assert described["inputs"] == "what goes in: numbers."
    assert described["width"] == "of something rather long."
