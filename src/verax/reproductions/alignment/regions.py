"""Experiment 3: which region of a face does a network look at? Ranked for networks that were trained again.

Bang, Boggust and Satyanarayan, "Explanation Alignment" (ECCV 2024 workshops), section 4.3 and Table 3.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from verax.reproductions.alignment import drawing
from verax.reproductions.alignment.base import Chapter, Experiment
from verax.reproductions.alignment.celeba import face_network, plan
from verax.reproductions.alignment.drawing import Drawn
from verax.reproductions.alignment.measuring import RIGHT, Evidence, measure, shown, some, summary
from verax.reproductions.alignment.options import Options
from verax.reproductions.claims import Finding, Floats, NotTestable, exact, threshold
from verax.tasks.alignment.bias import counts
from verax.tasks.alignment.faces import Faces

METHOD = "grad-cam"
REGIONS = ("hair", "brows", "eyes", "mouth", "nose", "skin", "neck")
RANK_BY = "saliency-coverage"
"""The share of what a network looks at that lies in a region; divided by that of random pixels, the lift."""
TABLE_3 = (
    # accuracy; IoU of hair, eye, mouth, nose, skin; PG of the same
    ("A", 0.93, (0.0024, 0.0000, 0.3120, 0.0802, 0.1310), (0.0009, 0.0000, 0.8402, 0.0197, 0.9937)),
    ("B", 0.92, (0.0007, 0.0607, 0.0215, 0.2370, 0.2360), (0.0015, 0.0244, 0.0018, 0.5434, 0.9997)),
    ("C", 0.93, (0.0058, 0.0332, 0.1510, 0.1720, 0.2010), (0.0020, 0.0125, 0.3896, 0.2978, 0.9994)),
)
THEIRS = ("hair", "eye", "mouth", "nose", "skin")


def gather(options: Options) -> Evidence:
    """Train the unbiased network of experiment 2 again and again, and compare its maps with every region."""
    chosen = plan(options)
    few = min(options.samples or 100, 10 if options.quick else 100)
    faces = Faces(counts("test-unbiased", chosen.tested), 0, purpose="test")
    others = [name for name in options.methods if name != METHOD]
    rows, pictures = [], []
    for seed in chosen.seeds:
        model = face_network("unbiased", seed, chosen, options)
        for methods, most in (([METHOD], options.samples), (others, few)):
            if methods:
                keep = 3 if methods == [METHOD] else 0
                labels = {"network": f"seed {seed}", "seed": seed, "test": "unbiased"}
                table, kept = measure(
                    model, some(faces, most), methods, REGIONS, device=options.device, keep=keep, **labels
                )
                rows.append(table)
                pictures += kept
    facts = {
        "about": f"Drawn faces of 64 x 64 in place of CelebAMask-HQ; {len(chosen.seeds)} networks that differ in their seed "
        f"alone, trained on balanced groups. {METHOD}, not rectified, threshold 0.5, predicted class; other methods on {few} "
        "faces. Regions do not overlap (the published skin holds eyes, nose and mouth). Lift: a score divided by that of as "
        "many random pixels, so that large regions do not win by size.",
    }
    return Evidence(pd.concat(rows, ignore_index=True), facts, pictures)


def lifts(evidence: Evidence, method: str, network: str | None = None) -> dict[str, Floats]:
    """Region -> lift of what the networks look at, with replicates."""
    found = {}
    for region in REGIONS:
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
    for part in ("mouth", "skin"):
        note = "Networks that differ in their seed alone. The + is the strongest pixel; O: it lies in the outlined region."
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


chapter = Chapter("Regions of faces")
claim = chapter.claim


@claim(
    "regions-mouth", "Section 4.3", "For its size, the mouth is what networks that tell smiles look at most."
)
def mouth(evidence: Evidence) -> Finding:
    found = lifts(evidence, METHOD)
    best = max((r for r in REGIONS if r != "mouth"), key=lambda r: float(np.nan_to_num(found[r][0])))
    words = ", ".join(f"{r} {found[r][0]:.1f}" for r in ranking(found))
    return threshold(
        found["mouth"] - found[best], "above", 0.0, f"lift of the mouth minus that of the {best}", f"{words}."
    )


@claim(
    "regions-retraining",
    "Section 4.3, Table 3",
    "Networks of equal accuracy that differ in their seed look at different regions.",
)
def retraining(evidence: Evidence) -> Finding:
    networks = list(dict.fromkeys(evidence.rows["network"]))
    if len(networks) < 2:
        raise NotTestable("Only one network was trained.")
    orders = {n: ranking(lifts(evidence, METHOD, n)) for n in networks}
    rights = [float(evidence.draws(RIGHT, network=n, method=METHOD, part="mouth")[0]) for n in networks]
    words = "; ".join(f"{n}: {', '.join(order[:3])}" for n, order in orders.items())
    firsts = len({order[0] for order in orders.values()})
    return exact(
        firsts > 1,
        f"First three regions by lift, {words}. Accuracies {min(rights):.3f} to {max(rights):.3f}.",
        "the first region is not the same for all",
        float(firsts),
    )


@claim("regions-size", "Table 3", "IoU tells which region matters, whatever its size.")
def size(evidence: Evidence) -> Finding:
    """What random pixels score shows how much of a ranking is size."""
    rows = evidence.where(method=METHOD)
    by_size = rows.groupby("part")["area"].mean()
    by_chance = rows.groupby("part")["iou/random"].mean()
    same = float(by_size.corr(by_chance, method="spearman"))
    plain = list(rows.groupby("part")["iou"].mean().sort_values(ascending=False).index)
    return exact(
        same < 0.5,
        f"Spearman of a region's size and the IoU of random pixels: {same:.2f}. By IoU: {', '.join(plain)}; by lift: {', '.join(ranking(lifts(evidence, METHOD)))}.",
        "random pixels do not rank regions by size",
        same,
    )


@claim("regions-verdict", "Beyond the paper", "Whatever the method, the mouth is first for its size.")
def verdict(evidence: Evidence) -> Finding:
    firsts = {m: ranking(lifts(evidence, m)) for m in dict.fromkeys(evidence.rows["method"])}
    words = "; ".join(f"{m}: {', '.join(order[:3])}" for m, order in firsts.items())
    agree = [order[0] == "mouth" for order in firsts.values()]
    return exact(
        all(agree),
        f"{sum(agree)} of {len(agree)} methods. {words}.",
        "the mouth is first for every method",
        float(sum(agree)),
    )


EXPERIMENT = Experiment(
    "alignment-regions",
    "Which region of a face?",
    "Three trainings of the unbiased network; Grad-CAM, threshold 0.5, against the regions of CelebAMask-HQ (section 4.3, Table 3, "
    "Figure 3). IoU favours large regions and PG those that hold others, so that lifts are reported as well.",
    gather,
    chapter,
    tables,
    figures,
)
