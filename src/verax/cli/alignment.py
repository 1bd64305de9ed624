"""`verax align`: one's own images and masks, and any network of timm or torchvision."""

from __future__ import annotations

import math
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from verax import progress
from verax.cli import completion, records
from verax.cli.console import Json, Quiet, console, echo, interval, print_json, say
from verax.errors import InvalidParameter

if TYPE_CHECKING:
    from verax.studies.alignments import Alignment
    from verax.tasks.alignment import AnnotatedImages, Geometry

_MODEL, _DATA, _SCORES = "The network", "The images and what people marked", "What is compared, and how"
_WITH_IMAGES = ("masks", "boxes", "coco")


def _geometry(text: str | None) -> Geometry | None:
    """Read crop:256:224, crop:224, stretch:224, stretch:200:300 or pad:224."""
    from verax.tasks.alignment import Geometry

    if text is None:
        return None
    kind, *sides = text.split(":")
    kinds = {"crop": (1, 2), "stretch": (1, 2), "pad": (1,)}
    if kind not in kinds or len(sides) not in kinds[kind] or not all(side.isdigit() for side in sides):
        raise InvalidParameter(
            f"A geometry is written as crop:256:224, stretch:224 or pad:224, not {text!r}."
        )
    made: Geometry = getattr(Geometry, kind)(*map(int, sides))
    return made


def _numbers(text: str | None, noun: str) -> list[float] | None:
    try:
        return None if text is None else [float(word) for word in text.split(",")]
    except ValueError as error:
        raise InvalidParameter(f"The {noun} is three numbers such as 0.5,0.5,0.5, not {text!r}.") from error


def _levels(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() for word in words):
        raise InvalidParameter(f"--values are whole numbers such as 1,3, not {text!r}.")
    return [int(word) for word in words]


