"""The report: one page that needs no network and no scripts, and the same figures as files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import numpy as np
import pandas as pd

from verax import reports
from verax.errors import VeraxError
from verax.files import make_folder, write_atomically
from verax.reports import (
    agreement,
    atlas,
    faithfulness,
    figures,
    gallery,
    identifiability,
    number,
    promises,
    ranks,
    truths,
)
from verax.reports.repetition import command
from verax.reports.verdicts import CEILINGS, Boards, disagreements, verdict
from verax.studies import tiers
from verax.studies.leaderboards import HEADLINES, PAIRS, SKILLED, SUCCESS, pairs
from verax.studies.runs import REPORT

if TYPE_CHECKING:
    from verax.studies.runs import Run

TEMPLATES = Path(__file__).parent / "templates"
_HEADLINE = "complex"


@dataclass(frozen=True)
class Digest:
    """A run with the tables that several parts need, each computed once."""

    run: Run
    boards: Boards
    protocols: list[str]
    families: dict[str, list[str]]

    @classmethod
    def of(cls, run: Run) -> Digest:
        """Read a run."""
        protocols = [name for name in HEADLINES if name in run.protocols]
        # the other truths have a section of their own
        protocols = [name for name in protocols if ":" not in name] or protocols
        families: dict[str, list[str]] = {}
        for task, family in run.families.items():
            families.setdefault(family, []).append(task)
        boards: Boards = {}
        for protocol in protocols:
            for family in families:
                try:
                    boards[protocol, family] = run.leaderboard(protocol, family=family)
                except VeraxError:
                    continue  # every method failed somewhere in this family
        return cls(run, boards, protocols, families)

    @property
    def main(self) -> str:
        """The protocol that the verdict follows."""
        return self.protocols[0]

    @property
    def headline(self) -> str:
        """The family that the verdict is about."""
        return _HEADLINE if _HEADLINE in self.families else next(reversed(self.families))

    def methods(self) -> list[str]:
        """Methods by their rank on the headline family, then controls, then the oracle."""
        board = self.boards.get((self.main, self.headline))
        ordered = [] if board is None else [str(name) for name in board["method"]]
        ordered += [name for name in self.run.methods if name not in ordered]
        return sorted(ordered, key=lambda name: ("method", "control", "oracle").index(reports.kind(name)))


def board_rows(board: pd.DataFrame | None, labels: Sequence[str]) -> list[dict[str, str]]:
    """A leaderboard as text, with a row for each of `labels` that gave nothing."""
    rows = []
    for row in [] if board is None else board.to_dict("records"):
        rows.append(
            {
                "rank": "" if pd.isna(row["rank"]) else str(row["rank"]),
                "method": str(row["method"]),
                "kind": reports.kind(str(row["method"])),
                "mean": number(row["value"], row["low"], row["high"]),
                "worst": number(row["worst"], row["worst_low"], row["worst_high"]),
                "skill": number(row["skill"], row["skill_low"], row["skill_high"]),
                "degenerate": str(row["degenerate"]),
                "tier": str(row["tier"] or "–"),
            }
        )
    there = {row["method"] for row in rows}
    blank = {
        "rank": "",
        "kind": "failed",
        "mean": "–",
        "worst": "–",
        "skill": "–",
        "degenerate": "–",
        "tier": "–",
    }
    return rows + [{**blank, "method": label} for label in labels if label not in there]


def _boards(digest: Digest, protocol: str, album: figures.Album) -> list[dict[str, Any]]:
    parts = []
    labels = [str(method["label"]) for method in digest.run.manifest["methods"]]
    for family, tasks in digest.families.items():
        board = digest.boards.get((protocol, family))
        part: dict[str, Any] = {
            "family": family,
            "rows": board_rows(board, labels),
            "note": "",
            "figure": None,
            "single": False,
        }
        if board is not None:
            used = int(board["buckets"].iloc[0])
            part["single"] = used == 1  # a worst bucket would only repeat the mean
            words = f"{used} bucket{'' if used == 1 else 's'}"
            part["note"] = f"{words} of {len(tasks)} {'task' if len(tasks) == 1 else 'tasks'}"
            part["note"] += f"; {tiers.words(int(board['tier'].iloc[0]))}"
            fit = agreement.fit_words(digest.run.manifest, tasks)
            part["note"] += f"; {fit}" if fit else ""
            incomplete = board.loc[board["value"].isna(), "method"]
            if len(incomplete):
                part["note"] += f"; without a rank, because they failed somewhere: {', '.join(incomplete)}"
            board = board.dropna(subset="value")
            sound = protocol == "sound"
            chance = figures.chance_level(digest.run.some(figures.CHANCE), tasks) if sound else None
            threshold = SUCCESS if protocol == "published" else None
            drawn = figures.leaderboard(board, figures.LABELS[protocol], chance=chance, threshold=threshold)
            alt = ", ".join(f"{m} {v:.2f}" for m, v in zip(board["method"], board["value"], strict=True))
            title = f"leaderboard-{protocol}-{family}"
            part["figure"] = album.add(title, drawn, f"Mean score on {family} tasks: {alt}.")
        parts.append(part)
    return parts


def _success(digest: Digest, album: figures.Album) -> list[dict[str, Any]]:
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
        picture = album.add(
            f"success-{protocol}", drawn, f"Success and failure under the {protocol} protocol."
        )
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
        parts.append({"protocol": protocol, "figure": picture, "rows": rows})
    return parts


def _shares(digest: Digest, album: figures.Album) -> list[dict[str, Any]]:
    parts = []
    for family, tasks in digest.families.items():
        board = digest.boards.get(("sound", family))
        if board is not None:
            drawn = figures.shares(figures.share_means(digest.run.some(figures.SHARES), tasks), board)
            alt = f"Where the mass of each method's maps lies on {family} tasks."
            parts.append({"family": family, "figure": album.add(f"shares-{family}", drawn, alt)})
    return parts


def _gallery(digest: Digest, album: figures.Album) -> list[dict[str, Any]]:
    reasonings = {task["name"]: task.get("reasoning", "") for task in digest.run.manifest["tasks"]}
    parts = []
    for panel in gallery.panels(digest.run):
        if not panel.rows:
            continue
        album.add(f"gallery-{panel.task}", gallery.figure(panel), "", dpi=110)
        rows = [
            {
                "group": row.group,
                "scene": row.scene,
                "truth": figures.uri("png", gallery.png(row.truth)),
                "tiles": [
                    {
                        "method": tile.method,
                        "kind": reports.kind(tile.method),
                        "score": tile.score,
                        "picture": None
                        if tile.levels is None
                        else figures.uri("png", gallery.png(tile.levels)),
                    }
                    for tile in row.tiles
                ],
            }
            for row in panel.rows
        ]
        subject = f"{panel.network}, seed {panel.seed}"
        parts.append(
            {"task": panel.task, "subject": subject, "reasoning": reasonings[panel.task], "rows": rows}
        )
    return parts


def _atlas(digest: Digest, album: figures.Album) -> list[dict[str, Any]]:
    reasonings = {task["name"]: task.get("reasoning", "") for task in digest.run.manifest["tasks"]}
    parts: dict[str, dict[str, Any]] = {}
    for chart in atlas.charts(digest.run):
        subject = f"{chart.network}, seed {chart.seed}"
        part = parts.setdefault(
            chart.task,
            {"task": chart.task, "subject": subject, "reasoning": reasonings[chart.task], "figures": []},
        )
        alt = ", ".join(f"{plot.name} {plot.score}".strip() for plot in chart.plots)
        picture = album.add(
            f"atlas-{chart.task}-{chart.sample}", atlas.figure(chart), f"Maps of one sample: {alt}.", dpi=110
        )
        part["figures"].append({"sample": chart.sample, "figure": picture})
    return list(parts.values())


def _facts(digest: Digest) -> list[tuple[str, str]]:
    manifest, scores = digest.run.manifest, digest.run.some([(digest.main, HEADLINES[digest.main])])
    subjects = {
        str(unit["name"]).removesuffix(f": {unit['method']}"): unit
        for unit in manifest["units"]
        if "samples" in unit
    }
    keys = ["task", "network", "seed", "sample"]
    passed = sum(bool(entry["passed"]) for entry in manifest["certificates"])
    degenerate = sum(
        unit.get("degenerate", 0) for unit in manifest["units"] if reports.kind(unit["method"]) == "method"
    )
    certified = f"{passed} of {len(manifest['certificates'])}" if manifest["certificates"] else "none made"
    scored = str(len(scores[keys].drop_duplicates()))
    if digest.main == "exact":
        return [
            ("tasks", str(len(manifest["tasks"]))),
            ("networks", str(len(manifest["networks"]))),
            ("certificates passed", certified),
            ("R² on held-out samples", agreement.fit_words(manifest, list(digest.run.families))[3:] or "–"),
            ("samples scored", scored),
            ("degenerate maps of methods", str(degenerate)),
            ("failures", str(len(manifest["failures"]))),
            ("seconds of training", f"{sum(t['seconds'] for t in manifest.get('trained', [])):.0f}"),
            ("seconds of computing", f"{manifest['seconds']:.0f}"),
            ("units taken from the store", _reused(manifest)),
        ]
    return [
        ("tasks", str(len(manifest["tasks"]))),
        ("networks", str(len(manifest["networks"]))),
        ("certificates passed", certified),
        ("samples", str(sum(unit["samples"] for unit in subjects.values()))),
        ("samples with a focus, scored", scored),
        ("samples the network got wrong", str(sum(unit["wrong"] for unit in subjects.values()))),
        ("degenerate maps of methods, all samples", str(degenerate)),
        ("failures", str(len(manifest["failures"]))),
        ("seconds of computing", f"{manifest['seconds']:.0f}"),
        ("units taken from the store", _reused(manifest)),
    ]


def _reused(manifest: Mapping[str, Any]) -> str:
    """How many units were in the store, and how many entries of it could not be used."""
    total = manifest.get("total_units", len(manifest["units"]))
    damaged = manifest.get("damaged_entries", 0)
    aside = f"; {damaged} damaged, set aside and computed anew" if damaged else ""
    return f"{manifest.get('reused_units', 0)} of {total}{aside}"


def _methods(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What was run, with which parameters, and how long it took."""
    rows = []
    for entry in manifest["methods"]:
        units = [unit for unit in manifest["units"] if unit["method"] == entry["label"] and "samples" in unit]
        seconds = sum(unit["seconds"] for unit in units)
        maps = sum(unit["samples"] for unit in units)
        parameters = ", ".join(f"{name} = {json.dumps(value)}" for name, value in entry["parameters"].items())
        timing = f"{seconds:.1f} s ({1000 * seconds / maps:.1f} ms a map)" if maps else "–"
        rows.append({**entry, "parameters": parameters or "none", "timing": timing})
    return rows


