"""Studies when things go wrong: units that fail, workers that die, full disks, wrong clocks."""

import io
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import bad_workers
import verax
from verax.errors import MethodFailed, MissingFile, OutputError, VeraxWarning, WeightsError
from verax.methods import METHODS
from verax.metrics import METRICS
from verax.networks import library, teaching
from verax.studies import entries, running, upkeep, work
from verax.studies import plan as planning
from verax.studies import spec as specs
from verax.studies.entries import unpack
from verax.studies.execution import Bench
from verax.studies.executors import processes
from verax.studies.executors.processes import Processes
from verax.studies.failures import Failure
from verax.studies.store import Store
from verax.studies.units import Subject
from verax.studies.work import Brief, Job

SMALL = {
    "name": "faulty",
    "tasks": ["textbox/simple-fr"],
    "networks": ["cnn3"],
    "methods": ["gradient"],
    "protocols": ["sound"],
    "samples": 2,
    "certify": 0,
}


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def own():
    """Registers methods for one test."""
    names = []

    def register(name, function, version="1"):
        verax.method(name, version=version)(function)
        names.append(name)
        return name

    yield register
    for name in names:
        METHODS.unregister(name)


@pytest.fixture
def computed(monkeypatch):
    names = []
    begin = Bench.begin

    def watched(self, unit, given=None):
        if given is None:
            names.append(unit.name)
        return begin(self, unit, given)

    monkeypatch.setattr(Bench, "begin", watched)
    return names


# -- units that fail -----------------------------------------------------------------------------------------


def raises(model, inputs, targets):
    raise ValueError("no idea")


def runs_out_of_memory(model, inputs, targets):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 7 GiB\nmore words")


def has_the_wrong_shape(model, inputs, targets):
    return inputs[:, :, :5]


def hangs(model, inputs, targets):
    time.sleep(60)
    return inputs


@pytest.mark.parametrize(
    ("function", "kind", "words"),
    [
        (raises, "method", "no idea"),
        (runs_out_of_memory, "memory", "Out of memory: CUDA out of memory. Tried to allocate 7 GiB"),
        (has_the_wrong_shape, "method", "must return the shape of its inputs"),
        (hangs, "time", "Took longer than the time limit of 4 s."),
    ],
)
def test_a_unit_that_fails_is_recorded_and_only_it_is_tried_again(
    function, kind, words, own, own_store, computed
):
    name = own("bad", function)
    with pytest.warns(VeraxWarning):
        run = verax.run(SMALL, methods=[name, "gradient"], quiet=True, time_limit=4 if kind == "time" else 60)
    assert [failure["kind"] for failure in run.failures] == [kind]
    assert words in run.failures[0]["reason"]
    assert "gradient" in set(run.scores["method"])
    assert "bad" not in set(run.scores["method"])
    if kind == "time":
        assert words in run.report().read_text()
    recorded = [entry for entry in upkeep.listing(Store(own_store)) if entry.kind == "failure"]
    assert len(recorded) == 1
    assert not any(upkeep.verify(Store(own_store)))

    computed.clear()
    own("bad", lambda model, inputs, targets: inputs)
    again = verax.run(SMALL, methods=[name, "gradient"], quiet=True)
    assert [unit.rpartition(": ")[2] for unit in computed] == ["bad"]
    assert again.failures == []
    assert "bad" in set(again.scores["method"])


def test_memory_is_halved_before_a_unit_fails(own):
    seen = []

    def hungry(model, inputs, targets):
        seen.append(len(inputs))
        if len(inputs) > 5:
            raise torch.OutOfMemoryError("too large")
        return inputs

    run = verax.run(SMALL, methods=[own("hungry", hungry), "gradient"], quiet=True)
    assert "hungry" in set(run.scores["method"])
    assert seen[0] > 5
    assert seen[:4] == [24, 24, 16, 8]
    assert max(seen[4:]) <= 5


