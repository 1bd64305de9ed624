"""Tables: networks, methods, the published network, and random functions."""

from __future__ import annotations

import numpy as np
import pandas as pd

from verax.metrics import CORE
from verax.reproductions.claims import NotTestable, between, limits
from verax.reproductions.sst.catalogue import DEEP, RECIPES, SIDE
from verax.reproductions.sst.evidence import Evidence
from verax.studies.leaderboards import UNRANKED, method_order

MEASURES = {
    "pearson": "r",
    f"pearson{CORE}": "r, no pole",
    "spearman": "rank r",
    "sign-agreement": "sign",
    "top-overlap": "top 10 %",
    "pearson/magnitude": "r of magnitudes",
    "pearson/positive": "r with positive truth",
    "total-gap": "gap of sums",
}


def methods(evidence: Evidence) -> pd.DataFrame:
    """Every method on the main network: means over samples, r with its interval and spread."""
    rows = []
    for name in method_order(evidence.runs[0].scores):
        values = evidence.values(name)
        row = {"method": name, "kind": "reference" if name in UNRANKED else "method"}
        row["r"] = between(evidence.draws(values), 3)
        row["spread over samples"] = f"{values.std():.3f}"
        for metric, title in list(MEASURES.items())[1:]:
            try:
                row[title] = f"{evidence.values(name, metric=metric).mean():.3f}"
            except NotTestable:  # no pole in this field
                row[title] = "–"
        rows.append((float(values.mean()), row))
    return pd.DataFrame([row for _, row in sorted(rows, key=lambda pair: -pair[0])])


def networks(evidence: Evidence) -> pd.DataFrame:
    """Every network: R2, and the agreement of a few methods with the truth."""
    rows = []
    names = [(DEEP, False), *((name, False) for name in SIDE), *((name, True) for name in (DEEP, *RECIPES))]
    if evidence.recipe:
        names[1:1] = [(name, False) for name in RECIPES]
    for name, fewer in names:
        value, low, high = evidence.fit(name, fewer=fewer)
        count = (evidence.fewer if fewer else evidence.task).count
        row = {"network": name, "samples": f"{count:,}", "R2": f"{value:.4f} [{low:.4f}, {high:.4f}]"}
        for method in ("gradient", "input-x-gradient", "integrated-gradients"):
            row[method] = between(evidence.r(method, name, fewer=fewer), 3)
        rows.append(row)
    return pd.DataFrame(rows)


def published_outputs(evidence: Evidence) -> pd.DataFrame | None:
    """The published network's numbers on draws from the field."""
    if evidence.behaviour is None:
        return None
    titles = {
        "draws": "samples drawn from the field",
        "mean": "mean of its outputs (0.050 expected)",
        "variance": "their variance (0.0093 expected)",
        "lowest": "lowest output",
        "highest": "highest output",
        "positive": "share of outputs above 0",
        "at_zero": "output where all cells are 0",
        "bias_free": "R2 of a linear fit without intercept (0.655 expected)",
        "intercept": "R2 of a linear fit with intercept (0.925 expected)",
        "mse": "mean square error of the fit without intercept (notebook: 0.0032)",
        "steps": "steps that its optimiser counted",
        "weights": "weights",
        "share": "R2 that its logged test error means (README: above 0.999)",
    }
    whole = ("draws", "steps", "weights")
    rows = [
        (titles[name], f"{value:,.0f}" if name in whole else f"{value:.5f}")
        for name, value in evidence.behaviour.rows()
    ]
    return pd.DataFrame(rows, columns=["number", "value"])


def published_methods(evidence: Evidence) -> pd.DataFrame | None:
    """What methods say about the published network, for which there is no truth."""
    if evidence.published is None:
        return None
    table = evidence.published.table
    return pd.DataFrame(
        {
            "method": table["method"],
            "misses its promised total by (median)": [
                "–" if pd.isna(v) else f"{v:.1e}" for v in table["gap"]
            ],
            "sum has the sign of the output": [f"{v:.0%}" for v in table["sign"]],
            "r with integrated gradients": [f"{v:.2f}" for v in table["with_integrated"]],
        }
    )


def functions(evidence: Evidence) -> pd.DataFrame:
    """Random functions: mean, deviation and range of each number."""
    titles = {
        "mean": "mean of y",
        "variance": "variance of y",
        "linear": "linear R2, with intercept",
        "linear_free": "linear R2, without",
        "gradient": "r of the gradient on F",
        "product": "r of input x gradient on F",
    }
    rows = []
    for name, title in titles.items():
        values = evidence.spread[name].to_numpy()
        low, high = limits(np.concatenate([[values.mean()], values]))
        numbers = [f"{v:.4f}" for v in (values.mean(), values.std(ddof=1), values.min(), values.max())]
        rows.append((title, *numbers, f"{low:.3f} to {high:.3f}"))
    return pd.DataFrame(rows, columns=["over functions", "mean", "deviation", "lowest", "highest", "95 %"])


def all_tables(evidence: Evidence) -> dict[str, pd.DataFrame]:
    """Title -> table, of those that the evidence suffices for."""
    found = {
        "Methods on the network": methods(evidence),
        "Networks": networks(evidence),
        "Random functions": functions(evidence),
        "The published network on draws from the field": published_outputs(evidence),
        "Methods on the published network (no truth is known)": published_methods(evidence),
    }
    return {title: table for title, table in found.items() if table is not None}
