"""Metrics of one's own: scored beside ours where they are named, and honest about what they are."""

import itertools
import json
import sys

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import verax
from verax.cli.main import app
from verax.errors import InvalidInput, InvalidParameter, MetricFailed
from verax.metrics import METRICS
from verax.metrics.own import described
from verax.metrics.scoring import metric_names

STUDY = {
    "name": "own",
    "tasks": ["textbox/simple-fr"],
    "networks": ["wired"],
    "methods": ["gradient"],
    "protocols": ["sound"],
    "samples": 2,
    "certify": 0,
}


def ground_share(maps, truth):
    """Share of a map on no object."""
    assert maps.dtype == torch.float64
    total = maps.sum((1, 2))
    share = (maps * ~truth.objects.any(1)).sum((1, 2)) / total.clamp(min=1e-300)
    return torch.where(total > 0, share, (~truth.objects.any(1)).double().mean((1, 2)))


@pytest.fixture
def ground():
    verax.metric("ground", higher_is_better=False, bounds=(0, 1))(ground_share)
    yield "ground"
    METRICS.unregister("ground")


@pytest.fixture(scope="module")
def scored():
    task = verax.task("textbox/simple-fr")
    cases = task.cases(n=2)
    return verax.explain(task.network("wired"), cases.inputs, cases.targets), cases


def run(**changes):
    return verax.run(STUDY, quiet=True, device="cpu", **changes)


def test_a_metric_of_ones_own_is_scored_beside_ours(ground, scored):
    maps, cases = scored
    table = verax.score(maps, cases, metrics=["ground"])
    assert list(table.columns[-1:]) == ["ground"]
    # it is the built-in background share, written again
    np.testing.assert_allclose(table["ground"], table["background-share"])
    assert "ground" not in verax.score(maps, cases)
    assert "ground" not in metric_names("sound")


def test_wrong_predictions_have_no_score_and_degenerate_maps_have_one(ground, scored):
    maps, cases = scored
    maps = maps.clone()
    maps[0] = torch.nan
    wrong = cases.targets.clone()
    wrong[1] = 1 - wrong[1]
    table = verax.score(maps, cases, metrics=["ground"], predictions=wrong)
    assert table["degenerate"][0]
    np.testing.assert_allclose(table["ground"][0], table["background-share"][0])
    assert np.isnan(table["ground"][1])


def test_it_is_ranked_in_its_own_direction(ground):
    done = run(metrics=["ground"])
    board = done.leaderboard(metric="ground").set_index("method")
    ours = done.leaderboard(metric="background-share").set_index("method")
    assert (board["value"] - ours["value"]).abs().max() < 1e-12  # it is that metric, written again
    assert list(board.index) == list(ours.index)
    assert board["value"].is_monotonic_increasing  # less is better, and stands first
    assert done.metrics["ground"].bounds == (0, 1)
    # another process opens the run and has never heard of the metric
    METRICS.unregister("ground")
    later = verax.Run(done.folder)
    assert later.leaderboard(metric="ground").equals(done.leaderboard(metric="ground"))
    assert not later.metrics["ground"].higher_is_better
    page = later.report().read_text()
    assert '<section id="own">' in page
    assert "lower is better" in page
    assert "own-ground-sound" in page


