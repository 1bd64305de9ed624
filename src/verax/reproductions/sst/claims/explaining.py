"""Claims about attribution methods."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from verax.reproductions.claims import HOLDS, Finding, count, exact, settled, threshold
from verax.reproductions.sst.catalogue import (
    DEEP,
    GRADIENT,
    INTEGRATED,
    LINEAR,
    LRP_AB,
    LRP_Z,
    LRP_Z_BARE,
    OCCLUSION,
    PAPER,
    PRODUCT,
    SMOOTH,
    TITLES,
)
from verax.reproductions.sst.claims.base import Chapter, within, words
from verax.reproductions.sst.evidence import Evidence
from verax.reproductions.sst.published import apart

chapter = Chapter("Attribution methods")
claim = chapter.claim
CORE = "pearson/core"
_NEAR_ZERO = 0.2
_SIMILAR = 0.05
_EXACT = 0.9999
_ROUNDING = 1e-3  # of the largest value: float32 through seven layers and a small denominator


@claim("gradient", "Paper, Figure 5b; README", "The gradient has practically no correlation with the truth.")
def gradient(evidence: Evidence) -> Finding:
    return within(
        evidence.r(GRADIENT),
        _NEAR_ZERO,
        "mean r of the gradient",
        f"On F itself it is {evidence.oracle[GRADIENT]:.2f}: the slope at x is no part of C(x).",
    )


@claim("smoothgrad", "Paper, Figure 5b", "Smoothing the gradient does not help.")
def smoothgrad(evidence: Evidence) -> Finding:
    gain = threshold(evidence.r(SMOOTH) - evidence.r(GRADIENT), "below", _SIMILAR, "gain of r by smoothing")
    found = within(evidence.r(SMOOTH), _NEAR_ZERO, "mean r of the smoothed gradient")
    if gain.verdict != HOLDS:  # however poor it is: it was worse before
        return replace(gain, measured=f"{found.measured} {gain.measured.capitalize()}")
    return replace(found, rule=f"{found.rule}, and {gain.rule}")


@claim("saliency-blind", "A reading of the README", "Saliency says nothing about which cells matter.")
def saliency_blind(evidence: Evidence) -> Finding:
    draws = evidence.r(GRADIENT, metric="pearson/magnitude")
    more = "The magnitude of the gradient does say where large contributions are, only not their signs."
    what = "mean r of |gradient| with |truth|"
    return within(draws, _NEAR_ZERO, what, more if draws[0] > _NEAR_ZERO else "")


@claim("best", "Paper, Figure 5b; README", "Integrated gradients and input x gradient are the best methods.")
def best(evidence: Evidence) -> Finding:
    others = [name for name in PAPER if name not in (INTEGRATED, PRODUCT, LRP_Z)]
    top = np.stack([evidence.r(name) for name in others], 1)
    flags = np.stack([evidence.r(name) for name in (INTEGRATED, PRODUCT)], 1) > top.max(1, keepdims=True)
    second = others[int(top[0].argmax())]
    return count(
        flags,
        ["integrated gradients", "input x gradient"],
        "better than the best of the paper's other methods",
        more=f"Integrated gradients {words(evidence.r(INTEGRATED))}, input x gradient "
        f"{words(evidence.r(PRODUCT))}; the best other is {TITLES[second].lower()} with "
        f"{words(evidence.r(second))} (LRP-z is input x gradient and is left out).",
    )


@claim("similar", "README", "Integrated gradients and input x gradient are about equally right.")
def similar(evidence: Evidence) -> Finding:
    return within(
        evidence.r(INTEGRATED) - evidence.r(PRODUCT),
        _SIMILAR,
        "r of integrated gradients minus that of input x gradient",
        f"On F itself they are far apart: {evidence.oracle[INTEGRATED]:.4f} and "
        f"{evidence.oracle[PRODUCT]:.2f}. The network smooths the bends of F.",
    )


@claim(
    "upper-bound",
    "Design of the benchmark",
    "Methods that count changes from zero find the truth of an additive function exactly.",
)
def upper_bound(evidence: Evidence) -> Finding:
    names = (INTEGRATED, OCCLUSION, "deeplift-rescale")
    found = {name: evidence.oracle[name] for name in names}
    told = ", ".join(f"{name} {value:.5f}" for name, value in found.items())
    holds = min(found.values()) >= _EXACT
    missing = (
        f" What is missing on the network, {1 - float(evidence.r(INTEGRATED)[0]):.2f} for integrated "
        "gradients, is the network's, not the method's."
    )
    return exact(
        holds,
        f"On F itself: {told}.{missing if holds else ''}",
        f"r of at least {_EXACT} on F itself",
        min(found.values()),
    )


@claim(
    "lrp-z",
    "Paper, Figure 5c",
    "LRP-z is a method of its own that does as well as input x gradient.",
)
def lrp_z(evidence: Evidence) -> Finding:
    gap = apart(evidence.maps[LRP_Z], evidence.maps[PRODUCT])
    more = ""
    if evidence.published is not None:
        more = f" On the published network they differ by {evidence.published.identical:.1e}."
    rule = "LRP-z and input x gradient are different maps"
    if not gap < _ROUNDING:  # then it is a method of its own, and its score decides
        found = within(
            evidence.r(LRP_Z) - evidence.r(PRODUCT),
            _SIMILAR,
            "r of LRP-z minus that of input x gradient",
            f"The maps differ by {gap:.1e} of their largest value.{more}",
        )
        return replace(found, rule=f"{rule}, and {found.rule}")
    return settled(
        f"With biases in the denominators LRP-z is input x gradient on networks of ReLUs: here the maps "
        f"differ by {gap:.1e} of their largest value.{more} One method was counted twice.",
        rule,
        gap,
        None,
        None,
    )


@claim(
    "lrp-bias",
    "Paper and its toolbox",
    "Whether biases take part in LRP-z does not matter for its score.",
)
def lrp_bias(evidence: Evidence) -> Finding:
    return within(
        evidence.r(LRP_Z) - evidence.r(LRP_Z_BARE),
        0.02,
        "r of LRP-z with biases minus that without",
        f"Without biases it has {words(evidence.r(LRP_Z_BARE))}, and its maps add up to the output.",
    )


@claim(
    "lrp-magnitude",
    "Paper, Figure 5c",
    "LRP-ab follows the magnitude of the truth better than its positive part.",
)
def lrp_magnitude(evidence: Evidence) -> Finding:
    with_size = evidence.r(LRP_AB, metric="pearson/magnitude")
    positive = evidence.r(LRP_AB, metric="pearson/positive")
    return threshold(
        with_size - positive,
        "above",
        0,
        "r with |truth| minus r with the positive truth",
        f"They are {words(with_size)} and {words(positive)}.",
    )


@claim("lrp-sign", "Follow-up papers", "LRP-ab cannot tell positive from negative contributions.")
def lrp_sign(evidence: Evidence) -> Finding:
    signs = evidence.r(LRP_AB, metric="sign-agreement")
    return within(
        signs - 0.5,
        0.1,
        "share of cells with the right sign minus one half",
        f"Input x gradient has the right sign in {words(evidence.r(PRODUCT, metric='sign-agreement'))}. All "
        "values of a map have the sign of the output.",
    )


@claim(
    "polar-row",
    "Design of the benchmark",
    "The 36 copies of the pole do not change the comparison of methods.",
)
def polar_row(evidence: Evidence) -> Finding:
    names = [name for name in PAPER if name not in (LRP_AB, "deep-taylor")]
    moves = np.stack([evidence.r(name, metric=CORE) - evidence.r(name) for name in names], 1)
    flags = np.abs(moves) < 0.02
    worst = int(np.abs(moves[0]).argmax())
    linear = evidence.r(PRODUCT, LINEAR, CORE) - evidence.r(PRODUCT, LINEAR)
    return count(
        flags,
        [TITLES[name].lower() for name in names],
        "mean r moves by less than 0.02 without the pole",
        more=f"The largest move is {moves[0, worst]:+.3f} ({TITLES[names[worst]].lower()}); that of the "
        f"linear model is {float(linear[0]):+.3f}.",
    )


@claim(
    "one-sample",
    "Committed results of the re-implementation",
    "One sample is enough to compare methods by.",
)
def one_sample(evidence: Evidence) -> Finding:
    a, b = evidence.values(INTEGRATED), evidence.values(PRODUCT)
    wins = (a > b).to_numpy().astype(float)
    mean = evidence.draws(wins)
    spread = float(a.std())
    return threshold(
        np.maximum(mean, 1 - mean),
        "above",
        0.95,
        "share of samples in which the better of integrated gradients and input x gradient wins",
        f"r of integrated gradients varies with a standard deviation of {spread:.3f} over samples, that of "
        f"the gradient with {float(evidence.values(GRADIENT).std()):.3f}.",
    )


@claim(
    "published-agreement",
    "Paper, Figures 3 and 4",
    "On the published network too, integrated gradients, input x gradient and occlusion draw the same map.",
)
def published_agreement(evidence: Evidence) -> Finding:
    evidence.on_published()
    assert evidence.published is not None
    between = evidence.published.between
    pairs = [(INTEGRATED, PRODUCT), (INTEGRATED, OCCLUSION), (PRODUCT, OCCLUSION)]
    found = [float(between.loc[a, b]) for a, b in pairs]
    told = ", ".join(f"{a} and {b} {value:.2f}" for (a, b), value in zip(pairs, found, strict=True))
    return exact(
        min(found) > 0.9,
        f"Mean correlation of their maps: {told}. There is no truth for this network: its F was never "
        "published, so that agreement is all that can be said.",
        "every pair above 0.9",
        min(found),
    )


@claim(
    "completeness",
    "Theory of the methods",
    "Integrated gradients add up to the output of the published network.",
)
def completeness(evidence: Evidence) -> Finding:
    behaviour = evidence.on_published()
    assert evidence.published is not None
    table = evidence.published.table.set_index("method")
    gap = float(table.loc[INTEGRATED, "gap"])
    signs = {name: float(table.loc[name, "sign"]) for name in (INTEGRATED, OCCLUSION, LRP_Z)}
    told = ", ".join(f"{name} {value:.0%}" for name, value in signs.items())
    return exact(
        gap < 0.01,
        f"They miss the change of the output from zero by {gap:.4f} of it (median). The output at zero is "
        f"{behaviour.at_zero:.4f}, not 0 as F's. The sum of a map has the sign of the output in: {told} "
        "of the samples; occlusion promises no sum.",
        "a gap below 0.01",
        gap,
    )


@claim(
    "network-smooths",
    "Not in the paper",
    "Input x gradient is better on the network than on the function that it learned.",
)
def network_smooths(evidence: Evidence) -> Finding:
    draws, known = evidence.r(PRODUCT, DEEP), evidence.oracle[PRODUCT]
    why = ": a method can look good because a network is smoother than the truth" * bool(draws[0] > known)
    what = "mean r of input x gradient on the network"
    return threshold(draws, "above", known, what, f"On F itself it is {known:.2f}{why}.")
