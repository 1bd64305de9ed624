"""Every explainer on the known function itself: what is exact for sums of one-cell functions is exact here.

The numbers are those that a network can at best reach, since it is the truth that is explained.
"""

import os
from pathlib import Path

import pytest
import torch

import verax
from verax.errors import InvalidInput, InvalidParameter
from verax.metrics.agreement import pearson
from verax.metrics.superpixels import agreement_of_patches, patch_sums

FUNCTIONS = 20
EXTRACT = Path(os.environ.get("VERAX_DATA", "")) / "climate" / "cobe2_10deg_points_1950_2019.npz"
FIELDS = [
    "climate/analytic",
    pytest.param(
        "climate/cobe-sst2",
        marks=pytest.mark.skipif(not EXTRACT.is_file(), reason="VERAX_DATA holds no extract of COBE-SST2"),
    ),
]
EXACT = {
    "integrated-gradients": {"steps": 512},
    "occlusion": {},
    "feature-ablation": {},
    "exact-additive": {},
    "deeplift-rescale": {},
    "deeplift-reveal-cancel": {},
    "deep-shap": {"references": 1, "noise": 0.0},
}


def agreement(task, cases, method, **settings):
    model = task.function.module()
    maps = verax.explain(model, cases.inputs, cases.targets, method=method, ids=cases.ids, **settings)
    return pearson(maps, cases.truth.values)


@pytest.mark.parametrize("field", FIELDS)
def test_what_is_exact_for_sums_is_exact(field):
    task = verax.task(field, function=6)
    cases = task.cases(n=20)
    for method, settings in EXACT.items():
        found = agreement(task, cases, method, **settings)
        assert found.min() >= 0.9999, method
    for method in ("kernel-shap", "shapley-sampling"):
        few = {"permutations": 1} if method == "shapley-sampling" else {}
        assert agreement(task, cases[:3], method, **few).min() >= 0.9999, method


@pytest.mark.parametrize("field", FIELDS)
def test_local_methods_fall_short_by_the_known_amount(field):
    """Input times gradient 0.72 on average over functions (0.64 .. 0.79), the gradient itself near 0."""
    times, plain = [], []
    for seed in range(FUNCTIONS):
        task = verax.task(field, function=seed)
        cases = task.cases(n=20)
        times.append(float(agreement(task, cases, "input-x-gradient").mean()))
        plain.append(float(agreement(task, cases, "gradient").mean()))
    assert abs(sum(times) / FUNCTIONS - 0.72) < 0.1
    assert 0.5 < min(times) < max(times) < 0.9
    assert abs(sum(plain) / FUNCTIONS) < 0.15
    assert max(map(abs, plain)) < 0.4


@pytest.mark.parametrize("baseline", ["zero", 0.5, "sample:3"])
def test_the_truth_follows_the_baseline(baseline):
    task = verax.task("climate/analytic", function=2, baseline=baseline)
    cases = task.cases(n=10)
    for method, settings in EXACT.items():
        found = agreement(task, cases, method, baseline=task.reference, **settings)
        assert found.min() >= 0.9999, method
    if baseline != "zero":  # a method that is told another baseline answers another question
        assert agreement(task, cases, "occlusion").max() < 0.99


def test_a_linear_function_is_solved_by_input_times_gradient():
    task = verax.task("climate/analytic", function=1, breaks=0)
    assert agreement(task, task.cases(n=5), "input-x-gradient").min() > 0.999999


# -- superpixels -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", range(1, 9))
def test_patches_of_the_known_function(size):
    """Hiding patches, playing with them, and adding up single cells: one truth, the sum of its cells."""
    task = verax.task("climate/analytic", function=4)
    cases, patches = task.cases(n=4), task.grid.patches(size)
    model = task.function.module()
    truth = patch_sums(task.function.values(cases.inputs), patches)
    assert truth.shape == (4, int(patches.max()) + 1)
    for method, settings in (
        ("feature-ablation", {"segments": patches}),
        ("exact-additive", {"segments": patches}),
        ("occlusion", {}),
        *([("kernel-shap", {"segments": patches})] if size > 2 else []),
    ):
        maps = verax.explain(model, cases.inputs, cases.targets, method=method, **settings)
        torch.testing.assert_close(patch_sums(maps, patches), truth, rtol=1e-3, atol=1e-6)
        found = agreement_of_patches(maps, cases.truth.values, patches)
        assert found["pearson"].min() >= 0.9999, method


