"""Exports: a run as a table or as a run of MLflow, for those who look at results elsewhere."""

from __future__ import annotations

import hashlib
import importlib
import itertools
import math
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.csv as csv
import pyarrow.parquet as pq

from verax.errors import InvalidParameter, MissingExtra, MissingFile, OutputError, VeraxError, suggestion
from verax.files import atomically, make_folder
from verax.studies import leaderboards
from verax.studies.runs import MANIFEST, REPORT, SCORES, Run

_PARAMETER = 500
"""Characters that MLflow takes as the value of a parameter."""

_SERVICES = ("databricks", "databricks-uc", "uc")
"""Words that are no folder to MLflow."""

_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}
"""MLflow tries for minutes to reach a server that is not there; a user's own settings come first."""


def _place(path: str | Path) -> Path:
    target = Path(path).expanduser()
    if target.is_dir():
        raise OutputError(f"{str(target)!r} is a folder; name a file.")
    make_folder(target.parent)
    return target


def to_csv(run: Run, path: str | Path) -> Path:
    """Write all scores of a run, one row for each sample, method and metric, as CSV; row group by row group.

    Names that a spreadsheet would take for a formula get an apostrophe in front (`defused`).

    Args:
        run: the run.
        path: of the file.
    """
    target, source = _place(path), run.folder / SCORES
    try:
        if not source.is_file():
            raise pa.ArrowInvalid("there are none")
        with pq.ParquetFile(source) as file, atomically(target) as made:
            plain = pa.schema([(f.name, _plain(f.type)) for f in file.schema_arrow])
            with csv.CSVWriter(made, plain) as writer:
                for batch in file.iter_batches():
                    writer.write_table(_defused(pa.Table.from_batches([batch]).cast(plain)))
    except pa.ArrowException as error:
        raise MissingFile(f"The scores of {str(run.folder)!r} cannot be read.") from error
    return target


FORMULA = r"^[=+\-@\t\r]"
"""How a text begins that spreadsheets compute instead of showing it."""


def defused(frame: pd.DataFrame) -> pd.DataFrame:
    """A table for spreadsheets: an apostrophe stands before texts that begin with = + - @, tab or return.

    Labels come from other people's files, and spreadsheets run what looks like a formula. Numbers are numbers
    and stay as they are.
    """
    texts = [name for name in frame if not pd.api.types.is_any_real_numeric_dtype(frame[name].dtype)]
    made = {name: frame[name].map(_defuse).astype(object) for name in texts}
    return frame.assign(**made)


