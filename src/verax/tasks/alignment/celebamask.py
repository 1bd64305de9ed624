"""CelebAMask-HQ: faces whose parts were drawn by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from verax.errors import MissingFile, UnknownName, suggestion
from verax.tasks.alignment import celeba, reading
from verax.tasks.alignment.folders import fitted
from verax.tasks.alignment.geometry import Geometry
from verax.tasks.alignment.images import Raw, Stored, chosen_part

SOURCE = reading.Source(
    "CelebAMask-HQ",
    "CelebA-HQ-img/0.jpg ..., CelebAMask-HQ-mask-anno/0/00000_hair.png ..., "
    "CelebAMask-HQ-attribute-anno.txt and CelebA-HQ-to-CelebA-mapping.txt",
    "https://github.com/switchablenorms/CelebAMask-HQ",
)
REGIONS = {
    "hair": ("hair",),
    "eye": ("l_brow", "r_brow", "l_eye", "r_eye"),
    "mouth": ("u_lip", "l_lip", "mouth"),
    "neck": ("neck",),
    "nose": ("nose",),
    "skin": ("skin",),
    "cloth": ("cloth",),
}
"""Region -> the files that it is the union of; skin is the whole face, parts on it included."""
_EACH = 2000  # pictures in a folder of masks


def celebamask(
    root: str | Path,
    *,
    part: str = "mouth",
    label: str = "Smiling",
    celeba_root: str | Path | None = None,
    split: str = "all",
    geometry: Geometry | None = celeba.GEOMETRY,
) -> Stored:
    """The pictures of CelebA-HQ with the masks that were drawn on them; a part that is absent is empty.

    Args:
        root: the folder of CelebAMask-HQ.
        part: the region that is the mask.
        label: the attribute that is the label.
        celeba_root: the folder of CelebA, whose partition tells which people a network was not trained on.
        split: "train", "valid" or "test" of that partition; "all" needs no `celeba_root`.
        geometry: by default 256 pixels, of which the middle 224.
    """
    base = Path(root).expanduser()
    chosen_part(part, tuple(REGIONS), "CelebAMask-HQ")
    folder = SOURCE.folder(base / "CelebA-HQ-img")
    masks = SOURCE.folder(base / "CelebAMask-HQ-mask-anno")
    path = SOURCE.file(base / "CelebAMask-HQ-attribute-anno.txt")
    table = celeba.attributes(path)
    if label not in table:
        raise UnknownName(
            f"CelebAMask-HQ has no attribute {label!r}{suggestion(label, map(str, table.columns))}"
        )
    if split != "all":
        if celeba_root is None:
            raise MissingFile("A split of CelebAMask-HQ is known only with the partition file of CelebA.")
        table = table[_members(base, celeba.partition(celeba_root, split), [str(n) for n in table.index])]
    numbers = [int(str(name).split(".")[0]) for name in table.index]
    if not numbers or not all(0 <= number < 10**6 for number in numbers):
        raise MissingFile(f"CelebAMask-HQ in {str(base)!r} has no pictures of the split {split!r}.")
    labels = (table[label].to_numpy() > 0).astype(np.int64)
    group = celeba.groups(table) if {"Black_Hair", "Blond_Hair", "Smiling"} <= set(table.columns) else None

    def files(number: int, region: str) -> list[Path]:
        names = [f"{number:05d}_{piece}.png" for piece in REGIONS[region]]
        return [path for name in names if (path := masks / str(number // _EACH) / name).is_file()]

    def raw(index: int) -> Raw:
        number = numbers[index]
        levels = reading.picture(folder / f"{number}.jpg")
        shape = (levels.shape[0], levels.shape[1])
        parts = {}
        for region in REGIONS:
            parts[region] = np.zeros(shape, np.bool_)
            for file in files(number, region):
                parts[region] |= fitted(reading.numbers(file) > 0, shape, file)
        known = {} if group is None else {"group": int(group[index])}
        return Raw(levels, parts, int(labels[index]), str(number), variables=known)

    def evidence() -> str:
        drawn = [file for number in numbers for region in REGIONS for file in files(number, region)]
        return f"{reading.digest([*(folder / f'{n}.jpg' for n in numbers), *drawn], [path])}:{label}"

    classes = (f"not {label}", label)
    return Stored(
        f"celebamask-{split}", len(numbers), part, raw, evidence, classes=classes, geometry=geometry
    )


def _members(base: Path, people: set[str], names: list[str]) -> list[bool]:
    """Whether each picture, through the mapping, is one of `people`."""
    path = SOURCE.file(base / "CelebA-HQ-to-CelebA-mapping.txt")
    lines = [line.split() for line in reading.text(path).splitlines()[1:] if line.strip()]
    if not lines or any(len(line) != 3 for line in lines):
        raise MissingFile(f"The file {str(path)!r} is not a table of idx, orig_idx and orig_file.")
    origin = {line[0]: line[2] for line in lines}
    return [origin.get(name.split(".")[0]) in people for name in names]
