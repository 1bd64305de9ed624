"""Climate tasks made from their options."""

from __future__ import annotations

from functools import partial
from typing import Any

from verax.errors import InvalidParameter
from verax.tasks.climate import cobe
from verax.tasks.climate.analytic import analytic
from verax.tasks.climate.fields import Field
from verax.tasks.climate.task import Climate

OPTIONS = ("function", "breaks", "samples", "baseline", "uniform", "globally")
"""What every climate task can be asked for."""

FILE_OPTIONS = ("field", "variable", "coarsen", "by", "share", "monthly", "shrinkage", "constant")
"""What `climate/field` can be asked for besides."""


def _climate(name: str, origin: Any, **options: Any) -> Climate:
    names = {"function": "seed", "samples": "count"}
    return Climate(name, origin, **{names.get(option, option): options[option] for option in options})


def from_analytic(name: str, **options: Any) -> Climate:
    """The embedded field."""
    return _climate(name, analytic, **options)


def from_cobe(name: str, **options: Any) -> Climate:
    """COBE-SST2 or its sea ice; read when it is needed."""
    return _climate(name, partial(cobe.field, name.partition("/")[2]), **options)


def _no_file() -> Field:
    raise InvalidParameter("The task climate/field needs a file: field=PATH, and variable=NAME for NetCDF.")


def from_file(name: str, field: str | None = None, **options: Any) -> Climate:
    """A user's file; read at once, because what is wrong with it should be said at once."""
    if field is None:
        return _climate(name, _no_file, **options)
    raise InvalidParameter("Files cannot be read yet.")
