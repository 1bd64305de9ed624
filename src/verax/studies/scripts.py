"""Scripts: Python files that somebody names as ``FILE.py:NAME``, and the methods and metrics in them.

Such a name is read where a person gives it (the command line, `verax.run`), never in a study file: a study
that came from elsewhere must not run code.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from verax.errors import InvalidParameter, MissingFile, UnknownName, VeraxError, suggestion
from verax.methods.base import METHODS, Method, describe
from verax.metrics import METRICS, Metric
from verax.registry import Registry

_NAMED = re.compile(r"(?P<file>.+\.py)(?::(?P<name>[^:/\\]*))?")

_READ: dict[Path, ModuleType] = {}
"""Files that this process has imported: each is imported once."""

_GIVEN: list[tuple[object, str]] = []
"""Functions that came from files, and how they were named."""


def is_named(text: object) -> bool:
    """Whether a text names something in a file."""
    return isinstance(text, str) and _NAMED.fullmatch(text) is not None


def method(text: str) -> str:
    """The name of the method that ``FILE.py:NAME`` is, registered; other names stay as they are."""
    return _registered(text, METHODS, "(model, inputs, targets)") if is_named(text) else text


def metric(text: str) -> str:
    """The name of the metric that ``FILE.py:NAME`` is; other names stay as they are."""
    return _registered(text, METRICS, "(maps, truth)") if is_named(text) else text


def source(thing: Method | Metric) -> str:
    """How a method or metric was named, where it came from a file; else nothing."""
    named = [text for function, text in _GIVEN if function is thing.function]
    return named[-1] if named else ""


def _registered(text: str, registry: Registry[Any], call: str) -> str:
    """Import the file, and give the name under which the thing in it is registered."""
    match = _NAMED.fullmatch(text)
    assert match is not None
    file, name, noun = match["file"], match["name"] or "", registry.noun
    module = _imported(Path(file).expanduser(), file)
    known = _brought(module, registry)
    thing = vars(module).get(name)
    found = known.get(name) or next((made for made in known.values() if made.function is thing), None)
    if found is None and noun == "method" and thing is not None:
        found = thing if isinstance(thing, Method) else _adopted(name, thing, file)
        METHODS.own(found.name, found)
    if found is None and isinstance(thing, Metric):
        found = METRICS.own(thing.name, thing)
    if found is None and callable(thing):
        raise InvalidParameter(
            f"{name!r} of {file!r} does not say which direction is better: "
            f"put @verax.metric({name!r}, higher_is_better=..., bounds=...) above it."
        )
    if found is None:
        there = list(dict.fromkeys([*known, *_functions(module, call.count(",") + 1)]))
        if not there:
            raise UnknownName(f"{file!r} has no {noun}: write a function {call} into it.")
        if not name:
            raise InvalidParameter(f"Name the {noun} in the file, such as {file}:{there[0]}.")
        raise UnknownName(f"There is no {noun} {name!r} in {file!r}{suggestion(name, there)}")
    _GIVEN.append((found.function, f"{file}:{name}"))
    return str(found.name)


def _adopted(name: str, thing: Any, file: str) -> Method:
    """A callable of a file as a method."""
    try:
        return describe(name, thing)
    except VeraxError as error:
        raise InvalidParameter(f"{file!r}: {error}") from error


def _brought(module: ModuleType, registry: Registry[Any]) -> Mapping[str, Any]:
    """What the decorators of a module have registered: its own functions, or what it has names for."""
    own = [registry.get(name) for name in registry if not registry.builtin(name)]
    return {
        made.name: made
        for made in own
        if getattr(made.function, "__module__", None) == module.__name__
        or any(made.function is thing for thing in vars(module).values())
    }


def _functions(module: ModuleType, parameters: int) -> list[str]:
    """Functions that a module defines and that so many arguments are enough for."""
    found = []
    for name, thing in vars(module).items():
        if inspect.isfunction(thing) and thing.__module__ == module.__name__ and not name.startswith("_"):
            with suppress(TypeError):
                inspect.signature(thing).bind(*[None] * parameters)
                found.append(name)
    return found


def _imported(path: Path, file: str) -> ModuleType:
    """The module that a file is; what is wrong with it is one sentence with its line."""
    whole = path.resolve()
    if whole in _READ:
        return _READ[whole]
    if not whole.is_file():
        raise MissingFile(f"There is no file {file!r}.")
    try:
        _READ[whole] = _load(whole)
    except (Exception, SystemExit) as error:  # other people's code may raise anything
        first = str(error).partition("\n")[0].strip().rstrip(".")
        what = first if isinstance(error, VeraxError) else f"{type(error).__name__}: {first}".rstrip(": ")
        if isinstance(error, SyntaxError):
            what = f"{type(error).__name__}: {error.msg}"
        raise InvalidParameter(f"{file!r} cannot be imported: {what} ({_line(error, whole)}).") from error
    return _READ[whole]


def _line(error: BaseException, path: Path) -> str:
    """Where the fault is: the last line of the file itself, or where it cannot be parsed."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}:{error.lineno}"
    lines = [s.lineno for s in traceback.extract_tb(error.__traceback__) if Path(s.filename) == path]
    return f"{path.name}:{lines[-1]}" if lines else path.name


def _load(path: Path) -> ModuleType:
    """Import a file under its own name, so that workers can do the same.

    Its folder is searched last, so that no file beside it stands in for an installed module. Where its name
    is that of something else, workers could not find it: it gets another, which no one can import, and its
    functions stay with the driver.
    """
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # workers have the same
    importlib.invalidate_caches()
    there = None
    with suppress(ValueError, ImportError):  # a module without a specification, or a name with a dot
        there = importlib.util.find_spec(path.stem)
    if there is not None and there.origin is not None and Path(there.origin).resolve() == path:
        return importlib.import_module(path.stem)
    name = f"{path.stem} {hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # while it is made: dataclasses, for one, look there
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[name]
    return module
