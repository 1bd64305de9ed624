"""What a run says, in sentences."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from verax.metrics import METRICS
from verax.reports import names, number
from verax.studies.leaderboards import HEADLINES, ORACLE, PAIRS, SUCCESS, tasks_of

_PHRASES = {
    "sound": "of its maps' mass lies on what the network uses",
    "published": "of its pictures lies in the focus boxes (published protocol)",
    "sound:counterfactual": "of its maps' mass lies on objects of which a change changes the label",
    "sound:shapley": "of its maps' mass lies on objects with a Shapley value",
    "exact": "is the mean correlation of its maps with the exact truth",
    "faithfulness": "of the probability is left, on average, while its strongest pixels are deleted",
}
Boards = dict[tuple[str, str], pd.DataFrame]
"""(protocol, family) -> leaderboard."""


def verdict(board: pd.DataFrame | None, family: str, protocol: str) -> str:
    """What the run says about a family of tasks, in one sentence that does not hide a draw or a defeat."""
    ranked = None if board is None else board[board["rank"].notna()]
    if ranked is None or ranked.empty:
        return f"On {family} tasks no method could be ranked."
    best = ranked.iloc[0]
    mean = number(best["value"], best["low"], best["high"], 2)
    higher = METRICS.get(HEADLINES[protocol]).higher_is_better
    place = "highest" if higher else "lowest, which is best"
    first = [str(name) for name in ranked.loc[ranked["rank"] == best["rank"], "method"]]
    who = f"{best['method']} scores" if len(first) == 1 else f"{names(first)} are level and score"
    text = f"On {family} tasks, {who} {place}: {mean} {_PHRASES[protocol]}"
    if np.isfinite(best["skill"]):
        skill = number(best["skill"], best["skill_low"], best["skill_high"], 2)
        if best["skill_low"] > 0:
            compared = "better than"
        elif best["skill_high"] < 0:
            compared = "but that is worse than"
        else:
            compared = "but that is not clearly better than"
        control = f"the best control, {best['control']}, which never looks at the network"
        text += f", {compared} {control} (skill {skill})"
    rest = ranked[~ranked["method"].isin(first)]
    overlaps = rest["high"] >= best["low"] if higher else rest["low"] <= best["high"]
    level = [str(name) for name in rest.loc[overlaps, "method"]]
    if len(level) > 3:
        level = [*level[:2], f"{len(level) - 2} others"]
    if not np.isfinite(best["low"]):
        text += "; one sample in a bucket is too few for an interval"
    elif level:
        text += f"; its interval overlaps with that of {names(level)}"
    return text + "."


CEILINGS = [("published", PAIRS["published"][0])]
"""The scores from which the ceilings of the published protocol can be told."""


def ceilings(scores: pd.DataFrame, protocol: str) -> pd.DataFrame:
    """What the oracle reaches in every bucket: task, group, value."""
    rows = scores[(scores["protocol"] == protocol) & (scores["metric"] == PAIRS[protocol][0])]
    rows = rows[rows["method"] == ORACLE]
    runs = rows.groupby(["task", "network", "seed", "group"], observed=True)["value"].mean()
    return runs.groupby(["task", "group"], observed=True).mean().reset_index()


def disagreements(boards: Boards, scores: pd.DataFrame, families: Mapping[str, str]) -> list[str]:
    """Where the two protocols that know the truth tell different stories."""
    found = []
    for family in dict.fromkeys(families.values()):
        sound, published = boards.get(("sound", family)), boards.get(("published", family))
        if sound is None or published is None:
            continue
        ranks = [dict(zip(board["method"], board["rank"], strict=True)) for board in (sound, published)]
        moved = [
            f"{method} (rank {rank} under sound, {ranks[1][method]} under published)"
            for method, rank in ranks[0].items()
            if not pd.isna(rank) and not pd.isna(ranks[1].get(method)) and abs(rank - ranks[1][method]) >= 2
        ]
        if moved:
            found.append(
                f"On {family} tasks the protocols disagree by two ranks or more about {names(moved)}."
            )
        else:
            found.append(f"On {family} tasks no rank differs by two or more between the protocols.")
    oracle = ceilings(scores, "published")
    for family in dict.fromkeys(families.values()):
        rows = oracle[oracle["task"].isin(tasks_of(families, family))]
        if rows.empty:
            continue
        low = int((rows["value"] < SUCCESS).sum())
        found.append(
            f"In {low} of {len(rows)} {family} buckets even the oracle, the truth itself, stays below the "
            f"success threshold of {SUCCESS}: there the published protocol cannot be passed."
            if low
            else f"The oracle passes the success threshold of {SUCCESS} in all {len(rows)} {family} buckets."
        )
    return found
