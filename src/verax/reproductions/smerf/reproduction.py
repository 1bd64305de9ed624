"""`reproduce`: train, certify, explain, score, draw, and write a page that shows it all."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from verax import progress
from verax.files import make_folder, write_atomically
from verax.reports import png, settle, svg
from verax.reproductions import explorers, pages
from verax.reproductions.claims import tally
from verax.reproductions.explorers import Explorers
from verax.reproductions.outputs import Phases, check_output
from verax.reproductions.smerf import page, study
from verax.reproductions.smerf.evidence import Evidence, kind
from verax.reproductions.smerf.figures import tables
from verax.reproductions.smerf.figures.catalogue import CATALOGUE, Entry
from verax.reproductions.smerf.paper_methods import SHORT, short
from verax.reproductions.smerf.study import Gathered, Options
from verax.reproductions.workers import Crew
from verax.version import __version__

PAGE = "index.html"
_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Shown:
    """A figure on the page."""

    entry: Entry
    note: str
    missing: str
    picture: str


Drawing = tuple[str, bytes, bytes]
"""The note, the SVG and the PNG of a figure."""


def _drawn(evidence: Evidence, place: int) -> Drawing:
    entry = CATALOGUE[place]
    assert entry.draw is not None
    figure = entry.draw(evidence)
    settle(figure)
    return entry.note(evidence) if entry.note is not None else "", svg(figure), png(figure, 130)


def begin_drawing(evidence: Evidence, crew: Crew) -> Iterator[tuple[int, Drawing]]:
    """Let a crew draw every figure that the evidence suffices for; each by its place in the catalogue."""
    places = [place for place, entry in enumerate(CATALOGUE) if not entry.lacking(evidence)]
    return crew.over(_drawn, evidence, places)


def keep(drawings: Iterable[tuple[int, Drawing]], evidence: Evidence, out: Path, quiet: bool) -> list[Shown]:
    """Write figures as SVG and PNG under ``figures/``, as they are drawn."""
    shown = {entry.number: Shown(entry, "", entry.lacking(evidence), "") for entry in CATALOGUE}
    with progress.bar(hidden=quiet) as bar:
        row = bar.add_task("drawing", total=sum(not one.missing for one in shown.values()))
        for place, (note, vector, pixels) in drawings:
            entry = CATALOGUE[place]
            write_atomically(out / "figures" / f"{entry.file}.svg", vector)
            write_atomically(out / "figures" / f"{entry.file}.png", pixels)
            picture = "data:image/svg+xml;base64," + base64.b64encode(vector).decode()
            shown[entry.number] = Shown(entry, note, "", picture)
            bar.update(row, description=f"drawing figure {entry.number}", advance=1)
    return [shown[entry.number] for entry in CATALOGUE]


def write_tables(evidence: Evidence, out: Path, samples: int) -> dict[str, pd.DataFrame]:
    """Tables 1 to 3 as CSV and Markdown under ``tables/``."""
    first = evidence.series[0]
    found = {
        "Table 1: settings": tables.settings(first.views),
        "Table 2: sizes": tables.sizes(first.views, samples),
        f"Table 3: accuracy in each bucket ({first.network})": tables.accuracies(first.views),
    }
    for number, table in enumerate(found.values(), 1):
        write_atomically(out / "tables" / f"table{number}.csv", table.to_csv(index=False).encode())
        write_atomically(out / "tables" / f"table{number}.md", tables.markdown(table).encode())
    return found


def write_scores(gathered: Gathered, out: Path) -> None:
    """All scores in one table, with the background in a column of its own."""
    series = [*gathered.evidence.series, gathered.evidence.sound]
    buffer, writer = io.BytesIO(), None
    with ExitStack() as stack:
        for one in series:
            if one is None:
                continue
            words = ("task", "network", "method", "protocol", "metric", "background")
            part = one.scores.assign(background=one.background).astype(dict.fromkeys(words, "category"))
            rows = pa.Table.from_pandas(part, preserve_index=False)
            if writer is None:
                named = pa.dictionary(pa.int32(), pa.string())
                fields = [f.with_type(named) if f.name in words else f for f in rows.schema]
                schema = pa.schema(fields, rows.schema.metadata)
                writer = stack.enter_context(pq.ParquetWriter(buffer, schema, compression="zstd"))
            writer.write_table(rows.select(schema.names).cast(schema))
    write_atomically(out / "scores.parquet", buffer.getvalue())


def claims_page(gathered: Gathered, options: Options, out: Path) -> list[str]:
    """Write the claims beside the figures; gives the files to link to, none without a black background."""
    series = gathered.evidence.series
    black = [_named(one.scores) for one in series if kind(one.background) == "black"]
    if not black:
        return []
    found = {kind(s.background): s for s in reversed(series)}  # of one kind the first counts, as in figures
    others = {word: _named(s.scores) for word, s in found.items() if word != "black"}
    certificates = [
        certificate | ({} if word == "black" else {"background": word})
        for run in gathered.runs
        for given in [run.manifest["study"]["background"]]
        for word in [kind(given)]
        if given == found[word].background
        for certificate in run.manifest.get("certificates", [])
    ]
    files = page.write(
        out,
        pd.concat(black, ignore_index=True),
        command=f"{page.COMMAND} --quick" if options.quick else page.COMMAND,
        backgrounds=others,
        certificates=certificates,
        identifiability=identifiability(gathered),
        renderer=options.renderer,
        figures=PAGE,
    )
    return sorted(map(str, files), key=lambda name: name != page.HTML)  # the one to read comes first


def identifiability(gathered: Gathered) -> dict[str, tuple[float, float, float, float]]:
    """Method -> how often its maps name the right reasoning, the interval, and chance."""
    found = [run.identification() for run in gathered.runs]
    rows = [row for read in found if read is not None for row in read.accuracy.to_dict("records")]
    return {
        short(row["method"]): (row["image"], row["image_low"], row["image_high"], row["chance"])
        for row in rows
    }


def _named(scores: pd.DataFrame) -> pd.DataFrame:
    """Scores with the paper's names of its methods."""
    names = {
        label: SHORT.get(label, label).replace("ε", "eps") for label in scores["method"].astype(str).unique()
    }
    return scores.assign(method=scores["method"].astype(str).map(names))