def test_runs_say_themselves_what_an_own_metric_means(ground, tmp_path):
    both = [
        run(metrics=["ground"], methods=["gradient", "input-x-gradient"], seed=0, out=tmp_path / name)
        for name in "ab"
    ]
    METRICS.unregister("ground")  # as in a process that has never heard of it
    words = [str(done.folder) for done in both]
    shown = {}
    for command in ("compare", "leaderboard"):
        done = CliRunner().invoke(app, [command, *words, "--metric", "ground", "--json"])
        assert done.exit_code == 0, done.output
        shown[command] = json.loads(done.stdout)
        assert shown[command]["higher_is_better"] is False
    ranked = [row for row in shown["leaderboard"]["rows"] if row["rank"] is not None and row["task"] == "all"]
    ours = both[0].leaderboard(metric="ground").dropna(subset="rank")
    assert [row["method"] for row in ranked] == ours["method"].tolist()
    assert ranked[0]["value"] < ranked[-1]["value"]
    path = both[0].folder / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["created"], manifest["metrics"][0]["higher_is_better"] = "2000-01-01", True
    path.write_text(json.dumps(manifest))
    with pytest.raises(InvalidInput, match="different metrics under the name 'ground'"):
        verax.compare(*words, metric="ground")
    done = CliRunner().invoke(app, ["leaderboard", *words, "--metric", "ground", "--json"])
    assert [entry["reason"] for entry in json.loads(done.stdout)["left_out"]] == [
        "Its metric 'ground' is not that of b, which is newer."
    ]


def test_scores_are_reused_only_where_a_version_says_so(ground):
    first = run(metrics=["ground"]).manifest
    assert first["reused_units"] == 0
    assert run(metrics=["ground"]).manifest["reused_units"] == 0
    assert run().manifest["reused_units"] == 0  # the first run without it
    assert run().manifest["reused_units"] == first["total_units"]
    verax.metric("ground", higher_is_better=False, bounds=(0, 1), version="1")(ground_share)
    assert run(metrics=["ground"]).manifest["reused_units"] == 0
    assert run(metrics=["ground"]).manifest["reused_units"] == first["total_units"]
    verax.metric("ground", higher_is_better=False, bounds=(0, 1), version="2")(ground_share)
    assert run(metrics=["ground"]).manifest["reused_units"] == 0


def test_workers_and_this_process_agree(ground):
    here = run(metrics=["ground"], executor="inline")
    there = run(metrics=["ground"], executor="processes", workers=2)
    assert there.scores.equals(here.scores)
    METRICS.unregister("ground")
    verax.metric("ground", higher_is_better=False, bounds=(0, 1))(lambda m, t: ground_share(m, t))
    stays = run(metrics=["ground"], executor="processes", workers=2)  # a lambda cannot travel
    assert stays.scores.equals(here.scores)


def test_a_metric_can_be_handed_over_as_it_is(scored):
    maps, cases = scored
    made = described("handed", ground_share, higher_is_better=False, bounds=(0, 1))
    assert "handed" in verax.score(maps, cases, metrics=[made])
    try:
        assert "handed" in set(run(metrics=[made]).scores["metric"])
    finally:
        METRICS.unregister("handed")


def test_each_protocol_hands_out_its_own_maps(scored):
    maps, cases = scored
    seen = {}

    def look(values, truth):
        seen[tuple(values.shape[1:])] = values
        return values.flatten(1).amax(1)

    made = described("look", look, higher_is_better=True, bounds=(-np.inf, np.inf), protocol="published")
    verax.score(maps, cases, "published", metrics=[made])
    assert float(seen[64, 64].max()) <= 1  # pictures, not attributions
    with pytest.raises(InvalidParameter, match="reads maps of the protocol 'published', which is not asked"):
        verax.score(maps, cases, "sound", metrics=[made])


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda m, t: 1 / 0, "'bad' failed with ZeroDivisionError: division by zero"),
        (lambda m, t: sys.exit(3), r"'bad' failed with SystemExit: 3 \(test_own_metrics.py:\d+\)"),
        (lambda m, t: m.sum(), "one number for each of 12 maps, not shape"),
        (lambda m, t: 3, "one number for each of 12 maps, not int"),
        (lambda m, t: torch.full((len(m),), 2.0), "gave 2, outside its bounds 0 to 1"),
    ],
)
def test_a_faulty_metric_is_found_before_the_work(function, words):
    made = described("bad", function, higher_is_better=True, bounds=(0, 1))
    try:
        with pytest.raises(MetricFailed, match=words):
            run(metrics=[made])
    finally:
        METRICS.unregister("bad")


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"higher_is_better": "yes"}, "is true or false, not 'yes'"),
        ({"bounds": (1, 0)}, "two rising numbers"),
        ({"bounds": 3}, "are two numbers, not 3"),
        ({"protocol": "faithfulness"}, "reads maps of sound, published, exact, not of 'faithfulness'"),
        ({"name": "focus-share"}, "a metric of verax itself"),
        ({"function": lambda maps: maps}, r"must be callable as \(maps, truth\)"),
    ],
)
def test_what_a_metric_says_of_itself_is_checked(facts, words):
    usual = {"name": "x", "higher_is_better": True, "bounds": (0, 1), "function": ground_share}
    asked = {**usual, **facts}
    function = asked.pop("function")
    with pytest.raises(InvalidParameter, match=words):
        verax.metric(asked.pop("name"), **asked)(function)


