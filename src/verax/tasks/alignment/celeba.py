"""CelebA: faces with forty attributes and five landmarks; the mouth is a rectangle between its corners."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from verax.errors import InvalidParameter, MissingFile, UnknownName, suggestion
from verax.tasks.alignment import reading
from verax.tasks.alignment.bias import GROUPS
from verax.tasks.alignment.geometry import Geometry, box_masks
from verax.tasks.alignment.images import Raw, Stored

SOURCE = reading.Source(
    "CelebA",
    "img_align_celeba/000001.jpg ..., list_attr_celeba.txt, list_landmarks_align_celeba.txt and "
    "list_eval_partition.txt (these also in Anno/ and Eval/, or as .csv)",
    "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
)
GEOMETRY = Geometry.crop(256, 224)
SPLITS = {"train": 0, "valid": 1, "test": 2, "all": None}
_MOUTH = ["leftmouth_x", "leftmouth_y", "rightmouth_x", "rightmouth_y"]


def attributes(path: Path) -> pd.DataFrame:
    """A table of CelebA: one row of whole numbers for each picture, in text or CSV.

    Text files start with the number of rows and a line of names; the partition has no names at all.
    """
    lines = reading.text(path).replace(",", " ").splitlines()
    names: list[str] | None = None
    if path.suffix == ".csv" and lines:
        names, lines = lines[0].split()[1:], lines[1:]
    elif lines and lines[0].strip().isdigit():
        names, lines = (lines[1].split() if len(lines) > 1 else []), lines[2:]
    pairs = [line.split(None, 1) for line in lines if line.strip()]
    broken = MissingFile(f"The file {str(path)!r} is not a table of whole numbers as CelebA has.")
    if not pairs:
        raise broken
    try:
        numbers = np.loadtxt([pair[1] for pair in pairs], np.int64, ndmin=2, comments=None)
    except (ValueError, IndexError, OverflowError) as error:
        raise broken from error
    if names is not None and len(names) != numbers.shape[1]:
        raise broken
    for name, _ in pairs:
        if not name.removesuffix(".jpg").removesuffix(".png").isdigit():
            raise MissingFile(f"The file {str(path)!r} speaks of {name[:100]!r}, not of 000001.jpg.")
    if len({name for name, _ in pairs}) != len(pairs):
        raise MissingFile(f"The file {str(path)!r} names a picture twice.")
    return pd.DataFrame(numbers, index=[name for name, _ in pairs], columns=names)


def _table(root: Path, name: str) -> Path:
    places = [root / f"{name}{end}" for end in (".txt", ".csv")]
    return SOURCE.file(*places, root / "Anno" / f"{name}.txt", root / "Eval" / f"{name}.txt")


def partition(root: str | Path, split: str) -> set[str]:
    """The names of the pictures of a split."""
    if split not in SPLITS:
        raise InvalidParameter(f"CelebA has no split {split!r}{suggestion(split, SPLITS)}")
    table = attributes(_table(Path(root).expanduser(), "list_eval_partition"))
    return {str(name) for name in table.index[table.iloc[:, 0] == SPLITS[split]]}


def _chosen(root: Path, split: str) -> pd.DataFrame:
    """The attributes of the pictures of a split."""
    table = attributes(_table(root, "list_attr_celeba"))
    if split != "all":
        members = partition(root, split)
        table = table[[name in members for name in table.index]]
    if table.empty:
        raise MissingFile(f"CelebA in {str(root)!r} has no pictures of the split {split!r}.")
    return table


def groups(table: pd.DataFrame) -> Tensor:
    """``(N,)`` int64: the group of each face in `bias.GROUPS`, black hair before blond; -1 for other hair."""
    for name in ("Black_Hair", "Blond_Hair", "Smiling"):
        if name not in table:
            raise MissingFile(f"The table of attributes has no column {name!r}.")
    black, blond, smile = (table[name].to_numpy() > 0 for name in ("Black_Hair", "Blond_Hair", "Smiling"))
    found = np.where(black, 0, np.where(blond, 2, -len(GROUPS))) + ~smile
    return torch.from_numpy(found.clip(min=-1))


def celeba_groups(root: str | Path, split: str = "train") -> Tensor:
    """The group of every picture of a split, without decoding any; see `groups`."""
    return groups(_chosen(Path(root).expanduser(), split))


def mouth_box(left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int, int, int]:
    """xmin, ymin, xmax, ymax of a mouth whose corners (x, y) are given: a third of its width up and down."""
    half = round((2 / 3 * (right[0] - left[0])) / 2)
    xmin, xmax = sorted((left[0], right[0]))
    ymin, ymax = sorted((left[1] - half, right[1] + half))  # sorted: a tilted mouth must not vanish
    return xmin, ymin, xmax, ymax


def celeba(
    root: str | Path, split: str = "test", *, label: str = "Smiling", geometry: Geometry | None = GEOMETRY
) -> Stored:
    """The aligned pictures of CelebA; the mask is the mouth, and all attributes are variables (0 or 1).

    Args:
        root: the folder of CelebA.
        split: "train", "valid", "test" or "all".
        label: the attribute that is the label.
        geometry: by default 256 pixels, of which the middle 224.
    """
    base = Path(root).expanduser()
    folder = SOURCE.folder(base / "img_align_celeba", base / "Img" / "img_align_celeba")
    nested = folder / "img_align_celeba"  # as one mirror unpacks it
    folder = nested if nested.is_dir() else folder
    table = _chosen(base, split)
    if label not in table:
        raise UnknownName(f"CelebA has no attribute {label!r}{suggestion(label, map(str, table.columns))}")
    marks = attributes(_table(base, "list_landmarks_align_celeba"))
    names = [str(name) for name in table.index]
    if not set(_MOUTH) <= set(marks) or not set(names) <= set(marks.index):
        raise MissingFile(f"The landmarks of CelebA in {str(base)!r} do not fit its attributes.")
    corners = marks.loc[names, _MOUTH].to_numpy()
    values = (table.to_numpy() > 0).astype(np.int64)
    words = [str(word) for word in table.columns]
    where = words.index(label)
    group = groups(table) if {"Black_Hair", "Blond_Hair", "Smiling"} <= set(words) else None

    def raw(index: int) -> Raw:
        levels = reading.picture(folder / names[index])
        x0, y0, x1, y1 = (int(value) for value in corners[index])
        mask = box_masks([mouth_box((x0, y0), (x1, y1))], (levels.shape[0], levels.shape[1]))[0]
        known = {word: int(value) for word, value in zip(words, values[index], strict=True)}
        if group is not None:
            known["group"] = int(group[index])
        return Raw(levels, {"mouth": mask}, int(values[index, where]), names[index], variables=known)

    def evidence() -> str:
        tables = [_table(base, name) for name in ("list_attr_celeba", "list_landmarks_align_celeba")]
        return f"{reading.digest([folder / name for name in names], tables)}:{label}"

    classes = (f"not {label}", label)
    return Stored(f"celeba-{split}", len(names), "mouth", raw, evidence, classes=classes, geometry=geometry)