@pytest.mark.parametrize("rows", [12, 1])
def test_halved_batches_change_maps_by_rounding_alone(own, rows):
    """Matrix libraries have other kernels for passes of one or two rows: docs/studies.md says how far."""
    explain = METHODS.get("gradient").function

    def hungry(model, inputs, targets):
        if len(inputs) > rows:
            raise torch.OutOfMemoryError("too large")
        return explain(model, inputs, targets)

    run = verax.run(SMALL, methods=[own("hungry", hungry), "gradient"], quiet=True, executor="inline")
    halved, whole = (
        run.scores.query(f"method == '{name}'")["value"].to_numpy() for name in ("hungry", "gradient")
    )
    assert len(whole)
    assert np.abs(halved - whole).max() < 2e-5  # of the order of 1e-6, times what scores make of it


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_maps_that_are_not_numbers_are_results(value, own, own_store):
    name = own("odd", lambda model, inputs, targets: torch.full_like(inputs, value))
    with pytest.warns(VeraxWarning, match="odd: all 24 maps are constant or not finite"):
        run = verax.run(SMALL, methods=[name], quiet=True)
    assert run.failures == []
    assert run.scores.query("method == 'odd'")["degenerate"].all()


def test_policies_of_a_run(own, computed):
    name = own("bad", raises)
    with pytest.warns(VeraxWarning):
        first = verax.run(SMALL, methods=[name, "gradient"], quiet=True)
    count = len(computed)
    own("bad", lambda model, inputs, targets: inputs)

    def rerun(overwrite, **changes):
        computed.clear()
        return verax.run(SMALL, methods=[name, "gradient"], quiet=True, overwrite=overwrite, **changes)

    with pytest.warns(VeraxWarning, match="no idea"):
        nothing = rerun("never")
    assert computed == []
    assert [f["reason"] for f in nothing.failures] == [f["reason"] for f in first.failures]
    with pytest.raises(MethodFailed, match="not computed: --overwrite failed"):
        rerun("failed", out="more", seed=1)  # nothing of this seed has failed
    assert computed == []
    assert rerun("failed").failures == []
    assert [unit.rpartition(": ")[2] for unit in computed] == ["bad"]
    assert rerun("all").failures == []
    assert len(computed) == count


def test_nothing_in_the_store_and_nothing_to_compute():
    with pytest.raises(MethodFailed, match="overwrite never"):
        verax.run(SMALL, quiet=True, overwrite="never")


# -- maps are kept -------------------------------------------------------------------------------------------


def test_kept_maps_are_scored_again_without_being_explained_again(own, own_store, monkeypatch):
    calls = []

    def counted(model, inputs, targets):
        calls.append(len(inputs))
        return inputs * 3

    name = own("counted", counted)
    verax.run(SMALL, methods=[name], quiet=True, keep_maps=True)
    assert sum(calls) == 24
    calls.clear()
    both = verax.run(SMALL, methods=[name], quiet=True, protocols=["sound", "published"], out="both")
    assert calls == []
    assert set(both.scores["protocol"]) == {"sound", "published"}
    fresh = verax.run(
        SMALL, methods=[name], quiet=True, protocols=["sound", "published"], out="fresh", store="fresh-store"
    )
    assert sum(calls) == 24
    assert (both.folder / "scores.parquet").read_bytes() == (fresh.folder / "scores.parquet").read_bytes()
    kinds = [entry.kind for entry in upkeep.listing(Store(own_store))]
    assert kinds.count("maps") == len(set(both.scores["method"]))


def test_asking_for_maps_later_makes_them(own, own_store):
    name = own("plain", lambda model, inputs, targets: inputs)
    verax.run(SMALL, methods=[name], quiet=True)
    assert not [e for e in upkeep.listing(Store(own_store)) if e.kind == "maps"]
    verax.run(SMALL, methods=[name], quiet=True, keep_maps=True)
    assert [e for e in upkeep.listing(Store(own_store)) if e.kind == "maps"]


# -- blocks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["gradient", "smoothgrad", "random"])
def test_scores_do_not_depend_on_blocks_or_their_order(method, own_store):
    """Counter-based random numbers: a sample's map is its own. Batches differ, so the last digit may."""
    given = {"name": method, "label": method, **({"samples": 3} if method == "smoothgrad" else {})}
    study = specs.study({**SMALL, "samples": 3, "methods": [given]})
    device, tables = torch.device("cpu"), {}
    for block in (3, 2, 1):
        plan = planning.compile_plan(study, own_store, block=block)
        brief = Brief(plan.study, plan.cells)
        parts = []
        for unit in reversed([unit for unit in plan.units if unit.label == method]):
            outcome = work.perform(brief, Job(unit.key, unit.index, unit.start, unit.count), device)
            parts.append(unpack(outcome.entry).tables["sound"])
        tables[block] = pd.concat(parts).sort_values("sample", ignore_index=True)
    for block in (2, 1):
        assert tables[block]["sample"].tolist() == tables[3]["sample"].tolist()
        columns = tables[3].columns.drop(["sample", "group", "degenerate", "wrong"])
        np.testing.assert_allclose(
            tables[block][columns].to_numpy(float), tables[3][columns].to_numpy(float), rtol=0, atol=1e-5
        )


