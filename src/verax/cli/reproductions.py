"""`verax reproduce`."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable
from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from verax.cli.console import Command, Json, examples, print_json, say
from verax.cli.options import numbers, words
from verax.errors import Interrupted, UnknownName, VeraxWarning, suggestion

if TYPE_CHECKING:
    from verax.reproductions.outputs import Phases
    from verax.reproductions.workers import Crew

PAPERS = ("smerf", "sst", "alignment")
_MOST_WORKERS = 8
_CLAIMS = "claims.json"
_CPU_REFERENCES = 100  # 1000 references, as published, take an hour on two cores


class Papers(TyperGroup):
    """The papers, with a suggestion for a misspelt one."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command of a paper."""
        if args and args[0] not in PAPERS and not args[0].startswith("-"):
            raise UnknownName(f"There is no reproduction of {args[0]!r}{suggestion(args[0], PAPERS)}")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=Papers,
    no_args_is_help=True,
    short_help="Reproduce a paper: its figures, and which claims hold.",
    help="Reproduce a paper: train what is missing, explain, score, draw its figures, check its claims.",
)


def workers() -> int:
    """Processes that may work at once here."""
    return min(_MOST_WORKERS, os.cpu_count() or 1)


def _finish(work: Callable[[Crew], tuple[Path, Phases]], json: bool, module: str) -> None:
    """Do the work, and say how long each phase took."""
    from verax.reproductions.claims import tally
    from verax.reproductions.workers import Crew

    try:
        with warnings.catch_warnings(), Crew(workers(), module, "verax.reports.html") as crew:
            warnings.simplefilter("ignore", VeraxWarning)  # failures are listed on the page
            path, phases = work(crew)
    except (Interrupted, KeyboardInterrupt) as stop:
        words = str(stop) or "Interrupted: what was computed is kept. Run the same command to go on."
        typer.echo(f"verax: {words}", err=True)
        raise typer.Exit(130) from stop
    found = loads((path.parent / _CLAIMS).read_text())["claims"] if (path.parent / _CLAIMS).is_file() else []
    if json:
        verdicts = Counter(str(row["verdict"]) for row in found)
        print_json({"page": path, "phases": phases.rows, "claims": verdicts})
        return
    for row in phases.rows:
        say(f"{row['phase']}: {row['seconds']:.0f} s")
    if found:
        say(f"Claims: {', '.join(tally(found).values())}")
    say(f"Page: {path}")


