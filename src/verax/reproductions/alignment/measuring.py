"""Measuring: one explanation of each image, compared with every part that people marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from verax import devices, seeding
from verax.methods.explaining import as_method
from verax.metrics.alignment import SCORES, Judging, judge
from verax.metrics.binarisation import Binarisation
from verax.networks.zoo import Preprocessing, Subject
from verax.reproductions.claims import Floats, NotTestable
from verax.studies.questions import Question
from verax.studies.statistics import interval
from verax.tasks.alignment import Annotated, AnnotatedImages, Subset, shaped, stream

METHODS = ("gradient", "grad-cam", "integrated-gradients", "smoothgrad")
"""Those that every experiment compares; any others can be asked for."""
REPLICATES = 400
RIGHT = "accuracy"
_RANDOM = "/random"
_KEYS = ["network", "seed", "test", "method", "part"]


def question(subject: Subject, method: str, outputs: int, labels: str = "predicted") -> Question:
    """How a method's maps are read: as published, except that ties of the pointing game are shared fairly.

    Gradients are magnitudes and show what exceeds mean + 1 standard deviation; class activation maps are not
    rectified and show what exceeds half of their range.
    """
    chosen = as_method(method)
    cam = chosen.family == "cams"
    given = {"relu": False} if cam and "relu" in chosen.parameters else {}
    judging = Judging(Binarisation.of("threshold:0.5" if cam else "std:1"))
    channels = "magnitude" if chosen.transfer == "gray" else "sum"
    return Question(
        subject,
        chosen,
        chosen.settings(given),
        judging,
        channels,
        labels,
        part=None,
        objects="all",
        numbers=None,
        outputs=outputs,
        seed=0,
        metrics=SCORES,
    )


def as_subject(model: nn.Module | Subject, name: str = "network") -> Subject:
    """A network that sees pictures as they are, unless it says otherwise."""
    return model if isinstance(model, Subject) else Subject(name, model, Preprocessing())


def some(images: AnnotatedImages, most: int | None) -> AnnotatedImages:
    """At most so many images, evenly spread."""
    if most is None or most >= len(images):
        return images
    return Subset(images, np.linspace(0, len(images) - 1, most).round().astype(int).tolist())


def measure(
    model: nn.Module | Subject,
    images: AnnotatedImages,
    methods: Sequence[str],
    parts: Sequence[str],
    labels: Mapping[str, Any],
    *,
    batch: int = 64,
    device: str = "auto",
    keep: int = 0,
) -> tuple[pd.DataFrame, list[Picture]]:
    """One row for each image, method and part.

    Args:
        model: judged in eval mode.
        images: with all of the parts.
        methods: how it is explained.
        parts: what its maps are compared with.
        labels: columns such as network and seed.
        batch: images at a time.
        device: where to compute.
        keep: so many images, evenly spread, are kept with their maps for figures.
    """
    subject, where = as_subject(model), devices.resolve(device)
    subject.model.to(where).eval()
    if subject.preprocessing.geometry is not None:
        images = shaped(images, subject.preprocessing.geometry)
    outputs = 10**6  # labels are outputs here; nothing is renumbered
    asked = {name: question(subject, name, outputs) for name in methods}
    tables: list[pd.DataFrame] = []
    pictures: list[Picture] = []
    spread = {round(place) for place in np.linspace(0, len(images) - 1, keep)} if keep else set()
    start = 0
    for found in stream(images, batch):
        there = found.to(where)
        for method, ask in asked.items():
            maps, _, known, predicted, _ = ask.maps(found, where)
            right = (known == predicted).double().cpu().numpy()
            right[known.cpu().numpy() < 0] = np.nan
            for part in parts:
                judged = judge(maps, there.about(part).masks, ask.judging)
                columns: dict[str, Any] = {
                    "image": np.arange(start, start + len(found)),
                    "label": known.cpu().numpy(),
                    RIGHT: right,
                    "area": judged.area.cpu().numpy(),
                    "flat": judged.flat.cpu().numpy(),
                    **{name: values.cpu().numpy() for name, values in found.variables.items()},
                }
                for name in SCORES:
                    columns[name] = judged.scores[name].cpu().numpy()
                    columns[name + _RANDOM] = judged.random[name].cpu().numpy()
                tables.append(pd.DataFrame(columns).assign(**labels, method=method, part=part))
            chosen = [number - start for number in sorted(spread) if 0 <= number - start < len(found)]
            if chosen:
                pictures += _kept(found.map(torch.Tensor.cpu), maps.cpu(), ask, chosen, labels, parts)
        start += len(found)
    return pd.concat(tables, ignore_index=True), pictures


@dataclass(frozen=True, eq=False)
class Picture:
    """One image with what people marked and what a network looks at.

    Attributes:
        labels: network, test and so on.
        method: of the map.
        image: ``(H, W, 3)``.
        masks: part -> ``(H, W)`` bool.
        shown: ``(H, W)`` bool; the region of the map.
        heat: ``(H, W)``; the map itself.
        id: of the image.
    """

    labels: Mapping[str, Any]
    method: str
    image: NDArray[np.float32]
    masks: Mapping[str, NDArray[np.bool_]]
    shown: NDArray[np.bool_]
    heat: NDArray[np.float32]
    id: str

    def scores(self, part: str) -> tuple[float, bool]:
        """IoU, and whether the strongest pixel lies in the part."""
        mask = self.masks[part]
        union = int((mask | self.shown).sum())
        peak = np.unravel_index(int(self.heat.argmax()), self.heat.shape)
        return float((mask & self.shown).sum()) / max(union, 1), bool(mask[peak])


def _kept(
    batch: Annotated,
    maps: Tensor,
    ask: Question,
    rows: Sequence[int],
    labels: Mapping[str, Any],
    parts: Sequence[str],
) -> list[Picture]:
    """Some rows of a batch with their maps."""
    shown = ask.judging.binarisation(maps)
    return [
        Picture(
            labels,
            ask.method.name,
            batch.images[row].permute(1, 2, 0).numpy(),
            {part: batch.parts[part][row].numpy() for part in parts},
            shown[row].numpy(),
            maps[row].float().numpy(),
            batch.ids[row],
        )
        for row in rows
    ]


@dataclass
class Evidence:
    """What an experiment found.

    Attributes:
        rows: one for each network, seed, test, method, part and image.
        facts: what was run, in words: name -> sentence or number.
        pictures: images with maps, for the figures.
        tables: further tables.
    """

    rows: pd.DataFrame
    facts: dict[str, Any] = field(default_factory=dict)
    pictures: list[Picture] = field(default_factory=list)
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)

    def where(self, **labels: Any) -> pd.DataFrame:
        """The rows with these labels; an error of its own where there are none."""
        rows = self.rows
        for name, value in labels.items():
            rows = rows[rows[name] == value]
        if not len(rows):
            words = ", ".join(map(str, labels.values()))
            raise NotTestable(f"The run has nothing about {words}.")
        return rows

    def draws(self, score: str, **labels: Any) -> Floats:
        """Mean of a score over images, then networks, with bootstrap replicates over both: ``(1 + R,)``."""
        return draws(self.where(**labels), score)


@lru_cache(maxsize=4)
def _weights(count: int) -> Floats:
    """How often each of `count` images is in each replicate; the same whatever the score."""
    drawn = np.random.default_rng(count).multinomial(count, np.full(count, 1 / count), size=REPLICATES)
    return drawn.astype(np.float64)


def draws(rows: pd.DataFrame, score: str) -> Floats:
    """Mean over the images of each seed, then over seeds; replicates draw seeds and images again.

    The first is the measurement. Images have the same draws whatever the score, so that differences of two
    scores of the same rows are paired.
    """
    groups = [group for _, group in rows.groupby("seed", sort=True)]
    generator = np.random.default_rng(seeding.key("alignment-experiments", len(groups)) & 0xFFFFFFFF)
    found = []
    for group in groups:
        values = group[score].to_numpy(np.float64)
        values = values[np.isfinite(values)]
        count = len(values)
        if not count:
            found.append(np.full(1 + REPLICATES, np.nan))
            continue
        mean, replicates = values.mean(), _weights(count) @ values / count
        found.append(np.concatenate([[mean], replicates]))
    table = np.stack(found)
    picks = generator.integers(0, len(groups), (REPLICATES, len(groups)))
    again = np.take_along_axis(table[:, 1:], picks.T, axis=0).mean(0)
    result: Floats = np.concatenate([[table[:, 0].mean()], again])
    return result


def summary(
    rows: pd.DataFrame, scores: Sequence[str] = ("iou", "pointing-game"), by: Sequence[str] = ()
) -> pd.DataFrame:
    """A row for each network, test, method and part: means with intervals, chance and lift."""
    keys = [*[key for key in _KEYS if key in rows and key != "seed"], *by]
    found = []
    for labels, group in rows.groupby(keys, sort=False):
        row: dict[str, Any] = dict(zip(keys, labels, strict=True))
        row["images"] = int(group["image"].nunique())
        row["networks"] = int(group["seed"].nunique())
        right = draws(group, RIGHT)
        row[RIGHT] = right[0]
        for score in scores:
            values, chance = draws(group, score), draws(group, score + _RANDOM)
            low, high = interval(values[1:])
            row |= {
                score: values[0],
                f"{score} low": float(low),
                f"{score} high": float(high),
                f"{score} chance": chance[0],
                f"{score} lift": values[0] / chance[0] if chance[0] > 0 else np.nan,
            }
        found.append(row)
    return pd.DataFrame(found)


def shown(table: pd.DataFrame, scores: Sequence[str] = ("iou", "pointing-game")) -> pd.DataFrame:
    """A summary as people read it: one column for each score with its interval, one for chance."""
    columns = [name for name in table if not any(str(name).startswith(score) for score in scores)]
    result = table[columns].copy()
    for name in (RIGHT,):
        if name in result:
            result[name] = [_number(value) for value in result[name]]
    for score in scores:
        result[score] = [
            f"{_number(value)} [{_number(low)}, {_number(high)}]"
            for value, low, high in table[[score, f"{score} low", f"{score} high"]].to_numpy()
        ]
        result[f"{score} by chance"] = [_number(value) for value in table[f"{score} chance"]]
    return result


def _number(value: float) -> str:
    return "–" if not np.isfinite(value) else f"{value:.3f}"
