"""Sheets: all maps of a network as one picture, from which the page cuts its tiles."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from verax.errors import MissingFile, WeightsError
from verax.files import make_folder, write_atomically
from verax.reports import gallery, kind
from verax.reports.figures import uri

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from verax.studies.runs import Run

FOLDER = "sheets"
BUDGET = 7_000_000
"""Bytes of pictures in the page; what goes beyond lies beside it."""
_OURS = re.compile(r"\d{3}-(maps|inputs)\.png")


@dataclass
class Album:
    """Puts sheets into the page while there is room, then beside it."""

    folder: Path
    left: int = field(default_factory=lambda: BUDGET)
    files: int = 0

    def place(self, picture: bytes, word: str) -> str:
        """The address of a picture."""
        if len(picture) <= self.left:
            self.left -= len(picture)
            return uri("png", picture)
        self.files += 1
        name = f"{self.files:03d}-{word}.png"
        write_atomically(make_folder(self.folder / FOLDER) / name, picture)
        return f"{FOLDER}/{name}"

    def tidy(self) -> None:
        """Remove what an earlier report left behind."""
        folder = self.folder / FOLDER
        for path in list(folder.iterdir()) if folder.is_dir() else []:
            if _OURS.fullmatch(path.name) and int(path.name[:3]) > self.files:
                path.unlink()
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def joined(tiles: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Tiles ``(R, C, H, W, ...)`` side by side: ``(R * H, C * W, ...)``."""
    rows, columns, high, wide = tiles.shape[:4]
    return tiles.swapaxes(1, 2).reshape(rows * high, columns * wide, *tiles.shape[4:])


def sheets(run: Run, methods: Sequence[str], protocol: str, album: Album) -> list[dict[str, Any]]:
    """What the page's gallery shows, one entry for each network; empty where a run kept no maps.

    Args:
        run: a finished study.
        methods: in the order of their tiles.
        protocol: whose headline metric stands under each map.
        album: where the pictures go.
    """
    try:
        maps, cases = run.maps(), run.cases()
    except (MissingFile, WeightsError):
        return []
    tasks = {str(task["name"]): task for task in run.manifest["tasks"]}
    scores = gallery.first_scores(run, protocol, gallery.first_samples(cases))
    found: list[dict[str, Any]] = []
    inputs: dict[str, str] = {}
    for subject in run.manifest["networks"]:
        name, network, seed = str(subject["task"]), str(subject["network"]), int(subject["seed"])
        pictures = cases.get(f"{name}|inputs")
        if f"{name}|focus" not in cases or pictures is None or pictures.ndim != 4:
            continue  # vectors have an atlas
        there = [method for method in methods if f"{name}|{network}|{seed}|{method}" in maps]
        if not there:
            continue
        tiles = np.stack(
            [gallery.levels(maps[f"{name}|{network}|{seed}|{m}"].float().numpy()) for m in there], 1
        )
        if name not in inputs:
            inputs[name] = album.place(gallery.png(_truths(cases, name)), "inputs")
        focus = cases[f"{name}|focus"].bool().flatten(1).any(1).tolist()
        words = tasks[name].get("groups", {})
        groups = cases[f"{name}|group"].tolist()
        found.append(
            {
                "task": name,
                "network": network,
                "seed": seed,
                "reasoning": str(tasks[name].get("reasoning", "")),
                "methods": there,
                "absent": [method for method in methods if method not in there],
                "kinds": [kind(method) for method in there],
                "scenes": [
                    {
                        "group": group,
                        "scene": str(words.get(str(group), f"bucket {group}")),
                        "sample": sample,
                        "focus": known,
                    }
                    for group, sample, known in zip(groups, cases[f"{name}|ids"].tolist(), focus, strict=True)
                ],
                "scores": [
                    [_rounded(scores.get((name, network, seed, group, method))) for method in there]
                    for group in groups
                ],
                "size": list(tiles.shape[2:]),
                "maps": album.place(gallery.png(joined(tiles)), "maps"),
                "inputs": inputs[name],
            }
        )
    return found


def _rounded(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else round(value, 4)


def _truths(cases: dict[str, Tensor], task: str) -> NDArray[np.uint8]:
    """The inputs of a task with what is used and ignored outlined, one below the other."""
    pixels, focus, avoid = (cases[f"{task}|{part}"].numpy() for part in ("inputs", "focus", "avoid"))
    drawn = [
        gallery.with_truth(*parts)
        for parts in zip(pixels, focus.astype(bool), avoid.astype(bool), strict=True)
    ]
    return joined(np.stack(drawn)[:, None])
