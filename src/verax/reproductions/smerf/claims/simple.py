"""Claims about the simple settings (Section 4.1)."""

from __future__ import annotations

import numpy as np

from verax.reproductions.claims import Finding, between, count, exact, limits, number, threshold
from verax.reproductions.smerf import paper, toys
from verax.reproductions.smerf.claims.base import Chapter
from verax.reproductions.smerf.measurements import EVERYTHING, ORACLE, Measurements
from verax.studies.leaderboards import SUCCESS

chapter = Chapter("Simple reasoning")
claim = chapter.claim
WEAK, FIFTEEN, TEN = paper.methods("weak"), paper.methods("fifteen"), paper.methods("ten")
STRONG = tuple(name for name in FIFTEEN if name not in WEAK)
MIDDLE = ("I*G", "IG", "LRP-z", "LRP-eps", "LRP-A", "LRP-B", "DL-RC", "DL-R")
BY_OBJECTS = {
    "simple-fr": ((7,), (8, 9, 10), (11, 12)),
    "simple-nr": ((2, 3), (5, 6, 8, 9), (11, 12)),
}
"""Setting -> buckets with one, two and three objects in sight (Figure 6b)."""


@claim("simple-most-good", "Section 4.1, Figure 6a", "On average most methods pass a PAFL of 0.5.")
def most_good(measured: Measurements) -> Finding:
    means = measured.draws("pafl", FIFTEEN, family="simple").mean(1)
    bars = [
        r.value
        for r in paper.references()
        if r.figure == "Figure 6a" and r.metric == "pafl" and r.statistic == "mean" and r.method in FIFTEEN
    ]
    more = f"In the paper's own bars it is {sum(bar > SUCCESS for bar in bars)} of {len(bars)}."
    return count(means > SUCCESS, FIFTEEN, "Mean PAFL above 0.5", least=8, more=more)


@claim(
    "simple-all-but-four",
    "Section 4.1, Figure 6a",
    "G, SG, DCN and GBP are the exceptions: the eleven other methods pass 0.5 on average.",
)
def all_but_four(measured: Measurements) -> Finding:
    means = measured.draws("pafl", STRONG, family="simple").mean(1)
    more = "In the paper's own bars DT, LRP-B, G-CAM and D-SHAP stay below 0.5."
    return count(means > SUCCESS, STRONG, "Mean PAFL above 0.5", more=more)


@claim("simple-safl-lower", "Section 4.1, Figure 6a", "For these eleven, SAFL is lower than PAFL on average.")
def safl_lower(measured: Measurements) -> Finding:
    focus, avoid = (measured.draws(m, STRONG, family="simple").mean(1) for m in ("pafl", "safl"))
    return count(avoid < focus, STRONG, "Mean SAFL below mean PAFL")


@claim(
    "simple-four-fail",
    "Section 4.1, Figure 7",
    "G, SG, DCN and GBP are successful in no bucket of the simple settings.",
)
def four_fail(measured: Measurements) -> Finding:
    most = measured.draws("pafl", WEAK, family="simple", both=True).max(1)
    best = ", ".join(f"{name} {number(value)}" for name, value in zip(WEAK, most[0], strict=True))
    return count(most <= SUCCESS, WEAK, "No bucket above 0.5", more=f"Best buckets: {best}.")


@claim(
    "simple-dl-r",
    "Section 4.1, Figure 7",
    "DL-R succeeds in all buckets of both simple settings.",
)
def dl_r(measured: Measurements) -> Finding:
    least = measured.draws("pafl", ["DL-R"], family="simple", both=True).min(1)[:, 0]
    return threshold(least, "above", SUCCESS, "PAFL of DL-R in its worst bucket")


@claim("simple-only-dl-r", "Section 4.1, Figure 7", "No other method succeeds in all of these buckets.")
def only_dl_r(measured: Measurements) -> Finding:
    others = [name for name in FIFTEEN if name != "DL-R"]
    least = measured.draws("pafl", others, family="simple", both=True).min(1)
    return count(least <= SUCCESS, others, "Some bucket at or below 0.5")


@claim(
    "simple-middle-best",
    "Section 4.1, Figure 7",
    "The methods in the middle, I*G to DL, have higher success rates than the others.",
)
def middle_best(measured: Measurements) -> Finding:
    rest = [name for name in FIFTEEN if name not in MIDDLE]
    rates = [
        (measured.draws("pafl", names, family="simple", both=True) > SUCCESS).mean((1, 2))
        for names in (MIDDLE, rest)
    ]
    more = f"Middle {between(rates[0])}, others {between(rates[1])}."
    return threshold(rates[0] - rates[1], "above", 0.0, "Difference of success rates", more)


def _lines(measured: Measurements, task: str) -> Finding:
    present, absent = (8, 9, 11, 12), (7, 10) if task == "simple-fr" else (2, 3, 5, 6)
    lines = [measured.draws("pafl", FIFTEEN, tasks=[task], groups=g).mean(1) for g in (present, absent)]
    return count(lines[0] < lines[1], FIFTEEN, "PAFL lower where the irrelevant object is in sight")


@claim(
    "saturation-text", "Section 4.1, Figure 6a", "In Simple-FR every method has less PAFL when text is there."
)
def saturation_text(measured: Measurements) -> Finding:
    return _lines(measured, "simple-fr")


@claim(
    "saturation-box1", "Section 4.1, Figure 6a", "In Simple-NR every method has less PAFL when Box1 is there."
)
def saturation_box1(measured: Measurements) -> Finding:
    return _lines(measured, "simple-nr")


