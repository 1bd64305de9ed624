"""Gathering: the results of a study out of the store, cell by cell, without ever holding all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from verax.metrics.scoring import metric_names
from verax.studies.driving import Stores
from verax.studies.entries import Result
from verax.studies.plan import Plan
from verax.studies.units import Cell, Unit

ROWS = 1 << 20
"""Rows in a group of the score table: what is in memory at once."""

_WORDS = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema(
    {
        "task": _WORDS,
        "network": _WORDS,
        "seed": pa.int64(),
        "method": _WORDS,
        "protocol": _WORDS,
        "metric": _WORDS,
        "group": pa.int64(),
        "sample": pa.int64(),
        "value": pa.float64(),
        "degenerate": pa.bool_(),
    }
)
_TYPES = [(field.name, field.type) for field in SCHEMA]
_NO_METRICS = frozenset({"sample", "group", "degenerate", "wrong"})


@dataclass
class Gathered:
    """The results of a plan without their tables.

    Attributes:
        results: by the keys of cells; only cells all of whose units are there.
        lost: keys of units whose entries turned out to be damaged, and were set aside, or to be gone.
        rows: of the score table.
    """

    results: dict[str, Result] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    rows: int = 0


def whole(unit: Unit, result: Result, plan: Plan) -> bool:
    """Whether a stored result has all that its unit leaves behind."""
    if unit.method is None:
        return "certificate" in result.info
    tables = [result.tables.get(protocol) for protocol in plan.study.protocols]
    return "maps" in result.maps and all(
        table is not None and {*_NO_METRICS, *metric_names(protocol, plan.metrics)} <= set(table.columns)
        for protocol, table in zip(plan.study.protocols, tables, strict=True)
    )


def gather(
    plan: Plan,
    stores: Stores,
    path: Path,
    without: Set[str] = frozenset(),
    absent: Set[str] = frozenset(),
) -> Gathered:
    """Write the score table of a plan to `path`, row group by row group, and collect the rest.

    A cell has rows only when all of its units are there: means over a part of the samples would be compared
    with means over others. Units in `without` count as not there, whatever the store has of them; those in
    `absent` are known not to be there, and all others are lost where they are not.
    """
    found = Gathered()
    with pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
        waiting: list[pa.Table] = []
        for cell in plan.cells:
            store = stores[cell]
            gaps = {unit.key for unit in cell.units() if unit.key not in store or unit.key in without}
            if gaps:
                found.lost |= gaps - absent
                continue
            parts: list[Result] = []
            for unit, result in _read(cell, plan, stores, found):
                parts.append(Result({}, result.maps, result.info))
                if unit.method is not None and not found.lost:
                    table = score_rows(unit, result)
                    found.rows += len(table)
                    waiting.append(table)
                    if sum(map(len, waiting)) >= ROWS:
                        writer.write_table(pa.concat_tables(waiting))
                        waiting.clear()
            if len(parts) == len(cell):
                found.results[cell.key] = merge(parts)
        if waiting:
            writer.write_table(pa.concat_tables(waiting))
    return found


def _read(cell: Cell, plan: Plan, stores: Stores, found: Gathered) -> Iterator[tuple[Unit, Result]]:
    """The units of a cell with their results; what is damaged goes to `found.lost`."""
    store = stores[cell]
    for unit in cell.units():
        result = store.read(unit.key)
        if result is not None and not whole(unit, result, plan):
            store.set_aside(unit.key)
            result = None
        if result is None:
            found.lost.add(unit.key)
        else:
            yield unit, _in_order(unit, result, plan)


def _in_order(unit: Unit, result: Result, plan: Plan) -> Result:
    """A result as if this study had computed it: others may name the same protocols in another order."""
    if unit.method is None:
        return result
    tables = {protocol: result.tables[protocol] for protocol in plan.study.protocols}
    first = tables[plan.study.protocols[0]]
    return Result(tables, result.maps, {**result.info, "degenerate": int(first["degenerate"].sum())})


def score_rows(unit: Unit, result: Result) -> pa.Table:
    """A unit's scores as rows, one for each protocol, metric and sample.

    Scores that are not defined (nothing to focus on, or a wrong prediction under `sound`) have no row.
    """
    subject = unit.subject
    same = {"task": subject.task.name, "network": subject.network, "method": unit.label}
    parts = []
    for protocol, wide in result.tables.items():
        metrics = [c for c in wide.columns if c not in _NO_METRICS]
        values = wide[metrics].to_numpy(dtype=float).T
        metric, row = np.nonzero(~np.isnan(values))
        if not len(row):
            continue
        used, place = np.unique(metric, return_inverse=True)
        first = np.zeros_like(place)
        words = {name: _coded(first, [word]) for name, word in {**same, "protocol": protocol}.items()}
        words["metric"] = _coded(place, [metrics[number] for number in used])
        numbers = {name: wide[name].to_numpy()[row] for name in ("group", "sample", "degenerate")}
        numbers |= {"seed": np.full(len(row), subject.seed), "value": values[metric, row]}
        columns = [words[name] if name in words else pa.array(numbers[name], kind) for name, kind in _TYPES]
        parts.append(pa.table(columns, schema=SCHEMA))
    return pa.concat_tables(parts) if parts else SCHEMA.empty_table()


def _coded(places: NDArray[np.intp], words: Sequence[str]) -> pa.DictionaryArray:
    """Words by their places in a list."""
    return pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), pa.array(words, pa.string()))


_COUNTS = ("samples", "wrong", "degenerate", "explaining_seconds", "scoring_seconds", "seconds")


def merge(parts: list[Result]) -> Result:
    """The results of a cell's blocks as one, without tables: counts are added, maps joined."""
    info: dict[str, Any] = dict(parts[0].info)
    for name in _COUNTS:
        if name in info:
            info[name] = sum(part.info[name] for part in parts)
    if "peak_bytes" in info:
        info["peak_bytes"] = max(part.info.get("peak_bytes") or 0 for part in parts)
    maps = dict(parts[0].maps)
    if "maps" in maps:
        maps["maps"] = torch.cat([part.maps["maps"] for part in parts])
    if "completeness" in maps:
        gap = torch.cat([part.maps["completeness"] for part in parts])
        info["completeness_error"] = {"median": float(gap.median()), "largest": float(gap.max())}
        del maps["completeness"]
    return Result({}, maps, info)