def test_a_run_of_several_blocks_is_put_together(monkeypatch):
    whole = verax.run(SMALL, quiet=True, samples=5, store="one", out="one")
    monkeypatch.setattr(planning, "BLOCK", 24 * 3 * 64 * 64)  # two samples of each of twelve buckets
    cut = verax.run(SMALL, quiet=True, samples=5, store="two", out="two")
    assert cut.manifest["total_units"] == 3 * whole.manifest["total_units"]
    keys = ["method", "protocol", "metric", "group", "sample"]
    one, two = (run.scores.sort_values(keys)["value"].to_numpy() for run in (whole, cut))
    np.testing.assert_allclose(one, two, atol=1e-5)
    for left, right in zip(whole.manifest["units"], cut.manifest["units"], strict=True):
        assert (left["name"], left["samples"], left["wrong"]) == (
            right["name"],
            right["samples"],
            right["wrong"],
        )
    assert {name: maps.shape for name, maps in whole.maps().items()} == {
        name: maps.shape for name, maps in cut.maps().items()
    }
    more = verax.run(SMALL, quiet=True, samples=6, store="two", out="three")
    # the blocks [0:2] and [2:4] of every method are there already, [4:6] is new
    assert more.manifest["reused_units"] == 2 * len(more.manifest["units"])


def test_a_training_that_fails_is_recorded_and_the_rest_goes_on(monkeypatch):
    real, fails = teaching.train, [True]

    def train(task, network, **options):
        if network == "ridge" and fails[0]:
            raise torch.OutOfMemoryError("no room for it\nand more words")
        return real(task, network, **options)

    monkeypatch.setattr(teaching, "train", train)
    study = {
        **SMALL,
        "tasks": ["climate/analytic?samples=600"],
        "networks": ["linear", "ridge"],
        "protocols": ["exact"],
        "missing": "train",
    }
    with pytest.warns(VeraxWarning, match="ridge seed 0: training: Out of memory: no room for it$"):
        run = verax.run(study, quiet=True, executor="inline")
    assert set(run.scores["network"].unique()) == {"linear"}
    assert [failure["reason"] for failure in run.failures] == ["Out of memory: no room for it"]
    with pytest.raises(WeightsError, match="No network of the study could be trained: Out of memory: no"):
        verax.run({**study, "networks": ["ridge"]}, quiet=True)
    fails[0] = False
    again = verax.run(study, quiet=True)
    assert set(again.scores["network"].unique()) == {"linear", "ridge"}
    assert not again.failures


def test_a_cell_with_a_missing_block_has_no_rows(own, monkeypatch):
    monkeypatch.setattr(planning, "BLOCK", 24 * 3 * 64 * 64)
    seen = []

    def sometimes(model, inputs, targets):
        seen.append(len(inputs))
        if len(seen) == 2:
            raise ValueError("now and then")
        return inputs

    name = own("sometimes", sometimes)
    with pytest.warns(VeraxWarning, match=r"\[2:4\].*now and then"):
        run = verax.run(SMALL, methods=[name, "gradient"], quiet=True, samples=6)
    assert "sometimes" not in set(run.scores["method"])
    assert len(run.failures) == 1
    again = verax.run(SMALL, methods=[name, "gradient"], quiet=True, samples=6)
    assert len(seen) == 4
    assert "sometimes" in set(again.scores["method"])


# -- disks and other runs ------------------------------------------------------------------------------------


