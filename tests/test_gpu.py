"""What a GPU does is what a CPU does: tasks, metrics, studies, alignments, training; on a pretended one too.

Methods on each kind of network are in `test_limits.py`. With `make test-gpu` these tests need no GPU.
"""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import verax
from pretended import PRETENDED
from test_align import Halves, Squares
from verax.metrics import alignment
from verax.metrics.binarisation import RULES, Binarisation
from verax.networks.certificates import certify, prepare
from verax.networks.inference import outputs
from verax.networks.recipes import find_recipe
from verax.networks.starts import initialise
from verax.networks.steps import Stepper
from verax.networks.training import train

pytestmark = pytest.mark.gpu

TASKS = ("textbox/complex-cr1", "worlds/xor", "shapes", "climate/analytic")


def same(found, wanted, tolerance=1e-4):
    """Two tables with the same numbers, but for rounding."""
    assert list(found) == list(wanted)
    for column in wanted:
        if wanted[column].dtype.kind == "f":
            np.testing.assert_allclose(found[column], wanted[column], rtol=tolerance, atol=tolerance)
        else:
            assert (found[column] == wanted[column]).all()


@contextmanager
def unwaiting():
    """Nothing in here waits for the GPU."""
    if PRETENDED:
        before = torch.ops.pretended.waits()
        yield
        assert torch.ops.pretended.waits() == before
        return
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("name", TASKS)
def test_a_task_draws_the_same_cases(name):
    task = verax.task(name)
    here, there = task.cases(n=3, seed=5), task.cases(n=3, seed=5, device="cuda")
    assert there.inputs.is_cuda
    assert there.targets.is_cuda
    torch.testing.assert_close(there.inputs.cpu(), here.inputs, rtol=1e-5, atol=1e-5)
    assert torch.equal(there.targets.cpu(), here.targets)


@pytest.mark.parametrize(
    ("name", "network", "protocols"),
    [
        ("textbox/complex-cr1", "cnn4", ("sound", "published", "faithfulness")),
        ("worlds/colour", "wired", ("sound", "published")),
        ("shapes", "shapes-cnn", ("exact",)),
        ("climate/analytic", "linear", ("exact",)),
    ],
)
def test_every_protocol_scores_the_same(name, network, protocols):
    task = verax.task(name)
    cases = task.cases(n=3)
    maps = torch.randn(cases.inputs.shape, generator=torch.Generator().manual_seed(0))
    maps[0] = 0  # a degenerate one
    for protocol in protocols:
        asked = {"model": task.network(network), "method": "smoothgrad"} if protocol == "faithfulness" else {}
        wanted = verax.score(maps, cases, protocol, **asked)
        if asked:
            asked["model"].cuda()
        found = verax.score(maps.cuda(), cases.to("cuda"), protocol, **asked)
        same(found, wanted)


@pytest.mark.parametrize("rule", RULES)
def test_maps_are_compared_with_marks_alike(rule):
    maps = torch.randn(6, 17, 13, generator=torch.Generator().manual_seed(0))
    maps[1] = maps[1].round()  # ties
    maps[2] = 0
    masks = torch.zeros(6, 17, 13, dtype=torch.bool)
    masks[:, 3:9, 2:8] = True
    masks[3] = False
    for mass in alignment.MASSES:
        for ties in ("expected", "first"):
            judging = alignment.Judging(binarisation=Binarisation.of(rule), tolerance=2, ties=ties, mass=mass)
            wanted = alignment.judge(maps, masks, judging)
            found = alignment.judge(maps.cuda(), masks.cuda(), judging)
            for part in ("scores", "random", "centre"):
                for name, values in getattr(wanted, part).items():
                    torch.testing.assert_close(getattr(found, part)[name].cpu(), values, equal_nan=True)


def test_networks_are_asked_and_explained_by_fixed_kernels_in_full_float32(monkeypatch):
    class Convolutions(TorchDispatchMode):
        def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
            if "convolution" in str(operation):
                seen.add((cudnn.allow_tf32, cudnn.deterministic, torch.get_float32_matmul_precision()))
            return operation(*args, **(kwargs or {}))

    cudnn = torch.backends.cudnn
    task = verax.task("textbox/simple-fr")
    cases, model = task.cases(n=1, device="cuda"), task.network("cnn4").cuda()
    for precision in ("highest", "high"):
        seen, state = set(), torch.get_rng_state()
        monkeypatch.setattr(cudnn, "allow_tf32", True)
        torch.set_float32_matmul_precision(precision)
        try:
            with Convolutions():
                for method in ("gradient", "lrp-epsilon"):
                    verax.explain(model, cases.inputs, method=method)
                outputs(model, cases.inputs)
            assert torch.get_float32_matmul_precision() == precision
        finally:
            torch.set_float32_matmul_precision("highest")
        assert seen == {(False, True, "highest")}
        assert (cudnn.allow_tf32, cudnn.deterministic) == (True, False)
        assert torch.equal(torch.get_rng_state(), state)


