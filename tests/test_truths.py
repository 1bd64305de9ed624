"""Three truths: derived from the reasoning, checked against their definitions by brute force."""

import itertools
import re

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

import verax
from verax.cases import Cases, Role, Truth
from verax.errors import InvalidInput, InvalidParameter, UnknownName
from verax.metrics import focus
from verax.metrics.scoring import metric_names
from verax.studies import movements, tiers
from verax.tasks.textbox import TEXTBOX, Reasoning, truths
from verax.tasks.textbox.settings import SETTINGS

TEXTS = [
    *(text for _, text in SETTINGS.values()),
    "box1 and not box2 -> 1; box2 and not box1 -> 1; otherwise -> 0",
    "box1 or box2 -> 1; otherwise -> 0",
    "text = A and box1 -> 2; text = B or box2 -> 1",
]
PROTOCOLS = ["sound", "sound:counterfactual", "sound:shapley"]


def by_orders(reasoning, scene):
    """Shapley values as means over all orders in which the present objects arrive."""
    label, chance = reasoning.label(scene), 1 / len(reasoning.labels)
    present = [name for name, state in scene.items() if state != "none"]

    def worth(names):
        found = reasoning.label({name: scene[name] for name in names})
        return chance if found is None else float(found == label)

    gains = {name: [0.0] if name not in present else [] for name in scene}
    for order in itertools.permutations(present):
        for place, name in enumerate(order):
            gains[name].append(worth(order[: place + 1]) - worth(order[:place]))
    return {name: float(np.mean(values)) for name, values in gains.items()}


@pytest.mark.parametrize("text", TEXTS)
def test_shapley_values_are_the_means_over_all_orders(text):
    reasoning = Reasoning.parse(text)
    for scene in reasoning.buckets().values():
        assert truths.shapley(reasoning, scene) == pytest.approx(by_orders(reasoning, scene), abs=1e-12)


@pytest.mark.parametrize("text", TEXTS)
def test_decisive_objects_are_those_of_which_some_change_flips_the_label(text):
    reasoning = Reasoning.parse(text)
    labels = {tuple(scene.values()): reasoning.label(scene) for scene in TEXTBOX.scenes()}
    for scene in reasoning.buckets().values():
        here, found = tuple(scene.values()), set()
        for other, label in labels.items():
            differ = [name for name, a, b in zip(scene, here, other, strict=True) if a != b]
            if len(differ) == 1 and label is not None and label != labels[here]:
                found |= set(differ)
        assert truths.decisive(reasoning, scene) == found


def test_the_three_truths_say_what_they_mean():
    cr1 = Reasoning.parse(SETTINGS["complex-cr1"][1])
    scene = {"box1": "none", "box2": "present", "text": "A"}  # box2 without box1: label 0
    assert truths.decisive(cr1, scene) == {"box1"}  # absent, and adding it would change the label
    assert cr1.focus(scene) == {"box2"}
    assert truths.shapley(cr1, scene) == pytest.approx({"box1": 0, "box2": 0.25, "text": 0.25})
    either = Reasoning.parse("box1 or box2 -> 1; otherwise -> 0")
    both = {"box1": "present", "box2": "present", "text": "none"}
    assert truths.decisive(either, both) == set()  # decided twice over
    assert truths.roles(either, both, "counterfactual")[:2] == [Role.OTHER, Role.OTHER]
    assert truths.shapley(either, both) == pytest.approx({"box1": 0.5, "box2": 0.5, "text": 0})
    letters = Reasoning.parse(SETTINGS["simple-nr"][1])
    alone = {"box1": "present", "box2": "none", "text": "A"}
    assert truths.shapley(letters, alone) == {"box1": 0, "box2": 0, "text": 0.5}  # from chance to certainty


