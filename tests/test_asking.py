"""The faithfulness protocol: scores in studies, agreement with the truth, and what the page says of it."""

from __future__ import annotations

import math
import re

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

import verax
from test_reports import BARE, boards_of, build, text_of
from verax.errors import InvalidInput, InvalidStudy
from verax.methods import METHODS
from verax.metrics import METRICS, faithfulness
from verax.metrics.scoring import MOVES, PATCH, metric_names
from verax.reports.faithfulness import sentence
from verax.studies.agreements import agreement, spearman
from verax.studies.leaderboards import leaderboard

NAMES = ["deletion", "insertion", "pixel-flipping", "infidelity", "max-sensitivity"]


@pytest.fixture(scope="module")
def scene():
    task = verax.task("textbox/complex-cr2")
    return task.network(), task.cases(n=1)


def score(scene, maps, some=slice(None), method=None, **more):
    model, cases = scene
    return verax.score(maps[some], cases[some], "faithfulness", model=model, method=method, **more)


def test_metrics_are_registered():
    assert metric_names("faithfulness") == NAMES
    better = {name: METRICS.get(name).higher_is_better for name in NAMES}
    assert [name for name in NAMES if better[name]] == ["insertion", "pixel-flipping"]
    assert all(METRICS.get(name).paper for name in NAMES)


@pytest.mark.parametrize("method", ["gradient", "smoothgrad", "constant", "random", "oracle"])
def test_scores_by_hand_and_in_any_batch(method, scene):
    model, cases = scene
    settings = {"samples": 3} if method == "smoothgrad" else {}
    maps = verax.explain(
        model, cases.inputs, cases.targets, method, seed=5, ids=cases.ids, truth=cases.truth, **settings
    )
    more = {"method": method, "settings": settings, "seed": 5}
    whole = score(scene, maps, **more)
    for name in NAMES:
        low, high = METRICS.get(name).bounds
        assert whole[name].between(low, high).all(), name
    for some in (slice(3, 4), torch.tensor([7, 2, 3])):
        part = score(scene, maps, some, **more)
        wanted = whole.set_index("sample").loc[part["sample"], NAMES]
        np.testing.assert_allclose(part[NAMES], wanted, rtol=2e-4, atol=2e-5)
    args = (model, cases.inputs, cases.targets)
    np.testing.assert_allclose(whole["deletion"], faithfulness.deletion(*args, maps), atol=1e-6)
    by_hand = faithfulness.insertion(*args, maps, baseline=0.0)
    np.testing.assert_allclose(whole["insertion"], by_hand, atol=1e-6)
    flipped = faithfulness.pixel_flipping(*args, maps, region=PATCH)
    np.testing.assert_allclose(whole["pixel-flipping"], (flipped[:, :1] - flipped).mean(1), atol=1e-4)
    moved = faithfulness.max_sensitivity(
        *args, method, MOVES, bounded=True, seed=5, ids=cases.ids, truth=cases.truth, settings=settings
    )
    np.testing.assert_allclose(whole["max-sensitivity"], moved, atol=1e-6)
    if method in ("constant", "random", "oracle"):
        assert (whole["max-sensitivity"] == 0).all()
    assert whole["degenerate"].any() == (method == "constant")


def test_a_right_map_is_more_faithful_than_none(scene):
    model, cases = scene
    maps = verax.explain(model, cases.inputs, cases.targets, "integrated-gradients", steps=8)
    good, none = score(scene, maps), score(scene, torch.ones_like(maps))
    for name in NAMES[:3]:
        sign = 1 if METRICS.get(name).higher_is_better else -1
        assert sign * good[name].mean() > sign * none[name].mean(), name
    # infidelity reads a map as slopes, so the gradient is what it is made for
    slopes = score(scene, verax.explain(model, cases.inputs, cases.targets, "gradient"))
    assert slopes["infidelity"].mean() < none["infidelity"].mean()
    assert good["max-sensitivity"].isna().all()
    flat = score(scene, maps.sum(1), method="input")
    assert flat["max-sensitivity"].max() < 0.2  # of the method, whatever became of the maps
    np.testing.assert_allclose(flat["deletion"], good["deletion"], atol=0.02)


