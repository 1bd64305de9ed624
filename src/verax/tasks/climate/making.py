"""Climate tasks made from their options."""

from __future__ import annotations

import hashlib
import re
from dataclasses import fields, replace
from functools import partial
from pathlib import Path, PurePath
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


_LONGEST = 40


def _word(value: object) -> str:
    """An option as a short word for names; what had to be changed has a hash behind it."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    safe = re.sub(r"[^A-Za-z0-9._+-]+", "-", text)
    if safe == text and len(text) <= _LONGEST:
        return text
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:6]
    return f"{safe[: _LONGEST - 7]}-{digest}"


def _marks(source: object, reading: Reading) -> list[str]:
    """The file that a field is read from, without its folder, and all that is not usual about reading it."""
    usual = {option.name: option.default for option in fields(Reading)}
    file = PurePath(source).name if isinstance(source, str | PurePath) else type(source).__name__
    given = {option: getattr(reading, option) for option in READING}
    unusual = [f"{option}={_word(value)}" for option, value in given.items() if value != usual[option]]
    return [f"field={_word(file)}", *unusual]


def _climate(name: str, origin: Any, *marks: str, **options: Any) -> Climate:
    names = {"function": "seed", "samples": "count"}
    given = {names.get(option, option): options[option] for option in options}
    usual = {entry.name: entry.default for entry in fields(Climate)}
    # what is not usual is part of the name, as `verax.task` reads it: one study may hold many of them
    own = [f"{o}={options[o]}" for o in OPTIONS if o in options and options[o] != usual[names.get(o, o)]]
    told = "&".join([*marks, *own])
    return Climate(f"{name}?{told}" if told else name, origin, **given)


def _words(name: str, source: object, reading: Reading, options: dict[str, Any]) -> tuple[str, ...] | None:
    """How the command line asks for a field of one's own; what is only in memory it cannot ask for."""
    if not isinstance(source, str | PurePath):
        return None
    usual = {option.name: option.default for option in fields(Reading)}
    asked = {o: getattr(reading, o) for o in READING if o != "variable"}
    asked = {o: value for o, value in asked.items() if value != usual[o]} | options
    told = "&".join(
        f"{o}={str(value).lower() if isinstance(value, bool) else value}" for o, value in asked.items()
    )
    words = [f"{name}?{told}" if told else name, "--field", str(Path(source).expanduser().absolute())]
    return (*words, *(() if reading.variable is None else ("--variable", reading.variable)))


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

    Besides `OPTIONS` there are those of `verax.tasks.climate.files.Reading`. The file's name, without its
    folder, and what is not usual about reading it are part of the task's name.
    """
    reading = Reading(**{option: options.pop(option) for option in READING if option in options})
    if field is None:
        return _climate(name, _no_file, **options)
    made = _climate(name, partial(files.field, field, reading), *_marks(field, reading), **options)
    return replace(made, origin=made.source, words=_words(name, field, reading, options))
