import json
import re
import shutil
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

import verax
from verax.cli.boards import show
from verax.errors import (
    Interrupted,
    InvalidInput,
    InvalidParameter,
    InvalidStudy,
    MethodFailed,
    MissingFile,
    OutputError,
    UnknownName,
    VeraxWarning,
)
from verax.methods import CONTROLS, METHODS
from verax.metrics.scoring import metric_names
from verax.networks import library
from verax.studies import leaderboards, plan, spec, statistics
from verax.studies.execution import Bench
from verax.studies.requests import described
from verax.studies.store import Result, Store

SMALL = {
    "name": "small",
    "tasks": ["textbox/simple-fr", "textbox/complex-cr4"],
    "methods": ["gradient"],
    "samples": 2,
    "certify": 2,
}


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def computed(monkeypatch):
    """Names of the units that are really computed."""
    names = []
    begin = Bench.begin

    def watched(self, unit, given=None):
        if given is None:
            names.append(unit.name)
        return begin(self, unit, given)

    monkeypatch.setattr(Bench, "begin", watched)
    return names


# -- a run from nothing ----------------------------------------------------------------------------------


def test_a_run_leaves_what_it_promises(tmp_path):
    run = verax.run(SMALL, quiet=True)
    assert run.folder.parent.name == "runs"
    columns = ["task", "network", "seed", "method", "protocol", "metric", "group", "sample", "value"]
    assert list(run.scores.columns[:9]) == columns
    assert not run.scores["value"].isna().any()
    assert set(run.scores["method"]) == {"gradient", *CONTROLS, "oracle"}
    # no object of these two settings is without a role, so this one is never defined
    wanted = {*metric_names("sound"), *metric_names("published")} - {"other-share/normalised"}
    assert set(run.scores["metric"]) == wanted
    # two images in each of the 12 and 10 buckets; focus scores only where there is something to focus on
    focus = run.scores.query("metric == 'focus-share' and method == 'gradient'")
    assert focus.groupby("task", observed=True).size().to_dict() == {
        "textbox/simple-fr": 2 * 6,
        "textbox/complex-cr4": 2 * 7,
    }
    background = run.scores.query("metric == 'background-share' and method == 'gradient'")
    assert len(background) == 2 * (12 + 10)
    manifest = json.loads((run.folder / "manifest.json").read_text())
    assert manifest["study"]["samples"] == 2
    assert {"versions", "hardware", "networks", "certificates", "units", "code"} <= set(manifest)
    assert all(certificate["passed"] for certificate in manifest["certificates"])
    assert len(manifest["networks"][0]["sha256"]) == 64
    assert all(unit["seconds"] > 0 for unit in manifest["units"])


def test_the_oracle_is_right_everywhere():
    run = verax.run(
        SMALL, quiet=True, tasks=[f"textbox/{s}" for s in ("simple-nr", "complex-fr", "complex-cr3")]
    )
    oracle = run.scores.query("method == 'oracle' and protocol == 'sound'")
    for metric, value in (("focus-share", 1), ("rank-accuracy", 1), ("iou", 1), ("pointing-game", 1)):
        for name in (metric, f"{metric}/normalised"):
            found = oracle.loc[oracle["metric"] == name, "value"]
            assert len(found)
            np.testing.assert_allclose(found, value, rtol=0, atol=1e-12)
    avoided = oracle.query("metric in ('avoid-share', 'other-share')").query("group in [11, 12]")
    assert (avoided["value"] == 0).all()
    shares = oracle[
        oracle["metric"].isin([f"{s}-share/normalised" for s in ("focus", "avoid", "background")])
    ]
    np.testing.assert_allclose(shares["value"], 1)


def test_the_predicted_class_is_explained_and_scores_equal_those_by_hand():
    run = verax.run(SMALL, quiet=True, tasks=["textbox/complex-cr4"])
    task = verax.task("textbox/complex-cr4")
    cases = task.cases(n=2)
    maps = verax.explain(task.network("cnn4"), cases.inputs, method="gradient")
    wide = verax.score(maps, cases, protocol="sound").set_index("sample")
    rows = run.scores.query("method == 'gradient' and protocol == 'sound'")
    assert len(rows) == wide[metric_names("sound")].notna().to_numpy().sum()
    for row in rows.itertuples():
        assert row.value == pytest.approx(wide.loc[row.sample, row.metric], abs=1e-5)


def test_more_samples_keep_the_ones_before():
    few = verax.run(SMALL, quiet=True, methods=["smoothgrad"]).scores
    many = verax.run(SMALL, quiet=True, methods=["smoothgrad"], samples=3).scores
    keys = ["task", "method", "protocol", "metric", "group", "sample"]
    both = few.merge(many, on=keys, how="left", suffixes=("", "_many"))
    np.testing.assert_allclose(both["value"], both["value_many"], atol=1e-4)


