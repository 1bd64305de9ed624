"""Claims about the complex settings (Section 4.2): drops, worst cases, spread, success and failure."""

from __future__ import annotations

import numpy as np

from verax.reproductions.claims import Finding, Floats, between, count, limits, number, settled, threshold
from verax.reproductions.smerf import paper
from verax.reproductions.smerf.claims.base import Chapter
from verax.reproductions.smerf.measurements import ORACLE, PLAIN, Measurements
from verax.studies.leaderboards import SUCCESS

chapter = Chapter("Complex reasoning")
claim = chapter.claim
WEAK, FIFTEEN, TEN = paper.methods("weak"), paper.methods("fifteen"), paper.methods("ten")
ALL = paper.methods()
LEADERS = ("IG", "LRP-eps", "DL-RC", "DL-R")
"""What the text calls IG, LRP and DL."""
COMPLEX = paper.families()["complex"]
CEILINGS = ("complex-cr1", "complex-cr4")
"""The settings with buckets whose only focus object is Box2, whose PAFL cannot pass 16/49."""


def _mean(draws: Floats) -> Floats:
    return np.asarray(draws.mean(1))


def _least(draws: Floats) -> Floats:
    return np.asarray(draws.min(1))


def drop(
    measured: Measurements,
    metric: str,
    statistic: str,
    methods: tuple[str, ...],
    network: str = PLAIN,
    background: str = "black",
) -> Finding:
    """A claim that all methods do worse in complex settings, with what the ceiling alone explains."""
    summary = {"mean": _mean, "worst bucket": _least}[statistic]
    names = (*methods, ORACLE)
    simple, complicated = (
        measured.draws(metric, names, family=family, network=network, background=background)
        for family in ("simple", "complex")
    )
    pair: list[Floats] = [summary(simple), summary(complicated)]
    tops = [between(draws[:, -1]) for draws in pair]
    shares = [
        summary(draws[:1, :, :-1] / np.maximum(draws[:1, :, -1:], 1e-9)) for draws in (simple, complicated)
    ]
    left = int((shares[1] < shares[0]).sum())
    more = (
        f"The truth itself falls from {tops[0]} to {tops[1]}; measured as a share of it, {left} of "
        f"{len(methods)} methods still fall."
    )
    flags = pair[1][:, :-1] < pair[0][:, :-1]
    return count(flags, methods, f"{metric.upper()} ({statistic}) lower in complex settings", more=more)


@claim("drop-pafl", "Section 4.2, Figure 8a", "Average PAFL drops for all methods.")
def drop_pafl(measured: Measurements) -> Finding:
    return drop(measured, "pafl", "mean", FIFTEEN)


@claim("drop-piou", "Figure 2, Figure 18a", "Average IOU drops for all ten methods.")
def drop_piou(measured: Measurements) -> Finding:
    return drop(measured, "piou", "mean", TEN)


@claim("drop-worst-pafl", "Section 4.2, Figure 8b", "The worst bucket has less PAFL, for all methods.")
def drop_worst_pafl(measured: Measurements) -> Finding:
    return drop(measured, "pafl", "worst bucket", ALL)


@claim(
    "drop-worst-piou", "Appendix B.1, Figure 18b", "The worst bucket has strictly less IOU, for all methods."
)
def drop_worst_piou(measured: Measurements) -> Finding:
    return drop(measured, "piou", "worst bucket", FIFTEEN)


@claim("leaders-narrow", "Section 4.2", "IG, LRP and DL still reach a PAFL of 0.5 on average, if narrowly.")
def leaders(measured: Measurements) -> Finding:
    means = measured.draws("pafl", LEADERS, family="complex").mean(1)
    values = ", ".join(f"{name} {between(means[:, i])}" for i, name in enumerate(LEADERS))
    return count(means >= SUCCESS, LEADERS, "Mean PAFL at least 0.5", more=f"{values}.")