def test_a_study_has_the_same_scores(tmp_path):
    """Explaining and scoring overlap on a GPU, and conditions are looked at later than on a CPU."""
    study = {
        "tasks": ["textbox/simple-nr", "textbox/complex-cr2"],
        "methods": [
            "gradient",
            "smoothgrad",
            "guided-backprop",
            "lrp-epsilon",
            "lrp-b",
            "deep-shap",
            "grad-cam",
        ],
        "protocols": ["sound", "published", "faithfulness"],
        "samples": 2,
        "certify": 20,
        "identify": 2,
        "quiet": True,
    }
    tables = {}
    for device in ("cpu", "cuda"):
        folders = {"out": tmp_path / device, "store": tmp_path / f"store-{device}"}
        done = verax.run("smerf-quick", **study, device=device, **folders)
        assert not done.manifest["failures"]
        assert all(entry["passed"] for entry in done.manifest["certificates"])
        tables[device] = done.scores
    same(tables["cuda"], tables["cpu"], 5e-3)


def test_an_alignment_has_the_same_scores():
    found, wanted = (
        verax.align(
            Halves().to(device),
            Squares(12),
            method="integrated-gradients",
            device=device,
            batch_size=5,
            binarisation="threshold:0.5",
        ).scores
        for device in ("cuda", "cpu")
    )
    same(found, wanted)


def test_a_climate_study_runs_from_its_training_on(monkeypatch, tmp_path):
    """Fields are drawn, moments added up, a network trained and explained there."""
    monkeypatch.setattr(Stepper, "recorded", False)
    done = verax.run(
        "sst-quick",
        networks=["linear", "mlp@published"],
        methods=["gradient", "input-x-gradient", "lrp-gamma", "kernel-shap"],
        tasks=[verax.task("climate/analytic?samples=3000")],
        samples=5,
        certify=20,
        quiet=True,
        device="cuda",
        out=tmp_path / "out",
    )
    assert not done.manifest["failures"]
    table = done.scores
    assert len(table)
    assert np.isfinite(table["value"]).any()


@pytest.mark.parametrize(
    "name", ["cnn3@swift", "vit@swift", "cnn3@robust-swift", "resnet18-coarse@fast", "alexnet@swift"]
)
def test_no_step_waits_for_the_gpu(monkeypatch, name):
    """A step that does cannot be recorded."""
    task, (architecture, recipe) = verax.task("textbox/simple-fr"), name.split("@")
    cases = task.cases(n=4, device="cuda")
    plan = replace(find_recipe(recipe), batch=16, epochs=7, cycles=1)
    model = initialise(architecture, 2, 0).cuda().to(memory_format=torch.channels_last)
    stepper = Stepper(model, plan, 3)
    monkeypatch.setattr(Stepper, "recorded", False)
    starts = (torch.zeros_like(cases.inputs[:16]),) if plan.adversary is not None else ()
    given = (cases.inputs[:16], cases.targets[:16], *starts)
    stepper(*given)
    weights = stepper.weights.clone()
    with unwaiting():
        stepper(*given)
    assert not torch.equal(weights, stepper.weights)


def test_networks_may_stop_by_what_they_say_in_half_precision(monkeypatch):
    found, run = [], torch.nn.Conv2d.forward

    def watched(layer, x):
        found.append(run(layer, x))
        return found[-1]

    task = verax.task("textbox/simple-fr")
    model = task.network("cnn3").cuda()
    trial = prepare(task, torch.device("cuda"), n=2, seed=0)
    answers = {}
    monkeypatch.setattr(torch.nn.Conv2d, "forward", watched)
    for rough, kind in ((True, torch.bfloat16), (False, torch.float32)):
        found.clear()
        answers[rough] = trial.answers(model, rough=rough)
        assert {made.dtype for made in found} == {kind}
    right = [torch.cat(given).double().mean() for given in answers.values()]
    assert abs(float(right[0] - right[1])) < 0.1


def test_networks_learn_there(monkeypatch):
    monkeypatch.setattr(Stepper, "recorded", False)
    task = verax.task("textbox/simple-fr")
    plan = replace(find_recipe("fast"), epochs=1, scenes=200)
    made = train(task, "cnn3", recipe=plan, device="cuda", quiet=True)
    assert next(made.model.parameters()).is_cuda
    assert made.certificate.worst_accuracy >= 0
    there = certify(made.model, task, n=20)
    here = certify(made.model.cpu(), task, n=20)
    assert there.worst_accuracy == pytest.approx(here.worst_accuracy, abs=0.1)
    assert there.accuracy["right"].sum() == pytest.approx(here.accuracy["right"].sum(), abs=2)
