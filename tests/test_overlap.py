"""Jobs in halves: what was explained is scored beside the next explanation, with the same outcome."""

import sys
import threading
import time

import pytest
import torch

import verax
from verax.devices import Memory
from verax.errors import Interrupted
from verax.studies import execution, work
from verax.studies import plan as planning
from verax.studies import spec as specs
from verax.studies.driving import Driver
from verax.studies.execution import Bench
from verax.studies.executors import inline
from verax.studies.executors.inline import Inline
from verax.studies.work import Brief, Job

SMALL = {
    "name": "small",
    "tasks": ["textbox/simple-fr"],
    "networks": ["cnn4", "wired"],
    "methods": ["gradient", "integrated-gradients", "lrp-epsilon"],
    "protocols": ["sound", "published"],
    "samples": 1,
    "certify": 1,
}


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def overlapping(monkeypatch):
    """As on a GPU; gives the threads in which maps were scored."""
    make, score, threads = Inline.__init__, execution.score, []

    def init(self, *args, **kwargs):
        make(self, *args, **kwargs)
        self.overlaps = True

    def scored(*args, **kwargs):
        threads.append(threading.current_thread() is threading.main_thread())
        return score(*args, **kwargs)

    monkeypatch.setattr(Inline, "__init__", init)
    monkeypatch.setattr(execution, "score", scored)
    return threads


def run(name, **changes):
    return verax.run(SMALL, quiet=True, store=name, out=f"{name}-run", executor="inline", **changes)


@pytest.mark.parametrize("waiting", [0, 16])
def test_scores_are_the_same_in_halves(request, monkeypatch, waiting):
    whole = run("whole")
    monkeypatch.setattr(inline, "_WAITING", waiting)
    threads = request.getfixturevalue("overlapping")
    halves = run("halves")
    assert threads
    assert not any(threads)
    tables = [(found.folder / "scores.parquet").read_bytes() for found in (whole, halves)]
    assert tables[0] == tables[1]
    assert [u["name"] for u in whole.manifest["units"]] == [u["name"] for u in halves.manifest["units"]]
    assert all(unit["seconds"] > 0 for unit in halves.manifest["units"])


def own(model, inputs, targets):
    return inputs


def test_what_cannot_be_halved_is_done_between_the_others(overlapping, monkeypatch):
    order, settle = [], Driver._settle

    def settled(self, outcome):
        order.append(self.brief.unit(outcome.job).name)
        settle(self, outcome)

    monkeypatch.setattr(Driver, "_settle", settled)
    found = run("own", methods=["gradient", own, "lrp-z"])
    assert order == [unit["name"] for unit in found.manifest["units"]]
    assert not found.failures
    assert sum(overlapping) == 2 * 2  # two networks and protocols of the own method, in this thread
    assert len(overlapping) > 4


@pytest.mark.parametrize(
    "changes",
    [{"time_limit": 9.0}, {"training": True}, {"metrics": ("any",)}],
    ids=["limited", "training", "own metrics"],
)
def test_some_jobs_stay_whole(own_store, changes):
    plan = planning.compile_plan(specs.study(SMALL), own_store)
    job = Job("key", 0, 0, 1)
    assert work.apart(Brief(plan.study, plan.cells), job)
    assert not work.apart(Brief(plan.study, plan.cells, **changes), job)


def test_what_asks_the_network_stays_whole(own_store):
    plan = planning.compile_plan(specs.study({**SMALL, "protocols": ["sound", "faithfulness"]}), own_store)
    assert not work.apart(Brief(plan.study, plan.cells), Job("key", 0, 0, 1))


def test_failures_of_either_half_are_outcomes(overlapping, monkeypatch):
    begin = Bench.begin

    def failing(self, unit, given=None):
        if unit.label == "gradient":
            raise RuntimeError("explained badly")
        rest = begin(self, unit, given)

        def fail():
            raise RuntimeError("scored badly")

        return fail if unit.label == "lrp-epsilon" else rest

    monkeypatch.setattr(Bench, "begin", failing)
    with pytest.warns(UserWarning, match="badly"):
        found = run("failing", networks=["cnn4"])
    reasons = {failure["method"]: failure["reason"] for failure in found.failures}
    assert "explained badly" in reasons["gradient"]
    assert "scored badly" in reasons["lrp-epsilon"]
    assert "integrated-gradients" in set(found.scores["method"])