def test_other_seeds_give_other_images():
    one = verax.run(SMALL, quiet=True).scores.query("method == 'gradient'")
    two = verax.run(SMALL, quiet=True, seed=1).scores.query("method == 'gradient'")
    assert not np.allclose(one["value"].to_numpy()[:50], two["value"].to_numpy()[:50])


# -- rerunning -------------------------------------------------------------------------------------------


def test_rerunning_does_only_what_is_missing(computed):
    first = verax.run(SMALL, quiet=True)
    table = (first.folder / "scores.parquet").read_bytes()
    assert len(computed) == 2 * (1 + 1 + 5)
    computed.clear()
    again = verax.run(SMALL, quiet=True)
    assert computed == []
    assert again.folder == first.folder
    assert (again.folder / "scores.parquet").read_bytes() == table
    verax.run(SMALL, quiet=True, methods=["gradient", "input-x-gradient"], out="elsewhere")
    assert [name.partition(": ")[2] for name in computed] == ["input-x-gradient"] * 2


def test_an_interruption_keeps_what_is_finished(computed, monkeypatch):
    begin = Bench.begin

    def interrupted(self, unit, given):
        if len(computed) == 5:
            raise KeyboardInterrupt
        return begin(self, unit, given)

    monkeypatch.setattr(Bench, "begin", interrupted)
    with pytest.raises(Interrupted, match=r"5 of 14 units are finished.*same command"):
        verax.run(SMALL, quiet=True)
    done = list(computed)
    computed.clear()
    monkeypatch.setattr(Bench, "begin", begin)
    resumed = verax.run(SMALL, quiet=True, out="resumed")
    assert len(computed) == 9
    assert not set(computed) & set(done)
    whole = verax.run(SMALL, quiet=True, out="whole", store="fresh")
    assert (resumed.folder / "scores.parquet").read_bytes() == (whole.folder / "scores.parquet").read_bytes()


