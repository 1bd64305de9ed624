"""Methods of one label that are not the same thing are never mixed on a leaderboard."""

import json
import sys

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import verax
from made_up_runs import scores, write
from verax.cli.main import app
from verax.errors import InvalidInput
from verax.methods.base import METHODS
from verax.metrics import METRICS
from verax.networks import NETWORKS
from verax.studies import writing
from verax.studies.standings import standings

SIMPLE = ("textbox/simple-fr", "textbox/simple-nr")


def own(wording="w", **facts):
    """The entry of an own method in a manifest."""
    entry = {"label": "mine", "name": "mine", "family": "own", "parameters": {}, "version": None}
    return {**entry, "wording": wording, **facts}


def built_in(**facts):
    return {
        "label": "mine",
        "name": "lrp-a",
        "family": "relevance",
        "parameters": {},
        "version": "1",
        **facts,
    }


def made(folder, entry, created="2026-01-01", shift=0.0, tasks=SIMPLE, python="3.12.1", **more):
    """A run with one method, mine, and references."""
    table = scores(("mine", "random", "oracle"), tasks, shift={"mine": shift}, **more.pop("table", {}))
    kinds = {"versions": {"verax": "0.1.0", "python": python}, "methods": [entry]}
    return write(folder, table, created=created, **kinds, **more)


def mine(found):
    """Name -> row over all tasks, of the methods that are called mine."""
    rows = found.boards[0].overall.set_index("method")
    return rows[rows.index.str.startswith("mine")].to_dict("index")


def mean(folder):
    table = pd.read_parquet(folder / "scores.parquet").query("method == 'mine'")
    return table.groupby(["task", "group"])["value"].mean().mean()


DIFFERENT = [
    (own("a"), own("b"), "other code"),
    (own("a", source="a.py:mine"), own("b", source="b.py:mine"), "other code: b.py:mine and a.py:mine"),
    (own(), own(parameters={"steps": 3}), "other parameters"),
    (own(), own(name="yours"), "another method"),
    (own(version="1"), own(version="2"), "another version"),
    (own(), built_in(), "another method"),
    (built_in(), built_in(parameters={"epsilon": 1}), "other parameters"),
    (built_in(version="captum 0.7"), built_in(version="captum 0.8"), "another version"),
]


@pytest.mark.parametrize(("old", "new", "reason"), DIFFERENT)
def test_what_is_not_the_same_has_two_rows(tmp_path, old, new, reason):
    one = made(tmp_path / "one", old)
    two = made(tmp_path / "two", new, "2026-02-01", 0.2, SIMPLE[:1])
    found = standings([one, two])
    rows = mine(found)
    assert set(rows) == {"mine (one)", "mine (two)"}
    assert rows["mine (one)"]["value"] == pytest.approx(mean(one))
    assert rows["mine (one)"]["runs"] == "one"
    assert pd.isna(rows["mine (two)"]["value"])  # it lacks a task, and takes none from the other
    board = found.boards[0].table.set_index(["task", "method"])
    assert board["value"][SIMPLE[0], "mine (two)"] == pytest.approx(mean(two))
    assert board["samples"][SIMPLE[1], "mine (two)"] == 0
    assert "'mine'" in found.notes[0]
    assert reason in found.notes[0]
    assert "random" in set(found.boards[0].overall["method"])  # references are never parted
    assert any("In one and two these labels" in note for note in verax.compare(one, two).notes)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (own(), own()),
        (own(source="a.py:mine"), own(source="b.py:mine")),
        (own(version="1"), own(version="1")),
        (built_in(), built_in()),
    ],
)
def test_the_same_code_shares_a_row(tmp_path, old, new):
    one = made(tmp_path / "one", old, tasks=SIMPLE[:1])
    two = made(tmp_path / "two", new, "2026-02-01", tasks=SIMPLE[1:])
    found = standings([one, two])
    assert set(mine(found)) == {"mine"}
    assert mine(found)["mine"]["runs"] == "one, two"
    assert mine(found)["mine"]["value"] == pytest.approx((mean(one) + mean(two)) / 2)
    assert not found.notes
    again = made(tmp_path / "again", new, "2026-02-01", tasks=SIMPLE[:1])
    assert not verax.compare(one, again).notes


