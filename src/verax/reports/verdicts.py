"""What a run says, in sentences."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from verax.metrics import METRICS
from verax.reports import names, number
from verax.studies import comparisons
from verax.studies.leaderboards import HEADLINES, ORACLE, PAIRS, SKILLED, SUCCESS, tasks_of

if TYPE_CHECKING:
    from verax.studies.comparisons import Compared

_PHRASES = {
    "sound": "{mean} of {its} maps' mass lies on what the network uses",
    "published": "{mean} of {its} pictures lies in the focus boxes (published protocol)",
    "sound:counterfactual": "{mean} of {its} maps' mass lies on objects of which a change changes the label",
    "sound:shapley": "{mean} of {its} maps' mass lies on objects with a Shapley value",
    "exact": "{its} maps correlate with the exact truth at {mean} on average",
    "faithfulness": "on average {mean} of the probability is left while {its} strongest pixels are deleted; "
    "less is better",
}
_FEW = 5  # methods that are named one by one beside the first
_FAMILIES = {"own": "your own tasks", "all": "all tasks"}
Boards = dict[tuple[str, str], pd.DataFrame]
"""(protocol, family) -> leaderboard."""


def verdict(
    board: pd.DataFrame | None,
    family: str,
    protocol: str,
    failed: Collection[str] = (),
    own: Collection[str] = (),
    tested: Compared | None = None,
) -> str:
    """What the run says about a family of tasks, in sentences that do not hide a draw, a defeat or a failure.

    Args:
        board: its leaderboard; None where there is none.
        family: of the tasks.
        protocol: that the board was made with.
        failed: methods that failed somewhere in the run.
        own: methods that somebody brought along, who wants to know where they stand.
        tested: the tests of pairs of the same family, where there are any.
    """
    where = _FAMILIES.get(family, f"{family} tasks")
    ranked = None if board is None else board[board["rank"].notna()]
    known = set() if ranked is None else {str(name) for name in ranked["method"]}
    lost = [name for name in dict.fromkeys(failed) if name not in known]
    missing = f" {names(_some(lost))} failed and {_are(lost, 'has', 'have')} no rank." if lost else ""
    if ranked is None or ranked.empty:
        reason = f": {names(_some(lost))} failed" if lost else ""
        return f"On {where} no method could be ranked{reason}."
    best = ranked.iloc[0]
    higher = METRICS.get(HEADLINES[protocol]).higher_is_better
    first = leaders(ranked)
    if len(ranked) == 1:
        who = f"{first[0]} is the only method with a rank"
    else:
        who = f"{first[0]} comes first" if len(first) == 1 else f"{names(first)} share the first place"
    mean = number(best["value"], best["low"], best["high"], 2)
    phrase = _PHRASES[protocol].format(mean=mean, its=_are(first, "its", "their"))
    if board is not None and protocol not in SKILLED:
        phrase += _beside_truth(board, ranked["value"], higher)
    text = f"On {where}, {who}: {phrase}.{_against_control(best)}"
    if best["degenerate"] >= best["samples"] > 0:
        text += f" But all maps of {first[0]} are constant or hold no numbers, so that they tell nothing."
    rest = ranked[~ranked["method"].isin(first)]
    overlaps = rest["high"] >= best["low"] if higher else rest["low"] <= best["high"]
    known = set() if tested is None else set(tested[0].ranks)
    level = [str(name) for name in rest.loc[overlaps, "method"] if name not in known]
    if tested is not None:
        doubts = (told_apart(ranked, tested), _turning(rest, first, tested))
        text += "".join(f" {words}" for words in doubts if words)
    if not np.isfinite(best["low"]):
        text += " One sample in a bucket is too few for an interval."
    elif level:
        those = _are(level, "that", "those")
        text += f" The interval overlaps with {those} of {names(_some(level))}: their order may be chance."
    return text + _standing(rest, len(ranked), own) + missing


def leaders(board: pd.DataFrame) -> list[str]:
    """The methods that share the first place."""
    return [str(name) for name in board.loc[(board["rank"] == board["rank"].min()).fillna(False), "method"]]


def _against(first: Collection[str], pairs: pd.DataFrame) -> pd.DataFrame:
    """The pairs of one of the first with another method, which has a column of its own."""
    one, two = pairs["first"].isin(first), pairs["second"].isin(first)
    return pairs.assign(other=pairs["second"].where(one, pairs["first"]))[one != two]


def told_apart(board: pd.DataFrame, tested: Compared) -> str:
    """Which methods the tests of pairs cannot tell from the first, in a sentence; "" where they tell all."""
    (ranking, pairs), first = tested, leaders(board)
    found = _against(first, pairs)
    equal = set(found.loc[~found["differ"], "other"])
    level = [str(name) for name in board["method"] if name in equal]
    if not level:
        return ""
    count, blocks = found["other"].nunique(), ranking.blocks
    listed = f"any of the other {count}" if len(level) == count > _FEW else names(_some(level, _FEW))
    who = f"tell {names(_some(first))} apart from {listed}"
    if comparisons.hopeless(blocks, len(pairs)):
        return f"Tests of pairs do not {who}: {blocks} buckets are too few to test {len(pairs)} pairs."
    return f"Tests of pairs over {blocks} buckets do not {who}: other buckets may turn their order."


def _turning(rest: pd.DataFrame, first: Collection[str], tested: Compared) -> str:
    """Which methods other samples may put before the first, whatever the tests say, in a sentence."""
    ranking, pairs = tested
    found = _against(first, pairs)
    if not comparisons.hopeless(ranking.blocks, len(pairs)):
        found = found[found["differ"]]
    loose = set(found.loc[(found["low"] <= 0) & (found["high"] >= 0), "other"])
    level = [str(name) for name in rest["method"] if name in loose]
    if not level:
        return ""
    interval = _are(level, "The interval of the difference", "The intervals of the differences")
    include = _are(level, "includes", "include")
    return f"{interval} to {names(_some(level, _FEW))} {include} 0: other samples may turn their order."


def _standing(rest: pd.DataFrame, count: int, own: Collection[str]) -> str:
    """Where methods that somebody brought along stand, unless they come first."""
    rows = [row for row in rest.to_dict("records") if row["method"] in own]
    means = [number(row["value"], row["low"], row["high"], 2) for row in rows]
    words = [
        f"{row['method']}, rank {row['rank']} of {count} with {mean}"
        for row, mean in zip(rows, means, strict=True)
    ]
    return f" Your own: {'; '.join(words)}." if words else ""


def _are(things: Sequence[str], one: str, several: str) -> str:
    return one if len(things) == 1 else several


def _some(things: Sequence[str], most: int = 3) -> list[str]:
    """The first few, and how many others there are."""
    return list(things) if len(things) <= most else [*things[: most - 1], f"{len(things) - most + 1} others"]


def _against_control(best: pd.Series[Any]) -> str:
    """How the best method stands beside the best control, in a sentence."""
    if not np.isfinite(best["skill"]):
        return ""
    if not np.isfinite(best["skill_low"]):  # of one sample, which says nothing about others
        compared = "lies above" if best["skill"] > 0 else "lies below" if best["skill"] < 0 else "equals"
    elif best["skill_low"] > 0:
        compared = "is better than"
    elif best["skill_high"] < 0:
        compared = "is worse than"
    else:
        compared = "is not clearly better than"
    skill = number(best["skill"], best["skill_low"], best["skill_high"], 2)
    control = f"the best control, {best['control']}, which never looks at the network"
    return f" That {compared} {control} (skill {skill})."


def _beside_truth(board: pd.DataFrame, values: pd.Series[float], higher: bool) -> str:
    """Where the oracle stands under a protocol that asks no truth: the end of a sentence."""
    oracle = board[(board["method"] == ORACLE) & board["value"].notna()]
    if oracle.empty:
        return ", but that is no truth"
    row = oracle.iloc[0]
    ahead = int((values > row["value"]).sum() if higher else (values < row["value"]).sum())
    behind = {0: "ahead of every method", len(values): "behind every method"}
    where = behind.get(ahead, f"behind {ahead} of {len(values)} methods")
    mean = number(row["value"], row["low"], row["high"], 2)
    return f", but that is no truth: the oracle, the truth itself, stands at {mean}, {where}"


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
        both = {
            str(method): (int(rank), int(ranks[1][method]))
            for method, rank in ranks[0].items()
            if not pd.isna(rank) and not pd.isna(ranks[1].get(method))
        }
        moved = {method: pair for method, pair in both.items() if abs(pair[0] - pair[1]) >= 2}
        if len(both) < 3:
            continue  # two methods cannot be two ranks apart
        if moved:
            far = sorted(moved, key=lambda method: -abs(moved[method][0] - moved[method][1]))
            words = [f"{method} (rank {moved[method][0]} and {moved[method][1]})" for method in far]
            found.append(
                f"On {family} tasks the sound and the published protocol disagree by two ranks or more about "
                f"{names(_some(words, 5))}."
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
