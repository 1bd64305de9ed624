"""Trainings as units: the same weights from everyone, and what becomes of those that fail or are stopped."""

import json
import threading
import time
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import verax
from bad_workers import Deadly, Refusing
from little_climate import little_field, little_task
from verax import tasks
from verax.cli.main import app
from verax.errors import Interrupted, InvalidParameter, VeraxWarning, WeightsError
from verax.networks import NETWORKS, library, names, recipes, records, regression, teaching
from verax.studies import plan as planning
from verax.studies import spec as specs
from verax.studies import trainings, upkeep
from verax.studies.executors import EXECUTORS
from verax.studies.executors.threads import Threads, side_by_side
from verax.studies.options import Options
from verax.studies.plan import Training
from verax.studies.store import Store
from verax.studies.trainings import Teacher, taught, waves
from verax.studies.units import Cell, Subject
from verax.studies.work import Brief, Job, perform

CPU = torch.device("cpu")
STUDY = {
    "name": "trained",
    "tasks": ["little/climate"],
    "networks": ["mlp", "ridge"],
    "seeds": [0, 1],
    "methods": ["gradient"],
    "protocols": ["exact"],
    "samples": 2,
    "certify": 0,
    "missing": "train",
}


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """A recipe that this process alone has: it travels by value."""
    monkeypatch.setitem(regression.SCHEDULES, "fast", regression.Schedule(3e-3, 100, 2))
    monkeypatch.setattr(regression, "_LEAST", 1)


@pytest.fixture
def little():
    """Registers tasks for one test."""
    made = []

    def register(*given):
        made.extend(tasks.register(task) for task in given or (little_task(count=512),))
        return list(given)

    yield register
    for name in made:
        tasks.TASKS.unregister(name)


def ahead(folder, **changes):
    return planning.compile_plan(specs.study({**STUDY, **changes}), Path(folder), ahead=True)


def train(folder, changes=None, executor="inline", **options):
    Path(folder).mkdir(exist_ok=True)
    plan = ahead(folder, **(changes or {}))
    return taught(plan, Path(folder), CPU, Options(executor, **options), quiet=True)


def files(folder):
    return {path.name: path.read_bytes() for path in (Path(folder) / "networks").iterdir()}


def test_weights_do_not_depend_on_who_trains(little):
    little()
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert len(train("one").trained) == 3
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    for folder, workers in (("two", 1), ("three", 2)):
        done = train(folder, executor="processes", workers=workers)
        assert [(t["network"], t["seed"]) for t in done.trained] == [("mlp", 0), ("mlp", 1), ("ridge", 0)]
        assert all(entry["seconds"] > 0 for entry in done.trained)
        assert files(folder) == files("one")  # weights and records, to the byte
    assert len(files("one")) == 6


def test_trainings_that_kill_their_worker_or_raise_are_recorded(little):
    field = little_field()
    bad = [Deadly("bad/dies", field, count=512), Refusing("bad/raises", field, count=512)]
    names_of = [task.name for task in little(*bad, little_task(count=512))]
    study = {**STUDY, "tasks": names_of, "networks": ["ridge"]}
    with pytest.warns(VeraxWarning, match="training"):
        run = verax.run(study, quiet=True, store="store", out="run", executor="processes", workers=2)
    failed = {entry["unit"]: (entry["kind"], entry["reason"]) for entry in run.failures}
    assert {unit.split()[0]: kind for unit, (kind, _) in failed.items()} == {
        "bad/dies": "killed",
        "bad/raises": "error",
    }
    assert "no such sample" in failed["bad/raises ridge seed 0: training"][1]
    assert [entry["task"] for entry in run.manifest["trained"]] == ["little/climate"]
    assert run.scores["task"].unique().tolist() == ["little/climate"]
    # nothing is trained: failures are those of the last time
    with pytest.warns(VeraxWarning):
        again = verax.run(study, quiet=True, store="store", out="run", overwrite="never")
    assert {entry["unit"]: (entry["kind"], entry["reason"]) for entry in again.failures} == failed
    # the planning process itself can draw: there, what failed is trained, and nothing else
    last = verax.run(study, quiet=True, store="store", out="run", executor="inline")
    assert [entry["task"] for entry in last.manifest["trained"]] == ["bad/dies", "bad/raises"]
    assert not last.failures
    assert not Store(Path("store")).failed(Training(bad[0], "ridge", 0).key)


