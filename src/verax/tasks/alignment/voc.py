"""Pascal VOC: pictures with XML files of boxes, and one's own data written in that way."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from verax.errors import MissingFile
from verax.tasks.alignment import reading
from verax.tasks.alignment.boxes import raw_boxes, voc_boxes
from verax.tasks.alignment.geometry import Geometry
from verax.tasks.alignment.images import Raw, Stored

SOURCE = reading.Source(
    "Pascal VOC",
    "JPEGImages/NAME.jpg, Annotations/NAME.xml and perhaps ImageSets/Main/SPLIT.txt",
    "http://host.robots.ox.ac.uk/pascal/VOC/",
)


def voc(
    root: str | Path,
    split: str | None = None,
    *,
    images: str | Path | None = None,
    classes: tuple[str, ...] | None = None,
    origin: int = 1,
    geometry: Geometry | None = None,
) -> Stored:
    """Pictures with boxes in XML files.

    Args:
        root: the folder ``VOC2012``, or any folder with XML files when `images` is given.
        split: a list of names in ImageSets/Main, such as "val"; None takes every XML file.
        images: the folder of pictures, where it is not ``root/JPEGImages``.
        classes: names of the labels in order; by default all names of objects, sorted.
        origin: the number of the first column and row; VOC counts from 1.
        geometry: how pictures become one size.
    """
    base = Path(root).expanduser()
    notes = SOURCE.folder(base / "Annotations", *([base] if images is not None else []))
    folder = SOURCE.folder(base / "JPEGImages" if images is None else Path(images).expanduser())
    if split is None:
        names = sorted(path.stem for path in notes.glob("*.xml"))
        lists = []
    else:
        lists = [SOURCE.file(reading.inside(base / "ImageSets" / "Main", f"{split}.txt", base))]
        names = [line.split()[0] for line in reading.text(lists[0]).splitlines() if line.strip()]
    if not names:
        raise MissingFile(f"The folder {str(notes)!r} holds no XML file of a picture.")
    files = [
        SOURCE.file(reading.inside(notes, f"{name}.xml", lists[0] if lists else notes)) for name in names
    ]
    have = reading.pictures(folder)
    for name in names:
        if name not in have:
            raise SOURCE.missing(folder / f"{name}.jpg")
    if classes is None:
        with ThreadPoolExecutor(4) as pool:
            found = pool.map(lambda path: {box.name for box in voc_boxes(path, origin).objects}, files)
            classes = tuple(sorted(set().union(*found)))
    words = classes

    def raw(index: int) -> Raw:
        name = names[index]
        return raw_boxes(have[name], voc_boxes(files[index], origin), words, name)

    def evidence() -> str:
        return f"{reading.digest([have[name] for name in names], [*files, *lists])}:{origin}"

    return Stored("voc", len(names), "object", raw, evidence, classes=classes, geometry=geometry)
