"""Writes docs/reference/*.md and docs/gallery.md from the registries, the schema and the pictures.

python tools/reference.py            write the pages
python tools/reference.py --check    say whether they are up to date (exit code 1: they are not)
"""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from typing import Any

import verax
from verax.cli.listing import LISTS
from verax.files import write_atomically
from verax.metrics import CORE, METRICS, NORMALISED
from verax.networks.recipes import RECIPES
from verax.protocols import PROTOCOLS
from verax.reproductions.alignment.running import EXPERIMENTS, experiment
from verax.studies.executors import EXECUTORS
from verax.studies.gathering import SCHEMA
from verax.studies.spec import Study, presets, study
from verax.studies.tiers import TIERS

DOCS = Path(__file__).resolve().parent.parent / "docs"
NOTE = "<!-- Written by `make reference` from the code; do not edit. -->\n"

API = {
    "Judging methods": [
        "method",
        "Method",
        "run",
        "Run",
        "load",
        "Study",
        "check_method",
        "check_metric",
        "check_task",
    ],
    "Explaining and scoring": ["explain", "score", "completeness", "show"],
    "Tasks": ["task", "Task", "Cases", "Truth", "Reasoning", "TextBox", "World", "Kind", "Look"],
    "Networks": ["train", "certify", "Certificate"],
    "Alignment": ["align", "Alignment"],
}
"""Where names of `verax` stand on the page; a name that is not here stands at its end."""

COLUMNS = {
    "task": "name of the task, options included",
    "network": "name of the network; a recipe stands behind an @",
    "seed": "training seed of the network",
    "method": "label of the method",
    "protocol": "how the map was prepared, such as `sound`",
    "metric": "what the value is; [all of them](metrics.md)",
    "group": "bucket of the sample; the manifest names its scene",
    "sample": "number of the sample, the same in every bucket, task and run",
    "value": "the score; a score that is undefined has no row",
    "degenerate": "whether the map was constant, or held NaN or infinity",
}
MANIFEST = {
    "study": "the study as it was run, with all its defaults",
    "plan": "hash of the plan: it names the run folder",
    "code": "hash of the modules that results depend on",
    "created": "when, in UTC",
    "versions": "of verax, Python, torch and the other packages",
    "hardware": "device, machine, system, cores and threads",
    "tasks": "name, family, reasoning, looks, and the scene of each bucket",
    "networks": "task, network, seed, and the SHA-256 of its weights; of an own one version and wording",
    "methods": "label, name, family, parameters, version, what its maps promise to add up to; of an own one "
    "also a hash of its code (`wording`), and the file (`source`) or plugin that it came from",
    "metrics": "own ones: name, direction, bounds, protocol, version, wording",
    "certificates": "of every network: accuracies, interventions, and whether it passed",
    "units": "one entry for each cell: name, key, seconds, completeness gaps, samples left out",
    "failures": "what could not be computed: unit, method, reason, kind",
    "notes": "what a reader should know, such as seeds that were not stored",
    "unkept": "what the store does not keep, for want of a version",
    "trained": "networks that this run trained first",
    "reused_units": "taken from the store",
    "computed_units": "computed by this run",
    "total_units": "of the study",
    "damaged_entries": "of the store, found while reading",
    "set_aside": "which these were, and what was wrong with them",
    "executor": "its name and how many workers it had",
    "seconds": "from start to end",
}
FILES = {
    "scores.parquet": "one row for each sample, method, protocol and metric",
    "manifest.json": "what was run, by what, on what, and what came of it",
    "report.html": "one self-contained page",
    "figures/": "the figures as SVG and PNG",
    "maps.safetensors": "task, network, seed and method, joined by bars, -> one scaled map for each bucket, "
    "or for each of the first twelve samples of a climate task",
    "cases.safetensors": "the cases behind them: task and `inputs`, `focus`, `avoid`, `group` or `ids`",
    "identification-*.csv": "where the study has `identify`: accuracy, confusion, contrast",
    "consistency.csv": "where vectors were studied with several trainings: how alike their maps are",
    "reproduction.json": "in runs of `verax reproduce`: where its claims and its page are",
}


