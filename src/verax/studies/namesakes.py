"""Namesakes: methods of several runs that have one label and are not the same thing.

Somebody improves a function, judges it again and looks at both runs; another has a function of the same name.
Each then has a row of its own, named after its run. What manifests know decides (`versions.same_method`).
Where they do not know, as with other code of verax, the scores do: a method is the same if all pictures that
both runs have scored of it, and there is one at least, have the same scores.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache

import numpy as np
import pandas as pd

from verax.studies import versions
from verax.studies.leaderboards import UNRANKED
from verax.studies.runs import Run

_PLACE = ["task", "network", "seed", "group", "sample", "method"]

_CLOSE = 1e-4
"""Scores nearer than this are the same in any table: devices differ by less."""


def alike(first: pd.DataFrame, second: pd.DataFrame) -> dict[str, bool]:
    """Method -> whether it has the same scores in both tables, of methods with a picture in both."""
    words = dict.fromkeys(("task", "network", "method"), str)
    sides = [table[[*_PLACE, "value"]].astype(words) for table in (first, second)]
    both = sides[0].merge(sides[1], on=_PLACE, suffixes=("", "_other"))
    close = np.isclose(both["value"], both["value_other"], rtol=_CLOSE, atol=_CLOSE, equal_nan=True)
    return {str(name): bool(same) for name, same in pd.Series(close).groupby(both["method"]).all().items()}


def other_references(first: Run, second: Run, one: pd.DataFrame, two: pd.DataFrame) -> list[str]:
    """The controls and the oracle that code has changed; all else may have changed with them.

    Args:
        first: a run.
        second: another.
        one: scores of the first.
        two: scores of the second.
    """
    if first.manifest["code"] == second.manifest["code"]:
        return []
    some = [table[table["method"].isin(UNRANKED)] for table in (one, two)]
    return sorted(name for name, same in alike(*some).items() if not same)


def told_apart(
    scores: pd.DataFrame, runs: Sequence[Run], names: Mapping[int, str]
) -> tuple[pd.DataFrame, dict[str, str]]:
    """The scores with a name of its own for each method, and why labels had to be parted.

    Args:
        scores: of one board; the column run names the run.
        runs: the newest first.
        names: what they are called, by their id.
    """
    tables = {str(run): table for run, table in scores.groupby("run", sort=False)}
    labels = {run: set(map(str, table["method"].unique())) for run, table in tables.items()}
    taken = set[str]().union(*labels.values())
    listed = [run for run in runs if names[id(run)] in tables]

    @cache
    def scored(one: int, two: int) -> dict[str, bool]:
        return alike(tables[names[id(listed[one])]], tables[names[id(listed[two])]])

    def same(one: int, two: int, label: str) -> tuple[bool | None, str]:
        known, reason = versions.same_method(listed[one], listed[two], label)
        if known is not None:
            return known, reason
        found = scored(one, two).get(label)
        more = "no picture in common" if found is None else "other scores on the same pictures"
        return found, f"{reason}, {more}"

    reasons: dict[str, str] = {}
    renamed: dict[str, dict[str, str]] = {name: {} for name in tables}
    for label in sorted(taken - set(UNRANKED)):
        groups: list[list[int]] = []
        for place in [n for n, run in enumerate(listed) if label in labels[names[id(run)]]]:
            for group in groups:
                verdicts = [same(member, place, label)[0] for member in group]
                if any(verdicts) and False not in verdicts:
                    group.append(place)
                    break
            else:
                groups.append([place])
        if len(groups) > 1:
            pairs = [same(groups[0][0], group[0], label)[1] for group in groups[1:]]
            reasons[label] = "; ".join(dict.fromkeys(filter(None, pairs)))
            for group in groups:
                made = _free(f"{label} ({names[id(listed[group[0]])]})", taken)
                taken.add(made)
                for place in group:
                    renamed[names[id(listed[place])]][label] = made
    if reasons:
        parts = [tables[run].assign(method=_renamed(tables[run]["method"], renamed[run])) for run in tables]
        scores = pd.concat(parts)
    return scores, reasons


def _renamed(methods: pd.Series[str], words: Mapping[str, str]) -> pd.Series[str]:
    plain = methods.astype(str)
    return plain.map(words).fillna(plain) if words else plain


def _free(name: str, taken: Collection[str]) -> str:
    """The name, or one like it that is no label of its own."""
    while name in taken:
        name += "'"
    return name


def sentence(reasons: Mapping[str, str]) -> str:
    """Which labels were parted, and why, for people; labels with the same reason together."""
    of: dict[str, list[str]] = {}
    for label, reason in reasons.items():
        of.setdefault(reason, []).append(repr(label))
    words = "; ".join(f"{', '.join(labels)} ({reason})" for reason, labels in of.items())
    return f"Not the same in all runs, and so with a row for each, named after its newest run: {words}."