@app.command(
    "smerf",
    cls=Command,
    epilog=examples(
        "verax reproduce smerf --quick",
        "verax reproduce smerf --networks cnn@published,alexnet --seeds 0,1,2",
    ),
)
def smerf(
    out: Annotated[Path, typer.Option(help="Folder for figures, tables and pages.")] = Path("smerf"),
    samples: Annotated[
        int | None, typer.Option(min=1, help="Images in each bucket; the paper has 20.")
    ] = None,
    references: Annotated[
        int | None,
        typer.Option(
            min=1, help="Training images behind Deep SHAP (default: 1000 as published; 100 on a CPU)."
        ),
    ] = None,
    sound_samples: Annotated[
        int | None, typer.Option(min=0, help="Images in each bucket under the sound protocol (100); 0: none.")
    ] = None,
    networks: Annotated[
        str | None,
        typer.Option(help="Networks: cnn@published,cnn@robust,alexnet,... What is missing is trained."),
    ] = None,
    backgrounds: Annotated[str, typer.Option(help="black,noise,folder:PATH,...")] = "black",
    seeds: Annotated[str, typer.Option(help="Training seeds: 0,1,2 (variants: the first).")] = "0",
    renderer: Annotated[
        str | None,
        typer.Option(help="sound or published (default: published, as the paper; sound where it is quick)."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")] = "auto",
    store: Annotated[
        Path | None,
        typer.Option(envvar="VERAX_STORE", help="Where finished work is kept (default: the user's cache)."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Shipped networks and few images: a first look.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars.")] = False,
    json: Json = False,
) -> None:
    """Kim, Plumb and Talwalkar (ICML 2022): saliency methods on synthetic pictures."""
    from verax import devices
    from verax.reproductions.smerf import reproduction, study

    slow = devices.resolve(device).type == "cpu"
    usual = study.Options()
    options = study.Options(
        networks=words(networks) if networks is not None else [study.QUICK if quick else study.PLAIN],
        backgrounds=words(backgrounds),
        seeds=numbers(seeds),
        samples=samples or (2 if quick else usual.samples),
        references=references or (4 if quick else _CPU_REFERENCES if slow else usual.references),
        sound_samples=(2 if quick else usual.sound_samples) if sound_samples is None else sound_samples,
        sound_references=4 if quick else usual.sound_references,
        certify=5 if quick else usual.certify,
        tested=20 if quick else usual.tested,
        renderer=renderer or ("sound" if quick else "published"),
        device=device,
        store=store,
        quick=quick,
        quiet=quiet,
        workers=workers(),
    )
    _finish(lambda crew: reproduction.reproduce(options, out, crew), json, reproduction.__name__)


@app.command(
    "sst",
    cls=Command,
    epilog=examples("verax reproduce sst --quick", "verax reproduce sst --field cobe-sst2 --device cuda"),
)
def sst(
    out: Annotated[Path, typer.Option(help="Folder for figures, tables and the page.")] = Path("sst"),
    field: Annotated[
        str, typer.Option(help="cobe-sst2, analytic, or auto: COBE-SST2 where its data are here.")
    ] = "auto",
    samples: Annotated[
        int | None,
        typer.Option(min=1000, help="Training samples (default: a million on a GPU, 100,000 on a CPU)."),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="A million training samples on a CPU too.")] = False,
    explained: Annotated[
        int | None, typer.Option(min=20, help="Samples that are explained (default: 10,000; 500 on a CPU).")
    ] = None,
    function: Annotated[int, typer.Option(min=0, help="Seed of the known function.")] = 0,
    functions: Annotated[int, typer.Option(min=2, help="Random functions whose spread is measured.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Training seed.")] = 0,
    published_recipe: Annotated[
        bool,
        typer.Option(
            "--published-recipe",
            help="Train by the published recipe too: 50 epochs in batches of 32 (minutes to an hour).",
        ),
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")] = "auto",
    store: Annotated[
        Path | None,
        typer.Option(envvar="VERAX_STORE", help="Where finished work is kept (default: the user's cache)."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few samples: a first look.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars.")] = False,
    json: Json = False,
) -> None:
    """Mamalakis, Ebert-Uphoff and Barnes (2022): sea-surface temperatures with exact truth at every cell."""
    from verax import devices
    from verax.reproductions.sst import reproduction, study

    slow = devices.resolve(device).type == "cpu"
    usual = 10_000 if quick else study.SMALL if slow and not full else study.FULL
    options = study.Options(
        field=field,
        samples=samples or usual,
        explained=explained or (50 if quick else 500 if slow else 10_000),
        function=function,
        functions=functions,
        seed=seed,
        recipe=published_recipe,
        draws=20_000 if quick else 100_000,
        device=device,
        store=store,
        quiet=quiet,
    )
    _finish(lambda crew: reproduction.reproduce(options, out, crew), json, reproduction.__name__)


@app.command(
    "alignment",
    cls=Command,
    epilog=examples("verax reproduce alignment --quick", "verax reproduce alignment --only mnist,stamps"),
)
def alignment(
    out: Annotated[Path, typer.Option(help="Folder for one page for each experiment.")] = Path("alignment"),
    only: Annotated[
        str, typer.Option(help="Experiments: mnist,stamps,celeba,regions,transfer,imagenet.")
    ] = "mnist,stamps,celeba,regions,transfer,imagenet",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")] = "auto",
    store: Annotated[
        Path | None,
        typer.Option(
            envvar="VERAX_STORE", help="Where trained networks are kept (default: the user's cache)."
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few images: a first look.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars.")] = False,
    json: Json = False,
) -> None:
    """Bang, Boggust and Satyanarayan (ECCV 2024 workshops): is a network right for the right reasons?"""
    from verax.cli import experiments
    from verax.reproductions.alignment import running

    for name in words(only):
        running.experiment(name)  # a misspelt name is an error before anything is computed
    found = []
    for name in words(only):
        full = running.experiment(name).name
        asked: dict[str, Any] = {"quick": quick, "device": device, "store": store}
        found.append(experiments.run(full, out / full, quiet, {}, json=json, **asked))
    if json:
        print_json(found)