@claim(
    "saturation-pafl",
    "Section 4.1, Figure 6b",
    "The more objects are in sight, the lower the PAFL, strictly and for every method.",
)
def saturation_pafl(measured: Measurements) -> Finding:
    flags = np.ones((measured.replicates + 1, len(FIFTEEN)), dtype=bool)
    for task, groups in BY_OBJECTS.items():
        one, two, three = (measured.draws("pafl", FIFTEEN, tasks=[task], groups=g).mean(1) for g in groups)
        flags &= (one > two) & (two > three)
    return count(flags, FIFTEEN, "PAFL falls from one to two to three objects in both settings")


@claim("saturation-safl", "Section 4.1, Figure 6b", "SAFL increases along with the number of objects.")
def saturation_safl(measured: Measurements) -> Finding:
    flags = np.ones((measured.replicates + 1, len(FIFTEEN)), dtype=bool)
    for task, groups in BY_OBJECTS.items():
        two, three = (measured.draws("safl", FIFTEEN, tasks=[task], groups=g).mean(1) for g in groups[1:])
        flags &= three > two
    return count(flags, FIFTEEN, "SAFL rises from two to three objects in both settings")


@claim(
    "simple-fr-worst-bucket",
    "Appendix B.2, Figure 19",
    "In Simple-FR almost all methods have their lowest PAFL where all objects are present.",
)
def fullest_is_worst(measured: Measurements) -> Finding:
    draws = measured.draws("pafl", FIFTEEN, tasks=["simple-fr"])
    groups = measured.table("pafl").index.loc[measured.buckets("pafl", tasks=["simple-fr"]), "group"]
    full = groups.isin([11, 12]).to_numpy()
    flags = draws[:, full].min(1) <= draws[:, ~full].min(1)
    return count(flags, FIFTEEN, "Minimum in bucket 11 or 12", least=13)


@claim("simple-fr-lrp-eps", "Appendix B.2", "LRP-eps stays above 0.5 even in its worst bucket of Simple-FR.")
def lrp_eps(measured: Measurements) -> Finding:
    least = measured.draws("pafl", ["LRP-eps"], tasks=["simple-fr"]).min(1)[:, 0]
    return threshold(least, "above", SUCCESS, "PAFL of LRP-eps in its worst bucket of Simple-FR")


@claim(
    "simple-failures",
    "Figure 2",
    "Even in simple settings all ten methods have failures: a worst bucket with an IOU below 0.5.",
)
def failures(measured: Measurements) -> Finding:
    least = measured.draws("piou", TEN, family="simple").min(1)
    top = measured.draws("piou", [ORACLE], family="simple").min(1)[:, 0]
    more = f"The truth itself has {between(top)} in its worst bucket."
    return count(least < SUCCESS, TEN, "PIOU of the worst bucket below 0.5", more=more)


@claim(
    "sanity-is-not-enough",
    "Section 2",
    "Methods that pass sanity checks, Gradient and Grad-CAM, have failure cases too.",
)
def sanity(measured: Measurements) -> Finding:
    names = ("G", "G-CAM")
    least = measured.draws("piou", names, family="simple").min(1)
    return count(least < SUCCESS, names, "PIOU of the worst simple bucket below 0.5")


@claim("baselines-low", "Figures 6a and 8a", "Random and Edge score at the bottom, about 0.05.")
def baselines_low(measured: Measurements) -> Finding:
    names = paper.methods("baselines")
    means = [measured.draws("pafl", names, family=family).mean(1) for family in ("simple", "complex")]
    texts = [between(draws[:, i]) for draws in means for i in range(2)]
    more = f"Random {texts[0]} and {texts[2]}, Edge {texts[1]} and {texts[3]} (simple, complex)."
    flags = np.concatenate(means, 1) < 0.1
    labels = [f"{name} ({family})" for family in ("simple", "complex") for name in names]
    return count(flags, labels, "Mean PAFL below 0.1", more=more)


@claim(
    "random-is-area", "Figure 6a", "Random's PAFL in simple settings is the share of the area, about 0.05."
)
def random_is_area(measured: Measurements) -> Finding:
    means = measured.draws("pafl", ["Random"], family="simple").mean(1)[:, 0]
    expected = toys.area_fraction("simple", measured.renderer)
    low, high = limits(means)
    finding = exact(
        low - 0.005 <= expected <= high + 0.005,
        f"Random {between(means, 3)}; the focus rectangles cover {expected:.3f} of the pictures.",
        "area share within the interval, 0.005 on either side",
        float(means[0]),
    )
    return Finding(finding.verdict, finding.measured, finding.rule, float(means[0]), low, high)


@claim(
    "model-free-useless",
    "Section 4",
    "Maps that never look at the network are of no use for understanding it; real methods must beat them.",
)
def model_free(measured: Measurements) -> Finding:
    gaps, words = [], []
    for family in ("simple", "complex"):
        means = measured.draws("pafl", [*FIFTEEN, EVERYTHING], family=family).mean(1)
        gaps.append(np.median(means[:, :-1], axis=1) - means[:, -1])
        beaten = int((means[0, :-1] < means[0, -1]).sum())
        words.append(f"{family}: the picture itself has {between(means[:, -1])}, more than {beaten} of 15")
    return threshold(
        np.minimum(*gaps),
        "above",
        0.0,
        "PAFL of the median method minus that of a map that highlights every object (the worse family)",
        "; ".join(words) + ".",
    )
