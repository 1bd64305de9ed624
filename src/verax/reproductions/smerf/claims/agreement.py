"""Claims that set metrics against one another (IOU, MAFL), and about telling reasonings apart by eye."""

from __future__ import annotations

import numpy as np
from scipy.stats import rankdata

from verax.reproductions.claims import Finding, Floats, NotTestable, between, count, threshold
from verax.reproductions.smerf import paper
from verax.reproductions.smerf.claims.base import Chapter
from verax.reproductions.smerf.claims.simple import BY_OBJECTS
from verax.reproductions.smerf.measurements import EVERYTHING, Measurements
from verax.studies.leaderboards import SUCCESS

chapter = Chapter("Metrics against each other, and identifiability")
claim = chapter.claim
FIFTEEN = paper.methods("fifteen")
SIMPLE, COMPLEX = paper.families()["simple"], paper.families()["complex"]


def spearman(a: Floats, b: Floats) -> Floats:
    """Rank correlation over the last axis: ``(1 + R, M)`` twice -> ``(1 + R,)``."""
    ranks = [rankdata(x, axis=1) for x in (a, b)]
    x, y = (r - r.mean(1, keepdims=True) for r in ranks)
    with np.errstate(invalid="ignore"):  # NaN where a side is constant
        return np.asarray((x * y).sum(1) / np.sqrt((x**2).sum(1) * (y**2).sum(1)))


def _agreement(measured: Measurements, family: str) -> Finding:
    focus, overlap = (measured.draws(m, FIFTEEN, family=family).mean(1) for m in ("pafl", "piou"))
    return threshold(spearman(focus, overlap), "above", 0.5, "Rank correlation of mean PAFL and mean PIOU")


@claim("iou-agrees-simple", "Appendix B.1, Figure 17", "IOU tells the same as AFL in simple settings.")
def agrees_simple(measured: Measurements) -> Finding:
    return _agreement(measured, "simple")


@claim("iou-agrees-complex", "Appendix B.1, Figure 18", "IOU tells the same as AFL in complex settings.")
def agrees_complex(measured: Measurements) -> Finding:
    return _agreement(measured, "complex")


@claim("iou-simple-good", "Appendix B.1, Figure 17a", "In simple settings most methods pass an IOU of 0.5.")
def simple_good(measured: Measurements) -> Finding:
    means = measured.draws("piou", FIFTEEN, family="simple").mean(1)
    return count(means > SUCCESS, FIFTEEN, "Mean PIOU above 0.5", least=8)


@claim(
    "iou-blind-to-saturation",
    "Appendix B.1, Figure 17b",
    "IOU hardly depends on the number of objects, unlike AFL.",
)
def blind(measured: Measurements) -> Finding:
    falls = []
    for metric in ("pafl", "piou"):
        parts = []
        for task, (one, _, three) in BY_OBJECTS.items():
            ends = [
                measured.draws(metric, FIFTEEN, tasks=[task], groups=g).mean((1, 2)) for g in (one, three)
            ]
            parts.append(ends[0] - ends[1])
        falls.append(np.mean(parts, axis=0))
    more = f"Drop of PAFL {between(falls[0])}, of PIOU {between(falls[1])} (mean over methods and settings)."
    what = "Drop of PAFL from one to three objects minus that of PIOU"
    return threshold(falls[0] - falls[1], "above", 0.0, what, more)


@claim("siou-lower", "Appendix B.1", "SIOU is lower than SAFL, in simple and in complex settings.")
def siou_lower(measured: Measurements) -> Finding:
    gaps = [
        measured.draws("safl", FIFTEEN, family=f).mean((1, 2))
        - measured.draws("siou", FIFTEEN, family=f).mean((1, 2))
        for f in ("simple", "complex")
    ]
    more = f"SAFL minus SIOU: simple {between(gaps[0])}, complex {between(gaps[1])}."
    flags = np.stack(gaps, 1) > 0
    return count(flags, ("simple", "complex"), "Mean SIOU below mean SAFL", more=more)


@claim(
    "siou-stays-low", "Appendix B.1", "SIOU stays low in both families although PIOU decreases: below 0.2."
)
def siou_low(measured: Measurements) -> Finding:
    means = [measured.draws("siou", FIFTEEN, family=f).mean((1, 2)) for f in ("simple", "complex")]
    more = f"Simple {between(means[0])}, complex {between(means[1])}."
    return count(np.stack(means, 1) < 0.2, ("simple", "complex"), "Mean SIOU below 0.2", more=more)


