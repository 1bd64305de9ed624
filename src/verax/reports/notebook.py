"""What notebooks show of runs, certificates, cases, alignments and comparisons: tables and small pictures.

Fragments of HTML without scripts; every word that comes from names, files or users is escaped.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from math import nan
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from markupsafe import Markup
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from verax import reports
from verax.errors import VeraxError
from verax.reports import (
    AVOID,
    FOCUS,
    INK,
    METHOD,
    RULE,
    figures,
    gallery,
    inline,
    leaflets,
    number,
    overlaps,
    provenance,
    short,
    style,
)
from verax.reports import alignment as aligned
from verax.reports import differences as compared
from verax.reports.digests import Digest
from verax.reports.showing import show
from verax.reports.verdicts import verdict
from verax.studies import tiers

if TYPE_CHECKING:
    from verax.cases import Cases
    from verax.networks.certificates import Certificate
    from verax.networks.fits import Fit
    from verax.studies.alignments import Alignment
    from verax.studies.differences import Differences
    from verax.studies.runs import Run

_CASES = 6
_DIM = 0.55  # of what a map does not show
_THUMBNAILS = 6


def _frame(title: str, verdict: str, *parts: str) -> str:
    head = Markup('<div style="max-width:60em"><p style="margin:0.3em 0"><strong>{}</strong>{}</p>')
    words = Markup("<br>{}").format(verdict) if verdict else ""
    return str(head.format(title, words) + Markup("").join(parts) + Markup("</div>"))


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Markup:
    cells = Markup("").join(Markup('<th style="text-align:left">{}</th>').format(word) for word in head)
    lines = [
        Markup("").join(Markup('<td style="text-align:left">{}</td>').format(cell) for cell in row)
        for row in rows
    ]
    body = Markup("").join(Markup("<tr>{}</tr>").format(line) for line in lines)
    return Markup("<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>").format(cells, body)


def _folded(title: str, content: Markup) -> Markup:
    return Markup("<details><summary>{}</summary>{}</details>").format(title, content)


def run(found: Run) -> str:
    """What a run says about each family of tasks, as its report does, and what went wrong.

    As in the report, families of tasks and tiers of networks are never averaged: the tier that leads the
    report is shown here.
    """
    manifest, study = found.manifest, found.manifest["study"]
    passed = sum(bool(entry["passed"]) for entry in manifest["certificates"])
    count, trained, lost = len(study["tasks"]), len(manifest["certificates"]), len(found.failures)
    words = f"{count} task{'s' * (count != 1)}, {passed} of {trained} network{'s' * (trained != 1)} certified"
    words += f", {lost} failure{'s' * (lost != 1)}" if lost else ""
    title = f"Run of {study['name']}"
    parts = [Markup("<p>{}: {}</p>").format(f["unit"], f["reason"]) for f in found.failures[:5]]
    try:
        tier, main = found.by_tier()[0]
        digest = Digest.of(main)
        if not digest.boards:
            main.leaderboard(main.main)  # which says why there is none
    except (VeraxError, StopIteration) as error:
        return _frame(title, words, Markup("<p>{}</p>").format(str(error)), *parts)
    words += f"; {tiers.words(tier)}"
    failed = [str(failure["method"]) for failure in found.failures if failure.get("method")]
    first = digest.headline
    shown = [
        _family(digest, name, failed) for name in sorted(digest.families, key=lambda name: name != first)
    ]
    parts.append(Markup("<p><code>{}</code></p>").format(str(found.folder / "report.html")))
    return _frame(title, words, *shown, *parts)


def _family(digest: Digest, family: str, failed: Sequence[str]) -> Markup:
    """The verdict on a family of tasks, its leaderboard as a picture, and the numbers folded away."""
    own = provenance.own(digest.run.manifest)
    board, label = digest.boards.get((digest.main, family)), figures.LABELS.get(digest.main, digest.main)
    words = verdict(board, family, digest.main, failed, own, digest.tests.get(family))
    said = Markup("<p>{}</p>").format(words)
    if board is None:
        return said
    drawn = figures.leaderboard(board[board["value"].notna()], label)
    rows = [
        (
            "" if pd.isna(row["rank"]) else int(row["rank"]),
            row["method"],
            number(row["value"], row["low"], row["high"]),
            number(row["skill"], row["skill_low"], row["skill_high"], 2),
            number(row["worst"], nan, nan),
        )
        for row in board.to_dict("records")
    ]
    head = ("rank", "method", label, "skill", "worst bucket")
    kept = [k for k, name in enumerate(head) if name != "skill" or board["skill"].notna().any()]
    table = _table([head[k] for k in kept], [[row[k] for k in kept] for row in rows])
    picture = inline(drawn, f"Leaderboard of {family} tasks; the table below has the numbers.")
    return said + picture + _folded(f"Numbers, {family} tasks", table)


def _dots(axes: Any, rows: pd.DataFrame, names: Sequence[str], value: str, limit: float) -> None:
    """Shares with their intervals, and what must be reached."""
    axes.set_yticks(range(len(rows)), [short(name, 34) for name in names], fontsize=8)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=RULE, linewidth=0.8)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    for place, row in enumerate(rows.to_dict("records")):
        good = row[value] >= limit
        colour = METHOD if good else AVOID
        axes.plot([row["low"], row["high"]], [place, place], color=colour, linewidth=1.8)
        axes.plot([row[value]], [place], marker="o" if good else "X", color=colour, markersize=5.5)
    axes.axvline(limit, color=INK, linestyle="--", linewidth=1)


def certificate(found: Certificate) -> str:
    """The verdict, accuracy and interventions of a certificate."""
    limits = found.thresholds
    accuracy, edits = found.accuracy, found.interventions
    worst = edits.sort_values("follow", kind="stable").head(12)
    with style():
        drawn = Figure(figsize=(8.2, 0.24 * max(len(accuracy), len(worst)) + 0.9), layout="constrained")
        left, right = drawn.subplots(1, 2)
        _dots(left, accuracy, [str(scene) for scene in accuracy["scene"]], "accuracy", limits.accuracy)
        left.set_title("accuracy in each bucket", fontsize=9, loc="left")
        names = [f"{row['scene']}: {row['edit']} {row['object']}" for row in worst.to_dict("records")]
        _dots(right, worst, names, "follow", limits.follow)
        right.set_title("interventions that are followed least", fontsize=9, loc="left")
    tables = [
        _table(
            ("bucket", "scene", "label", "n", "accuracy"),
            [
                (r["group"], r["scene"], r["label"], r["n"], number(r["accuracy"], r["low"], r["high"]))
                for r in accuracy.to_dict("records")
            ],
        ),
        _table(
            ("bucket", "scene", "object", "edit", "n", "follow"),
            [
                (
                    r["group"],
                    r["scene"],
                    r["object"],
                    r["edit"],
                    r["n"],
                    number(r["follow"], r["low"], r["high"]),
                )
                for r in edits.to_dict("records")
            ],
        ),
    ]
    return _frame(
        f"Certificate: {found.task}",
        str(found),
        inline(drawn, "Accuracy and interventions; the tables below have the numbers."),
        _folded("Accuracy in each bucket", tables[0]),
        _folded("Interventions", tables[1]),
    )


def fit(found: Fit) -> str:
    """The verdict and measures of the certificate of a regression network."""
    rows = found.measures.to_dict("records")
    with style():
        drawn = Figure(figsize=(5.2, 0.3 * len(rows) + 0.6), layout="constrained")
        axes = drawn.add_subplot()
        reached = found.measures.assign(share=found.measures["value"])
        _dots(axes, reached, [str(row["measure"]) for row in rows], "share", nan)
        for place, row in enumerate(rows):
            axes.plot([row["limit"]], [place], marker="|", markersize=14, color=INK)
    table = _table(
        ("measure", "value", "needs"),
        [(row["measure"], number(row["value"], row["low"], row["high"]), row["limit"]) for row in rows],
    )
    return _frame(
        f"Certificate: {found.task}",
        str(found),
        inline(drawn, "Measures and limits."),
        _folded("Numbers", table),
    )


def cases(found: Cases) -> str:
    """The first cases of each bucket with their truth."""
    if not len(found):
        return _frame(repr(found), "")
    _, first = np.unique(found.group.cpu().numpy(), return_index=True)
    chosen = found[torch.as_tensor(np.sort(first)[:_CASES].copy())]
    return _frame(repr(found), repr(found.truth), Markup(show(None, chosen)._repr_html_()))


def differences(found: Differences) -> str:
    """Every difference with its interval and test."""
    parts: list[Markup] = []
    base = str(found.runs[0]["label"])
    for name, table in found.table.groupby("run", sort=False):
        drawn = compared.figure(table, base, str(name), found.higher_is_better)
        parts.append(inline(drawn, f"{name} against {base}; the table below has the numbers."))
        rows = [
            (
                row["method"],
                f"{row['first']:.3f}",
                f"{row['second']:.3f}",
                number(row["difference"], row["low"], row["high"]),
                compared.p_words(row["holm"]),
                compared.verdict(row),
                f"{row['wins']} : {row['losses']}",
            )
            for row in table.to_dict("records")
        ]
        head = ("method", base, str(name), "difference", "p (Holm)", "verdict", "won : lost")
        parts.append(_table(head, rows))
    parts.append(
        Markup("<ul>{}</ul>").format(Markup("").join(Markup("<li>{}</li>").format(n) for n in found.notes))
    )
    return _frame(f"{found.metric} of {len(found.runs)} runs", found.sentence(), *parts)


def alignment(found: Alignment) -> str:
    """Scores beside chance, and pictures of what was marked and shown."""
    facts = found.facts
    rows = [
        (
            row["metric"],
            number(row["value"], row["low"], row["high"]),
            number(row["random"], nan, nan),
            number(row["centre"], nan, nan),
        )
        for row in found.table().to_dict("records")
    ]
    parts = [_table(("score", "mean", "random", "centre"), rows)]
    thumbnails = []
    for entry in list(found.pictures)[:_THUMBNAILS]:
        row = found.scores.loc[entry["row"]]
        words = ", ".join(f"{name} {number(row[name], nan, nan, 2)}" for name in found.metrics[:1])
        thumbnails.append(
            Markup(
                '<figure style="display:inline-block;margin:0.2em;width:150px;vertical-align:top">'
                '<img src="{}" alt="{}" style="width:150px">'
                '<figcaption style="font-size:0.8em">{}<br>{}</figcaption>'
                "</figure>"
            ).format(leaflets.uri(_marked(entry), "png"), str(row["id"]), short(str(row["id"]), 24), words)
        )
    if thumbnails:
        parts += [Markup("<div>{}</div>").format(Markup("").join(thumbnails))]
        words = "Blue line: marked by people. Orange dashes: shown by the map; the rest is dimmed."
        parts += [Markup("<p>{}</p>").format(words)]
    said = " ".join([*overlaps.warnings(found), aligned.verdict(found)])
    return _frame(f"{facts.get('model')} on {facts.get('data')}: {len(found)} images", said, *parts)


def _marked(entry: Any) -> bytes:
    """A thumbnail with the outlines of what was marked and of what is shown; the rest is dimmed."""
    image = Image.open(io.BytesIO(base64.b64decode(entry["image"]))).convert("RGB")
    image = image.resize((300, round(300 * image.height / image.width)), Image.Resampling.NEAREST)
    pixels = np.array(image)
    down, across = np.indices(pixels.shape[:2])
    dashes = (down + across) // 5 % 3 < 2
    marked, shown = (_region(entry, name, image.size) for name in ("marked", "shown"))
    pixels[~shown] = (pixels[~shown] * _DIM).astype(np.uint8)
    for region, colour, where in ((shown, reports.AVOID, dashes), (marked, FOCUS, dashes | True)):
        edge = gallery.outline(region, 5, holes=True)  # a map may show all but a hole
        pixels[edge & where] = tuple(bytes.fromhex(colour[1:]))
    return gallery.png(pixels)


def _region(entry: Any, name: str, size: tuple[int, int]) -> NDArray[np.bool_]:
    """A region of a thumbnail, in the size of its picture."""
    high, wide = entry["size"]
    bits = np.unpackbits(np.frombuffer(base64.b64decode(entry[name]), np.uint8))[: high * wide]
    mask = Image.fromarray(bits.reshape(high, wide) * 255).resize(size, Image.Resampling.NEAREST)
    region: NDArray[np.bool_] = np.asarray(mask) > 0
    return region