def test_cases_carry_the_truth_that_is_asked_for():
    task = verax.task("textbox/complex-cr1")
    rule, other, exact = (task.cases(group=[4, 5, 11], n=2, truth=name) for name in truths.TRUTHS)
    assert torch.equal(rule.inputs, other.inputs)
    assert torch.equal(rule.inputs, exact.inputs)
    assert [c.truth.kind for c in (rule, other, exact)] == list(truths.TRUTHS)
    absent = other.truth.decisive & (other.truth.roles == Role.ABSENT)
    box1 = task.world.names.index("box1")
    assert absent[other.group == 5][:, box1].all()
    assert not other.truth.focus[other.group == 5].any()
    assert torch.allclose(exact.truth.weights[exact.group == 5].abs().sum(1), torch.tensor(0.5).double())
    again = task.retell(rule, "shapley")
    assert torch.equal(again.truth.focus, exact.truth.focus)
    joined = Cases.concatenate([exact[:2], exact[2:]])
    assert torch.equal(joined.truth.weights, exact.truth.weights)
    assert joined.truth.kind == "shapley"
    with pytest.raises(UnknownName, match="did you mean 'shapley'"):
        task.cases(n=1, truth="shaply")


def test_object_distance_is_total_variation():
    rng = np.random.default_rng(0)
    task = verax.task("textbox/complex-cr3")
    cases = task.cases(n=3, truth="shapley")
    values = torch.from_numpy(rng.random((len(cases), 64, 64)))
    found = focus.object_distance(values, cases.truth)
    for i in range(len(cases)):
        weights = cases.truth.weights[i].abs().numpy()
        if not weights.any():
            assert torch.isnan(found[i])
            continue
        parts = [float(values[i][mask].sum()) for mask in cases.truth.objects[i]]
        total = float(values[i].sum())
        shares = [*(part / total for part in parts), 1 - sum(parts) / total]
        goal = [*(weights / weights.sum()), 0.0]
        assert float(found[i]) == pytest.approx(
            max(sum(max(a - b, 0) for a, b in zip(shares, goal, strict=True)), 0)
        )


def test_the_oracle_of_each_truth_is_perfect_and_others_are_not():
    task = verax.task("textbox/complex-cr1")
    model = task.network("wired")
    for truth, protocol in zip(truths.TRUTHS, PROTOCOLS, strict=True):
        cases = task.cases(n=2, truth=truth)
        best = verax.explain(model, cases.inputs, cases.targets, method="oracle", truth=cases.truth)
        table = verax.score(best, cases, protocol)
        assert list(table.columns[4:]) == metric_names(protocol)
        assert table["focus-share"].dropna().min() == pytest.approx(1)
        if truth == "shapley":
            assert table["object-distance"].dropna().max() == pytest.approx(0, abs=1e-6)
            flat = verax.score(torch.ones_like(best), cases, protocol)
            assert flat["object-distance/normalised"].dropna().abs().max() == pytest.approx(0, abs=1e-6)
    with pytest.raises(InvalidInput, match="truth='shapley'"):
        verax.score(best, task.cases(n=2), "sound:shapley")
    with pytest.raises(InvalidInput, match="weights"):
        focus.object_distance(torch.ones(1, 64, 64), task.cases(group=11, n=1).truth)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("truths")
    study = {
        "name": "truths",
        "tasks": ["textbox/complex-cr1", "textbox/complex-cr3"],
        "methods": ["gradient", "input-x-gradient", "occlusion", "grad-cam"],
        "protocols": PROTOCOLS,
        "networks": ["wired", "cnn4"],
        "samples": 2,
        "certify": 3,
    }
    return verax.run(study, out=folder / "run", store=folder / "store", quiet=True)


def test_a_study_scores_under_every_truth(run):
    for protocol in PROTOCOLS:
        board = run.leaderboard(protocol).set_index("method")
        assert board.loc["oracle", "value"] == pytest.approx(1)
        assert board.loc["input", "value"] < 1
    distance = run.leaderboard("sound:shapley", "object-distance").set_index("method")
    assert distance.loc["oracle", "value"] == pytest.approx(0, abs=1e-6)
    again = verax.run(
        run.manifest["study"], out=run.folder.parent / "2", store=run.folder.parent / "store", quiet=True
    )
    assert again.manifest["reused_units"] == len(again.manifest["units"])
    pd.testing.assert_frame_equal(again.scores, run.scores)