@pytest.mark.parametrize("harm", ["flip", "truncate", "missing part", "not json", "other key"])
def test_damaged_entries_are_computed_anew(harm, own_store, computed):
    clean = verax.run(SMALL, quiet=True)
    table = (clean.folder / "scores.parquet").read_bytes()
    entry = sorted((own_store / "units").rglob("*.json"))[3]
    part = sorted(entry.parent.glob(f"{entry.stem}.*.parquet"))[0]
    if harm == "flip":
        data = bytearray(part.read_bytes())
        data[len(data) // 2] ^= 4
        part.write_bytes(data)
    elif harm == "truncate":
        part.write_bytes(part.read_bytes()[:50])
    elif harm == "missing part":
        part.unlink()
    elif harm == "not json":
        entry.write_text("{")
    else:
        shutil.copy(sorted((own_store / "units").rglob("*.json"))[0], entry)
    computed.clear()
    again = verax.run(SMALL, quiet=True)
    assert len(computed) == 1
    assert again.manifest["damaged_entries"] == 1
    assert (again.folder / "scores.parquet").read_bytes() == table


def test_a_part_outside_the_store_is_not_read(tmp_path):
    store = Store(tmp_path / "s")
    store.write("ab" * 32, Result({"t": pd.DataFrame({"a": [1]})}, {}, {}))
    entry = next((tmp_path / "s").rglob("*.json"))
    content = json.loads(entry.read_text())
    content["parts"] = {"../../../../etc/hostname": "0"}
    entry.write_text(json.dumps(content))
    assert store.read("ab" * 32) is None
    assert store.damaged == ["ab" * 32]


def test_keys_know_what_matters_and_nothing_else(own_store):
    def keys(**changes):
        return [
            unit.key for unit in plan.compile_plan(spec.build({**SMALL, **changes}, "x"), own_store).units
        ]

    base = keys()
    assert keys() == base
    assert keys(name="other", description="words") == base
    for change in ({"seed": 1}, {"samples": 3}, {"methods": [{"name": "gradient", "label": "g"}]}):
        assert set(base) - set(keys(**change))
    assert len(set(base)) == len(base)
    ig = keys(methods=[{"name": "integrated-gradients", "steps": 5}])
    assert ig != keys(methods=[{"name": "integrated-gradients", "steps": 6}])


# -- own methods and failures ----------------------------------------------------------------------------


def test_methods_of_one_name_that_do_other_things_have_other_folders(tmp_path):
    def judged(function):
        verax.method("test-mine")(function)
        try:
            return plan.compile_plan(described(SMALL, methods=["test-mine"]), tmp_path).key
        finally:
            METHODS.unregister("test-mine")

    first = judged(lambda model, inputs, targets: inputs)
    assert judged(lambda model, inputs, targets: inputs) == first
    assert judged(lambda model, inputs, targets: 1 - inputs) != first


def test_own_methods_are_computed_anew_unless_they_have_a_version(computed):
    def mine(model, inputs, targets):
        return inputs**2

    try:
        for version, runs in ((None, 2), ("1", 1)):
            verax.method("test-mine", version=version)(mine)
            computed.clear()
            for _ in range(2):
                verax.run(SMALL, quiet=True, tasks=["textbox/simple-fr"], methods=["test-mine"])
            assert sum("test-mine" in name for name in computed) == runs
        run = verax.run(SMALL, quiet=True, tasks=["textbox/simple-fr"], methods=[mine, "gradient"])
        assert "mine" in set(run.scores["method"])
    finally:
        METHODS.unregister("test-mine")
        METHODS.unregister("mine")


def test_a_method_that_fails_does_not_stop_the_others():
    def broken(model, inputs, targets):
        raise ValueError("no idea")

    try:
        with pytest.warns(VeraxWarning, match="no idea"):
            run = verax.run(SMALL, quiet=True, methods=[broken, "gradient"])
        assert len(run.failures) == 2
        assert "2 failures" in repr(run)
        assert "gradient" in set(run.scores["method"])
        assert "broken" not in set(run.scores["method"])
        assert len(run.manifest["failures"]) == 2
        assert "no idea (test_studies.py:" in run.failures[0]["reason"]
        assert run.report().is_file()
    finally:
        METHODS.unregister("broken")


def test_a_method_that_refuses_a_network_does_not_stop_the_others():
    with pytest.warns(VeraxWarning, match="no attention"):
        run = verax.run(SMALL, quiet=True, methods=["attention-rollout", "gradient"])
    assert {failure["method"] for failure in run.failures} == {"attention-rollout"}
    assert "gradient" in set(run.scores["method"])


def test_intervals_stay_within_what_a_score_can_be():
    run = verax.run(SMALL, quiet=True, samples=2, methods=["gradient"])
    board = run.leaderboard(metric="background-share")
    assert board["low"].min() >= 0
    assert board["high"].max() <= 1


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf")])
def test_degenerate_maps_are_results(value):
    def flat(model, inputs, targets):
        return torch.full_like(inputs, value)

    try:
        with pytest.warns(VeraxWarning, match="flat: all 24 maps are constant or not finite"):
            run = verax.run(SMALL, quiet=True, tasks=["textbox/simple-fr"], methods=[flat])
        assert "flat: all 24 maps" in run.report().read_text()
        rows = run.scores.query("method == 'flat' and protocol == 'sound'")
        assert rows["degenerate"].all()
        chance = rows.query("metric == 'focus-share/normalised'")["value"]
        np.testing.assert_allclose(chance, 0, atol=1e-12)
        board = run.leaderboard().set_index("method")
        assert board.loc["flat", "degenerate"] == 12
        assert board.loc["flat", "value"] == pytest.approx(100 / 4096)
        published = run.scores.query("method == 'flat' and metric == 'pafl'")["value"]
        assert (published == 0).all()
    finally:
        METHODS.unregister("flat")


@pytest.fixture
def impostor(own_store):
    """A network of another setting, stored as if it belonged to complex-cr2 with seed 7."""
    task = verax.task("textbox/complex-cr2")
    source = library.find(verax.task("textbox/complex-cr1"), "cnn4", 0)
    target = own_store / "networks" / "textbox-complex-cr2_cnn4_seed7"
    target.parent.mkdir()
    for suffix in (".safetensors", ".json"):
        shutil.copy(source.with_suffix(suffix), target.with_suffix(suffix))
    forged = json.loads(target.with_suffix(".json").read_text()) | {"reasoning": str(task.reasoning)}
    target.with_suffix(".json").write_text(json.dumps(forged))
    return task


def test_wrong_predictions_have_no_truth(impostor):
    run = verax.run(SMALL, quiet=True, tasks=["textbox/complex-cr2"], seeds=[7])
    assert not run.manifest["certificates"][0]["passed"]
    wrong = {unit["wrong"] for unit in run.manifest["units"] if "wrong" in unit}
    assert len(wrong) == 1
    lost = wrong.pop()
    assert 0 < lost < 20
    rows = run.scores.query("method == 'input'")
    assert rows.query("protocol == 'sound'")["sample"].nunique() == 20 - lost
    assert rows.query("protocol == 'published'")["sample"].nunique() == 20
    assert run.report().is_file()


def test_own_tasks_can_be_studied(own_store):
    task = verax.TextBox("own/either", "box1 or box2 -> 1; otherwise -> 0")
    from verax.networks.training import Recipe, Trained, initialise

    raw = Trained(initialise("cnn3", 2, 0), task, "cnn3", 0, "own", Recipe(1, 1, 1, 1, False), 1, 0.0, None)
    raw.save()
    run = verax.run(SMALL, quiet=True, tasks=[task], networks=["cnn3@own"])
    assert run.families == {"own/either": "own"}
    assert not run.manifest["certificates"][0]["passed"]
    with pytest.raises(InvalidParameter, match="itself"):
        verax.run(SMALL, quiet=True, tasks=[verax.TextBox("textbox/simple-fr", "box1 -> 1; otherwise -> 0")])


# -- numbers ---------------------------------------------------------------------------------------------


def scores(means, n=40, seeds=(0,), noise=0.1):
    """Synthetic scores: method -> bucket means of one task."""
    generator = np.random.default_rng(0)
    rows = []
    for seed in seeds:
        shared = generator.normal(0, noise, (len(next(iter(means.values()))), n))
        for method, values in means.items():
            for group, mean in enumerate(values, 1):
                drawn = mean + shared[group - 1] + generator.normal(0, noise / 10, n)
                rows += [
                    ("t/a", "net", seed, method, "sound", "focus-share", group, k, v, False)
                    for k, v in enumerate(drawn)
                ]
    names = [
        "task",
        "network",
        "seed",
        "method",
        "protocol",
        "metric",
        "group",
        "sample",
        "value",
        "degenerate",
    ]
    return pd.DataFrame(rows, columns=names)


@pytest.mark.parametrize("seeds", [2, 5])
def test_few_training_seeds_are_no_excuse_for_narrow_intervals(seeds):
    """A bootstrap of n numbers has sqrt((n - 1) / n) of the standard error; of seeds as of images."""
    level = np.linspace(0.3, 0.6, seeds)
    table = pd.DataFrame(
        [
            {
                "task": "t",
                "network": "n",
                "seed": s,
                "method": "a",
                "group": 1,
                "sample": i,
                "value": level[s],
            }
            for s in range(seeds)
            for i in range(3)
        ]
    )
    drawn = statistics.bucket_means(table, ("a",), replicates=4000).replicates
    assert drawn.std() == pytest.approx(level.std(ddof=1) / seeds**0.5, rel=0.05)
    assert drawn.mean() == pytest.approx(level.mean(), abs=0.01)


def test_bucket_means_and_their_intervals():
    table = scores({"a": [0.2, 0.6], "b": [0.3, 0.5]})
    buckets = statistics.bucket_means(table, ("a", "b"))
    wanted = table.pivot_table(index="group", columns="method", values="value")
    np.testing.assert_allclose(buckets.point, wanted)
    # a mean of n numbers has standard error sd / sqrt(n)
    error = table.groupby(["group", "method"])["value"].sem().unstack()
    np.testing.assert_allclose(buckets.replicates.std(0), error, rtol=0.15)
    low, high = statistics.interval(buckets.replicates)
    np.testing.assert_allclose(high - low, 2 * 1.96 * error, rtol=0.15)
    # the draws are paired: the difference of two methods on the same samples is known far better
    difference = buckets.replicates[:, 0, 0] - buckets.replicates[:, 0, 1]
    assert difference.std() < 0.4 * buckets.replicates[:, 0, 0].std()


def test_the_bootstrap_knows_about_seeds():
    one, many = scores({"a": [0.5]}, n=200), []
    for seed, shift in enumerate((-0.2, 0.0, 0.2)):
        part = scores({"a": [0.5 + shift]}, n=200)
        many.append(part.assign(seed=seed))
    narrow = statistics.bucket_means(one, ("a",)).replicates.std()
    wide = statistics.bucket_means(pd.concat(many), ("a",)).replicates.std()
    assert wide > 5 * narrow
    assert wide == pytest.approx(0.2 / np.sqrt(3), rel=0.1)


def test_missing_scores_are_left_out_of_means():
    table = scores({"a": [0.2], "b": [0.4]}, n=10)
    table = table[~((table["method"] == "a") & (table["sample"] < 4))]
    buckets = statistics.bucket_means(table, ("a", "b"))
    assert buckets.count.tolist() == [[6, 10]]
    assert buckets.point[0, 0] == pytest.approx(table.query("method == 'a'")["value"].mean())


@pytest.mark.parametrize("words", [str, "category"])
def test_scores_are_laid_out_as_a_pivot_table_of_each_run(words):
    parts = [
        scores({"a": [0.2, 0.6], "b": [0.3, 0.5], "c": [0.1, 0.9]}, n=5).assign(network=network, seed=seed)
        for network, seed in (("z", 1), ("a", 0), ("z", 0))
    ]
    table = pd.concat(parts).sample(frac=0.8, random_state=0).astype({"method": words, "network": words})
    methods = ("c", "nobody", "a")
    found = statistics._tables(table, methods)
    wanted = [part for _, part in table.groupby(["network", "seed"], sort=False, observed=True)]
    assert len(found) == len(wanted) == 3
    for (groups, values), part in zip(found, wanted, strict=True):
        pivot = part.pivot(index=["group", "sample"], columns="method", values="value")
        np.testing.assert_array_equal(groups, pivot.index.get_level_values("group"))
        np.testing.assert_array_equal(values, pivot.reindex(columns=list(methods)).to_numpy())
        assert values.flags.f_contiguous  # sums depend on it in their last digits
    with pytest.raises(InvalidInput, match="two of one method"):
        statistics._tables(pd.concat([table, table[:1]]), methods)


def test_rows_without_a_name_are_damaged():
    table = scores({"a": [0.2, 0.6], "b": [0.3, 0.5]}, n=3).assign(network="z", seed=0)
    for column in ("network", "method"):
        with pytest.raises(InvalidInput, match="names no method or no network"):
            statistics._tables(table.assign(**{column: table[column].where(table.index > 0)}), ("a", "b"))


def test_leaderboard_skill_and_ranks():
    means = {
        "good": [0.9, 0.8],
        "bad": [0.3, 0.1],
        "input": [0.6, 0.4],
        "random": [0.1, 0.1],
        "oracle": [1.0, 1.0],
    }
    table = scores(means, noise=0.01)
    board = leaderboards.leaderboard(table, {"t/a": "simple"}).set_index("method")
    assert board.loc["good", "skill"] == pytest.approx((0.85 - 0.5) / 0.5, abs=0.02)
    assert board.loc["bad", "skill"] == pytest.approx((0.2 - 0.5) / 0.5, abs=0.02)
    assert (board["control"] == "input").all()
    assert board["rank"].dropna().to_dict() == {"good": 1, "bad": 2}
    assert board.loc["good", "worst"] == pytest.approx(0.8, abs=0.01)
    assert board.loc[["input", "oracle"], "skill"].isna().all()
    for name in ("value", "worst", "skill"):
        low, high = (f"{name}_low", f"{name}_high") if name != "value" else ("low", "high")
        kept = board[name].notna()
        assert (board[low] <= board[name] + 1e-9)[kept].all()
        assert (board[name] <= board[high] + 1e-9)[kept].all()
    with pytest.raises(InvalidParameter, match="did you mean 'simple'"):
        leaderboards.leaderboard(table, {"t/a": "simple"}, family="simpel")
    with pytest.raises(UnknownName, match="focus-share"):
        leaderboards.leaderboard(table, {"t/a": "simple"}, metric="focus-shar")
    with pytest.raises(UnknownName, match="belongs to the protocol 'published'"):
        leaderboards.leaderboard(table, {"t/a": "simple"}, metric="piou")
    with pytest.raises(UnknownName, match="did you mean 'sound'"):
        leaderboards.leaderboard(table, {"t/a": "simple"}, protocol="sond")


def test_success_map_counts_buckets_with_focus_and_avoid():
    focus = scores({"a": [0.9, 0.7, 0.3, 0.9]}, noise=0.01)
    avoid = scores({"a": [0.05, 0.1, 0.5]}, noise=0.01)
    table = pd.concat([focus, avoid.assign(metric="avoid-share")])
    row = leaderboards.success_map(table, protocol="sound").iloc[0]
    assert row["buckets"] == 3  # the fourth has nothing to avoid
    assert row["success"] == pytest.approx(2 / 3)
    assert row["failure"] == pytest.approx(1 / 3)
    assert row["success_low"] <= row["success"] <= row["success_high"]
    assert row["failure_low"] <= row["failure"] <= row["failure_high"]


def test_bucket_table():
    run = verax.run(SMALL, quiet=True, tasks=["textbox/complex-cr4"])
    table = run.buckets().query("method == 'input' and group == 11")
    assert table["scene"].item() == "box1 + box2 + A"
    rows = run.scores.query("method == 'input' and metric == 'focus-share' and group == 11")
    assert table["value"].item() == pytest.approx(rows["value"].mean())
    assert table["samples"].item() == 2


def test_figure_7_counts_the_buckets_of_the_paper():
    run = verax.run(
        SMALL, quiet=True, tasks=[n for n in verax.tasks.TASKS if n.startswith("textbox/")], samples=1
    )
    counted = run.success_map().groupby("task")["buckets"].first().to_dict()
    assert {name.removeprefix("textbox/"): n for name, n in counted.items()} == {
        "simple-fr": 5,
        "simple-nr": 6,
        "complex-fr": 2,
        "complex-cr1": 6,
        "complex-cr2": 6,
        "complex-cr3": 4,
        "complex-cr4": 4,
    }
    boards = {f: run.leaderboard("published", family=f)["buckets"][0] for f in ("simple", "complex")}
    assert boards == {"simple": 14, "complex": 37}
    second = {f: run.leaderboard("published", "safl", family=f)["buckets"][0] for f in ("simple", "complex")}
    assert second == {"simple": 16, "complex": 32}


# -- bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"tasks": ["textbox/nope"]}, UnknownName, "no task named"),
        ({"networks": ["cnn9"]}, UnknownName, "no network named"),
        ({"methods": ["gradiant"]}, UnknownName, "did you mean 'gradient'"),
        ({"methods": [{"name": "occlusion", "windw": 3}]}, InvalidParameter, "did you mean 'window'"),
        ({"methods": [{"window": 3}]}, InvalidStudy, "methods"),
        ({"methods": []}, InvalidStudy, "methods"),
        ({"methods": ["gradient", "gradient"]}, InvalidStudy, "twice"),
        ({"protocols": ["loud"]}, UnknownName, "no protocol"),
        ({"samples": 0}, InvalidStudy, "samples"),
        ({"samples": "many"}, InvalidStudy, "samples must be a whole number"),
        ({"samples": "10"}, InvalidStudy, "samples must be a whole number"),
        ({"methods": [{"name": "integrated-gradients", "steps": 0}]}, InvalidParameter, "from 1, not 0"),
        (
            {"methods": [{"name": "integrated-gradients", "steps": "many"}]},
            InvalidParameter,
            "a whole number",
        ),
        ({"methods": [{"name": "integrated-gradients", "rule": "simpson"}]}, InvalidParameter, "quadrature"),
        ({"methods": [{"name": "smoothgrad", "noise": float("nan")}]}, InvalidParameter, "must be a number"),
        ({"methods": [{"name": "IG", "baseline": float("nan")}]}, InvalidParameter, "'baseline'.*not nan"),
        ({"methods": [{"name": "gradient", "label": "oracle"}]}, InvalidStudy, "belongs to a reference"),
        ({"seed": -1}, InvalidStudy, "seed"),
        ({"seeds": [4]}, MissingFile, "verax train"),
        ({"name": "../evil"}, InvalidStudy, "name"),
        ({"taks": []}, InvalidStudy, r"did you mean 'tasks'\?$"),
        ({"protocols": ["exact"]}, InvalidStudy, "not the value of every element"),
        ({"tasks": ["shapes"], "protocols": ["sound:shapley"]}, InvalidStudy, "knows the truth 'exact' only"),
        ({"samples": 10**9}, InvalidStudy, r"samples must be at most 100000\.$"),
        ({"seed": 2**63}, InvalidStudy, r"seed must be below 9223372036854775808\.$"),
        ({"renderer": "blender"}, UnknownName, "renderer"),
        ({"background": "pink"}, InvalidParameter, "background"),
    ],
)
def test_bad_studies(change, error, words, tmp_path):
    with pytest.raises(error, match=words) as caught:
        verax.run({**SMALL, **change}, quiet=True)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "runs").exists()


