"""Ray: a real cluster of several nodes on this machine, which lose and gain nodes, workers and drivers."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import verax
from little_climate import little_field, little_task
from verax.errors import ClusterError, InvalidParameter
from verax.methods import METHODS
from verax.networks import regression
from verax.studies import upkeep
from verax.studies.driving import Driver
from verax.studies.store import Store
from verax.tasks.climate.task import Climate

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'verax[cluster]'")
from ray.cluster_utils import Cluster  # noqa: E402

STUDY = {
    "name": "clustered",
    "tasks": ["textbox/simple-fr"],
    "networks": ["cnn3"],
    "methods": ["gradient", "smoothgrad", "lrp-epsilon"],
    "protocols": ["sound"],
    "samples": 4,
    "certify": 2,
}
NODE = {"num_cpus": 1, "object_store_memory": 10**8}


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("verax.studies.plan.BLOCK", 24)  # two blocks a method


@pytest.fixture(scope="module")
def cluster():
    """Two nodes with a core each."""
    made = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    made.extra = made.add_node(**NODE)
    yield made
    made.shutdown()


@pytest.fixture
def own():
    """Registers methods for one test."""
    names = []

    def register(name, function):
        verax.method(name, version="1")(function)
        names.append(name)

    yield register
    for name in names:
        METHODS.unregister(name)


def table(folder):
    return (Path(folder) / "scores.parquet").read_bytes()


def workers():
    """Processes that perform a task of ours at the moment."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if (place / "cmdline").read_bytes().startswith(b"ray::_serve"):
                found.append(int(place.name))
        except OSError:
            continue
    return found


def slowly_noting(folder):
    """A method that notes where it runs; defined here, it travels by value."""
    helper = 2

    def noting(model, inputs, targets):
        node = ray.get_runtime_context().get_node_id()
        time.sleep(0.3)
        (Path(folder) / f"{node}-{time.time_ns()}").touch()
        return inputs * helper

    return noting


def plainly(model, inputs, targets):
    return inputs * 2


def test_a_node_goes_and_another_comes(cluster, tmp_path, own, monkeypatch):
    """The same scores, byte for byte, as in this process alone; every unit once in the store."""
    methods = [*STUDY["methods"], "noting"]
    own("noting", plainly)
    verax.run(STUDY, methods=methods, quiet=True, store="one", out="one-run")
    METHODS.unregister("noting")
    seen = tmp_path / "seen"
    seen.mkdir()
    own("noting", slowly_noting(seen))
    settle, settled, gone = Driver._settle, [], []

    def meddling(self, outcome):
        settle(self, outcome)
        settled.append(outcome.job.key)
        if len(settled) == 3:
            gone.append(cluster.extra.node_id)
            cluster.remove_node(cluster.extra, allow_graceful=False)
            cluster.extra = cluster.add_node(**NODE)

    monkeypatch.setattr(Driver, "_settle", meddling)
    run = verax.run(
        STUDY,
        methods=methods,
        quiet=True,
        store="two",
        out="two-run",
        executor="ray",
        address=cluster.address,
    )
    assert gone
    assert run.manifest["executor"] == {"name": "ray", "workers": 2}
    assert sorted(settled) == sorted(set(settled))  # no outcome twice
    assert run.manifest["computed_units"] == run.manifest["total_units"] == len(settled)
    assert run.manifest["failures"] == []
    assert any(seen.iterdir())  # what was defined here ran there
    assert table("one-run") == table("two-run")
    assert not any(upkeep.verify(Store(Path("two"))))


