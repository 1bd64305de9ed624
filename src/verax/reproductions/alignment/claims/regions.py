"""Claims about regions of faces."""

from __future__ import annotations

import numpy as np

from verax.reproductions.alignment.base import Chapter
from verax.reproductions.alignment.measuring import RIGHT, Evidence
from verax.reproductions.alignment.regions import METHOD, lifts, ranking
from verax.reproductions.claims import Finding, NotTestable, exact, threshold

chapter = Chapter("Regions of faces")
claim = chapter.claim


def _need(evidence: Evidence, part: str) -> None:
    if part not in set(evidence.rows["part"]):
        raise NotTestable(f"These images have no {part}.")


@claim("regions-head", "Beyond the paper", "Networks look at an animal's head more than at its body.")
def head(evidence: Evidence) -> Finding:
    _need(evidence, "head")
    found = lifts(evidence, METHOD)
    words = f"Head {found['head'][0]:.2f}, body {found['body'][0]:.2f} times chance."
    return threshold(found["head"] - found["body"], "above", 0.0, "lift of the head minus the body", words)


@claim(
    "regions-mouth", "Section 4.3", "For its size, the mouth is what networks that tell smiles look at most."
)
def mouth(evidence: Evidence) -> Finding:
    _need(evidence, "mouth")
    found = lifts(evidence, METHOD)
    best = max((r for r in found if r != "mouth"), key=lambda r: float(np.nan_to_num(found[r][0])))
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
        f"Spearman of a region's size and the IoU of random pixels: {same:.2f}. By IoU: {', '.join(plain)};"
        f" by lift: {', '.join(ranking(lifts(evidence, METHOD)))}.",
        "random pixels do not rank regions by size",
        same,
    )


@claim("regions-verdict", "Beyond the paper", "Whatever the method, the mouth is first for its size.")
def verdict(evidence: Evidence) -> Finding:
    _need(evidence, "mouth")
    firsts = {m: ranking(lifts(evidence, m)) for m in dict.fromkeys(evidence.rows["method"])}
    words = "; ".join(f"{m}: {', '.join(order[:3])}" for m, order in firsts.items())
    agree = [order[0] == "mouth" for order in firsts.values()]
    return exact(
        all(agree),
        f"{sum(agree)} of {len(agree)} methods. {words}.",
        "the mouth is first for every method",
        float(sum(agree)),
    )
