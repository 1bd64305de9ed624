"""Groups of jobs and what workers do with them, without any cluster."""

import pickle
from itertools import count

import pytest

from verax.studies import plan as planning
from verax.studies import spec as specs
from verax.studies.entries import Result, pack
from verax.studies.executors import serving
from verax.studies.executors.grouping import AHEAD, HEAVY, MOST, Groups
from verax.studies.work import Brief, Job, Outcome

STUDY = {
    "name": "grouped",
    "tasks": ["textbox/simple-fr", "textbox/simple-nr"],
    "networks": ["cnn3"],
    "methods": ["gradient"],
    "samples": 2,
    "certify": 0,
}


@pytest.fixture
def brief(own_store):
    plan = planning.compile_plan(specs.study(STUDY), own_store)
    return Brief(plan.study, plan.cells)


def jobs_of(brief, many):
    return [Job(f"{k:064x}", k % len(brief.cells), 0, 2) for k in range(many)]


def learned(groups, brief, seconds):
    for cell in range(len(brief.cells)):
        groups.learn(Outcome(Job("", cell, 0, 2), pack("", Result({}, {}, {})), seconds=seconds))


def drained(groups, slots):
    found = []
    while group := groups.take(slots):
        found.append(group)
    return found


def test_every_job_goes_out_once_and_in_order(brief):
    jobs = jobs_of(brief, 500)
    groups = drained(Groups(brief, iter(jobs), 10.0), 4)
    assert [job for group in groups for job in group] == jobs


def test_groups_last_as_long_as_asked_and_are_shorter_at_the_end(brief):
    groups = Groups(brief, iter(jobs_of(brief, 4000)), 10.0)
    learned(groups, brief, 0.1)  # a hundred make ten seconds
    sizes = [len(group) for group in drained(groups, 2)]
    assert sizes[0] == pytest.approx(100, abs=1)
    assert max(sizes) <= 101
    assert sizes[-3] < 50  # what is left is shared out


def test_jobs_that_were_never_measured_go_in_small_groups(brief):
    groups = Groups(brief, iter(jobs_of(brief, 4000)), 10.0)
    assert len(groups.take(2)) <= 10


def test_jobs_are_taken_only_as_they_are_needed(brief):
    taken = count()

    def endless():
        while True:
            yield Job(f"{next(taken):064x}", 0, 0, 2)

    groups = Groups(brief, endless(), 10.0)
    learned(groups, brief, 0.0)
    assert len(groups.take(2)) == MOST
    assert next(taken) <= AHEAD


def test_kept_maps_are_not_piled_up(brief):
    large = b"\0" * (HEAVY // 4)
    jobs = (job._replace(maps=large) for job in jobs_of(brief, 100))
    groups = Groups(brief, jobs, 1000.0)
    assert 1 <= len(groups.take(2)) <= 4
    assert sum(1 for _ in jobs) == 96  # four were taken, and fill what may be held


def test_jobs_that_come_back_go_first_and_suspects_alone(brief):
    jobs = jobs_of(brief, 8)
    groups = Groups(brief, iter(jobs[4:]), 100.0)
    groups.again(jobs[:2], alone=True)
    groups.again(jobs[2:4], alone=False)
    assert groups.take(1) == [jobs[0]]
    assert groups.take(1) == [jobs[1]]
    assert [job for group in drained(groups, 1) for job in group] == jobs[2:]


# -- workers -------------------------------------------------------------------------------------------------


@pytest.fixture
def luggage(brief):
    serving._DESK.clear()
    sent, _ = brief.travelling()
    shelf = []

    def put(data):
        shelf.append(data)
        return len(shelf) - 1

    return serving.pack(sent, "cpu", pickle.dumps, put), shelf


def test_weights_travel_beside_the_brief_and_only_when_needed(brief, luggage):
    packed, shelf = luggage
    assert len(shelf) == 2
    assert all(weights not in packed.brief for weights in shelf)
    fetched = []

    def get(place):
        fetched.append(place)
        return shelf[place]

    jobs = [Job(unit.key, unit.index, unit.start, unit.count) for unit in planning.Units(brief.cells)]
    mine = [job for job in jobs if brief.cells[job.cell].subject is brief.cells[0].subject]
    said = list(serving.serve("a", lambda: packed, get, mine))
    assert said[0] == serving.Begun()
    assert [outcome.job for outcome in said[1:]] == mine
    assert all(outcome.failure is None for outcome in said[1:])
    assert fetched == [0]
    assert all(outcome.failure is None for outcome in list(serving.serve("a", lambda: packed, get, jobs))[1:])
    assert fetched == [0, 1]


def test_a_worker_with_other_code_computes_nothing(luggage, monkeypatch):
    packed, _ = luggage
    monkeypatch.setattr(serving, "version", lambda: "another")
    (said,) = serving.serve("b", lambda: packed, lambda place: b"", [Job("", 0, 0, 2)])
    assert "another" in said.misfit
