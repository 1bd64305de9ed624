"""One leaderboard over many runs: what is put together, what is left out, and the page."""

import json
import re

import pandas as pd
import pytest
from typer.testing import CliRunner

import verax
from made_up_runs import scores, write
from verax.cli.main import app
from verax.errors import InvalidInput, UnknownName
from verax.studies.standings import standings


def test_methods_of_several_runs_stand_in_one_table(tmp_path):
    one = write(tmp_path / "one", scores(methods=("gradient", "random", "oracle")))
    two = write(tmp_path / "two", scores(methods=("lrp-a", "mine", "oracle")), created="2026-02-01")
    found = standings([one, two])
    (board,) = found.boards
    assert (board.network, board.tier) == ("cnn4", 2)
    assert board.tasks == ("textbox/simple-fr", "textbox/simple-nr")
    overall = board.overall.set_index("method")
    both = pd.concat([pd.read_parquet(run / "scores.parquet") for run in (one, two)]).drop_duplicates()
    means = both.groupby(["method", "task", "group"])["value"].mean().groupby("method").mean()
    for method, row in overall.iterrows():
        assert row["value"] == pytest.approx(means[method])
        assert row["low"] <= row["value"] <= row["high"]
    ranked = means.drop(["random", "oracle"]).rank(ascending=False).astype(int).to_dict()
    assert overall["rank"].dropna().astype(int).to_dict() == ranked
    assert overall["runs"]["gradient"] == "one"
    assert overall["runs"]["oracle"] == "two"  # the newer one of equals
    task = board.table[board.table["task"] == "textbox/simple-fr"].set_index("method")
    values = both[both["task"] == "textbox/simple-fr"].groupby(["method", "group"])["value"].mean()
    assert task["value"]["lrp-a"] == pytest.approx(values["lrp-a"].mean())
    assert not found.left_out


def test_the_newer_run_counts_where_two_have_the_same_score(tmp_path):
    old = write(tmp_path / "old", scores(), created="2026-01-01")
    new = write(tmp_path / "new", scores(shift={"gradient": 0.2}), created="2026-03-01")
    for order in ([old, new], [new, old]):
        found = standings(order)
        fresh = pd.read_parquet(new / "scores.parquet").query("method == 'gradient'")
        expected = fresh.groupby(["task", "group"])["value"].mean().mean()
        assert found.boards[0].overall.set_index("method")["value"]["gradient"] == pytest.approx(expected)
        assert not found.notes


def test_what_cannot_stand_beside_the_others_is_left_out_and_named(tmp_path):
    new = write(tmp_path / "new", scores(), created="2026-03-01")
    task = write(tmp_path / "task", scores(), fingerprints={"textbox/simple-fr": "another"})
    pictures = write(tmp_path / "pictures", scores(), seed=5)
    weights = write(tmp_path / "weights", scores(), sha={"cnn4": "0" * 64})
    other = write(tmp_path / "other", scores(protocol="published", metric="pafl"))
    found = standings([task, new, pictures, weights, other, tmp_path / "nothing"], protocol="sound")
    assert [run["label"] for run in found.runs] == ["new"]
    assert "textbox/simple-fr is not that of new" in found.left_out["task"]
    assert "seed is 5, not 0" in found.left_out["pictures"]
    assert "weights of cnn4" in found.left_out["weights"]
    assert "no scores under the protocol 'sound'" in found.left_out["other"]
    assert "not a run" in found.left_out[str(tmp_path / "nothing")]
    with pytest.raises(InvalidInput, match="None of these runs"):
        standings([tmp_path / "nothing"])
    with pytest.raises(UnknownName, match="protocol"):
        standings([new], protocol="faithfulness")


def test_damaged_runs_are_left_out_and_named(tmp_path):
    good = write(tmp_path / "good", scores())
    table, manifest = write(tmp_path / "table", scores()), write(tmp_path / "manifest", scores())
    (table / "scores.parquet").write_bytes(b"nothing")
    values = json.loads((manifest / "manifest.json").read_text())
    del values["versions"]
    (manifest / "manifest.json").write_text(json.dumps(values))
    found = standings([good, table, manifest])
    assert [run["label"] for run in found.runs] == ["good"]
    assert "cannot be read" in found.left_out["table"]
    assert "'versions' is missing" in found.left_out[str(manifest)]
    with pytest.raises(UnknownName, match=r"protocol 'sound'.*table.*cannot be read"):
        standings([table], protocol="sound")


