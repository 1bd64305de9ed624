"""Exams: prepared once for all who ask for the same, and the same as without sharing."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

import verax
from verax.networks import certificates, exams, training
from verax.networks.exams import Exams
from verax.networks.recipes import find_recipe
from verax.reproductions.smerf import study as smerf
from verax.studies import plan as planning
from verax.studies import spec as specs
from verax.studies.executors import EXECUTORS
from verax.studies.executors.threads import Threads
from verax.studies.store import Store
from verax.studies.trainings import Teacher

CPU = torch.device("cpu")


@pytest.fixture
def prepared(monkeypatch):
    """Every preparation of a trial: its task and seed."""
    found, prepare = [], certificates.prepare

    def watched(task, device, *, n, seed):
        found.append((task.name, seed))
        return prepare(task, device, n=n, seed=seed)

    monkeypatch.setattr(certificates, "prepare", watched)
    return found


def test_threads_that_share_ask_the_same_trial(prepared):
    task = verax.task("textbox/simple-nr")
    with exams.shared(), ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(exams.exams().trial, task, 2, seed, CPU) for seed in (0, 1, 0, 1, 0)]
        found = [future.result() for future in asked]
    assert sorted(prepared) == [(task.name, 0), (task.name, 1)]
    assert found[0] is found[2] is found[4]
    assert found[1] is found[3]
    assert found[0] is not found[1]
    exams.exams().trial(task, 2, 0, CPU)
    assert len(prepared) == 3  # nobody shares any more


def test_who_asks_for_something_else_gets_something_else():
    kept = Exams()
    simple, other = verax.task("textbox/simple-fr"), verax.task("textbox/complex-cr1")
    one = kept.cases(simple, (11, 12), 3, 0, CPU)
    assert one is kept.cases(simple, [11, 12], 3, 0, CPU)
    for task, groups, n, seed in (
        (other, (11, 12), 3, 0),
        (simple, (12, 11), 3, 0),
        (simple, (11, 12), 4, 0),
        (simple, (11, 12), 3, 1),
    ):
        two = kept.cases(task, groups, n, seed, CPU)
        fresh = task.cases(list(groups), n=n, seed=seed)
        assert torch.equal(two.inputs, fresh.inputs)
        assert torch.equal(two.targets, fresh.targets)
        assert two is not one


def test_only_the_last_ones_are_kept(monkeypatch):
    monkeypatch.setattr(exams, "_KEPT", 2)
    kept, task = Exams(), verax.task("textbox/simple-fr")
    first, second = (kept.cases(task, (1,), 1, seed, CPU) for seed in (0, 1))
    assert kept.cases(task, (1,), 1, 0, CPU) is first  # asked for again: the other one is older
    kept.cases(task, (1,), 1, 2, CPU)
    assert kept.cases(task, (1,), 1, 0, CPU) is first
    assert kept.cases(task, (1,), 1, 1, CPU) is not second


def test_what_could_not_be_made_is_tried_again():
    kept, task = Exams(), verax.task("textbox/simple-fr")
    with pytest.raises(ZeroDivisionError):
        kept._found(task, ("cases", "cpu"), lambda: 1 / 0)
    assert kept._found(task, ("cases", "cpu"), lambda: 7) == 7


def test_trainings_beside_each_other_prepare_once_and_learn_the_same(prepared, monkeypatch):
    monkeypatch.setattr(training, "_CERTIFIED", 4)
    monkeypatch.setattr(training, "_EVALUATED", 4)
    task = verax.task("textbox/simple-nr")
    plan = replace(find_recipe("fast"), epochs=1, scenes=64)

    def learn(seed):
        return training.train(task, "cnn3", recipe=plan, seed=seed, device="cpu", quiet=True)

    alone = learn(0)
    apart = len(prepared)
    prepared.clear()
    with exams.shared(), ThreadPoolExecutor(2) as pool:
        beside = list(pool.map(learn, (0, 0)))
    assert len(prepared) == apart == 1
    for other in beside:
        for name, weight in alone.model.state_dict().items():
            assert torch.equal(other.model.state_dict()[name], weight), name
        assert other.certificate.accuracy.equals(alone.certificate.accuracy)
        assert other.certificate.interventions.equals(alone.certificate.interventions)


@pytest.fixture
def tiny(monkeypatch):
    """Trainings of a moment."""
    monkeypatch.setattr(training, "_CERTIFIED", 2)
    monkeypatch.setattr(training, "_EVALUATED", 2)
    plan = replace(find_recipe("swift"), batch=8, epochs=1, cycles=1, scenes=2)
    monkeypatch.setattr(training, "fitted", lambda recipe, architecture, task: plan)


def test_threads_of_a_study_share(prepared, tiny, tmp_path):
    chosen = {"tasks": ["textbox/simple-nr"], "networks": ["cnn3@swift", "cnn4@swift"], "seeds": [0]}
    study = specs.study({"name": "two", "methods": ["gradient"], "missing": "train", **chosen})
    inline, store = EXECUTORS.get("inline")(CPU), Store(tmp_path)
    teacher = Teacher(study, store, inline, CPU, beside=Threads(CPU, 2))
    teacher.teach(planning.compile_plan(study, tmp_path, ahead=True).trainings)
    assert len(teacher.trained) == 2
    assert len(prepared) == 1


def test_trainings_of_a_reproduction_share(prepared, tiny, monkeypatch, tmp_path):
    monkeypatch.setattr(smerf, "TASKS", ["textbox/simple-nr"])
    options = smerf.Options(
        networks=["cnn3@swift", "cnn4@swift"], store=tmp_path, device="cpu", quiet=True, workers=2
    )
    smerf._train_side_by_side(options, smerf.missing(options))
    assert smerf.missing(options) == []
    assert len(prepared) == 1


def test_networks_of_one_study_have_their_task_in_common(tmp_path):
    """Or they could not share what is prepared for a task."""
    study = specs.study("smerf-full")
    plan = planning.compile_plan(study, tmp_path, ahead=True)
    found = {}
    for each in plan.trainings:
        found.setdefault(each.task.name, set()).add(id(each.task))
    assert len(plan.trainings) == 5 * 7 * 6
    assert all(len(objects) == 1 for objects in found.values())