def _defuse(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and re.match(FORMULA, value) else value


def _defused(table: pa.Table) -> pa.Table:
    """The same for a table of Arrow."""
    for place, field in enumerate(table.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            texts = table.column(place)
            mark, nothing = pa.scalar("'", field.type), pa.scalar("", field.type)
            quoted = compute.binary_join_element_wise(mark, texts, nothing)
            found = compute.if_else(compute.match_substring_regex(texts, FORMULA), quoted, texts)
            table = table.set_column(place, field, found)
    return table


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def to_parquet(run: Run, path: str | Path) -> Path:
    """Write all scores of a run as one Parquet file.

    Args:
        run: the run.
        path: of the file.
    """
    target, source = _place(path), run.folder / SCORES
    if not source.is_file():
        raise MissingFile(f"The scores of {str(run.folder)!r} cannot be read.")
    with atomically(target) as made:
        shutil.copyfile(source, made)
    return target


def boards(run: Run) -> Iterator[tuple[int, str, str, pd.DataFrame]]:
    """Tier, protocol, metric and leaderboard, of the headline of each protocol and of every own metric.

    There is one for each tier: scores of networks whose truth is known otherwise are never averaged.
    """
    headlines = [(p, leaderboards.HEADLINES[p]) for p in run.manifest["study"]["protocols"]]
    yield from _boards(run, headlines)
    yield from own_boards(run)


def own_boards(run: Run) -> Iterator[tuple[int, str, str, pd.DataFrame]]:
    """The same of own metrics alone."""
    asked = [
        (protocol, name)
        for name, metric in run.metrics.items()
        for protocol in run.manifest["study"]["protocols"]
        if metric.protocol in (protocol, protocol.partition(":")[0])
    ]
    return _boards(run, asked)


def _boards(run: Run, asked: Sequence[tuple[str, str]]) -> Iterator[tuple[int, str, str, pd.DataFrame]]:
    parted = run.by_tier()
    for (protocol, metric), (tier, part) in itertools.product(asked, parted):
        try:
            yield tier, protocol, metric, part.leaderboard(protocol, metric)
        except VeraxError:  # no method has scores everywhere: there is nothing to rank
            continue


def _word(text: str) -> str:
    """A name as MLflow takes it on every system."""
    parts = re.sub(r"[^A-Za-z0-9_./ -]+", "-", text).strip().split("/")
    return "/".join("-" if part in ("", ".", "..") else part for part in parts)


_ENDINGS = {"/mean": "value", "/low": "low", "/high": "high", "/skill": "skill"}
"""What is added to a name -> a column of a leaderboard."""


def metric_stems(names: Collection[tuple[str, str, str]]) -> dict[tuple[str, str, str], str]:
    """What each protocol, metric and method is called in MLflow; no two have a name in common.

    Where names would meet, those that could not be kept as they are get a few digits of their hash.
    """
    # in a folder each is a file, so that none may be the folder of another
    stems = {name: _word("/".join((*name[:2], name[2].replace("/", "-")))) for name in names}
    made = Counter(stem + ending for stem in stems.values() for ending in _ENDINGS)
    for name, stem in stems.items():
        kept = stem == "/".join(name)
        if not kept and any(made[stem + ending] > 1 for ending in _ENDINGS):
            digits = hashlib.sha256("\0".join(name).encode()).hexdigest()[:8]
            stems[name] = f"{stem}-{digits}"
    return stems


def _numbers(run: Run) -> dict[str, float]:
    found: dict[str, float] = {}
    several = len(set(run.tiers.values())) > 1
    ranked = [(f"tier-{tier}/{p}" if several else p, m, board) for tier, p, m, board in boards(run)]
    stems = metric_stems([(p, m, str(label)) for p, m, board in ranked for label in board["method"]])
    for protocol, metric, board in ranked:
        for row in board.to_dict("records"):
            for ending, column in _ENDINGS.items():
                if math.isfinite(row[column]):
                    found[stems[protocol, metric, str(row["method"])] + ending] = float(row[column])
    found["seconds"] = float(run.manifest["seconds"])
    found["failures"] = float(len(run.failures))
    return found


def _words(run: Run) -> dict[str, str]:
    study = {name: value for name, value in run.manifest["study"].items() if name != "description"}
    study["methods"] = [entry["label"] for entry in study["methods"]]
    facts = {**study, "plan": run.manifest["plan"], "verax": run.manifest["versions"]["verax"]}
    words = {
        name: ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        for name, value in facts.items()
    }
    return {
        name: word if len(word) <= _PARAMETER else word[: _PARAMETER - 3] + "..."
        for name, word in words.items()
    }


def to_mlflow(run: Run, experiment: str = "verax", tracking: str | None = None) -> str:
    """Log a run to MLflow: its study as parameters, its leaderboards as metrics, its files as artifacts.

    Args:
        run: the run.
        experiment: of MLflow; made where it is missing.
        tracking: the address of a tracking server or a folder (default: MLflow's own choice).

    Returns:
        The id of the run in MLflow.
    """
    try:
        mlflow: Any = importlib.import_module("mlflow")
    except ImportError as error:
        raise MissingExtra("'mlflow' is not installed; install it with: pip install mlflow") from error
    numbers, words = _numbers(run), _words(run)
    for name, value in _PATIENCE.items():
        os.environ.setdefault(name, value)
    try:
        if tracking is not None:
            if "://" not in tracking and tracking not in _SERVICES:
                # MLflow 3 asks for a database, unless somebody insists on a folder, as here
                os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
                tracking = Path(tracking).expanduser().resolve().as_uri()
            mlflow.set_tracking_uri(tracking)
        mlflow.set_experiment(experiment)
        with mlflow.start_run(run_name=run.folder.resolve().name) as active:
            mlflow.log_params(words)
            mlflow.log_metrics(numbers)
            for name in (SCORES, MANIFEST, REPORT):
                if (run.folder / name).is_file():
                    mlflow.log_artifact(str(run.folder / name))
            return str(active.info.run_id)
    except Exception as error:  # a server that cannot be reached, for one
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        where = " Name a folder or the address of a server (--tracking)." if tracking is None else ""
        raise OutputError(f"MLflow did not take the run: {reason[:300]}{where}") from error


FORMATS: dict[str, Callable[[Run, Path], Path]] = {"csv": to_csv, "parquet": to_parquet}
"""Name -> what writes a run to a file; files end in the name."""


def format_of(format: str | None, path: str | Path | None) -> str:
    """The format that is asked for or, where none is, the one that the ending of the file names.

    An ending that says something else, or nothing that is known, is refused.

    Args:
        format: as it was asked for.
        path: of the file, where one is named.
    """
    if format is not None and format not in (*FORMATS, "mlflow"):
        raise InvalidParameter(f"There is no format {format!r}{suggestion(format, [*FORMATS, 'mlflow'])}")
    if path is None or format == "mlflow" or Path(path).expanduser().is_dir():  # which is refused later
        return format or "csv"
    name, ending = str(path), Path(path).suffix[1:].lower()
    if ending in FORMATS and format in (None, ending):
        return ending
    if ending in FORMATS:
        raise InvalidParameter(
            f"The file {name!r} ends in .{ending}, but {format} is asked for: let them agree."
        )
    if not ending and format is not None:
        return format
    what = (
        f"ends in .{ending}, which is no format of a table" if ending else "has no ending that names a format"
    )
    raise InvalidParameter(
        f"The file {name!r} {what}: name one that ends in {' or '.join(f'.{name}' for name in FORMATS)}."
    )


def export(run: Run, format: str | None = None, path: str | Path | None = None, **options: Any) -> Path | str:
    """Write a run as "csv" or "parquet", or log it to "mlflow"; gives the path, or the id of the run there.

    Args:
        run: the run.
        format: one of the three (default: as the file ends, "csv" where none is named).
        path: of the file (default: beside the run, called after it).
        **options: of `to_mlflow`.
    """
    format = format_of(format, path)
    if format == "mlflow":
        if path is not None:
            raise InvalidParameter("MLflow keeps runs itself; name its place with tracking, not a file.")
        return to_mlflow(run, **options)
    if options:
        raise InvalidParameter(f"{format} has no option {next(iter(options))!r}; mlflow has.")
    folder = run.folder.resolve()
    return FORMATS[format](run, Path(path) if path else folder.parent / f"{folder.name}.{format}")
