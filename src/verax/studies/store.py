"""The store: finished units on disk, each whole or not there at all.

An entry is a JSON file that names its parts and their SHA-256; it is written last. What does not fit its
checksum is set aside and computed anew.
"""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from verax.files import write_atomically


@dataclass(frozen=True)
class Result:
    """What a unit leaves behind.

    Attributes:
        tables: named tables (one for each protocol, or those of a certificate).
        maps: small tensors for pictures.
        info: plain facts: seconds, counts, certificate summary.
    """

    tables: dict[str, pd.DataFrame]
    maps: dict[str, Tensor]
    info: dict[str, Any]


_DAMAGE = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RecursionError,
    SafetensorError,
    pa.ArrowException,
)
"""What reading a damaged entry can raise."""


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class Store:
    """A folder of finished units."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.damaged: list[str] = []

    def _entry(self, key: str) -> Path:
        return self.folder / "units" / key[:2] / f"{key}.json"

    def write(self, key: str, result: Result) -> None:
        """Keep a result."""
        entry = self._entry(key)
        parts: dict[str, bytes] = {}
        for name, frame in result.tables.items():
            buffer = io.BytesIO()
            pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), buffer, compression="zstd")
            parts[f"{key}.{name.replace(':', '+')}.parquet"] = buffer.getvalue()  # not all disks take colons
        if result.maps:
            parts[f"{key}.safetensors"] = save_tensors(result.maps)
        for file, data in parts.items():
            write_atomically(entry.parent / file, data)
        names = {file: hashlib.sha256(data).hexdigest() for file, data in parts.items()}
        content = {"key": key, "parts": names, "info": result.info}
        text = json.dumps({**content, "sha256": _digest(content)}, indent=1)
        write_atomically(entry, text.encode())

    def read(self, key: str) -> Result | None:
        """A finished result, or None when it is not there or is damaged."""
        entry = self._entry(key)
        try:
            text = entry.read_bytes()
        except OSError:
            return None
        try:
            return self._parse(key, entry, text)
        except _DAMAGE:
            self.set_aside(key)
            return None

    def set_aside(self, key: str) -> None:
        """Move a damaged entry out of the way, so that its unit is computed anew."""
        self.damaged.append(key)
        entry = self._entry(key)
        entry.replace(entry.with_suffix(".damaged"))

    @staticmethod
    def _parse(key: str, entry: Path, text: bytes) -> Result:
        content = json.loads(text)
        if content["key"] != key or content.pop("sha256") != _digest(content):
            raise ValueError("another unit's entry, or a changed one")
        tables: dict[str, pd.DataFrame] = {}
        maps: dict[str, Tensor] = {}
        for name, digest in content["parts"].items():
            if Path(name).name != name:
                raise ValueError("a part outside the store")
            data = (entry.parent / name).read_bytes()
            if hashlib.sha256(data).hexdigest() != digest:
                raise ValueError("checksum")
            if name.endswith(".parquet"):
                table = name.removeprefix(f"{key}.").removesuffix(".parquet").replace("+", ":")
                tables[table] = pq.read_table(io.BytesIO(data)).to_pandas()
            else:
                maps = load_tensors(data)
        return Result(tables, maps, dict(content["info"]))

    def __contains__(self, key: str) -> bool:
        return self._entry(key).is_file()