def test_a_training_that_takes_too_long(little, monkeypatch):
    little(little_task("little/slow", count=512), little_task(count=512))
    real = teaching.train

    def slowly(task, network, **options):
        if task.name == "little/slow":
            time.sleep(60)
        return real(task, network, **options)

    monkeypatch.setattr(teaching, "train", slowly)
    begun = time.monotonic()
    done = train("store", {"tasks": ["little/slow", "little/climate"], "networks": ["ridge"]}, time_limit=5)
    assert time.monotonic() - begun < 50
    (failure,) = done.failed.values()
    assert [entry["task"] for entry in done.trained] == ["little/climate"]
    assert failure.kind == "time"
    assert "5 s" in failure.reason


def test_an_interrupted_training_keeps_what_is_trained(little, monkeypatch):
    little()
    real, seen = teaching.train, []

    def stopped(task, network, **options):
        seen.append((network, options["seed"]))
        if len(seen) == 2:
            raise KeyboardInterrupt
        return real(task, network, **options)

    monkeypatch.setattr(teaching, "train", stopped)
    with pytest.raises(Interrupted, match="1 of 3 networks are trained and kept"):
        verax.run(STUDY, quiet=True, store="store", executor="inline")
    run = verax.run(STUDY, quiet=True, store="store", executor="inline")
    assert seen == [("mlp", 0), ("mlp", 1), ("mlp", 1), ("ridge", 0)]
    assert [entry["seed"] for entry in run.manifest["trained"]] == [1, 0]
    train("whole")
    assert files("store") == files("whole")


def test_nothing_is_trained_that_was_not_to_be(little):
    little()
    with pytest.raises(WeightsError, match="not trained: --overwrite never"):
        verax.run(STUDY, quiet=True, store="store", overwrite="never")
    train("store")
    library.find(tasks.task("little/climate"), "ridge", 0, Path("store")).unlink()
    done = train("store", overwrite="failed")
    assert done.trained == []
    assert [failure.kind for failure in done.failed.values()] == ["skipped"]


def test_what_cannot_be_trained_is_said_before_anything_is(little, monkeypatch):
    little()
    monkeypatch.setattr(teaching, "train", lambda *given, **options: pytest.fail("trained"))
    with pytest.raises(InvalidParameter, match="is for pictures"):
        verax.run(STUDY, networks=["mlp", "cnn4"], quiet=True, store="store")


def chosen(count, device, workers=None, network="mlp", task=None, **options):
    many = [Training(task or little_task(count=512), network, seed) for seed in range(count)]
    made = trainings._chosen_to_train(many, device, Options(None, workers, **options))
    return [None if executor is None else type(executor).__name__ for executor in made]


def test_several_networks_are_trained_side_by_side(monkeypatch):
    monkeypatch.setattr(trainings, "cores", lambda: 2)
    assert [chosen(1, CPU)[0], chosen(2, CPU)[0], chosen(2, CPU, 1)[0], chosen(1, CPU, 2)[0]] == [
        "Inline",
        "Processes",
        "Inline",
        "Processes",
    ]
    assert chosen(8, torch.device("meta")) == ["Inline", None]
    monkeypatch.setattr(trainings, "cores", lambda: 1)
    assert chosen(8, CPU) == ["Inline", None]


