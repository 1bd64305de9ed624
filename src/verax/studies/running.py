"""`run`: compute what is missing, keep it, and put a run folder together."""

from __future__ import annotations

import json
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from inspect import signature
from pathlib import Path
from typing import Any

import torch

from verax import devices, progress
from verax.errors import Interrupted, InvalidParameter, MethodFailed, OutputError, VeraxWarning
from verax.files import atomically, make_folder, store_folder, unless_empty, write_atomically
from verax.methods.base import Function, Method
from verax.metrics import Metric
from verax.networks.inference import ordinary
from verax.studies import folders, keeping, readings, writing
from verax.studies import plan as planning
from verax.studies.costs import costs
from verax.studies.driving import Driver, Stores
from verax.studies.execution import Bench
from verax.studies.executors import EXECUTORS
from verax.studies.executors.processes import cores
from verax.studies.gathering import Gathered, gather
from verax.studies.identification import TABLES, Identification
from verax.studies.options import Options
from verax.studies.plan import Plan
from verax.studies.readings import Reader, Terms
from verax.studies.requests import described
from verax.studies.runs import IDENTIFICATION, MANIFEST, SCORES, UNFINISHED, Run
from verax.studies.spec import Study
from verax.studies.store import Store
from verax.studies.trainings import taught
from verax.studies.units import code_digest
from verax.studies.work import Brief, pinned
from verax.tasks import Task

_ROUNDS = 5
"""How often damaged entries are made again before the disk is blamed."""


_WORTH = 20.0
"""Seconds of work for one core (a guess) from which on processes are started."""

_COUNTED = 10_000
"""Units up to which that guess is made."""

_WARNED = 20
"""Failures that get a warning each."""


def run(
    study: str | Path | dict[str, Any] | Study,
    *,
    methods: Sequence[str | Function | Method | dict[str, Any]] | None = None,
    tasks: Sequence[str | Task] | None = None,
    networks: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    protocols: Sequence[str] | None = None,
    metrics: Sequence[str | Metric] | None = None,
    samples: int | None = None,
    seed: int | None = None,
    certify: int | None = None,
    identify: int | None = None,
    renderer: str | None = None,
    background: str | None = None,
    field: str | Path | None = None,
    variable: str | None = None,
    device: str = "auto",
    out: str | Path | None = None,
    store: str | Path | None = None,
    quiet: bool = False,
    executor: str | None = None,
    workers: int | None = None,
    overwrite: str = "missing",
    keep_maps: bool = False,
    time_limit: float | None = None,
    **more: Any,
) -> Run:
    """Run a study; only what is not in the store yet is computed.

    Args:
        study: a preset's name, a TOML file, or a `Study`.
        methods: replaces the study's methods; callables are methods too, and so is ``FILE.py:NAME``, a
            function in a file. Labels of the study keep the parameters that they have in it.
        tasks: replaces its tasks; task objects are welcome.
        networks: replaces its networks.
        seeds: replaces the training seeds.
        protocols: replaces its protocols.
        metrics: own metrics (`verax.metric`) that are scored beside those of the protocols; ``FILE.py:NAME``
            is one in a file.
        samples: cases in each bucket.
        seed: of cases and random methods.
        certify: scenes in each bucket for the certificates; 0 leaves them out.
        identify: pictures in each bucket from which the reasoning is read off the maps; 0 leaves it out.
        renderer: of TextBox tasks.
        background: of TextBox tasks.
        field: a file that the fields of climate tasks are read from, in place of their own.
        variable: of that file, where it has several.
        device: where to compute.
        out: the run folder (default: ``runs/NAME-HASH``).
        store: where finished units are kept (default: ``VERAX_STORE`` or the user's cache folder).
        quiet: no progress bar.
        executor: who computes: "inline" (this process), "processes", "ray" or another of `EXECUTORS`; without
            one, processes on all cores of a CPU where there is work for them, else this process.
        workers: how many of them (default: one for each device, or core).
        overwrite: what is computed: "missing" (and what failed), "failed", "all" or "never".
        keep_maps: keep raw maps in the store, so that they can be scored again without being explained again.
        time_limit: seconds that one unit, or one training, may take.
        **more: options of the executor.
    """
    for name in more:
        if near := get_close_matches(name, signature(run).parameters, 1, 0.8):
            raise InvalidParameter(f"verax.run has no option {name!r}; did you mean {near[0]!r}?")
        if executor is None:
            raise InvalidParameter(f"verax.run has no option {name!r}, nor is an executor named that has it.")
    options = Options(executor, workers, overwrite, keep_maps, time_limit, more).checked()
    with ordinary():
        chosen = described(
            study,
            methods=methods,
            tasks=tasks,
            networks=networks,
            seeds=seeds,
            protocols=protocols,
            metrics=metrics,
            samples=samples,
            seed=seed,
            certify=certify,
            identify=identify,
            renderer=renderer,
            background=background,
            field=field,
            variable=variable,
        )
        where = devices.resolve(device)
        folder = store_folder(store)

        trained: list[dict[str, Any]] = []
        try:
            plan = planning.compile_plan(chosen, folder, ahead=True)
            for broken in plan.damaged:
                for path in broken.files:
                    Store(folder).remove_to_quarantine(path)
            if plan.trainings:
                teacher = taught(plan, make_folder(folder), where, options, quiet)
                trained = teacher.trained
                again = planning.compile_plan(chosen, folder, failed=teacher.failed)
                plan = replace(again, notes=(*map(str, plan.damaged), *again.notes))
        except Interrupted:  # which says how many are trained
            raise
        except KeyboardInterrupt as stop:
            message = "Interrupted: networks that are trained are kept. Run the same command to go on."
            raise Interrupted(message) from stop
        target = Path(out).expanduser() if out else Path("runs") / f"{chosen.name}-{plan.key[:8]}"
        with unless_empty(target):
            return _run(plan, target, make_folder(folder), where, options, quiet, trained)


