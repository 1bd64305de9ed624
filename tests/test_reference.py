"""The reference says what the registries, the schema and a real manifest say."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

import verax

TOOL = Path(__file__).parent.parent / "tools" / "reference.py"


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("reference_tool", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_committed_pages_are_up_to_date():
    # a process of its own: other tests register tasks and methods in theirs
    done = subprocess.run([sys.executable, str(TOOL), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_a_page_that_lags_behind_is_noticed(tool, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sys, "argv", ["reference.py", "--check"])
    monkeypatch.setattr(tool, "PAGES", {"results.md": tool.results})
    monkeypatch.setattr(tool, "DOCS", tmp_path)
    assert tool.main() == 1
    (tmp_path / "results.md").write_text(tool.NOTE + tool.results())
    assert tool.main() == 0
    (tmp_path / "results.md").write_text(tool.NOTE + tool.results().replace("`sample`", "`number`"))
    assert tool.main() == 1
    assert "results.md" in capsys.readouterr().out


def test_every_public_name_has_an_entry(tool):
    text = tool.api()
    for name in verax.__all__:
        assert name.startswith("_") or f"heading: verax.{name}\n" in text, name


def test_every_column_is_described(tool, monkeypatch):
    monkeypatch.setattr(tool, "COLUMNS", {"task": "the first of them"})
    with pytest.raises(SystemExit, match="metric"):
        tool.results()


def test_the_manifest_and_the_files_of_a_run_are_described(tool, tmp_path):
    study = {"name": "tiny", "tasks": ["textbox/simple-nr"], "methods": ["gradient"], "samples": 1}
    run = verax.run(study, networks=["wired"], certify=2, out=tmp_path / "run", quiet=True)
    assert set(json.loads((tmp_path / "run" / "manifest.json").read_text())) == set(tool.MANIFEST)
    assert list(run.scores.columns) == list(tool.COLUMNS)
    known = {name.rstrip("/") for name in tool.FILES}
    assert {path.name for path in run.report().parent.iterdir()} <= known