@claim("bigger-drops", "Section 4.2", "G-CAM and D-SHAP lose more PAFL than IG, LRP and DL do.")
def bigger_drops(measured: Measurements) -> Finding:
    falls = []
    for names in (("G-CAM", "D-SHAP"), LEADERS):
        simple, complicated = (measured.draws("pafl", names, family=f).mean(1) for f in ("simple", "complex"))
        falls.append(simple - complicated)
    lead = falls[1].mean(1)
    more = f"Mean drop of the leaders: {between(lead)}."
    return count(falls[0] > lead[:, None], ("G-CAM", "D-SHAP"), "Larger drop than the leaders", more=more)


@claim("weak-stay-weak", "Section 4.2", "G, SG, DCN and GBP keep a low PAFL.")
def weak(measured: Measurements) -> Finding:
    means = measured.draws("pafl", WEAK, family="complex").mean(1)
    values = ", ".join(f"{name} {between(means[:, i])}" for i, name in enumerate(WEAK))
    return count(means < SUCCESS, WEAK, "Mean PAFL below 0.5", more=f"{values}.")


@claim("complex-piou-low", "Appendix B.1, Figure 18a", "All methods have an average IOU below 0.5.")
def piou_low(measured: Measurements) -> Finding:
    means = measured.draws("piou", FIFTEEN, family="complex").mean(1)
    top = measured.draws("piou", [ORACLE], family="complex").mean(1)[:, 0]
    more = f"The truth itself reaches {between(top)}."
    return count(means < SUCCESS, FIFTEEN, "Mean PIOU below 0.5", more=more)


def _ceiling(measured: Measurements, metric: str, task: str, both: bool) -> tuple[Floats, float]:
    """The truth's lowest bucket mean in a setting, and the best that any method has in such buckets.

    The buckets are those in which the truth itself stays below 0.5.
    """
    draws = measured.draws(metric, [ORACLE, *FIFTEEN], tasks=[task], both=both)
    blocked = draws[0, :, 0] <= SUCCESS
    return draws[:, :, 0].min(1), float(draws[0, blocked, 1:].max(initial=0.0))


def _blocked(
    measured: Measurements, metric: str, tasks: tuple[str, ...], both: bool, rule: str, why: str
) -> Finding:
    """A claim that each of some settings has a bucket at or below 0.5, for every method.

    It is settled when the truth itself has one, and no method of the run gets past 0.5 there.
    """
    found = [_ceiling(measured, metric, task, both) for task in tasks]
    top = np.stack([draws for draws, _ in found], 1).max(1)
    best = max(value for _, value in found)
    low, high = limits(top)
    if high <= SUCCESS and best <= SUCCESS:
        buckets = measured.draws(metric, [ORACLE], tasks=tasks, both=both)[0, :, 0]
        text = (
            f"The truth itself has {between(top)} at most in its worst bucket of each setting, and stays "
            f"below 0.5 in {int((buckets <= SUCCESS).sum())} of {len(buckets)} buckets, where the best "
            f"method has {number(best)}: {why}"
        )
        return settled(text, rule, float(top[0]), low, high)
    least = [measured.draws(metric, FIFTEEN, tasks=[task], both=both).min(1) for task in tasks]
    return count(np.stack(least, 2).max(2) <= SUCCESS, FIFTEEN, rule)


PER_OBJECT = "IOU is averaged over the focus objects, so that n of them can never score more than 1/n."


@claim(
    "none-correct",
    "Section 1, footnote 1",
    "In every complex setting, no method meets IOU above 0.5 in all buckets.",
)
def none_correct(measured: Measurements) -> Finding:
    rule = "PIOU at or below 0.5 in some bucket of each complex setting"
    return _blocked(measured, "piou", COMPLEX, False, rule, PER_OBJECT)


@claim(
    "acute-failures", "Figure 2", "In complex settings every method has a bucket that is an acute failure."
)
def acute(measured: Measurements) -> Finding:
    rule = "PIOU of the worst bucket at or below 0.5"
    worst = min(COMPLEX, key=lambda task: float(_ceiling(measured, "piou", task, False)[0][0]))
    return _blocked(measured, "piou", (worst,), False, rule, PER_OBJECT)


