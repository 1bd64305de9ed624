"""`reproduce`: train, certify, explain, score, draw, decide, and write a page that shows it all."""

from __future__ import annotations

import base64
import json
import re
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from verax import progress
from verax.files import make_folder, write_atomically
from verax.reports import png, svg
from verax.reproductions import claims as shared
from verax.reproductions import explorers, pages
from verax.reproductions.claims import VERDICTS, Finding, counts, plain, tally
from verax.reproductions.outputs import Phases, check_output
from verax.reproductions.sst import claims, study, tables
from verax.reproductions.sst.claims.base import Claim
from verax.reproductions.sst.evidence import Evidence
from verax.reproductions.sst.figures import CATALOGUE, Entry
from verax.reproductions.sst.study import FULL, SMALL, Options
from verax.reproductions.workers import Crew
from verax.version import __version__

TEMPLATES = Path(__file__).parent / "templates"
COMMAND = "verax reproduce sst"
CITATION = (
    "Mamalakis, Ebert-Uphoff and Barnes, “Neural network attribution methods for problems in geoscience: A "
    "novel synthetic benchmark dataset”, Environmental Data Science 2022, doi 10.1017/eds.2022.7"
)
JSON, MARKDOWN, INDEX = "claims.json", "claims.md", "index.html"
Findings = list[tuple[Claim, Finding]]
MEANINGS = {
    **VERDICTS,
    shared.CANNOT: "it is settled by construction: no measurement could have had another answer.",
    shared.UNTESTABLE: "the run does not have the field, the published network or the network that it needs.",
}


@dataclass(frozen=True)
class Shown:
    """A figure on the page."""

    entry: Entry
    note: str
    picture: str


def draw(evidence: Evidence, out: Path, quiet: bool = False) -> list[Shown]:
    """Draw the figures as SVG and PNG under ``figures/``."""
    shown = []
    with progress.bar(hidden=quiet) as bar:
        row = bar.add_task("drawing", total=len(CATALOGUE))
        for entry in CATALOGUE:
            bar.update(row, description=f"drawing figure {entry.number}")
            figure = entry.draw(evidence)
            figure.draw_without_rendering()
            figure.set_layout_engine("none")  # laid out once, not again for every format
            vector = svg(figure)
            write_atomically(out / "figures" / f"{entry.file}.svg", vector)
            write_atomically(out / "figures" / f"{entry.file}.png", png(figure, 130))
            picture = "data:image/svg+xml;base64," + base64.b64encode(vector).decode()
            shown.append(Shown(entry, entry.note(evidence), picture))
            bar.advance(row)
    return shown


def write_tables(found: dict[str, pd.DataFrame], evidence: Evidence, out: Path) -> None:
    """All tables as CSV under ``tables/``, and how far methods agree on the published network."""
    for title, table in found.items():
        name = re.sub(r"[^a-z]+", "-", title.lower()).strip("-")
        write_atomically(out / "tables" / f"{name}.csv", table.to_csv(index=False).encode())
    write_atomically(out / "tables" / "functions.csv", evidence.spread.to_csv(index=False).encode())
    if evidence.published is not None:
        between = evidence.published.between.to_csv(float_format="%.4f")
        write_atomically(out / "tables" / "published-between.csv", between.encode())


def notice(options: Options) -> str:
    """What a reader must know before the verdicts; empty where there is nothing."""
    if options.samples >= SMALL:
        return ""
    return (
        f"A first look: networks that saw {options.samples:,} samples know little of F, and the verdicts "
        "about them and their maps are not those of the reproduction."
    )


def about(evidence: Evidence, options: Options) -> str:
    """What was run, in sentences."""
    task = evidence.task
    kind = "COBE-SST2, 1950 to 2019, pre-processed as published"
    if "cobe" not in task.name:
        kind = (
            "the analytic field that comes with verax, because COBE-SST2 is not here: its correlations are "
            "made up, so that numbers are not those of the paper's field"
            if options.field == "auto"
            else "the analytic field that comes with verax, not the paper's"
        )
    words = [
        f"Field: {kind}; {task.features} cells. F has seed {options.function}.",
        f"Networks saw {task.count:,} samples{'' if task.count >= FULL else ' (the paper: a million)'}; "
        f"{options.explained:,} others are explained (the paper: 100,000).",
    ]
    if evidence.behaviour is None:
        words.append("The published network is not here.")
    words.append("Intervals are 95 % bootstrap intervals over samples: they know nothing of another F.")
    return " ".join(words)


def command(options: Options) -> str:
    """The command that makes this run."""
    words = f"{COMMAND} --samples {options.samples} --explained {options.explained}"
    usual = Options()
    for name in ("field", "function", "functions", "seed"):
        if getattr(options, name) != getattr(usual, name):
            words += f" --{name} {getattr(options, name)}"
    return f"{words} --published-recipe" if options.recipe else words