def test_on_a_gpu_threads_train_what_draws_no_random_numbers(monkeypatch):
    def noisy(classes):
        return nn.Sequential(
            nn.Conv2d(3, 4, 8), nn.Dropout2d(), nn.Flatten(), nn.Linear(4 * 57 * 57, classes)
        )

    monkeypatch.setitem(NETWORKS._items, "noisy", noisy)
    gpu, task = torch.device("cuda", 0), tasks.task("textbox/simple-fr")
    monkeypatch.setattr(trainings, "room", lambda device, each, most: most)
    assert chosen(3, gpu, network="cnn3", task=task) == ["Inline", "Threads"]
    assert chosen(3, gpu, network="alexnet", task=task) == ["Inline", "Threads"]
    assert chosen(3, gpu, network="noisy", task=task) == ["Processes", "Threads"]
    assert chosen(3, gpu) == ["Inline", "Threads"]  # regressions, one after the other
    assert chosen(1, gpu, network="cnn3", task=task) == ["Inline", None]
    assert chosen(3, gpu, network="cnn3", task=task, time_limit=60.0) == ["Inline", None]
    monkeypatch.setattr(trainings, "room", lambda device, each, most: 1)
    assert chosen(3, gpu, network="noisy", task=task) == ["Inline", None]
    calm = [trainings._calm(Training(task, name, 0)) for name in ("cnn3", "resnet18", "alexnet", "noisy")]
    assert calm == [True, True, True, False]
    assert not trainings._calm(Training(little_task(count=512), "mlp", 0))


def test_threads_train_the_same_weights(little, monkeypatch):
    little()
    train("alone")
    monkeypatch.setattr(trainings, "_calm", lambda training: training.network == "mlp")
    folder = Path("beside")
    folder.mkdir()
    seen = []
    executors = EXECUTORS.get("inline")(CPU), Threads(CPU, 2)
    teacher = Teacher(specs.study(STUDY), Store(folder), executors[0], CPU, beside=executors[1])
    teacher.watch = lambda done, words: seen.append(done)
    plan = ahead(folder)
    teacher.teach(plan.trainings)
    assert sum(seen) == len(plan.trainings) == 3
    assert files("beside") == files("alone")


def test_a_training_that_fails_in_a_thread_leaves_the_others_alone(little, monkeypatch):
    little()
    real = teaching.train

    def failing(task, network, **options):
        if options["seed"] == 1:
            raise RuntimeError("no luck")
        return real(task, network, **options)

    monkeypatch.setattr(teaching, "train", failing)
    monkeypatch.setattr(trainings, "_calm", lambda training: True)
    Path("store").mkdir()
    inline = EXECUTORS.get("inline")(CPU)
    teacher = Teacher(specs.study(STUDY), Store(Path("store")), inline, CPU, beside=Threads(CPU, 2))
    teacher.teach(ahead("store").trainings)
    assert [failure.kind for failure in teacher.failed.values()] == ["error"]
    assert len(teacher.trained) == 2


def test_a_training_that_has_no_room_beside_others_is_repeated_alone(little, monkeypatch):
    little()
    real, tried = teaching.train, []

    def crowded(task, network, **options):
        tried.append(options["seed"])
        if options["seed"] == 1 and threading.current_thread() is not threading.main_thread():
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(task, network, **options)

    monkeypatch.setattr(teaching, "train", crowded)
    monkeypatch.setattr(trainings, "_calm", lambda training: True)
    Path("store").mkdir()
    inline = EXECUTORS.get("inline")(CPU)
    teacher = Teacher(specs.study(STUDY), Store(Path("store")), inline, CPU, beside=Threads(CPU, 2))
    seen = []
    teacher.watch = lambda done, words: seen.append(done)
    teacher.teach(ahead("store").trainings)
    assert not teacher.failed
    assert len(teacher.trained) == sum(seen) == 3
    assert tried.count(1) == 2


def test_threads_let_go_of_trainings_that_nobody_waits_for():
    stop, started = threading.Event(), threading.Event()

    def endless():
        started.set()
        while not stop.is_set():
            time.sleep(0.01)
        return "let go"

    outcomes = side_by_side(iter([lambda: "done", endless, endless]), 2, CPU, stop)
    assert next(outcomes) == "done"
    assert started.wait(10)
    outcomes.close()
    assert stop.is_set()