@claim(
    "cr1-cr4-no-success",
    "Section 4.2, Figure 7",
    "In Complex-CR1 and Complex-CR4 no method is successful (PAFL above 0.5) in all buckets.",
)
def ceilings(measured: Measurements) -> Finding:
    rule = "PAFL at or below 0.5 in some bucket of Complex-CR1 and of Complex-CR4"
    why = "the blur spreads each pixel over 49, of which at most 16 lie in Box2 (16/49 = 0.33)."
    return _blocked(measured, "pafl", CEILINGS, True, rule, why)


@claim("complex-fr-lrp-eps", "Section 4.2, Figure 7", "LRP-eps is successful in all buckets of Complex-FR.")
def lrp_eps(measured: Measurements) -> Finding:
    least = measured.draws("pafl", ["LRP-eps"], tasks=["complex-fr"], both=True).min(1)[:, 0]
    top = measured.draws("pafl", [ORACLE], tasks=["complex-fr"], both=True).min(1)[:, 0]
    more = f"The truth as a map: {between(top)}."
    return threshold(least, "above", SUCCESS, "PAFL of LRP-eps in its worst bucket of Complex-FR", more)


@claim(
    "complex-no-other-success",
    "Section 4.2, Figure 7",
    "That is the single full success: nothing else succeeds in all buckets of Complex-FR, CR2 or CR3.",
)
def no_other_success(measured: Measurements) -> Finding:
    tasks = [task for task in COMPLEX if task not in CEILINGS]
    least = [measured.draws("pafl", FIFTEEN, tasks=[t], both=True).min(1) for t in tasks]
    cells = [
        (f"{name} on {task}", draws[:, i])
        for task, draws in zip(tasks, least, strict=True)
        for i, name in enumerate(FIFTEEN)
        if (name, task) != ("LRP-eps", "complex-fr")
    ]
    flags = np.stack([draws for _, draws in cells], 1) <= SUCCESS
    return count(
        flags, [name for name, _ in cells], "Pairs of method and setting with a bucket at or below 0.5"
    )


def _black(measured: Measurements, tasks: tuple[str, ...]) -> Floats:
    """Share of pairs (method, setting) with SAFL above PAFL in more than half of the buckets."""
    cells = []
    for task in tasks:
        focus, avoid = (measured.draws(m, FIFTEEN, tasks=[task], both=True) for m in ("pafl", "safl"))
        cells.append((avoid > focus).mean(1) > 0.5)
    return np.asarray(np.concatenate(cells, 1).mean(1))


@claim(
    "complex-failures",
    "Section 4.2, Figure 7",
    "In complex settings most cells of the failure map are black.",
)
def complex_failures(measured: Measurements) -> Finding:
    return threshold(_black(measured, COMPLEX), "above", 0.5, "Share of failures (SAFL above PAFL)")


@claim("simple-failures-rare", "Section 4.2, Figure 7", "In simple settings the failure map is mostly white.")
def simple_failures(measured: Measurements) -> Finding:
    share = _black(measured, paper.families()["simple"])
    return threshold(share, "below", 0.5, "Share of failures (SAFL above PAFL)")


@claim(
    "safl-rises", "Section 4.2, Figure 8a", "Average SAFL is higher in complex settings than in simple ones."
)
def safl_rises(measured: Measurements) -> Finding:
    pairs = [
        [measured.draws("safl", FIFTEEN, family=f, both=both).mean(1) for f in ("simple", "complex")]
        for both in (False, True)
    ]
    fair = int((pairs[1][1][0] > pairs[1][0][0]).sum())
    more = (
        "The bars mix in buckets without anything to focus on; in buckets with both kinds of objects "
        f"{fair} of 15 rise."
    )
    return count(pairs[0][1] > pairs[0][0], FIFTEEN, "Mean SAFL higher", least=8, more=more)


