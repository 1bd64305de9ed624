"""Climate tasks made from their options."""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from typing import Any

from verax.errors import InvalidParameter
from verax.tasks.climate import cobe, files
from verax.tasks.climate.analytic import analytic
from verax.tasks.climate.fields import Field
from verax.tasks.climate.files import Reading
from verax.tasks.climate.task import Climate

OPTIONS = ("function", "breaks", "samples", "baseline", "uniform", "globally", "patches")
"""What every climate task can be asked for."""

READING = tuple(option.name for option in fields(Reading))
FILE_OPTIONS = ("field", *READING)
"""What `climate/field` can be asked for besides."""


def _climate(name: str, origin: Any, **options: Any) -> Climate:
    names = {"function": "seed", "samples": "count"}
    given = {names.get(option, option): options[option] for option in options}
    usual = {entry.name: entry.default for entry in fields(Climate)}
    # what is not usual is part of the name, as `verax.task` reads it: one study may hold many of them
    marks = [f"{o}={options[o]}" for o in OPTIONS if o in options and options[o] != usual[names.get(o, o)]]
    return Climate(f"{name}?{'&'.join(marks)}" if marks else name, origin, **given)


def from_analytic(name: str, **options: Any) -> Climate:
    """The embedded field."""
    return _climate(name, analytic, **options)


def from_cobe(name: str, **options: Any) -> Climate:
    """COBE-SST2 or its sea ice; read when it is needed."""
    return _climate(name, partial(cobe.field, name.partition("/")[2]), **options)


def _no_file() -> Field:
    raise InvalidParameter("The task climate/field needs a file: field=PATH, and variable=NAME for NetCDF.")


def from_file(name: str, field: Any = None, **options: Any) -> Climate:
    """A user's file or xarray object; read at once, because what is wrong with it should be said at once.

    Besides `OPTIONS` there are those of `verax.tasks.climate.files.Reading`.
    """
    reading = Reading(**{option: options.pop(option) for option in READING if option in options})
    made = _climate(name, _no_file if field is None else partial(files.field, field, reading), **options)
    if field is not None:
        made.source  # noqa: B018
    return made
