"""`run`: gather the evidence of an experiment, decide its claims, draw, and write a page."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from verax import progress
from verax.errors import MissingFile, UnknownName, suggestion
from verax.files import make_folder, write_atomically
from verax.reports import png, svg
from verax.reproductions import pages
from verax.reproductions.alignment.base import Claim, Experiment
from verax.reproductions.alignment.catalogue import CATALOGUE
from verax.reproductions.alignment.drawing import Drawn
from verax.reproductions.alignment.measuring import Evidence
from verax.reproductions.alignment.options import Options
from verax.reproductions.claims import VERDICTS, Finding, counts, plain, tally
from verax.reproductions.outputs import Phases
from verax.version import __version__

TEMPLATES = Path(__file__).parent / "templates"
CITATION = (
    "Bang, Boggust and Satyanarayan, “Explanation Alignment: Quantifying the Correctness of Model Reasoning"
    " At Scale”, ECCV 2024 workshops"
)
EXPERIMENTS = {found.name: found for found in CATALOGUE}
FIRST_LOOK = (
    "A first look (--quick): so few images, and so little training, that networks may have learnt nothing"
    " and the verdicts say little."
)
JSON, INDEX = "claims.json", "index.html"
Findings = list[tuple[Claim, Finding]]


def experiment(name: str) -> Experiment:
    """An experiment by its name, with or without ``alignment-``."""
    full = name if name.startswith("alignment-") else f"alignment-{name}"
    if full not in EXPERIMENTS:
        raise UnknownName(f"There is no experiment named {name!r}{suggestion(full, EXPERIMENTS)}")
    return EXPERIMENTS[full]


@dataclass
class Done:
    """A finished experiment.

    Attributes:
        experiment: which one.
        evidence: what it found.
        findings: claims with verdicts.
        tables: title -> table.
        page: where it can be read.
        phases: how long each phase took.
    """

    experiment: Experiment
    evidence: Evidence
    findings: Findings
    tables: dict[str, pd.DataFrame]
    page: Path
    phases: Phases


def run(name: str, options: Options | None = None, out: Path | None = None) -> Done:
    """Run one experiment into a folder (default: ``runs/NAME``)."""
    chosen, options = experiment(name), options or Options()
    folder = Path("runs") / chosen.name if out is None else out
    if folder.is_dir() and any(folder.iterdir()) and not (folder / JSON).is_file():
        raise MissingFile(f"The folder {str(folder)!r} holds other things; name an empty one.")
    make_folder(folder)
    phases = Phases()
    with phases.phase("training, explaining and scoring"):
        evidence = chosen.gather(options)
        if options.quick:
            evidence.facts["notice"] = FIRST_LOOK
    with phases.phase("claims and page"), progress.status("Claims and the page", options.quiet):
        found = [(claim, claim.evaluate(evidence)) for claim in chosen.chapter.claims]
        listed = chosen.tables(evidence)
        drawn = chosen.figures(evidence)
        _write_tables(listed, evidence, folder)
        path = _page(chosen, evidence, found, listed, drawn, folder)
        text = json.dumps(as_json(chosen, evidence, found), indent=2, allow_nan=False) + "\n"
        write_atomically(folder / JSON, text.encode())
    return Done(chosen, evidence, found, listed, path, phases)


def as_json(chosen: Experiment, evidence: Evidence, found: Findings) -> dict[str, Any]:
    """The claims in plain values."""
    return {
        "paper": CITATION,
        "experiment": chosen.name,
        "verax": __version__,
        "about": evidence.facts["about"],
        "verdicts": counts(found),
        "claims": [plain(claim.as_row(finding)) for claim, finding in found],
    }


def _write_tables(listed: dict[str, pd.DataFrame], evidence: Evidence, folder: Path) -> None:
    for title, table in listed.items():
        name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
        write_atomically(folder / "tables" / f"{name}.csv", table.to_csv(index=False).encode())
    if len(evidence.rows):
        write_atomically(folder / "rows.csv.gz", _packed(evidence.rows))


def _packed(rows: pd.DataFrame) -> bytes:
    return gzip.compress(rows.to_csv(index=False, float_format="%.5g").encode(), 1, mtime=0)


def _page(
    chosen: Experiment,
    evidence: Evidence,
    found: Findings,
    listed: dict[str, pd.DataFrame],
    drawn: Sequence[Drawn],
    folder: Path,
) -> Path:
    pictures = []
    for each in drawn:
        vector = svg(each.figure)
        write_atomically(folder / "figures" / f"{each.file}.svg", vector)
        pixels = png(each.figure, 110)
        write_atomically(folder / "figures" / f"{each.file}.png", pixels)
        small = vector if len(vector) < len(pixels) else pixels
        kind = "svg+xml" if small is vector else "png"
        pictures.append((each, f"data:image/{kind};base64,{base64.b64encode(small).decode()}"))
    html = (
        pages.environment(TEMPLATES)
        .get_template("index.html.j2")
        .render(
            css=pages.css(),
            citation=CITATION,
            experiment=chosen,
            version=__version__,
            about=evidence.facts["about"],
            notice=evidence.facts.get("notice", ""),
            tally=tally(claim.as_row(finding) for claim, finding in found),
            meanings=VERDICTS,
            chapters=[(chosen.chapter.topic, found)],
            pictures=pictures,
            tables={title: table.to_dict("split") for title, table in listed.items()},
        )
    )
    path = folder / INDEX
    write_atomically(path, html.encode())
    return path
