"""Exams: prepared once for all who ask for the same, and the same as without sharing."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import verax
from verax.networks import certificates, exams, training
from verax.networks.certificates import Trial
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


def test_who_comes_while_it_is_made_waits_for_it():
    kept, lock, came, made, later = Exams(), threading.Lock(), threading.Event(), [], []

    class Door:
        """The lock, which tells when the second one stands before it."""

        def __enter__(self):
            if made:
                came.set()
            lock.acquire()

        def __exit__(self, *_):
            lock.release()

    def make():
        made.append(object())
        if len(made) == 1:
            later.append(pool.submit(ask))
            assert came.wait(10)
        came.set()  # by who did not wait
        return made[-1]

    def ask():
        return kept._found(task, ("cases", "cpu"), make)

    kept._making, task = Door(), object()
    with ThreadPoolExecutor(1) as pool:
        first = ask()
    assert later[0].result() is first
    assert made == [first]


class Given:
    """A task whose cases are itself and what it was asked for."""

    def __init__(self, name):
        self.name = name

    def cases(self, groups, n, seed, device):
        return self.name, groups, n, seed


def test_trials_and_cases_are_those_of_the_number_that_was_asked_for(monkeypatch):
    monkeypatch.setattr(certificates, "prepare", lambda task, device, n, seed: (task.name, n, seed))
    kept, one, two = Exams(), Given("one"), Given("two")
    for task, n, seed in ((one, 2, 0), (one, 3, 0), (one, 2, 1), (two, 2, 0)):
        assert kept.trial(task, n, seed, CPU) == (task.name, n, seed)
        assert kept.cases(task, (1,), n, seed, CPU) == (task.name, [1], n, seed)


def test_a_task_that_is_gone_is_not_taken_for_the_next_in_its_place():
    kept = Exams()
    for number in range(9):  # each would lie where the one before it was
        assert kept.cases(Given(number), (1,), 1, 0, CPU)[0] == number


def test_who_shares_within_others_has_exams_apart():
    with exams.shared():
        outer = exams.exams()
        with exams.shared():
            assert exams.exams() is not outer
        assert exams.exams() is outer


def test_who_begins_to_share_first_may_end_first():
    one, two = exams.shared(), exams.shared()
    one.__enter__()
    two.__enter__()
    last = exams.exams()
    one.__exit__(None, None, None)
    assert exams.exams() is last
    two.__exit__(None, None, None)
    assert exams.exams() is not last


def test_a_gpu_is_done_with_a_tensor_before_other_threads_get_it(monkeypatch):
    kept, done = Exams(), []

    def stream(device):
        def synchronize():
            done.extend(("waited", device.type, len(kept._made)))

        return SimpleNamespace(synchronize=synchronize)

    monkeypatch.setattr(torch.cuda, "current_stream", stream)
    for device in ("cuda", "cuda", "cpu"):
        kept._found(kept, ("cases", device), lambda: done.append("made") or 7)
    assert done == ["made", "waited", "cuda", 0, "made"]  # nobody could see it yet


def test_the_exam_that_ends_a_training_is_not_its_certificate(prepared, monkeypatch):
    monkeypatch.setattr(training, "_CERTIFIED", 2)
    monkeypatch.setattr(training, "_EVALUATED", 2)
    monkeypatch.setattr(training, "_worst_bucket", lambda *_: 1.0)
    monkeypatch.setattr(Trial, "answers", lambda *_, **__: [])
    monkeypatch.setattr(Trial, "certificate", lambda *_: SimpleNamespace(passed=True))
    task, plan = verax.task("textbox/simple-nr"), replace(find_recipe("fast"), batch=8, epochs=2, scenes=2)
    done = training.train(task, "cnn3", recipe=plan, device="cpu", quiet=True)
    assert [one.ended for one in done.tries] == ["certified"]
    assert len(prepared) == len(set(prepared)) == 2
