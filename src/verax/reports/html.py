"""The report: one page that needs no network and no server, and the same figures as files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from verax.errors import VeraxError
from verax.files import make_folder, write_atomically
from verax.metrics import METRICS
from verax.networks.wired import WIRED
from verax.reports import (
    agreement,
    atlas,
    boards,
    charts,
    claims,
    evidence,
    faithfulness,
    figures,
    gallery,
    grids,
    identifiability,
    number,
    pages,
    promises,
    provenance,
    ranks,
    repetition,
    sheets,
    truths,
)
from verax.reports.digests import Digest
from verax.reports.verdicts import CEILINGS, disagreements, verdict
from verax.studies import manifests, tiers
from verax.studies.leaderboards import HEADLINES, PAIRS, SKILLED, pairs
from verax.studies.runs import REPORT

if TYPE_CHECKING:
    from verax.studies.runs import Run


def _success(digest: Digest, album: figures.Album, shelf: charts.Shelf) -> list[dict[str, Any]]:
    run, methods = digest.run, digest.methods()
    present = pairs(run.contents, "task", "method")
    parts = []
    for protocol in [name for name in digest.protocols if name in PAIRS]:
        try:
            table = run.success_map(protocol)
        except VeraxError:
            continue  # nothing to avoid in any task
        tasks = [task for task in run.families if task in set(table["task"].unique())]
        if not tasks:
            continue
        missing = {(task, method) for task in tasks for method in methods} - present
        drawn = figures.success(table, methods, tasks, missing)
        album.add(f"success-{protocol}", drawn)
        title = f"{protocol} protocol"
        made = grids.success(f"success-{protocol}", title, table, methods, tasks, missing)
        found = {(str(row["task"]), str(row["method"])): row for row in table.to_dict("records")}
        rows = []
        for task, method in [(task, method) for task in tasks for method in methods]:
            row = found[task, method]
            known = (task, method) not in missing
            text = number(row["success"], row["success_low"], row["success_high"], 2) if known else "–"
            failure = number(row["failure"], row["failure_low"], row["failure_high"], 2) if known else "–"
            rows.append(
                {
                    "task": task,
                    "method": method,
                    "buckets": row["buckets"],
                    "success": text,
                    "failure": failure,
                }
            )
        parts.append({"protocol": protocol, "charts": [shelf.add(chart) for chart in made], "rows": rows})
    return parts


def _shares(digest: Digest, album: figures.Album, shelf: charts.Shelf) -> list[charts.Chart]:
    parts = []
    for family, tasks in digest.families.items():
        board = digest.boards.get(("sound", family))
        if board is not None:
            means = figures.share_means(digest.run.some(figures.SHARES), tasks)
            album.add(f"shares-{family}", figures.shares(means, board))
            title, order = f"Where the mass lies, {family} tasks", [str(name) for name in board["method"]]
            parts.append(shelf.add(charts.shares(f"shares-{family}", title, means, order)))
    return parts


def _stills(digest: Digest, album: figures.Album) -> None:
    """Put pictures of the gallery into the folder of figures, for papers and for readers without scripts."""
    for panel in gallery.panels(digest.run):
        if panel.rows:
            album.add(f"gallery-{panel.task}", gallery.figure(panel), dpi=110)
    for chart in atlas.charts(digest.run):
        album.add(f"atlas-{chart.task}-{chart.sample}", atlas.figure(chart), dpi=110)


def context(run: Run, album: figures.Album, cut: sheets.Album) -> dict[str, Any]:
    """Everything that the page shows; figures and sheets of maps go into albums on the way."""
    everything, whole = run, run.manifest
    manifests.check_report(whole, str(run.folder))
    shelf = charts.Shelf()
    (first, run), *rest = run.by_tier()
    digest = Digest.of(run)
    manifest = run.manifest
    both = {"sound", "published"} <= set(digest.protocols)
    knowing = digest.main if digest.main in SKILLED else ""
    truth = {family: board for (name, family), board in digest.boards.items() if name == knowing}
    failed = [str(failure["method"]) for failure in run.failures if failure.get("method")]
    own = provenance.own(manifest)
    said = {
        family: verdict(
            digest.boards.get((digest.main, family)),
            family,
            digest.main,
            failed,
            own,
            digest.tests.get(family),
        )
        for family in digest.families
    }
    main = boards.parts(digest, digest.main, album, shelf)
    published = boards.parts(digest, "published", album, shelf) if both else []
    hero = boards.hero(digest, main, published, shelf)
    _stills(digest, album)
    line, study_file = repetition.repeat(whole)
    bar = gallery.levels(np.linspace(-1, 1, 201)[None].repeat(8, 0))
    shown = {
        "manifest": {**manifest, "networks": whole["networks"], "certificates": whole["certificates"]},
        "study": manifest["study"],
        "about": repetition.about(manifest["study"]),
        "trained": any(entry["network"] != WIRED for entry in manifest["networks"]),
        "trainings": len({entry["seed"] for entry in manifest["networks"]}),
        "main": digest.main,
        "headline": HEADLINES[digest.main],
        "verdict": said.pop(digest.headline),
        "others": list(said.values()),
        "uncertified": agreement.uncertified(manifest),
        "data_notes": agreement.data_notes(manifest),
        "facts": provenance.facts(digest, everything),
        "boards": boards.without(main, hero),
        "hero": hero,
        "slope": boards.slope(digest, shelf),
        "profile": boards.profile(digest, shelf),
        "tiers": boards.other_tiers(rest, digest.main),
        "ranks": ranks.parts(digest.tests, digest.main, album, shelf),
        "own_metrics": boards.own(everything, shelf),
        "truths": [
            {**part, "note": tiers.words(tier) if rest else ""}
            for tier, of_tier in [(first, run), *rest]
            for part in truths.parts(of_tier, list(digest.families))
        ],
        "identified": identifiability.part(everything, album),
        "published": published,
        "disagreements": disagreements(digest.boards, run.some(CEILINGS), run.families) if both else [],
        "faithfulness": faithfulness.parts(run, list(digest.families), digest.methods(), truth),
        "promises": promises.rows(manifest),
        "alarms": promises.alarms(manifest),
        "success": _success(digest, album, shelf),
        "shares": _shares(digest, album, shelf),
        "measures": agreement.parts(run, list(digest.families), album),
        "fitted": agreement.networks(everything),
        "consistency": agreement.consistency(everything),
        "fits": [evidence.fit(entry) for entry in whole["certificates"] if "r2" in entry],
        "doubts": evidence.doubts([entry for entry in whole["certificates"] if "r2" not in entry]),
        "followed": [evidence.followed(entry) for entry in whole["certificates"] if "r2" not in entry],
        "bar": figures.uri("png", gallery.png(bar)),
        "methods": provenance.methods(manifest),
        "own_tasks": provenance.own_tasks(manifest),
        "own": provenance.own_methods(manifest),
        "command": line,
        "study_file": study_file,
    }
    viewer = sheets.sheets(everything, digest.methods(), digest.main, cut)
    higher = METRICS.get(HEADLINES[digest.main]).higher_is_better
    return {
        **shown,
        "gallery": bool(viewer["sheets"]),
        "pictured": any(sheet["globe"] is None for sheet in viewer["sheets"]),
        "charted": bool(viewer["globes"]),
        "data": {
            "charts": shelf.data(),
            **viewer,
            "higher": higher,
            "first": digest.families[digest.headline][0],
        },
    }


@dataclass(frozen=True)
class Draft:
    """A report that lacks only the claims of the reproduction that its run belongs to.

    Attributes:
        shown: what the page shows.
        files: whether maps lie beside the page.
    """

    shown: dict[str, Any]
    files: bool


def draft(run: Run) -> Draft:
    """Write ``figures/`` into the folder of a run, and gather everything for its page."""
    album = figures.Album(make_folder(run.folder / figures.FOLDER))
    cut = sheets.Album(run.folder)
    shown = context(run, album, cut)
    album.tidy()
    cut.tidy()
    return Draft(shown, bool(cut.files))


def publish(folder: Path, done: Draft) -> Path:
    """Write ``report.html``, and give its path."""
    shown = {**done.shown, "reproduced": claims.part(folder)}
    page = pages.page("report.html.j2", shown, scripts=("sideways.js", "explorer.js"), files=done.files)
    write_atomically(folder / REPORT, page.encode())
    return folder / REPORT


def write(run: Run) -> Path:
    """Write ``figures/`` and ``report.html`` into the folder of a run.

    Returns:
        The path of ``report.html``.
    """
    return publish(run.folder, draft(run))