UNKNOWN = [
    ({"old": built_in(), "new": built_in(), "code": "b" * 64}, "other code of verax"),
    ({"old": own(), "new": own(), "code": "b" * 64}, "other code of verax"),
    ({"old": own("a"), "new": own("b"), "python": "3.13.0"}, "code that nobody can compare"),
    ({"old": own(""), "new": own("")}, "code that nobody can compare"),
    ({"old": own("a", version="1"), "new": own("b", version="1")}, "code that nobody can compare"),
]


@pytest.mark.parametrize(("facts", "reason"), UNKNOWN)
def test_scores_decide_where_manifests_cannot(tmp_path, facts, reason):
    old, new = facts.pop("old"), facts.pop("new")
    one = made(tmp_path / "one", old)
    same = made(tmp_path / "same", new, "2026-02-01", tasks=SIMPLE[:1], **facts)
    other = made(tmp_path / "other", new, "2026-02-01", shift=0.01, tasks=SIMPLE[:1], **facts)
    assert set(mine(standings([one, same]))) == {"mine"}
    found = standings([one, other])
    assert set(mine(found)) == {"mine (one)", "mine (other)"}
    assert f"{reason}, other scores on the same pictures" in found.notes[0]
    # without a picture in common nobody knows
    first = made(tmp_path / "first", old, tasks=SIMPLE[1:])
    found = standings([first, same])
    assert set(mine(found)) == {"mine (first)", "mine (same)"}
    assert f"{reason}, no picture in common" in found.notes[0]
    # nor where the runs meet on no board
    far = made(tmp_path / "far", old, tasks=("blocks/a",), family="worlds")
    assert [set(board.overall["method"]) for board in standings([far, same]).boards] == [
        {"mine", "random", "oracle"}
    ] * 2


def test_rows_are_named_after_the_newest_run_of_each_method(tmp_path):
    months = {"jan": "a", "feb": "b", "mar": "a", "apr": "c"}
    runs = [
        made(tmp_path / name, own(code), f"2026-0{n}-01", 0.1 * n)
        for n, (name, code) in enumerate(months.items(), 1)
    ]
    rows = mine(standings(runs))
    assert {name: row["runs"] for name, row in rows.items()} == {
        "mine (apr)": "apr",
        "mine (mar)": "mar",  # the newer of two that have the same scores to give
        "mine (feb)": "feb",
    }


def test_a_made_name_is_nobody_elses(tmp_path):
    one = made(tmp_path / "one", own("a"))
    table = scores(("mine", "mine (one)", "random", "oracle"), shift={"mine": 0.2})
    two = write(tmp_path / "two", table, created="2026-02-01", methods=[own("b")])
    found = standings([one, two])
    assert {"mine (one)", "mine (one)'", "mine (two)"} <= set(found.boards[0].overall["method"])


def test_scores_of_code_that_scores_otherwise_are_left_out(tmp_path):
    new = made(tmp_path / "new", built_in(), "2026-02-01")
    old = made(tmp_path / "old", own(), code="b" * 64)
    table = pd.read_parquet(old / "scores.parquet")
    table.loc[table["method"] == "random", "value"] += 0.01
    table.to_parquet(old / "scores.parquet", index=False)
    found = standings([old, new])
    assert [run["label"] for run in found.runs] == ["new"]
    assert "scores of random are not those of new" in found.left_out["old"]
    assert "other code of verax" in found.left_out["old"]


