"""The three truths side by side, and scores of other tiers, as text for the page and the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from verax.errors import VeraxError
from verax.reports import number
from verax.studies.movements import VIEWS

if TYPE_CHECKING:
    from verax.studies.runs import Run

TITLES = {
    "rule": "rule",
    "counterfactual": "counterfactual",
    "shapley": "Shapley",
    "shapley-distance": "Shapley, distance ↓",
}


def rank(value: float) -> str:
    """A rank, whole where it is not shared."""
    return f"{value:.0f}" if value == int(value) else f"{value:.1f}"


def sentence(pairs: pd.DataFrame) -> str:
    """How far each other truth ranks as the rule does."""
    found = []
    for row in pairs[pairs["first"] == "rule"].to_dict("records"):
        spearman = number(row["spearman"], row["spearman_low"], row["spearman_high"], 2)
        kendall = number(row["kendall"], row["kendall_low"], row["kendall_high"], 2)
        found.append(f"{TITLES[row['second']].removesuffix(' ↓')}: Spearman {spearman}, Kendall {kendall}")
    return f"Agreement with the ranking under the rule. {'; '.join(found)}." if found else ""


def parts(run: Run, families: Sequence[str]) -> list[dict[str, Any]]:
    """One entry for each family: truths, rows (method, cells of value and rank) and the sentence."""
    result = []
    for family in families:
        try:
            table, pairs = run.truths(family), run.truth_correlations(family)
        except VeraxError:
            continue  # every method failed somewhere in this family
        if table.empty:
            continue
        names = [name for name in VIEWS if name in set(table["truth"])]
        rows = []
        for method in dict.fromkeys(table["method"]):
            mine = table[table["method"] == method].set_index("truth").to_dict("index")
            cells = [
                {"rank": rank(c["rank"]), "value": number(c["value"], c["low"], c["high"], 2)}
                if (c := mine.get(name))
                else {"rank": "", "value": "–"}
                for name in names
            ]
            rows.append({"method": str(method), "cells": cells})
        titles = [TITLES[name] for name in names]
        result.append({"family": family, "truths": titles, "rows": rows, "sentence": sentence(pairs)})
    return result