def test_study_files(tmp_path):
    file = tmp_path / "my.toml"
    file.write_text(
        'name = "mine"\ntasks = ["textbox/simple-nr"]\nmethods = ["input-x-gradient"]\nsamples = 1'
    )
    run = verax.run(str(file), quiet=True)
    assert run.manifest["study"]["name"] == "mine"
    file.write_text("name = ")
    with pytest.raises(InvalidStudy, match="not valid TOML"):
        verax.run(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidStudy, match="not valid TOML"):
        verax.run(file)
    with pytest.raises(MissingFile, match="cannot be read"):
        verax.run("nothing.toml")
    with pytest.raises(UnknownName, match="did you mean 'smerf-quick'"):
        verax.run("smerf-quik")


def test_presets_are_valid(own_store):
    assert "smerf-quick" in spec.presets()
    for name in spec.presets():
        study = spec.study(name)
        try:
            found = plan.compile_plan(study, own_store)
        except MissingFile as error:  # networks that are trained, not shipped
            assert "verax train" in str(error)
            if study.missing == "train":  # it trains them itself; tests of its own check the rest
                continue
            study = spec.study(name, networks=["cnn4"], seeds=[0], background="black", renderer="sound")
            found = plan.compile_plan(study, own_store)
        assert found.units


def test_missing_keys_are_named():
    with pytest.raises(InvalidStudy, match=r"'name' is missing; did you mean 'name' where it says 'nme'"):
        spec.study({"nme": "x", "tasks": ["textbox/simple-fr"], "methods": ["gradient"]})
    given = spec.study({"name": "x", "methods": ["gradient"]}, tasks=["textbox/simple-fr"])
    assert given.tasks == ["textbox/simple-fr"]