def test_ranks_stand_side_by_side(run):
    table = run.truths()
    assert set(table["truth"]) == set(movements.VIEWS)
    for truth, rows in table.groupby("truth"):
        protocol, metric = movements.VIEWS[truth]
        board = run.leaderboard(protocol, metric).dropna(subset="rank").set_index("method")
        assert rows.set_index("method")["value"].to_dict() == pytest.approx(board["value"].to_dict())
        assert rows.set_index("method")["rank"].sum() == 10
    pairs = run.truth_correlations()
    assert len(pairs) == 6
    for row in pairs.itertuples():
        a, b = (table[table["truth"] == name].set_index("method")["rank"] for name in (row.first, row.second))
        assert row.spearman == pytest.approx(stats.spearmanr(a, b[a.index]).statistic)
        assert row.kendall == pytest.approx(stats.kendalltau(a, b[a.index]).statistic)
        assert row.kendall_low <= row.kendall_high


def test_kendall_agrees_with_scipy_ties_included():
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 4, (20, 7)).astype(float), rng.integers(0, 4, (20, 7)).astype(float)
    wanted = [stats.kendalltau(x, y).statistic for x, y in zip(a, b, strict=True)]
    np.testing.assert_allclose(movements.kendall(a, b), wanted)


def test_tiers_stand_beside_scores_and_part_a_run(run):
    assert run.tiers == {"wired": 1, "cnn4": 2}
    assert set(run.leaderboard()["tier"]) == {2}  # a mean is as firm as the weakest of what it is made of
    built = run.of_tier(1)
    assert set(built.scores["network"]) == {"wired"}
    assert set(built.leaderboard()["tier"]) == {1}
    with pytest.raises(InvalidParameter, match="tier 1 and 2, not 3"):
        run.of_tier(3)


def test_a_tier_has_to_be_earned():
    assert tiers.tier("wired", "sound", None) == 1
    assert tiers.tier("wired", "published", None) == tiers.NONE
    assert tiers.tier("cnn4", "sound", True) == 2
    assert tiers.tier("cnn4", "sound", False) == tiers.tier("cnn4", "sound", None) == tiers.NONE
    assert tiers.weakest([1, 2]) == 2
    assert tiers.weakest([tiers.NONE, 3]) == tiers.NONE
    assert "not certified" in tiers.words(tiers.NONE)


def test_the_report_and_the_terminal_show_tiers_and_truths(run, capsys):
    from verax.cli import boards as shown

    page = run.report().read_text()
    assert 'id="truths"' in page
    assert 'id="tiers"' in page
    assert "tier 2, trained and certified" in page
    assert "wired; tier 1, constructed" in page
    assert "Kendall" in page
    shown.show(run)
    printed = capsys.readouterr().out
    assert "wired: tier 1, constructed" in printed
    assert "cnn4: tier 2, trained and certified" in printed
    assert "under each truth" in printed


def test_truths_are_small_things(run):
    assert "shapley" in repr(verax.task("textbox/simple-fr").cases(n=1, truth="shapley").truth)
    assert isinstance(verax.task("textbox/simple-fr").cases(n=1).truth, Truth)


def test_a_report_counts_all_networks_and_shows_the_truths_of_each_tier(run):
    text = run.report().read_text()
    whole = len(run.manifest["networks"])
    assert whole == sum(len(run.of_tier(tier).manifest["networks"]) for tier in (1, 2))
    tiles = dict(re.findall(r"<dt>([^<]*)</dt>\s*<dd>([^<]*)</dd>", text))
    assert tiles["networks"] == str(whole)
    truths = text.partition('id="truths"')[2].partition('id="identification"')[0]
    assert "tier 1, " in truths
    assert "tier 2, " in truths
