"""Claims about the data, the published network and linear models."""

from __future__ import annotations

import numpy as np

from verax.reproductions.claims import FAILS, HOLDS, Finding, NotTestable, exact, threshold
from verax.reproductions.sst.catalogue import DEEP, INTEGRATED, INTERCEPT, LINEAR, PRODUCT, RECIPE, RIDGE
from verax.reproductions.sst.claims.base import Chapter, at_least, spread, words
from verax.reproductions.sst.evidence import Evidence
from verax.reproductions.sst.published import EPOCH, NOTEBOOK_MSE
from verax.reproductions.sst.study import FULL

chapter = Chapter("Data, networks and linear models")
claim = chapter.claim
NEAR = 0.99
_LIKE = 0.02  # networks whose R2 differ by less are equally good


@claim("cells", "Design of the benchmark", "The field has 458 points that are separate predictors.")
def cells(evidence: Evidence) -> Finding:
    matrix = evidence.task.source.correlation.numpy()
    near = np.argwhere(np.triu(matrix, 1) > NEAR)
    roots = np.linalg.eigvalsh(matrix)
    freedom = float(roots.sum() ** 2 / (roots**2).sum())
    polar = evidence.task.grid.polar.numpy()
    inside = int(polar[near].all(1).sum()) if len(near) else 0
    return exact(
        len(near) == 0,
        f"{len(matrix)} points, of which {len(near)} pairs correlate above {NEAR}; {inside} of these pairs "
        f"are among the {int(polar.sum())} points at the pole, copies of one another. "
        f"The field has about {freedom:.0f} degrees of freedom.",
        f"no pair of points correlates above {NEAR}",
        float(len(near)),
    )


@claim(
    "readme-r2", "README of the re-implementation", "The network of the paper has an R-square above 0.999."
)
def readme_r2(evidence: Evidence) -> Finding:
    found = evidence.on_published()
    return at_least(
        found.share,
        0.999,
        "R2 of the published network",
        f"Its notebook logs a test error of {NOTEBOOK_MSE:g}; its outputs have a variance of "
        f"{found.variance:.5f} on our draws.",
    )


@claim("paper-r2", "Paper and notebook", "The network explains about 99 % of the variance of y.")
def paper_r2(evidence: Evidence) -> Finding:
    return at_least(evidence.on_published().share, 0.985, "R2 of the published network")


@claim("own-r2", "Paper and notebook", "A network of this size, trained again, explains about 99 %.")
def own_r2(evidence: Evidence) -> Finding:
    count = evidence.task.count
    more = f"Trained by the fast recipe on {count:,} samples."
    if count < FULL:
        more += " The paper has a million."
    return at_least(evidence.fit(DEEP), 0.985, "R2 on held-out samples", more)


@claim("epochs", "Notebook", "The published network was trained for 50 epochs.")
def epochs(evidence: Evidence) -> Finding:
    steps = evidence.on_published().steps
    if steps is None:
        raise NotTestable("The file has no count of steps.")
    seen = steps / EPOCH
    return exact(
        abs(seen - 50) < 0.05,
        f"The optimiser in the file has counted {steps:,} steps, which are {seen:.1f} epochs of {EPOCH:,} "
        + ("steps: it saw more than the 50 epochs that the notebook logs." if seen > 50.05 else "steps."),
        "the count of steps is that of 50 epochs",
        seen,
    )


@claim("linear-65", "Paper and notebook", "A linear model explains about 65 % of the variance.")
def linear_65(evidence: Evidence) -> Finding:
    found = evidence.on_published()
    value, low, high = found.bias_free
    holds = low > 0.6 and high < 0.7
    return Finding(
        HOLDS if holds else FAILS,
        f"Least squares without an intercept explains {value:.3f} [{low:.3f}, {high:.3f}] of the published "
        f"network's outputs (mean square error {found.mse:.5f}; the notebook has 0.0032).",
        "R2 without an intercept between 0.6 and 0.7",
        value,
        low,
        high,
    )


@claim(
    "nonlinear",
    "A reading of the paper's numbers",
    "The 65 % of the linear model show that the relation is far from linear.",
)
def nonlinear(evidence: Evidence) -> Finding:
    found = evidence.on_published()
    value, low, high = found.intercept
    deviations = abs(found.mean) / found.variance**0.5
    size = "half a standard deviation" if 0.45 < deviations < 0.55 else f"{deviations:.2f} deviations"
    why = f": most of what was missing is the mean of y ({found.mean:.3f}, {size}), not a bend"
    return Finding(
        HOLDS if high < 0.75 else FAILS,
        f"The linear model has no intercept. With one the same fit explains {value:.3f} [{low:.3f}, "
        f"{high:.3f}]{'' if high < 0.75 else why}.",
        "R2 with an intercept stays below 0.75",
        value,
        low,
        high,
    )