def table(heads: list[str], rows: list[list[object]]) -> list[str]:
    """A table in Markdown."""
    cells = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return ["| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads), *cells)] + [""]


def section(title: str, heads: list[str], rows: list[list[object]], words: str = "") -> str:
    """A heading, a sentence and a table."""
    return "\n".join([title, "", *([words, ""] if words else []), *table(heads, rows)])


def _code(words: object) -> str:
    return f"`{words}`"


def api() -> str:
    """The names of `verax`, each with its signature and its docstring."""
    names = [name for name in verax.__all__ if not name.startswith("_")]
    placed = {name for group in API.values() for name in group}
    groups = {**API, "More": [name for name in names if name not in placed]}
    lines = ["# Python", "", "Everything that `import verax` offers. Other modules are inner matters.", ""]
    for title, members in groups.items():
        members = [name for name in members if name in names]
        lines += [f"## {title}", ""] if members else []
        for name in members:
            where = verax._WHERE[name]
            lines += [f"::: {where}.{name}", "    options:", f"      heading: verax.{name}"]
            lines += [f"      toc_label: {name}", ""]
    return "\n".join(lines)


def metrics() -> str:
    """Every metric by protocol; variants share the row of their metric."""
    words = (
        f"All {len(METRICS)} of them, as `verax list metrics` shows them. `NAME{NORMALISED}` is 0 for chance "
        f"and 1 for the oracle, `NAME{CORE}` leaves out elements that repeat each other. What is done to a "
        "map before it is scored: [Protocols and metrics](../protocols.md)."
    )
    parts = [f"# Metrics\n\n{words}\n"]
    found = [METRICS.get(name) for name in METRICS]
    for protocol in dict.fromkeys(metric.protocol for metric in found):
        rows: list[list[object]] = []
        for metric in found:
            if metric.protocol != protocol or metric.name.endswith((NORMALISED, CORE)):
                continue
            low, high = (
                ("∞" if bound > 0 else "-∞") if math.isinf(bound) else f"{bound:g}" for bound in metric.bounds
            )
            more = [f"`{end}`" for end in (NORMALISED, CORE) if metric.name + end in METRICS]
            better = "higher" if metric.higher_is_better else "lower"
            rows.append(
                [
                    _code(metric.name),
                    metric.description,
                    better,
                    f"{low} to {high}",
                    " ".join(more),
                    metric.paper,
                ]
            )
        parts.append(section(f"## {protocol}", ["metric", "what", "better", "range", "also", "paper"], rows))
    return "\n".join(parts)


def _rows(what: str) -> list[dict[str, Any]]:
    return LISTS[what]()


def tasks() -> str:
    """Every task with its family, buckets and reasoning."""
    rows = [
        [
            _code(row["name"]),
            row["family"],
            row["buckets"],
            _code(row["reasoning"]) if row.get("reasoning") else "",
        ]
        for row in _rows("tasks")
    ]
    words = "As `verax list tasks` shows them. Their options: [Tasks and reasonings](../tasks.md)."
    return section("# Tasks", ["task", "family", "buckets", "reasoning"], rows, words)


def networks() -> str:
    """Every network with its weights and what is shipped of it; recipes."""
    rows: list[list[object]] = []
    for row in _rows("networks"):
        count = f"{row['weights']:,}" if isinstance(row["weights"], int) else row["weights"]
        shipped = ", ".join(map(_code, sorted(row["shipped"])))
        rows.append([_code(row["name"]), row["about"], count, shipped])
    recipes = [
        [
            *(_code(name), r.loss, r.optimiser, f"{r.rate:g}", r.batch, r.epochs),
            *((r.adversary, r.iterations, r.clean, r.ramp) if r.adversary else ("", "", "", "")),
        ]
        for name, r in RECIPES.items()
    ]
    words = (
        "As `verax list networks` shows them; weights of image networks are counted with two outputs, those "
        "of the others with one. More: [Networks and certificates](../networks.md)."
    )
    more = "`NETWORK@RECIPE` names both; without one it is `fast`. Values before they are fitted to a task."
    heads = [
        "recipe",
        "loss",
        "optimiser",
        "rate",
        "batch",
        "epochs",
        "adversary",
        "its steps",
        "clean",
        "ramp",
    ]
    return "\n".join(
        [
            section("# Networks", ["network", "what", "weights", "shipped for"], rows, words),
            section("## Recipes", heads, recipes, more),
        ]
    )


def studies() -> str:
    """Every preset, every key of a study, protocols and executors."""
    rows: list[list[object]] = []
    for name in presets():
        found = study(name)
        what = f"{len(found.tasks)} x {len(found.networks)} x {len(found.seeds)} x {len(found.methods)}"
        rows.append(
            [_code(name), found.description, what, found.samples, ", ".join(map(_code, found.protocols))]
        )
    experiments = [[_code(name), experiment(name).title] for name in EXPERIMENTS]
    about = re.split(r"\n\s{8}(\w+): ", (Study.__doc__ or "").partition("Attributes:")[2])[1:]
    meant = dict(zip(about[::2], about[1::2], strict=True))
    keys = [
        [
            _code(key),
            "" if field.is_required() or field.default == "" else _code(field.default).replace("'", '"'),
            re.sub(r"\s+", " ", meant[key]).strip(),
        ]
        for key, field in Study.model_fields.items()
    ]
    protocols = [[_code(name), PROTOCOLS.get(name).description] for name in PROTOCOLS]
    executors = [[_code(name), (EXECUTORS.get(name).__doc__ or "").partition("\n")[0]] for name in EXECUTORS]
    words = "As `verax list studies` shows them. How to run them: [Studies and runs](../studies.md)."
    heads = ["study", "what", "tasks x networks x seeds x methods", "samples", "protocols"]
    more = "More: [Experiments on alignment](../alignment-experiments.md)."
    return "\n".join(
        [
            section("# Studies", heads, rows, words),
            section("## Experiments on alignment", ["study", "question"], experiments, more),
            section("## Keys of a study", ["key", "default", "meaning"], keys),
            section("## Protocols", ["protocol", "what"], protocols),
            section("## Executors", ["executor", "what"], executors),
        ]
    )


def results() -> str:
    """The files of a run, the columns of its scores, the keys of its manifest, the tiers."""
    if list(COLUMNS) != SCHEMA.names:
        raise SystemExit(f"Columns to describe: {SCHEMA.names}")
    kinds = {"dictionary<values=string, indices=int32, ordered=0>": "text", "int64": "whole number"}
    kinds |= {"double": "number", "bool": "truth value"}
    columns = [[_code(f.name), kinds[str(f.type)], COLUMNS[f.name]] for f in SCHEMA]
    files = [[_code(name), words] for name, words in FILES.items()]
    keys = [[_code(name), words] for name, words in MANIFEST.items()]
    words = 'What a run folder holds. From Python: `verax.load("runs/NAME-HASH")`.'
    more = "How firmly the truth is known: [Tiers](../concepts/tiers.md)."
    return "\n".join(
        [
            section("# Results", ["file", "what"], files, words),
            section("## scores.parquet", ["column", "type", "meaning"], columns),
            section("## manifest.json", ["key", "meaning"], keys),
            section("## Tiers", ["tier", "truth"], [[number, name] for number, name in TIERS.items()], more),
        ]
    )


_FIGURE = re.compile(r"^### (Figure [^\n]+)\n\n([^\n]*)\n\n!\[[^\]]*\]\((images/[^)]+)\)", re.MULTILINE)
_CARD = re.compile(r"^### (\S+) \{#(\S+)\}.*?(?=^### |\Z)", re.MULTILINE | re.DOTALL)


def _grid(items: list[tuple[str, str, str]]) -> list[str]:
    """Pictures that are links, with words under them; the style sheet makes columns of the paragraphs."""
    lines = ['<div class="gallery" markdown>', ""]
    for picture, link, words in items:
        lines += [f"[![{words}]({picture}){{ loading=lazy }}<br>{words}]({link})", ""]
    return [*lines, "</div>", ""]


def gallery() -> str:
    """All pictures of the documentation in grids, each with a link to the page that explains it."""
    lines = ["# Gallery", "", "Every picture here is made by a command of verax. Click to see which.", ""]
    tutorials = []
    for page in sorted((DOCS / "tutorials").glob("*.md")):
        for words, picture in re.findall(r"!\[([^\]]+)\]\(\.\./(images/[^)]+)\)", page.read_text()):
            tutorials.append((picture, f"tutorials/{page.stem}.md", words))
    papers = {"reproduction.md": "The SMERF paper, done again", "climate.md": "Climate"}
    lines += ["## Tutorials", "", *_grid(tutorials)]
    cards = []
    for found in _CARD.finditer((DOCS / "cards.md").read_text()):
        if picture := re.search(r"\((images/cards/[^)]+)\)", found[0]):
            cards.append((picture[1], f"cards.md#{found[2]}", found[1]))
    lines += ["## What each method shows", "", "The same scene, the same network. Blue: what it uses.", ""]
    lines += _grid(cards)
    for page, title in papers.items():
        figures = [
            (path, f"{page}#{_slug(name)}", name)
            for name, _, path in _FIGURE.findall((DOCS / page).read_text())
        ]
        lines += [f"## {title}", "", *_grid(figures)]
    return "\n".join(lines)


def _slug(title: str) -> str:
    """The anchor of a heading, as Markdown's table of contents makes it."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title.lower()).strip())


def index() -> str:
    """What the reference holds."""
    items = {
        "api.md": "Python: every name of `verax`",
        "../cards.md": "Methods: a card for each",
        "metrics.md": "Metrics",
        "tasks.md": "Tasks",
        "networks.md": "Networks and recipes",
        "studies.md": "Studies, protocols, executors",
        "results.md": "Results: what a run folder holds",
        "../errors.md": "Errors",
    }
    words = "Written from the code, so that it cannot lag behind; a test compares them."
    return "\n".join(
        ["# Reference", "", words, "", *(f"- [{text}]({link})" for link, text in items.items()), ""]
    )


PAGES = {
    "reference/index.md": index,
    "reference/api.md": api,
    "reference/metrics.md": metrics,
    "reference/tasks.md": tasks,
    "reference/networks.md": networks,
    "reference/studies.md": studies,
    "reference/results.md": results,
    "gallery.md": gallery,
}


def stale() -> list[str]:
    """The pages that are not what the code says."""
    return [
        name
        for name, make in PAGES.items()
        if not (DOCS / name).is_file() or (DOCS / name).read_text() != NOTE + make()
    ]


def main() -> int:
    """Write or check."""
    if "--check" in sys.argv[1:]:
        old = stale()
        print(
            f"Out of date: {', '.join(old)}; run: make reference" if old else "The reference is up to date."
        )
        return 1 if old else 0
    for name, make in PAGES.items():
        write_atomically(DOCS / name, (NOTE + make()).encode())
    print(f"{len(PAGES)} pages are written.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