def test_units_that_kill_their_worker_hang_or_raise(cluster, tmp_path, own):
    """They are recorded as by other executors, and the rest goes on."""
    mark = tmp_path / "died"

    def dies_once(model, inputs, targets):
        if not mark.exists():
            mark.write_text("")
            os.kill(os.getpid(), signal.SIGKILL)
        return inputs

    def dies_always(model, inputs, targets):
        os.kill(os.getpid(), signal.SIGKILL)

    def sleeps(model, inputs, targets):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
        time.sleep(600)

    def raises(model, inputs, targets):
        raise ArithmeticError("no such thing")

    for function in (dies_once, dies_always, sleeps, raises):
        own(function.__name__, function)
    names = ["dies_once", "dies_always", "sleeps", "raises", "gradient"]
    begun = time.monotonic()
    with pytest.warns(verax.errors.VeraxWarning):
        run = verax.run(
            {**STUDY, "samples": 2, "certify": 0},
            methods=names,
            quiet=True,
            executor="ray",
            address=cluster.address,
            time_limit=4,
        )
    assert time.monotonic() - begun < 300
    failed = {entry["method"]: (entry["kind"], entry["reason"]) for entry in run.manifest["failures"]}
    assert {name: kind for name, (kind, _) in failed.items()} == {
        "dies_always": "killed",
        "sleeps": "time",
        "raises": "method",
    }
    assert "4 s" in failed["sleeps"][1]
    assert "no such thing" in failed["raises"][1]
    assert {"dies_once", "gradient"} <= set(run.scores["method"])


DRIVER = os.getpid()


class Deadly(Climate):
    """A task that kills whoever trains on it, but for this process; defined here, it travels by value."""

    def drawn(self, purpose="train", count=None, seed=0):
        if os.getpid() != DRIVER:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().drawn(purpose, count, seed)


def test_networks_are_trained_there_and_have_the_same_weights(cluster, monkeypatch):
    monkeypatch.setitem(regression.SCHEDULES, "fast", regression.Schedule(3e-3, 100, 2))
    monkeypatch.setattr(regression, "_LEAST", 1)
    good, bad = little_task(count=512), Deadly("bad/dies", little_field(), count=512)
    study = {**STUDY, "networks": ["mlp", "ridge"], "protocols": ["exact"], "missing": "train", "certify": 0}
    study = {**study, "methods": ["gradient"], "samples": 2}
    verax.run(study, tasks=[good], quiet=True, store="one", out="one-run", executor="inline")
    with pytest.warns(verax.errors.VeraxWarning, match="bad/dies .*: training: The worker was killed twice"):
        run = verax.run(
            study,
            tasks=[good, bad],
            quiet=True,
            store="two",
            out="two-run",
            executor="ray",
            address=cluster.address,
        )
    assert [entry["task"] for entry in run.manifest["trained"]] == [good.name] * 2
    assert {entry["kind"] for entry in run.failures} == {"killed"}
    stored = [{p.name: p.read_bytes() for p in Path(s, "networks").iterdir()} for s in ("one", "two")]
    assert stored[0] == stored[1]
    assert len(stored[0]) == 4
    assert table("one-run") == table("two-run")


CHILD = """
import sys
from pathlib import Path
import verax
from verax.studies import plan
from verax.studies.driving import Driver
plan.BLOCK = 24
job = Driver._job

def noted(self, unit):
    with Path(sys.argv[4]).open("a") as file:
        file.write(unit.key + "\\n")
    return job(self, unit)

Driver._job = noted
verax.run({study!r}, quiet=True, store=sys.argv[2], out=sys.argv[3], executor="ray", address=sys.argv[1])
"""


def driver(cluster, store, out, handed):
    """A driver in a process of its own, which notes every unit that it hands out."""
    line = [sys.executable, "-c", CHILD.format(study=STUDY), cluster.address, store, out, handed]
    return subprocess.Popen([str(word) for word in line], stderr=subprocess.DEVNULL)


def keys_in(store):
    return {entry.key for entry in upkeep.listing(Store(store)) if entry.kind != "failure"}


def wait_for(process, condition, seconds=120):
    until = time.monotonic() + seconds
    while process.poll() is None and not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


