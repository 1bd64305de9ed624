"""Entries: results as bytes, with checksums, ready to be written by whoever holds the store.

A worker packs its result into an `Entry`; bytes travel, and the driver writes them as they are. Formats are
JSON, parquet and safetensors; nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from verax.studies.units import FORMAT


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


@dataclass(frozen=True)
class Entry:
    """A result as bytes.

    Attributes:
        key: of its unit.
        head: a JSON text that names the parts and their SHA-256, and has one of its own.
        parts: file name -> content.
    """

    key: str
    head: bytes
    parts: dict[str, bytes] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self.head) + sum(map(len, self.parts.values()))


class Damaged(ValueError):
    """An entry that cannot be used; the message says why."""


DAMAGE = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RecursionError,
    SafetensorError,
    pa.ArrowException,
)
"""What reading a damaged entry can raise."""


def sha256(data: bytes) -> str:
    """In hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def _sealed(content: dict[str, Any]) -> bytes:
    text = json.dumps(content, sort_keys=True)
    return json.dumps({**content, "sha256": sha256(text.encode())}, indent=1).encode()


def pack(key: str, result: Result) -> Entry:
    """A result as an entry."""
    contents: dict[str, bytes] = {}
    for name, frame in result.tables.items():
        buffer = io.BytesIO()
        pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), buffer, compression="zstd")
        contents[f"{name.replace(':', '+')}.parquet"] = buffer.getvalue()  # not all disks take colons
    if result.maps:
        contents["safetensors"] = save_tensors(result.maps)
    # Parts are named by their content: two writers of one key can never mix theirs.
    digests = {ending: sha256(data) for ending, data in contents.items()}
    named = {ending: f"{key}.{digests[ending][:12]}.{ending}" for ending in contents}
    parts = {named[ending]: data for ending, data in contents.items()}
    names = {named[ending]: digest for ending, digest in digests.items()}
    head = _sealed({"format": FORMAT, "key": key, "parts": names, "info": result.info})
    return Entry(key, head, parts)


def read_head(key: str, text: bytes) -> dict[str, Any]:
    """The content of an entry's head, or `Damaged` with the reason."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Damaged("truncated or not JSON") from error
    if not isinstance(content, dict) or not isinstance(content.get("key"), str):
        raise Damaged("not an entry of a store")
    if content.get("format") != FORMAT:
        raise Damaged(f"of another version (format {content.get('format')!r}, not {FORMAT})")
    if content["key"] != key:
        raise Damaged("the entry of another unit")
    digest = content.pop("sha256", None)
    if digest != sha256(json.dumps(content, sort_keys=True).encode()):
        raise Damaged("its checksum does not fit: it was changed")
    if not isinstance(content.get("info"), dict):
        raise Damaged("not an entry of a store")
    return content


def named_parts(content: dict[str, Any]) -> dict[str, str]:
    """The parts of an entry and their SHA-256; names that lead elsewhere are refused."""
    parts = content["parts"]
    if not isinstance(parts, dict):
        raise Damaged("not an entry of a store")
    for name in parts:
        if "/" in name or "\\" in name or not name.startswith(f"{content['key']}."):
            raise Damaged("a part outside the store")
    return parts


def check(content: dict[str, Any], parts: dict[str, bytes]) -> None:
    """Raise `Damaged` unless all parts that the content of a head names are there and fit their checksums."""
    for name, digest in named_parts(content).items():
        if name not in parts:
            raise Damaged("a part is missing")
        if sha256(parts[name]) != digest:
            raise Damaged("the checksum of a part does not fit")


@dataclass(frozen=True)
class Opened:
    """A result as it lies in an entry; its tables are Arrow's, which are read in a third of the time.

    Attributes:
        tables: as in a `Result`.
        maps: the same.
        info: the same.
    """

    tables: dict[str, pa.Table]
    maps: dict[str, Tensor]
    info: dict[str, Any]

    def result(self) -> Result:
        """The same with tables of pandas, or `Damaged`."""
        try:
            frames = {name: table.to_pandas(use_threads=False) for name, table in self.tables.items()}
        except DAMAGE as error:
            raise Damaged("a part cannot be read") from error
        return Result(frames, self.maps, self.info)


def opened(content: dict[str, Any], parts: dict[str, bytes]) -> Opened:
    """The result in parts that fit the content of a head (`check`), or `Damaged` with the reason."""
    tables: dict[str, pa.Table] = {}
    maps: dict[str, Tensor] = {}
    for name in named_parts(content):
        try:
            if name.endswith(".parquet"):
                table = name.split(".", 2)[2].removesuffix(".parquet").replace("+", ":")
                # a file of a few rows: to look for many of them, or to start threads, takes longer
                with pq.ParquetFile(pa.BufferReader(parts[name])) as file:
                    tables[table] = file.read(use_threads=False)
            else:
                maps = load_tensors(parts[name])
        except DAMAGE as error:
            raise Damaged("a part cannot be read") from error
    return Opened(tables, maps, dict(content["info"]))


def unpack(entry: Entry) -> Result:
    """The result in an entry, or `Damaged` with the reason."""
    content = read_head(entry.key, entry.head)
    check(content, entry.parts)
    return opened(content, entry.parts).result()