class Mixing(torch.nn.Module):
    """Outputs depend on the other pictures."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3 * 64 * 64, 2)

    def forward(self, x):
        return self.layer((x + x.flip(0)).flatten(1))


def test_doubts_about_a_network_end_every_unit_that_has_them(request, monkeypatch):
    mixing = Mixing()
    monkeypatch.setattr(Bench, "model", lambda self: mixing)
    asked = {"networks": ["cnn4"], "methods": ["gradient", "lrp-epsilon", "lrp-z", "deeplift-rescale"]}
    with pytest.warns(UserWarning, match="other samples"):
        whole = run("whole", **asked)
    request.getfixturevalue("overlapping")
    with pytest.warns(UserWarning, match="other samples"):
        halves = run("halves", **asked)
    found = [{f["method"]: (f["kind"], f["reason"]) for f in kept.failures} for kept in (whole, halves)]
    assert found[0] == found[1]
    assert set(found[0]) == {"lrp-epsilon", "lrp-z", "deeplift-rescale"}
    assert {kind for kind, _ in found[0].values()} == {"method"}
    assert set(whole.scores["method"]) & set(asked["methods"]) == {"gradient"}


def test_threads_take_turns_quickly_only_meanwhile(overlapping, monkeypatch):
    seen, begin = [], Bench.begin
    before = sys.getswitchinterval()

    def looking(self, unit, given=None):
        seen.append(sys.getswitchinterval())
        return begin(self, unit, given)

    monkeypatch.setattr(Bench, "begin", looking)
    run("brisk", networks=["wired"], methods=["gradient"])
    assert seen
    assert seen == pytest.approx([inline._TURN] * len(seen))
    assert sys.getswitchinterval() == before != pytest.approx(inline._TURN)


def test_an_interruption_keeps_all_that_is_scored(overlapping, monkeypatch):
    begin, asked, scored = Bench.begin, [], []

    def interrupted(self, unit, given=None):
        asked.append(unit.name)
        if len(asked) == 6:
            time.sleep(0.5)
            raise KeyboardInterrupt
        rest = begin(self, unit, given)

        def finish():
            result = rest()
            scored.append(unit.name)
            return result

        return finish

    monkeypatch.setattr(Bench, "begin", interrupted)
    with pytest.raises(Interrupted) as stop:
        run("broken")
    assert f"{len(scored)} of 18 units are finished" in str(stop.value)
    assert scored
    monkeypatch.setattr(Bench, "begin", begin)
    again = run("broken")
    assert again.manifest["reused_units"] == len(scored)
    assert again.manifest["computed_units"] == 18 - len(scored)
    assert not again.failures


def test_memory_of_whole_jobs_has_that_of_scoring(monkeypatch):
    peak, halves, begin = Memory.peak, [], Bench.begin

    def noted(self, unit, given=None):
        rest = begin(self, unit, given)
        return lambda: halves.append("scored") or rest()

    monkeypatch.setattr(Bench, "begin", noted)
    monkeypatch.setattr(Memory, "peak", lambda self: halves.append("peak") or peak(self))
    run("whole", networks=["cnn4"], certify=0)
    assert halves
    assert halves[::2] == ["scored"] * (len(halves) // 2)
    assert halves[1::2] == ["peak"] * (len(halves) // 2)


def test_networks_of_a_task_share_their_cases(monkeypatch):
    drawn = []
    task = verax.task("textbox/simple-fr")
    cases = type(task).cases

    def counted(self, *args, **kwargs):
        drawn.append((kwargs.get("n"), kwargs.get("start")))
        return cases(self, *args, **kwargs)

    monkeypatch.setattr(type(task), "cases", counted)
    alone = run("alone", networks=["cnn4"])
    once = drawn.count((1, 0))
    drawn.clear()
    both = run("both")
    assert drawn.count((1, 0)) == once
    mine = both.scores.query("network == 'cnn4'").reset_index(drop=True)
    assert mine.astype(str).equals(alone.scores.reset_index(drop=True).astype(str))