def test_places_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="Cannot write"):
        verax.run(SMALL, quiet=True, out=tmp_path / "file" / "run")
    with pytest.raises(OutputError, match="Cannot write"):
        verax.run(SMALL, quiet=True, store=tmp_path / "file")


def test_nothing_to_show_is_an_error():
    def broken(model, inputs, targets):
        raise ValueError("no idea")

    try:
        with pytest.raises(MethodFailed):
            verax.explain(verax.task("textbox/simple-fr").network(), torch.rand(1, 3, 64, 64), method=broken)
    finally:
        METHODS.unregister("broken")


def test_folders_that_are_no_runs(tmp_path):
    with pytest.raises(MissingFile, match="not a run"):
        verax.Run(tmp_path)
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(MissingFile, match="damaged"):
        repr(verax.Run(tmp_path))


def test_a_method_that_failed_somewhere_has_no_rank_and_costs_nobody_a_bucket():
    means = {"good": [0.9, 0.8], "half": [0.7, 0.7], "input": [0.5, 0.5], "oracle": [1.0, 1.0]}
    table = scores(means, noise=0.01)
    cut = table[~((table["method"] == "half") & (table["group"] == 2))]
    board = leaderboards.leaderboard(cut, {"t/a": "simple"}).set_index("method")
    whole = leaderboards.leaderboard(table, {"t/a": "simple"}).set_index("method")
    for column in ("value", "low", "high", "worst", "skill", "buckets", "samples"):
        assert board.loc["good", column] == pytest.approx(whole.loc["good", column], rel=1e-12)
    assert board["rank"].dropna().to_dict() == {"good": 1}
    assert np.isnan(board.loc["half", "value"])
    nobody = cut[~((cut["method"] != "half") & (cut["group"] == 1))]
    with pytest.raises(InvalidInput, match="every bucket"):
        leaderboards.leaderboard(nobody, {"t/a": "simple"})