def _other_tiers(runs: Sequence[tuple[int, Run]], protocol: str) -> list[dict[str, Any]]:
    """Leaderboards of networks whose truth is of another tier than that of the page, without figures."""
    parts = []
    for tier, run in runs:
        for family in dict.fromkeys(run.families.values()):
            try:
                board = run.leaderboard(protocol, family=family)
            except VeraxError:
                continue  # every method failed somewhere in this family
            note = f"{', '.join(run.tiers)}; {tiers.words(tier)}"
            part = {"family": family, "rows": board_rows(board, []), "note": note}
            parts.append({**part, "figure": None, "single": False})
    return parts


def context(run: Run, album: figures.Album) -> dict[str, Any]:
    """Everything that the page shows; figures go into the album on the way."""
    everything, whole = run, run.manifest
    (_, run), *rest = truths.by_tier(run)
    digest = Digest.of(run)
    manifest = run.manifest
    both = {"sound", "published"} <= set(digest.protocols)
    knowing = digest.main if digest.main in SKILLED else ""
    truth = {family: board for (name, family), board in digest.boards.items() if name == knowing}
    line, study_file = command(manifest["study"])
    bar = gallery.levels(np.linspace(-1, 1, 201)[None].repeat(8, 0))
    return {
        "manifest": {**manifest, "networks": whole["networks"], "certificates": whole["certificates"]},
        "study": manifest["study"],
        "trainings": len({entry["seed"] for entry in manifest["networks"]}),
        "main": digest.main,
        "headline": HEADLINES[digest.main],
        "verdict": verdict(digest.boards.get((digest.main, digest.headline)), digest.headline, digest.main),
        "others": [
            verdict(digest.boards.get((digest.main, family)), family, digest.main)
            for family in digest.families
            if family != digest.headline
        ],
        "uncertified": agreement.uncertified(manifest),
        "data_notes": agreement.data_notes(manifest),
        "facts": _facts(digest),
        "boards": _boards(digest, digest.main, album),
        "tiers": _other_tiers(rest, digest.main),
        "ranks": ranks.parts(run, digest.main, list(digest.families), album),
        "truths": truths.parts(run, list(digest.families)),
        "identified": identifiability.part(everything, album),
        "published": _boards(digest, "published", album) if both else [],
        "disagreements": disagreements(digest.boards, run.some(CEILINGS), run.families) if both else [],
        "faithfulness": faithfulness.parts(run, list(digest.families), digest.methods(), truth),
        "promises": promises.rows(manifest),
        "alarms": promises.alarms(manifest),
        "success": _success(digest, album),
        "shares": _shares(digest, album),
        "gallery": _gallery(digest, album),
        "measures": agreement.parts(run, list(digest.families), album),
        "fitted": agreement.networks(everything),
        "consistency": agreement.consistency(everything),
        "atlas": _atlas(digest, album),
        "fits": [entry for entry in whole["certificates"] if "r2" in entry],
        "followed": [entry for entry in whole["certificates"] if "r2" not in entry],
        "bar": figures.uri("png", gallery.png(bar)),
        "methods": _methods(manifest),
        "own": [str(entry["label"]) for entry in manifest["methods"] if entry["family"] == "own"],
        "command": line,
        "study_file": study_file,
    }


def write(run: Run) -> Path:
    """Write ``figures/`` and ``report.html`` into the folder of a run.

    Returns:
        The path of ``report.html``.
    """
    album = figures.Album(make_folder(run.folder / figures.FOLDER))
    loader = jinja2.FileSystemLoader(TEMPLATES)
    pages = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    page = pages.get_template("report.html.j2").render(context(run, album))
    album.tidy()
    write_atomically(run.folder / REPORT, page.encode())
    return run.folder / REPORT