def _reversals(measured: Measurements, tasks: tuple[str, ...]) -> Floats:
    """SMAFL minus PMAFL in buckets with both kinds of objects: ``(1 + R, B, M)``."""
    focus, avoid = (measured.draws(m, FIFTEEN, tasks=tasks, both=True) for m in ("pmafl", "smafl"))
    return avoid - focus


@claim(
    "mafl-fr", "Appendix B.4, Figure 23", "In Simple-FR PMAFL exceeds SMAFL in all buckets, for all methods."
)
def mafl_fr(measured: Measurements) -> Finding:
    gaps = _reversals(measured, ("simple-fr",))
    return count(np.asarray((gaps < 0).all(1)), FIFTEEN, "PMAFL above SMAFL in all buckets of Simple-FR")


@claim(
    "mafl-nr", "Appendix B.4, Figure 23", "In Simple-NR there are occasional reversals, SMAFL above PMAFL."
)
def mafl_nr(measured: Measurements) -> Finding:
    share = (_reversals(measured, ("simple-nr",)) > 0).mean((1, 2))
    return threshold(share, "above", 0.0, "Share of reversed pairs of method and bucket in Simple-NR")


@claim("mafl-complex-share", "Appendix B.4, Figure 24", "Reversals are more frequent in complex settings.")
def mafl_share(measured: Measurements) -> Finding:
    shares = [(_reversals(measured, tasks) > 0).mean((1, 2)) for tasks in (SIMPLE, COMPLEX)]
    more = f"Simple {between(shares[0])}, complex {between(shares[1])}."
    return threshold(shares[1] - shares[0], "above", 0.0, "Difference of the shares of reversals", more)


@claim("mafl-complex-gap", "Appendix B.4, Figure 24", "The gap of a reversal is larger in complex settings.")
def mafl_gap(measured: Measurements) -> Finding:
    # relative to PMAFL: MAFL of a map with few strong pixels is larger throughout
    gaps = []
    for tasks in (SIMPLE, COMPLEX):
        avoid = measured.draws("smafl", FIFTEEN, tasks=tasks, both=True)
        focus = measured.draws("pmafl", FIFTEEN, tasks=tasks, both=True)
        gaps.append(np.max((avoid - focus) / np.maximum(avoid + focus, 1e-9), axis=(1, 2)))
    more = f"Simple {between(gaps[0])}, complex {between(gaps[1])}; (SMAFL - PMAFL) / (SMAFL + PMAFL)."
    return threshold(gaps[1] - gaps[0], "above", 0.0, "Difference of the largest reversals", more)


@claim(
    "identifiability-ig",
    "Section 4.2, Figure 9",
    "Integrated gradients highlight essentially every object, whatever the reasoning.",
)
def highlights_everything(measured: Measurements) -> Finding:
    draws = measured.draws("pafl", ["IG", EVERYTHING], family="complex", both=True).mean(1)
    more = f"IG {between(draws[:, 0])}, the picture itself {between(draws[:, 1])}."
    what = "Distance of IG's PAFL from that of a map that highlights every object (complex, both kinds)"
    return threshold(np.abs(draws[:, 0] - draws[:, 1]), "below", 0.1, what, more)


@claim(
    "identifiability-box1",
    "Section 4.2, Figure 9",
    "In IG's maps Box1 looks most important also where Simple-NR and Complex-CR1 do not use it.",
)
def box1_stands_out(measured: Measurements) -> Finding:
    flags = []
    for task in ("simple-nr", "complex-cr1"):
        focus, avoid = (
            measured.draws(m, ["IG"], tasks=[task], groups=(8, 9)).mean((1, 2)) for m in ("pmafl", "smafl")
        )
        flags.append(avoid > focus)
    names = ("simple-nr", "complex-cr1")
    return count(np.stack(flags, 1), names, "SMAFL (Box1) above PMAFL (text) for IG")


@claim(
    "identifiability-measured",
    "Section 4.2, Figures 9 and 25",
    "Nobody can tell from IG's maps which of the seven reasonings a network follows.",
)
def identified(measured: Measurements) -> Finding:
    if "IG" not in measured.identifiability:
        raise NotTestable("The run has not measured how often a map points to the right reasoning.")
    value, low, high, chance = measured.identifiability["IG"]
    limit = 2 * chance
    holds = high < limit
    return Finding(
        "holds" if holds else "does not hold",
        f"Read at the level of objects, IG's maps name the right reasoning in {value:.0%} [{low:.0%}, "
        f"{high:.0%}] of the images; chance is {chance:.0%}.",
        f"accuracy below twice the chance level ({limit:.2f})",
        value,
        low,
        high,
        not holds and low < limit,
    )