def test_two_metrics_of_the_same_samples_share_their_draws():
    table = scores({"a": [0.5, 0.6]})
    one = statistics.bucket_means(table, ("a",))
    two = statistics.bucket_means(table.assign(value=1 - table["value"]), ("a",))
    np.testing.assert_allclose(one.replicates, 1 - two.replicates)
    part = statistics.bucket_means(table[table["group"] == 2], ("a",))
    np.testing.assert_array_equal(part.replicates[:, 0], one.replicates[:, 1])


# -- manners: what other people's code must not do to the results ------------------------------------------


def test_a_method_that_changes_the_network_changes_nothing_else(own_store):
    clean = (
        verax.run(SMALL, quiet=True, store="clean").scores.query("method == 'gradient'")["value"].to_numpy()
    )

    def vandal(model, inputs, targets):
        for module in model.modules():
            if isinstance(module, torch.nn.ReLU):
                module.register_full_backward_hook(lambda m, gi, go: (gi[0].clamp(min=0),))
        with torch.no_grad():
            for weight in model.parameters():
                weight.zero_()
        return inputs

    try:
        run = verax.run(SMALL, quiet=True, methods=[vandal, "gradient"], out="both")
        after = run.scores.query("method == 'gradient'")["value"].to_numpy()
        np.testing.assert_array_equal(after, clean)
    finally:
        METHODS.unregister("vandal")


