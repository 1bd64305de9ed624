"""Studies at scale: a plan of a million units, overhead for each unit, and what more workers bring.

Compiled, stored and resumed with units that compute nothing, so that what is measured is the machinery: the
time and the peak memory of each phase in a process of its own. Entries of the large plan are written without
waiting for the disk (fsync); what waiting costs is measured beside it, on fewer units.

Leaderboards and reports are read from a made-up run with five million score rows (--rows), as streams.

python benchmarks/scale.py [--units 1000000] [--rows 5000000] [--only plan|reports|executors] [--folder DIR]
"""

from __future__ import annotations

import argparse
import itertools
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

import verax
from idle import EXTRA, overhead
from verax.metrics.scoring import metric_names
from verax.studies import plan as planning
from verax.studies import spec as specs
from verax.studies import upkeep
from verax.studies.driving import Driver, Stores
from verax.studies.entries import Result, pack
from verax.studies.gathering import ROWS as ROWS_A_GROUP
from verax.studies.gathering import SCHEMA
from verax.studies.plan import Plan
from verax.studies.store import Store
from verax.studies.work import Brief, Job, Outcome

CELLS = 200
REFERENCES = 5


class Nothing:
    """An executor whose units take no time."""

    travels = False
    workers = 1

    def outcomes(self, brief: Brief, jobs: Iterator[Job]) -> Iterator[Outcome]:
        """An entry with a few facts for each job."""
        for job in jobs:
            yield Outcome(job, pack(job.key, Result({}, {}, {"samples": job.length, "seconds": 0.0})))


