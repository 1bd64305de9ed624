"""Reading files that somebody else made: bounded, inside the data folder, and never run.

Annotation files come from archives of strangers. Pictures are measured before they are decoded, XML may not
declare entities, and a name in an annotation file cannot lead out of its folder. Links that the owner of a
folder put there are followed, because large data sets are often kept as links.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from verax.errors import MissingFile

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".gif", ".ppm")
_FORMATS = ("JPEG", "PNG", "BMP", "WEBP", "TIFF", "GIF", "PPM")  # none that starts a program
Image.init()  # now: two threads that find the formats at the same time get in each other's way
_PIXELS = 2**26  # four times the largest picture of ImageNet
_TEXT = 2**31  # bytes; the largest annotation file of COCO has 0.5e9
_XML = 2**24


@dataclass(frozen=True)
class Source:
    """Where a data set comes from, and what its folder looks like."""

    name: str
    layout: str
    address: str

    def missing(self, path: Path) -> MissingFile:
        """What to say when `path` is not there."""
        return MissingFile(
            f"{self.name} needs {str(path)!r}, which is not there; expected: {self.layout}; "
            f"get it from {self.address}."
        )

    def file(self, *paths: Path) -> Path:
        """The first of `paths` that is a file."""
        for path in paths:
            if path.is_file():
                return path
        raise self.missing(paths[0])

    def folder(self, *paths: Path) -> Path:
        """The first of `paths` that is a folder."""
        for path in paths:
            if path.is_dir():
                return path
        raise self.missing(paths[0])


def inside(folder: Path, name: object, where: Path) -> Path:
    """The file called `name` in `folder`; a name from the file `where` that leads out of it is refused."""
    plain = isinstance(name, str) and name and not set(name) & {"\\", "\0"}
    path = PurePosixPath(str(name))
    if not plain or path.is_absolute() or ".." in path.parts or PureWindowsPath(str(name)).drive:
        raise MissingFile(f"The name {str(name)[:200]!r} in {str(where)!r} leads out of its data folder.")
    return folder / path


def sayable(name: str, where: Path) -> str:
    """A name that can be written into tables and pages, from the file or folder `where`."""
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise MissingFile(f"The name {ascii(name)[:200]} in {str(where)!r} is not text in UTF-8.") from error
    return name


def data(path: Path, limit: int = _TEXT) -> bytes:
    """The bytes of a file that has no more than `limit` of them."""
    try:
        if not path.is_file():  # a pipe would never end
            raise MissingFile(f"There is no file {str(path)!r}.")
        with path.open("rb") as file:
            found = file.read(limit + 1)
    except (OSError, ValueError) as error:
        if isinstance(error, MissingFile):
            raise
        raise MissingFile(f"The file {str(path)!r} cannot be read.") from error
    if len(found) > limit:
        raise MissingFile(f"The file {str(path)!r} has more than {limit} bytes and is not read.")
    return found


def text(path: Path) -> str:
    """A text file in UTF-8."""
    try:
        return data(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MissingFile(f"The file {str(path)!r} is not text in UTF-8.") from error


def tree(path: Path) -> Any:
    """A JSON file."""
    try:
        return json.loads(text(path))
    except (ValueError, RecursionError) as error:
        raise MissingFile(f"The file {str(path)!r} is not JSON.") from error


def rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file with a header, blanks around names and values taken away."""
    try:
        reader = csv.reader(io.StringIO(text(path), newline=""), strict=True)
        lines = [[cell.strip() for cell in line] for line in reader if line]
    except csv.Error as error:
        raise MissingFile(f"The file {str(path)!r} is not a CSV file: {error}.") from error
    if not lines or len(set(lines[0])) != len(lines[0]):
        raise MissingFile(f"The CSV file {str(path)!r} needs a header of different names.")
    for number, line in enumerate(lines[1:], 2):
        if len(line) != len(lines[0]):
            raise MissingFile(
                f"Row {number} of {str(path)!r} has {len(line)} values, its header {len(lines[0])}."
            )
    return [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]