def test_networks_that_tasks_share_are_trained_once(own_store):
    found = ahead(own_store, tasks=["shapes", "shapes?explains=other"], networks=["shapes-cnn"], seeds=[7])
    assert [len(found.subjects), len(found.trainings)] == [2, 1]
    failed = {found.trainings[0].stem: trainings.Failure("error", "no luck")}
    with pytest.raises(WeightsError, match="no luck"):
        planning.compile_plan(found.study, own_store, failed=failed)


def test_training_against_an_adversary_starts_from_what_was_trained_before(own_store):
    task = tasks.task("textbox/simple-fr")
    robust, plain, other = (Training(task, f"cnn3{end}", 0) for end in ("@robust", "@published", ""))
    assert waves([robust, plain, other]) == [[plain, other], [robust]]
    teacher = Teacher(specs.study(STUDY), Store(own_store), EXECUTORS.get("inline")(CPU), CPU)
    cell = teacher._cell(robust)
    path = library.find(task, cell.parameters["start"], 0)
    assert cell.subject.weights == path
    assert cell.parameters["settings"].adversary == 0.3
    sent, able = Brief(teacher.study, (cell,), training=True).travelling()
    assert able == {0}
    assert sent.cells[0].subject.weights == path.read_bytes()


def test_what_only_this_process_knows_is_trained_here(little, monkeypatch):
    (task,) = little(little_task(count=512))

    def mine(classes, features):
        return nn.Sequential(nn.Linear(features, classes))

    NETWORKS.register("mine", mine)
    monkeypatch.setitem(recipes.RECIPES, "own-one", recipes.RECIPES["fast"])
    try:
        assert not names.everywhere("mine")
        assert not names.everywhere("cnn4@own-one")
        assert names.everywhere("cnn@robust-0.1")
        cells = tuple(
            Cell(network, Subject(task, network, 0, None, ""), 1, 1) for network in ("mine", "ridge")
        )
        _, able = Brief(specs.study(STUDY), cells, training=True).travelling()
        assert able == {1}
        found = perform(Brief(specs.study(STUDY), cells, training=True), Job("ridge", 1, 0, 1), CPU)
        assert found.done
        assert found.entry is None
    finally:
        NETWORKS.unregister("mine")


def harm(path, how):
    """Damage a stored network in one way; gives a word of the reason."""
    record = path.with_suffix(".json")
    match how:
        case "weights truncated":
            path.write_bytes(path.read_bytes()[:-7])
            return "SHA-256"
        case "weights altered":
            data = bytearray(path.read_bytes())
            data[-3] ^= 1
            path.write_bytes(data)
            return "SHA-256"
        case "record truncated":
            record.write_bytes(record.read_bytes()[:40])
            return "record"
        case "record altered":
            record.write_text(record.read_text().replace('"epochs": 2', '"epochs": 3'))
            return "record"
        case "weights are a folder":
            path.unlink()
            path.mkdir()
            return "folder"
        case "record is a folder":
            record.unlink()
            (record / "inner").mkdir(parents=True)
            return "folder"
    raise AssertionError(how)


HARMS = [
    "weights truncated",
    "weights altered",
    "record truncated",
    "record altered",
    "weights are a folder",
    "record is a folder",
]


@pytest.mark.parametrize("how", HARMS)
def test_damaged_networks_are_set_aside_and_trained_again(little, how):
    little()
    settings = {"networks": ["mlp"], "seeds": [0], "store": "store", "quiet": True, "executor": "inline"}
    first = verax.run(STUDY, out="first", **settings)
    before = files("store")
    (path,) = (Path("store") / "networks").glob("*.safetensors")
    assert not any(upkeep.verify(Store(Path("store"))))
    word = harm(path, how)
    problems = [problem for problem in upkeep.verify(Store(Path("store"))) if problem is not None]
    assert [(problem.path, word in problem.reason) for problem in problems] == [(path.absolute(), True)]
    with pytest.warns(VeraxWarning, match=word) as heard:
        again = verax.run(STUDY, out="again", **settings)
    assert len(heard) == 1
    assert files("store") == before
    assert again.manifest["trained"]
    assert again.scores.equals(first.scores)
    assert len(list((Path("store") / "quarantine").iterdir())) == 2
    assert not any(upkeep.verify(Store(Path("store"))))
    third = verax.run(STUDY, out="third", **settings)
    assert not third.manifest["notes"]


