"""Claims about transfer from one image."""

from __future__ import annotations

import numpy as np

from verax.reproductions.alignment.base import Chapter
from verax.reproductions.alignment.measuring import Evidence
from verax.reproductions.alignment.transfer import _LEAST, METHODS, correlations, joined
from verax.reproductions.claims import FAILS, HOLDS, Finding, NotTestable

chapter = Chapter("Transfer from one image")
claim = chapter.claim
_WEAK = 0.3
"""Correlations below this one are called none."""


def _correlation(evidence: Evidence, method: str, score: str) -> tuple[float, float, float]:
    table = correlations(evidence)
    row = table[(table["method"] == method) & (table["score"] == score)].iloc[0]
    if row["networks"] < _LEAST:
        raise NotTestable(f"A correlation needs at least {_LEAST} networks, not {row['networks']}.")
    return row["spearman"], row["spearman low"], row["spearman high"]


def _none(evidence: Evidence, method: str, more: str) -> Finding:
    """That there is no correlation has to be shown: the interval of few networks holds 0 whatever is true."""
    value, low, high = _correlation(evidence, method, "iou")
    holds = low > -_WEAK and high < _WEAK
    words = f"Spearman of {method} IoU and one-shot accuracy: {value:.2f} [{low:.2f}, {high:.2f}]. {more}"
    rule = f"the whole interval lies within -{_WEAK} and {_WEAK}"
    return Finding(HOLDS if holds else FAILS, words, rule, value, low, high, not holds and low < 0 < high)


@claim("transfer-gradient", "Section 4.4, Figure 4", "Alignment of gradients says nothing about transfer.")
def gradient(evidence: Evidence) -> Finding:
    return _none(
        evidence,
        "gradient",
        "Read off the published plot it is about -0.5, which the paper calls no correlation.",
    )


@claim("transfer-cam", "Section 4.4, Figure 4", "Alignment of Grad-CAM says nothing about transfer.")
def cam(evidence: Evidence) -> Finding:
    return _none(evidence, "grad-cam", "Read off the published plot it is about -0.08.")


@claim(
    "transfer-spurious",
    "Beyond the paper",
    "Networks that learnt a box transfer worse than those that learnt digits.",
)
def spurious(evidence: Evidence) -> Finding:
    every = joined(evidence)
    own = every[every["method"] == METHODS[0]].set_index("family")["transfer"]
    if "spurious" not in own.index:
        raise NotTestable("Only networks of other kinds were compared.")
    bad, good = own.loc[["spurious"]].to_numpy(), own.loc[["random"]].to_numpy()
    generator = np.random.default_rng(0)
    drawn = generator.choice(good, (1000, len(good))).mean(1) - generator.choice(bad, (1000, len(bad))).mean(
        1
    )
    low, high = np.quantile(drawn, [0.025, 0.975])
    value = float(good.mean() - bad.mean())
    return Finding(
        HOLDS if low > 0 else FAILS,
        f"One-shot accuracy {good.mean():.3f} against {bad.mean():.3f}: {value:.3f} [{low:.3f}, {high:.3f}]"
        " more.",
        "the difference lies above 0",
        value,
        float(low),
        float(high),
        bool(low <= 0 < high),
    )


@claim("transfer-verdict", "Beyond the paper", "Whatever the method, the correlation has the same sign.")
def verdict(evidence: Evidence) -> Finding:
    found = {m: _correlation(evidence, m, "iou")[0] for m in dict.fromkeys(evidence.rows["method"])}
    words = ", ".join(f"{method} {value:.2f}" for method, value in found.items())
    signs = {value > 0 for value in found.values()}
    return Finding(
        HOLDS if len(signs) == 1 else FAILS,
        f"Spearman of IoU and transfer: {words}.",
        "all have one sign",
        float(len(signs)),
    )
