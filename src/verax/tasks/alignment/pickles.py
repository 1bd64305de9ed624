"""Pickles of arrays, read without running them.

A pickle is a program. This reader knows the few instructions that lists, dictionaries, strings, numbers and
NumPy arrays of plain numbers are made of, and carries them out itself on plain values; nothing is imported
and nothing is called, and any other instruction is an error.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verax.errors import MissingFile
from verax.tasks.alignment import reading

_MARK = object()
_KINDS = {"u1", "i1", "i2", "i4", "i8", "f4", "f8"}
_NUMPY = {f"numpy.{core}.multiarray _reconstruct" for core in ("core", "_core")}
_KNOWN = {
    **dict.fromkeys(_NUMPY, "array"),
    "numpy ndarray": "ndarray",
    "numpy dtype": "dtype",
    "_codecs encode": "encode",
}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_PUSH = {
    *("BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "BINFLOAT"),
    *("BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
}


class _Broken(Exception):
    """What is wrong with a pickle."""


@dataclass(frozen=True)
class _Global:
    """A name that a pickle wants to import; it stays a name."""

    kind: str


@dataclass
class _Kind:
    """A type of numbers."""

    code: str
    order: object = "|"


@dataclass
class _Array:
    """An array before and after its contents are known."""

    values: NDArray[Any] | None = None


def _array(state: object) -> NDArray[Any]:
    """An array from the state that NumPy pickles: version, shape, type, order, bytes."""
    if not isinstance(state, tuple) or len(state) != 5:
        raise _Broken("an array without contents")
    _, shape, kind, fortran, data = state
    if not isinstance(kind, _Kind) or kind.code not in _KINDS or not isinstance(data, bytes):
        raise _Broken("an array of something else than numbers")
    if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape) or len(shape) > 4:
        raise _Broken("an array of a strange shape")
    type_ = np.dtype((">" if kind.order == b">" or kind.order == ">" else "<") + kind.code)
    count = 1
    for side in shape:
        count *= side
    if count * type_.itemsize != len(data):
        raise _Broken("an array whose contents do not fit its shape")
    return np.frombuffer(data, type_).reshape(shape, order="F" if fortran else "C")


class _Reader:
    """A stack on which the instructions of a pickle are carried out."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def pop(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise _Broken("something is taken that was never put there")
        return self.stack.pop()

    def since_mark(self) -> list[Any]:
        for at in range(len(self.stack) - 1, -1, -1):
            if self.stack[at] is _MARK:
                found = self.stack[at + 1 :]
                del self.stack[at:]
                return found
        raise _Broken("a mark is missing")

    def top(self, kind: type) -> Any:
        if not self.stack or not isinstance(self.stack[-1], kind):
            raise _Broken(f"no {kind.__name__} where one is needed")
        return self.stack[-1]

    def set_items(self, items: list[Any]) -> None:
        table = self.top(dict)
        if len(items) % 2 or not all(isinstance(key, str | bytes) for key in items[::2]):
            raise _Broken("a dictionary whose keys are not names")
        table.update(zip(items[::2], items[1::2], strict=True))

    def extend(self, items: list[Any]) -> None:
        self.top(list).extend(items)

    def name(self, name: str) -> None:
        if name not in _KNOWN:
            raise _Broken(f"it wants to use {name.replace(' ', '.')[:100]!r}")
        self.stack.append(_Global(_KNOWN[name]))

    def reduce(self) -> None:
        arguments, function = self.pop(), self.pop()
        if not isinstance(function, _Global) or not isinstance(arguments, tuple):
            raise _Broken("a call of something that is not known")
        if function.kind == "array":
            self.stack.append(_Array())
        elif function.kind == "dtype" and arguments and isinstance(arguments[0], str | bytes):
            code = arguments[0]
            self.stack.append(_Kind(code.decode("latin-1") if isinstance(code, bytes) else code))
        elif function.kind == "encode" and isinstance(arguments[0], str) and arguments[1:] == ("latin1",):
            self.stack.append(arguments[0].encode("latin-1"))
        else:
            raise _Broken("a call of something that is not known")

    def build(self) -> None:
        state = self.pop()
        if self.stack and isinstance(self.stack[-1], _Kind) and isinstance(state, tuple) and len(state) > 1:
            self.stack[-1].order = state[1]
        else:
            self.top(_Array).values = _array(state)

    def step(self, name: str, argument: Any) -> None:
        """Carry out one instruction."""
        if name in _PUSH:
            # Python 2 wrote bytes as strings; characters stand for bytes
            old = name in ("BINSTRING", "SHORT_BINSTRING")
            self.stack.append(argument.encode("latin-1") if old else argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            if name == "STACK_GLOBAL":
                last, first = self.pop(), self.pop()
                argument = f"{first} {last}"
            self.name(argument)
        elif name in ("BINPUT", "LONG_BINPUT", "PUT", "MEMOIZE"):
            self.memo[len(self.memo) if argument is None else argument] = self.top(object)
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            if argument not in self.memo:
                raise _Broken("something is remembered that was never learnt")
            self.stack.append(self.memo[argument])
        elif name in _STEPS:
            _STEPS[name](self)
        elif name not in ("PROTO", "FRAME", "STOP"):
            raise _Broken(f"it has the instruction {name}")


def _tuple(count: int) -> Callable[[_Reader], None]:
    def make(reader: _Reader) -> None:
        items = [reader.pop() for _ in range(count)]
        reader.stack.append(tuple(reversed(items)))

    return make


_STEPS: dict[str, Callable[[_Reader], None]] = {
    "MARK": lambda reader: reader.stack.append(_MARK),
    "EMPTY_DICT": lambda reader: reader.stack.append({}),
    "EMPTY_LIST": lambda reader: reader.stack.append([]),
    "EMPTY_TUPLE": lambda reader: reader.stack.append(()),
    "TUPLE": lambda reader: reader.stack.append(tuple(reader.since_mark())),
    "TUPLE1": _tuple(1),
    "TUPLE2": _tuple(2),
    "TUPLE3": _tuple(3),
    "SETITEM": lambda reader: reader.set_items([reader.pop(), reader.pop()][::-1]),
    "SETITEMS": lambda reader: reader.set_items(reader.since_mark()),
    "APPEND": lambda reader: reader.extend([reader.pop()]),
    "APPENDS": lambda reader: reader.extend(reader.since_mark()),
    "REDUCE": _Reader.reduce,
    "BUILD": _Reader.build,
}


def _instructions(data: bytes) -> Iterator[tuple[str, Any]]:
    for operation, argument, _ in pickletools.genops(data):
        yield operation.name, argument


def load(path: Path, limit: int = 2**29) -> dict[str, Any]:
    """The dictionary in a pickle; names are strings, arrays are arrays, everything else is as it was."""
    reader = _Reader()
    try:
        for name, argument in _instructions(reading.data(path, limit)):
            reader.step(name, argument)
        found = reader.top(dict)
    except _Broken as error:
        raise MissingFile(f"The pickle {str(path)!r} is not read: {error}.") from error
    except (ValueError, KeyError, IndexError, TypeError, OverflowError, MemoryError) as error:
        raise MissingFile(f"The file {str(path)!r} is not a whole pickle.") from error
    names = [key.decode("latin-1") if isinstance(key, bytes) else key for key in found]
    values = [value.values if isinstance(value, _Array) else value for value in found.values()]
    return dict(zip(names, values, strict=True))
