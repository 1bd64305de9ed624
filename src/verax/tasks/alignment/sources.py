"""Sources: annotated images by the folders and files that hold pictures and what people marked."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from verax.errors import InvalidInput, InvalidParameter, MissingFile
from verax.tasks.alignment import DATA, AnnotatedImages, find

FORMATS = ("masks", "boxes", "coco", "voc")
_EXAMPLE = "verax.align(model, images='photos', masks='masks')"
_OTHERS = "or boxes=, coco= or voc= instead of masks="


def source(
    dataset: str | Path | AnnotatedImages | None = None,
    *,
    images: str | Path | None = None,
    masks: str | Path | None = None,
    boxes: str | Path | None = None,
    coco: str | Path | None = None,
    voc: str | Path | None = None,
    labels: str | Path | None = None,
    values: Collection[int] | None = None,
) -> AnnotatedImages:
    """Annotated images: as they are, by the name of registered ones, or by their folders.

    Args:
        dataset: annotated images or a registered name; None where folders are given.
        images: a folder of pictures; Pascal VOC knows its own.
        masks: a folder of masks with the same names.
        boxes: a CSV file with image,xmin,ymin,xmax,ymax[,label].
        coco: a JSON file in COCO's format.
        voc: a folder of Pascal VOC.
        labels: a CSV file with image,label, for masks.
        values: numbers in masks that are marked; default: all but 0.
    """
    given = {"masks": masks, "boxes": boxes, "coco": coco, "voc": voc}
    named = [name for name, path in given.items() if path is not None]
    options = {"labels": labels, "values": values}
    options = {name: value for name, value in options.items() if value is not None}
    if dataset is not None:
        if named or images is not None or options:
            raise InvalidParameter("Give a data set or folders of pictures and marks, not both.")
        return _by_name(dataset)
    if len(named) != 1:
        have = " and ".join(f"{name}=" for name in named) or "none of them"
        raise InvalidParameter(
            f"Name what people marked with one of masks=, boxes=, coco= or voc=, not with {have}: {_EXAMPLE}."
        )
    name, path = named[0], given[named[0]]
    if images is None and name != "voc":
        raise InvalidParameter(f"{name}= needs the folder of pictures: images='photos'.")
    if options and name != "masks":
        raise InvalidParameter(f"{next(iter(options))}= goes with masks=.")
    make: Any = DATA.get(name)
    found: AnnotatedImages
    if name == "coco":
        found = make(path, images)
    elif name == "voc":
        found = make(path, images=images)
    else:
        found = make(images, path, **options)
    return found


def _by_name(dataset: str | Path | AnnotatedImages) -> AnnotatedImages:
    is_path = isinstance(dataset, Path) or (
        isinstance(dataset, str)
        and dataset not in DATA
        and ("/" in dataset or "\\" in dataset or Path(dataset).expanduser().exists())
    )
    if is_path:
        kind = "a folder" if Path(str(dataset)).expanduser().is_dir() else "a path"
        raise MissingFile(
            f"{str(dataset)!r} is {kind}, not a data set; name its pictures and what people marked: "
            f"{_EXAMPLE}, {_OTHERS}."
        )
    if isinstance(dataset, tuple | dict | list):
        raise InvalidInput(
            f"The data set must be annotated images, not {type(dataset).__name__}; folders are named: "
            f"{_EXAMPLE}."
        )
    return find(dataset)  # type: ignore[arg-type]  # a path is refused above
