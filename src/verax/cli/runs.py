"""`verax run`."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from verax import progress
from verax.cli import boards, experiments, options, plans, records
from verax.cli.console import Json, Quiet, echo, print_json, say
from verax.errors import InvalidParameter, VeraxWarning

_HOW, _RAY, _ALIGN = "How it is computed", "On a Ray cluster", "Of alignment-... studies"


def run(
    study: options.StudyName,
    methods: options.Methods = None,
    tasks: options.Tasks = None,
    networks: options.Networks = None,
    seeds: options.Seeds = None,
    protocols: options.Protocols = None,
    metrics: options.Metrics = None,
    samples: options.Samples = None,
    seed: options.Seed = None,
    certify: options.Certify = None,
    identify: options.Identify = None,
    renderer: options.Renderer = None,
    background: options.Background = None,
    field: options.Field = None,
    variable: options.Variable = None,
    device: Annotated[
        str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.", rich_help_panel=_HOW)
    ] = "auto",
    out: Annotated[Path | None, typer.Option(help="Folder of the run (default: runs/NAME-HASH).")] = None,
    store: Annotated[
        Path | None,
        typer.Option(
            envvar="VERAX_STORE",
            help="Where finished work is kept (default: the user's cache).",
            rich_help_panel=_HOW,
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder with images (default: under VERAX_DATA).", rich_help_panel=_ALIGN),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Few images: a first look.", rich_help_panel=_ALIGN)
    ] = False,
    executor: Annotated[
        str | None,
        typer.Option(
            help="inline (this process), processes or ray (default: processes where it pays).",
            rich_help_panel=_HOW,
        ),
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="auto, local or HOST:PORT (docs/cluster.md).", rich_help_panel=_RAY)
    ] = None,
    num_cpus: Annotated[float | None, typer.Option(help="Cores for each task.", rich_help_panel=_RAY)] = None,
    num_gpus: Annotated[
        float | None,
        typer.Option(help="GPUs for each task, parts too (default: by --device).", rich_help_panel=_RAY),
    ] = None,
    memory: Annotated[
        float | None, typer.Option(help="Gigabytes set aside for each task.", rich_help_panel=_RAY)
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(help="How many (default: one for each device or core).", rich_help_panel=_HOW),
    ] = None,
    overwrite: Annotated[
        str,
        typer.Option(
            help="What is computed: missing (and failed), failed, all or never.", rich_help_panel=_HOW
        ),
    ] = "missing",
    keep_maps: Annotated[
        bool,
        typer.Option(
            "--keep-maps",
            help="Keep raw maps, to score them again without explaining again.",
            rich_help_panel=_HOW,
        ),
    ] = False,
    time_limit: Annotated[
        float | None,
        typer.Option(help="Seconds that one unit, or one training, may take.", rich_help_panel=_HOW),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan (verax plan) and stop.", rich_help_panel=_HOW)
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run a study: explain, score, rank, and write a report. Rerunning does only what is missing."""
    from verax.studies import scripts
    from verax.studies.requests import described
    from verax.studies.running import run as execute

    if study.startswith(experiments.PREFIX):
        unused: dict[str, object] = {"tasks": tasks, "protocols": protocols, "seed": seed, "certify": certify}
        unused |= {"identify": identify, "renderer": renderer, "background": background}
        unused |= {"field": field, "variable": variable, "metrics": metrics, "dry_run": dry_run or None}
        unused |= {"executor": executor, "workers": workers, "keep_maps": keep_maps or None}
        unused |= {"overwrite": None if overwrite == "missing" else overwrite, "time_limit": time_limit}
        unused |= {"address": address, "num_cpus": num_cpus, "num_gpus": num_gpus, "memory": memory}
        if any(scripts.is_named(name) for name in options.names(methods) or []):
            raise InvalidParameter(
                f"{study!r} keeps results by the names of methods, so that it takes none from files: "
                "verax align --method FILE.py:NAME judges yours on your images."
            )
        asked = {
            "methods": options.names(methods),
            "networks": options.names(networks),
            "seeds": options.seeds(seeds),
        }
        found = experiments.run(
            study,
            out,
            quiet,
            unused,
            samples=samples,
            data=data,
            quick=quick,
            device=device,
            store=store,
            json=json,
            **asked,
        )
        if json:
            print_json(found)
        return
    if data is not None or quick:
        raise InvalidParameter(f"--data and --quick belong to alignment-... studies, not to {study!r}.")

    changes = options.changes(
        methods=methods,
        tasks=tasks,
        networks=networks,
        seeds=seeds,
        protocols=protocols,
        metrics=metrics,
        samples=samples,
        seed=seed,
        certify=certify,
        identify=identify,
        renderer=renderer,
        background=background,
        field=field,
        variable=variable,
    )
    if dry_run:
        (print_json if json else plans.show)(plans.summary(described(study, **changes), store))
        return
    cluster: dict[str, Any] = {
        "address": address,
        "num_cpus": num_cpus,
        "num_gpus": num_gpus,
        "memory": memory,
    }
    cluster = {name: value for name, value in cluster.items() if value is not None}
    if cluster and executor is None:
        executor = "ray"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", VeraxWarning)  # failures are listed under the leaderboard
            done = execute(
                study,
                **changes,
                device=device,
                out=out,
                store=store,
                quiet=quiet,
                executor=executor,
                workers=workers,
                overwrite=overwrite,
                keep_maps=keep_maps,
                time_limit=time_limit,
                **cluster,
            )
        if not quiet and not json:
            boards.show(done)
        with progress.status("Writing the report", hidden=quiet):
            path = done.report()
    except KeyboardInterrupt as stop:
        words = str(stop) or "Interrupted: finished units are kept. Run the same command to go on."
        echo(f"verax: {words}", err=True)
        raise typer.Exit(130) from stop
    if json:
        print_json(records.of_run(done, path))
    else:
        say(f"Report: {path}")
    if done.manifest["failures"]:
        raise typer.Exit(1)
