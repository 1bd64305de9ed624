"""One's own data: a folder of pictures with a folder of masks, or with a CSV file of boxes."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from verax.errors import InvalidParameter, MissingFile, suggestion
from verax.tasks.alignment import reading
from verax.tasks.alignment.boxes import Box, Boxes, checked_box, raw_boxes, same_proportions
from verax.tasks.alignment.geometry import Geometry
from verax.tasks.alignment.images import NO_LABEL, Raw, Stored

_CORNERS = ("xmin", "ymin", "xmax", "ymax")


def _folder(path: str | Path, what: str) -> Path:
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise MissingFile(f"There is no folder {str(folder)!r} with {what}.")
    return folder


def fitted(mask: NDArray[np.bool_], shape: tuple[int, int], path: Path) -> NDArray[np.bool_]:
    """A mask at the size of its picture; other proportions mean that the two do not belong together."""
    if mask.shape == shape:
        return mask
    same_proportions(mask.shape, shape, path)
    large: NDArray[np.bool_] = Geometry.stretch(*shape).masks(mask[None])[0]
    return large


def _labels(names: list[str], file: str | Path | None) -> tuple[list[int], tuple[str, ...] | None]:
    """Labels from a CSV file with the columns image and label, else from folders named after classes."""
    if file is None:
        words = [name.split("/", 1)[0] if "/" in name else "" for name in names]
        if not all(words) or len(set(words)) < 2:
            return [NO_LABEL] * len(names), None
    else:
        path = Path(file).expanduser()
        table: dict[str, str] = {}
        for row in reading.rows(path):
            if not {"image", "label"} <= set(row):
                raise MissingFile(f"The file {str(path)!r} needs the columns image and label.")
            name = Path(row["image"]).with_suffix("").as_posix()
            if table.setdefault(name, row["label"]) != row["label"]:
                raise MissingFile(f"The file {str(path)!r} has two labels for {name!r}.")
        absent = [name for name in names if name not in table]
        if absent:
            raise MissingFile(
                f"The file {str(path)!r} has no label for {absent[0]!r} and {len(absent) - 1} more."
            )
        words = [table[name] for name in names]
    # classes that are all numbers are the outputs of a network, as they stand
    if file is not None and all(word.isascii() and word.isdigit() and len(word) < 7 for word in words):
        return [int(word) for word in words], None
    classes = tuple(sorted(set(words)))
    return [classes.index(word) for word in words], classes


def masked_folder(
    images: str | Path,
    masks: str | Path,
    *,
    labels: str | Path | None = None,
    values: Collection[int] | None = None,
    missing: str = "refuse",
    geometry: Geometry | None = None,
) -> Stored:
    """A folder of pictures and a folder of masks with the same names.

    Args:
        images: pictures, also in folders within; folders named after classes give labels.
        masks: one mask for each picture, with any suffix; what is not 0 is marked.
        labels: a CSV file with the columns image and label, instead of folders.
        values: the numbers in a mask that count as marked, instead of all but 0.
        missing: "refuse" or "drop" pictures that have no mask.
        geometry: how pictures become one size.
    """
    if missing not in ("refuse", "drop"):
        raise InvalidParameter(f"missing is 'refuse' or 'drop'{suggestion(missing, ['refuse', 'drop'])}")
    pictures = reading.pictures(_folder(images, "images"))
    drawn = reading.pictures(_folder(masks, "masks"))
    absent = [name for name in pictures if name not in drawn]
    if absent and (missing == "refuse" or len(absent) == len(pictures)):
        raise MissingFile(
            f"{len(absent)} of {len(pictures)} images in {str(images)!r} have no mask of the same name in "
            f"{str(masks)!r}; the first is {absent[0]!r}."
        )
    names = [name for name in pictures if name in drawn]
    if not names:
        raise MissingFile(f"The folder {str(images)!r} holds no images.")
    numbers, classes = _labels(names, labels)
    wanted = None if values is None else sorted(values)

    def raw(index: int) -> Raw:
        name = names[index]
        levels = reading.picture(pictures[name])
        found = reading.numbers(drawn[name])
        mask = found != 0 if wanted is None else np.isin(found, wanted)
        shape = (levels.shape[0], levels.shape[1])
        return Raw(levels, {"object": fitted(mask, shape, drawn[name])}, numbers[index], name)

    def evidence() -> str:
        files = [*(pictures[name] for name in names), *(drawn[name] for name in names)]
        tables = [] if labels is None else [Path(labels).expanduser()]
        return f"{reading.digest(files, tables)}:{wanted}"

    return Stored("folder", len(names), "object", raw, evidence, classes=classes, geometry=geometry)


def boxed_folder(images: str | Path, file: str | Path, *, geometry: Geometry | None = None) -> Stored:
    """A folder of pictures and a CSV file of boxes.

    The file has the columns image (a path within the folder), xmin, ymin, xmax, ymax in pixels, the ends
    excluded, and perhaps label. A picture may have several rows; its label is known where they agree.
    """
    folder, path = _folder(images, "images"), Path(file).expanduser()
    found: dict[str, list[Box]] = {}
    rows = reading.rows(path)
    if not rows:
        raise MissingFile(f"The file {str(path)!r} has no box.")
    for column in ("image", *_CORNERS):
        if column not in rows[0]:
            raise MissingFile(f"The file {str(path)!r} has no column {column!r}{suggestion(column, rows[0])}")
    for row in rows:
        box = checked_box(row.get("label", ""), [row[end] for end in _CORNERS], path)
        # one picture may be written as a.png and ./a.png
        name = reading.inside(folder, row["image"], path).relative_to(folder).as_posix()
        found.setdefault(name, []).append(box)
    names = sorted(found)
    files = [folder / name for name in names]
    for picture in files:
        if not picture.is_file():
            raise MissingFile(f"There is no image {str(picture)!r}, which {str(path)!r} has boxes for.")
    words = {box.name for boxes in found.values() for box in boxes}
    classes = None if words == {""} else tuple(sorted(words))

    def raw(index: int) -> Raw:
        boxes = Boxes(tuple(found[names[index]]))
        return raw_boxes(files[index], boxes, classes or (), names[index])

    def evidence() -> str:
        return reading.digest(files, [path])

    return Stored("boxes", len(names), "object", raw, evidence, classes=classes, geometry=geometry)
