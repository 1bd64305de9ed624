"""Units that compute nothing, so that what remains is the cost of sending them; workers import this too."""

from __future__ import annotations

import time
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice

import torch

from verax.studies import work
from verax.studies.entries import Result, pack
from verax.studies.executors import EXECUTORS
from verax.studies.plan import Plan
from verax.studies.work import Brief, Job, Outcome

EXTRA = {"ray": {"address": "local"}} if find_spec("ray") else {}
"""Executors beyond the core that are installed, and their options."""

_perform = work.perform


@dataclass(frozen=True)
class Idle(Brief):
    """A brief whose jobs are not computed."""


def _nothing(brief: Brief, job: Job, device: torch.device) -> Outcome:
    if not isinstance(brief, Idle):
        return _perform(brief, job, device)
    return Outcome(job, pack(job.key, Result({}, {}, {"samples": job.length, "seconds": 0.0})))


work.perform = _nothing  # wherever a brief of this module arrives


def overhead(plan: Plan, units: int, workers: int = 2) -> None:
    """Milliseconds for each unit that computes nothing, from the second tenth on: workers are up by then."""
    for name in ("inline", "processes", *EXTRA):
        several = 1 if name == "inline" else workers
        executor = EXECUTORS.get(name)(torch.device("cpu"), several, **EXTRA.get(name, {}))
        brief, _ = Idle(plan.study, plan.cells).travelling(getattr(executor, "dumps", None))
        jobs = (Job(unit.key, unit.index, unit.start, unit.count) for unit in islice(plan.units, units))
        begun = time.perf_counter()
        first = start = 0.0
        for number, _ in enumerate(executor.outcomes(brief, jobs)):
            if number == 0:
                first = time.perf_counter() - begun
            if number == units // 10:
                start = time.perf_counter()
        each = 1e3 * (time.perf_counter() - start) / (units - units // 10)
        print(
            f"overhead, {name} with {several}: {each:.2f} ms for each of {units:,} units, "
            f"{1e3 / each:,.0f} units/s; the first after {first:.1f} s",
            flush=True,
        )