def large(units: int, folder: Path) -> Plan:
    """A plan of so many units: a method with many settings on one network, and many samples."""
    cells = min(CELLS, units)
    samples = 20 * (units // cells)
    methods = [{"name": "integrated-gradients", "steps": 2 + k} for k in range(cells - REFERENCES + 1)]
    study = specs.study(
        {
            "name": "large",
            "tasks": ["textbox/simple-fr"],
            "networks": ["cnn3"],
            "methods": methods,
            "samples": samples,
            "certify": 0,
        }
    )
    return planning.compile_plan(study, folder, block=20)


def driver(plan: Plan, folder: Path) -> Driver:
    """A driver whose units compute nothing."""
    stores = Stores.of(folder, folder / "scratch")
    return Driver(plan, Brief(plan.study, plan.cells), stores, Nothing(), torch.device("cpu"))


def phase(name: str, units: int, folder: Path) -> None:
    """One phase in this process: a line with its time and its peak memory beyond what imports take."""
    before, start, busy = _peak(), time.perf_counter(), time.process_time()
    if name == "compiled":
        plan = large(units, folder)
        count = sum(len(unit.key) == 64 for unit in plan.units)
    elif name in ("stored", "stored, waiting for the disk"):
        if name == "stored":
            os.fsync = lambda descriptor: None
        work = driver(large(units, folder), folder)
        work.drive()
        count = work.tally.computed
    elif name == "resumed":
        work = driver(large(units, folder), folder)
        work.drive()
        count = work.tally.reused
    elif name in (LEADERBOARD, REPORT):
        run = verax.Run(folder / "big")
        count = pq.ParquetFile(run.folder / "scores.parquet").metadata.num_rows
        if name == REPORT:
            run.report()
        else:
            assert len(run.leaderboard(metric="iou")) == METHODS
        assert "scores" not in vars(run)  # never all of them
    else:
        count = sum(problem is None for problem in upkeep.verify(Store(folder)))
    took = time.perf_counter() - start
    each, cpu = 1e3 * took / count, 1e3 * (time.process_time() - busy) / count
    spent = f"{took:8.1f} s {each:8.4f} ms each ({cpu:.4f} of CPU)"
    what = "rows " if name in (LEADERBOARD, REPORT) else "units"
    print(f"{name:30s}{count:>10,} {what} {spent} {_peak() - before:6.0f} MB more", flush=True)


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def look_ups(folder: Path) -> None:
    """Look-ups in a store that is full, and in an empty one."""
    for name, where in (("full", folder), ("empty", folder / "none")):
        store = Store(where)
        keys = [f"{k:064x}" for k in range(2000)] + [
            path.stem for path, _ in zip(Store(folder).heads(), range(2000), strict=False)
        ]
        start = time.perf_counter()
        for key in keys:
            _ = key in store
        took = 1e6 * (time.perf_counter() - start) / len(keys)
        print(f"a look-up in the {name} store: {took:.1f} us", flush=True)


METHODS = 40
LEADERBOARD, REPORT = "rows of a leaderboard", "rows of a report"


def table(folder: Path, count: int) -> None:
    """A run with so many score rows, written row group by row group."""
    run = verax.run(
        STUDY, methods=["gradient"], samples=1, store=folder / "s", out=folder / "big", quiet=True
    )
    methods = [f"method-{k}" for k in range(METHODS - REFERENCES + 1)] + ["input", "edge", "random", "oracle"]
    cells = list(itertools.product(STUDY["tasks"], methods, metric_names("sound"), range(1, 13)))
    samples = count // len(cells)
    number, draw = np.arange(samples), np.random.default_rng(0)
    with pq.ParquetWriter(run.folder / "scores.parquet", SCHEMA, compression="zstd") as writer:
        waiting: list[pa.Table] = []
        for task, method, metric, group in cells:
            words = {"task": task, "network": "cnn4", "method": method, "protocol": "sound", "metric": metric}
            zeros = np.zeros(samples, dtype=np.int32)
            columns = {name: pa.DictionaryArray.from_arrays(zeros, [word]) for name, word in words.items()}
            columns |= {
                "seed": zeros.astype(np.int64),
                "group": np.full(samples, group),
                "sample": number + group * 10**9,
                "value": draw.random(samples),
                "degenerate": zeros.astype(bool),
            }
            waiting.append(pa.table([pa.array(columns[name]) for name in SCHEMA.names], schema=SCHEMA))
            if len(waiting) * samples >= ROWS_A_GROUP or (task, method, metric, group) == cells[-1]:
                writer.write_table(pa.concat_tables(waiting).unify_dictionaries())
                waiting.clear()


STUDY = {
    "name": "scale",
    "tasks": ["textbox/simple-fr", "textbox/simple-nr"],
    "methods": ["gradient", "integrated-gradients", "smoothgrad", "lrp-epsilon", "occlusion"],
    "samples": 20,
    "certify": 0,
}


def speed_up(folder: Path) -> None:
    """A small study with one process and with several: seconds, units a second, the same scores."""
    first: tuple[float, bytes] | None = None
    more = [(name, n) for name in ("processes", *EXTRA) for n in sorted({1, 2, os.cpu_count() or 2})]
    for name, workers in [("inline", 1), *more]:
        start = time.perf_counter()
        run = verax.run(
            STUDY,
            executor=name,
            workers=workers,
            store=folder / f"{name}{workers}",
            out=folder / f"run-{name}{workers}",
            quiet=True,
            **EXTRA.get(name, {}),
        )
        took = time.perf_counter() - start
        table = (run.folder / "scores.parquet").read_bytes()
        first = first or (took, table)
        same = "the same scores" if table == first[1] else "OTHER SCORES"
        rate = run.manifest["total_units"] / took
        print(
            f"{name} with {workers}: {took:6.1f} s {rate:6.2f} units/s, x {first[0] / took:.2f}, {same}",
            flush=True,
        )


def alone(name: str, units: int, folder: Path) -> None:
    """One phase in a process of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    line = [sys.executable, __file__, "--phase", name, "--units", str(units), "--folder", str(folder)]
    subprocess.run(line, check=True)


def plans(units: int, folder: Path) -> None:
    """A large plan: compiled, stored, resumed, verified."""
    alone("compiled", units, folder / "large")
    alone("stored, waiting for the disk", min(2000, units), folder / "small")
    for name in ("stored", "resumed", "verified"):
        alone(name, units, folder / "large")
    look_ups(folder / "large")


def reports(rows: int, folder: Path) -> None:
    """A large table of scores: written, ranked, reported."""
    table(folder, rows)
    for name in (LEADERBOARD, REPORT):
        alone(name, rows, folder)


def main() -> None:
    """Print a line for each phase."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--only", choices=("plan", "reports", "executors"))
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--phase")
    chosen = parser.parse_args()
    if chosen.phase:
        phase(chosen.phase, chosen.units, chosen.folder)
        return
    folder = chosen.folder or Path(tempfile.mkdtemp(prefix="verax-scale-"))
    try:
        if chosen.only in (None, "plan"):
            plans(chosen.units, folder)
        if chosen.only in (None, "reports"):
            reports(chosen.rows, folder)
        if chosen.only in (None, "executors"):
            overhead(large(10_000, folder), 10_000)
            speed_up(folder)
    finally:
        if not chosen.folder:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
