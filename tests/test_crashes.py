"""Crashes: runs killed at random moments and resumed end with the table of a run that nobody disturbed."""

import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
import torch

import verax
from verax.studies import plan as planning
from verax.studies import spec as specs
from verax.studies import upkeep
from verax.studies.driving import Driver
from verax.studies.store import Store

STUDY = {
    "name": "crashed",
    "tasks": ["textbox/simple-fr"],
    "networks": ["cnn3"],
    "methods": ["gradient", "lrp-epsilon"],
    "protocols": ["sound"],
    "samples": 4,
    "certify": 2,
}


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(planning, "BLOCK", 24)  # two samples of each bucket: two blocks a method


def _child(store, out, handed, options):
    """A run in a process of its own, which notes every unit that it hands out."""
    torch.set_num_threads(1)
    job = Driver._job

    def noted(self, unit):
        with Path(handed).open("a") as file:
            file.write(f"{unit.key}\n")
        return job(self, unit)

    Driver._job = noted
    verax.run(STUDY, quiet=True, store=store, out=out, **options)


def start(store, out, handed, **options):
    # forked: everything is imported already, so that moments within the study itself are hit
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_child, args=(store, out, handed, options))
    process.start()
    return process


def children(pid):
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(word) for word in (task / "children").read_text().split()]
    return found


def running(pid):
    """Whether a process is there and not only its name."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def keys_in(store):
    return {entry.key for entry in upkeep.listing(Store(store)) if entry.kind != "failure"}


class Crashes:
    """Kills runs on one store after the other until enough were killed."""

    def __init__(self, folder, seed, **options):
        self.folder, self.random, self.options = folder, random.Random(seed), options
        self.kills = self.rounds = 0
        begun = time.monotonic()
        process = start(folder / "clean-store", folder / "clean", folder / "clean.log", **options)
        process.join()
        assert process.exitcode == 0
        self.duration = time.monotonic() - begun
        self.table = (folder / "clean" / "scores.parquet").read_bytes()

    def go(self, kills, victim="main"):
        while self.kills < kills:
            self.round(kills, victim)

    def round(self, kills, victim):
        """One store: killed again and again until the study is done."""
        self.rounds += 1
        store, out = self.folder / f"store{self.rounds}", self.folder / f"run{self.rounds}"
        for attempt in range(100):
            handed = self.folder / f"handed{self.rounds}-{attempt}"
            handed.write_text("")
            finished = keys_in(store)
            process = start(store, out, handed, **self.options)
            if self.kills < kills:
                self.kill(process, victim)
            process.join(120)
            assert not process.is_alive()
            again = set(handed.read_text().split()) & finished
            assert not again, "a finished unit was handed out again"
            problems = [problem for problem in upkeep.verify(Store(store)) if problem is not None]
            assert problems == []
            if process.exitcode == 0:
                break
            assert process.exitcode == -signal.SIGKILL
        assert (out / "scores.parquet").read_bytes() == self.table

    def kill(self, process, victim):
        until = time.monotonic() + self.random.uniform(0, self.duration)
        while process.is_alive() and time.monotonic() < until:
            time.sleep(0.002)
        if not process.is_alive():
            return
        try:
            workers = children(process.pid)
            if victim == "worker" and not workers:
                return
            chosen = self.random.choice(workers) if victim == "worker" else process.pid
            os.kill(chosen, signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            return
        self.kills += 1
        if victim == "main":  # workers notice that they are alone
            until = time.monotonic() + 60
            while any(running(pid) for pid in workers) and time.monotonic() < until:
                time.sleep(0.05)
            assert not any(running(pid) for pid in workers)


def test_killed_inline(tmp_path):
    crashes = Crashes(tmp_path, seed=1)
    crashes.go(5)


def test_killed_with_its_workers(tmp_path):
    crashes = Crashes(tmp_path, seed=2, executor="processes", workers=2)
    crashes.go(1)
    crashes.kills = 0
    crashes.go(1, "worker")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_killed_inline_many_times(tmp_path, seed):
    Crashes(tmp_path, seed=seed).go(15)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["main", "worker"])
def test_killed_with_its_workers_many_times(tmp_path, victim):
    Crashes(tmp_path, seed=9, executor="processes", workers=2).go(8, victim)


# -- being asked to stop -------------------------------------------------------------------------------------


def _command(folder, store, out):
    """The command line, with its words in files."""
    torch.set_num_threads(1)
    sys.stdout, sys.stderr = ((folder / name).open("w", buffering=1) for name in ("stdout", "stderr"))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from verax.cli.main import main

    sys.argv = ["verax", "run", str(folder / "study.toml"), "--store", str(store), "--out", str(out), "-q"]
    main()


def test_sigterm_and_ctrl_c_at_any_time(tmp_path):
    lists = {k: v for k, v in STUDY.items() if isinstance(v, list)}
    lines = [f"{k} = {v!r}" for k, v in STUDY.items() if not isinstance(v, list)]
    lines += [f"{k} = {v!r}" for k, v in lists.items()]
    (tmp_path / "study.toml").write_text("\n".join(lines).replace("'", '"'))
    context = multiprocessing.get_context("fork")
    begun = time.monotonic()
    verax.run(STUDY, quiet=True, store=tmp_path / "clean-store", out=tmp_path / "clean").report()
    duration = time.monotonic() - begun
    draw = random.Random(3)
    stopped = 0
    for attempt in range(60):
        process = context.Process(target=_command, args=(tmp_path, tmp_path / "s", tmp_path / "r"))
        process.start()
        time.sleep(draw.uniform(0, duration))
        if stopped < 3 and process.is_alive():
            os.kill(process.pid, signal.SIGTERM if attempt % 2 else signal.SIGINT)
        process.join(120)
        assert not process.is_alive()
        assert not any(upkeep.verify(Store(tmp_path / "s")))
        words = (tmp_path / "stderr").read_text()
        assert "Traceback" not in words
        if process.exitcode == 0 and stopped == 3:
            break
        if process.exitcode == 0:  # it was faster than the signal: again from the start
            shutil.rmtree(tmp_path / "s")
            continue
        if process.exitcode == -signal.SIGTERM:  # before the command line was there to hear it
            continue
        assert process.exitcode == 130, words
        stopped += bool(re.search(r"Interrupted: .* the same command to go on", words))
    assert stopped == 3
    assert (tmp_path / "r" / "scores.parquet").read_bytes() == (
        tmp_path / "clean" / "scores.parquet"
    ).read_bytes()


def test_keys_are_those_of_the_plan(own_store):
    plan = planning.compile_plan(specs.study(STUDY), own_store)
    assert (
        len({unit.key for unit in plan.units}) == len(plan.units) == len(plan.cells) * 2 - 1
    )  # a certificate is one unit