def test_built_in_metrics_are_not_named(scored):
    maps, cases = scored
    with pytest.raises(InvalidParameter, match="always scored under its protocol 'sound'"):
        verax.score(maps, cases, metrics=["iou"])
    with pytest.raises(InvalidParameter, match="Metrics are named, or made by"):
        verax.score(maps, cases, metrics=[ground_share])


def test_own_networks_without_a_version_are_not_reused():
    from torch import nn

    from verax.networks import NETWORKS
    from verax.networks.recipes import Recipe

    short = Recipe(rate=1e-3, batch=16, epochs=1, scenes=4, cycle=False)
    asked = {"networks": ["flat@own"], "executor": "processes", "workers": 2}  # only this process knows it
    task = verax.task("textbox/simple-fr")

    def flat(classes=2):
        return nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(3 * 64, classes))

    try:
        verax.network("flat")(flat)
        verax.train(task, "flat", recipe=short, device="cpu", quiet=True).save()
        first = run(**asked)
        assert first.failures == []
        assert run(**asked).manifest["reused_units"] == 0
        verax.network("flat", version="1")(flat)
        again = run(**asked)
        assert run(**asked).manifest["reused_units"] == again.manifest["total_units"]
        assert again.scores.equals(first.scores)
    finally:
        NETWORKS.unregister("flat")


def test_tiers_are_never_averaged(ground, capsys, monkeypatch):
    from verax.cli import boards
    from verax.studies import exports

    done = run(metrics=["ground"], networks=["cnn4", "wired"], certify=5, protocols=["sound", "faithfulness"])
    values = {
        tier: dict(zip(board["method"], board["value"], strict=True))["gradient"]
        for tier, protocol, metric, board in exports.boards(done)
        if metric == "ground"
    }
    apart = {tier: part.leaderboard(metric="ground").set_index("method") for tier, part in done.by_tier()}
    assert values == {tier: board["value"]["gradient"] for tier, board in apart.items()}
    assert set(values) == {1, 2}
    monkeypatch.setattr(boards.console, "width", 200)
    boards.show(done)
    shown = capsys.readouterr().out
    for name in ("ground (sound protocol", "(faithfulness)"):
        titles = [line for before, line in itertools.pairwise(shown.splitlines()) if name in before]
        assert [line.strip() for line in titles] == [
            "cnn4: tier 2, trained and certified",
            "wired: tier 1, constructed",
        ]
    page = done.report().read_text()
    assert "own-ground-sound-tier-1" in page
    assert "own-ground-sound-tier-2" in page
    numbers = exports._numbers(done)
    assert numbers["tier-1/sound/ground/gradient/mean"] == values[1]
    assert numbers["tier-2/sound/ground/gradient/mean"] == values[2]


def test_intervals_stay_inside_the_bounds_of_a_metric_that_is_not_registered_here():
    verax.metric("rare", higher_is_better=True, bounds=(0, 1))(
        lambda maps, truth: (torch.arange(len(maps)) % 2).double()
    )
    try:
        done = run(metrics=["rare"])
    finally:
        METRICS.unregister("rare")
    later = verax.Run(done.folder)
    for table in (later.leaderboard(metric="rare"), later.buckets(metric="rare")):
        assert table["low"].min() >= 0
        assert table["high"].max() <= 1
