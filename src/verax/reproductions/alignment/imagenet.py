"""Experiment 5: any list of networks on ImageNet, pets or any folder with masks.

Bang, Boggust and Satyanarayan, "Explanation Alignment" (ECCV 2024 workshops), Figure A1 and section 4.4.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from verax.correlations import average_ranks, correlation
from verax.errors import MissingFile
from verax.networks.lites import LITES, listed
from verax.reproductions.alignment import drawing
from verax.reproductions.alignment.drawing import Drawn
from verax.reproductions.alignment.measuring import RIGHT, Evidence, measure, shown, some, summary
from verax.reproductions.alignment.options import Options
from verax.reproductions.claims import Floats
from verax.studies.statistics import interval
from verax.tasks.alignment import AnnotatedImages
from verax.tasks.alignment.folders import masked_folder
from verax.tasks.alignment.imagenet import imagenet
from verax.tasks.alignment.pets import pets

METHOD = "grad-cam"
PUBLISHED = (
    ("convnext_tiny", 0.822, 0.353, 0.679),
    ("convnext_small", 0.834, 0.370, 0.870),
    ("convnext_base", 0.838, 0.384, 0.895),
    ("convnext_large", 0.842, 0.367, 0.854),
    ("efficientnet_v2_s", 0.814, 0.587, 0.897),
    ("regnet_y_128gf", 0.860, 0.410, 0.914),
    ("regnet_y_32gf", 0.832, 0.459, 0.910),
    ("regnet_y_16gf", 0.827, 0.449, 0.909),
    ("regnet_y_8gf", 0.827, 0.460, 0.912),
    ("regnet_y_3_2gf", 0.818, 0.493, 0.905),
    ("regnet_y_1_6gf", 0.808, 0.566, 0.894),
    ("regnet_x_32gf", 0.829, 0.414, 0.861),
    ("regnet_x_16gf", 0.826, 0.450, 0.874),
    ("regnet_x_8gf", 0.817, 0.430, 0.883),
    ("regnet_x_3_2gf", 0.811, 0.472, 0.884),
    ("resnext50_32x4d", 0.810, 0.443, 0.868),
    ("resnext101_32x8d", 0.825, 0.453, 0.726),
    ("resnet50", 0.804, 0.422, 0.833),
    ("resnet101", 0.818, 0.433, 0.852),
    ("resnet152", 0.824, 0.452, 0.838),
    ("wide_resnet50_2", 0.814, 0.430, 0.811),
    ("wide_resnet101_2", 0.824, 0.477, 0.847),
)
"""Accuracy, IoU and PG of Grad-CAM on 50,000 images, read off the published plots (+- 0.003)."""


def published() -> pd.DataFrame:
    """The 22 published points."""
    return pd.DataFrame(PUBLISHED, columns=["network", RIGHT, "iou", "pointing-game"])


def find_images(given: Path | None) -> tuple[AnnotatedImages, str]:
    """The images, and the part that people marked: ImageNet, pets, or a folder with images/ and masks/."""
    data = os.environ.get("VERAX_DATA")
    places = [given] if given is not None else [Path(data) / n for n in ("imagenet", "pets")] if data else []
    for place in places:
        if (place / "pets.csv").is_file() or (place / "annotations" / "trimaps").is_dir():
            return pets(place, label="imagenet"), "animal"
        if (place / "masks").is_dir():
            found = masked_folder(place / "images", place / "masks")
            return found, found.part
        if place.is_dir():
            found = imagenet(place)
            return found, found.part
    raise MissingFile(
        "alignment-imagenet needs photographs with outlines: set VERAX_DATA to a folder that holds pets/ "
        "(https://www.robots.ox.ac.uk/~vgg/data/pets/) or imagenet/, or name a folder with --data."
    )


def gather(options: Options) -> Evidence:
    """Every network on the same images, each with its own preprocessing."""
    images, part = find_images(options.data)
    names = list(options.networks or LITES)
    few = min(options.samples or 16, 6 if options.quick else 16)
    others = [name for name in options.methods if name != METHOD]
    chosen = some(images, 8 if options.quick and options.samples is None else options.samples)
    rows, pictures = [], []
    for name in names:
        found = listed(name)
        for methods, which in (([METHOD], chosen), (others, some(images, few))):
            if methods:
                labels = {"network": found.name, "seed": 0, "test": images.name}
                table, _ = measure(found, which, methods, (part,), labels, batch=16, device=options.device)
                rows.append(table)
        _, kept = measure(
            found,
            some(images, 12),
            [METHOD],
            (part,),
            labels,
            batch=12,
            device=options.device,
            keep=12,
        )
        pictures += kept
    facts = {
        "part": part,
        "data": images.name,
        "about": (
            f"{len(names)} networks on {len(chosen)} images of {images.name}, mask: {part}. {METHOD}, not"
            " rectified, threshold 0.5, predicted class, the last feature map of more than one pixel; each"
            f" network's own preprocessing. Other methods on {few} images. Intervals are 95 % bootstrap"
            " intervals over images."
        ),
    }
    return Evidence(pd.concat(rows, ignore_index=True), facts, pictures)


def correlations(table: pd.DataFrame) -> pd.DataFrame:
    """Pearson and Spearman of the 22 published points, with 95 % bootstrap intervals over networks."""
    generator = np.random.default_rng(0)
    picks = generator.integers(0, len(table), (2000, len(table)))
    rows = []
    for x, y in ((RIGHT, "iou"), (RIGHT, "pointing-game"), ("iou", "pointing-game")):
        a, b = (table[name].to_numpy(float) for name in (x, y))
        row: dict[str, object] = {"pair": f"{x}, {y}"}
        for name, ranked in (("pearson", False), ("spearman", True)):
            value, low, high = correlated(a, b, picks, ranked)
            row[name] = f"{value:.2f} [{low:.2f}, {high:.2f}]"
        rows.append(row)
    return pd.DataFrame(rows)


def correlated(a: Floats, b: Floats, picks: np.ndarray, ranked: bool) -> tuple[float, float, float]:
    """A correlation with its bootstrap interval over pairs."""

    def one(x: Floats, y: Floats) -> Floats:
        left, right = torch.tensor(np.atleast_2d(x)), torch.tensor(np.atleast_2d(y))
        if ranked:
            left, right = average_ranks(left), average_ranks(right)
        found: Floats = correlation(left.double(), right.double()).numpy()
        return found

    low, high = interval(one(a[picks], b[picks]))
    return float(one(a, b)[0]), float(low), float(high)


def tables(evidence: Evidence) -> dict[str, pd.DataFrame]:
    """Every network, every method, and the published points."""
    every = summary(evidence.rows, ("iou", "pointing-game", "saliency-coverage"))
    scores = ("iou", "pointing-game", "saliency-coverage")
    main = shown(every[every["method"] == METHOD], scores).drop(columns=["method", "networks"])
    return {
        "Networks": main,
        "Every method": (
            shown(every).drop(columns=["networks"])[
                [
                    "network",
                    "method",
                    "images",
                    RIGHT,
                    "iou",
                    "iou by chance",
                    "pointing-game",
                    "pointing-game by chance",
                ]
            ]
        ),
        "The 22 published networks": published().sort_values(RIGHT, ascending=False),
        "Correlations over the 22 published networks": correlations(published()),
    }


def figures(evidence: Evidence) -> list[Drawn]:
    """Outlines, scatters, and bars for the methods."""
    part = evidence.facts["part"]
    drawn = []
    for network in dict.fromkeys(p.labels["network"] for p in evidence.pictures):
        own = [p for p in evidence.pictures if p.labels["network"] == network]
        note = (
            "Blue: what people outlined. Orange: what the network looks at. The + is the strongest pixel; O:"
            " it lies inside."
        )
        drawn.append(
            Drawn(
                f"outlines-{network.replace(':', '-')}",
                f"What {network} looks at",
                note,
                drawing.outlines(own, part),
            )
        )
    ours = summary(evidence.where(method=METHOD)).assign(source="here: " + evidence.facts["data"])
    both = pd.concat([ours, published().assign(source="paper: ImageNet")], ignore_index=True)
    for score in ("iou", "pointing-game"):
        note = (
            "The published points are on other images: ours and theirs are not to be compared point by point."
        )
        drawn.append(
            Drawn(
                f"accuracy-{score}",
                f"Accuracy and {score}",
                note,
                drawing.scatter(both, RIGHT, score, "network", groups="source"),
            )
        )
    every = summary(evidence.rows)
    drawn.append(
        Drawn(
            "methods-iou",
            "Every method: IoU",
            "Ticks are chance for an animal of that size.",
            drawing.bars(every, "iou", "network", "method"),
        )
    )
    return drawn
