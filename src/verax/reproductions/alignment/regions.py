"""Experiment 3: which region of a face does a network look at? Ranked for networks that were trained again.

Bang, Boggust and Satyanarayan, "Explanation Alignment" (ECCV 2024 workshops), section 4.3 and Table 3.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from verax.networks.lites import LITES, listed
from verax.reproductions.alignment import drawing
from verax.reproductions.alignment.drawing import Drawn
from verax.reproductions.alignment.measuring import RIGHT, Evidence, measure, shown, some, summary
from verax.reproductions.alignment.options import Options
from verax.reproductions.alignment.people import people, regions
from verax.reproductions.claims import Floats
from verax.tasks.alignment.pets import pets

METHOD = "grad-cam"
ANIMAL = ("head", "body")
RANK_BY = "saliency-coverage"
"""The share of what a network looks at that lies in a region; divided by that of random pixels, the lift."""
TABLE_3 = (
    # accuracy; IoU of hair, eye, mouth, nose, skin; PG of the same
    ("A", 0.93, (0.0024, 0.0000, 0.3120, 0.0802, 0.1310), (0.0009, 0.0000, 0.8402, 0.0197, 0.9937)),
    ("B", 0.92, (0.0007, 0.0607, 0.0215, 0.2370, 0.2360), (0.0015, 0.0244, 0.0018, 0.5434, 0.9997)),
    ("C", 0.93, (0.0058, 0.0332, 0.1510, 0.1720, 0.2010), (0.0020, 0.0125, 0.3896, 0.2978, 0.9994)),
)
THEIRS = ("hair", "eye", "mouth", "nose", "skin")


def _animals(root: Path, options: Options) -> Evidence:
    """Head against body: photographs of pets, and networks that know ImageNet."""
    images = some(pets(root, label="imagenet"), options.samples or (6 if options.quick else 240))
    few = some(images, 6 if options.quick else 12)
    others = [name for name in options.methods if name != METHOD]
    names = list(options.networks or LITES)
    rows, pictures = [], []
    for name in names:
        subject = listed(name)
        labels = {"network": subject.name, "seed": 0, "test": "pets"}
        for methods, which in (([METHOD], images), (others, few)):
            if methods:
                keep = 3 if methods == [METHOD] else 0
                table, kept = measure(
                    subject, which, methods, ANIMAL, labels, batch=16, device=options.device, keep=keep
                )
                rows.append(table)
                pictures += kept
    words = f"{len(images)} photographs of pets; {', '.join(names)}. {METHOD}, not rectified, threshold 0.5."
    return Evidence(pd.concat(rows, ignore_index=True), {"about": words}, pictures)


def gather(options: Options) -> Evidence:
    """Train the unbiased network of experiment 2 again and again, and compare its maps with every region."""
    if options.data is not None and (options.data / "pets.csv").is_file():
        return _animals(options.data, options)
    found = people(options)
    faces, parts, words = regions(options, found)
    faces = some(faces, 2000)
    few = min(options.samples or 100, 10 if options.quick else 100)
    others = [name for name in options.methods if name != METHOD]
    rows, pictures = [], []
    for seed in found.seeds:
        model = found.network("unbiased", seed, options)
        for methods, most in (([METHOD], options.samples), (others, few)):
            if methods:
                keep = 3 if methods == [METHOD] else 0
                labels = {"network": f"seed {seed}", "seed": seed, "test": "unbiased"}
                table, kept = measure(
                    model, some(faces, most), methods, parts, labels, device=options.device, keep=keep
                )
                rows.append(table)
                pictures += kept
    facts = {
        "about": (
            f"{words}; {len(found.seeds)} networks that differ in"
            f" their seed alone, trained on balanced groups. {METHOD}, not rectified, threshold 0.5,"
            f" predicted class; other methods on {few} faces. Regions do not overlap (the published skin"
            " holds eyes, nose and mouth). Lift: a score divided by that of as many random pixels, so that"
            " large regions do not win by size."
        ),
    }
    return Evidence(pd.concat(rows, ignore_index=True), facts, pictures)


def lifts(evidence: Evidence, method: str, network: str | None = None) -> dict[str, Floats]:
    """Region -> lift of what the networks look at, with replicates."""
    found = {}
    for region in dict.fromkeys(evidence.rows["part"]):
        labels = {"part": region, "method": method, **({"network": network} if network else {})}
        rows = Evidence(evidence.where(**labels))
        found[region] = rows.draws(RANK_BY) / rows.draws(f"{RANK_BY}/random")[0]
    return found


def ranking(values: dict[str, Floats]) -> list[str]:
    """Regions, the most looked at first."""
    return sorted(values, key=lambda region: -float(np.nan_to_num(values[region][0])))


def ranked(evidence: Evidence) -> pd.DataFrame:
    """Every network: its regions by lift, and by plain IoU and PG, which size decides."""
    rows = []
    for network in dict.fromkeys(evidence.rows["network"]):
        own = lifts(evidence, METHOD, network)
        every = evidence.where(network=network, method=METHOD)
        plain = {
            score: every.groupby("part")[score].mean().sort_values(ascending=False)
            for score in ("iou", "pointing-game")
        }
        rows.append(
            {
                "network": network,
                RIGHT: f"{every[RIGHT].mean():.3f}",
                "by lift": ", ".join(f"{region} {own[region][0]:.1f}" for region in ranking(own)),
                **{
                    f"by {s}": ", ".join(f"{r} {v:.3f}" for r, v in values.items())
                    for s, values in plain.items()
                },
            }
        )
    return pd.DataFrame(rows)


def published() -> pd.DataFrame:
    """Table 3 of the paper."""
    rows = []
    for name, right, iou, point in TABLE_3:
        row: dict[str, object] = {"network": name, RIGHT: right}
        row |= {f"IoU {region}": value for region, value in zip(THEIRS, iou, strict=True)}
        row |= {f"PG {region}": value for region, value in zip(THEIRS, point, strict=True)}
        rows.append(row)
    return pd.DataFrame(rows)


def tables(evidence: Evidence) -> dict[str, pd.DataFrame]:
    """Rankings, regions of every network, methods, and the published table."""
    scores = ("iou", "pointing-game", RANK_BY)
    own = summary(evidence.where(method=METHOD), scores)
    regions = shown(own, scores).drop(columns=["method", "test", "networks"])
    regions["lift"] = [f"{value:.2f}" for value in own[f"{RANK_BY} lift"]]
    methods = pd.DataFrame(
        [
            {"method": method, "regions by lift": ", ".join(f"{r} {found[r][0]:.1f}" for r in ranking(found))}
            for method in dict.fromkeys(evidence.rows["method"])
            if (found := lifts(evidence, method))
        ]
    )
    return {
        "Ranking of regions": ranked(evidence),
        "Table 3 every network and region": regions,
        "Every method": methods,
        "Table 3 as published": published(),
    }


def figures(evidence: Evidence) -> list[Drawn]:
    """What every network looks at, and bars by region."""
    drawn = []
    networks = list(dict.fromkeys(p.labels["network"] for p in evidence.pictures))
    ids = list(dict.fromkeys(p.id for p in evidence.pictures))
    kinds = {(p.labels["network"], p.id): p for p in evidence.pictures}
    lines = [[kinds[network, name] for network in networks] for name in ids]
    known = set(evidence.rows["part"])
    for part in [part for part in ("mouth", "skin", *ANIMAL) if part in known]:
        note = (
            "Networks that differ in their seed alone. The + is the strongest pixel; O: it lies in the"
            " outlined region."
        )
        drawn.append(
            Drawn(
                f"figure-3-{part}",
                f"What each network looks at, against the {part}",
                note,
                drawing.strip(lines, part, networks),
            )
        )
    own = summary(evidence.where(method=METHOD), ("iou", "pointing-game", RANK_BY))
    for score in ("iou", RANK_BY):
        drawn.append(
            Drawn(
                f"regions-{score}",
                f"Regions: {score}",
                "Ticks are chance for a region of that size.",
                drawing.bars(own, score, "part", "network"),
            )
        )
    return drawn