def test_only_references_see_the_truth():
    with pytest.raises(InvalidParameter, match="asks for the truth"):
        verax.method("cheat")(lambda model, inputs, targets, truth: truth.focus)


def test_parameters_may_have_any_name_and_any_default():
    ones = torch.ones(2)

    def odd(model, inputs, targets=None, seed=3, kernel=ones):
        return inputs * seed

    try:
        run = verax.run(SMALL, quiet=True, tasks=["textbox/simple-fr"], methods=[odd])
        assert "odd" in set(run.scores["method"])
    finally:
        METHODS.unregister("odd")


def test_controls_keep_their_names():
    for entry in ({"name": "input", "label": "highlight"}, {"name": "oracle", "label": "truth"}):
        with pytest.raises(InvalidStudy, match="under its own name"):
            verax.run(SMALL, quiet=True, methods=[entry])


def test_other_peoples_folders_are_left_alone(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "report.html").write_text("mine")
    with pytest.raises(OutputError, match="holds other things"):
        verax.run(SMALL, quiet=True, out="mine")
    assert (tmp_path / "mine" / "report.html").read_text() == "mine"


def test_a_changed_certificate_in_the_store_is_noticed(own_store, computed):
    verax.run(SMALL, quiet=True)
    for entry in (own_store / "units").rglob("*.json"):
        content = json.loads(entry.read_text())
        if "certificate" in content["info"]:
            content["info"]["certificate"]["passed"] = "forged"
            entry.write_text(json.dumps(content))
            break
    computed.clear()
    run = verax.run(SMALL, quiet=True)
    assert len(computed) == 1
    assert run.manifest["damaged_entries"] == 1


def test_an_entry_without_one_of_its_parts_is_computed_anew(own_store, computed):
    table = (verax.run(SMALL, quiet=True).folder / "scores.parquet").read_bytes()
    store = Store(own_store)
    for entry in sorted((own_store / "units").rglob("*.json")):
        result = store.read(entry.stem)
        if "published" in result.tables:
            del result.tables["published"]  # a valid entry, checksum included, that lacks a protocol
            store.write(entry.stem, result)
            break
    computed.clear()
    again = verax.run(SMALL, quiet=True)
    assert len(computed) == 1
    assert (again.folder / "scores.parquet").read_bytes() == table


def test_repeated_seeds_add_no_certainty():
    one = scores({"a": [0.5, 0.6]}, n=20)
    many = pd.concat([one.assign(seed=k) for k in range(8)])
    widths = [
        np.ptp(np.quantile(statistics.bucket_means(t, ("a",)).replicates.mean(1), [0.025, 0.975]))
        for t in (one, many)
    ]
    assert widths[1] == pytest.approx(widths[0], rel=1e-9)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_one_sample_has_no_interval(capsys):
    run = verax.run(SMALL, quiet=True, samples=1, methods=["gradient", "input-x-gradient"])
    board = run.leaderboard()
    assert board["low"].isna().all()
    show(run)
    page = re.sub(r"<script>.*?</script>", "", run.report().read_text(encoding="utf-8"), flags=re.S)
    texts = capsys.readouterr().out, page
    assert "input-x-gradient" in texts[0]
    assert not any("nan" in re.findall(r"\w+", text.lower()) for text in texts)
    assert "too few for an interval" in texts[1]


