"""The exact part of a report: all measures of agreement, the spread over samples, and each network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from verax import reports
from verax.errors import VeraxError
from verax.metrics import CORE, METRICS
from verax.reports import INK, METHOD, MUTED, RULE, evidence, number, short, style
from verax.reports.faithfulness import cell
from verax.reports.resampling import bootstrap
from verax.studies.leaderboards import HEADLINES

if TYPE_CHECKING:
    from verax.studies.runs import Run

PROTOCOL = "exact"
SHOWN = (
    "pearson",
    f"pearson{CORE}",
    "spearman",
    "sign-agreement",
    "top-overlap",
    "mass",
    "total-gap",
    "pearson/magnitude",
    "pearson/positive",
)
"""The measures in the order of their columns; the rest of the core is in the table of scores."""

TITLES = {f"pearson{CORE}": "pearson, no pole"}
MEASURES = ("r2", "gradient", "dependence", "path")


def _there(run: Run) -> bool:
    return PROTOCOL in run.protocols


def _headline(run: Run) -> pd.DataFrame:
    return run.some([(PROTOCOL, HEADLINES[PROTOCOL])])


def means(run: Run, family: str) -> dict[str, pd.DataFrame]:
    """Metric -> leaderboard of a family, of the metrics that have scores."""
    boards = {}
    for metric in SHOWN:
        try:
            boards[metric] = run.leaderboard(PROTOCOL, metric, family)
        except VeraxError:
            continue  # no pole in this field, or every method failed somewhere
    return boards


def spread(scores: pd.DataFrame, methods: Sequence[str]) -> Figure:
    """How a method's score varies from sample to sample: median, half and nine tenths of them."""
    rows = scores[(scores["protocol"] == PROTOCOL) & (scores["metric"] == HEADLINES[PROTOCOL])]
    values = {str(name): part["value"].to_numpy() for name, part in rows.groupby("method", observed=True)}
    shown = [name for name in methods if name in values]
    with style():
        figure = Figure(figsize=(5.2, 0.27 * len(shown) + 1.0), layout="constrained")
        axes = figure.add_subplot()
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        for place, name in enumerate(shown):
            low, first, middle, third, high = np.quantile(values[name], [0.05, 0.25, 0.5, 0.75, 0.95])
            colour = METHOD if reports.kind(name) == "method" else MUTED
            axes.plot([low, high], [place, place], color=colour, linewidth=1.2)
            axes.plot([first, third], [place, place], color=colour, linewidth=6, solid_capstyle="butt")
            axes.plot([middle], [place], marker="|", color=INK, markersize=10, markeredgewidth=1.6)
        axes.set_yticks(range(len(shown)), [short(name) for name in shown])
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.grid(axis="x", color=RULE, linewidth=0.8)
        axes.set_axisbelow(True)
        # of the figure, not of the axes: it is wider than they are
        figure.supxlabel("correlation with the truth: median, 50 % and 90 % of samples", fontsize=9, x=0.5)
    return figure


def parts(run: Run, families: Sequence[str], album: Any) -> list[dict[str, Any]]:
    """One table of all measures and one figure of the spread for each family."""
    if not _there(run):
        return []
    found = []
    for family in families:
        boards = means(run, family)
        if HEADLINES[PROTOCOL] not in boards:
            continue
        methods = [str(name) for name in boards[HEADLINES[PROTOCOL]]["method"]]
        rows = [
            {
                "method": method,
                "kind": reports.kind(method),
                "cells": [cell(board, method) for board in boards.values()],
            }
            for method in methods
        ]
        tasks = [task for task, name in run.families.items() if name == family]
        rows_here = _headline(run)
        here = rows_here[rows_here["task"].isin(tasks)]
        alt = "How the correlation with the truth varies over samples, method by method."
        found.append(
            {
                "family": family,
                "metrics": [
                    {
                        "name": TITLES.get(name, name),
                        "arrow": "↑" if METRICS.get(name).higher_is_better else "↓",
                        "about": METRICS.get(name).description,
                    }
                    for name in boards
                ],
                "rows": rows,
                "figure": album.add(f"spread-{family}", spread(here, methods), alt),
            }
        )
    return found


