"""Claims about networks on photographs."""

from __future__ import annotations

import numpy as np

from verax.reproductions.alignment.base import Chapter
from verax.reproductions.alignment.imagenet import METHOD, correlated, published
from verax.reproductions.alignment.measuring import RIGHT, Evidence, draws
from verax.reproductions.claims import Finding, NotTestable, between, count, exact

chapter = Chapter("Networks on photographs")
claim = chapter.claim


def _networks(evidence: Evidence) -> list[str]:
    return list(dict.fromkeys(evidence.rows["network"]))


@claim(
    "imagenet-chance",
    "Figure A1 and chance",
    "Networks look where people do: IoU above that of as many random pixels.",
)
def chance(evidence: Evidence) -> Finding:
    names, flags, words = _networks(evidence), [], []
    for name in names:
        rows = evidence.where(network=name, method=METHOD)
        value, random = draws(rows, "iou"), draws(rows, "iou/random")
        flags.append(value > random)
        words.append(f"{name} {between(value, 3)}, chance {random[0]:.3f}")
    return count(np.stack(flags, 1), names, "networks above chance", more="; ".join(words) + ".")


@claim("imagenet-peak", "Figure A1", "The strongest pixel lies on the object more often than not.")
def peak(evidence: Evidence) -> Finding:
    names, flags, words = _networks(evidence), [], []
    for name in names:
        rows = evidence.where(network=name, method=METHOD)
        value = draws(rows, "pointing-game")
        flags.append(value > 0.5)
        words.append(f"{name} {between(value, 3)}, chance {draws(rows, 'pointing-game/random')[0]:.3f}")
    return count(np.stack(flags, 1), names, "networks with PG above 0.5", more="; ".join(words) + ".")


@claim(
    "imagenet-interchangeable",
    "Section 4.4",
    "IoU and PG rank networks alike (Spearman 0.902), so that either will do.",
)
def interchangeable(evidence: Evidence) -> Finding:
    """The 0.902 is of gradients on 195 networks; of Grad-CAM on the 22 it is much less."""
    table = published()
    a, b = table["iou"].to_numpy(float), table["pointing-game"].to_numpy(float)
    picks = np.random.default_rng(0).integers(0, len(a), (2000, len(a)))
    value, low, high = correlated(a, b, picks, ranked=True)
    return exact(
        low > 0.7,
        f"Spearman of the 22 published Grad-CAM points: {value:.2f} [{low:.2f}, {high:.2f}].",
        "the whole interval lies above 0.7",
        value,
    )


@claim("imagenet-accuracy", "Section 4.4", "More accurate networks are not better aligned.")
def accuracy(evidence: Evidence) -> Finding:
    table = published()
    a, b = table[RIGHT].to_numpy(float), table["iou"].to_numpy(float)
    picks = np.random.default_rng(0).integers(0, len(a), (2000, len(a)))
    value, low, high = correlated(a, b, picks, ranked=False)
    return exact(
        high < 0.3,
        f"Pearson of accuracy and IoU over the 22 published points: {value:.2f} [{low:.2f}, {high:.2f}].",
        "the whole interval lies below 0.3",
        value,
    )


@claim(
    "imagenet-layers",
    "Beyond the paper",
    "No map is constant: Grad-CAM has a layer of more than one pixel in every network.",
)
def layers(evidence: Evidence) -> Finding:
    rows = evidence.where(method=METHOD)
    flat = int(rows["flat"].sum())
    return exact(
        flat == 0,
        f"{flat} of {len(rows)} maps are constant. The published rule gives 26 of 195 networks a 1 x 1 map.",
        "no map is constant",
        float(flat),
    )


@claim("imagenet-verdict", "Beyond the paper", "Methods rank the networks alike.")
def verdict(evidence: Evidence) -> Finding:
    names = _networks(evidence)
    if len(names) < 3:
        raise NotTestable("A ranking needs at least three networks.")
    orders = {}
    for method in dict.fromkeys(evidence.rows["method"]):
        values = [evidence.where(network=n, method=method)["iou"].mean() for n in names]
        orders[method] = " > ".join(names[k].replace("efficientnet-", "") for k in np.argsort(values)[::-1])
    words = "; ".join(f"{method}: {order}" for method, order in orders.items())
    return exact(
        len(set(orders.values())) == 1,
        f"By IoU, {words}.",
        "all methods give one order",
        float(len(set(orders.values()))),
    )