@pytest.mark.parametrize("value", [0.0, math.nan, math.inf])
def test_degenerate_maps_have_defined_scores_and_broken_ones_are_never_lucky(value, scene):
    def broken(model, inputs, targets):
        return torch.full_like(inputs, value)

    maps = torch.full_like(scene[1].inputs, value)
    found, flat = score(scene, maps, method=broken), score(scene, torch.ones_like(maps))
    assert found[NAMES].notna().all(axis=None)
    assert found["degenerate"].all()
    for name in ("deletion", "insertion", "pixel-flipping"):
        np.testing.assert_allclose(found[name], flat[name], atol=1e-6)
    assert (found["max-sensitivity"] == (0.0 if value == 0 else 2.0)).all()


def test_a_map_out_of_nothing_has_moved_by_all_of_it(scene):
    model, cases = scene

    def sudden(model, inputs, targets):
        return inputs * (inputs < 0)  # black places are zero until they move

    moved = faithfulness.max_sensitivity(model, cases.inputs, cases.targets, sudden, samples=1, bounded=True)
    assert torch.equal(moved, torch.ones_like(moved))


def test_the_network_is_needed_and_the_predicted_class_is_asked(scene):
    model, cases = scene
    maps = cases.inputs
    with pytest.raises(InvalidInput, match="asks the network"):
        verax.score(maps, cases, "faithfulness")
    wrong = score(scene, maps, predictions=1 - cases.targets)
    assert wrong["wrong"].all()
    assert wrong[NAMES[:4]].notna().all(axis=None)
    with torch.no_grad():
        before = model(cases.inputs).softmax(1).gather(1, 1 - cases.targets[:, None])[:, 0]
    assert wrong["deletion"].mean() > before.mean()  # the other class gains when evidence goes


# -- studies ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("asked")
    study = {
        "name": "asked",
        "tasks": ["textbox/simple-fr"],
        "methods": ["gradient", "input-x-gradient", "lrp-z", "deeplift-rescale", "constant"],
        "protocols": ["sound", "faithfulness"],
        "samples": 2,
        "certify": 0,
    }
    return verax.run(study, quiet=True, out=folder / "run", store=folder / "store")


def test_a_study_has_faithfulness_beside_the_truth(run):
    rows = run.scores[run.scores["protocol"] == "faithfulness"]
    assert set(rows["metric"]) == set(NAMES)
    assert rows.groupby(["method", "metric"], observed=True).size().eq(2 * 12).all()
    board = run.leaderboard("faithfulness").set_index("method")
    assert board["value"].drop(index="constant").min() == board["value"].iloc[0]
    assert board["skill"].isna().all()
    assert board["rank"].isna().sum() == 6  # four controls, the constant map and the oracle
    sound = run.leaderboard().set_index("method")
    assert pd.isna(sound.loc["constant", "rank"])
    assert sound.loc["constant", "value"] == pytest.approx(100 / 4096)
    assert sound.loc["constant", "degenerate"] == 12
    up = run.leaderboard("faithfulness", "insertion")
    assert up["value"].is_monotonic_decreasing
    found = run.agreement()
    assert list(found["metric"]) == NAMES
    assert (found["methods"] == 4).all()
    assert (found["low"] <= found["high"]).all()


def test_the_page_shows_both_sides_and_the_gaps(run):
    page = run.report().read_text()
    text = text_of(page)
    assert 'id="faithfulness"' in page
    board = run.leaderboard("faithfulness", "insertion").set_index("method").loc["lrp-z"]
    assert f"#{board['rank']} {board['value']:.3f} [{board['low']:.3f}, {board['high']:.3f}]" in text
    value = run.agreement("simple").set_index("metric").loc["deletion"]
    wanted = f"{value['correlation']:.2f} [{value['low']:.2f}, {value['high']:.2f}]"
    assert f"rank correlation with the truth {wanted}" in text
    assert "lrp-z the output shared with biases" in text
    assert "deeplift-rescale the change of the output from its baseline exact but for rounding" in text
    assert "gradient – – – –" in text
    assert "miss the promised total" not in text


def test_faithfulness_alone_makes_a_page(run, tmp_path):
    made = build(tmp_path / "run", BARE)
    alone = run.scores[run.scores["protocol"] == "faithfulness"].copy()
    alone["task"] = "world/hard"
    alone.to_parquet(made.folder / "scores.parquet")
    page = made.report().read_text()
    assert len(boards_of(page)) == 2
    said = text_of(page)  # methods whose scores differ by rounding alone share a place
    assert re.search(
        r"probability is left while (its|their) strongest pixels are deleted; less is better", said
    )
    assert 'id="shares"' not in page
    assert "rank correlation with the truth" not in page


# -- agreement --------------------------------------------------------------------------------------------


