"""Oxford-IIIT Pet: cats and dogs with outlines (trimaps), boxes around heads, and stamped twins.

The twins carry a box with the word "Cat" or "Dog", an artefact that gives the species away.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from verax.errors import InvalidParameter, MissingFile, suggestion
from verax.tasks.alignment import reading
from verax.tasks.alignment.boxes import checked_box, voc_boxes
from verax.tasks.alignment.folders import fitted
from verax.tasks.alignment.geometry import Geometry, box_masks
from verax.tasks.alignment.images import NO_LABEL, Raw, Stored, chosen_part

SOURCE = reading.Source(
    "Oxford-IIIT Pet",
    "images/NAME.jpg, annotations/trimaps/NAME.png, annotations/xmls/NAME.xml and annotations/list.txt, or "
    "images/, trimaps/, stamped/ and pets.csv",
    "https://www.robots.ox.ac.uk/~vgg/data/pets/",
)
LABELS = ("breed", "species", "imagenet")
SPECIES = ("cat", "dog")
IMAGENET = {
    "Egyptian_Mau": 285,
    "Persian": 283,
    "Siamese": 284,
    "basset_hound": 161,
    "beagle": 162,
    "boxer": 242,
    "chihuahua": 151,
    "english_cocker_spaniel": 219,
    "english_setter": 212,
    "german_shorthaired": 210,
    "great_pyrenees": 257,
    "japanese_chin": 152,
    "keeshond": 261,
    "leonberger": 255,
    "miniature_pinscher": 237,
    "newfoundland": 256,
    "pomeranian": 259,
    "pug": 254,
    "saint_bernard": 247,
    "samoyed": 258,
    "scottish_terrier": 199,
    "staffordshire_bull_terrier": 179,
    "wheaten_terrier": 202,
    "yorkshire_terrier": 187,
}
"""The 24 breeds that are classes of ImageNet-1k -> their numbers there."""

Corners = tuple[float, float, float, float]


@dataclass(frozen=True)
class Pet:
    """What is known of one picture, in its own pixels."""

    name: str
    breed: str
    species: str
    boxes: Mapping[str, Corners] = field(default_factory=dict)


def _from_table(path: Path) -> list[Pet]:
    """Pets of a CSV file with head and stamp boxes."""
    found = []
    for row in reading.rows(path):
        ends = ("xmin", "ymin", "xmax", "ymax")
        needed = {"image", "breed", "species", *(f"{box}_{end}" for box in ("head", "stamp") for end in ends)}
        if not needed <= set(row):
            raise MissingFile(f"The file {str(path)!r} has no column {sorted(needed - set(row))[0]!r}.")
        boxes = {
            box: checked_box(box, [row[f"{box}_{end}"] for end in ends], path).corners
            for box in ("head", "stamp")
        }
        found.append(Pet(row["image"], row["breed"], row["species"], boxes))
    return found


def _from_lists(notes: Path, split: str | None, heads: bool) -> list[Pet]:
    """Pets of the official lists: a name, the number of its breed, 1 for cats and 2 for dogs."""
    path = SOURCE.file(reading.inside(notes, f"{split or 'list'}.txt", notes))
    found = []
    for line in reading.text(path).splitlines():
        words = line.split()
        if not words or line.startswith("#"):
            continue
        if len(words) != 4 or "_" not in words[0] or words[2] not in ("1", "2"):
            raise MissingFile(f"The line {line[:100]!r} in {str(path)!r} is not 'NAME CLASS SPECIES BREED'.")
        name, boxes = words[0], {}
        if heads:  # not every picture has a box around the head
            file = reading.inside(notes / "xmls", f"{name}.xml", path)
            if not file.is_file():
                continue
            objects = voc_boxes(file, 1).objects
            if not objects:
                continue
            boxes = {"head": objects[0].corners}
        found.append(Pet(name, name.rsplit("_", 1)[0], SPECIES[int(words[2]) - 1], boxes))
    return found


def pets(
    root: str | Path,
    split: str | None = None,
    *,
    part: str = "animal",
    label: str = "breed",
    stamped: bool = False,
    border: bool = True,
    geometry: Geometry | None = None,
) -> Stored:
    """Photographs of cats and dogs.

    Args:
        root: the folder, official or with pets.csv.
        split: "trainval" or "test" of the official lists; None takes all.
        part: the mask: "animal", "head", "body" (the animal without its head) or "stamp".
        label: "breed", "species" (0 cat, 1 dog) or "imagenet" (only breeds that are classes of ImageNet-1k).
        stamped: the twins with a stamped word, where there are any.
        border: whether the border of a trimap, which nobody decided, counts as animal.
        geometry: how pictures become one size.
    """
    if label not in LABELS:
        raise InvalidParameter(f"Pets are labelled by {', '.join(LABELS)}{suggestion(label, LABELS)}")
    base = Path(root).expanduser()
    table, notes = base / "pets.csv", base / "annotations"
    own = table.is_file()
    found = _from_table(table) if own else _from_lists(SOURCE.folder(notes), split, part in ("head", "body"))
    if own and split is not None:
        raise InvalidParameter(f"The pets in {str(base)!r} have no splits.")
    if stamped and not own:
        raise SOURCE.missing(base / "stamped")
    if label == "imagenet":
        found = [pet for pet in found if pet.breed in IMAGENET]
    if not found:
        raise MissingFile(f"The folder {str(base)!r} has no pets of that kind.")
    where = table if own else notes
    pictures = SOURCE.folder(base / ("stamped" if stamped else "images"))
    trimaps = SOURCE.folder(base / "trimaps" if own else notes / "trimaps")
    files = [reading.inside(pictures, f"{pet.name}.jpg", where) for pet in found]
    outlines = [reading.inside(trimaps, f"{pet.name}.png", where) for pet in found]
    for path in (*files, *outlines):
        SOURCE.file(path)
    boxed = set(found[0].boxes)
    names = (
        "animal",
        *(("head", "body") if "head" in boxed else ()),
        *(("stamp",) if "stamp" in boxed else ()),
    )
    chosen_part(part, names, "Pets")
    breeds = tuple(sorted({pet.breed for pet in found}))
    classes = {"breed": breeds, "species": SPECIES, "imagenet": None}[label]
    marked = (1, 3) if border else (1,)

    def number(pet: Pet) -> int:
        if label == "imagenet":
            return IMAGENET[pet.breed]
        word, known = (pet.breed, breeds) if label == "breed" else (pet.species, SPECIES)
        return known.index(word) if word in known else NO_LABEL

    def raw(index: int) -> Raw:
        pet = found[index]
        levels = reading.picture(files[index])
        shape = (levels.shape[0], levels.shape[1])
        outline = np.isin(reading.numbers(outlines[index]), marked)
        parts = {"animal": fitted(outline, shape, outlines[index])}
        if "head" in pet.boxes:
            parts["head"] = box_masks([pet.boxes["head"]], shape)[0]
            parts["body"] = parts["animal"] & ~parts["head"]
        if "stamp" in pet.boxes:
            parts["stamp"] = box_masks([pet.boxes["stamp"]], shape)[0]
        known = {"breed": breeds.index(pet.breed), "species": int(pet.species == "dog")}
        return Raw(levels, parts, number(pet), pet.name, variables=known)

    def evidence() -> str:
        # lists say what a picture shows, and boxes are numbers: neither need change a size
        known = hashlib.sha256(repr([(pet, sorted(pet.boxes.items())) for pet in found]).encode()).hexdigest()
        return f"{reading.digest([*files, *outlines])}:{known}:{label}:{border}:{stamped}"

    name = "pets-stamped" if stamped else "pets"
    return Stored(name, len(found), part, raw, evidence, classes=classes, geometry=geometry)