def test_own_metrics_and_networks_of_other_code_are_left_out(tmp_path):
    entry = {
        "name": "focus-share", "about": "", "higher_is_better": True, "bounds": ["0", "1"],
        "protocol": "sound", "paper": "", "version": None,
    }  # fmt: skip
    for number, word in enumerate("aab"):
        write(
            tmp_path / f"m{number}",
            scores(),
            created=f"2026-0{3 - number}",
            metrics=[{**entry, "wording": word}],
        )
    found = standings([tmp_path / f"m{number}" for number in range(3)])
    assert found.left_out == {"m2": "Its metric 'focus-share' is not that of m0, which is newer."}
    with pytest.raises(InvalidInput, match="different metrics under the name 'focus-share'"):
        verax.compare(tmp_path / "m0", tmp_path / "m2")
    for number, word in enumerate("aab"):
        folder = write(tmp_path / f"n{number}", scores(), created=f"2026-0{3 - number}")
        manifest = json.loads((folder / "manifest.json").read_text())
        for network in manifest["networks"]:
            network |= {"version": None, "wording": word}
        (folder / "manifest.json").write_text(json.dumps(manifest))
    found = standings([tmp_path / f"n{number}" for number in range(3)])
    assert list(found.left_out) == ["n2"]
    assert "weights of cnn4 (or their code) are not those of n0" in found.left_out["n2"]


FUNCTION = """
import torch
import verax

def changed(x):
    return {value}

@torch.no_grad()
def mine(model, inputs, targets):
    return changed(inputs)

@verax.metric("share-of-one", higher_is_better=True, bounds=(0, 1))
def share(maps, truth):
    return (maps > {level}).double().mean((1, 2))
"""


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    modules = set(sys.modules)
    for name, value, level in (("one", "x", 0.1), ("two", "1 - x", 0.1), ("three", "x", 0.2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine_of.py").write_text(FUNCTION.format(value=value, level=level))
    yield tmp_path
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
    for registry, name in ((METHODS, "mine"), (METRICS, "share-of-one")):
        if name in registry:
            registry.unregister(name)


def test_functions_of_two_files_have_two_rows_everywhere(files, monkeypatch):
    few = ["--samples", "1", "--certify", "0", "--quiet", "--networks", "wired"]
    for name, tasks in (("one", "textbox/simple-fr,textbox/simple-nr"), ("two", "textbox/simple-fr")):
        asked = ["--methods", f"{files / name / 'mine_of.py'}:mine", "--tasks", tasks, *few]
        metric = ["--metrics", f"{files / ('three' if name == 'two' else name) / 'mine_of.py'}:share"]
        out = files / "runs" / f"smerf-quick-of-{name}"
        done = CliRunner().invoke(app, ["run", "smerf-quick", *asked, *metric, "--out", str(out)])
        assert done.exit_code == 0, done.output
        monkeypatch.delitem(sys.modules, "mine_of", raising=False)
    page, csv = files / "board.html", files / "board.csv"
    names = [f"mine (smerf-quick-of-{name})" for name in ("one", "two")]
    call = ["leaderboard", str(files / "runs"), "--out", str(page), "--csv", str(csv)]
    done = CliRunner().invoke(app, call)
    assert done.exit_code == 0, done.output
    assert "mine (smerf…ck-of-one)" in done.output  # cut in the middle, so that they still differ
    assert "mine (smerf…ck-of-two)" in done.output
    assert "other code" in " ".join(done.output.split())
    table = pd.read_csv(csv)
    record = json.loads(CliRunner().invoke(app, [*call[:2], "--json"]).output)
    for found in (set(table["method"]), {row["method"] for row in record["rows"]}):
        assert {name for name in found if name.startswith("mine")} == set(names)
    assert all(name in page.read_text() for name in names)
    share = CliRunner().invoke(app, [*call[:2], "--metric", "share-of-one", "--json"])
    assert "metric 'share-of-one' is not that of" in json.loads(share.output)["left_out"][0]["reason"]


def test_manifests_say_the_code_of_own_networks():
    try:
        verax.network("mine", version="2")(lambda classes: torch.nn.Linear(1, classes))
        known = writing._code("mine")
    finally:
        NETWORKS.unregister("mine")
    assert known["version"] == "2"
    assert known["wording"]
    assert writing._code("cnn3") == {}
