"""The page of one alignment: table, eight cases, histograms, pictures, confusion matrix, filters.

After the interface of Shared Interest (Boggust et al., CHI 2022). One file without network access: its only
script is allowed by its hash, data are JSON in which no tag can begin, and names are set as text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from verax.files import make_folder, write_atomically
from verax.metrics import cases8
from verax.reports import number, overlaps, pages
from verax.studies.alignments import Alignment, case_codes

HISTOGRAMS = cases8.COLUMNS
SHORT = {
    "iou": "IoU",
    "ground-truth-coverage": "GTC",
    "saliency-coverage": "SC",
    "pointing-game": "PG",
    "energy": "E",
}
"""Score -> what it is called under pictures, which are small."""
_WORDS = {
    "iou": "IoU",
    "ground-truth-coverage": "Ground-truth coverage",
    "saliency-coverage": "Saliency coverage",
    "pointing-game": "The pointing game",
    "energy": "Energy",
}
_ABOUT = {
    "iou": "overlap of what is shown and what was marked",
    "ground-truth-coverage": "share of what was marked that is shown",
    "saliency-coverage": "share of what is shown that was marked",
    "pointing-game": "whether the strongest pixel was marked",
    "energy": "share of the map's mass on what was marked",
}


def _numbers(values: Any) -> list[float | None]:
    """Scores with six decimals; None where there is none, because JSON knows no NaN.

    The page rounds them to two, and what was rounded to three before would go to the wrong side now and then.
    """
    plain = np.asarray(values, np.float64).round(6).tolist()
    return [None if math.isnan(value) else value for value in plain]


def data(alignment: Alignment) -> dict[str, Any]:
    """Everything that the script shows."""
    scores = alignment.scores
    sorted_out = set(HISTOGRAMS) <= set(alignment.metrics) and bool(scores["right"].notna().any())
    members = alignment.members() if sorted_out else {}
    codes = case_codes(members) if members else np.zeros(len(scores), np.int64)
    classes = alignment.classes
    seen = sorted({*scores["label"].tolist(), *scores["prediction"].tolist()})
    right = scores["right"].astype("Int8").astype(object)
    return {
        "ids": scores["id"].astype(str).tolist(),
        "label": scores["label"].tolist(),
        "prediction": scores["prediction"].tolist(),
        "right": right.where(right.notna(), None).tolist(),
        "confidence": _numbers(scores["confidence"]),
        "short": {name: SHORT[name] for name in alignment.metrics},
        "scores": {name: _numbers(scores[name]) for name in alignment.metrics},
        "histograms": [name for name in HISTOGRAMS if name in alignment.metrics],
        "members": codes.tolist(),
        "cases": [
            {"name": name, "sort": list(case.sort)} for name, case in cases8.CASES.items() if name in members
        ],
        "classes": {str(label): classes.get(int(label), str(label)) for label in seen if label >= 0},
        "pictures": [dict(entry) for entry in alignment.pictures],
    }


def verdict(alignment: Alignment) -> str:
    """What the first score says beside chance, and how many right answers have hardly any overlap."""
    return " ".join(filter(None, [_beside_chance(alignment), overlaps.answers(alignment)]))


def _beside_chance(alignment: Alignment) -> str:
    row = alignment.table().iloc[0]
    digits = 2 if max(row["value"], row["random"]) >= 0.1 else 3
    name, value = str(row["metric"]), number(row["value"], row["low"], row["high"], digits)
    if not math.isfinite(row["value"]):
        return "No image has a mark, so nothing can be said."
    first = f"{_WORDS.get(name, name)} ({_ABOUT[name]}) is {value} on average; 1 is best."
    chance, centre = (f"{row[place]:.{digits}f}" for place in ("random", "centre"))
    same = "The same number of pixels"
    random = f"scattered at random would get {chance}"
    if row["low"] > max(row["random"], row["centre"]):
        clearly = f"{first} That is clearly more than chance: {same.lower()} {random}"
        return f"{clearly}, and in the middle of the picture {centre}."
    if row["low"] > row["random"]:
        return (
            f"{first} {same} {random}, which is clearly less, but in the middle of the picture {centre}: "
            "a map that always shows the middle would do about as well or better."
        )
    if row["high"] < row["random"] and not row["lift_high"] >= 1:  # of the same images: chance varies too
        return f"{first} That is less than chance: {same.lower()} {random}."
    return f"{first} That is not clearly more than chance: {same.lower()} {random}."


def nothing_shown(alignment: Alignment) -> str:
    """One sentence about maps of which no pixel passes the binarisation; "" where there is none."""
    count = int((alignment.scores["shown"] == 0).sum())
    if not count:
        return ""
    rule = alignment.facts["judging"]["binarisation"]
    return (
        f"{count} of {len(alignment)} maps have an empty region, because no value passes {rule} (broad maps "
        "seldom pass a threshold of deviations): they score 0 wherever a region counts; another "
        "--binarisation shows more."
    )


def _rows(alignment: Alignment) -> list[dict[str, str]]:
    rows = []
    for row in alignment.table().to_dict("records"):
        rows.append(
            {
                "metric": str(row["metric"]),
                "short": SHORT[str(row["metric"])] if row["metric"] != "iou" else "",
                "about": _ABOUT[str(row["metric"])],
                "value": number(row["value"], row["low"], row["high"]),
                "random": number(row["random"], math.nan, math.nan),
                "centre": number(row["centre"], math.nan, math.nan),
                "lift": number(row["lift"], row["lift_low"], row["lift_high"], 2),
                "skill": number(*overlaps.skill(alignment.scores, str(row["metric"])), 2),
                "images": str(row["images"]),
            }
        )
    return rows


def _facts(alignment: Alignment) -> list[tuple[str, str]]:
    facts, scores = alignment.facts, alignment.scores
    settings = ", ".join(f"{name}={value}" for name, value in facts["settings"].items() if value is not None)
    known = scores["right"].dropna()
    accuracy = overlaps.share(int(known.sum()), len(known), 1) if len(known) else "right answers not known"
    weights = {"none": "none: random", "own": "your module's own"}.get(
        facts.get("weights", ""), facts.get("weights", "")
    )
    return [
        ("images", str(len(alignment))),
        *([("weights", weights)] if weights else []),
        ("accuracy", accuracy),
        ("method", f"{facts['method']}{f' ({settings})' if settings else ''}"),
        ("explained class", str(facts["target"])),
        ("shown pixels", str(facts["judging"]["binarisation"])),
        ("mean share marked", f"{100 * scores['area'].mean():.1f} %"),
        ("mean share shown", f"{100 * scores['shown'].mean():.1f} %"),
        ("images without a mark", str(int(scores["empty"].sum()))),
        ("maps that say nothing", str(int(scores["flat"].sum()))),
    ]


def _cases(alignment: Alignment) -> list[dict[str, Any]]:
    if not set(HISTOGRAMS) <= set(alignment.metrics) or not alignment.scores["right"].notna().any():
        return []  # whether an answer is right is half of each case
    ranges = cases8.Ranges.of(alignment.facts.get("ranges"))
    found = []
    for row in alignment.cases().to_dict("records"):
        bounds = ranges.bounds(row["case"])
        words = ", ".join(f"{SHORT[name]} {low:.2f} to {high:.2f}" for name, (low, high) in bounds.items())
        share = overlaps.share(row["images"], int(alignment.scores["right"].notna().sum()))
        found.append({**row, "share": share, "ranges": words})
    return found


def _title(facts: Mapping[str, Any]) -> str:
    """Network and data; a bare class of torch and a folder are called what they are."""
    model, images = str(facts["model"]), str(facts["data"])
    mine = hasattr(nn, model) and facts.get("weights") == "own"
    network = f"Your network ({model})" if mine else model
    return f"{network} on {'a folder of pictures' if images == 'folder' else images}"


def page(alignment: Alignment) -> str:
    """The page as text."""
    facts = alignment.facts
    shown = {
        "title": _title(facts),
        "part": facts.get("part") or "",
        "verdict": verdict(alignment),
        "alarms": overlaps.warnings(alignment),
        "notes": [*facts.get("notes", []), *filter(None, [nothing_shown(alignment)])],
        "facts": _facts(alignment),
        "rows": _rows(alignment),
        "cases": _cases(alignment),
        "without_case": alignment.without_case() if set(HISTOGRAMS) <= set(alignment.metrics) else 0,
        "known": bool(alignment.scores["right"].notna().any()),
        "short": [(SHORT[name], name, _ABOUT[name]) for name in alignment.metrics],
        "pictured": len(alignment.pictures),
        "count": len(alignment),
        "sha256": facts.get("sha256", ""),
        "command": facts.get("command", ""),
        "manifest": json.dumps(
            {name: value for name, value in facts.items() if name not in ("classes", "pictured")}, indent=2
        ),
        "data": data(alignment),
    }
    return pages.page("alignment.html.j2", shown, scripts=("alignment.js",))


def write(alignment: Alignment, path: Path) -> Path:
    """Write the page; a folder gets a report.html."""
    where = path / "report.html" if path.is_dir() or not path.suffix else path
    make_folder(where.parent)
    write_atomically(where, page(alignment).encode())
    return where