def certificates(manifest: Mapping[str, Any]) -> dict[tuple[str, str, int], dict[str, Any]]:
    """(task, network, seed) -> the certificate of a regression network."""
    return {
        (str(entry["task"]), str(entry["network"]), int(entry["seed"])): entry
        for entry in manifest["certificates"]
        if "r2" in entry
    }


def data_notes(manifest: Mapping[str, Any]) -> list[str]:
    """What was done to the data of tasks that are made of data; each is said once."""
    told = ((task["field"], task["preprocessing"]) for task in manifest["tasks"] if task.get("preprocessing"))
    return list(dict.fromkeys(f"{field}: {' '.join(notes)}" for field, notes in told))


def uncertified(manifest: Mapping[str, Any]) -> list[str]:
    """What did not pass its certificate: tasks, with the network where tasks have several kinds of them."""
    return [
        f"{entry['task']} {entry['network']}" if "r2" in entry else str(entry["task"])
        for entry in manifest["certificates"]
        if not entry["passed"]
    ]


def fit_words(manifest: Mapping[str, Any], tasks: Sequence[str]) -> str:
    """How well the networks of some tasks fit, in words; "" where nothing is known."""
    values = [entry["r2"] for (task, _, _), entry in certificates(manifest).items() if task in tasks]
    if not values:
        return ""
    low, high = min(values), max(values)
    return f"R² {low:.3f}" if len(values) == 1 else f"R² {low:.3f} to {high:.3f} ({len(values)} networks)"


def networks(run: Run) -> dict[str, Any] | None:
    """Every network with its fit beside the mean correlation that each method has on it."""
    if not _there(run):
        return None
    rows = _headline(run)
    keys = ["task", "network", "seed"]
    table = rows.groupby([*keys, "method"], observed=True)["value"].mean().unstack("method")
    ordered = table.mean().sort_values(ascending=False).index
    methods = [name for name in ordered if reports.kind(name) == "method"]
    known = certificates(run.manifest)
    grouped = rows.dropna(subset="value").groupby([*keys, "method"], observed=True)["value"]
    ends = {key: bootstrap(part.to_numpy(np.float64)[:, None]) for key, part in grouped}
    found = []
    for key, line in zip(table.index, table[methods].to_numpy(), strict=True):
        fit = known.get((str(key[0]), str(key[1]), int(key[2])), {})
        said = evidence.fit(fit)["said"]
        found.append(
            {
                **dict(zip(keys, key, strict=True)),
                "fit": [said.get(name, "–") for name in MEASURES],
                "passed": fit.get("passed"),
                "cells": [
                    number(value, *ends.get((*key, name), (np.nan, np.nan)), 2)
                    for name, value in zip(methods, line, strict=True)
                ],
            }
        )
    return {"methods": [str(name) for name in methods], "rows": found}


def consistency(run: Run) -> dict[str, Any] | None:
    """How alike the maps of networks trained alike are, beside their agreement with the truth."""
    table = run.consistency()
    if table is None:
        return None
    rows = _headline(run)
    grouped = rows.dropna(subset="value").groupby(["task", "network", "method"], observed=True)["value"]
    truth, ends = grouped.mean(), {k: bootstrap(part.to_numpy(np.float64)[:, None]) for k, part in grouped}
    found = []
    for row in table.to_dict("records"):
        key = (row["task"], row["network"], row["method"])
        right = number(truth.get(key, np.nan), *ends.get(key, (np.nan, np.nan)), 2)
        between = number(row["value"], row["lowest"], row["highest"], 2)
        found.append({**row, "between": between, "truth": right})
    return {"rows": found}