def test_a_disk_that_fills_up_stops_the_run_and_loses_nothing(own_store, monkeypatch, computed):
    put, written = Store.put, []

    def full(self, entry):
        if len(written) == 3:
            raise OutputError(f"Cannot write {str(self.folder)!r}: No space left on device.")
        put(self, entry)
        written.append(entry.key)

    monkeypatch.setattr(Store, "put", full)
    with pytest.raises(OutputError, match="No space left"):
        verax.run(SMALL, quiet=True)
    monkeypatch.setattr(Store, "put", put)
    computed.clear()
    run = verax.run(SMALL, quiet=True)
    assert run.manifest["reused_units"] == 3
    assert len(computed) == len(run.manifest["units"]) - 3


def test_no_folder_for_temporary_files_is_one_sentence(own_store, monkeypatch):
    def refuse(**_):
        raise FileNotFoundError("No usable temporary directory")

    monkeypatch.setattr("verax.studies.running.tempfile.TemporaryDirectory", refuse)
    with pytest.raises(OutputError, match="TMPDIR"):
        verax.run(SMALL, quiet=True)


def test_a_small_disk(tmp_path, own_store):
    """A file system of 48 kB where mounting is allowed; elsewhere a limit on the size of files."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = (
        os.geteuid() == 0
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=48k", "tmpfs", str(small)], capture_output=True
        ).returncode
    )
    if not mounted:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, before[1]))
    try:
        with pytest.raises(OutputError, match=r"Cannot write .*(No space left|File too large)"):
            verax.run(SMALL, quiet=True, samples=20, store=small, out=tmp_path / "run")
        assert not any(upkeep.verify(Store(small)))
    finally:
        if mounted:
            subprocess.run(["umount", str(small)], check=True)
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, old)


def _run_there(study, store, out):
    torch.set_num_threads(1)
    verax.run(study, quiet=True, store=store, out=out)


def test_two_runs_at_the_same_time_on_one_store(tmp_path):
    context = multiprocessing.get_context("fork")
    study = {**SMALL, "methods": ["gradient", "input-x-gradient", "guided-backprop"]}
    runs = [
        context.Process(target=_run_there, args=(study, tmp_path / "s", tmp_path / f"r{k}")) for k in (0, 1)
    ]
    for process in runs:
        process.start()
    for process in runs:
        process.join()
        assert process.exitcode == 0
    tables = [(tmp_path / f"r{k}" / "scores.parquet").read_bytes() for k in (0, 1)]
    assert tables[0] == tables[1]
    assert not any(upkeep.verify(Store(tmp_path / "s")))


def test_a_clock_that_goes_backwards(monkeypatch):
    times = iter(range(10**9, 0, -3600))
    first = verax.run(SMALL, quiet=True, store="one", out="one")
    monkeypatch.setattr(time, "time", lambda: float(next(times)))
    back = verax.run(SMALL, quiet=True, store="two", out="two")
    assert (first.folder / "scores.parquet").read_bytes() == (back.folder / "scores.parquet").read_bytes()


# -- workers -------------------------------------------------------------------------------------------------


def test_workers_that_die_or_hang(own_store, tmp_path, monkeypatch):
    """One worker dies once (tried again), one always (failure), one hangs (killed); the others go on."""
    monkeypatch.setenv("WORKERS_LOG", str(tmp_path))

    for name in ("dies_once", "dies_always", "sleeps"):
        verax.method(name, version="1")(getattr(bad_workers, name))
    try:
        study = specs.study({**SMALL, "methods": ["dies_once", "dies_always", "sleeps", "gradient"]})
        plan = planning.compile_plan(study, own_store)
        brief = Brief(plan.study, plan.cells, time_limit=15)
        sent, able = brief.travelling()
        assert len(able) == len(plan.cells)
        jobs = (Job(unit.key, unit.index, unit.start, unit.count) for unit in plan.units)
        done = list(Processes(torch.device("cpu"), 2).outcomes(sent, jobs))
    finally:
        for name in ("dies_once", "dies_always", "sleeps"):
            METHODS.unregister(name)
    found = {plan.cells[outcome.job.cell].label: outcome for outcome in done}
    assert len(done) == len(found) == len(plan.cells)
    assert found["dies_once"].failure is None
    assert found["dies_always"].failure.kind == "killed"
    assert "exit code -9" in found["dies_always"].failure.reason
    assert found["sleeps"].failure.kind == "time"
    assert all(o.failure is None for label, o in found.items() if label not in ("dies_always", "sleeps"))


def test_a_run_folder_that_was_begun_is_gone_on_with(tmp_path):
    run = verax.run(SMALL, quiet=True)
    for name in ("manifest.json", "maps.safetensors"):
        (run.folder / name).unlink()
    (run.folder / ".maps.safetensors.1-2-3").write_text("half")
    assert verax.run(SMALL, quiet=True).folder == run.folder
    (run.folder / "manifest.json").unlink()
    (run.folder / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match="holds other things"):
        verax.run(SMALL, quiet=True)


# -- what is left of earlier runs ----------------------------------------------------------------------------


def exits(model, inputs, targets):
    raise SystemExit(0)


def test_a_method_that_ends_the_program_fails_alone(own):
    with pytest.warns(VeraxWarning):
        run = verax.run(SMALL, methods=[own("exits", exits), "gradient"], quiet=True)
    assert re.search(r"'exits' failed with SystemExit: 0 \(test_faults.py:\d+\)", run.failures[0]["reason"])
    assert "gradient" in set(run.scores["method"])


def _spoil(store, words):
    """Change a byte in the part of the entry whose info has (or lacks) samples."""
    for entry in upkeep.listing(Store(store)):
        for path in Store(store).place(entry.key).glob(f"{entry.key}.*.{words}"):
            data = bytearray(path.read_bytes())
            data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
            path.write_bytes(data)


def test_kept_maps_that_were_changed_are_not_scored(own_store):
    first = verax.run(SMALL, quiet=True, keep_maps=True)
    _spoil(own_store, "safetensors")
    again = verax.run({**SMALL, "protocols": ["sound", "published"]}, quiet=True)
    ours, theirs = (
        run.rows("sound", "focus-share").sort_values(["method", "sample"])["value"].to_numpy()
        for run in (first, again)
    )
    np.testing.assert_array_equal(ours, theirs)
    assert again.manifest["damaged_entries"] > 0


def test_a_damaged_entry_that_is_not_made_again_is_missed(own_store):
    verax.run(SMALL, quiet=True)
    _spoil(own_store, "parquet")
    with pytest.raises(MethodFailed, match="was damaged and is set aside"):
        verax.run(SMALL, quiet=True, overwrite="never")


def test_old_results_do_not_stand_in_for_units_that_fail_now(own):
    name = own("fickle", lambda model, inputs, targets: inputs)
    verax.run(SMALL, methods=[name, "gradient"], quiet=True)
    own("fickle", raises)
    with pytest.warns(VeraxWarning):
        again = verax.run(SMALL, methods=[name, "gradient"], quiet=True, overwrite="all")
    assert [failure["method"] for failure in again.failures] == ["fickle"]
    assert set(again.scores["method"]).isdisjoint({"fickle"})


def stopped(*_, **__):
    raise KeyboardInterrupt


def test_a_run_that_was_stopped_while_it_was_written_is_no_run(tmp_path, monkeypatch):
    folder = tmp_path / "out"
    verax.run(SMALL, quiet=True, out=folder)
    with monkeypatch.context() as patched:
        patched.setattr(
            "verax.studies.writing.write", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        with pytest.raises(KeyboardInterrupt):
            verax.run(SMALL, quiet=True, out=folder, seed=7)
    with pytest.raises(MissingFile, match="stopped before it was written"):
        verax.Run(folder).leaderboard()
    assert verax.run(SMALL, quiet=True, out=folder, seed=7).manifest["study"]["seed"] == 7


def test_the_time_limit_does_not_count_the_start_of_workers():
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=time.sleep, args=(60,), daemon=True)
    process.start()
    since = time.monotonic() - 10
    worker = processes._Worker(process, ours, Job("key", 0, 0, 1), since)
    assert list(processes._settled([worker], 5, "code")) == []  # it is still importing torch
    theirs.send(processes._Ready("code"))
    assert list(processes._settled([worker], 5, "code")) == []
    assert worker.ready
    assert worker.since > since + 5  # now the clock runs
    worker.since -= 10
    (late,) = processes._settled([worker], 5, "code")
    assert late.outcome.failure.kind == "time"
    assert not process.is_alive()


def changes_everything(model, inputs, targets):
    """An own method of bad manners."""
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    torch.manual_seed(1)
    torch.set_num_threads(2)
    torch.use_deterministic_algorithms(True, warn_only=True)
    np.random.seed(1)  # noqa: NPY002
    np.seterr(all="raise")
    random.seed(1)
    return inputs.clone()


def changes_everything_too(maps, truth):
    changes_everything(None, maps, None)
    return maps.sum((1, 2))


def surroundings():
    return (
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.get_rng_state().tolist(),
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        str(np.random.get_state()),  # noqa: NPY002
        np.geterr(),
        random.getstate(),
    )


def test_a_method_that_changes_the_process_does_not_disturb_what_comes_after_it(own):
    before = surroundings()
    own("rude", changes_everything)
    settings = {"protocols": ["sound", "published"], "quiet": True, "executor": "inline", "store": "store"}
    plain = verax.run(SMALL, methods=["gradient", "smoothgrad"], out="plain", **settings)
    try:
        verax.metric("rude-metric", higher_is_better=True)(changes_everything_too)
        mixed = verax.run(
            SMALL,
            methods=["rude", "gradient", "smoothgrad"],
            metrics=["rude-metric"],
            out="mixed",
            overwrite="all",
            **settings,
        )
    finally:
        METRICS.unregister("rude-metric")
    assert surroundings() == before
    assert not mixed.failures
    tables = [
        run.scores[
            run.scores["method"].isin(["gradient", "smoothgrad"]) & (run.scores["metric"] != "rude-metric")
        ]
        for run in (plain, mixed)
    ]
    words = {"metric": str, "method": str}
    pd.testing.assert_frame_equal(
        *(table.reset_index(drop=True).astype(words) for table in tables), check_exact=True
    )
    assert len(tables[0])
    verax.explain(torch.nn.Linear(3, 2), torch.rand(2, 3), method=changes_everything)
    assert surroundings()[0] == torch.float32


def test_weights_that_are_trained_anew_while_a_study_runs_are_not_taken_for_the_old_ones(tmp_path):
    task = verax.task("textbox/simple-fr")
    here = tmp_path / "network.safetensors"

    def put(name):
        found = library.SHIPPED / f"textbox-{name}_cnn3_seed0.safetensors"
        for ending in (".safetensors", ".json"):
            shutil.copy(found.with_suffix(ending), here.with_suffix(ending))
        return library.record(here)["sha256"]

    subject = Subject(task, "cnn3", 0, here, put("simple-fr"))
    study = specs.study({**SMALL, "tasks": [task.name], "networks": ["cnn3"]})
    Bench(subject, study, torch.device("cpu")).model()
    assert put("simple-nr") != subject.sha256
    with pytest.raises(WeightsError, match="was replaced"):
        Bench(subject, study, torch.device("cpu")).model()
    here.unlink()
    with pytest.raises(MissingFile, match="cannot be read"):
        Bench(subject, study, torch.device("cpu")).model()


@pytest.mark.parametrize("meanwhile", ["removed", "taken"])
def test_a_folder_that_goes_or_is_taken_before_the_run_is_written(meanwhile, tmp_path, monkeypatch):
    """Scores of one study must never stand beside the manifest of another."""
    identify, asked = running._identify, []

    def before(*given):
        if not asked:
            asked.append(1)
            if meanwhile == "removed":
                shutil.rmtree(tmp_path / "run")
            else:
                verax.run({**SMALL, "seed": 5}, quiet=True, out=tmp_path / "run")
        return identify(*given)

    monkeypatch.setattr(running, "_identify", before)
    with pytest.raises(OutputError, match="removed, or another run writes to it"):
        verax.run(SMALL, quiet=True, out=tmp_path / "run")
    if meanwhile == "taken":
        assert verax.Run(tmp_path / "run").manifest["study"]["seed"] == 5
    again = verax.run(SMALL, quiet=True, out=tmp_path / "run")
    assert again.manifest["reused_units"] == again.manifest["total_units"]
    assert again.manifest["study"]["seed"] == 0


def test_a_method_that_goes_to_another_folder_takes_nobody_along(tmp_path, own):
    """Stores and run folders may be named from the working directory, which belongs to the whole process."""
    away = tmp_path / "away"
    away.mkdir()

    def wanders(model, inputs, targets):
        os.chdir(away)
        return inputs

    study = {**SMALL, "methods": ["gradient", own("wanders", wanders), "input-x-gradient"]}
    run = verax.run(study, quiet=True, store="store", out="run", executor="inline")
    assert Path.cwd() == tmp_path
    assert {"gradient", "wanders", "input-x-gradient"} <= set(run.scores["method"])
    assert list(away.iterdir()) == []


@pytest.mark.filterwarnings("ignore::verax.errors.VeraxWarning")
@pytest.mark.parametrize("overwrite", ["missing", "never"])
def test_entries_that_go_while_a_study_runs_are_made_again_or_missed(overwrite, own_store, monkeypatch):
    """No method may be left out of the scores without a word."""
    verax.run(SMALL, quiet=True, out="first")
    tabled, asked = running._tabled, []

    def before(driver, target):
        if not asked:
            asked.append(1)
            (unit,) = (unit for unit in driver.plan.units if unit.label == "gradient")
            (driver.stores.kept.place(unit.key) / f"{unit.key}.json").unlink()
        return tabled(driver, target)

    monkeypatch.setattr(running, "_tabled", before)
    run = verax.run(SMALL, quiet=True, out="second", overwrite=overwrite)
    kinds = {failure["method"]: failure["kind"] for failure in run.failures}
    there = "gradient" in set(run.scores["method"])
    assert (there, kinds) == ((True, {}) if overwrite == "missing" else (False, {"gradient": "skipped"}))
    counts = [run.manifest[f"{name}_units"] for name in ("computed", "reused", "total")]
    assert counts[0] == int(there)
    assert counts[1] == counts[2] - 1


def twice(table):
    """A metric that stands there twice."""
    name = next(name for name in table.column_names if name not in ("group", "sample", "degenerate", "wrong"))
    return pa.Table.from_arrays([*table.columns, table[name]], names=[*table.column_names, name])


def gap(table):
    """A row that does not say whether its map is degenerate."""
    values = [None, *table["degenerate"].to_pylist()[1:]]
    place = table.column_names.index("degenerate")
    return table.set_column(place, "degenerate", pa.array(values, pa.bool_()))


def words(table):
    """Names instead of buckets."""
    return table.set_column(table.column_names.index("group"), "group", pa.array(["one"] * len(table)))


@pytest.mark.parametrize("harm", [twice, gap, words])
def test_tables_that_cannot_be_used_are_made_again(tmp_path, harm):
    asked = {"name": "r", "tasks": ["textbox/simple-fr"], "networks": ["wired"], "methods": ["gradient"]}
    asked |= {"samples": 2, "certify": 0, "protocols": ["sound"]}
    store = tmp_path / "store"
    first = verax.run(asked, quiet=True, store=store, out=tmp_path / "first")
    head = next(path for path in store.rglob("*.json") if "sound.parquet" in path.read_text())
    content = json.loads(head.read_text())
    name = next(name for name in content["parts"] if name.endswith("sound.parquet"))
    data = io.BytesIO()
    pq.write_table(harm(pq.read_table(head.parent / name)), data)
    other = f"{content['key']}.{entries.sha256(data.getvalue())[:12]}.sound.parquet"
    (head.parent / other).write_bytes(data.getvalue())
    content["parts"] = {k: v for k, v in content["parts"].items() if k != name}
    content["parts"][other] = entries.sha256(data.getvalue())
    del content["sha256"]
    head.write_bytes(entries._sealed(content))
    second = verax.run(asked, quiet=True, store=store, out=tmp_path / "second")
    assert second.manifest["computed_units"] == 1
    tables = [(run.folder / "scores.parquet").read_bytes() for run in (first, second)]
    assert tables[0] == tables[1]


def test_a_store_stays_where_it_was_when_the_process_goes_elsewhere(tmp_path):
    """Its files are written in a thread of their own, beside methods that may go to another folder."""
    store, away = Store(Path("store")), tmp_path / "away"
    away.mkdir()
    os.chdir(away)
    store.fail("ab" * 32, "a unit", Failure("method", "for a test"))
    assert list(away.iterdir()) == []
    assert [path.name for path in (tmp_path / "store").rglob("*.json")] == [f"{'ab' * 32}.failed.json"]


def test_a_store_in_a_folder_that_is_gone_is_one_sentence(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    with pytest.raises(OutputError, match="Cannot write 'store': No such file"):
        Store(Path("store"))