@claim(
    "linear-attributions",
    "Paper, Figure 5a",
    "Maps of the network agree with the truth better than those of the linear model.",
)
def linear_attributions(evidence: Evidence) -> Finding:
    linear = evidence.r(PRODUCT, LINEAR)
    return threshold(
        evidence.r(PRODUCT) - linear,
        "above",
        0,
        "r of input x gradient, network minus linear model",
        f"The linear model itself has {words(linear)}.",
    )


@claim(
    "collinearity",
    "Paper, Figure 5a, read as a fact about linear models",
    "The maps of a linear model are as poor as they are because it is linear.",
)
def collinearity(evidence: Evidence) -> Finding:
    free, ridge = evidence.r(PRODUCT, INTERCEPT), evidence.r(PRODUCT, RIDGE)
    gap = ridge - free
    first, second = evidence.fit(INTERCEPT)[0], evidence.fit(RIDGE)[0]
    low, high = np.quantile(gap[1:], [0.025, 0.975])
    why = ": nearly the same prediction, other maps" * (abs(first - second) < _LIKE)
    why += ". Collinear cells, above all at the pole, share out coefficients at will"
    return Finding(
        HOLDS if high < 0.05 else FAILS,
        f"Least squares has r = {words(free)} at R2 {first:.3f}, ridge regression r = {words(ridge)} at R2 "
        f"{second:.3f}{'' if high < 0.05 else why}.",
        "a penalty of 0.01 raises r of the linear model by less than 0.05",
        float(gap[0]),
        float(low),
        float(high),
    )


@claim(
    "equal-r2",
    "Assumption of the benchmark",
    "Networks that predict equally well have equally right maps.",
)
def equal_r2(evidence: Evidence) -> Finding:
    pairs = [(INTERCEPT, RIDGE, PRODUCT, False), (RECIPE, DEEP, INTEGRATED, True)]
    if evidence.recipe:
        pairs.append((RECIPE, DEEP, INTEGRATED, False))
    told, gaps = [], []
    for a, b, method, fewer in pairs:
        one, two = evidence.fit(a, fewer=fewer)[0], evidence.fit(b, fewer=fewer)[0]
        if abs(one - two) > _LIKE:
            continue
        first, second = (evidence.r(method, name, fewer=fewer) for name in (a, b))
        gaps.append(second - first)
        told.append(f"{a} (R2 {one:.3f}, r {first[0]:.2f}) and {b} (R2 {two:.3f}, r {second[0]:.2f})")
    if not gaps:
        raise NotTestable(f"No two networks of the run have an R2 within {_LIKE}.")
    largest = max(gaps, key=lambda gap: abs(float(gap[0])))
    low, high = np.quantile(largest[1:], [0.025, 0.975])
    return Finding(
        HOLDS if max(abs(low), abs(high)) < 0.05 else FAILS,
        f"Networks with an R2 within {_LIKE} of each other: {'; '.join(told)}.",
        "their r differ by less than 0.05",
        float(largest[0]),
        float(low),
        float(high),
    )


@claim(
    "samples",
    "README of the re-implementation",
    "With more training samples maps agree with the truth better.",
)
def samples(evidence: Evidence) -> Finding:
    few, many = evidence.fewer.count, evidence.task.count
    return threshold(
        evidence.r(INTEGRATED) - evidence.r(INTEGRATED, fewer=True),
        "above",
        0,
        f"r of integrated gradients, {many:,} minus {few:,} samples",
        f"R2 {evidence.fit()[0]:.3f} and {evidence.fit(fewer=True)[0]:.3f}.",
    )


@claim("one-function", "Design of the paper", "One random function F is enough to judge by.")
def one_function(evidence: Evidence) -> Finding:
    table = evidence.spread
    linear = table["linear"].to_numpy()
    return Finding(
        HOLDS if linear.max() - linear.min() < 0.1 else FAILS,
        f"Over {len(table)} draws of F: linear R2 with an intercept {spread(linear)}, without one "
        f"{spread(table['linear_free'].to_numpy())}, mean of y {spread(table['mean'].to_numpy())}, r of "
        f"the gradient of F itself {spread(table['gradient'].to_numpy())}, of input x gradient "
        f"{spread(table['product'].to_numpy())}.",
        "linear R2 varies by less than 0.1 from one F to another",
        float(linear.max() - linear.min()),
        float(linear.min()),
        float(linear.max()),
    )
