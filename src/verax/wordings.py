"""Wordings: what functions do, as far as their own code says it.

A wording tells two functions of one name apart, in whatever files, runs and processes they are. It is made of
the instructions of a function, and of the functions and classes of the same folder that it names, with the
numbers and words in them. What other packages bring is not in it, and neither is what may change while a
function runs, as lists and arrays do: results must not be taken from the store by it.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import inspect
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
_HOLDERS = (functools.partial, MethodType, staticmethod, classmethod, property)
"""What holds functions and is none."""


def wording(thing: object) -> str:
    """A hash of what a callable does; empty where it has no code that can be read."""
    found = list(_functions(thing))
    if not found:
        return ""
    return hashlib.sha256("\n".join(_Reader(_folder(found[-1])).lines(thing)).encode()).hexdigest()


def _folder(function: FunctionType) -> Path:
    return Path(function.__code__.co_filename).parent


def _held(thing: Any) -> tuple[Any, ...]:
    """What a holder or a wrapper has in it."""
    if isinstance(thing, functools.partial):
        return (thing.func,)
    if isinstance(thing, property):
        return (thing.fget, thing.fset)
    if isinstance(thing, MethodType | staticmethod | classmethod):
        return (thing.__func__,)
    inner = inspect.getattr_static(thing, "__wrapped__", None)  # which runs nothing
    return () if inner is None else (inner,)


def _functions(thing: Any) -> Iterator[FunctionType]:
    """The functions that run when a callable is called, with what is wrapped around them before them."""
    if isinstance(thing, FunctionType):
        yield thing
    held = _held(thing)
    for inner in held:
        yield from _functions(inner)
    if not held and not isinstance(thing, FunctionType):
        name = "__init__" if isinstance(thing, type) else "__call__"
        called = inspect.getattr_static(thing if isinstance(thing, type) else type(thing), name, None)
        if isinstance(called, FunctionType):
            yield called


class _Reader:
    """Reads a callable and what it names, each once, line by line: what is named is told by its line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.found: list[Any] = []  # which also keeps them, so that their numbers stay theirs
        self.numbers: dict[int, int] = {}

    def lines(self, thing: object) -> Iterator[str]:
        """What is said of a thing and of all that it names."""
        self._add(thing)
        for one in self.found:  # which grows
            yield repr(list(self.parts(one)))

    def say(self, thing: Any) -> str:
        """A plain value as it is; what has code by the number of its line, anything else by its kind."""
        if isinstance(thing, _PLAIN):
            return repr(thing)
        if isinstance(thing, tuple):
            return f"({', '.join(map(self.say, thing))})"
        if isinstance(thing, frozenset):  # whose order is another in every process
            return f"{{{', '.join(sorted(map(self.say, thing)))}}}"
        if self.near(thing) or isinstance(thing, _HOLDERS):
            return f"line {self._add(thing)}"
        named = thing if isinstance(thing, type | FunctionType) else type(thing)
        return f"{named.__module__}.{named.__qualname__}"

    def _add(self, thing: object) -> int:
        if id(thing) not in self.numbers:
            self.numbers[id(thing)] = len(self.found)
            self.found.append(thing)
        return self.numbers[id(thing)]

    def near(self, thing: Any) -> bool:
        """Whether code of the same folder is in a thing."""
        if isinstance(thing, ModuleType):
            file = inspect.getattr_static(thing, "__file__", None)
            return isinstance(file, str) and Path(file).parent == self.folder
        if isinstance(thing, type):
            return any(self._here(value) for value in vars(thing).values())
        return self._here(thing) or self.near(type(thing))

    def _here(self, thing: Any) -> bool:
        """Whether a function of the same folder is in a function, a holder or a wrapper."""
        if not isinstance(thing, FunctionType) and not _held(thing):
            return False
        return any(_folder(function) == self.folder for function in _functions(thing))

    def parts(self, thing: Any) -> Iterator[str]:
        """What is said of a thing that has code."""
        if isinstance(thing, FunctionType):
            yield repr(_said(thing.__code__))
            if _folder(thing) == self.folder:
                yield from self._named(thing)
        elif isinstance(thing, functools.partial):
            yield from map(self.say, (thing.args, tuple(sorted(thing.keywords.items()))))
        elif isinstance(thing, type | ModuleType):
            yield from map(self.say, thing.__bases__ if isinstance(thing, type) else ())
            for name, value in sorted(vars(thing).items()):
                plain = isinstance(thing, type) and not name.startswith("__") and isinstance(value, _PLAIN)
                if plain or self._here(value) or (isinstance(value, type) and self.near(value)):
                    yield f"{name}: {self.say(value)}"
        elif not _held(thing):
            yield self.say(type(thing))
        yield from map(self.say, _held(thing))

    def _named(self, function: FunctionType) -> Iterator[str]:
        """The defaults of a function, and what its code names."""
        code = function.__code__
        yield self.say(function.__defaults__)
        yield self.say(tuple(sorted((function.__kwdefaults__ or {}).items())))
        named, changed = set[str](), set[str]()
        for instruction in _instructions(code):
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                named.add(instruction.argval)
            elif instruction.opname in ("STORE_GLOBAL", "STORE_DEREF"):
                changed.add(instruction.argval)
        known = {name: function.__globals__[name] for name in named & function.__globals__.keys()}
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            with suppress(ValueError):  # it is empty yet
                known[name] = cell.cell_contents
        for name in sorted(known.keys() - changed):
            yield f"{name}: {self.say(known[name])}"


def _instructions(code: CodeType) -> Iterator[dis.Instruction]:
    """The instructions of a function and of those within it."""
    yield from dis.get_instructions(code)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _instructions(constant)


def _said(code: CodeType) -> tuple[object, ...]:
    """The instructions, names and constants of a function, and of those within it."""

    def plain(constant: object) -> object:
        if isinstance(constant, CodeType):
            return _said(constant)
        # the order of a set of words is another in every process
        return sorted(map(repr, constant)) if isinstance(constant, frozenset) else repr(constant)

    return code.co_code, code.co_names, code.co_varnames, [plain(constant) for constant in code.co_consts]
