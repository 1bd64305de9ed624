"""Claims about the Python re-implementation, decided by running what its code does."""

from __future__ import annotations

import numpy as np

from verax.reproductions.claims import FAILS, HOLDS, Finding, exact, threshold
from verax.reproductions.sst.catalogue import DEEP, INTEGRATED, RECIPES, SHALLOW
from verax.reproductions.sst.claims.base import Chapter, words
from verax.reproductions.sst.evidence import Evidence

chapter = Chapter("The Python re-implementation")
claim = chapter.claim
WHERE = "Re-implementation"


@claim("seasons", WHERE, "Anomalies have no seasonal cycle left.")
def seasons(evidence: Evidence) -> Finding:
    found = evidence.defect("seasons")
    return exact(
        found["wrong"] < 0.01,
        f"Its monthly means come from every twelfth of the years, since the series is cut to a month twice: "
        f"{found['wrong']:.1%} of the variance is still seasonal. With means of all years it is "
        f"{found['right']:.2%}.",
        "less than 1 % of the variance is seasonal",
        float(found["wrong"]),
    )


@claim("constant-cells", WHERE, "Its covariance matrix is one that samples can be drawn from.")
def constant_cells(evidence: Evidence) -> Finding:
    found = evidence.defect("constant")
    return exact(
        found["rank"] >= found["points"],
        f"{found['constant']:.0f} of {found['points']:.0f} points are constant (permanent ice). Kept, their "
        f"round-off noise is scaled to variance 1 and correlates with {found['together']:.3f}: rank "
        f"{found['rank']:.0f}, smallest eigenvalue {found['smallest']:.1e}. The original drops them.",
        "the matrix has full rank",
        float(found["rank"]),
    )


@claim("signs", WHERE, "Its stored functions give its stored attributions.")
def signs(evidence: Evidence) -> Finding:
    found = evidence.defect("signs")
    return exact(
        found["below"] > 0.99,
        "Lengths left of zero are counted as positive, so that slopes there are the negative of those "
        f"stored: attributions correlate with those of the stored functions by {found['below']:.3f} below "
        f"zero and {found['above']:.3f} above; over whole maps r is {found['maps']:.2f}. (The defect is "
        "harmless for scores, since slopes are symmetric, but the functions cannot be evaluated again.)",
        "attributions below zero are those of the stored functions",
        float(found["below"]),
    )


@claim(
    "patches",
    WHERE,
    "Agreement of superpixels can be measured on the grid of points, land included.",
)
def patches(evidence: Evidence) -> Finding:
    moves = {
        name: float((inflated - once).mean()) for name, (once, inflated) in evidence.defect("patches").items()
    }
    flat = [v for name, v in moves.items() if name.startswith(INTEGRATED)]
    worst = max(moves, key=lambda name: abs(moves[name]))
    method, _, size = worst.rpartition(" ")
    once, inflated = evidence.defect("patches")[worst]
    draws = evidence.draws(inflated - once)
    low, high = np.quantile(draws[1:], [0.025, 0.975])
    return Finding(
        HOLDS if max(abs(low), abs(high)) < 0.02 else FAILS,
        f"Counting every point of a patch, and land as a match of zeros, moves r most for {method} on "
        f"patches of {size}: from {once.mean():.2f} to {inflated.mean():.2f}. For integrated gradients "
        f"on patches of 2 to 8 it moves by {min(flat):+.3f} to {max(flat):+.3f}.",
        "r moves by less than 0.02",
        float(draws[0]),
        float(low),
        float(high),
    )


@claim("lime", WHERE, "Its LIME maps show what LIME found.")
def lime(evidence: Evidence) -> Finding:
    found = evidence.defect("lime")
    right, scrambled = evidence.draws(found["right"]), evidence.draws(found["scrambled"])
    gap = right - scrambled
    low, high = np.quantile(gap[1:], [0.025, 0.975])
    return Finding(
        HOLDS if max(abs(low), abs(high)) < 0.05 else FAILS,
        f"Weights are taken in the order of importance and laid out as cells: r with the truth "
        f"{'falls' if gap[0] > 0 else 'goes'} from {words(right)} to {words(scrambled)}.",
        "laying weights out so changes r by less than 0.05",
        float(gap[0]),
        float(low),
        float(high),
    )


@claim(
    "one-layer",
    "README of the re-implementation",
    "Scores below those of the paper come from training on fewer samples, for want of memory.",
)
def one_layer(evidence: Evidence) -> Finding:
    # the re-implementation trained by plain gradient descent; on all samples that is only run where asked for
    little = not evidence.recipe
    six, one = (evidence.r(INTEGRATED, name, fewer=little) for name in RECIPES)
    count = (evidence.fewer if little else evidence.task).count
    fewer = evidence.r(INTEGRATED, DEEP) - evidence.r(INTEGRATED, DEEP, fewer=True)
    seen = "".join(evidence.defect("layers")["seen"])
    fits = [evidence.fit(name, fewer=little)[0] for name in RECIPES]
    return threshold(
        fewer - (six - one),
        "above",
        0,
        "loss of r with a tenth of the samples minus the loss with one hidden layer",
        f"Lists in its configuration were cut at commas: of 512,256,128,64,32,16 only {seen} was seen, and "
        f"the committed network has one hidden layer. By the published recipe on {count:,} samples, one "
        f"layer has R2 {fits[1]:.3f} and r {words(one)}, six have {fits[0]:.3f} and {words(six)}. By the "
        f"fast recipe a tenth of the samples costs {words(fewer)}, and one layer has "
        f"{words(evidence.r(INTEGRATED, SHALLOW))} instead of {words(evidence.r(INTEGRATED, DEEP))}.",
    )
