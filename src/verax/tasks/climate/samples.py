"""Samples of a field and what F makes of them, without end and without memory.

A sample is a function of (purpose, seed, number) alone: chunks are the same in any order, in chunks of any
size and on every machine (up to the last digit of float32, where the arithmetic of devices differs).
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from verax.errors import InvalidParameter, OutputError, suggestion
from verax.files import make_folder
from verax.seeding import Streams
from verax.tasks.climate.fields import Field
from verax.tasks.climate.functions import LocalFunctions

PURPOSES = ("train", "test", "cases", "baseline")
"""Uses of samples that never share one."""

MODES = ("fresh", "memory", "mapped")
CHUNK = 16_384
Watch = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Samples:
    """A number of samples that are drawn whenever they are asked for.

    Attributes:
        field: what they are drawn from.
        function: F.
        count: how many there are.
        purpose: one of `PURPOSES`.
        seed: of the draws.
        size: how many make a chunk.
    """

    field: Field
    function: LocalFunctions
    count: int
    purpose: str = "train"
    seed: int = 0
    size: int = CHUNK

    def __post_init__(self) -> None:
        if self.purpose not in PURPOSES:
            raise InvalidParameter(
                f"Samples have no purpose {self.purpose!r}{suggestion(self.purpose, PURPOSES)}"
            )
        for word, value in (("count", self.count), ("size", self.size)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InvalidParameter(f"The {word} of samples is a whole number above 0, not {value!r}.")

    def __len__(self) -> int:
        return self.count

    @property
    def chunks(self) -> int:
        """How many chunks there are; the last one may be short."""
        return -(-self.count // self.size)

    def ids(self, index: int, device: str | torch.device = "cpu") -> Tensor:
        """The numbers of the samples in a chunk."""
        if not 0 <= index < self.chunks:
            raise InvalidParameter(f"There are chunks 0 to {self.chunks - 1}, not {index!r}.")
        last = min((index + 1) * self.size, self.count)
        return torch.arange(index * self.size, last, device=device)

    def inputs(self, ids: Tensor) -> Tensor:
        """``(N, D)`` float32; the samples with these numbers."""
        return self.field.draw(Streams.of(ids, "climate", self.purpose, self.seed))

    def chunk(self, index: int, device: str | torch.device = "cpu") -> tuple[Tensor, Tensor]:
        """Inputs ``(N, D)`` and outputs ``(N,)`` of one chunk, float32."""
        x = self.inputs(self.ids(index, device))
        return x, self.function.total(x)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """All chunks in order."""
        return (self.chunk(index) for index in range(self.chunks))

    def keep(
        self,
        mode: str = "memory",
        *,
        device: str | torch.device = "cpu",
        folder: Path | None = None,
        watch: Watch | None = None,
    ) -> Samples | Kept:
        """The samples as `mode` says: ``fresh`` (drawn each time), ``memory`` or ``mapped`` (a file).

        Args:
            mode: one of `MODES`.
            device: where they are kept in memory.
            folder: where the file of ``mapped`` is; it is written once.
            watch: called with the chunks that are done and their number.
        """
        if mode not in MODES:
            raise InvalidParameter(f"Samples cannot be kept {mode!r}{suggestion(mode, MODES)}")
        if mode == "fresh":
            return self
        if mode == "memory":
            x = torch.empty(self.count, len(self.field), device=device)
            y = torch.empty(self.count, device=device)
            for index, part in self._watched(device, watch):
                here = slice(index * self.size, (index + 1) * self.size)
                x[here], y[here] = part
            return Kept(x, y, self.size)
        if folder is None:
            raise InvalidParameter("Samples that are kept 'mapped' need a folder.")
        return self._mapped(make_folder(folder), watch)

    def _watched(
        self, device: str | torch.device, watch: Watch | None
    ) -> Iterator[tuple[int, tuple[Tensor, Tensor]]]:
        for index in range(self.chunks):
            yield index, self.chunk(index, device)
            if watch is not None:
                watch(index + 1, self.chunks)

    def _mapped(self, folder: Path, watch: Watch | None) -> Kept:
        label = (self.field.digest, self.function.digest, self.purpose, self.seed, self.count)
        path = folder / f"samples-{hashlib.sha256(repr(label).encode()).hexdigest()[:16]}.npy"
        both = self._read(path)
        if both is None:  # not there, or damaged: samples can always be drawn again
            self._write(path, watch)
            both = self._read(path)
        if both is None:
            raise OutputError(f"Cannot read {str(path)!r}, which was just written.")
        return Kept(both[:, :-1], both[:, -1], self.size)

    def _read(self, path: Path) -> Tensor | None:
        """The array of a file, where that is whole."""
        try:
            found = np.load(path, mmap_mode="c")
        except (OSError, ValueError, EOFError):
            return None
        shape = (self.count, len(self.field) + 1)
        whole = isinstance(found, np.ndarray) and found.shape == shape and found.dtype == np.float32
        return torch.from_numpy(found) if whole else None

    def _write(self, path: Path, watch: Watch | None) -> None:
        """One array with outputs in its last column; the file is there whole or not at all."""
        about = {"descr": "<f4", "fortran_order": False, "shape": (self.count, len(self.field) + 1)}
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".samples", delete=False) as file:
            temporary = Path(file.name)
            try:
                np.lib.format.write_array_header_2_0(file, about)
                for _, (x, y) in self._watched("cpu", watch):
                    file.write(torch.cat([x, y[:, None]], 1).numpy().data)
                file.flush()
                temporary.replace(path)
            except OSError as error:
                raise OutputError(f"Cannot write {str(path)!r}: {error.strerror or error}.") from error
            finally:
                temporary.unlink(missing_ok=True)


@dataclass(frozen=True, eq=False)
class Kept:
    """Samples that lie in memory or in a mapped file.

    Attributes:
        x: ``(N, D)`` float32.
        y: ``(N,)`` float32.
        size: how many make a chunk.
    """

    x: Tensor
    y: Tensor
    size: int = CHUNK

    def __len__(self) -> int:
        return len(self.x)

    @property
    def chunks(self) -> int:
        """How many chunks there are; the last one may be short."""
        return -(-len(self) // self.size)

    def chunk(self, index: int, device: str | torch.device | None = None) -> tuple[Tensor, Tensor]:
        """Inputs ``(N, D)`` and outputs ``(N,)`` of one chunk."""
        if not 0 <= index < self.chunks:
            raise InvalidParameter(f"There are chunks 0 to {self.chunks - 1}, not {index!r}.")
        part = slice(index * self.size, (index + 1) * self.size)
        x, y = self.x[part], self.y[part]
        return (x, y) if device is None else (x.to(device), y.to(device))

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """All chunks in order."""
        return (self.chunk(index) for index in range(self.chunks))
