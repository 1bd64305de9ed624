"""COCO: pictures with boxes, polygons and run-length masks in one JSON file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verax.errors import InvalidInput, InvalidParameter, MissingFile, suggestion
from verax.tasks.alignment import reading, rle
from verax.tasks.alignment.boxes import checked_box
from verax.tasks.alignment.geometry import Geometry, box_masks, polygon_mask
from verax.tasks.alignment.images import NO_LABEL, Raw, Stored

SOURCE = reading.Source(
    "COCO",
    "a folder of pictures, such as val2017, and a JSON file with images, annotations and categories, such as "
    "annotations/instances_val2017.json",
    "https://cocodataset.org/#download",
)
KINDS = ("segmentation", "boxes")
_SIDES = ("height", "width")
_MOST = 1000  # objects in one picture
_POLYGONS = 1000  # of one object


def _entries(found: object, name: str, fields: tuple[str, ...], path: Path) -> list[dict[str, Any]]:
    """One list of the file, whose entries all have the fields."""
    table = found.get(name) if isinstance(found, dict) else None
    if not isinstance(table, list):
        raise MissingFile(f"The file {str(path)!r} has no list named {name!r}, as files of COCO do.")
    for number, entry in enumerate(table):
        for field in fields:
            if not isinstance(entry, dict) or field not in entry:
                raise MissingFile(f"Entry {number} of {name!r} in {str(path)!r} has no {field!r}.")
            if field in ("id", "image_id", "category_id") and type(entry[field]) is not int:
                raise MissingFile(
                    f"Entry {number} of {name!r} in {str(path)!r} has {field!r} that is no number."
                )
    for field in {"images": ("id", "file_name"), "categories": ("id",)}.get(name, ()):
        (twice, times), *_ = Counter(str(entry[field]) for entry in table).most_common(1) or [("", 0)]
        if times > 1:
            raise MissingFile(f"Two entries of {name!r} in {str(path)!r} have the {field} {twice[:100]!r}.")
    return table


def object_mask(note: Mapping[str, Any], shape: tuple[int, int], kind: str, path: Path) -> NDArray[np.bool_]:
    """``(H, W)`` mask of one annotation: its segmentation, or its box where it has none."""
    drawn = note.get("segmentation")
    try:
        if kind == "segmentation" and isinstance(drawn, dict):
            return _runs(drawn, shape)
        if kind == "segmentation" and isinstance(drawn, list) and drawn:
            if len(drawn) > _POLYGONS:
                raise InvalidInput("it has too many polygons")
            mask = np.zeros(shape, np.bool_)
            for points in drawn:
                mask |= polygon_mask([reading.number(point, path) for point in points], shape)
            return mask
    except (InvalidInput, TypeError) as error:
        raise MissingFile(
            f"The segmentation of annotation {note['id']} in {str(path)!r} is broken: {error}"
        ) from error
    box = note.get("bbox")
    if not isinstance(box, list) or len(box) != 4:
        raise MissingFile(f"Annotation {note['id']} in {str(path)!r} has neither segmentation nor bbox.")
    left, top, width, height = (reading.number(value, path) for value in box)
    corners = checked_box("", (left, top, left + width, top + height), path).corners
    filled: NDArray[np.bool_] = box_masks([corners], shape)[0]
    return filled


def _runs(drawn: Mapping[str, Any], shape: tuple[int, int]) -> NDArray[np.bool_]:
    counts, size = drawn.get("counts"), drawn.get("size")
    if not isinstance(size, list) or tuple(size) != shape:
        raise InvalidInput(f"it was drawn on {str(size)[:40]} pixels, the picture has {list(shape)}.")
    if isinstance(counts, str):
        counts = rle.decompress(counts)
    if not isinstance(counts, list):
        raise InvalidInput("its counts are neither numbers nor a string.")
    return rle.decode(counts, shape)


def coco(
    file: str | Path,
    images: str | Path,
    *,
    kind: str = "segmentation",
    crowds: bool = False,
    geometry: Geometry | None = None,
) -> Stored:
    """Pictures and objects of a JSON file in COCO's format.

    Args:
        file: the JSON file.
        images: the folder that its file names are looked for in.
        kind: "segmentation" (polygons, run-length masks) or "boxes".
        crowds: whether regions that stand for many objects (iscrowd) count.
        geometry: how pictures become one size.

    Only pictures that have an object are taken; the label is the category of the objects where they agree.
    """
    if kind not in KINDS:
        raise InvalidParameter(f"Masks of COCO are made of {' or '.join(KINDS)}{suggestion(kind, KINDS)}")
    path, folder = SOURCE.file(Path(file).expanduser()), SOURCE.folder(Path(images).expanduser())
    found = reading.tree(path)
    pictures = {entry["id"]: entry for entry in _entries(found, "images", ("id", "file_name"), path)}
    categories = sorted(
        (c["id"], reading.sayable(str(c["name"]), path))
        for c in _entries(found, "categories", ("id", "name"), path)
    )
    place = {identity: number for number, (identity, _) in enumerate(categories)}
    notes: dict[int, list[dict[str, Any]]] = {}
    for note in _entries(found, "annotations", ("id", "image_id", "category_id"), path):
        if note["image_id"] not in pictures or note["category_id"] not in place:
            raise MissingFile(
                f"Annotation {note['id']} in {str(path)!r} is of a picture or category that the file lacks."
            )
        if crowds or not note.get("iscrowd"):
            notes.setdefault(note["image_id"], []).append(note)
    chosen = sorted(notes)
    if not chosen:
        raise MissingFile(f"The file {str(path)!r} has no annotated object.")
    names = [reading.sayable(str(pictures[identity]["file_name"]), path) for identity in chosen]
    files = [reading.inside(folder, pictures[identity]["file_name"], path) for identity in chosen]
    for picture in files:
        if not picture.is_file():
            raise SOURCE.missing(picture)

    def raw(index: int) -> Raw:
        levels = reading.picture(files[index])
        shape, objects = (levels.shape[0], levels.shape[1]), notes[chosen[index]]
        drawn = tuple(pictures[chosen[index]].get(side) or of for side, of in zip(_SIDES, shape, strict=True))
        if drawn != shape:
            raise MissingFile(
                f"The picture {str(files[index])!r} has {shape[0]} x {shape[1]} pixels, but what is marked "
                f"in {str(path)!r} was drawn on {str(drawn[0])[:20]} x {str(drawn[1])[:20]}."
            )
        if len(objects) > _MOST:
            raise MissingFile(
                f"The picture {str(files[index])!r} has {len(objects)} objects, more than are read."
            )
        masks = np.stack([object_mask(note, shape, kind, path) for note in objects])
        kinds = tuple(place[note["category_id"]] for note in objects)
        label = kinds[0] if len(set(kinds)) == 1 else NO_LABEL
        return Raw(levels, {"object": np.logical_or.reduce(masks)}, label, names[index], masks, kinds)

    def evidence() -> str:
        return f"{reading.digest(files, [path])}:{kind}:{crowds}"

    words = [name for _, name in categories]
    return Stored("coco", len(files), "object", raw, evidence, classes=words, geometry=geometry)
