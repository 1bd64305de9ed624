"""Executors: the same scores from everyone, and what happens to workers that die or hang."""

import importlib
import itertools
import pickle
import sys
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pandas as pd
import pytest
import torch

import verax
from verax.errors import ClusterError, InvalidParameter, UnknownName
from verax.methods import METHODS
from verax.studies import plan as planning
from verax.studies import running, stamps, work
from verax.studies import spec as specs
from verax.studies.executors import EXECUTORS
from verax.studies.store import Store
from verax.studies.work import Brief, Job, perform

SMALL = {
    "name": "executed",
    "tasks": ["textbox/simple-fr"],
    "networks": ["cnn3"],
    "methods": ["gradient", "smoothgrad"],
    "samples": 3,
    "certify": 2,
}


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def brief_of(own_store, block=None, **changes):
    plan = planning.compile_plan(specs.study({**SMALL, **changes}), own_store, block=block)
    jobs = [Job(unit.key, unit.index, unit.start, unit.count) for unit in plan.units]
    return plan, Brief(plan.study, plan.cells), jobs


def test_processes_give_the_same_scores_as_inline():
    inline = verax.run(SMALL, quiet=True, store="one", out="one-run")
    several = verax.run(SMALL, quiet=True, store="two", out="two-run", executor="processes", workers=2)
    assert several.manifest["executor"] == {"name": "processes", "workers": 2}
    tables = [(run.folder / "scores.parquet").read_bytes() for run in (inline, several)]
    assert tables[0] == tables[1]


def test_scores_do_not_depend_on_a_study_that_named_its_protocols_in_another_order():
    study = {**SMALL, "networks": ["wired"], "methods": ["gradient"], "certify": 0}
    here, there = ["sound", "published"], ["published", "sound"]
    alone = verax.run(study, quiet=True, store="one", out="one-run", protocols=here)
    verax.run(study, quiet=True, store="two", out="two-run", protocols=there)
    after = verax.run(study, quiet=True, store="two", out="two-run", protocols=here)
    assert after.manifest["computed_units"] == 0
    tables = [(run.folder / "scores.parquet").read_bytes() for run in (alone, after)]
    assert tables[0] == tables[1]


@contextmanager
def imprecise():
    torch.set_float32_matmul_precision("medium")
    try:
        yield
        assert torch.get_float32_matmul_precision() == "medium"  # it is still the caller's
    finally:
        torch.set_float32_matmul_precision("highest")


@contextmanager
def doubled():
    torch.set_default_dtype(torch.float64)
    try:
        yield
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@contextmanager
def other_kernels():
    torch.backends.mkldnn.enabled = False
    try:
        yield
        assert not torch.backends.mkldnn.enabled
    finally:
        torch.backends.mkldnn.enabled = True


