"""Comparing runs: the statistics against brute force, and what is refused or said."""

import itertools
import json
import re

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from typer.testing import CliRunner

import verax
from made_up_runs import scores, write
from verax.cli.console import console
from verax.cli.main import app
from verax.errors import InvalidInput, InvalidParameter, MissingFile, UnknownName
from verax.studies.comparisons import signed_rank
from verax.studies.statistics import bucket_means, interval


@pytest.fixture
def runs(tmp_path):
    before = write(tmp_path / "before", scores())
    after = write(tmp_path / "after", scores(shift={"lrp-a": 0.1}, noise=1))
    return before, after


def test_means_differences_wins_and_tests_are_those_of_brute_force(runs):
    found = verax.compare(*runs)
    keys = ["task", "network", "seed", "group", "sample"]
    one, two = (pd.read_parquet(run / "scores.parquet") for run in runs)
    p = {}
    for row in found.table.to_dict("records"):
        a = one[one["method"] == row["method"]].set_index(keys)["value"]
        b = two[two["method"] == row["method"]].set_index(keys)["value"]
        moved = (b - a).dropna()
        assert row["pictures"] == len(moved) == 36
        assert row["difference"] == pytest.approx(moved.groupby(["task", "group"]).mean().mean())
        assert row["first"] == pytest.approx(a.groupby(["task", "group"]).mean().mean())
        assert row["wins"] == (moved > 0).sum()
        assert row["losses"] == (moved < 0).sum()
        assert row["wins"] + row["losses"] + row["ties"] == len(moved)
        if row["method"] in ("random", "oracle"):
            assert np.isnan(row["p"])
            assert np.isnan(row["holm"])
            assert not row["differ"]
        else:
            p[row["method"]] = row["p"]
            assert row["p"] == pytest.approx(stats.wilcoxon(moved).pvalue)
    # Holm by hand: the smallest times three, the next times two, never less than the one before
    order = sorted(p, key=p.get)
    expected, last = {}, 0.0
    for place, name in enumerate(order):
        last = max(last, min(1.0, p[name] * (len(order) - place)))
        expected[name] = last
    table = found.table.set_index("method")
    for name, value in expected.items():
        assert table["holm"][name] == pytest.approx(value)
    assert list(table.index[table["differ"]]) == [
        name for name in table.index if expected.get(name, 1) < 0.05
    ]
    assert table["differ"]["lrp-a"]
    assert table["better"]["lrp-a"]
    assert "better: lrp-a" in found.sentence()


def test_the_signed_rank_test_is_the_one_over_all_signs():
    differences = np.array([0.31, -0.12, 0.55, 0.47, 0.08, -0.03, 0.29, 0.61])
    ranks = stats.rankdata(np.abs(differences))
    seen = ranks[differences > 0].sum()
    sums = [ranks[list(s)].sum() for n in range(9) for s in itertools.combinations(range(8), n)]
    middle = ranks.sum() / 2
    expected = np.mean([abs(total - middle) >= abs(seen - middle) for total in sums])
    assert signed_rank(differences) == pytest.approx(expected)
    assert signed_rank(np.zeros(5)) == 1.0
    assert signed_rank(np.array([1e-17, -1e-17])) == 1.0


def test_what_rounding_parts_is_a_tie(tmp_path):
    one = scores()
    two = one.assign(value=one["value"] * (1 + 3e-8))  # as between two machines
    found = verax.compare(write(tmp_path / "a", one), write(tmp_path / "b", two)).table
    assert (found["ties"] == found["pictures"]).all()
    assert not found["differ"].any()


def test_intervals_are_those_of_the_paired_bootstrap(runs):
    found = verax.compare(*runs).table.set_index("method").loc["lrp-a"]
    one, two = (pd.read_parquet(run / "scores.parquet").query("method == 'lrp-a'") for run in runs)
    both = pd.concat([one.assign(method="a"), two.assign(method="b")])
    buckets = bucket_means(both, ("a", "b"))
    low, high = interval((buckets.replicates[:, :, 1] - buckets.replicates[:, :, 0]).mean(1))
    assert (found["low"], found["high"]) == (pytest.approx(low), pytest.approx(high))
    assert low < found["difference"] < high
    # and about as wide as the normal approximation: buckets are averaged, pictures within them drawn
    keys = ["task", "group", "sample"]
    moved = two.set_index(keys)["value"] - one.set_index(keys)["value"]
    error = np.sqrt((moved.groupby(["task", "group"]).var() / 6).sum()) / 6
    assert (high - low) / (2 * 1.96 * error) == pytest.approx(1, abs=0.15)