def table(truth, asked, n=30, metric="deletion"):
    """Scores of made-up methods: one number each, with noise that both sides share."""
    generator = np.random.default_rng(0)
    rows = []
    for k, noise in enumerate(generator.normal(0, 0.01, n)):
        for protocol, name, means in (("sound", "focus-share", truth), ("faithfulness", metric, asked)):
            for method, mean in means.items():
                rows.append(("t", "net", 0, method, protocol, name, 1, k, mean + noise, False))
    columns = ["task", "network", "seed", "method", "protocol", "metric", "group", "sample", "value"]
    return pd.DataFrame(rows, columns=[*columns, "degenerate"])


LEVELS = {"a": 0.1, "b": 0.3, "c": 0.5, "d": 0.8}


def test_spearman_is_scipys():
    generator = np.random.default_rng(1)
    a, b = generator.integers(0, 4, (2, 50, 7)).astype(float)
    wanted = [stats.spearmanr(x, y).statistic for x, y in zip(a, b, strict=True)]
    np.testing.assert_allclose(spearman(a, b), wanted, atol=1e-12)


def test_agreement_knows_the_direction_of_a_metric():
    found = agreement(table(LEVELS, LEVELS), {"t": "f"}).iloc[0]
    assert found["correlation"] == pytest.approx(-1)  # deletion: lower is better
    assert (found["low"], found["high"]) == pytest.approx((-1, -1))
    found = agreement(table(LEVELS, LEVELS, metric="insertion"), {"t": "f"}, family="f").iloc[0]
    assert found["correlation"] == pytest.approx(1)
    swapped = {**LEVELS, "a": 0.3, "b": 0.1}
    found = agreement(table(LEVELS, swapped, metric="insertion"), {"t": "f"}).iloc[0]
    assert found["correlation"] == pytest.approx(0.8)


def test_agreement_counts_methods_only_and_the_same_samples_only():
    many = {**LEVELS, "oracle": 1.0, "input": 0.9, "constant": 0.95}
    found = agreement(table(many, {**many, "oracle": 0.0}, metric="insertion"), {"t": "f"}).iloc[0]
    assert found["methods"] == 4
    assert found["correlation"] == pytest.approx(1)
    scores = table(LEVELS, LEVELS, metric="insertion")
    lost = (scores["sample"] < 10) & (scores["protocol"] == "sound")
    upset = (scores["sample"] < 10) & (scores["protocol"] == "faithfulness") & (scores["method"] == "a")
    scores.loc[upset, "value"] = 100.0
    assert agreement(scores[~lost], {"t": "f"})["correlation"].iloc[0] == pytest.approx(1)
    assert agreement(scores, {"t": "f"})["correlation"].iloc[0] < 1


def test_agreement_needs_two_sides_and_three_methods():
    scores = table(LEVELS, LEVELS)
    assert agreement(scores[scores["protocol"] == "sound"], {}).empty
    assert agreement(scores[scores["protocol"] == "faithfulness"], {}).empty
    assert agreement(scores[scores["method"].isin(["a", "b"])], {}).empty
    assert sentence(agreement(scores[scores["protocol"] == "sound"], {}), "f") == ""


def test_the_sentence_says_what_the_numbers_say():
    rows = [("deletion", "focus-share", 0.8, 0.6, 0.9, 9), ("insertion", "focus-share", 0.2, -0.1, 0.6, 9)]
    rows.append(("infidelity", "focus-share", -0.7, -0.9, -0.2, 9))
    text = sentence(
        pd.DataFrame(rows, columns=["metric", "truth", "correlation", "low", "high", "methods"]), "f"
    )
    assert "deletion ranks the methods much as the truth does" in text
    assert "insertion does not clearly agree with the truth" in text
    assert "infidelity ranks them against the truth" in text


def test_leaderboards_of_lower_is_better_begin_with_the_lowest():
    board = leaderboard(table(LEVELS, LEVELS), {"t": "f"}, protocol="faithfulness")
    assert list(board["method"]) == ["a", "b", "c", "d"]
    assert list(board["rank"]) == [1, 2, 3, 4]


def test_constant_is_a_control_that_a_study_may_name():
    assert METHODS.get("constant").model_free
    for label in ("constant", "oracle"):
        with pytest.raises(InvalidStudy, match="belongs to a reference"):
            verax.run(
                {
                    "name": "x",
                    "tasks": ["textbox/simple-fr"],
                    "methods": [{"name": "gradient", "label": label}],
                }
            )