def _settings(pairs: list[str]) -> dict[str, Any]:
    """Read NAME=VALUE; true, false and numbers are read as such."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise InvalidParameter(f"A parameter of the method is written as NAME=VALUE, not {pair!r}.")
        value: Any = {"true": True, "false": False}.get(text.lower(), text)
        for kind in (int, float):
            if isinstance(value, str):
                try:
                    value = kind(value)
                except ValueError:
                    continue
        found[name] = value
    return found


def _data(
    given: dict[str, Path | None],
    images: Path | None,
    labels: Path | None,
    values: str | None,
    label: str | None,
    split: str | None,
    own_outputs: bool,
) -> AnnotatedImages:
    """The data set that the options name."""
    from verax.tasks.alignment import DATA

    named = [name for name, path in given.items() if path is not None]
    if len(named) != 1:
        words = ", ".join(f"--{name}" for name in given)
        have = "none of them" if not named else " and ".join(f"--{name}" for name in named)
        raise InvalidParameter(f"Name the annotations with one of {words}, not with {have}.")
    name = named[0]
    path = given[name]
    if name in _WITH_IMAGES and images is None:
        raise InvalidParameter(f"--{name} needs the folder of pictures: --images DIR.")
    options: dict[str, Any] = {}
    if labels is not None and name != "masks":
        raise InvalidParameter("--labels goes with --masks; other annotations have labels of their own.")
    if values is not None:
        if name != "masks":
            raise InvalidParameter("--values goes with --masks, whose pixels are numbers.")
        options["values"] = _levels(values)
    if label is not None and name not in ("pets", "celeba", "celebamask"):
        raise InvalidParameter("--label goes with --pets, --celeba and --celebamask.")
    if split is not None and name not in ("voc", "pets", "celeba", "celebamask"):
        raise InvalidParameter("--split goes with --voc, --pets, --celeba and --celebamask.")
    if labels is not None:
        options["labels"] = labels
    if name == "pets":
        label = label or ("breed" if own_outputs else "imagenet")
    options |= {key: value for key, value in (("label", label), ("split", split)) if value is not None}
    make = DATA.get(name)
    if name in ("masks", "boxes"):
        return make(images, path, **options)
    if name == "coco":
        return make(path, images, **options)
    if images is not None:
        if name != "voc":
            raise InvalidParameter(f"--{name} knows where its pictures are; leave --images out.")
        options["images"] = images
    return make(path, **options)


def _command(context: typer.Context) -> str:
    """The words that ask the same again; where results go is left to who asks."""
    words = ["verax", "align"]
    for option in context.command.params:
        value = context.params.get(option.name or "")
        source = context.get_parameter_source(option.name or "")
        if source is None or source.name != "COMMANDLINE" or option.name in ("out", "quiet", "json"):
            continue
        for one in value if isinstance(value, list | tuple) else [value]:
            words += [option.opts[0], str(one)]
    return shlex.join(words)


def align(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Option(
            help="timm:NAME, torchvision:NAME or efficientnet-lite0 to 2.",
            autocompletion=completion.model,
            rich_help_panel=_MODEL,
        ),
    ],
    images: Annotated[Path | None, typer.Option(help="Folder of pictures.", rich_help_panel=_DATA)] = None,
    masks: Annotated[
        Path | None, typer.Option(help="Folder of masks with the same names.", rich_help_panel=_DATA)
    ] = None,
    boxes: Annotated[
        Path | None, typer.Option(help="CSV file: image,xmin,ymin,xmax,ymax[,label].", rich_help_panel=_DATA)
    ] = None,
    coco: Annotated[Path | None, typer.Option(help="COCO JSON file.", rich_help_panel=_DATA)] = None,
    voc: Annotated[Path | None, typer.Option(help="Folder of Pascal VOC.", rich_help_panel=_DATA)] = None,
    pets: Annotated[
        Path | None, typer.Option(help="Folder of Oxford-IIIT Pet.", rich_help_panel=_DATA)
    ] = None,
    imagenet: Annotated[
        Path | None, typer.Option(help="Folder of ImageNet's validation set.", rich_help_panel=_DATA)
    ] = None,
    celeba: Annotated[Path | None, typer.Option(help="Folder of CelebA.", rich_help_panel=_DATA)] = None,
    celebamask: Annotated[
        Path | None, typer.Option(help="Folder of CelebAMask-HQ.", rich_help_panel=_DATA)
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            help="A data set of a plugin, by its name (verax list datasets).",
            autocompletion=completion.dataset,
            rich_help_panel=_DATA,
        ),
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="CSV file with image,label, for --masks.", rich_help_panel=_DATA)
    ] = None,
    values: Annotated[
        str | None,
        typer.Option(
            help="Numbers in --masks that are marked, as 1,3; default: all but 0.", rich_help_panel=_DATA
        ),
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="breed, species, imagenet, or an attribute.", rich_help_panel=_DATA)
    ] = None,
    split: Annotated[str | None, typer.Option(help="Split of the data set.", rich_help_panel=_DATA)] = None,
    part: Annotated[
        str | None, typer.Option(help="Which part is meant, such as head or hair.", rich_help_panel=_DATA)
    ] = None,
    objects: Annotated[
        str, typer.Option(help="all, or those of the explained class: target.", rich_help_panel=_DATA)
    ] = "all",
    method: Annotated[
        str,
        typer.Option(
            help="How it is explained (verax list methods); FILE.py:NAME is your own.",
            autocompletion=completion.method,
            rich_help_panel=_SCORES,
        ),
    ] = "grad-cam",
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A parameter: relu=false.", rich_help_panel=_SCORES)
    ] = None,
    metrics: Annotated[
        str | None, typer.Option(help="Some of iou,pointing-game,...", rich_help_panel=_SCORES)
    ] = None,
    binarisation: Annotated[
        str | None,
        typer.Option(
            help="Pixels that count as shown: std:K (K is 1 where it is left out), threshold:K (0.5), "
            "percentile:K (90) or top:K (0.1, a tenth of all). Default: threshold:0.5 for class activation "
            "maps, std:1 for others.",
            rich_help_panel=_SCORES,
        ),
    ] = None,
    target: Annotated[
        str, typer.Option(help="Explain the predicted class or the label.", rich_help_panel=_SCORES)
    ] = "predicted",
    protocol: Annotated[str, typer.Option(help="sound or published.", rich_help_panel=_SCORES)] = "sound",
    tolerance: Annotated[
        float, typer.Option(help="Of the pointing game, in pixels.", rich_help_panel=_SCORES)
    ] = 0,
    ranges: Annotated[
        str | None, typer.Option(help="Of the cases: photos, text or melanoma.", rich_help_panel=_SCORES)
    ] = None,
    weights: Annotated[
        str, typer.Option(help="pretrained, none or a file.", rich_help_panel=_MODEL)
    ] = "pretrained",
    outputs: Annotated[
        int | None, typer.Option(help="Outputs of the network, if not the usual.", rich_help_panel=_MODEL)
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="Names of its outputs: a,b,c.", rich_help_panel=_MODEL)
    ] = None,
    geometry: Annotated[
        str | None, typer.Option(help="crop:256:224, stretch:224 or pad:224.", rich_help_panel=_MODEL)
    ] = None,
    mean: Annotated[
        str | None, typer.Option(help="Three numbers; default: the network's own.", rich_help_panel=_MODEL)
    ] = None,
    std: Annotated[
        str | None, typer.Option(help="Three numbers; default: the network's own.", rich_help_panel=_MODEL)
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="Only so many images, evenly spread.", rich_help_panel=_DATA)
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="What the network is called in the title.", rich_help_panel=_MODEL)
    ] = None,
    pictures: Annotated[
        int,
        typer.Option(
            help="How many the report shows: about 15 kB each, and nothing is explained twice for them; only "
            "those that are added to a finished folder are explained again."
        ),
    ] = 120,
    batch_size: Annotated[int, typer.Option(help="Images at a time.")] = 32,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")] = "auto",
    seed: Annotated[
        int, typer.Option(help="Of methods that draw random numbers.", rich_help_panel=_SCORES)
    ] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder; the same one goes on where it was stopped.")
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Does a network look where people marked? Scores, eight cases, worst offenders and a page to search."""
    given = {
        "masks": masks,
        "boxes": boxes,
        "coco": coco,
        "voc": voc,
        "pets": pets,
        "imagenet": imagenet,
        "celeba": celeba,
        "celebamask": celebamask,
    }
    from verax.metrics.alignment import SCORES
    from verax.studies import scripts
    from verax.studies.aligning import align as execute
    from verax.studies.units import content_hash
    from verax.tasks.alignment import find

    if dataset is None:
        data = _data(given, images, labels, values, label, split, outputs is not None)
    elif any(found is not None for found in (*given.values(), images, labels, values, label, split)):
        raise InvalidParameter("--dataset names its pictures and marks by itself; leave other data out.")
    else:
        data = find(dataset)
    options: dict[str, Any] = {
        "method": scripts.method(method),
        "metrics": SCORES
        if metrics is None
        else [word.strip() for word in metrics.split(",") if word.strip()],
        "binarisation": binarisation,
        "target": target,
        "protocol": protocol,
        "part": part,
        "objects": objects,
        "tolerance": tolerance,
        "ranges": ranges,
        "weights": weights,
        "outputs": outputs,
        "classes": None if classes is None else [word.strip() for word in classes.split(",")],
        "geometry": _geometry(geometry),
        "mean": _numbers(mean, "mean"),
        "std": _numbers(std, "std"),
        "limit": limit,
        "settings": _settings(set_ or []),
        "seed": seed,
        "name": name,
    }
    if out is None:
        chosen = {"labels": labels, "values": values, "label": label, "split": split}
        asked = given | options | chosen | {"model": model, "images": images}
        asked |= {} if dataset is None else {"dataset": dataset}
        words = {name: str(value) for name, value in asked.items()}
        plain = re.sub(r"[^A-Za-z0-9.]+", "-", f"{model}-{data.name}").strip("-")
        out = Path("runs") / f"align-{plain}-{content_hash(words)[:8]}"
    try:
        done = execute(
            model,
            data,
            **options,
            pictures=pictures,
            batch_size=batch_size,
            device=device,
            out=out,
            quiet=quiet,
        )
    except KeyboardInterrupt as stop:
        echo(f"verax: stopped; run it again with --out {out} to go on.", err=True)
        raise typer.Exit(130) from stop
    done.facts["command"] = _command(context)
    done.save(out)
    if not quiet and not json:
        show(done)
    with progress.status("Writing the report", hidden=quiet):
        path = done.report(out / "report.html")
    if json:
        print_json(records.of_alignment(done, out, path))
    else:
        say(f"Report: {path}")