def test_equal_runs_do_not_differ(tmp_path):
    one, two = write(tmp_path / "one", scores()), write(tmp_path / "two", scores())
    table = verax.compare(one, two).table
    assert (table["difference"] == 0).all()
    assert (table["ties"] == table["pictures"]).all()
    assert (table["p"].dropna() == 1).all()
    assert not table["differ"].any()
    assert not table["better"].any()


def test_few_false_alarms_where_nothing_differs(tmp_path):
    # 40 pairs of runs that differ by chance alone, three tests each: Holm keeps the family at 5 %
    alarms = 0
    for trial in range(40):
        one = write(tmp_path / f"a{trial}", scores(noise=2 * trial + 10, groups=(1,)))
        two = write(tmp_path / f"b{trial}", scores(noise=2 * trial + 11, groups=(1,)))
        alarms += bool(verax.compare(one, two).table["differ"].any())
    assert alarms <= 6  # 2 are expected; more than 6 happen once in 200 times


def test_a_picture_that_many_networks_saw_is_one_observation(tmp_path):
    networks = ("cnn3", "cnn4", "vgg16")
    one = write(tmp_path / "one", scores(networks=networks, seeds=(0, 1)))
    two = write(tmp_path / "two", scores(networks=networks, seeds=(0, 1), noise=5))
    row = verax.compare(one, two).table.set_index("method").loc["gradient"]
    assert row["pictures"] == 36
    assert row["buckets"] == 6


def test_what_is_only_in_one_run_is_said(tmp_path):
    one = write(tmp_path / "one", scores(methods=("gradient", "lrp-a", "mine"), networks=("cnn4", "cnn3")))
    table = scores(methods=("gradient", "lrp-a"), tasks=("textbox/simple-fr",))
    two = write(tmp_path / "two", table[table["sample"] != 1001], code="b" * 64)
    found = verax.compare(one, two)
    notes = " ".join(found.notes)
    assert "Only in one: methods mine." in notes
    assert "Only in one: tasks textbox/simple-nr." in notes
    assert "Only in one: networks cnn3 seed 0." in notes
    assert "2 scores of one cannot be compared: two has the same methods, tasks and networks" in notes
    assert "different code: 0.1.0 (aaaaaaaa) and 0.1.0 (bbbbbbbb)" in notes
    assert list(found.table["method"]) == ["gradient", "lrp-a"]
    assert set(found.table["pictures"]) == {17}
    both = write(tmp_path / "both", scores(methods=("gradient",)))
    assert set(verax.compare(one, both, tasks=["textbox/simple-nr"]).tasks["task"]) == {"textbox/simple-nr"}


def test_other_networks_are_averaged_and_other_weights_named(tmp_path):
    one = write(tmp_path / "one", scores(networks=("cnn3", "cnn4")))
    two = write(tmp_path / "two", scores(networks=("vgg16",)))
    found = verax.compare(one, two)
    assert any("share no network" in note for note in found.notes)
    first = pd.read_parquet(one / "scores.parquet").query("method == 'gradient'")
    assert found.table["first"][0] == pytest.approx(first.groupby(["task", "group"])["value"].mean().mean())
    three = write(tmp_path / "three", scores(networks=("vgg16",), noise=3), sha={"vgg16": "0" * 64})
    assert "three has other weights, or other code, than two for vgg16." in verax.compare(two, three).notes