def killed_and_resumed(cluster, folder, kills, draw):
    """Kill drivers and workers at random until the study is done; how many of each were killed."""
    count = {"driver": 0, "worker": 0}
    store, out = folder / "store", folder / "run"
    for attempt in range(200):
        finished, handed = keys_in(store), folder / f"handed{attempt}"
        handed.write_text("")
        process = driver(cluster, store, out, handed)
        wait_for(process, workers)
        time.sleep(draw.uniform(0, 0.5))
        if count["worker"] < kills and (found := workers()):
            try:
                os.kill(draw.choice(found), signal.SIGKILL)
                count["worker"] += 1
            except ProcessLookupError:
                pass
        if count["driver"] < kills:
            before = len(finished)
            more = draw.randrange(1, 4)
            wait_for(process, lambda: len(keys_in(store)) >= before + more)  # noqa: B023
            if process.poll() is None:
                process.kill()
                count["driver"] += 1
        process.wait(180)
        assert not set(handed.read_text().split()) & finished, "a finished unit was handed out again"
        assert not any(upkeep.verify(Store(store)))
        if process.returncode == 0:
            return count
        assert process.returncode == -signal.SIGKILL
    raise AssertionError("it never came to an end")


def test_a_killed_worker_and_a_killed_driver(cluster, tmp_path):
    verax.run(STUDY, quiet=True, store=tmp_path / "clean-store", out=tmp_path / "clean")
    count = killed_and_resumed(cluster, tmp_path, 1, random.Random(1))
    assert count["driver"] == 1
    assert table(tmp_path / "clean") == table(tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_killed_many_times(cluster, tmp_path, seed):
    verax.run(STUDY, quiet=True, store=tmp_path / "clean-store", out=tmp_path / "clean")
    done = {"driver": 0, "worker": 0}
    for round_ in range(20):
        folder = tmp_path / f"round{round_}"
        folder.mkdir()
        for name, many in killed_and_resumed(cluster, folder, 3, random.Random(100 * seed + round_)).items():
            done[name] += many
        assert table(tmp_path / "clean") == table(folder / "run")
        if min(done.values()) >= 5:
            return
    raise AssertionError(f"too few were killed: {done}")


@pytest.mark.slow
def test_many_nodes_that_come_and_go(cluster, tmp_path, monkeypatch):
    study = {**STUDY, "samples": 20}
    verax.run(study, quiet=True, store="one", out="one-run")
    settle, settled = Driver._settle, []

    def meddling(self, outcome):
        settle(self, outcome)
        settled.append(outcome.job.key)
        if len(settled) % 12 == 0:
            cluster.remove_node(cluster.extra, allow_graceful=False)
            cluster.extra = cluster.add_node(**NODE)

    monkeypatch.setattr(Driver, "_settle", meddling)
    run = verax.run(
        study, quiet=True, store="two", out="two-run", executor="ray", address=cluster.address, keep_maps=True
    )
    assert len(settled) == len(set(settled)) == run.manifest["total_units"] >= 36
    assert table("one-run") == table("two-run")


def test_what_cannot_work_is_said_in_one_sentence():
    tiny = {**STUDY, "samples": 1, "certify": 0}
    with pytest.raises(ClusterError, match=r"reached at '127\.0\.0\.1:9'"):
        verax.run(tiny, quiet=True, executor="ray", address="127.0.0.1:9")
    with pytest.raises(InvalidParameter, match="auto, local or HOST:PORT"):
        verax.run(tiny, quiet=True, executor="ray", address="somewhere")
    with pytest.raises(InvalidParameter, match="Ray client"):
        verax.run(tiny, quiet=True, executor="ray", address="ray://head:10001")
    with pytest.raises(InvalidParameter, match="num_cpus"):
        verax.run(tiny, quiet=True, executor="ray", num_cpus=0)
    with pytest.raises(InvalidParameter, match="no option 'gpus'"):
        verax.run(tiny, quiet=True, executor="ray", gpus=0)


def test_no_machine_is_large_enough(cluster):
    with pytest.raises(ClusterError, match=r"No machine .* 64 CPU"):
        verax.run(
            {**STUDY, "certify": 0},
            quiet=True,
            executor="ray",
            address=cluster.address,
            num_cpus=64,
            patience=0.1,
        )
