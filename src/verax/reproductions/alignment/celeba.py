"""Experiment 2: smile or hair colour? On CelebA where it is here, on drawn faces otherwise.

Bang, Boggust and Satyanarayan, "Explanation Alignment" (ECCV 2024 workshops), section 4.2 and Table 2.
"""

from __future__ import annotations

import pandas as pd

from verax.reproductions.alignment import drawing
from verax.reproductions.alignment.drawing import Drawn
from verax.reproductions.alignment.measuring import RIGHT, Evidence, measure, shown, some, summary
from verax.reproductions.alignment.options import Options
from verax.reproductions.alignment.people import people
from verax.reproductions.claims import between
from verax.tasks.alignment.bias import GROUPS, counts

METHOD = "grad-cam"
DESIGNS = ("unbiased", "biased")
PARTS = ("mouth", "hair")
TABLE_2 = {
    # accuracy on the biased and the unbiased test and in the four groups; IoU and PG with the mouth
    "unbiased": (0.918, 0.924, 0.908, 0.950, 0.920, 0.912, 0.175, 0.263),
    "biased": (0.936, 0.662, 0.997, 0.150, 0.470, 0.998, 0.005, 0.000),
}


def gather(options: Options) -> Evidence:
    """Train both networks for each seed, and compare their maps with mouth and hair on both tests."""
    faces = people(options)
    parts = tuple(part for part in PARTS if part in faces.parts)
    few = min(options.samples or 100, 10 if options.quick else 100)
    others = [name for name in options.methods if name != METHOD]
    rows, pictures = [], []
    for seed in faces.seeds:
        for design in DESIGNS:
            model = faces.network(design, seed, options)
            for test in DESIGNS:
                tested = faces.draw(f"test-{test}", seed)
                labels = {"network": design, "seed": seed, "test": test}
                for methods, most in (([METHOD], options.samples), (others, few)):
                    if not methods or (methods == others and test == "biased"):
                        continue
                    keep = 6 if seed == faces.seeds[0] and methods == [METHOD] else 0
                    table, kept = measure(
                        model, some(tested, most), methods, parts, labels, device=options.device, keep=keep
                    )
                    rows.append(table)
                    pictures += kept
    found = pd.concat(rows, ignore_index=True)
    found["group"] = [GROUPS[int(number)] for number in found["group"]]
    sizes = counts("train-biased", faces.share)
    facts = {
        "about": (
            f"{faces.words}: {sum(sizes.values()):,} for the biased training set"
            f" ({sizes[0]} black and smiling, {sizes[3]} blond and not, {sizes[1]} of each other group), as"
            f" many people in equal groups for the unbiased one. {len(faces.seeds)} network"
            f"{'s' * (len(faces.seeds) > 1)} of each kind. {METHOD} on all test faces, not rectified,"
            f" threshold 0.5, predicted class; other methods on {few}. Intervals are 95 % bootstrap intervals"
            " over networks and faces."
        ),
    }
    return Evidence(found, facts, pictures)


def table_2(evidence: Evidence) -> pd.DataFrame:
    """Table 2: accuracy on both tests and in each group, alignment with mouth and hair."""
    lines = []
    for network in DESIGNS:
        own = {"network": network, "method": METHOD}
        ours = {
            "biased test": evidence.draws(RIGHT, test="biased", part="mouth", **own),
            "unbiased test": evidence.draws(RIGHT, test="unbiased", part="mouth", **own),
            **{g: evidence.draws(RIGHT, test="unbiased", part="mouth", group=g, **own) for g in GROUPS},
            "mouth IoU": evidence.draws("iou", test="biased", part="mouth", **own),
            "mouth PG": evidence.draws("pointing-game", test="biased", part="mouth", **own),
        }
        if "hair" in set(evidence.rows["part"]):
            ours["hair IoU"] = evidence.draws("iou", test="biased", part="hair", **own)
            ours["hair PG"] = evidence.draws("pointing-game", test="biased", part="hair", **own)
        lines.append({"network": network, "from": "here", **{k: between(v, 3) for k, v in ours.items()}})
        paper = [*(f"{value:.3f}" for value in TABLE_2[network]), "–", "–"]
        lines.append({"network": network, "from": "paper", **dict(zip(ours, paper, strict=False))})
    return pd.DataFrame(lines)


def tables(evidence: Evidence) -> dict[str, pd.DataFrame]:
    """Table 2, the groups, and the methods."""
    own = evidence.where(method=METHOD)
    groups = shown(summary(own[own["test"] == "unbiased"], by=["group"])).drop(columns=["method", "test"])
    every = shown(summary(evidence.where(test="unbiased"))).drop(columns="test")
    seeds = shown(summary(own.assign(seed_=own["seed"]), by=["seed_"])).drop(columns=["method", "networks"])
    return {
        "Table 2": table_2(evidence),
        "Groups of the unbiased test": groups,
        "Every method": every,
        "Every network": seeds.rename(columns={"seed_": "seed"}),
    }


def figures(evidence: Evidence) -> list[Drawn]:
    """Faces as in Figure 2, and bars for the methods."""
    drawn = []
    kinds = {(p.labels["network"], p.labels["test"], p.id): p for p in evidence.pictures}
    ids = list(dict.fromkeys(p.id for p in evidence.pictures if p.labels["test"] == "unbiased"))[:5]
    lines = [[kinds[network, "unbiased", name] for network in DESIGNS] for name in ids]
    for part in dict.fromkeys(evidence.rows["part"]):
        titles = [f"{network} network" for network in DESIGNS]
        note = "Outlined: what people would mark. The + is the strongest pixel; O: it lies inside."
        drawn.append(
            Drawn(
                f"figure-2-{part}",
                f"What both networks look at, against the {part}",
                note,
                drawing.strip(lines, part, titles),
            )
        )
    every = summary(evidence.where(test="unbiased"))
    every["which"] = [f"{n} network, {p}" for n, p in zip(every["network"], every["part"], strict=True)]
    for score in ("iou", "pointing-game"):
        note = "Unbiased test. Ticks are chance for a part of that size."
        drawn.append(
            Drawn(
                f"methods-{score}",
                f"Every method: {score}",
                note,
                drawing.bars(every, score, "which", "method"),
            )
        )
    return drawn
