"""Exports: a run as a table or as a run of MLflow, for those who look at results elsewhere."""

from __future__ import annotations

import importlib
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
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

    Args:
        run: the run.
        path: of the file.
    """
    target, source = _place(path), run.folder / SCORES
    try:
        with pq.ParquetFile(source) as file, atomically(target) as made:
            plain = pa.schema([(f.name, _plain(f.type)) for f in file.schema_arrow])
            with csv.CSVWriter(made, plain) as writer:
                for batch in file.iter_batches():
                    writer.write_table(pa.Table.from_batches([batch]).cast(plain))
    except pa.ArrowException as error:
        raise MissingFile(f"The scores of {str(run.folder)!r} cannot be read.") from error
    return target


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


def boards(run: Run) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Protocol, metric and leaderboard, of the headline of each protocol and of every own metric."""
    asked = [(p, leaderboards.HEADLINES[p]) for p in run.manifest["study"]["protocols"]]
    asked += [
        (protocol, name)
        for name, metric in run.metrics.items()
        for protocol in run.manifest["study"]["protocols"]
        if metric.protocol in (protocol, protocol.partition(":")[0])
    ]
    for protocol, metric in asked:
        try:
            yield protocol, metric, run.leaderboard(protocol, metric)
        except VeraxError:  # no method has scores everywhere: there is nothing to rank
            continue


def _word(text: str) -> str:
    """A name as MLflow takes it on every system."""
    return re.sub(r"[^A-Za-z0-9_./ -]+", "-", text).strip()


def _numbers(run: Run) -> dict[str, float]:
    found: dict[str, float] = {}
    for protocol, metric, board in boards(run):
        for row in board.itertuples(index=False):
            # in a folder each is a file, so that none may be the folder of another
            stem = _word(f"{protocol}/{metric}/{str(row.method).replace('/', '-')}")
            for name, value in (
                ("/mean", row.value),
                ("/low", row.low),
                ("/high", row.high),
                ("/skill", row.skill),
            ):
                if math.isfinite(value):
                    found[stem + name] = float(value)
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
"""Name -> what writes a run to a file."""


def export(run: Run, format: str, path: str | Path | None = None, **options: Any) -> Path | str:
    """Write a run as "csv" or "parquet", or log it to "mlflow"; gives the path, or the id of the run there.

    Args:
        run: the run.
        format: one of the three.
        path: of the file (default: beside the run, called after it).
        **options: of `to_mlflow`.
    """
    if format == "mlflow":
        if path is not None:
            raise InvalidParameter("MLflow keeps runs itself; name its place with tracking, not a file.")
        return to_mlflow(run, **options)
    if format not in FORMATS:
        raise InvalidParameter(f"There is no format {format!r}{suggestion(format, [*FORMATS, 'mlflow'])}")
    if options:
        raise InvalidParameter(f"{format} has no option {next(iter(options))!r}; mlflow has.")
    folder = run.folder.resolve()
    return FORMATS[format](run, Path(path) if path else folder.parent / f"{folder.name}.{format}")
