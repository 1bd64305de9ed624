"""Tests between methods, ranks with the critical difference, and studies whose networks are not all there."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import verax
from verax.errors import InvalidInput, MissingFile
from verax.reports import charts, png, ranks
from verax.studies import comparisons, leaderboards, plan, spec, statistics
from verax.studies.comparisons import Ranking

METHODS = {"best": 0.8, "good": 0.7, "same": 0.7, "bad": 0.2}
FAMILIES = {"mine": "own"}


@pytest.fixture(scope="module")
def scores():
    rng = np.random.default_rng(0)
    rows = []
    for group in range(1, 21):
        for sample in range(4):
            for method, level in [*METHODS.items(), ("oracle", 1.0)]:
                value = level + 0.05 * rng.standard_normal()
                rows.append(("mine", "net", 0, method, "sound", "focus-share", group, sample, value, False))
    names = ["task", "network", "seed", "method", "protocol", "metric", "group", "sample", "value"]
    return pd.DataFrame(rows, columns=[*names, "degenerate"])


def means(scores):
    return scores.pivot_table(index="group", columns="method", values="value")[list(METHODS)]


def test_holm_by_hand():
    np.testing.assert_allclose(
        comparisons.holm(np.array([0.01, 0.04, 0.03, 0.005])), [0.03, 0.06, 0.06, 0.02]
    )
    np.testing.assert_allclose(comparisons.holm(np.array([0.5, 0.9])), [1.0, 1.0])


def test_pairs_are_wilcoxon_over_buckets_with_holm(scores):
    table = comparisons.paired(scores, FAMILIES)
    wide = means(scores)
    assert len(table) == 6
    assert "oracle" not in set(table["first"]) | set(table["second"])
    for row in table.itertuples():
        difference = wide[row.first] - wide[row.second]
        assert row.difference == pytest.approx(difference.mean())
        assert row.p == pytest.approx(stats.wilcoxon(difference).pvalue)
        assert row.low <= row.difference <= row.high
    differ = {(r.first, r.second) for r in table.itertuples() if r.differ}
    assert ("good", "same") not in differ
    assert len(differ) == 5


def test_ranks_are_friedman_with_nemenyi(scores):
    found = comparisons.ranking(scores, FAMILIES)
    wide = means(scores)
    wanted = stats.friedmanchisquare(*wide.to_numpy().T)
    assert (found.statistic, found.p) == pytest.approx((wanted.statistic, wanted.pvalue))
    assert next(iter(found.ranks)) == "best"
    assert sum(found.ranks.values()) == pytest.approx(10)
    # 2.569 is Demšar's table for four methods at 5 %
    assert found.critical == pytest.approx(2.569 * np.sqrt(4 * 5 / (6 * 20)), abs=1e-3)
    with pytest.raises(InvalidInput, match="at least three"):
        comparisons.ranking(scores[scores["method"].isin(["best", "bad"])], FAMILIES)


@pytest.mark.parametrize("noise", [3e-8, 0.0])
def test_rounding_wins_nothing(scores, noise):
    """Two methods that are one formula differ in the eighth digit, here always in favour of the second."""
    twin = scores[scores["method"] == "good"].assign(method="twin", value=lambda t: t["value"] * (1 + noise))
    both = pd.concat([scores, twin], ignore_index=True)
    board = leaderboards.leaderboard(both, FAMILIES).set_index("method")["rank"]
    assert board["good"] == board["twin"]
    ranking = comparisons.ranking(both, FAMILIES).ranks
    assert ranking["good"] == ranking["twin"]
    table = comparisons.paired(both, FAMILIES).set_index(["first", "second"])
    assert table["p"]["good", "twin"] == 1.0
    assert table["difference"]["good", "twin"] == 0.0


def test_small_differences_are_differences():
    values = np.array([[0.5, 0.500002, 0.7, np.nan], [2e-9, 4e-9, 0.0, 1.0]])
    np.testing.assert_array_equal(statistics.levelled(values), [values[0], [2e-9, 4e-9, 0.0, 1.0]])
    np.testing.assert_array_equal(statistics.levelled(np.array([0.5, 0.5 + 1e-8, 0.2])), [0.5, 0.5, 0.2])


def test_ties_are_the_largest_runs_within_the_critical_difference():
    found = Ranking({"a": 1.0, "b": 1.5, "c": 2.2, "d": 4.0, "e": 4.1}, 9.0, 0.01, 1.0, 10)
    assert found.tied() == [("a", "b"), ("b", "c"), ("d", "e")]
    assert Ranking({"a": 1.0, "b": 3.0}, 9.0, 0.01, 0.5, 10).tied() == []


def test_the_rank_plot_names_every_method(scores):
    drawn = ranks.figure(comparisons.ranking(scores, FAMILIES))
    words = " ".join(text.get_text() for text in drawn.axes[0].texts)
    assert all(name in words for name in METHODS)
    assert "critical difference" in words
    assert png(drawn)[:4] == b"\x89PNG"


def test_the_axis_of_ranks_ends_at_the_last_rank():
    found = Ranking({"a": 1.0, "b": 1.5, "c": 2.2, "d": 4.0, "e": 4.1, "f": 5.9}, 9.0, 0.01, 1.0, 10)
    made = charts.ranks("ranks", "Ranks", found)
    bars = {row["method"]: (row["low"], row["high"]) for row in made.rows}
    assert min(low for low, _ in bars.values()) == 1
    assert max(high for _, high in bars.values()) == 6
    assert {layer["encoding"]["x"]["scale"]["domain"][1] for layer in made.spec["layer"]} == {6}
    for one, other in combinations(found.ranks, 2):  # what is tied still overlaps, and nothing else does
        overlap = max(bars[one][0], bars[other][0]) <= min(bars[one][1], bars[other][1])
        assert overlap == (abs(found.ranks[one] - found.ranks[other]) <= 1.0)


def test_the_corrected_study_is_what_it_says():
    found = spec.study("smerf-sound")
    assert len(found.tasks) == 7
    assert found.networks == ["cnn4", "wired"]
    assert len(found.seeds) == 5
    assert found.samples >= 100
    assert found.protocols == ["sound", "sound:counterfactual", "sound:shapley"]


def test_seeds_that_are_not_stored_are_left_out_only_when_asked_and_named(own_store):
    base = {
        "name": "gaps",
        "tasks": ["textbox/simple-fr"],
        "methods": ["gradient"],
        "samples": 1,
        "certify": 0,
    }
    with pytest.raises(MissingFile, match="--seed 1"):
        plan.compile_plan(spec.study({**base, "seeds": [0, 1]}), own_store)
    some = plan.compile_plan(spec.study({**base, "seeds": [0, 1, 2], "missing": "skip"}), own_store)
    assert [subject.seed for subject in some.subjects] == [0]
    assert "seeds 1 and 2 are not stored" in some.notes[0]
    assert "verax train textbox/simple-fr --network cnn4 --seed 1" in some.notes[0]
    alone = plan.compile_plan(spec.study({**base, "seeds": [1], "missing": "skip"}), own_store)
    assert [subject.seed for subject in alone.subjects] == [0]
    assert len(alone.notes) == 1


def test_a_run_warns_and_keeps_the_note(tmp_path):
    study = {"name": "gaps", "tasks": ["textbox/simple-fr"], "methods": ["gradient"], "samples": 1}
    with pytest.warns(verax.errors.VeraxWarning, match="seed 3 is not stored"):
        run = verax.run(
            {**study, "certify": 0, "seeds": [3], "missing": "skip"}, out=tmp_path / "r", quiet=True
        )
    assert len(run.manifest["notes"]) == 1
