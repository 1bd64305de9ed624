"""Sheets: all maps of a network as one picture, from which the page cuts its tiles."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from verax.errors import MissingFile, WeightsError
from verax.files import make_folder, write_atomically
from verax.reports import gallery, globes, kind
from verax.reports.figures import uri
from verax.reports.globes import Globe

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from verax.studies.runs import Run

FOLDER = "sheets"
BUDGET = 7_000_000
"""Bytes of pictures in the page; what goes beyond lies beside it."""
_THREADS = 8

T = TypeVar("T")
R = TypeVar("R")

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


@dataclass(frozen=True)
class Drawn:
    """What the cases of one task look like, whatever network explains them.

    Attributes:
        fronts: what stands before the maps: words for the pictures of `sources`, one column for each.
        sources: the address of these pictures.
        scenes: what is said about each case.
        globe: number of the grid that maps lie on; None where they are pictures.
    """

    fronts: tuple[str, ...]
    sources: str
    scenes: list[dict[str, Any]]
    globe: int | None = None


@dataclass
class _Drawer:
    """Draws cases and maps of tasks, each once, into an album."""

    cases: dict[str, Tensor]
    album: Album
    globes: list[Globe] = field(default_factory=list)
    drawn: dict[str, Drawn] = field(default_factory=dict)

    def can(self, task: str) -> bool:
        """Whether there is something to see of a task: pictures, or cells with a place."""
        inputs = self.cases.get(f"{task}|inputs")
        if inputs is None:
            return False
        return f"{task}|cells" in self.cases or (inputs.ndim == 4 and f"{task}|focus" in self.cases)

    def of(self, task: str, words: Mapping[str, Any]) -> Drawn:
        """The cases of a task."""
        if task not in self.drawn:
            whole = f"{task}|cells" in self.cases
            self.drawn[task] = self._vectors(task) if whole else self._pictures(task, words)
        return self.drawn[task]

    def _pictures(self, task: str, words: Mapping[str, Any]) -> Drawn:
        focus = self.cases[f"{task}|focus"].bool().flatten(1).any(1).tolist()
        groups, ids = (self.cases[f"{task}|{part}"].tolist() for part in ("group", "ids"))
        scenes = [
            {
                "key": str(group),
                "group": group,
                "scene": str(words.get(str(group), f"bucket {group}")),
                "sample": sample,
                "focus": known,
            }
            for group, sample, known in zip(groups, ids, focus, strict=True)
        ]
        source = self.album.place(gallery.png(_truths(self.cases, task)), "inputs")
        return Drawn(("input and truth",), source, scenes)

    def _vectors(self, task: str) -> Drawn:
        globe = Globe.of(self.cases, task)
        known = [one.key() for one in self.globes]
        place = known.index(globe.key()) if globe.key() in known else len(known)
        if place == len(known):
            self.globes.append(globe)
        groups, ids = (self.cases[f"{task}|{part}"].tolist() for part in ("group", "ids"))
        scenes = [
            {"key": str(sample), "group": group, "scene": f"sample {sample}", "sample": sample, "focus": True}
            for group, sample in zip(groups, ids, strict=True)
        ]
        both = np.stack(
            [globe.levels(self.cases[f"{task}|{part}"].numpy()) for part in ("inputs", "values")], 1
        )
        source = self.album.place(globes.png(joined(both)), "inputs")
        return Drawn(("input field", "truth"), source, scenes, place)

    def maps(self, task: str, vectors: Sequence[Tensor]) -> tuple[list[int], bytes]:
        """The size of a tile, and a picture of all maps ``(N, ...)`` of some methods, one column each."""
        count = len(self.cases[f"{task}|ids"])
        globe = Globe.of(self.cases, task) if f"{task}|cells" in self.cases else None
        levels, png = (gallery.levels, gallery.png) if globe is None else (globe.levels, globes.png)
        tiles = np.stack([levels(one[:count].float().numpy()) for one in vectors], 1)
        return list(tiles.shape[2:]), png(joined(tiles))


def sheets(run: Run, methods: Sequence[str], protocol: str, album: Album) -> dict[str, list[dict[str, Any]]]:
    """What the page's gallery shows; empty lists where a run kept no maps.

    Args:
        run: a finished study.
        methods: in the order of their tiles.
        protocol: whose headline metric stands under each map.
        album: where the pictures go.

    Returns:
        ``sheets``, one entry for each network; ``globes``, the grids that maps lie on.
    """
    try:
        maps, cases = run.maps(), run.cases()
    except (MissingFile, WeightsError):
        return {"sheets": [], "globes": []}
    tasks = {str(task["name"]): task for task in run.manifest["tasks"]}
    scores = gallery.kept_scores(run, protocol, cases)
    drawer = _Drawer(cases, album)
    shown: list[tuple[str, str, int, list[str]]] = []
    for subject in run.manifest["networks"]:
        name, network, seed = str(subject["task"]), str(subject["network"]), int(subject["seed"])
        there = [method for method in methods if f"{name}|{network}|{seed}|{method}" in maps]
        if there and drawer.can(name):
            shown.append((name, network, seed, there))

    def picture(entry: tuple[str, str, int, list[str]]) -> tuple[list[int], bytes]:
        name, network, seed, there = entry
        return drawer.maps(name, [maps[f"{name}|{network}|{seed}|{method}"] for method in there])

    found: list[dict[str, Any]] = []
    for (name, network, seed, there), (size, data) in zip(shown, _ahead(picture, shown), strict=True):
        drawn = drawer.of(name, tasks[name].get("groups", {}))
        source = album.place(data, "maps")
        found.append(
            {
                "task": name,
                "network": network,
                "seed": seed,
                "reasoning": str(tasks[name].get("reasoning", "")),
                "methods": there,
                "absent": [method for method in methods if method not in there],
                "kinds": [kind(method) for method in there],
                "scenes": drawn.scenes,
                "scores": [
                    [
                        _rounded(scores.get((name, network, seed, method, scene["group"], scene["sample"])))
                        for method in there
                    ]
                    for scene in drawn.scenes
                ],
                "size": size,
                "maps": source,
                "fronts": drawn.fronts,
                "inputs": drawn.sources,
                "globe": drawn.globe,
            }
        )
    return {"sheets": found, "globes": [globe.data() for globe in drawer.globes]}


def _ahead(work: Callable[[T], R], things: Sequence[T]) -> Iterator[R]:
    """What comes of each thing, in order; the next ones are worked on meanwhile.

    Pictures are compressed outside the interpreter's lock, so that threads do not wait for each other.
    """
    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
        begun: deque[Future[R]] = deque()
        for thing in things:
            begun.append(pool.submit(work, thing))
            if len(begun) > 2 * _THREADS:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()


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
