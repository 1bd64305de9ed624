"""Gathering: the results of a study out of the store, cell by cell, without ever holding all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
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
from verax.studies.entries import DAMAGE, Damaged, Opened, Result
from verax.studies.plan import Plan
from verax.studies.store import Store
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


def columns(plan: Plan) -> dict[str, frozenset[str]]:
    """What the tables of the protocols of a plan have, at least."""
    return {
        protocol: _NO_METRICS.union(metric_names(protocol, plan.metrics)) for protocol in plan.study.protocols
    }


def whole(unit: Unit, result: Opened, wanted: Mapping[str, Set[str]]) -> bool:
    """Whether a stored result has all that its unit leaves behind; `wanted` are the `columns` of its plan."""
    if unit.method is None:
        return "certificate" in result.info
    return "maps" in result.maps and all(
        protocol in result.tables and names <= set(result.tables[protocol].column_names)
        for protocol, names in wanted.items()
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
    found, wanted = Gathered(), columns(plan)
    with pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
        waiting, rows = list[pa.Table](), 0
        for cell in plan.cells:
            store = stores[cell]
            gaps = {unit.key for unit in cell.units() if unit.key not in store or unit.key in without}
            if gaps:
                found.lost |= gaps - absent
                continue
            parts: list[Result] = []
            for result, table in _read(cell, store, wanted, found):
                parts.append(result)
                rows += len(table)
                waiting.append(table)
                if rows >= ROWS:
                    writer.write_table(_joined(waiting))
                    found.rows, rows = found.rows + rows, 0
                    waiting.clear()
            if len(parts) == len(cell):
                found.results[cell.key] = merge(parts)
        if waiting:
            writer.write_table(_joined(waiting))
            found.rows += rows
    return found


def _read(
    cell: Cell, store: Store, wanted: Mapping[str, Set[str]], found: Gathered
) -> Iterator[tuple[Result, pa.Table]]:
    """What the units of a cell left behind, and the rows of their scores, if any.

    What is damaged goes to `found.lost`; then there will be no table, and nobody asks for rows.
    """
    for unit in cell.units():
        try:
            result = store.open(unit.key)
            if result is not None and not whole(unit, result, wanted):
                raise Damaged("a part is missing")
            if result is not None:
                result = _in_order(unit, result, list(wanted))
                asked = unit.method is not None and not found.lost
                table = score_rows(unit, result) if asked else SCHEMA.empty_table()
        except (Damaged, *DAMAGE) as error:
            store.set_aside(unit.key, str(error) if isinstance(error, Damaged) else "a part cannot be used")
            result = None
        if result is None:
            found.lost.add(unit.key)
        else:
            yield Result({}, result.maps, result.info), table


def _in_order(unit: Unit, result: Opened, protocols: Sequence[str]) -> Opened:
    """A result as if this study had computed it: others may name the same protocols in another order."""
    if unit.method is None:
        return result
    tables = {protocol: result.tables[protocol] for protocol in protocols}
    first = tables[protocols[0]].column("degenerate")
    return Opened(tables, result.maps, {**result.info, "degenerate": int(first.to_numpy().sum())})


def score_rows(unit: Unit, result: Opened) -> pa.Table:
    """A unit's scores as rows, one for each protocol, metric and sample.

    Scores that are not defined (nothing to focus on, or a wrong prediction under `sound`) have no row.
    """
    subject = unit.subject
    same = {"task": subject.task.name, "network": subject.network, "method": unit.label}
    parts = []
    for protocol, wide in result.tables.items():
        metrics = [name for name in wide.column_names if name not in _NO_METRICS]
        values = np.array([_numbers(wide.column(name)) for name in metrics]).reshape(len(metrics), len(wide))
        metric, row = np.nonzero(~np.isnan(values))
        if not len(row):
            continue
        used, place = np.unique(metric, return_inverse=True)
        first = np.zeros(len(row), np.int32)
        words = {name: _coded(first, [word]) for name, word in {**same, "protocol": protocol}.items()}
        words["metric"] = _coded(place.astype(np.int32), [metrics[number] for number in used])
        numbers = {name: wide.column(name).to_numpy()[row] for name in ("group", "sample", "degenerate")}
        numbers |= {"seed": np.full(len(row), subject.seed), "value": values[metric, row]}
        cells = [words[name] if name in words else pa.array(numbers[name], kind) for name, kind in _TYPES]
        parts.append(pa.table(cells, schema=SCHEMA))
    return pa.concat_tables(parts) if parts else SCHEMA.empty_table()


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Rows of several units with one list of words: lists that change are written out word by word."""
    return pa.concat_tables(tables).unify_dictionaries()


def _numbers(column: pa.ChunkedArray) -> NDArray[np.float64]:
    """A column of scores; NaN where there is none."""
    found: NDArray[np.float64] = column.cast(pa.float64(), safe=False).to_numpy()
    return found


def _coded(places: NDArray[np.int32], words: Sequence[str]) -> pa.DictionaryArray:
    """Words by their places in a list."""
    return pa.DictionaryArray.from_arrays(pa.array(places), pa.array(words, pa.string()))


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