@claim("safl-on-par", "Figure 8a", "For some methods SAFL is on a par with PAFL in complex settings.")
def on_par(measured: Measurements) -> Finding:
    focus, avoid = (measured.draws(m, FIFTEEN, family="complex").mean(1) for m in ("pafl", "safl"))
    flags = (avoid > focus - 0.05) & (focus > 0.2)
    return count(flags, FIFTEEN, "PAFL above 0.2 and SAFL at most 0.05 less", least=1)


@claim(
    "spread-larger", "Section 4.2, Figures 6a and 8a", "PAFL varies more over buckets in complex settings."
)
def spread(measured: Measurements) -> Finding:
    names = (*FIFTEEN, ORACLE)
    simple, complicated = (measured.draws("pafl", names, family=f).std(1) for f in ("simple", "complex"))
    more = (
        f"The truth itself has {number(simple[0, -1])} in simple and {number(complicated[0, -1])} in complex "
        "settings: a part of the spread is the metric's."
    )
    flags = complicated[:, :-1] > simple[:, :-1]
    return count(flags, FIFTEEN, "Standard deviation over buckets larger", least=8, more=more)


def _cr2(measured: Measurements, groups: tuple[int, ...]) -> Floats:
    return _mean(measured.draws("pafl", FIFTEEN, tasks=["complex-cr2"], groups=groups))


@claim(
    "cr2-box2-good",
    "Section 4.2, Figure 8a",
    "In Complex-CR2 most methods succeed where only Box2 is present.",
)
def cr2_good(measured: Measurements) -> Finding:
    more = "In the paper's own lines LRP-eps (0.49), LRP-A (0.44) and D-SHAP (0.09) do not."
    return count(_cr2(measured, (5, 6)) > SUCCESS, FIFTEEN, "PAFL above 0.5", least=8, more=more)


@claim(
    "cr2-box1-bad", "Section 4.2, Figure 8a", "Where Box1 is present, alone or with Box2, all methods fail."
)
def cr2_bad(measured: Measurements) -> Finding:
    flags = (_cr2(measured, (8, 9)) < SUCCESS) & (_cr2(measured, (11, 12)) < SUCCESS)
    return count(flags, FIFTEEN, "PAFL below 0.5 in both kinds of buckets")


@claim(
    "cr2-worst-bucket", "Appendix B.2, Figure 21", "13 of 15 methods have their CR2 minimum in Box1 with 'B'."
)
def cr2_worst(measured: Measurements) -> Finding:
    draws = measured.draws("pafl", FIFTEEN, tasks=["complex-cr2"])
    positions = measured.buckets("pafl", tasks=["complex-cr2"])
    groups = measured.table("pafl").index.loc[positions, "group"].to_numpy()
    lowest = groups[draws.argmin(1)]
    common = np.bincount(lowest[0]).argmax()
    more = f"The most common worst bucket is number {common} ({int((lowest[0] == common).sum())} of 15)."
    return count(lowest == 9, FIFTEEN, "Minimum in bucket 9 (B and Box1)", least=13, more=more)


@claim("cr2-worst-below", "Appendix B.2", "All of these minima lie below 0.5.")
def cr2_below(measured: Measurements) -> Finding:
    least = measured.draws("pafl", FIFTEEN, tasks=["complex-cr2"]).min(1)
    return count(least < SUCCESS, FIFTEEN, "Minimum below 0.5")


@claim(
    "spread-everywhere",
    "Appendix B.3, Figure 22",
    "The other complex settings vary as extremely over buckets.",
)
def spread_everywhere(measured: Measurements) -> Finding:
    names = (*FIFTEEN, ORACLE)
    spans = {}
    for task in COMPLEX:
        draws = measured.draws("pafl", names, tasks=[task])
        spans[task] = draws.max(1) - draws.min(1)
    middle = np.stack([np.median(span[:, :-1], axis=1) for span in spans.values()], 1)
    words = [
        f"{task.removeprefix('complex-')} {number(np.median(span[0, :-1]))} (truth {number(span[0, -1])})"
        for task, span in spans.items()
    ]
    more = f"Median over methods: {', '.join(words)}."
    return count(middle > 0.3, COMPLEX, "Range of PAFL over buckets above 0.3", more=more)