def _scratch() -> tempfile.TemporaryDirectory[str]:
    """A folder for what is gone after the run."""
    try:
        return tempfile.TemporaryDirectory(prefix="verax-")
    except OSError as error:
        raise OutputError(
            "No folder for temporary files can be written to; make room, or name one with TMPDIR."
        ) from error


def _run(
    plan: Plan,
    target: Path,
    folder: Path,
    where: torch.device,
    options: Options,
    quiet: bool,
    trained: list[dict[str, Any]],
) -> Run:
    if target.is_dir() and any(target.iterdir()) and not folders.is_run(target):
        raise OutputError(f"The folder {str(target)!r} holds other things; name an empty one.")
    make_folder(target)
    _probe(plan, where)
    start = time.perf_counter()
    reader = Reader(plan, where)
    with _scratch() as scratch, progress.bar(hidden=quiet) as bar:
        stores = Stores.of(folder, Path(scratch))
        executor = options.executor or _chosen(plan, stores.kept, where, options.workers)
        row = bar.add_task(plan.study.name, total=len(plan.units))
        driver = Driver(
            plan,
            Brief(
                plan.study,
                plan.cells,
                options.keep_maps,
                reader.wanted,
                options.time_limit,
                metrics=plan.metrics,
            ),
            stores,
            EXECUTORS.get(executor)(where, options.workers, **options.more),
            where,
            options.overwrite,
            lambda count, name: bar.update(row, advance=count, doing=name),
            reader.see,
        )
        with stores.kept.locked():
            gathered = _gathered(driver, target)
            bar.update(row, doing="")
            bar.stop()
            identified, unread = _identify(
                reader,
                stores.kept,
                quiet,
                Terms(set(gathered.results), options.overwrite, options.time_limit),
            )
    tally = driver.tally
    untrained = [
        {"unit": training.name, "method": "", "reason": failure.reason, "kind": failure.kind}
        for training, failure in plan.lost
    ]
    failures = [*untrained, *tally.failures, *tally.skipped, *unread]
    notes = [*plan.notes, *_empty(plan, gathered)]
    facts = {
        "failures": failures,
        "notes": notes,
        "unkept": [what for what, _ in keeping.unkept(plan)],
        "trained": trained,
        "reused_units": tally.reused,
        "computed_units": tally.computed,
        "total_units": len(plan.units),
        "damaged_entries": len(stores.kept.aside),
        "set_aside": [{"key": entry.key, "reason": entry.reason} for entry in stores.kept.aside],
        "executor": {"name": executor, "workers": driver.executor.workers},
        "seconds": time.perf_counter() - start,
    }
    folders.check_still_ours(target, plan.key)
    writing.write(plan, target, gathered.results, where, facts)
    for name in TABLES:
        path = target / IDENTIFICATION.format(name)
        if identified is None:
            path.unlink(missing_ok=True)  # of an earlier run in this folder
        else:
            write_atomically(path, identified.tables()[name].to_csv(index=False).encode())
    for note in notes:
        warnings.warn(note, VeraxWarning, stacklevel=3)
    for failure in failures[:_WARNED]:
        warnings.warn(f"{failure['unit']}: {failure['reason']}", VeraxWarning, stacklevel=3)
    if len(failures) > _WARNED:
        more = len(failures) - _WARNED
        warnings.warn(f"{more} more units failed; run.failures has all.", VeraxWarning, stacklevel=3)
    return Run(target)


