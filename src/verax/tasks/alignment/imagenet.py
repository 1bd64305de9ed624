"""ImageNet's validation pictures with their boxes."""

from __future__ import annotations

from pathlib import Path

from verax.errors import MissingFile
from verax.tasks.alignment import reading
from verax.tasks.alignment.boxes import raw_boxes, voc_boxes
from verax.tasks.alignment.geometry import Geometry
from verax.tasks.alignment.images import Raw, Stored

SOURCE = reading.Source(
    "ImageNet",
    "ILSVRC/Data/CLS-LOC/val/*.JPEG with ILSVRC/Annotations/CLS-LOC/val/*.xml and LOC_synset_mapping.txt, "
    "or val/images/CLASS/*.JPEG with val/annotations/CLASS/*.xml, or both folders named",
    "https://image-net.org/download.php",
)
GEOMETRY = Geometry.crop(256, 224)


def _order(base: Path, names: list[str]) -> tuple[str, ...]:
    """The classes in the order of a network's outputs: folders by name, else the synset mapping."""
    if all("/" in name for name in names):
        return tuple(sorted({name.split("/", 1)[0] for name in names}))
    path = SOURCE.file(base / "LOC_synset_mapping.txt", base / "ILSVRC" / "LOC_synset_mapping.txt")
    return tuple(line.split()[0] for line in reading.text(path).splitlines() if line.strip())


def imagenet(
    root: str | Path,
    *,
    images: str | Path | None = None,
    annotations: str | Path | None = None,
    origin: int = 0,
    geometry: Geometry | None = GEOMETRY,
) -> Stored:
    """The validation pictures that have an XML file; the mask is the union of all boxes.

    Args:
        root: the folder of ImageNet.
        images: the folder of pictures, where it has another place.
        annotations: the folder of XML files, where it has another place.
        origin: the number of the first column and row.
        geometry: that of the network; by default 256 pixels, of which the middle 224.
    """
    base = Path(root).expanduser()
    usual = base / "ILSVRC"
    folder = SOURCE.folder(
        *([Path(images).expanduser()] if images else [usual / "Data/CLS-LOC/val", base / "val/images"])
    )
    notes = SOURCE.folder(
        *(
            [Path(annotations).expanduser()]
            if annotations
            else [usual / "Annotations/CLS-LOC/val", base / "val/annotations"]
        )
    )
    pictures = reading.pictures(folder)
    files = {path.relative_to(notes).with_suffix("").as_posix(): path for path in notes.rglob("*.xml")}
    names = [name for name in pictures if name in files]
    if not names:
        raise SOURCE.missing(notes / f"{next(iter(pictures), 'NAME')}.xml")
    classes = _order(base, list(pictures))
    place = {word: number for number, word in enumerate(classes)}
    sorted_in = all("/" in name for name in names)

    def raw(index: int) -> Raw:
        name = names[index]
        boxes = voc_boxes(files[name], origin)
        if sorted_in:
            label = place[name.split("/", 1)[0]]
        else:
            words = {box.name for box in boxes.objects}
            if len(words) != 1 or not words <= set(place):
                raise MissingFile(f"The objects of {str(files[name])!r} are not of one class of ImageNet.")
            label = place[words.pop()]
        return raw_boxes(pictures[name], boxes, classes, name, label)

    def evidence() -> str:
        return f"{reading.digest([*(pictures[n] for n in names), *(files[n] for n in names)])}:{origin}"

    return Stored("imagenet", len(names), "object", raw, evidence, classes=classes, geometry=geometry)