def test_networks_and_tiers_are_never_mixed(tmp_path):
    one = write(tmp_path / "one", scores(networks=("cnn4",)))
    two = write(tmp_path / "two", scores(networks=("wired", "vgg16")), passed=False)
    boards = standings([one, two]).boards
    assert [(board.network, board.tier) for board in boards] == [("wired", 1), ("cnn4", 2), ("vgg16", 0)]


def _rows(board, task=""):
    return board.table[board.table["task"] == task].set_index("method")


def test_runs_with_other_numbers_of_pictures_are_ranked_on_those_they_share(tmp_path):
    few = write(tmp_path / "few", scores(methods=("mine", "random", "oracle"), samples=3))
    many = write(tmp_path / "many", scores(methods=("gradient", "lrp-a"), samples=12), created="2026-02-01")
    found = standings([few, many])
    overall = _rows(found.boards[0])
    assert set(overall["samples"]) == {2 * 3 * 3}
    table = pd.read_parquet(many / "scores.parquet")
    same = table[table["sample"] % 1000 < 3]
    means = same.groupby(["method", "task", "group"])["value"].mean().groupby("method").mean()
    assert overall["value"]["gradient"] == pytest.approx(means["gradient"])
    assert "9 of 36 on textbox/simple-fr (cnn4), textbox/simple-nr (cnn4)" in found.notes[0]
    assert not standings([few]).notes


def test_an_interval_does_not_depend_on_which_other_runs_are_listed(tmp_path):
    seeds = (0, 1, 2)
    mine = write(tmp_path / "mine", scores(methods=("mine", "random", "oracle"), samples=4, seeds=seeds))
    # the newer run stands first, with its seeds in another order and more pictures
    table = scores(methods=("gradient", "lrp-a"), samples=9, seeds=seeds[::-1])
    other = write(tmp_path / "other", table, created="2026-02-01")
    alone, beside = (standings(runs).boards[0] for runs in ([mine], [mine, other]))
    for task in ("", "textbox/simple-fr"):
        for name in ("value", "low", "high", "skill", "skill_low", "skill_high"):
            expected = _rows(alone, task)[name]["mine"]
            assert _rows(beside, task)[name]["mine"] == pytest.approx(expected), name


def test_a_run_that_shares_no_picture_is_left_out_and_named(tmp_path):
    new = write(tmp_path / "new", scores(seeds=(0,)), created="2026-02-01")
    old = write(tmp_path / "old", scores(methods=("mine",), seeds=(1,)))
    part = scores(methods=("other",), tasks=("textbox/simple-fr",), seeds=(1,))
    part = pd.concat([part, scores(methods=("other",), tasks=("textbox/simple-nr",))])
    part = write(tmp_path / "part", part)
    found = standings([new, old, part])
    assert "shares no picture" in found.left_out["old"]
    assert [run["label"] for run in found.runs] == ["new", "part"]
    assert "mine" not in set(found.boards[0].table["method"])
    assert any("part shares no picture" in note and "simple-fr" in note for note in found.notes)
    assert _rows(found.boards[0], "textbox/simple-nr")["rank"]["other"] >= 1


def test_skill_is_that_of_the_run(tmp_path):
    folder = write(tmp_path / "one", scores(samples=8, seeds=(0, 1)))
    mine = _rows(standings([folder]).boards[0])
    theirs = verax.Run(folder).leaderboard().set_index("method")
    for name in ("skill", "skill_low", "skill_high"):
        for method in ("gradient", "lrp-a", "grad-cam"):
            assert mine[name][method] == pytest.approx(theirs[name][method], abs=1e-9)
        assert mine[name][["random", "oracle"]].isna().all()
    assert 0 < mine["skill"]["gradient"] < mine["skill"]["lrp-a"] < 1
    assert mine["control"]["gradient"] == "random"
    text = standings([folder]).report(tmp_path / "board.html").read_text()
    assert ">skill" in text
    assert f"{mine['skill']['gradient']:.2f}" in text
    ask = standings([write(tmp_path / "two", scores(methods=("gradient",)))]).boards[0]
    assert _rows(ask)["skill"].isna().all()  # neither a control nor the oracle


def test_only_tasks_of_one_family_are_averaged_and_runs_are_those_of_the_task(tmp_path):
    one = write(tmp_path / "one", scores(tasks=("textbox/simple-fr", "textbox/simple-nr")))
    two = write(tmp_path / "two", scores(tasks=("textbox/simple-fr",), methods=("gradient",), seeds=(0,)))
    three = write(tmp_path / "three", scores(tasks=("blocks/a",)), family="worlds")
    found = standings([one, two, three])
    assert [(board.family, board.tasks) for board in found.boards] == [
        ("simple", ("textbox/simple-fr", "textbox/simple-nr")),
        ("worlds", ("blocks/a",)),
    ]
    table = found.frame().set_index(["family", "task", "method"])
    assert table["runs"]["worlds", "blocks/a", "gradient"] == "three"
    assert table["runs"]["worlds", "all", "gradient"] == "three"
    assert "two" not in table["runs"]["simple", "textbox/simple-nr", "gradient"]
    assert not any("without a rank" in note for note in found.notes)