def test_intervals_leave_out_what_is_undefined():
    drawn = np.array([[1.0, np.nan, np.nan], [3.0, np.nan, 2.0]])
    with warnings.catch_warnings(action="error"):
        low, high = statistics.interval(drawn)
    np.testing.assert_allclose(low, [1.05, np.nan, 2.0])
    np.testing.assert_allclose(high, [2.95, np.nan, 2.0])


def test_the_class_that_the_network_predicts_is_explained(impostor):
    run = verax.run(SMALL, quiet=True, tasks=["textbox/complex-cr2"], seeds=[7])
    cases, model = impostor.cases(n=2), impostor.network("cnn4", seed=7)
    maps = verax.explain(model, cases.inputs, method="gradient")
    wanted = verax.score(maps, cases, "published", transfer="gray").set_index("sample")["pafl"]
    rows = run.scores.query("method == 'gradient' and metric == 'pafl'").set_index("sample")["value"]
    np.testing.assert_allclose(rows, wanted[rows.index], atol=1e-5)


def test_other_weights_and_parameters_have_other_keys(own_store, impostor):
    def keys(**changes):
        given = {**SMALL, "tasks": ["textbox/complex-cr2"], **changes}
        return {unit.key for unit in plan.compile_plan(spec.build(given, "x"), own_store).units}

    assert not keys() & keys(seeds=[7])
    one = [{"name": "integrated-gradients", "label": "same", "steps": 5}]
    two = [{"name": "integrated-gradients", "label": "same", "steps": 6}]
    assert len(keys(methods=one) - keys(methods=two)) == 1


def test_an_option_of_run_that_is_misspelt_gets_the_nearest():
    with pytest.raises(InvalidParameter, match=r"verax.run has no option 'method'; did you mean 'methods'\?"):
        verax.run("smerf-quick", method=["gradient"])
    with pytest.raises(InvalidParameter, match="no option 'nonsense', nor is an executor"):
        verax.run("smerf-quick", nonsense=1)


def test_a_method_without_any_numbers_is_said_to_tell_nothing(tmp_path):
    def nothing(model, inputs, targets):
        return torch.full_like(inputs, torch.nan)

    where = {"out": tmp_path / "run", "store": tmp_path / "store", "tasks": ["textbox/simple-fr"]}
    with pytest.warns(VeraxWarning, match="nothing: all 24 maps are constant or not finite"):
        done = verax.run("smerf-quick", methods=[nothing], samples=2, certify=0, quiet=True, **where)
    assert "all maps of nothing are constant or hold no numbers" in done.report().read_text()


def test_intervals_count_only_the_scores_that_are_defined():
    values = np.full(20, np.nan)
    values[:5] = [0.1, 0.9, 0.3, 0.7, 0.5]
    about = {"task": "t", "network": "n", "seed": 0, "method": "m", "group": 1, "sample": np.arange(20)}
    table = pd.DataFrame({**about, "value": values})
    found = statistics.bucket_means(table, ("m",), replicates=20_000)
    alone = statistics.bucket_means(table.head(5), ("m",), replicates=20_000)
    assert found.count[0, 0] == 5
    # the number of defined scores in a draw varies: by sqrt(5 E[1 / K]), K of Binomial(20, 1 / 4), about 1.13
    ratio = np.nanstd(found.replicates) / np.nanstd(alone.replicates)
    assert 1.09 < ratio < 1.18


def test_published_controls_have_no_rank_either():
    from verax.studies.leaderboards import UNRANKED

    assert {"edge", "edge@published", "random", "oracle"} <= set(UNRANKED)
    assert "gradient@published" not in UNRANKED


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"networks": [torch.nn.Linear(2, 2)]},
            'not a Linear: .* @verax.network\\("mine"\\) .* verax.explain',
        ),
        ({"networks": torch.nn.Linear(2, 2)}, "Networks of a study are names, not a Linear"),
        ({"methods": [("gradient", {"a": 1})]}, "a table such as .*, not \\('gradient', {'a': 1}\\)"),
        ({"methods": [3]}, "Methods are names, functions or tables"),
    ],
)
def test_what_belongs_elsewhere_is_told_where(changes, words):
    with pytest.raises(InvalidParameter, match=words):
        verax.run(SMALL, quiet=True, **changes)


def test_one_name_is_a_list_of_one():
    chosen = described("smerf-quick", networks="wired", seeds=1, protocols="sound", methods="gradient")
    assert (chosen.networks, chosen.seeds, chosen.protocols) == (["wired"], [1], ["sound"])
