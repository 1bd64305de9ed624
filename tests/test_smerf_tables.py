"""The paper's numbers as data, and paper against ours: aggregation against brute force on made-up scores."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from made_up_smerf import GROUPS, made_up
from verax.errors import InvalidInput, InvalidParameter, UnknownName
from verax.reproductions.smerf import paper, tables
from verax.reproductions.smerf.measurements import Measurements, NotTestable

DRAWS = 30


def measurements(scores, **options):
    return Measurements(scores, replicates=DRAWS, **options)


# --- the paper ---------------------------------------------------------------------------------------------


def test_there_are_forty_headline_numbers():
    forty = [r for r in paper.references() if paper.headline(r)]
    assert len(forty) == 40
    assert {r.method for r in forty} == set(paper.methods("ten"))
    assert {(r.metric, r.family) for r in forty} == {
        (m, f) for m in ("pafl", "piou") for f in ("simple", "complex")
    }


def test_references_name_buckets_that_have_the_metric():
    for reference in paper.references():
        have = {g for task in reference.tasks for g in GROUPS[task][reference.metric[0]]}
        assert set(reference.groups) <= have, reference
        assert 0 <= reference.value <= 1
        assert (not reference.undefined) or reference.value == 0


def test_every_part_of_the_paper_is_there():
    references = paper.references()
    assert len(references) > 500
    assert {r.network for r in references} == {"plain", "robust", "vgg16", "alexnet"}
    assert {r.background for r in references} == {"black", "real"}
    assert {r.statistic for r in references} == {"mean", "min", "std"}
    assert all("Random" in r.note for r in references if r.method == "D-SHAP" and r.network == "vgg16")


def test_table_3_has_the_printed_means():
    means = {task: np.mean(list(row.values())) for task, row in paper.table3().items()}
    assert means["complex-fr"] == pytest.approx(0.9953, abs=5e-5)
    assert means["complex-cr1"] == pytest.approx(0.98825)
    assert means["complex-cr4"] == pytest.approx(0.986)
    assert [len(row) for row in paper.table3().values()] == [12, 8, 12, 10, 10, 10, 10]


def test_an_unknown_list_of_methods_gets_a_suggestion():
    with pytest.raises(InvalidParameter, match="fifteen"):
        paper.methods("fiften")


# --- aggregation -------------------------------------------------------------------------------------------


def by_hand(buckets, reference, undefined):
    """Bucket means, then the statistic, in plain Python; NaN images ignored or running through as drawn."""
    means = []
    for task in reference.tasks:
        for group in reference.groups or GROUPS[task][reference.metric[0]]:
            seeds = []
            for seed in (0, 1):
                values = [
                    math.nan if bad and not reference.metric.endswith("iou") else value
                    for value, bad in buckets[task, group, seed, reference.metric, reference.method]
                ]
                if undefined == "ignored":
                    values = [value for value in values if not math.isnan(value)]
                if values:
                    seeds.append(sum(values) / len(values))
            if seeds:
                means.append(sum(seeds) / len(seeds))
    if any(map(math.isnan, means)):
        return 0.0
    mean = sum(means) / len(means)
    return {
        "mean": mean,
        "min": min(means),
        "std": math.sqrt(sum((value - mean) ** 2 for value in means) / len(means)),
    }[reference.statistic]


@pytest.fixture(scope="module")
def scores():
    return made_up(samples=3, seeds=(0, 1), degenerate={"G-CAM": 0.3})


@pytest.fixture(scope="module")
def table(scores):
    return tables.comparison(measurements(scores))


def test_ours_is_what_a_loop_computes(scores, table):
    chosen = [i for i, r in enumerate(paper.references()) if r.network == "plain" and r.background == "black"]
    buckets = {}
    for row in scores.itertuples():
        key = (row.task.removeprefix("textbox/"), row.group, row.seed, row.metric, row.method)
        buckets.setdefault(key, []).append((row.value, row.degenerate))
    for i in [*chosen[::9], *(i for i in chosen if paper.references()[i].method == "G-CAM")]:
        reference, row = paper.references()[i], table.iloc[i]
        assert row["ours"] == pytest.approx(by_hand(buckets, reference, "ignored"), abs=1e-9), reference
        assert row["drawn"] == pytest.approx(by_hand(buckets, reference, "drawn"), abs=1e-9), reference
        assert row["low"] <= row["ours"] <= row["high"]


def test_constant_maps_are_drawn_as_zero_under_afl_only(table):
    rows = table[(table["method"] == "G-CAM") & (table["headline"])].set_index("metric")
    assert (rows.loc["pafl", "drawn"] == 0).all()
    assert (rows.loc["pafl", "ours"] > 0).all()
    assert (rows.loc["piou", "drawn"] == rows.loc["piou", "ours"]).all()


def test_differences_and_states(table):
    here = table[table["ours"].notna()]
    for row in here.to_dict("records"):
        nan = "NaN drawn" in row["note"]
        held = row["drawn"] if nan else row["ours"]
        assert row["difference"] == pytest.approx(held - row["paper"])
        low, high = (held, held) if nan else (row["low"], row["high"])
        near = low - row["uncertainty"] <= row["paper"] <= high + row["uncertainty"]
        assert row["state"] == (tables.INSIDE if near else tables.OUTSIDE), row
    assert set(here["state"]) == {tables.INSIDE, tables.OUTSIDE}


def test_numbers_that_the_run_lacks_are_listed(table):
    gone = table[table["state"] == tables.MISSING]
    assert set(gone["network"]) == {"robust", "vgg16", "alexnet", "plain"}
    assert set(gone.loc[gone["network"] == "plain", "background"]) == {"real"}
    assert gone["note"].str.contains("run").all()


def test_the_headline_is_the_mean_of_forty_differences(scores, table):
    head = tables.headline(measurements(scores), table)
    rows = table[table["headline"]]
    assert head.numbers == len(rows) == 40
    assert head.value == pytest.approx(rows["difference"].abs().mean())
    assert head.drawn == pytest.approx((rows["drawn"] - rows["paper"]).abs().mean())
    assert head.low <= head.value <= head.high
    assert head.inside == (rows["state"] == tables.INSIDE).sum()


def test_a_run_with_the_papers_numbers_reaches_the_target():
    part = {"methods": paper.methods("ten"), "metrics": ("pafl", "piou")}
    exact = made_up(samples=2, spread=0.0, like_paper=True, **part)
    head = tables.headline(measurements(exact))
    assert head.value < 0.005
    assert head.reached
    off = made_up(samples=2, spread=0.0, like_paper=True, shift=0.1, **part)
    assert not tables.headline(measurements(off)).reached


@pytest.mark.parametrize("statistic", ["mean", "min", "std"])
def test_summaries_leave_out_undefined_buckets(statistic):
    draws = np.array([[[0.1, 0.4], [np.nan, 0.2], [0.3, np.nan]]])
    expected = getattr(np, f"nan{statistic}")(draws, axis=1)
    assert tables.summarise(draws, statistic) == pytest.approx(expected)


def test_an_unknown_statistic_is_refused():
    with pytest.raises(InvalidParameter, match="median"):
        tables.summarise(np.zeros((1, 1, 1)), "median")


def test_more_images_make_narrower_intervals():
    widths = []
    for samples in (4, 40):
        frame = tables.comparison(measurements(made_up(samples=samples, metrics=("pafl",), methods=("IG",))))
        chosen = frame[(frame["method"] == "IG") & frame["ours"].notna() & (frame["statistic"] == "mean")]
        widths.append((chosen["high"] - chosen["low"]).mean())
    assert widths[1] < 0.6 * widths[0]


# --- measurements ------------------------------------------------------------------------------------------


def test_networks_are_found_by_role_or_given(scores):
    assert measurements(scores).networks["plain"] == {"simple": "cnn@published", "complex": "cnn@published"}
    own = scores.assign(network=np.where(scores["task"].str.contains("simple"), "cnn3", "cnn4"))
    given = measurements(own, networks={"plain": {"simple": "cnn3", "complex": "cnn4"}})
    same = measurements(scores).draws("pafl", ["IG"], family="simple")
    assert np.array_equal(given.draws("pafl", ["IG"], family="simple"), same)
    with pytest.raises(UnknownName, match="cnn3"):
        _ = measurements(own, networks={"plain": "cnn33"}).networks
    with pytest.raises(InvalidParameter, match="plain"):
        measurements(own, networks={"plane": "cnn3"})


def test_aliases_stand_for_the_papers_baselines(scores):
    renamed = scores.assign(method=scores["method"].replace({"Random": "random"}))
    expected = measurements(scores).draws("pafl", ["Random"])
    assert np.array_equal(measurements(renamed).draws("pafl", ["Random"]), expected)


def test_what_is_missing_is_said(scores):
    measured = measurements(scores)
    for question, words in (
        (lambda: measured.draws("pafl", ["IG"], network="vgg16"), "vgg16"),
        (lambda: measured.draws("pafl", ["IG"], background="noise"), "noise"),
        (lambda: measured.draws("pafl", ["LIME"]), "LIME"),
    ):
        with pytest.raises(NotTestable, match=words):
            question()
    part = measurements(scores[scores["task"] != "textbox/complex-cr3"])
    with pytest.raises(NotTestable, match="complex-cr3"):
        part.draws("pafl", ["IG"], family="complex")
    failed = scores[~((scores["method"] == "IG") & (scores["group"] == 12))]
    with pytest.raises(NotTestable, match="IG"):
        measurements(failed).draws("pafl", ["IG"])


def test_other_protocols_alone_are_refused(scores):
    with pytest.raises(InvalidInput, match="published"):
        Measurements(scores.assign(protocol="sound"))


def test_buckets_with_both_roles_are_those_of_figure_7(scores):
    measured = measurements(scores)
    index = measured.table("pafl").index
    found = {
        task: tuple(index.loc[measured.buckets("pafl", tasks=[task], both=True), "group"])
        for task in paper.settings()
    }
    assert found == {
        "simple-fr": (8, 9, 10, 11, 12),
        "simple-nr": (5, 6, 8, 9, 11, 12),
        "complex-fr": (11, 12),
        "complex-cr1": (5, 6, 8, 9, 11, 12),
        "complex-cr2": (5, 6, 8, 9, 11, 12),
        "complex-cr3": (8, 9, 11, 12),
        "complex-cr4": (5, 6, 11, 12),
    }
    assert len(measured.buckets("pafl", "simple")) == 14
    assert len(measured.buckets("pafl", "complex")) == 37
    assert len(measured.buckets("safl", "simple")) == 16
    assert len(measured.buckets("safl", "complex")) == 32


def test_replicates_stay_in_the_range_of_the_metric():
    rows = made_up(samples=2, methods=("IG",), metrics=("pafl", "safl"))
    rows["value"] = np.where(rows["sample"] % 2, 0.0, 0.01)
    draws = measurements(pd.DataFrame(rows)).draws("pafl", ["IG"])
    assert draws.min() >= 0
