"""What a benchmark found, as a file: rows with ratios, what they were measured on, and with what.

A record is ``benchmarks/results/NAME.json``. It names the hardware and the versions, and nothing that
belongs to one machine: no path, no host, no user. Costs on a CPU are multiples of a unit that was measured
in the same process, because seconds of a busy machine mean nothing to anybody; a GPU's record also says how
many seconds the unit took.
"""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"
PACKAGES = ("torch", "numpy", "captum", "zennit", "shap", "grad-cam", "quantus", "torchvision", "timm")
SENSES = ("at least", "at most")


@dataclass(frozen=True)
class Result:
    """One row of a league.

    Attributes:
        league: what is compared: "methods", "metrics", "data", "growth", "start-up", "floors" ...
        row: the thing that is measured, mostly a method or a metric.
        network: what it is measured on; empty where there is none.
        batch: samples at once.
        device: "cpu" or "cuda".
        ours: what verax takes, in units.
        unit: what one unit is, in words.
        peers: implementation -> what it takes, in units.
        peer: the best of those that give the same thing; None where nobody else has it.
        ratio: what the target is about; for a race, the best peer's cost over ours.
        target: what `ratio` should be, `sense` target; None where nothing was asked for.
        sense: "at least" or "at most".
        floor: what the bare passes through the network take, in units, where that bounds everybody.
        memory: implementation -> peak memory beyond what was there before, in MiB.
        notes: implementation -> why it is not in the race.
        seconds: seconds of one unit; on a GPU alone.
    """

    league: str
    row: str
    network: str = ""
    batch: int = 0
    device: str = "cpu"
    ours: float = math.nan
    unit: str = ""
    peers: dict[str, float] = field(default_factory=dict)
    peer: str | None = None
    ratio: float | None = None
    target: float | None = None
    sense: str = "at least"
    floor: float | None = None
    memory: dict[str, float] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.sense not in SENSES:
            raise ValueError(f"A target is {' or '.join(SENSES)} something, not {self.sense!r}.")

    @property
    def key(self) -> tuple[str, str, str, int, str]:
        """What makes a row the same row in two records."""
        return self.league, self.row, self.network, self.batch, self.device

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        if self.target is None or self.ratio is None:
            return None
        return self.ratio >= self.target if self.sense == "at least" else self.ratio <= self.target

    @property
    def ahead(self) -> bool | None:
        """Whether no peer takes less; None where nobody else has it."""
        return None if self.peer is None else self.ours <= self.peers[self.peer]


def race(league: str, row: str, costs: dict[str, float], wrong: Sequence[str] = (), **more: Any) -> Result:
    """A row of a race: `costs` of "verax" and of peers; those in `wrong` are shown but cannot win."""
    peers = {name: cost for name, cost in costs.items() if name != "verax"}
    fair = {name: cost for name, cost in peers.items() if name not in wrong}
    best = min(fair, key=lambda name: fair[name]) if fair else None
    ratio = None if best is None else fair[best] / costs["verax"]
    if best is None:
        more["target"] = None
    return Result(league, row, ours=costs["verax"], peers=peers, peer=best, ratio=ratio, **more)


def percent(error: float) -> str:
    """A relative error in a word."""
    return "> 1000 %" if error > 10 else f"{100 * error:.{0 if error >= 0.005 else 1}f} %"


@dataclass(frozen=True)
class Record:
    """All rows of one benchmark.

    Attributes:
        name: of the file.
        command: what makes it again.
        machine: the hardware.
        versions: package -> version; a package that is absent has None.
        results: the rows.
        skipped: what was not measured, and why.
        details: whatever else a page shows of it.
        date: of the oldest of its measurements, YYYY-MM-DD; that of today when it is written without one.
    """

    name: str
    command: str
    machine: dict[str, Any]
    versions: dict[str, str | None]
    results: list[Result]
    skipped: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    date: str = ""

    def result(self, *key: Any) -> Result | None:
        """The row of this key."""
        return next((result for result in self.results if result.key == key), None)


def machine(device: str = "cpu") -> dict[str, Any]:
    """The hardware, in words that do not tell which machine it is."""
    import torch

    facts: dict[str, Any] = {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "system": platform.system(),
    }
    if device == "cuda":
        about = torch.cuda.get_device_properties(0)
        facts |= {
            "gpu": about.name,
            "gpu memory GiB": round(about.total_memory / 2**30, 1),
            "cuda": torch.version.cuda,
        }
    return facts


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def versions() -> dict[str, str | None]:
    """What is installed of verax and of those that it is compared with."""
    from verax.version import __version__

    found: dict[str, str | None] = {"verax": __version__}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


def rounded(thing: Any) -> Any:
    """The same with numbers of four digits: more would be noise, and would change on every run."""
    if isinstance(thing, dict):
        return {str(key): rounded(value) for key, value in thing.items()}
    if isinstance(thing, list | tuple):
        return [rounded(value) for value in thing]
    if isinstance(thing, float):
        return float(f"{thing:.4g}") if math.isfinite(thing) else None
    return thing


def write(record: Record, folder: Path = FOLDER) -> Path:
    """Write a record whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{record.name}.json"
    content = rounded(asdict(record)) | {"date": record.date or datetime.now(UTC).date().isoformat()}
    content["results"] = [
        {key: value for key, value in row.items() if value not in (None, {}, "", [])}
        for row in content["results"]
    ]
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    waiting = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        waiting.write_text(text)
        waiting.replace(path)
    finally:
        waiting.unlink(missing_ok=True)
    return path


def read(path: Path) -> Record:
    """A record as it was written; rows are in order."""
    content = json.loads(path.read_text())
    content["results"] = [Result(**row) for row in content["results"]]
    return Record(**content)


def merged(old: Record, new: Record) -> Record:
    """A record with rows that were measured again in their places, and new ones behind the others."""
    again = {result.key: result for result in new.results}
    rows = [again.pop(result.key, result) for result in old.results]
    asked = {line.partition(": ")[0] for line in new.skipped}
    for result in new.results:
        where = f"{result.network}, batch {result.batch}"
        asked |= {where, f"{result.row} on {where}"}
    skipped = [line for line in old.skipped if line.partition(": ")[0] not in asked]
    details = old.details | new.details
    fresh = {result.key for result in new.results}
    date = new.date if all(result.key in fresh for result in old.results) else old.date
    results = [*rows, *again.values()]
    return replace(new, results=results, skipped=skipped + new.skipped, details=details, date=date)


def read_all(folder: Path = FOLDER) -> dict[str, Record]:
    """All records of a folder by their names."""
    return {path.stem: read(path) for path in sorted(folder.glob("*.json"))}
