"""Tables: networks, methods, the published network, and random functions."""

from __future__ import annotations

import numpy as np
import pandas as pd

from verax.metrics import CORE
from verax.reproductions.claims import NotTestable, between, limits
from verax.reproductions.sst.catalogue import DEEP, SIDE
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
    names = [(DEEP, False), *((name, False) for name in SIDE), (DEEP, True)]
    if evidence.recipe:
        names.insert(1, ("mlp@published", False))
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
    digits = {"draws": 0, "steps": 0, "weights": 0}
    rows = [(name, f"{value:,.{digits.get(name, 5)}f}") for name, value in evidence.behaviour.rows()]
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