def as_json(found: Findings, evidence: Evidence, options: Options) -> dict[str, Any]:
    """Everything about the claims in plain values."""
    behaviour = dict(evidence.behaviour.rows()) if evidence.behaviour is not None else None
    return {
        "paper": CITATION,
        "command": command(options),
        "verax": __version__,
        "about": about(evidence, options),
        "task": evidence.task.name,
        "published_network": behaviour,
        "r2": {f"{network} ({which})": value[0] for (network, which), value in evidence.fits.items()},
        "verdicts": counts(found),
        "claims": [plain(claim.as_row(finding)) for claim, finding in found],
    }


def as_markdown(
    found: Findings, listed: dict[str, pd.DataFrame], evidence: Evidence, options: Options
) -> str:
    """Tables and claims in short, for the documentation."""
    numbers = ", ".join(f"{count} {verdict}" for verdict, count in counts(found).items())
    lines = [
        f"Made by `{command(options)}` with verax {__version__}. {about(evidence, options)}",
        "",
        f"**{len(found)} claims: {numbers}.**",
    ]
    for title, table in listed.items():
        lines += ["", f"### {title}", "", "| " + " | ".join(map(str, table.columns)) + " |"]
        lines.append("|---" * len(table.columns) + "|")
        lines += ["| " + " | ".join(_cell(str(v)) for v in row) + " |" for row in table.to_numpy()]
    for chapter in claims.CHAPTERS:
        lines += ["", f"### {chapter.topic}", "", "| claim | measured | verdict |", "|---|---|---|"]
        for claim, finding in found:
            if claim.topic == chapter.topic:
                doubt = " (uncertain)" if finding.uncertain else ""
                says = f"{claim.says} *({claim.where})*"
                lines.append(f"| {_cell(says)} | {_cell(finding.measured)} | **{finding.verdict}**{doubt} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def write_page(
    out: Path,
    found: Findings,
    shown: list[Shown],
    listed: dict[str, pd.DataFrame],
    evidence: Evidence,
    options: Options,
) -> Path:
    """One page that needs nothing else."""
    chapters = [
        (c.topic, [(claim, f) for claim, f in found if claim.topic == c.topic]) for c in claims.CHAPTERS
    ]
    failures = [
        f"{failure['unit']}: {failure['reason']}" for run in evidence.runs for failure in run.failures
    ]
    if evidence.published is not None:
        failures += [f"published network, {name}: {reason}" for name, reason in evidence.published.failures]
    html = (
        pages.environment(TEMPLATES)
        .get_template("index.html.j2")
        .render(
            css=pages.css(),
            citation=CITATION,
            command=command(options),
            version=__version__,
            about=about(evidence, options),
            notice=notice(options),
            tally=tally(claim.as_row(finding) for claim, finding in found),
            meanings=MEANINGS,
            chapters=chapters,
            shown=shown,
            tables={title: table.to_dict("split") for title, table in listed.items()},
            certificates=[c for run in evidence.runs for c in run.manifest.get("certificates", [])],
            failures=failures,
            hardware=evidence.runs[0].manifest["hardware"]["device"],
        )
    )
    path = out / INDEX
    write_atomically(path, html.encode())
    return path


def reproduce(options: Options, out: Path, crew: Crew) -> tuple[Path, Phases]:
    """Reproduce the paper into the folder `out`; gives the path of the page and how long each phase took.

    Finished work is kept in the store, so that running the same again does only what is missing.

    Args:
        options: what to reproduce.
        out: a folder.
        crew: who writes the reports of the runs.
    """
    check_output(out)
    make_folder(out / "runs")
    phases, began = Phases(), time.time()
    with phases.phase("training, explaining and scoring"):
        evidence = study.gather(options, out)
    with phases.phase("drawing"):
        shown = draw(evidence, out, options.quiet)
    with phases.phase("claims and page"), progress.status("Claims and the page", options.quiet):
        found = claims.evaluate(evidence)
        listed = tables.all_tables(evidence)
        write_tables(listed, evidence, out)
        text = json.dumps(as_json(found, evidence, options), indent=2, allow_nan=False) + "\n"
        write_atomically(out / JSON, text.encode())
        write_atomically(out / MARKDOWN, as_markdown(found, listed, evidence, options).encode())
        path = write_page(out, found, shown, listed, evidence, options)
    with phases.phase("explorers"):
        explorers.finish(explorers.begin(path, began, crew), options.quiet)
    report = {"options": {k: str(v) for k, v in asdict(options).items()}, "phases": phases.rows}
    write_atomically(out / "phases.json", (json.dumps(report, indent=2) + "\n").encode())
    return path, phases
