"""Folders of results: loaded as what they are."""

import pytest
import torch

import verax
from made_up_runs import scores, write
from verax.errors import MissingFile
from verax.tasks.alignment.faces import Faces


def test_a_folder_is_loaded_as_what_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = write(tmp_path / "runs" / "one", scores())
    assert isinstance(verax.load(run), verax.Run)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64 * 64, 2))
    made = verax.align(model, Faces({0: 1, 3: 1}), method="gradient", out="aligned", quiet=True)
    found = verax.load("aligned")
    assert isinstance(found, verax.Alignment)
    assert found.table().equals(made.table())
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / "claims.json").write_text("{}")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "manifest.json").write_text("{")
    for folder, words in {
        "nowhere": "There is no folder 'nowhere'",
        "runs": "holds neither a run nor an alignment: .* such as 'runs/one'",
        "claims": "verax open shows its page",
        "bad": "manifest of 'bad' cannot be read",
    }.items():
        with pytest.raises(MissingFile, match=words):
            verax.load(folder)