def test_methods_that_lack_a_task_have_no_rank_over_all(tmp_path):
    one = write(tmp_path / "one", scores())
    two = write(tmp_path / "two", scores(methods=("mine",), tasks=("textbox/simple-fr",)))
    board = standings([one, two]).boards[0]
    mine = board.table[board.table["method"] == "mine"].set_index("task")
    assert pd.isna(mine["rank"][""])
    assert pd.isna(mine["value"][""])
    assert mine["rank"]["textbox/simple-fr"] == 4
    assert pd.isna(mine["value"]["textbox/simple-nr"])
    assert "without a rank over all: mine." in standings([one, two]).notes[0]
    chosen = standings([one, two], tasks=["textbox/simple-fr"]).boards[0]
    assert chosen.tasks == ("textbox/simple-fr",)
    assert chosen.overall.set_index("method")["rank"]["mine"] == 4
    with pytest.raises(UnknownName, match="did you mean 'textbox/simple-fr'"):
        standings([one], tasks=["textbox/simple-f"])


def test_less_is_better_turns_ranks_around(tmp_path):
    run = write(tmp_path / "one", scores(metric="avoid-share"))
    overall = standings([run], metric="avoid-share").boards[0].overall
    assert overall.dropna(subset="rank")["value"].is_monotonic_increasing
    assert overall.dropna(subset="rank")["rank"].tolist() == [1, 2, 3]


def test_the_page_is_inert_and_the_record_is_json(tmp_path):
    evil = "</script><img src=x onerror=alert(1)>\"'"
    run = write(tmp_path / "a & <b>", scores(methods=("gradient", evil)), study=evil)
    found = standings([run, tmp_path / "<i>gone"])
    text = found.report(tmp_path / "board.html").read_text()
    assert "<img src=x" not in text
    assert "<i>gone" not in text
    assert "&lt;i&gt;gone" in text
    assert text.count("</script>") == 1
    script = re.search(r"<script>(.*?)</script>", text, re.S)[1]
    from verax.reports.leaflets import digest

    assert f"script-src '{digest(script)}'" in text.replace("&#39;", "'")
    style = re.search(r"<style>(.*?)</style>", text, re.S)[1]
    assert f"style-src '{digest(style)}'" in text.replace("&#39;", "'")
    assert " style=" not in text  # the policy would ignore it
    rows = json.loads(json.dumps(found.record(), allow_nan=False))["rows"]
    assert {row["task"] for row in rows} == {"all", "textbox/simple-fr", "textbox/simple-nr"}


def test_the_command_shows_skill_and_what_was_left_out(tmp_path):
    one = write(tmp_path / "one", scores())
    two = write(tmp_path / "two", scores(methods=("mine",), samples=4))
    csv, page = tmp_path / "board.csv", tmp_path / "board.html"
    done = CliRunner().invoke(app, ["leaderboard", str(one), str(two), "--csv", str(csv), "--out", str(page)])
    assert done.exit_code == 0, done.output
    table = pd.read_csv(csv).set_index(["task", "method"])
    line = next(line for line in done.output.splitlines() if " mine " in line)
    assert f"{table['skill']['all', 'mine']:.2f} [" in line
    assert "12 of 18" in " ".join(done.output.split())
    assert {"skill_low", "skill_high", "family"} <= set(table)


@pytest.mark.parametrize("width", [80, 100, 140])
def test_the_command_cuts_no_interval(tmp_path, monkeypatch, width):
    from verax.cli.console import console

    names = ("a-method-with-a-long-name", "input", "oracle")
    tasks = ("textbox/simple-fr", "textbox/simple-nr", "textbox/complex-fr", "textbox/complex-cr1")
    table = scores(methods=names, tasks=tasks, shift={"input": 0.6})
    one = write(tmp_path / "one", table)
    monkeypatch.setattr(console, "_width", width)
    done = CliRunner().invoke(app, ["leaderboard", str(one), "--out", str(tmp_path / "board.html")])
    assert done.exit_code == 0, done.output
    line = next(line for line in done.output.splitlines() if "a-method-" in line)
    assert re.search(r" -\d+\.\d\d \[-\d+\.\d\d, -\d+\.\d\d\]", line), line
    assert all(len(line.rstrip()) <= width for line in done.output.splitlines()[:-1])