@pytest.fixture(scope="module")
def plainly(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plainly")
    run = verax.run(SMALL, quiet=True, store=folder / "store", out=folder / "run", executor="inline")
    return (run.folder / "scores.parquet").read_bytes()


@pytest.mark.parametrize(
    "surroundings",
    [
        imprecise,
        doubled,
        torch.inference_mode,
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        other_kernels,
        lambda: torch.device("meta"),
    ],
    ids=["imprecise", "doubled", "inference", "autocast", "other kernels", "other device"],
)
def test_what_the_caller_has_set_does_not_get_into_the_store(surroundings, plainly):
    with surroundings():
        run = verax.run(SMALL, quiet=True, store="store", out="run", executor="inline")
    assert run.failures == []
    assert (run.folder / "scores.parquet").read_bytes() == plainly


OWN = """
import verax

@verax.method("edited", version="1")
def edited(model, inputs, targets):
    return inputs
"""


def test_workers_that_read_other_code_are_refused(tmp_path, monkeypatch, request):
    """A worker reads files anew: what was edited since must not be kept under the keys of what was not."""
    file = tmp_path / "edited_while_running.py"
    file.write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # which knows files by their seconds
    module = importlib.import_module("edited_while_running")
    request.addfinalizer(lambda: METHODS.unregister("edited"))

    def run(**changes):
        study = {**SMALL, "methods": ["edited"], "certify": 0, "networks": ["wired"], "samples": 1}
        how = {"executor": "processes", "workers": 1}
        return verax.run(study, quiet=True, store="store", out="run", **how, **changes)

    value = run().scores["value"]
    file.write_text(OWN.replace("return inputs", "return inputs.flip(3)"))
    with pytest.raises(ClusterError, match="has changed since it was read"):
        run(overwrite="all")
    importlib.reload(module)
    assert not run(overwrite="all").scores["value"].equals(value)
    monkeypatch.setattr(stamps, "code_digest", lambda: "as it was before an update of verax")
    with pytest.raises(ClusterError, match="has changed since it was read"):
        run(overwrite="all")


def test_executors_have_names_and_options(own_store):
    with pytest.raises(UnknownName, match="did you mean 'processes'"):
        verax.run(SMALL, quiet=True, executor="process")
    with pytest.raises(InvalidParameter, match="whole number from 1"):
        verax.run(SMALL, quiet=True, workers=0)
    with pytest.raises(InvalidParameter, match="has one worker"):
        verax.run(SMALL, quiet=True, executor="inline", workers=2)
    with pytest.raises(InvalidParameter, match="no option 'adress'"):
        verax.run(SMALL, quiet=True, adress="auto")
    with pytest.raises(InvalidParameter, match="no overwrite policy"):
        verax.run(SMALL, quiet=True, overwrite="mising")


def test_a_job_is_a_pure_function_of_what_travels(own_store):
    _, brief, jobs = brief_of(own_store)
    sent, able = brief.travelling()
    assert able == frozenset(range(len(brief.cells)))
    arrived = pickle.loads(pickle.dumps(sent))
    for job in jobs:
        here = perform(brief, job, torch.device("cpu"))
        there = perform(arrived, job, torch.device("cpu"))
        assert here.failure is None
        assert list(here.entry.parts) == list(there.entry.parts)  # parts are named by their content


def test_what_only_this_process_knows_stays_here(own_store):
    @verax.method("local-method", version="1")
    def local(model, inputs, targets):
        return inputs * 2

    try:
        _, brief, _ = brief_of(own_store, methods=["local-method", "gradient"])
        _, able = brief.travelling()
        stays = {brief.cells[index].label for index in range(len(brief.cells)) if index not in able}
        assert stays == {"local-method"}
    finally:
        verax.methods.METHODS.unregister("local-method")


@pytest.mark.parametrize("name", EXECUTORS)
def test_every_executor_can_be_made(name):
    if name == "ray":
        pytest.importorskip("ray", reason="Ray is not installed: pip install 'verax[cluster]'")
    assert EXECUTORS.get(name)(torch.device("cpu"), 1).workers == 1


def test_leaderboards_are_read_as_a_stream_and_are_the_same():
    run = verax.run({**SMALL, "protocols": ["sound", "published"]}, quiet=True)
    streamed = verax.Run(run.folder)
    boards = [streamed.leaderboard(), streamed.leaderboard("published", "piou"), streamed.buckets()]
    assert "scores" not in streamed.__dict__  # nothing but what was asked for was read
    held = verax.Run(run.folder)
    assert len(held.scores) == len(run.scores)
    for one, two in zip(
        boards, (held.leaderboard(), held.leaderboard("published", "piou"), held.buckets()), strict=True
    ):
        pd.testing.assert_frame_equal(one, two)
    (tier,) = set(streamed.tiers.values())
    assert len(streamed.of_tier(tier).rows("sound", "iou")) == len(held.of_tier(tier).rows("sound", "iou"))
    with pytest.raises(UnknownName, match="belongs to the protocol 'published'"):
        verax.Run(run.folder).leaderboard(metric="piou")


def test_processes_are_chosen_where_there_is_work_for_them(own_store, monkeypatch):
    monkeypatch.setattr(running, "cores", lambda: 2)
    store, cpu = Store(own_store), torch.device("cpu")

    def chosen(samples, workers=None, device=cpu):
        plan = planning.compile_plan(specs.study({**SMALL, "samples": samples}), own_store)
        return running._chosen(plan, store, device, workers)

    assert [chosen(1), chosen(2000), chosen(2000, 1), chosen(1, 2)] == [
        "inline",
        "processes",
        "inline",
        "processes",
    ]
    assert chosen(2000, device=torch.device("meta")) == "inline"
    monkeypatch.setattr(running, "cores", lambda: 1)
    assert chosen(2000) == "inline"
    assert verax.run(SMALL, quiet=True).manifest["executor"]["name"] == "inline"


def test_workers_of_this_machine_read_weights_from_files(own_store, monkeypatch, tmp_path):
    _, brief, jobs = brief_of(own_store)
    sent, able = brief.travelling(near=True)
    assert able == frozenset(range(len(brief.cells)))
    paths = [cell.subject.weights for cell in sent.cells]
    assert all(path.is_absolute() for path in paths)
    assert len(pickle.dumps(sent)) < 100_000 < len(pickle.dumps(brief.travelling()[0]))
    monkeypatch.chdir(tmp_path)
    arrived = pickle.loads(pickle.dumps(sent))
    there = perform(arrived, jobs[0], torch.device("cpu"))
    assert list(there.entry.parts) == list(perform(brief, jobs[0], torch.device("cpu")).entry.parts)


def test_a_million_units_are_compiled_one_by_one(own_store):
    methods = [{"name": "integrated-gradients", "steps": 2 + k} for k in range(196)]
    study = specs.study({**SMALL, "methods": methods, "samples": 100_000, "certify": 0})
    begun = time.perf_counter()
    plan = planning.compile_plan(study, own_store, block=20)
    assert len(plan.units) == 5000 * len(plan.cells) > 1_000_000
    some = list(itertools.islice(plan.units, 20_000))
    assert len({unit.key for unit in some}) == len(some)
    assert time.perf_counter() - begun < 20  # a million take a few seconds
    assert plan.units.__sizeof__() < 1000


def test_the_number_of_threads_is_the_same_for_every_unit(own_store):
    """Sums over an odd batch depend on it in the last digit; so it is pinned, and put back."""
    _, brief, jobs = brief_of(own_store)
    before = torch.get_num_threads()
    names = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            names.append([list(perform(brief, job, torch.device("cpu")).entry.parts) for job in jobs])
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert names[0] == names[1]


def test_memory_is_measured_once_for_each_kind_of_unit(own_store, monkeypatch):
    measured = []

    class Counted(work.Memory):
        def __init__(self, device):
            measured.append(device)
            super().__init__(device)

    monkeypatch.setattr(work, "Memory", Counted)
    monkeypatch.setattr(work, "_NEEDED", {})
    for _ in range(2):  # what another brief needed is forgotten
        _, brief, jobs = brief_of(own_store, block=1, methods=["gradient"], certify=1)
        assert all(work.perform(brief, job, torch.device("cpu")).done for job in jobs)
        assert len(jobs) > len(work._NEEDED)
        assert {kind[0] for kind in work._NEEDED} == {brief.token}
        assert len(measured) == len(work._NEEDED)
        measured.clear()


def test_units_of_pictures_of_another_size_are_of_another_kind():
    brief, job = SimpleNamespace(token="t"), Job("k", 0, 0, 1)

    def kind(shape, groups):
        task = SimpleNamespace(input_shape=shape, groups=groups)
        subject = SimpleNamespace(task=task, architecture="cnn3")
        return work._kind(brief, SimpleNamespace(subject=subject, label="gradient", count=2), job)

    assert kind((3, 64, 64), (0, 1)) == kind((3, 64, 64), (2, 3))
    assert kind((3, 64, 64), (0, 1)) != kind((3, 32, 32), (0, 1))
    assert kind((3, 64, 64), (0, 1)) != kind((3, 64, 64), (0, 1, 2))


@pytest.mark.parametrize("workers", [0, 4097, 10**8, 1.5])
def test_a_crew_that_cannot_be_is_refused(workers):
    with pytest.raises(InvalidParameter, match="a whole number from 1 to 4096"):
        verax.run(SMALL, quiet=True, executor="processes", workers=workers)