def number(value: object, path: Path) -> float:
    """A finite number from an annotation file."""
    try:
        found = float(value) if isinstance(value, str | int | float) else float("nan")
    except (ValueError, OverflowError):
        found = float("nan")
    if not abs(found) < 1e9:  # false for NaN too
        raise MissingFile(f"{str(value)[:100]!r} in {str(path)!r} is not a number that a picture can have.")
    return found


def xml(path: Path) -> Element:
    """An XML file without a document type, so that no entity can be declared and nothing else is read."""
    builder = TreeBuilder()
    parser = expat.ParserCreate()

    def refuse(*_: object) -> None:
        raise MissingFile(f"The file {str(path)!r} declares a document type, which annotations never need.")

    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(data(path, _XML), True)
        return builder.close()
    except (expat.ExpatError, AssertionError, ValueError, LookupError) as error:  # of an unknown encoding
        raise MissingFile(f"The file {str(path)!r} is not XML.") from error


def _opened(path: Path) -> Image.Image:
    image = Image.open(path, formats=_FORMATS)
    if image.width * image.height > _PIXELS:
        image.close()
        raise Image.DecompressionBombError
    return image


def _decoded(path: Path, mode: str | None) -> NDArray[Any]:
    """The pixels of a picture; in its own numbers when `mode` is None."""
    try:
        with _opened(path) as image:
            # more than 8 bits would be cut off at 255
            deep = image.mode.startswith(("I", "F"))
            if mode is None or deep:
                mode = None if deep or image.mode in ("L", "P", "1") else "RGB"
            return np.asarray(image if mode is None else image.convert(mode))
    except FileNotFoundError as error:
        raise MissingFile(f"There is no picture {str(path)!r}.") from error
    except Image.DecompressionBombError as error:
        raise MissingFile(f"The picture {str(path)!r} has more than {_PIXELS} pixels.") from error
    except (OSError, ValueError, SyntaxError, MemoryError) as error:
        raise MissingFile(f"The picture {str(path)!r} cannot be decoded.") from error


def picture(path: Path) -> NDArray[np.uint8]:
    """``(H, W, 3)`` levels of a picture."""
    levels = _decoded(path, "RGB")
    if levels.dtype == np.uint8:
        return levels
    if levels.dtype != np.uint16:
        raise MissingFile(f"The picture {str(path)!r} has levels of neither 8 nor 16 bits.")
    return np.repeat((levels >> 8).astype(np.uint8)[:, :, None], 3, axis=2)


def numbers(path: Path) -> NDArray[np.int64]:
    """``(H, W)``: the numbers stored in a mask: levels, palette places, or the strongest of three colours."""
    found = _decoded(path, None)
    if found.dtype.kind == "f" and not (found == np.rint(found)).all():  # false for NaN too
        raise MissingFile(f"The mask {str(path)!r} holds numbers that are not whole.")
    whole = found.astype(np.int64)
    return whole.max(2) if whole.ndim == 3 else whole


def pictures(folder: Path) -> dict[str, Path]:
    """All pictures below a folder by their path without suffix, in an order no file system decides."""
    found = [path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file()]
    names = {path.relative_to(folder).with_suffix("").as_posix(): path for path in found}
    if len(names) != len(found):
        raise MissingFile(f"The folder {str(folder)!r} holds two pictures with the same name.")
    return {sayable(name, folder): names[name] for name in sorted(names)}


def digest(paths: Iterable[Path], texts: Iterable[Path] = ()) -> str:
    """A hash of the names and sizes of `paths` and of the contents of `texts`.

    The contents of 50,000 pictures would take minutes to read.
    """
    found = hashlib.sha256()
    for path in paths:
        try:
            found.update(f"{path.parent.name}/{path.name}\0{path.stat().st_size}\n".encode())
        except OSError as error:
            raise MissingFile(f"There is no file {str(path)!r}.") from error
    for path in texts:
        found.update(hashlib.sha256(data(path)).digest())
    return found.hexdigest()
