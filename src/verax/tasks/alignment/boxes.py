"""Boxes around objects: VOC's XML files, CSV files, and what both become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element

import numpy as np

from verax.errors import MissingFile
from verax.tasks.alignment import reading
from verax.tasks.alignment.geometry import box_masks
from verax.tasks.alignment.images import NO_LABEL, Raw

_MOST = 1000  # objects in one picture


@dataclass(frozen=True)
class Box:
    """One box: columns xmin .. xmax and rows ymin .. ymax, ends excluded, and the name of its class."""

    name: str
    corners: tuple[float, float, float, float]


@dataclass(frozen=True)
class Boxes:
    """All boxes of one picture.

    Attributes:
        objects: the boxes.
        size: height and width of the picture that they were drawn on; None where it was not written down.
    """

    objects: tuple[Box, ...]
    size: tuple[int, int] | None = None


def checked_box(name: str, corners: Sequence[object], path: Path) -> Box:
    """A box from the file `path`; one that ends before it starts is refused."""
    xmin, ymin, xmax, ymax = (reading.number(corner, path) for corner in corners)
    if xmin > xmax or ymin > ymax:
        raise MissingFile(
            f"The box {xmin:g}, {ymin:g}, {xmax:g}, {ymax:g} in {str(path)!r} ends before it starts."
        )
    return Box(name, (xmin, ymin, xmax, ymax))


def _word(element: Element, name: str, path: Path) -> str:
    found = element.findtext(name)
    if found is None:
        raise MissingFile(f"The file {str(path)!r} has no {element.tag}/{name}.")
    return found.strip()


def voc_boxes(path: Path, origin: int) -> Boxes:
    """The objects of an XML file as Pascal VOC writes them.

    Args:
        path: the file.
        origin: the number of the first column; VOC counts from 1 and includes xmax, ImageNet is read as if
            it counted from 0 and excluded xmax.
    """
    root = reading.xml(path)
    if root.tag != "annotation":
        raise MissingFile(f"The file {str(path)!r} is not a VOC annotation: it starts with {root.tag!r}.")
    objects = root.findall("object")
    if len(objects) > _MOST:
        raise MissingFile(f"The file {str(path)!r} has {len(objects)} objects, more than are read.")
    found = []
    for element in objects:
        corners = element.find("bndbox")
        if corners is None:
            raise MissingFile(f"The file {str(path)!r} has no object/bndbox.")
        ends = [_word(corners, end, path) for end in ("xmin", "ymin", "xmax", "ymax")]
        box = checked_box(_word(element, "name", path), ends, path)
        xmin, ymin, xmax, ymax = box.corners
        found.append(Box(box.name, (xmin - origin, ymin - origin, xmax, ymax)))
    size = root.find("size")
    if size is None:
        return Boxes(tuple(found))
    height, width = (int(reading.number(_word(size, side, path), path)) for side in ("height", "width"))
    return Boxes(tuple(found), (height, width) if height > 0 and width > 0 else None)


def same_proportions(drawn: tuple[int, ...], shape: tuple[int, int], path: Path) -> None:
    """Refuse an annotation that was drawn on another picture, or on this one after it was turned."""
    height, width = drawn
    if abs(height * shape[1] - width * shape[0]) > 0.01 * height * shape[1] + max(shape):
        raise MissingFile(
            f"What was marked for {str(path)!r} is {height} x {width}, "
            f"but its picture {shape[0]} x {shape[1]}."
        )


def raw_boxes(
    picture: Path, found: Boxes, classes: Sequence[str], name: str, label: int | None = None
) -> Raw:
    """A picture with its boxes painted; the label is that of its objects where they agree.

    Boxes drawn on a picture of another size are scaled to this one.
    """
    levels = reading.picture(picture)
    height, width = levels.shape[:2]
    tall, wide = found.size or (height, width)
    same_proportions((tall, wide), (height, width), picture)
    scale = np.array([width / wide, height / tall] * 2)
    corners = np.array([box.corners for box in found.objects]).reshape(-1, 4) * scale
    masks = box_masks(corners.tolist(), (height, width))
    place = {word: number for number, word in enumerate(classes)}
    kinds = tuple(place.get(box.name, NO_LABEL) for box in found.objects)
    if label is None:
        label = kinds[0] if len(set(kinds)) == 1 else NO_LABEL
    return Raw(levels, {"object": np.logical_or.reduce(masks)}, label, name, masks, kinds)
