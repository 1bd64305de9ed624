"""Options that say what a study is, shared by the commands that take one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from verax.cli import completion
from verax.errors import InvalidParameter

CLIMATE = "Of climate tasks"

StudyName = Annotated[
    str,
    typer.Argument(
        help="A study's name (verax list studies) or a TOML file.", autocompletion=completion.studies
    ),
]
Methods = Annotated[
    str | None,
    typer.Option(
        help="Only these methods: a,b,c; FILE.py:NAME is your own.", autocompletion=completion.methods
    ),
]
Tasks = Annotated[str | None, typer.Option(help="Only these tasks: a,b,c.", autocompletion=completion.tasks)]
Networks = Annotated[
    str | None, typer.Option(help="Only these networks: a,b.", autocompletion=completion.networks)
]
Seeds = Annotated[str | None, typer.Option(help="Training seeds of the networks: 0,1,2.")]
Protocols = Annotated[
    str | None,
    typer.Option(
        help="Some of sound, sound:counterfactual, sound:shapley, published, faithfulness, exact.",
        autocompletion=completion.protocols,
    ),
]
Metrics = Annotated[
    str | None,
    typer.Option(help="Own metrics (docs/plugins.md) or FILE.py:NAME, scored beside those of the protocols."),
]
Samples = Annotated[int | None, typer.Option(help="Images in each bucket.")]
Seed = Annotated[int | None, typer.Option(help="Seed of the images and of random methods.")]
Certify = Annotated[int | None, typer.Option(help="Scenes in each bucket for the certificates; 0: none.")]
Identify = Annotated[
    int | None,
    typer.Option(help="Pictures in each bucket to read the reasoning off the maps from; 0: none."),
]
Renderer = Annotated[str | None, typer.Option(help="sound or published.")]
Background = Annotated[str | None, typer.Option(help="black, noise, noise:LOW-HIGH, texture or folder:PATH.")]
Field = Annotated[
    Path | None,
    typer.Option(help="A file (NetCDF, NPZ, NPY) that climate tasks are made from.", rich_help_panel=CLIMATE),
]
Variable = Annotated[
    str | None, typer.Option(help="Of that file, where it has several.", rich_help_panel=CLIMATE)
]

_LISTS = ("methods", "tasks", "networks", "protocols", "metrics")


def words(text: str) -> list[str]:
    """What stands between commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def numbers(text: str) -> list[int]:
    """Seeds between commas."""
    try:
        return [int(word) for word in words(text)]
    except ValueError as error:
        raise InvalidParameter(f"Seeds are whole numbers such as 0,1,2, not {text!r}.") from error


def names(text: str | None) -> list[str] | None:
    """What stands between commas, if anything was said."""
    return None if text is None else words(text)


def seeds(text: str | None) -> list[int] | None:
    """Seeds between commas, if any were said."""
    return None if text is None else numbers(text)


def changes(**asked: Any) -> dict[str, Any]:
    """What was asked of a study on the command line, as `verax.run` takes it."""
    lists = {name: names(asked[name]) for name in _LISTS}
    return {**asked, **lists, "seeds": seeds(asked["seeds"])}
