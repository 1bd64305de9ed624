"""`verax reproduce`."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Annotated

import typer

from verax.cli.console import console
from verax.errors import Interrupted, InvalidParameter, UnknownName, VeraxWarning, suggestion

PAPERS = ("smerf",)
_MOST_WORKERS = 8
_CPU_REFERENCES = 100  # 1000 references, as published, take an hour on two cores


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _numbers(text: str) -> list[int]:
    try:
        return [int(word) for word in _words(text)]
    except ValueError as error:
        raise InvalidParameter(f"Seeds are whole numbers such as 0,1,2, not {text!r}.") from error


def reproduce(
    paper: Annotated[str, typer.Argument(help="Which paper: smerf.")],
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
) -> None:
    """Reproduce a paper: train what is missing, certify, explain, score, draw every figure, check claims."""
    from verax import devices
    from verax.reproductions.smerf import reproduction, study

    if paper not in PAPERS:
        raise UnknownName(f"There is no reproduction of {paper!r}{suggestion(paper, PAPERS)}")
    slow = devices.resolve(device).type == "cpu"
    usual = study.Options()
    options = study.Options(
        networks=_words(networks) if networks else [study.QUICK if quick else study.PLAIN],
        backgrounds=_words(backgrounds),
        seeds=_numbers(seeds),
        samples=samples or (2 if quick else usual.samples),
        references=references or (4 if quick else _CPU_REFERENCES if slow else usual.references),
        sound_samples=(2 if quick else usual.sound_samples) if sound_samples is None else sound_samples,
        sound_references=4 if quick else usual.sound_references,
        certify=5 if quick else usual.certify,
        tested=20 if quick else usual.tested,
        renderer=renderer or ("sound" if quick else "published"),
        device=device,
        store=store,
        quiet=quiet,
        workers=min(_MOST_WORKERS, os.cpu_count() or 1),
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", VeraxWarning)  # failures are listed on the page
            path, phases = reproduction.reproduce(options, out)
    except Interrupted as stop:
        typer.echo(f"verax: {stop}", err=True)
        raise typer.Exit(130) from stop
    for row in phases.rows:
        console.print(f"{row['phase']}: {row['seconds']:.0f} s", highlight=False)
    console.print(f"Page: {path}", soft_wrap=True, markup=False, highlight=False)