def test_other_versions_and_pictures_are_refused(runs, tmp_path):
    changed = write(tmp_path / "changed", scores(), fingerprints={"textbox/simple-nr": "another"})
    with pytest.raises(InvalidInput, match=r"different versions of the task 'textbox/simple-nr'"):
        verax.compare(runs[0], changed)
    with pytest.raises(InvalidInput, match=r"different pictures \(seeds 0 and 7\)"):
        verax.compare(runs[0], write(tmp_path / "seven", scores(), seed=7))
    with pytest.raises(InvalidInput, match="no scored picture in common"):
        verax.compare(runs[0], write(tmp_path / "far", scores(groups=(9,))))
    with pytest.raises(InvalidParameter, match="two runs"):
        verax.compare(runs[0])
    with pytest.raises(InvalidInput, match="twice"):
        verax.compare(runs[0], runs[0])
    with pytest.raises(MissingFile, match="not a run"):
        verax.compare(runs[0], tmp_path / "nothing")
    with pytest.raises(UnknownName, match="focus-shar"):
        verax.compare(*runs, metric="focus-shar")
    published = scores(protocol="published", metric="pafl")
    with pytest.raises(UnknownName, match="no protocol in common"):
        verax.compare(runs[0], write(tmp_path / "published", published))


def test_runs_without_fingerprints_are_compared_by_what_they_say(runs):
    for run, renderer in zip(runs, ("sound", "sound"), strict=True):
        path = run / "manifest.json"
        manifest = json.loads(path.read_text())
        for task in manifest["tasks"]:
            del task["fingerprint"]
            task["renderer"] = renderer
        path.write_text(json.dumps(manifest))
    assert len(verax.compare(*runs).table) == 5
    manifest["tasks"][0]["renderer"] = "published"
    path.write_text(json.dumps(manifest))
    with pytest.raises(InvalidInput, match="different versions"):
        verax.compare(*runs)


def test_where_less_is_better(tmp_path):
    one = write(tmp_path / "one", scores(metric="avoid-share"))
    two = write(tmp_path / "two", scores(metric="avoid-share", shift={"gradient": -0.15}))
    found = verax.compare(one, two, metric="avoid-share")
    row = found.table.set_index("method").loc["gradient"]
    assert row["difference"] < 0
    assert row["better"]
    assert row["differ"]
    assert row["wins"] == 36 - row["ties"]


def test_three_runs_share_one_correction(runs, tmp_path):
    third = write(tmp_path / "third", scores(shift={"gradient": 0.02}, noise=3))
    found = verax.compare(*runs, third)
    assert list(found.table["run"].unique()) == ["after", "third"]
    tested = found.table.dropna(subset="p").sort_values("p")
    assert len(tested) == 6
    assert tested["holm"].iloc[0] == pytest.approx(min(1.0, 6 * tested["p"].iloc[0]))


def test_the_page_is_inert_whatever_names_say(tmp_path):
    evil = "<img src=x onerror=alert(1)>\"'"
    table = scores(methods=("gradient", evil, "oracle"), tasks=(f"textbox/{evil}",))
    one = write(tmp_path / "one & <b>", table, study=evil)
    two = write(tmp_path / "two", table.assign(value=table["value"] / 2), study=evil)
    found = verax.compare(one, two)
    text = found.report(tmp_path / "page.html").read_text()
    for page in (text, found._repr_html_()):
        assert "<img src=x" not in page
        assert "&lt;img src=x" in page
        assert "<b>" not in page
    assert re.search(r"default-src 'none'.*script-src 'sha256-", text)
    assert text.count("<script") == 1
    assert "http" not in re.sub(r"data:[^\"]*", "", text).replace("http-equiv", "")
    json.dumps(found.record(), allow_nan=False)


def test_the_command_writes_numbers_and_intervals_alike(tmp_path, monkeypatch):
    long = "a-method-with-a-long-name"
    one = write(tmp_path / "one", scores(methods=(long, "lrp-a")))
    two = write(tmp_path / "two", scores(methods=(long, "lrp-a"), shift={long: -0.119}))
    monkeypatch.setattr(console, "_width", 80)
    done = CliRunner().invoke(app, ["compare", str(one), str(two)])
    line = next(line for line in done.output.splitlines() if line.strip().startswith("a-method"))
    assert re.search(r"-0\.\d{3} \[-0\.\d{3}, -0\.\d{3}\]", line), line
    assert line.rstrip().endswith("worse")
