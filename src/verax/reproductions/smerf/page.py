"""The claims page: what the paper says, what was measured, and the verdict; HTML, JSON, CSV, Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from verax.files import make_folder, write_atomically
from verax.reproductions import pages
from verax.reproductions.claims import Finding, counts, plain, tally
from verax.reproductions.smerf import claims, paper, tables
from verax.reproductions.smerf.claims.base import VERDICTS, Claim
from verax.reproductions.smerf.measurements import Measurements, measure
from verax.version import __version__

TEMPLATES = Path(__file__).parent / "templates"
JSON, HTML, CSV, MARKDOWN = "claims.json", "claims.html", "comparison.csv", "claims.md"
BEGIN, END = "<!-- claims:begin -->", "<!-- claims:end -->"
COMMAND = "verax reproduce smerf"
FIRST_LOOK = (
    "A first look (--quick): shipped networks and few pictures. Numbers and verdicts are not those of the "
    "reproduction."
)
CITATION = 'Kim, Plumb and Talwalkar, "Sanity Simulations for Saliency Methods", ICML 2022'
Findings = Sequence[tuple[Claim, Finding]]


def write(
    folder: str | Path,
    scores: pd.DataFrame | Measurements,
    *,
    command: str = COMMAND,
    figures: str = "",
    **options: Any,
) -> dict[str, Path]:
    """Decide all claims and write claims.json, claims.html, comparison.csv and claims.md.

    Args:
        folder: where to.
        scores: long table of a run with the published protocol, or measurements made from it.
        command: what made the run, for the reader.
        figures: a page to link to, which has them.
        options: of `Measurements`.

    Returns:
        Name of the file -> its path.
    """
    measured = measure(scores, **options)
    found = claims.evaluate(measured)
    table = tables.comparison(measured)
    head = tables.headline(measured, table)
    files = {
        JSON: json.dumps(as_json(found, head, measured, command), indent=2, allow_nan=False) + "\n",
        HTML: as_html(found, table, head, measured, command, figures),
        CSV: table.to_csv(index=False, float_format="%.4f"),
        MARKDOWN: as_markdown(found, table, head, measured, command),
    }
    target = make_folder(Path(folder))
    for name, text in files.items():
        write_atomically(target / name, text.encode())
    return {name: target / name for name in files}


def sentence(head: tables.Headline) -> str:
    """The headline figure in words."""
    if not head.numbers:
        return "The run has none of the forty numbers of Figure 2 and its AFL twin."
    reached = "reaches" if head.reached else "misses"
    return (
        f"Over {head.numbers} of the forty numbers of Figure 2 and its AFL twin the mean absolute difference "
        f"to the paper is {head.value:.3f} [{head.low:.3f}, {head.high:.3f}], which {reached} the target of "
        f"{tables.TARGET:g}. {head.inside} of them lie within our interval and the paper's reading error."
    )


def as_json(found: Findings, head: tables.Headline, measured: Measurements, command: str) -> dict[str, Any]:
    """Everything about the claims in plain values; what is not a number is null."""
    return {
        "paper": CITATION,
        "command": command,
        "verax": __version__,
        "networks": measured.networks,
        "backgrounds": sorted(measured.scores),
        "seeds": measured.seeds,
        "headline": {**plain(asdict(head)), "target": tables.TARGET, "reached": head.reached},
        "verdicts": counts(found),
        "claims": [plain(claim.as_row(finding)) for claim, finding in found],
    }


# -- the forty numbers -------------------------------------------------------------------------------------


def forty(table: pd.DataFrame) -> tuple[list[str], list[tuple[str, list[dict[str, Any]]]]]:
    """The forty numbers as a table: column titles, and for each method its four cells."""
    rows = table[table["headline"]]
    columns = [(metric, family) for metric in ("pafl", "piou") for family in ("simple", "complex")]
    lines = []
    for method in paper.methods("ten"):
        cells = []
        for metric, family in columns:
            match = rows[(rows["method"] == method) & (rows["metric"] == metric) & (rows["family"] == family)]
            cells.append(match.iloc[0].to_dict())
        lines.append((method, cells))
    return [f"{metric.upper()}, {family}" for metric, family in columns], lines


def scatter(table: pd.DataFrame) -> list[dict[str, float | str]]:
    """Points of the picture paper against ours, in a square of 100 units; headline numbers are marked."""
    rows = table[table["ours"].notna() & (table["statistic"] != "std") & (table["relation"] == "equals")]
    points: list[dict[str, float | str]] = []
    for row in rows.sort_values("headline", kind="stable").to_dict("records"):
        ours = row["drawn"] if "NaN drawn" in row["note"] else row["ours"]
        text = f"{row['method']}, {row['metric'].upper()} {row['family']} ({row['figure']})"
        kind = "head" if row["headline"] else "other"
        points.append(
            {
                "x": 100 * row["paper"],
                "y": 100 * (1 - min(ours, 1.0)),
                "low": 100 * (1 - max(row["low"], 0.0)),
                "high": 100 * (1 - min(row["high"], 1.0)),
                "kind": kind,
                "text": f"{text}: paper {row['paper']:.2f}, ours {ours:.2f}",
            }
        )
    return points


# -- pages -------------------------------------------------------------------------------------------------


def as_html(
    found: Findings,
    table: pd.DataFrame,
    head: tables.Headline,
    measured: Measurements,
    command: str,
    page: str = "",
) -> str:
    """One page that needs no network and no scripts."""
    environment = pages.environment(TEMPLATES)
    environment.filters["two"] = lambda value: "–" if pd.isna(value) else f"{value:.2f}"
    environment.filters["signed"] = lambda value: "–" if pd.isna(value) else f"{value:+.2f}"
    columns, lines = forty(table)
    chapters = [
        (chapter.topic, [(c, f) for c, f in found if c.topic == chapter.topic]) for chapter in claims.CHAPTERS
    ]
    figures = [
        (str(name), rows.to_dict("records"), int((rows["state"] == tables.INSIDE).sum()))
        for name, rows in table[table["state"] != tables.MISSING].groupby("figure", sort=False)
    ]
    return environment.get_template("claims.html.j2").render(
        css=pages.css(TEMPLATES / "claims.css"),
        citation=CITATION,
        command=command,
        first_look=FIRST_LOOK if command.endswith("--quick") else "",
        figures_page=page,
        version=__version__,
        chapters=chapters,
        tally=tally(claim.as_row(finding) for claim, finding in found),
        meanings=VERDICTS,
        sentence=sentence(head),
        head=head,
        target=tables.TARGET,
        columns=columns,
        lines=lines,
        points=scatter(table),
        figures=figures,
        missing=int((table["state"] == tables.MISSING).sum()),
        total=len(table),
        seeds=measured.seeds,
        networks=measured.networks,
        backgrounds=sorted(measured.scores),
    )


def as_markdown(
    found: Findings, table: pd.DataFrame, head: tables.Headline, measured: Measurements, command: str
) -> str:
    """The same in short, for the documentation: counts, claims, and the forty numbers."""
    rows = [plain(claim.as_row(finding)) for claim, finding in found]
    roles = ", ".join(
        f"{role} = {', '.join(dict.fromkeys(by.values()))}" for role, by in measured.networks.items()
    )
    lines = [
        f"Made by `{command}` with verax {__version__}; networks: {roles}; training seeds: {measured.seeds}; "
        f"backgrounds: {', '.join(sorted(measured.scores))}.",
        "",
        *([f"**{FIRST_LOOK}**", ""] if command.endswith("--quick") else []),
        f"{counted(rows)} {sentence(head)}",
        "",
        "### The forty numbers",
        "",
        "Each cell: paper → ours [95 % interval]; **bold** where the two do not meet.",
        "",
    ]
    titles, cells = forty(table)
    lines += ["| method | " + " | ".join(titles) + " |", "|---" * (len(titles) + 1) + "|"]
    lines += [f"| {_cell(method)} | " + " | ".join(map(_compared, four)) + " |" for method, four in cells]
    return "\n".join(lines) + "\n\n" + listed(rows)


def counted(rows: Sequence[Mapping[str, Any]]) -> str:
    """How many claims there are of each verdict, in Markdown."""
    return f"**{len(rows)} claims: {', '.join(tally(rows).values())}.**"


def listed(rows: Sequence[Mapping[str, Any]]) -> str:
    """Claims as they are in claims.json, a table for each topic, in Markdown."""
    lines = []
    for topic in dict.fromkeys(row["topic"] for row in rows):
        head = ["| the paper says | measured | holds if | verdict |", "|---|---|---|---|"]
        lines += [f"### {topic}", "", *head]
        for row in rows:
            if row["topic"] == topic:
                doubt = " (uncertain)" if row["uncertain"] else ""
                says = f"{row['says']} *({row['where']})*"
                words = [*map(_cell, (says, row["measured"], row["rule"])), f"**{row['verdict']}**{doubt}"]
                lines.append(f"| {' | '.join(words)} |")
        lines.append("")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*G", "\\*G").replace("\n", " ")


def _compared(cell: dict[str, Any]) -> str:
    if cell["state"] == tables.MISSING:
        return f"{cell['paper']:.2f} → –"
    if "NaN drawn" in cell["note"]:
        text = f"NaN → {cell['ours']:.2f} (drawn {cell['drawn']:.2f})"
    else:
        text = f"{cell['paper']:.2f} → {cell['ours']:.2f} [{cell['low']:.2f}, {cell['high']:.2f}]"
    return text if cell["state"] == tables.INSIDE else f"**{text}**"