def _empty(plan: Plan, gathered: Gathered) -> list[str]:
    """A sentence for each own method all of whose maps say nothing; its scores are those of an empty map."""
    counts: dict[str, list[int]] = {}
    for cell in plan.cells:
        # of a method of verax that is a finding, as on wired networks that a gradient does not pass
        if cell.method is not None and cell.method.family == "own" and cell.key in gathered.results:
            info = gathered.results[cell.key].info
            total = counts.setdefault(cell.label, [0, 0])
            total[0] += int(info.get("degenerate", 0))
            total[1] += int(info.get("samples", 0))
    return [
        f"{label}: all {all_} maps are constant or not finite (NaN or infinite), so that they say nothing; "
        f"verax.check_method tells more."
        for label, (empty, all_) in counts.items()
        if empty == all_ > 0
    ]


class _Lost(Exception):
    """Entries of the store that turned out to be damaged, or to be gone."""

    def __init__(self, keys: set[str]) -> None:
        self.keys = keys


def _gathered(driver: Driver, target: Path) -> Gathered:
    """Compute what is missing and write the score table; entries that turn out damaged are made again."""
    lost: set[str] | None = None
    try:
        for _ in range(_ROUNDS):
            if lost is None or driver.overwrite != "never":
                driver.drive(lost)
            try:
                return _tabled(driver, target)
            except _Lost as found:
                lost = found.keys
                driver.tally.lose(len(lost))
                if driver.overwrite == "never":
                    driver.miss(lost)
    except KeyboardInterrupt as stop:
        done, total = driver.finished(), len(driver.plan.units)
        raise Interrupted(
            f"Interrupted: {done} of {total} units are finished and kept. Run the same command to go on."
        ) from stop
    raise OutputError(f"What is written to {str(driver.stores.kept.folder)!r} comes back damaged.")


def _tabled(driver: Driver, target: Path) -> Gathered:
    """Write the score table."""
    plan = driver.plan
    with atomically(target / SCORES) as path:
        found = gather(plan, driver.stores, path, driver.tally.failed, driver.tally.absent)
        if found.lost:
            raise _Lost(found.lost)
        if not any(cell.method is not None and cell.key in found.results for cell in plan.cells):
            reasons = [entry["reason"] for entry in (*driver.tally.failures, *driver.tally.skipped)]
            first = [reason.rstrip(".") for reason in dict.fromkeys(reasons)][:3]
            raise MethodFailed(f"No method gave a result: {'; '.join(first)}.")
        # from here on the folder is that of this study, and no run before all of it is written
        facts = {"study": plan.study.model_dump(), "plan": plan.key, "code": code_digest(), UNFINISHED: True}
        write_atomically(target / MANIFEST, json.dumps(facts, default=repr).encode())
    return found


def _chosen(plan: Plan, store: Store, where: torch.device, workers: int | None) -> str:
    """The executor where none is named: starting processes takes seconds, which little work is not worth."""
    if workers is not None:
        return "inline" if workers == 1 else "processes"
    if where.type != "cpu" or cores() == 1:
        return "inline"
    many = len(plan.units) > _COUNTED
    return "processes" if many or sum(c.seconds for c in costs(plan, store)) > _WORTH else "inline"


def _probe(plan: Plan, device: torch.device) -> None:
    """Try own metrics, and methods with given parameters, on one sample: faults are found before the work."""
    first = plan.subjects[0]
    given = {spec.label for spec in plan.study.methods if spec.parameters}
    bench = Bench(first, plan.study, device, plan.metrics)
    with pinned(device):  # own metrics may set anything
        bench.try_metrics()
        for cell in plan.cells:
            wanted = cell.subject is first and cell.label in given
            if wanted and cell.method is not None and cell.method.builtin:
                bench.try_out(cell)


def _identify(
    reader: Reader, store: Store, quiet: bool, terms: Terms
) -> tuple[Identification | None, list[dict[str, str]]]:
    """What can be read off the maps, where the study asks for it, and the failures."""
    with progress.bar(hidden=quiet or not reader.readings) as bar:
        row = bar.add_task("reading", total=len(reader.readings))

        def watch(name: str) -> None:
            bar.update(row, doing=name, advance=1)

        try:
            return readings.compute(reader, store, watch, terms)
        except KeyboardInterrupt as stop:
            message = "Interrupted: all units are finished and kept. Run the same command to go on."
            raise Interrupted(message) from stop
