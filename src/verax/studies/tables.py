"""Score tables on disk, read as streams: never more rows in memory than were asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from verax.errors import MissingFile

Mask = NDArray[np.bool_]
Choice = Callable[[pa.RecordBatch], Mask | None]

WORDS = ("task", "network", "method", "protocol", "metric")
_NUMBERS = ("seed", "group", "sample")
_BATCH = 1 << 18


def read(path: Path, networks: Collection[str] | None = None) -> pd.DataFrame:
    """All rows of a table, or those of some networks."""
    return _joined(path, lambda batch: None if networks is None else _among(batch, "network", networks))


def rows(
    path: Path, kinds: Collection[tuple[str, str]], networks: Collection[str] | None = None
) -> pd.DataFrame:
    """The rows of some pairs of protocol and metric."""
    if not kinds:
        return _joined(path, lambda batch: np.zeros(len(batch), dtype=bool), most=1)

    def chosen(batch: pa.RecordBatch) -> Mask:
        mask = _paired(batch, kinds)
        return mask if networks is None else mask & _among(batch, "network", networks)

    return _joined(path, chosen)


def contents(path: Path) -> pd.DataFrame:
    """Which words occur together in a row (the columns `WORDS`), in the order of the table."""
    found: dict[tuple[str, ...], None] = {}
    for batch in _batches(path, list(WORDS)):
        columns = [batch.column(name) for name in WORDS]
        words = [column.dictionary.to_pylist() for column in columns]
        codes = [column.indices.to_numpy(zero_copy_only=False).astype(np.int64) for column in columns]
        joint = np.zeros(len(batch), dtype=np.int64)  # one number for each combination
        for some, code in zip(words, codes, strict=True):
            joint = joint * max(1, len(some)) + code
        _, first = np.unique(joint, return_index=True)
        for place in np.sort(first).tolist():
            found[tuple(some[code[place]] for some, code in zip(words, codes, strict=True))] = None
    return pd.DataFrame(list(found), columns=list(WORDS))


def _batches(path: Path, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    if path.exists() and not path.is_file():
        raise MissingFile(f"The scores of {str(path.parent)!r} are no file.")
    try:
        with pq.ParquetFile(path, read_dictionary=list(WORDS)) as file:
            _check(path, file.schema_arrow)
            for batch in file.iter_batches(_BATCH, columns=columns, use_threads=False):
                for name in (*WORDS, *_NUMBERS):
                    if name in batch.schema.names and batch.column(name).null_count:
                        raise MissingFile(
                            f"The scores of {str(path.parent)!r} are damaged: {name!r} has gaps."
                        )
                yield batch
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:  # KeyError: a column is not there
        raise MissingFile(f"The scores of {str(path.parent)!r} cannot be read.") from error


def _check(path: Path, schema: pa.Schema) -> None:
    """Refuse a table that is none of scores, whoever wrote it."""
    kinds: dict[str, Callable[[pa.DataType], bool]] = {
        **dict.fromkeys(WORDS, _is_text),
        **dict.fromkeys(_NUMBERS, pa.types.is_integer),
        "value": lambda kind: pa.types.is_floating(kind) or pa.types.is_integer(kind),
        "degenerate": pa.types.is_boolean,
    }
    for name, fits in kinds.items():
        if name not in schema.names or not fits(schema.field(name).type):
            where, wrong = repr(str(path.parent)), "does not fit" if name in schema.names else "is missing"
            raise MissingFile(f"The scores of {where} are damaged: the column {name!r} {wrong}.")


def _is_text(kind: pa.DataType) -> bool:
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(inner) or pa.types.is_large_string(inner))


def _among(batch: pa.RecordBatch, name: str, wanted: Collection[str]) -> Mask:
    """Which rows have one of these words in a column: found among the few words, not among the rows."""
    column = batch.column(name)
    known = np.array([word in wanted for word in column.dictionary.to_pylist()], dtype=bool)
    codes = column.indices.to_numpy(zero_copy_only=False)
    return known[codes] if len(known) else np.zeros(len(codes), dtype=bool)


def _paired(batch: pa.RecordBatch, kinds: Collection[tuple[str, str]]) -> Mask:
    """Which rows have one of these pairs of protocol and metric."""
    first, second = (batch.column(name) for name in ("protocol", "metric"))
    protocols, metrics = first.dictionary.to_pylist(), second.dictionary.to_pylist()
    if not protocols or not metrics:
        return np.zeros(len(batch), dtype=bool)
    known = np.array([[(one, two) in kinds for two in metrics] for one in protocols], dtype=bool)
    codes = [column.indices.to_numpy(zero_copy_only=False) for column in (first, second)]
    found: Mask = known[codes[0], codes[1]]
    return found


def _joined(path: Path, choose: Choice, most: int | None = None) -> pd.DataFrame:
    """The chosen rows of all batches, or of the first few; words are categories, in alphabetical order."""
    parts: list[pa.RecordBatch] = []
    empty: pa.RecordBatch | None = None
    for batch in islice(_batches(path), most):
        mask = choose(batch)
        part = batch if mask is None else batch.filter(pa.array(mask))
        empty = batch.slice(0, 0) if empty is None else empty
        if len(part):
            parts.append(part)
    if empty is None:
        raise MissingFile(f"The scores of {str(path.parent)!r} are empty.")
    table = pa.Table.from_batches(parts or [empty], schema=empty.schema).unify_dictionaries()
    frame = table.to_pandas(self_destruct=True)
    for name in WORDS:  # tables sort by it, not by who came first
        if isinstance(frame[name].dtype, pd.CategoricalDtype):
            used = frame[name].cat.remove_unused_categories()
            frame[name] = used.cat.set_categories(sorted(used.cat.categories))
    return frame
