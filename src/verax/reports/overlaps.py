"""What an alignment says about single answers: right ones whose maps lie beside what people marked."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from verax.metrics import cases8
from verax.networks.certificates import wilson
from verax.reports import names
from verax.reports.resampling import Floats, bootstrap
from verax.studies.alignments import RANDOM, Alignment

_FEW = 5  # images of a class from which something can be said about it
_CLASS, _ALL = 0.5, 0.25  # shares of answers beside the mark, of a class and of all, that are worth a warning
_MOST = 3  # classes that can be said to stand out


def share(count: int, total: int, digits: int = 0) -> str:
    """A share in per cent with its 95 % Wilson interval; a dash of nothing."""
    if not total:
        return "–"
    low, high = (100 * float(end) for end in wilson(count, total))
    return f"{100 * count / total:.{digits}f} % [{low:.{digits}f}, {high:.{digits}f}]"


def skill(scores: pd.DataFrame, metric: str) -> tuple[float, float, float]:
    """How far a mean score lies from random places (0) to perfect (1), with its 95 % bootstrap interval.

    Images are drawn with replacement, a score together with that of its random places.
    """
    pairs = scores[[metric, f"{metric}{RANDOM}"]].dropna().to_numpy(np.float64)
    if not len(pairs):
        return math.nan, math.nan, math.nan
    low, high = bootstrap(pairs, _skill)
    return float(_skill(pairs.mean(0))), low, min(high, 1.0)


def _skill(means: Floats) -> Floats:
    room = 1 - means[..., 1]
    # where all is marked, random places are perfect: nobody can do better
    value: Floats = (means[..., 0] - means[..., 1]) / np.where(room > 0, room, np.nan)
    return value


def _judged(alignment: Alignment) -> tuple[pd.DataFrame, bool]:
    """Right answers with an IoU, and True; all answers and False where no label is known."""
    scores = alignment.scores
    known = bool(scores["right"].notna().any())
    rows = scores[(scores["right"] == True).fillna(False).astype(bool)] if known else scores  # noqa: E712
    return rows[rows["iou"].notna()], known


def _low(alignment: Alignment) -> float:
    """The largest IoU that counts as hardly any overlap, as in the case Sufficient Context."""
    return cases8.Ranges.of(alignment.facts.get("ranges")).bounds("Sufficient Context")["iou"][1]


def _beside(rows: pd.DataFrame, low: float) -> pd.Series[bool]:
    """Maps that show something, of which hardly anything was marked, and hardly anything of the mark.

    A low IoU alone would blame a small map that lies within the mark, and one that shows more than it.
    """
    there = [name for name in cases8.COLUMNS if name in rows]
    return (rows[there].round(2) <= low).all(axis=1) & (rows["shown"] > 0)


def answers(alignment: Alignment) -> str:
    """How many right answers have hardly any overlap, in a sentence; "" where that is not known."""
    if "iou" not in alignment.metrics:
        return ""
    rows, known = _judged(alignment)
    if not len(rows):
        return ""
    low = _low(alignment)
    few = rows["iou"].round(2) <= low
    count, whole = int(few.sum()), len(rows)
    what = f"{whole} right answer{'s' * (whole > 1)}" if known else f"{whole} image{'s' * (whole > 1)}"
    if not count:
        return f"None of the {what} has as little overlap as an IoU of {low:.2f}."
    counts = rows.loc[few, "prediction"].value_counts()
    first, most = int(counts.index[0]), int(counts.iloc[0])
    which = ""
    if rows["prediction"].nunique() > 1 and most > count / 2 and most >= _FEW:
        every = int((rows["prediction"] == first).sum())
        which = f"; {_all(most, every)} called {_name(alignment, first)}"
    have = f"{count} ({share(count, whole)}) {'have' if count > 1 else 'has'} hardly any overlap"
    return f"Of the {what}, {have} (IoU up to {low:.2f}){which}."


def _all(count: int, whole: int) -> str:
    return f"among them all {whole}" if count == whole else f"among them {count} of {whole}"


def _name(alignment: Alignment, label: int) -> str:
    return repr(alignment.classes.get(label, str(label)))


def warnings(alignment: Alignment) -> list[str]:
    """Classes, or a large share of all answers, whose maps lie beside what was marked: one sentence each."""
    if len(alignment.scores) and alignment.scores["empty"].all():
        return ["No image has a mark, so that there is nothing to compare: do the masks hold what was named?"]
    if "iou" not in alignment.metrics:
        return []
    rows, known = _judged(alignment)
    beside = _beside(rows, _low(alignment))
    grouped = beside.groupby(rows["prediction"]).agg(["sum", "size"])
    classes = grouped[(grouped["size"] >= _FEW) & (grouped["sum"] >= _CLASS * grouped["size"])]
    question = "Right for the wrong reasons?" if known else "Does it look at something else?"
    guess = "The network may use something else, such as a tag or the background."
    if 0 < len(classes) <= _MOST and len(classes) < len(grouped):
        parts = []
        for label, (count, whole) in zip(classes.index, classes.to_numpy(), strict=True):
            some = f"all {whole}" if count == whole else f"{count} of {whole} ({share(count, whole)})"
            mean = rows.loc[rows["prediction"] == label, "iou"].mean()
            called = f"images that it {'rightly ' * known}calls {_name(alignment, int(label))}"
            parts.append(f"in {some} {called} (mean IoU {mean:.2f})")
        return [f"{question} The map lies beside what was marked {names(parts)}. {guess}"]
    count, whole = int(beside.sum()), len(rows)
    if whole >= _FEW and count >= _ALL * whole:
        what = "right answers" if known else "images"
        return [
            f"{question} The map lies beside what was marked in {count} of {whole} {what} "
            f"({share(count, whole)}). {guess}"
        ]
    return []
