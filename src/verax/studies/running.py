"""`run`: compute what is missing, keep it, and put a run folder together."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from verax import devices, progress, tasks
from verax.errors import (
    Interrupted,
    InvalidInput,
    InvalidParameter,
    MethodFailed,
    OutputError,
    UnsupportedOperation,
    VeraxWarning,
)
from verax.files import make_folder, store_folder, unless_empty, write_atomically
from verax.methods.base import METHODS, Function, Method, method
from verax.metrics.scoring import metric_names
from verax.networks import library, teaching
from verax.studies import plan as planning
from verax.studies import readings, writing
from verax.studies import spec as specs
from verax.studies.execution import Bench
from verax.studies.identification import TABLES, Identification
from verax.studies.plan import Plan, Unit
from verax.studies.readings import Reader
from verax.studies.runs import IDENTIFICATION, MANIFEST, Run
from verax.studies.spec import MethodSpec, Study
from verax.studies.store import Result, Store
from verax.tasks import Task
from verax.tasks.base import Learnable

Watch = Callable[[int, int, str], None]


def _method_entries(
    given: Sequence[str | Function | Method | dict[str, Any]] | None, known: Mapping[str, MethodSpec]
) -> list[Any] | None:
    """Names and tables as they are; callables are registered under their own name.

    A name that is a label of the study means what it means there, with its parameters.
    """
    if given is None:
        return None
    entries: list[Any] = []
    for entry in [given] if isinstance(given, str) else given:
        if isinstance(entry, Method):
            if entry.name in METHODS and METHODS.get(entry.name).builtin and METHODS.get(entry.name) != entry:
                raise InvalidParameter(f"{entry.name!r} is a method of verax itself; choose another name.")
            METHODS.register(entry.name, entry, replace=True)
            entry = entry.name
        elif callable(entry):
            name = getattr(entry, "__name__", type(entry).__name__)
            method(name)(entry)
            entry = name
        elif isinstance(entry, str) and entry in known:
            entry = known[entry].model_dump()
        entries.append(entry)
    return entries


def _task_entries(given: Sequence[str | Task] | None) -> list[str] | None:
    if given is None:
        return None
    entries = [given] if isinstance(given, str | Task) else given
    return [entry if isinstance(entry, str) else tasks.register(entry) for entry in entries]


def run(
    study: str | Path | dict[str, Any] | Study,
    *,
    methods: Sequence[str | Function | Method | dict[str, Any]] | None = None,
    tasks: Sequence[str | Task] | None = None,
    networks: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    protocols: Sequence[str] | None = None,
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
) -> Run:
    """Run a study; only what is not in the store yet is computed.

    Args:
        study: a preset's name, a TOML file, or a `Study`.
        methods: replaces the study's methods; callables are methods too. Labels of the study keep the
            parameters that they have in it.
        tasks: replaces its tasks; task objects are welcome.
        networks: replaces its networks.
        seeds: replaces the training seeds.
        protocols: replaces its protocols.
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
    """
    chosen = specs.study(
        study,
        methods=_method_entries(methods, specs.labelled(study)),
        tasks=_task_entries(tasks),
        networks=list(networks) if networks is not None else None,
        seeds=list(seeds) if seeds is not None else None,
        protocols=list(protocols) if protocols is not None else None,
        samples=samples,
        seed=seed,
        certify=certify,
        identify=identify,
        renderer=renderer,
        background=background,
        field=None if field is None else str(Path(field).expanduser()),
        variable=variable,
    )
    where = devices.resolve(device)
    folder = store_folder(store)

    trained: list[dict[str, Any]] = []

    def train(task: Learnable, network: str, seed: int) -> None:
        """Train a network that is missing, and keep it for this and later studies."""
        start = time.perf_counter()
        done = teaching.train(task, network, seed=seed, device=where, quiet=quiet)
        library.save(done, make_folder(folder / "networks"))
        seconds = time.perf_counter() - start
        trained.append({"task": task.name, "network": network, "seed": seed, "seconds": seconds})

    try:
        plan = planning.compile_plan(chosen, folder, train)
    except KeyboardInterrupt as stop:
        message = "Interrupted: networks that are trained are kept. Run the same command to go on."
        raise Interrupted(message) from stop
    target = Path(out).expanduser() if out else Path("runs") / f"{chosen.name}-{plan.key[:8]}"
    with unless_empty(target):
        return _run(plan, target, Store(make_folder(folder)), where, quiet, trained)


def _run(
    plan: Plan, target: Path, kept: Store, where: torch.device, quiet: bool, trained: list[dict[str, Any]]
) -> Run:
    if target.is_dir() and any(target.iterdir()) and not _is_run(target):
        raise OutputError(f"The folder {str(target)!r} holds other things; name an empty one.")
    make_folder(target)
    _probe(plan, where)
    start = time.perf_counter()
    reader = Reader(plan, where)
    results, failures, reused = _compute(plan, kept, reader, quiet)
    identified, unread = _identify(reader, kept, quiet)
    failures += unread
    facts = {
        "failures": failures,
        "notes": list(plan.notes),
        "trained": trained,
        "reused_units": reused,
        "damaged_entries": len(kept.damaged),
        "seconds": time.perf_counter() - start,
    }
    writing.write(plan, target, results, where, facts)
    for name in TABLES:
        path = target / IDENTIFICATION.format(name)
        if identified is None:
            path.unlink(missing_ok=True)  # of an earlier run in this folder
        else:
            write_atomically(path, identified.tables()[name].to_csv(index=False).encode())
    for note in plan.notes:
        warnings.warn(note, VeraxWarning, stacklevel=3)
    for failure in failures:
        warnings.warn(f"{failure['unit']}: {failure['reason']}", VeraxWarning, stacklevel=3)
    return Run(target)


def _is_run(folder: Path) -> bool:
    try:
        found = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and {"study", "plan", "code"} <= set(found)


def _probe(plan: Plan, device: torch.device) -> None:
    """Try methods with given parameters on one sample, so that bad values are found before the work."""
    first = plan.subjects[0]
    given = {spec.label for spec in plan.study.methods if spec.parameters}
    units = [u for u in plan.units if u.method is not None and u.label in given and u.subject is first]
    if not units:
        return
    bench = Bench(first, plan.study.model_copy(update={"samples": 1}), device)
    for unit in units:
        assert unit.method is not None
        if unit.method.builtin:
            bench.try_out(unit)


def _compute(
    plan: Plan, store: Store, reader: Reader, quiet: bool
) -> tuple[dict[str, Result], list[dict[str, str]], int]:
    """The results of all units, the failures, and how many results were in the store already."""
    results: dict[str, Result] = {}
    failures: list[dict[str, str]] = []
    bench: Bench | None = None
    reused = 0
    with progress.bar(hidden=quiet) as bar:
        row = bar.add_task(plan.study.name, total=len(plan.units))
        try:
            for unit in plan.units:
                bar.update(row, description=unit.name)
                result = store.read(unit.key)
                if result is not None and not _whole(unit, result, plan):
                    store.set_aside(unit.key)
                    result = None
                reused += result is not None
                if result is None:
                    if bench is None or bench.subject is not unit.subject:
                        bench = Bench(unit.subject, plan.study, reader.device, reader.see)
                    try:
                        result = bench.compute(unit)
                    except (MethodFailed, UnsupportedOperation, InvalidInput) as error:
                        if unit.method is None:
                            raise
                        failures.append({"unit": unit.name, "method": unit.label, "reason": str(error)})
                    else:
                        if unit.method is None or unit.method.version is not None:
                            store.write(unit.key, result)
                if result is not None:
                    results[unit.key] = result
                bar.advance(row)
        except KeyboardInterrupt as stop:
            done, total = len(results), len(plan.units)
            message = (
                f"Interrupted: {done} of {total} units are finished and kept. Run the same command to go on."
            )
            raise Interrupted(message) from stop
        bar.update(row, description=plan.study.name)
    return results, failures, reused


def _identify(
    reader: Reader, store: Store, quiet: bool
) -> tuple[Identification | None, list[dict[str, str]]]:
    """What can be read off the maps, where the study asks for it, and the failures."""
    with progress.bar(hidden=quiet or not reader.readings) as bar:
        row = bar.add_task("reading", total=len(reader.readings))

        def watch(name: str) -> None:
            bar.update(row, description=name, advance=1)

        try:
            return readings.compute(reader, store, watch)
        except KeyboardInterrupt as stop:
            message = "Interrupted: all units are finished and kept. Run the same command to go on."
            raise Interrupted(message) from stop


def _whole(unit: Unit, result: Result, plan: Plan) -> bool:
    """Whether a stored result has all that its unit leaves behind."""
    if unit.method is None:
        return "certificate" in result.info
    needed = {"sample", "group", "degenerate", "wrong"}
    tables = [result.tables.get(protocol) for protocol in plan.study.protocols]
    return "maps" in result.maps and all(
        table is not None and {*needed, *metric_names(protocol)} <= set(table.columns)
        for protocol, table in zip(plan.study.protocols, tables, strict=True)
    )