def test_damaged_networks_are_named_where_nothing_is_trained(little):
    (task,) = little(little_task(count=512))
    settings = {"networks": ["mlp"], "seeds": [0], "store": "store", "quiet": True, "executor": "inline"}
    verax.run(STUDY, out="first", **settings)
    (path,) = (Path("store") / "networks").glob("*.safetensors")
    harm(path, "weights altered")
    with pytest.raises(WeightsError, match=r"SHA-256.*train"):
        verax.run({**STUDY, "missing": "stop"}, out="again", **settings)
    assert library.find(task, "mlp", 0, Path("store")) is None
    done = CliRunner().invoke(app, ["store", "verify", "--repair", "--store", "store"])
    assert done.exit_code == 0
    assert "1 are damaged" in done.output
    assert not files("store")


def test_records_of_older_versions_have_no_seal(little):
    (task,) = little(little_task(count=512))
    train("store", {"networks": ["ridge"]})
    path = library.find(task, "ridge", 0, Path("store"))
    record = json.loads(path.with_suffix(".json").read_text())
    del record["seal"]
    path.with_suffix(".json").write_text(json.dumps(record))
    assert library.find(task, "ridge", 0, Path("store")) == path
    assert not any(upkeep.verify(Store(Path("store"))))


def test_an_own_schedule_is_stored_under_a_name_of_its_own(little, own_store):
    (task,) = little(little_task(count=512))
    short = regression.Schedule(1e-3, 64, 1)
    fast = verax.train(task, "mlp", quiet=True)
    own = verax.train(task, "mlp", recipe=short, quiet=True)
    assert fast.save() != own.save()
    for name, done in (("mlp", fast), ("mlp@own", own)):
        for a, b in zip(task.network(name).parameters(), done.model.parameters(), strict=True):
            assert torch.equal(a, b)
    record = records.record(library.find(task, "mlp@own", 0))
    assert record["command"] == f"verax.train(task, 'mlp', seed=0, recipe={short!r}).save()"
    study = {**STUDY, "networks": ["mlp", "mlp@own"], "seeds": [0], "missing": "stop"}
    run = verax.run(study, quiet=True, executor="processes", workers=1)
    assert [n["network"] for n in run.manifest["networks"]] == ["mlp", "mlp@own"]
    with pytest.raises(InvalidParameter, match="no recipe 'own'"):
        verax.train(task, "mlp@own")


def test_what_training_took_is_said_in_words_that_fit(little, own_store, capsys):
    little()
    for network, words in (("ridge", "(solved, not trained) ->"), ("mlp", "after 2 epochs ->")):
        done = CliRunner().invoke(app, ["train", "little/climate", "--network", network, "--quiet"])
        assert words in " ".join(done.stdout.split()), done.output


@pytest.mark.slow
def test_weights_of_a_convolutional_network_do_not_depend_on_who_trains(monkeypatch):
    tiny = recipes.Recipe(rate=1e-3, batch=64, epochs=1, scenes=32, cycle=True, clip=1.0, stop=1e-9)
    monkeypatch.setitem(recipes.RECIPES, "fast", tiny)
    changes = {"tasks": ["worlds/colour"], "networks": ["cnn3"], "seeds": [5], "protocols": ["sound"]}
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert len(train("one", changes).trained) == 1
    finally:
        torch.set_num_threads(before)
    assert len(train("two", changes, executor="processes", workers=1).trained) == 1
    assert files("two") == files("one")  # weights and records, to the byte
    assert len(files("one")) == 2
