"""`verax train` and `verax certify`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from verax.cli import completion
from verax.cli.console import Json, console, interval, print_json, say
from verax.errors import InvalidParameter
from verax.progress import bar as progress_bar

if TYPE_CHECKING:
    from verax.networks.certificates import Certificate
    from verax.networks.fits import Fit
    from verax.networks.regression import Fitted
    from verax.networks.trained import Trained
    from verax.tasks.base import Learnable

Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")]
Network = Annotated[
    str | None,
    typer.Option(
        help="Architecture (verax list networks; default: cnn4, mlp for climate, shapes-cnn for shapes); "
        "@RECIPE says how it is trained; wired is built.",
        autocompletion=completion.network,
    ),
]
Renderer = Annotated[str | None, typer.Option(help="sound (default) or published.")]
Background = Annotated[
    str | None, typer.Option(help="black (default), noise, noise:LOW-HIGH, texture or folder:PATH.")
]


Field = Annotated[Path | None, typer.Option(help="Of climate/field: its file (NetCDF, NPZ, NPY).")]
Variable = Annotated[str | None, typer.Option(help="Of that file, where it has several.")]


def _world(
    name: str, renderer: str | None, background: str | None, field: Path | None, variable: str | None
) -> Learnable:
    from verax.tasks import task
    from verax.tasks.base import is_learnable

    options = {"renderer": renderer, "background": background, "field": field, "variable": variable}
    found = task(name, **{option: value for option, value in options.items() if value is not None})
    if not is_learnable(found):
        raise InvalidParameter(f"No networks can be trained and certified for {name!r}.")
    return found


def train(
    tasks: Annotated[
        list[str],
        typer.Argument(help="Tasks, such as textbox/complex-cr2.", autocompletion=completion.task),
    ],
    network: Network = None,
    seed: Annotated[int, typer.Option(min=0, help="Decides the first weights and every scene.")] = 0,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="fast, swift, published, published-script, robust(-swift, -EPS); or as NETWORK@RECIPE."
        ),
    ] = None,
    device: Device = "auto",
    early_stop: Annotated[
        bool, typer.Option(help="Stop once the network is certified with a margin.")
    ] = True,
    renderer: Renderer = None,
    background: Background = None,
    field: Field = None,
    variable: Variable = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the weights (default: the store).")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
    json: Json = False,
) -> None:
    """Train a network on fresh scenes, certify it and store it with its record."""
    from verax.networks import library, names, teaching
    from verax.tasks.base import is_regression

    def full(name: str) -> str:
        return name if recipe is None or "@" in name else f"{name}@{recipe}"

    if network is not None:
        names.parse(full(network))
    worlds = [_world(name, renderer, background, field, variable) for name in tasks]
    trained: list[dict[str, Any]] = []
    for world in worlds:
        options: dict[str, Any] = {}
        if not is_regression(world):
            known = teaching.origins(world, full(network or teaching.usual(world)))
            options = {"early_stop": early_stop, "start": library.start(world, known, seed, out)}
        done = teaching.train(world, network, seed=seed, recipe=recipe, device=device, quiet=quiet, **options)
        path = library.save(done, out)
        if not json:
            say(f"{done.certificate} {_effort(done)} -> {path}")
        summary = None if done.certificate is None else done.certificate.summary()
        trained.append({"task": world.name, "epochs": done.epochs, "weights": path, "certificate": summary})
    if json:
        print_json(trained)
    if not all(entry["certificate"] and entry["certificate"]["passed"] for entry in trained):
        raise typer.Exit(1)


def _effort(done: Trained | Fitted) -> str:
    """How long it took, in words."""
    if done.settings is None:
        return "(solved, not trained)"
    return f"after {done.epochs} epoch{'s' * (done.epochs != 1)}"


def certify(
    task: Annotated[
        str, typer.Argument(help="A task, such as textbox/complex-cr2.", autocompletion=completion.task)
    ],
    network: Network = None,
    seed: Annotated[int, typer.Option(min=0, help="Which of the stored networks.")] = 0,
    weights: Annotated[
        Path | None, typer.Option(help="Another safetensors file, instead of the stored one.")
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Fresh scenes in each bucket.")] = 200,
    device: Device = "auto",
    renderer: Renderer = None,
    background: Background = None,
    field: Field = None,
    variable: Variable = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar, only the verdict.")] = False,
    json: Json = False,
) -> None:
    """Prove, on fresh scenes and by interventions, that a network follows the reasoning of a task."""
    from verax import devices
    from verax.networks import fits, library, names, teaching

    world = _world(task, renderer, background, field, variable)
    network = str(names.parse(network or teaching.usual(world)).on(world))
    where = devices.resolve(device)
    if weights is None:
        model = library.network(world, network, seed)
    else:
        model = library.load(weights, network, world.classes, check=weights.with_suffix(".json").is_file())
    with progress_bar(hidden=quiet) as bar:
        row = bar.add_task(f"{world.name} {network}", total=None)
        certificate = teaching.certify(
            model.to(where),
            world,
            n=samples,
            watch=lambda done, total: bar.update(row, completed=done, total=total),
        )
        bar.update(row, completed=1, total=1)
    if json:
        if isinstance(certificate, fits.Fit):
            parts = {"measures": certificate.measures, "elements": certificate.elements}
        else:
            parts = {"accuracy": certificate.accuracy, "interventions": certificate.interventions}
        tables = {name: frame.to_dict(orient="records") for name, frame in parts.items()}
        print_json({**certificate.summary(), **tables})
    elif quiet:
        say(str(certificate))
    elif isinstance(certificate, fits.Fit):
        show_fit(certificate, str(world.reasoning))
    else:
        show(certificate, str(world.reasoning))
    if not certificate.passed:
        raise typer.Exit(1)


def show_fit(certificate: Fit, reasoning: str) -> None:
    """Print the certificate of a regression network as a table and a verdict."""
    table = Table(title=f"{escape(certificate.task)}: network and function", caption=escape(reasoning))
    for column in ("measure", "value", "95 % interval", "needs"):
        table.add_column(column, justify="left" if column == "measure" else "right")
    for row in certificate.measures.itertuples(index=False):
        style = "" if row.value >= row.limit else "bold red"
        cells = (row.measure, f"{row.value:.3f}", interval(row.low, row.high), row.limit)
        table.add_row(*(escape(str(cell)) for cell in cells), style=style)
    console.print(table)
    console.print(
        "r2: on held-out samples. gradient, dependence, path: agreement with the function's slopes, with "
        "what setting single elements does, and with mean slopes on the path from the baseline. Passing does "
        "not make the network the function."
    )
    colour = "green" if certificate.passed else "red"
    console.print(f"[{colour}]{escape(str(certificate))}[/{colour}]", soft_wrap=True)


def show(certificate: Certificate, reasoning: str) -> None:
    """Print a certificate as two tables and a verdict."""
    limits = certificate.thresholds
    table = Table(title=f"{escape(certificate.task)}: accuracy in each bucket", caption=escape(reasoning))
    for column in ("bucket", "scene", "label", "n", "accuracy", "95 % interval"):
        table.add_column(column, justify="left" if column == "scene" else "right")
    for row in certificate.accuracy.itertuples(index=False):
        style = "" if row.accuracy >= limits.accuracy else "bold red"
        cells = (row.group, row.scene, row.label, row.n, f"{row.accuracy:.3f}", interval(row.low, row.high))
        table.add_row(*(escape(str(cell)) for cell in cells), style=style)
    console.print(table)
    table = Table(title="interventions in the same scene: how often the prediction follows the reasoning")
    for column in ("bucket", "scene", "object", "edit", "n", "follow", "95 % interval"):
        table.add_column(column, justify="left" if column in ("scene", "object", "edit") else "right")
    last = None
    for row in certificate.interventions.itertuples(index=False):
        style = "" if row.follow >= limits.follow else "bold red"
        first = (row.group, row.scene) if row.group != last else ("", "")
        if last is not None and row.group != last:
            table.add_section()
        cells = (*first, row.object, row.edit, row.n, f"{row.follow:.3f}", interval(row.low, row.high))
        table.add_row(*(escape(str(cell)) for cell in cells), style=style)
        last = row.group
    console.print(table)
    console.print(f"{certificate.left_out} edits led to a scene without a label and were left out.")
    colour = "green" if certificate.passed else "red"
    console.print(f"[{colour}]{escape(str(certificate))}[/{colour}]", soft_wrap=True)
