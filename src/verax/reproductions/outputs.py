"""What every reproduction leaves behind: a folder of its own, how long each phase took, filled documents."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from verax.errors import InvalidInput, MissingFile
from verax.files import write_atomically


@dataclass
class Phases:
    """Seconds and peak memory of each phase, in order."""

    rows: list[dict[str, Any]] = field(default_factory=list)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure what happens inside."""
        cuda = torch.cuda.is_available()
        if cuda:
            torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        yield
        # ru_maxrss is in kilobytes on Linux and in bytes on macOS, and never falls
        scale = 1 if sys.platform == "darwin" else 1024
        self.rows.append(
            {
                "phase": name,
                "seconds": time.perf_counter() - start,
                "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale,
                "gpu_memory": torch.cuda.max_memory_allocated() if cuda else None,
            }
        )


def check_output(out: Path) -> None:
    """Refuse a folder that holds other things, before anything is computed."""
    if out.is_dir() and any(out.iterdir()) and not (out / "runs").is_dir():
        raise MissingFile(f"The folder {str(out)!r} holds other things; name an empty one.")


def between(document: str | Path, begin: str, end: str, text: str) -> None:
    """Replace what stands between two markers of a document."""
    path = Path(document)
    old = path.read_text()
    if old.count(begin) != 1 or old.count(end) != 1 or old.index(begin) > old.index(end):
        raise InvalidInput(f"{str(path)!r} needs the markers {begin} and {end}, once and in this order.")
    before, after = old.partition(begin)[0], old.partition(end)[2]
    write_atomically(path, f"{before}{begin}\n{text}{end}{after}".encode())
