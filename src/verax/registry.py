"""Names and what they stand for.

One `Registry` class serves tasks, networks, methods, metrics, protocols and studies. Built-in entries are
written as ``"module:attribute"`` and imported on first use, so that listing names costs nothing; other
packages add theirs through entry points. A wrong name gets a suggestion.
"""

from __future__ import annotations

import importlib
import threading
import warnings
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Any, Generic, TypeVar, cast

from verax.errors import InvalidParameter, UnknownName, VeraxWarning, suggestion

T = TypeVar("T")


def load(target: str) -> Any:
    """Import ``"module:attribute"``."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


class Registry(Generic[T]):
    """Names of one kind of thing, with lazy targets, aliases and entry points."""

    def __init__(
        self,
        noun: str,
        targets: Mapping[str, str] | None = None,
        group: str | None = None,
        prefixes: Mapping[str, str] | None = None,
    ) -> None:
        """An empty registry.

        Args:
            noun: what it holds, for messages.
            targets: name -> ``"module:attribute"``.
            group: entry-point group of other packages.
            prefixes: prefix -> ``"module:function"`` that makes the thing called ``prefix:rest`` from rest.
        """
        self.noun = noun
        self._prefixes = dict(prefixes or {})
        self._group = group
        self._items: dict[str, T | str] = dict(targets or {})
        self._aliases: dict[str, str] = {}
        self._added: set[str] = set()
        self._lock = threading.RLock()
        self._plugins_loaded = group is None

    def register(self, name: str, item: T, *, aliases: tuple[str, ...] = (), replace: bool = False) -> T:
        """Add `item` under `name`; an existing name is refused unless `replace` is set."""
        if not isinstance(name, str) or not name or name != name.strip():
            raise InvalidParameter(f"A {self.noun} needs a name without spaces around it, not {name!r}.")
        with self._lock:
            taken = {*self._items, *self._aliases}
            for word in (name, *aliases):
                if word in taken and not replace:
                    raise InvalidParameter(f"The {self.noun} {word!r} exists already.")
            self._items[name] = item
            self._added.add(name)
            self._aliases.update(dict.fromkeys(aliases, name))
        return item

    def unregister(self, name: str) -> None:
        """Forget `name` and its aliases."""
        with self._lock:
            self._items.pop(name, None)
            self._added.discard(name)
            self._aliases = {alias: target for alias, target in self._aliases.items() if target != name}

    def canonical(self, name: str) -> str:
        """Return the full name behind `name`, which may be an alias."""
        self._load_plugins()
        if name in self._items:
            return name
        if name in self._aliases:
            return self._aliases[name]
        prefix, colon, rest = str(name).partition(":")
        if colon and prefix in self._prefixes:
            self._items[name] = load(self._prefixes[prefix])(rest)
            return name
        known = [*self._items, *self._aliases]
        raise UnknownName(f"There is no {self.noun} named {str(name)!r}{suggestion(str(name), known)}")

    def get(self, name: str) -> T:
        """Return the thing named `name`, importing it if need be."""
        name = self.canonical(name)
        with self._lock:
            item = self._items[name]
            if isinstance(item, str):
                item = cast("T", load(item))
                self._items[name] = item
            return item

    def added(self, name: str) -> bool:
        """Whether this process registered `name` itself, so that other processes may not know it."""
        return self.canonical(name) in self._added

    def names(self) -> list[str]:
        """All names, in the order in which they were registered."""
        self._load_plugins()
        return list(self._items)

    def aliases(self, name: str) -> list[str]:
        """The other names of `name`."""
        return [alias for alias, target in self._aliases.items() if target == name]

    def __contains__(self, name: object) -> bool:
        self._load_plugins()
        return name in self._items or name in self._aliases

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    def _load_plugins(self) -> None:
        with self._lock:
            if self._plugins_loaded:
                return
            self._plugins_loaded = True
            for entry in metadata.entry_points(group=cast("str", self._group)):
                try:
                    if entry.name not in self._items:
                        self._items[entry.name] = cast("T", entry.load())
                except Exception as error:  # a broken plugin must not take the rest down
                    warnings.warn(f"Plugin {entry.name!r} was left out: {error}", VeraxWarning, stacklevel=3)
