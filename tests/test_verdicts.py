"""Verdicts: what a run says of its first method, and whether the tests that its page shows say the same."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from made_up_reports import BARE, Made, build, build_climate
from test_reports import text_of
from verax.cli import boards as terminal
from verax.cli.console import console
from verax.reports import charts, evidence, grids, ranks
from verax.reports.verdicts import leaders, told_apart, verdict
from verax.studies import comparisons
from verax.studies.comparisons import Ranking
from verax.studies.runs import Run

CLOSE = Made({"first": 0.8, "twin": 0.8, "near": 0.799, "far": 0.3}, groups=tuple(range(1, 13)), maps=False)
FEW = replace(CLOSE, groups=(1, 2, 3))


def board(values, **oracle):
    """A leaderboard of methods with narrow intervals, and of the oracle."""
    names = [*values, *(["oracle"] if oracle else [])]
    points = [*values.values(), *oracle.values()]
    count = len(values)
    return pd.DataFrame(
        {
            "method": names,
            "rank": pd.array([*range(1, count + 1), *[None] * len(oracle)], dtype="Int64"),
            "value": points,
            "low": [value - 0.01 for value in points],
            "high": [value + 0.01 for value in points],
            "skill": np.nan,
            "skill_low": np.nan,
            "skill_high": np.nan,
            "control": "",
            "degenerate": 0,
            "samples": 9,
        }
    )


def comparison(names, differ, blocks=12, low=0.1, high=0.2):
    """Tests of all pairs with the first, of which some differ."""
    rows = [(names[0], name, name in differ, low, high) for name in names[1:]]
    pairs = pd.DataFrame(rows, columns=["first", "second", "differ", "low", "high"])
    return Ranking({name: float(k) for k, name in enumerate(names, 1)}, 9.0, 0.01, 1.0, blocks), pairs


def undecided(run, family):
    """The methods that the pairs of the page do not tell from the first."""
    scores = run.rows("sound", "focus-share")
    pairs = comparisons.compared(scores, run.families, family=family)[1]
    first = leaders(run.leaderboard(family=family))
    level = [(row.first, row.second) for row in pairs.itertuples() if not row.differ]
    return {a if b in first else b for a, b in level if (a in first) != (b in first)}


@pytest.mark.parametrize("made", [CLOSE, FEW])
def test_the_page_and_its_verdicts_agree_on_what_is_told_apart(made, tmp_path):
    run = build(tmp_path / "run", made)
    page = run.report().read_text()
    for family in ("simple", "complex"):
        (said,) = re.findall(rf'<p class="(?:verdict|also)">(On {family} tasks.*?)</p>', page)
        (tests,) = re.findall(r"Tests of pairs.*?: .*?\.", said)
        level = undecided(run, family)
        if made is FEW:
            assert tests.endswith(": 3 buckets are too few to test 6 pairs.")
            assert len(level) == 3
        else:
            assert level
            assert "far" not in level
        assert {name for name in made.methods if name in tests.partition("apart from")[2]} == level
    assert page.count("the bucket: it asks whether one method is ahead in bucket after bucket") == 2
    assert page.count("no pair can differ") == (2 if made is FEW else 0)


def test_the_terminal_says_what_is_not_told_apart(tmp_path, capsys):
    run = build(tmp_path / "run", CLOSE)
    terminal.show(run)
    said = " ".join(capsys.readouterr().out.split())
    for family in ("simple", "complex"):
        found = told_apart(run.leaderboard(family=family), ranks.tests(run, "sound", [family])[family])
        assert "Tests of pairs over 12 buckets do not tell" in found
        assert found in said
        assert found in text_of(run._repr_html_())  # and a notebook


def test_the_smallest_p_is_that_of_scipy():
    for count in (2, 5, 10, 20):
        smallest = stats.wilcoxon(np.arange(1, count + 1)).pvalue
        assert comparisons.least(count) == pytest.approx(smallest)
    assert comparisons.hopeless(10, 120)
    assert not comparisons.hopeless(14, 120)


def test_verdicts_name_a_few_and_count_many():
    names = [f"m{k}" for k in range(1, 9)]
    values = {name: 0.9 - 0.05 * k for k, name in enumerate(names)}
    few = verdict(board(values), "all", "sound", tested=comparison(names, {"m3", *names[4:]}))
    assert "Tests of pairs over 12 buckets do not tell m1 apart from m2 and m4: other buckets" in few
    assert "overlaps" not in few
    many = verdict(board(values), "all", "sound", tested=comparison(names, {"m8"}))
    assert "m1 apart from m2, m3, m4, m5 and 2 others: other" in many
    hopeless = verdict(board(values), "all", "sound", tested=comparison(names, set(), blocks=5))
    assert "m1 apart from any of the other 7: 5 buckets are too few to test 7 pairs." in hopeless
    every = verdict(board(values), "all", "sound", tested=comparison(names, set()))
    assert "m1 apart from any of the other 7: other" in every
    none = verdict(board(values), "all", "sound", tested=comparison(names, set(names)))
    assert "Tests of pairs" not in none
    shared = board(values)
    shared.loc[1, "rank"] = 1
    said = verdict(shared, "all", "sound", tested=comparison(names, {*names[3:]}))
    assert "do not tell m1 and m2 apart from m3: other" in said
    all_first = board(values).assign(rank=pd.array([1] * 8, dtype="Int64"))
    assert "Tests of pairs" not in verdict(all_first, "all", "sound", tested=comparison(names, set()))


def test_a_difference_that_other_samples_may_turn_is_named_though_it_is_told_apart():
    names = ["good", "same", "bad"]
    values = dict(zip(names, (0.8, 0.795, 0.2), strict=True))
    said = verdict(board(values), "all", "sound", tested=comparison(names, {"same", "bad"}, low=-0.1))
    assert "The intervals of the differences to same and bad include 0: other samples may turn" in said
    assert "overlaps" not in said  # which is said where nothing was tested
    assert "The interval overlaps with that of same" in verdict(board(values), "all", "sound")


# -- faithfulness -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("truth", "where"),
    [(0.1, "ahead of every method"), (0.35, "behind 1 of 2 methods"), (0.6, "behind every method")],
)
def test_a_verdict_that_knows_no_truth_says_so_and_where_the_truth_stands(truth, where):
    values = {"gradient": 0.3, "lrp-z": 0.4}
    said = verdict(board(values, oracle=truth), "all", "faithfulness")
    mean = f"{truth:.2f} [{truth - 0.01:.2f}, {truth + 0.01:.2f}]"
    assert (
        f"less is better, but that is no truth: the oracle, the truth itself, stands at {mean}, {where}."
        in said
    )
    assert "less is better, but that is no truth." in verdict(board(values), "all", "faithfulness")
    assert "no truth" not in verdict(board(values, oracle=truth), "all", "sound")


@pytest.mark.parametrize("higher", [True, False])
def test_what_is_good_is_dark(higher):
    rows = [{"task": "t", "scene": "s", "group": 1, "method": "m", "value": 0.5, "low": 0.4, "high": 0.6}]
    made = grids.profiles("n", "Mean", pd.DataFrame(rows), ["m"], higher)
    scale = made.spec["layer"][0]["encoding"]["fillOpacity"]["scale"]
    good = scale["range"][scale["domain"].index(1 if higher else 0)]
    assert good == max(scale["range"])
    assert ("lower is better, and dark" in made.title) == (not higher)
    on_dark = made.spec["layer"][1]["encoding"]["color"]["condition"]["test"]
    assert on_dark == ("datum.value > 0.55" if higher else "datum.value < 0.45")


def test_columns_without_a_number_are_left_out():
    bare = board({"a": 0.3, "b": 0.4}).assign(worst=0.5)
    made = charts.board("n", "t", bare, "x", order=["a", "b"], lines={})
    assert "skill" not in made.rows[0]
    assert "skill" not in str(made.spec)
    skilled = charts.board("n", "t", bare.assign(skill=0.1), "x", order=["a", "b"], lines={})
    assert skilled.rows[0]["skill"] == 0.1
    assert "skill" not in [column.header for column in terminal._table("t", bare).columns]
    assert "skill" in [column.header for column in terminal._table("t", bare.assign(skill=0.1)).columns]


def faithful(run):
    """The run with scores of faithfulness alone."""
    table = run.scores[run.scores["metric"] == "focus-share"].assign(protocol="faithfulness")
    named = [table.assign(metric=name) for name in ("deletion", "insertion", "pixel-flipping", "infidelity")]
    whole = pd.concat([*named, table.assign(metric="max-sensitivity")], ignore_index=True)
    whole.to_parquet(run.folder / "scores.parquet")
    manifest = {**run.manifest, "study": {**run.manifest["study"], "protocols": ["faithfulness"]}}
    (run.folder / "manifest.json").write_text(json.dumps(manifest))
    return Run(run.folder)


def test_a_page_of_faithfulness_alone_has_no_empty_columns(tmp_path):
    run = faithful(build(tmp_path / "run", replace(BARE, protocols=("sound",))))
    page = run.report().read_text()
    assert 'id="faithfulness"' in page
    assert "true rank" not in page
    assert '<th scope="col" class="number">skill</th>' not in page
    assert "Mean deletion in every bucket (lower is better, and dark)" in page
    assert ">skill<" not in run._repr_html_()
    assert ">skill<" in build(tmp_path / "other", BARE)._repr_html_()


@pytest.mark.parametrize(("width", "tables"), [(60, 3), (80, 2), (100, 2), (140, 1)])
def test_faithfulness_has_intervals_and_whole_headings_in_any_terminal(
    width, tables, tmp_path, capsys, monkeypatch
):
    run = faithful(build(tmp_path / "run", replace(BARE, protocols=("sound",))))
    monkeypatch.setattr(console, "width", width)
    terminal._show_faithfulness(run, "tier 2")
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= width
    assert "…" not in said
    for name in ("deletion", "insertion", "pixel-flipping", "infidelity", "max-sensitivity"):
        assert name in said
    assert len(re.findall("method ", said)) == 2 * tables  # of two families
    for metric in ("deletion", "max-sensitivity"):
        row = run.leaderboard("faithfulness", metric, "complex").set_index("method").loc["good"]
        assert f"{row['value']:.2f} [{row['low']:.2f}, {row['high']:.2f}]" in said
    assert "the oracle is the truth itself" in " ".join(said.split())


# -- degenerate maps ----------------------------------------------------------------------------------------


def spoilt(run, method, count):
    """The run in which some maps of a method say nothing."""
    table = run.scores.copy()
    mine = table["method"] == method
    some = sorted(table.loc[mine, "sample"].unique())[:count]
    table.loc[mine & table["sample"].isin(some) & (table["task"] == "world/hard"), "degenerate"] = True
    table.to_parquet(run.folder / "scores.parquet")
    return Run(run.folder)


def test_a_few_maps_that_say_nothing_are_told_in_one_line(tmp_path, capsys):
    run = spoilt(build(tmp_path / "run", BARE), "good", 1)
    terminal.show(run)
    said = capsys.readouterr().out.splitlines()
    assert said.count("Constant or not finite (NaN or infinite): 1 of 18 maps of good.") == 1
    assert sum("not finite" in line for line in said) == 1
    facts = text_of(run.report().read_text())
    assert "degenerate maps of methods, of those scored 1 " in facts
    note = "good: all 18 maps are constant or not finite (NaN or infinite), so that they say nothing."
    run = spoilt(build(tmp_path / "other", BARE), "good", 18)
    run.manifest["notes"] = [note]
    terminal.show(run)
    assert capsys.readouterr().out.count("not finite") == 1  # it is not said twice


def test_maps_that_say_nothing_are_told_under_every_table(tmp_path, capsys):
    run = faithful(spoilt(build(tmp_path / "run", replace(BARE, protocols=("sound",))), "good", 2))
    terminal.show(run)
    said = capsys.readouterr().out
    assert said.count("Constant or not finite (NaN or infinite): 2 of 18 maps of good.") == 1
    run = build_climate(tmp_path / "sea")
    table = run.scores
    table.loc[table["method"].eq("far") & table["sample"].eq(table["sample"].min()), "degenerate"] = True
    table.to_parquet(run.folder / "scores.parquet")
    terminal._show_exact(Run(run.folder), "tier 2")
    assert capsys.readouterr().out.count("(NaN or infinite): 2 of 8 maps of far.") == 1


def test_empty_maps_of_scenes_without_a_focus_alarm_nobody(tmp_path):
    run = build(tmp_path / "run", BARE)
    for unit in run.manifest["units"]:
        unit["degenerate"] = 40  # those that are not scored
    assert "degenerate maps of methods, of those scored 0 " in text_of(run.report().read_text())


# -- certificates -------------------------------------------------------------------------------------------


def test_a_page_says_that_few_scenes_cannot_show_what_is_asked(tmp_path):
    said = text_of(build(tmp_path / "run", BARE).report().read_text())
    assert (
        "not the whole interval: 50 scenes of a bucket cannot show 0.99 (381 could, if all are right)."
        in said
    )
    entry = {"passed": True, "worst_accuracy_of": {"n": 381}, "thresholds": {"accuracy": 0.99}}
    assert evidence.doubts([entry, {**entry, "passed": False, "worst_accuracy_of": {"n": 2}}]) == []
    assert evidence.doubts([{**entry, "worst_accuracy_of": None}]) == []