def write_index(
    out: Path,
    options: Options,
    gathered: Gathered,
    shown: list[Shown],
    found: dict[str, pd.DataFrame],
    links: list[str],
) -> Path:
    """One page that needs nothing else: figures in order, what the paper shows and what we see."""
    # both protocols of a network have the same certificates
    own = [one for run in gathered.runs for one in run.manifest.get("certificates", [])]
    certificates = list({json.dumps(one, sort_keys=True): one for one in own}.values())
    failures = [failure for run in gathered.runs for failure in run.failures]
    template = pages.environment(_TEMPLATES).get_template("index.html.j2")
    html = template.render(
        css=pages.css(),
        options=asdict(options),
        first_look=page.FIRST_LOOK,
        pairs=options.pairs,
        drawn=[s for s in shown if not s.missing],
        left=[s for s in shown if s.missing],
        tables={name: table.to_dict("split") for name, table in found.items()},
        certificates=certificates,
        failures=failures,
        hardware=gathered.runs[0].manifest["hardware"]["device"],
        links=links,
        tally=tally(json.loads((out / page.JSON).read_text())["claims"]) if links else {},
        files=[f"tables/table{number}.{end}" for number in range(1, len(found) + 1) for end in ("csv", "md")],
        version=__version__,
    )
    path = out / PAGE
    write_atomically(path, html.encode())
    return path


def reproduce(options: Options, out: Path, crew: Crew) -> tuple[Path, Phases]:
    """Reproduce the paper into the folder `out`; gives the path of the page and how long each phase took.

    Finished work is kept in the store, so that running the same again does only what is missing.

    Args:
        options: what to reproduce.
        out: a folder.
        crew: who draws the figures and writes the reports of the runs.
    """
    check_output(out)
    study.check(options)
    make_folder(out / "runs")
    phases, reports = Phases(), Explorers(out / PAGE, crew)
    crew.start()
    with phases.phase("training"):
        study.train_missing(options)
    with phases.phase("explaining and scoring"):
        gathered = study.gather(options, out, reports.add)
    drawings = begin_drawing(gathered.evidence, crew)
    words = progress.status("Tables and claims", options.quiet)
    with phases.phase("tables and claims"), words, crew.beside():
        found = write_tables(gathered.evidence, out, options.samples)
        write_scores(gathered, out)
        links = claims_page(gathered, options, out)
    with phases.phase("drawing"):
        shown = keep(drawings, gathered.evidence, out, options.quiet)
        path = write_index(out, options, gathered, shown, found, links)
    with phases.phase("explorers"):
        explorers.finish(reports, options.quiet)
    units = [unit for run in gathered.runs for unit in run.manifest["units"]]
    parts = {
        "certificates": sum(unit["seconds"] for unit in units if not unit["method"]),
        "explaining": sum(unit.get("explaining_seconds", 0) for unit in units),
        "scoring": sum(unit.get("scoring_seconds", 0) for unit in units),
    }
    report = {"phases": phases.rows, "within explaining and scoring": parts, "units": len(units)}
    write_atomically(out / "phases.json", (json.dumps(report, indent=2) + "\n").encode())
    return path, phases