def show(done: Alignment) -> None:
    """Print the alignment, the eight cases and the worst offenders."""
    from verax.reports import overlaps
    from verax.reports.alignment import nothing_shown

    facts = done.facts
    title = f"{facts['model']} on {facts['data']}: {len(done)} images, {facts['method']}"
    table = Table(title=escape(title), box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("score", no_wrap=True)
    for name in ("mean", "random", "centre", "lift"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in done.table().to_dict("records"):
        value = f"{row['value']:.3f} {interval(row['low'], row['high'], 2)}"
        cells = (row["metric"], value, f"{row['random']:.3f}", f"{row['centre']:.3f}", f"{row['lift']:.2f}")
        table.add_row(*(escape(str(cell)) for cell in cells))
    console.print(table)
    known = not math.isnan(done.accuracy)
    scores = done.scores
    right = scores["right"].dropna()
    share = overlaps.share(int(right.astype(bool).sum()), len(right), 1)
    empty, flat = int(scores["empty"].sum()), int(scores["flat"].sum())
    console.print(
        f"{f'Accuracy {share}' if known else 'Labels not known, so no cases'}. Chance has as many pixels as "
        "the map shows, at random places or around the centre. "
        f"Images without a mark: {empty}. Maps that say nothing: {flat}.",
        style="dim",
    )
    if known and "case" in scores:
        cases = Table(title="Eight cases", box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        for name, side in (("case", "left"), ("images", "right"), ("", "left")):
            cases.add_column(name, justify=side)  # type: ignore[arg-type]
        for row in done.cases().to_dict("records"):
            cases.add_row(row["case"], str(row["images"]), row["about"])
        console.print(cases)
        none, whole = done.without_case(), int(scores["right"].notna().sum())
        some = f"{none} of {whole} images belong to none of the eight, and some to several"
        words = some if none < whole else f"None of the {whole} images belongs to any of the eight"
        console.print(
            f"{words}: cases are the ranges of scores of the paper (verax align --ranges).", style="dim"
        )
    first = done.metrics[0]
    worst = done.worst(5, first)
    if len(worst):
        names = ", ".join(f"{row['id']} ({row[first]:.2f})" for row in worst.to_dict("records"))
        console.print(f"Least aligned: {escape(names)}", soft_wrap=True, highlight=False)
    for note in [*overlaps.warnings(done), *facts.get("notes", []), *filter(None, [nothing_shown(done)])]:
        console.print(f"[yellow]{escape(note)}[/yellow]", soft_wrap=True)