def test_a_task_of_patches_compares_patches_and_no_land():
    plain, task = (verax.task("climate/analytic", function=4, **more) for more in ({}, {"patches": 5}))
    cases = task.cases(n=6)
    assert torch.equal(cases.inputs, plain.cases(n=6).inputs)
    assert cases.truth.patches.shape == cases.inputs.shape
    maps = verax.explain(task.function.module(), cases.inputs, cases.targets, method="input-x-gradient")
    table = verax.score(maps, cases, "exact")
    sums = {name: patch_sums(x, task.segments) for name, x in (("map", maps), ("truth", cases.truth.values))}
    for row in range(6):
        both = torch.stack([sums["map"][row], sums["truth"][row]])
        assert table["pearson"][row] == pytest.approx(float(torch.corrcoef(both)[0, 1]), abs=1e-9)
    inside = task.grid.rows >= 5  # patches that hold a cell of the polar row are left out altogether
    kept = torch.unique(task.segments[inside], return_inverse=True)[1]
    core = agreement_of_patches(maps[:, inside], cases.truth.values[:, inside], kept)
    assert table["pearson/core"].tolist() == pytest.approx(core["pearson"].tolist(), abs=1e-9)
    # single cells have another score, and the same network
    assert not (table["pearson"] == verax.score(maps, plain.cases(n=6), "exact")["pearson"]).any()
    assert task.curriculum() == plain.curriculum()
    assert task.fingerprint() != plain.fingerprint()
    assert task.name == "climate/analytic?function=4&patches=5"


def test_patches_that_all_touch_a_pole_leave_no_core():
    cases = verax.task("climate/analytic", patches=18).cases(n=3)
    table = verax.score(cases.truth.values, cases, "exact")
    assert table["mass"].notna().all()
    assert table[[name for name in table if name.endswith("/core")]].isna().all(axis=None)


def test_the_oracle_and_a_shared_map_are_perfect_on_patches():
    task = verax.task("climate/analytic?patches=4")
    cases = task.cases(n=3)
    shared = patch_sums(cases.truth.values, task.segments) / torch.bincount(task.segments)
    for maps in (cases.truth.values, shared[:, task.segments]):
        assert verax.score(maps, cases, "exact")["pearson"].min() > 0.999999


@pytest.mark.parametrize(
    ("patches", "words"),
    [
        (torch.zeros(4), "whole numbers"),
        (torch.zeros(5, dtype=torch.int64), "do not fit maps of 4 cells"),
        (torch.tensor([0, 2, 2, 3]), "without a gap"),
        (torch.tensor([-1, 0, 1, 2]), "without a gap"),
    ],
)
def test_bad_patches_are_refused(patches, words):
    with pytest.raises(InvalidInput, match=words):
        patch_sums(torch.zeros(2, 4), patches)


def test_a_study_hides_the_patches_of_its_task(tmp_path):
    """Methods get the patches of their task, all tasks share one network, and patches are what is scored."""
    run = verax.run(
        {
            "name": "patches",
            "tasks": ["climate/analytic?samples=2000", "climate/analytic?samples=2000&patches=6"],
            "networks": ["ridge"],
            "methods": [
                {"name": "feature-ablation", "label": "patches", "segments": "task"},
                {"name": "occlusion", "label": "summed"},
            ],
            "protocols": ["exact"],
            "samples": 4,
            "certify": 0,
            "missing": "train",
        },
        out=tmp_path / "run",
        quiet=True,
    )
    rows = run.scores[run.scores["metric"] == "pearson"]
    means = rows.groupby(["method", "task"])["value"].mean().unstack()
    # a linear network is additive: hiding a patch is the sum of hiding its cells
    assert means.loc["patches"].tolist() == pytest.approx(means.loc["summed"].tolist(), abs=1e-4)
    assert means.loc["oracle"].min() > 0.999999
    assert means.loc["patches"].nunique() == 2
    assert len({(subject["network"], subject.get("sha256")) for subject in run.manifest["networks"]}) == 1


def test_only_tasks_with_segments_lend_them(tmp_path):
    study = {
        "name": "none",
        "tasks": ["textbox/simple-fr"],
        "networks": ["cnn3"],
        "methods": [{"name": "feature-ablation", "label": "patches", "segments": "task"}],
        "samples": 1,
        "certify": 0,
    }
    with pytest.raises(InvalidParameter, match="textbox/simple-fr has no segments of its own"):
        verax.run(study, out=tmp_path / "run", quiet=True)
