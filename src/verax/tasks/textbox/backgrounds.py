"""What lies behind the objects."""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from verax.errors import InvalidParameter, MissingFile, suggestion
from verax.seeding import Streams, parts
from verax.tasks.textbox.textures import Texture

SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff"}


class Background(Protocol):
    """Draws ``(N, 3, H, W)`` float32 in [0, 1], one picture for each stream."""

    @property
    def spec(self) -> str:
        """How it is asked for, such as ``noise:0-150``."""
        ...

    @property
    def fingerprint(self) -> str:
        """What the pictures depend on, as text."""
        ...

    def draw(self, streams: Streams, canvas: tuple[int, int]) -> Tensor:
        """One picture for each stream."""
        ...


@dataclass(frozen=True)
class Black:
    """Nothing at all."""

    spec: str = "black"
    fingerprint: str = "black"

    def draw(self, streams: Streams, canvas: tuple[int, int]) -> Tensor:
        """Zeros."""
        return torch.zeros(len(streams), 3, *canvas, device=streams.ids.device)


@dataclass(frozen=True)
class Noise:
    """Independent uniform levels `low` .. `high` (of 255) in every pixel and channel."""

    low: int = 0
    high: int = 150

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high <= 255:
            raise InvalidParameter(f"Noise levels run from 0 to 255, not {self.low}-{self.high}.")

    @property
    def spec(self) -> str:
        """How it is asked for."""
        return f"noise:{self.low}-{self.high}"

    @property
    def fingerprint(self) -> str:
        """What the pictures depend on, as text."""
        return self.spec

    def draw(self, streams: Streams, canvas: tuple[int, int]) -> Tensor:
        """One noise picture for each stream."""
        shape = (3, *canvas)
        drawn = torch.empty(len(streams), *shape, device=streams.ids.device)
        for part in parts(streams.ids, math.prod(shape)):
            drawn[part] = streams[part].integers("noise", self.high - self.low + 1, *shape).add_(self.low)
        return drawn.div_(255)


@dataclass(frozen=True)
class Folder:
    """Photographs from a folder (searched recursively), resized and darkened; one drawn for each sample."""

    path: Path
    brightness: float = 0.7

    def __post_init__(self) -> None:
        if not self.path.is_dir():
            raise MissingFile(f"There is no folder {str(self.path)!r} to take backgrounds from.")
        if not self.files():
            raise MissingFile(
                f"The folder {str(self.path)!r} holds no images ({', '.join(sorted(SUFFIXES))})."
            )

    def files(self) -> list[Path]:
        """The images, in an order that does not depend on the file system."""
        found = (p for p in self.path.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
        return sorted(found, key=lambda p: p.relative_to(self.path).as_posix())

    @property
    def spec(self) -> str:
        """How it is asked for."""
        return f"folder:{self.path}"

    @property
    def fingerprint(self) -> str:
        """What the pictures depend on: the bytes of every file and the brightness."""
        digest = hashlib.sha256()
        for file in self.files():
            digest.update(hashlib.sha256(file.read_bytes()).digest())
        return f"folder:{digest.hexdigest()}:{self.brightness}"

    def load(self, canvas: tuple[int, int]) -> Tensor:
        """All images as ``(M, 3, H, W)``."""
        return torch.from_numpy(np.stack([self._read(file, canvas) for file in self.files()]))

    def _read(self, file: Path, canvas: tuple[int, int]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        try:
            with Image.open(file) as image:
                small = (
                    _eight_bits(image).convert("RGB").resize((canvas[1], canvas[0]), Image.Resampling.BICUBIC)
                )
        except (UnidentifiedImageError, Image.DecompressionBombError, OSError, ValueError) as error:
            raise MissingFile(f"The background {str(file)!r} is not a readable image.") from error
        pixels = np.asarray(small, dtype=np.float32) / 255
        return np.ascontiguousarray((pixels * np.float32(self.brightness)).transpose(2, 0, 1))

    def draw(self, streams: Streams, canvas: tuple[int, int]) -> Tensor:
        """One photograph for each stream."""
        pictures = _cached(self, canvas).to(streams.ids.device)
        return pictures[streams.integers("background", len(pictures))]


def _eight_bits(image: Image.Image) -> Image.Image:
    """A picture of 16 bits in 8; converting it as it is would turn all but the darkest pixels white."""
    if not image.mode.startswith("I"):
        return image
    return Image.fromarray((np.asarray(image).clip(0, 65535) // 257).astype(np.uint8))


_CACHE: dict[object, Tensor] = {}


def _cached(folder: Folder, canvas: tuple[int, int]) -> Tensor:
    """Decode a folder once; training draws from it thousands of times. A changed file is decoded anew."""
    facts = [(file, file.stat().st_mtime_ns, file.stat().st_size) for file in folder.files()]
    known = (folder, canvas, tuple(facts))
    if known not in _CACHE:
        _CACHE.clear()
        _CACHE[known] = folder.load(canvas)
    return _CACHE[known]


def background(spec: str | Background) -> Background:
    """Read ``"black"``, ``"noise"``, ``"noise:LOW-HIGH"``, ``"texture"`` or ``"folder:PATH"``.

    A folder that is not found here is looked for under ``VERAX_DATA``.
    """
    if not isinstance(spec, str):
        return spec
    kind, _, rest = spec.partition(":")
    if spec == "black":
        return Black()
    if spec == "texture":
        return Texture()
    if kind == "noise":
        if not rest:
            return Noise()
        low, _, high = rest.partition("-")
        if not (low.isascii() and low.isdigit() and high.isascii() and high.isdigit()):
            raise InvalidParameter(
                f"Noise is written as 'noise:LOW-HIGH', for example 'noise:0-150', not {spec!r}."
            )
        return Noise(int(low), int(high))
    if kind == "folder" and rest:
        path, data = Path(rest).expanduser(), os.environ.get("VERAX_DATA")
        return Folder(Path(data) / path if data and not path.exists() else path)
    known = ["black", "noise", "texture", "folder"]
    raise InvalidParameter(f"There is no background {spec!r}{suggestion(kind, known)}")
