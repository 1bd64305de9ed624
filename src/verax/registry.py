"""Names and what they stand for.

One `Registry` class serves tasks, networks, methods, metrics, protocols and studies. Built-in entries are
written as ``"module:attribute"`` and imported on first use, so that listing names costs nothing; other
packages add theirs through entry points (`verax.plugins`), which are looked for when a name is asked for that
is not known, or a listing is. A wrong name gets a suggestion.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, Generic, TypeVar, cast

from verax import plugins
from verax.errors import InvalidParameter, UnknownName, VeraxWarning, suggestion

T = TypeVar("T")

OWN = {
    "method": 'your own: FILE.py:NAME behind --methods, or @verax.method("NAME") in Python',
    "metric": 'your own: FILE.py:NAME behind --metrics, or @verax.metric("NAME", ...) in Python',
}
"""How things of one's own are given, by their noun."""


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
        adopt: Callable[[str, Any], T] | None = None,
    ) -> None:
        """An empty registry.

        Args:
            noun: what it holds, for messages.
            targets: name -> ``"module:attribute"``.
            group: entry-point group of other packages.
            prefixes: prefix -> ``"module:function"`` that makes the thing called ``prefix:rest`` from rest.
            adopt: makes an entry of what a plugin brings under a name, or refuses it (default: as it is).
        """
        self.noun = noun
        self._prefixes = dict(prefixes or {})
        self._group = group
        self._items: dict[str, T | str] = dict(targets or {})
        self._aliases: dict[str, str] = {}
        self._sealed = frozenset(self._items)
        self._open = not self._items  # until it is sealed, what arrives is ours, whoever had it imported
        self._lock = threading.RLock()
        self._turn = threading.RLock()  # another: modules that are imported elsewhere register meanwhile
        self._adopt = adopt
        self._brought: dict[str, str] = {}
        self._waiting: list[plugins.Plugin] | None = None if group else []

    def register(self, name: str, item: T, *, aliases: tuple[str, ...] = (), replace: bool = False) -> T:
        """Add `item` under `name`; an existing name is refused unless `replace` is set."""
        if not isinstance(name, str) or not name or name != name.strip():
            raise InvalidParameter(f"A {self.noun} needs a name without spaces around it, not {name!r}.")
        with self._lock:
            taken = {*self._items, *self._aliases}
            plugin = None if self._open else plugins.arriving()
            for word in (name, *aliases):
                if word in taken and (not replace or plugin is not None):
                    raise InvalidParameter(f"The {self.noun} {word!r} exists already.")
            self._items[name] = item
            self._brought.pop(name, None)
            if plugin is not None:
                self._brought[name] = plugin.distribution
                plugins.arriving(lambda: self.unregister(name))
            self._aliases.update(dict.fromkeys(aliases, name))
        return item

    def seal(self) -> None:
        """Call all names so far built in: they cannot be given to anything else."""
        self._sealed, self._open = frozenset(self._items), False

    def own(self, name: str, item: T) -> T:
        """Add somebody's own `item`; it replaces an earlier one, as in notebooks, but none of ours."""
        if self._known(name) in self._sealed:
            raise InvalidParameter(f"{name!r} is a {self.noun} of verax itself; choose another name.")
        return self.register(name, item, replace=True)

    def builtin(self, name: str) -> bool:
        """Whether `name` is one of verax itself."""
        return self._known(name) in self._sealed

    def unregister(self, name: str) -> None:
        """Forget `name` and its aliases."""
        with self._lock:
            self._items.pop(name, None)
            self._brought.pop(name, None)
            self._aliases = {alias: target for alias, target in self._aliases.items() if target != name}

    def canonical(self, name: str) -> str:
        """Return the full name behind `name`, which may be an alias."""
        found = self._known(name)
        if found is not None:
            return found
        prefix, colon, rest = str(name).partition(":")
        if colon and prefix in self._prefixes:
            self._items[name] = load(self._prefixes[prefix])(rest)
            return name
        self._load_plugins()
        found = self._known(name)
        if found is not None:
            return found
        raise UnknownName(f"There is no {self.noun} named {str(name)!r}{self._hint(str(name))}")

    def _hint(self, name: str) -> str:
        """What may be meant by a name that is not known, or who should have brought it and could not."""
        near = suggestion(name, self._items)
        if "did you mean" not in near:
            near = suggestion(name, [*self._items, *self._aliases])
        if self._group is None:
            return near
        lost = plugins.why_not(self._group, name)
        if not lost and "did you mean" not in near:
            lost = plugins.why_not(self._group, None)
            near += f" ({OWN[self.noun]})" if self.noun in OWN else ""
        return f": {lost}." if lost else near

    def _known(self, name: object) -> str | None:
        if not isinstance(name, str):
            return None
        return name if name in self._items else self._aliases.get(name)

    def get(self, name: str) -> T:
        """Return the thing named `name`, importing it if need be."""
        name = self.canonical(name)
        with self._lock:
            item = self._items[name]
            if isinstance(item, str):
                item = cast("T", load(item))
                self._items[name] = item
            return item

    def names(self) -> list[str]:
        """All names, in the order in which they were registered."""
        self._load_plugins()
        return list(self._items)

    def aliases(self, name: str) -> list[str]:
        """The other names of `name`."""
        return [alias for alias, target in self._aliases.items() if target == name]

    def here(self, name: str) -> bool:
        """Whether `name` is known without looking for plugins."""
        return self._known(name) is not None

    def origin(self, name: str) -> str:
        """The distribution that brought `name` as a plugin; empty for all others."""
        self._load_plugins()
        return self._brought.get(name, "")

    def __contains__(self, name: object) -> bool:
        if self._known(name) is None:
            self._load_plugins()
        return self._known(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    def _load_plugins(self) -> None:
        """Take in what is installed. A broken plugin must not take the rest down, whatever it raises."""
        with self._turn:
            if self._waiting is None:
                self._waiting = list(plugins.installed(str(self._group)))
            while self._waiting:
                plugin = self._waiting.pop(0)
                if plugins.broken(plugin):
                    continue
                try:
                    module = plugin.imported()
                except KeyboardInterrupt:
                    self._waiting.insert(0, plugin)
                    raise
                except BaseException as error:
                    plugins.report(plugin, plugins.reason_of(error), module=True)
                    continue
                if ":" in plugin.target:
                    self._take(plugin, module)

    def _take(self, plugin: plugins.Plugin, module: ModuleType) -> None:
        """Register what an entry point names, unless its module did so itself."""
        try:
            thing = plugin.thing(module)
            there = self._items.get(plugin.name)
            if plugin.name in self._aliases or (there is not None and not _same(there, thing)):
                owner = self._brought.get(plugin.name)
                whose = f"one of {owner}" if owner else "there already"
                plugins.report(plugin, f"a {self.noun} of that name is {whose}, and is not replaced")
                return
            if there is None:
                made = thing if self._adopt is None else self._adopt(plugin.name, thing)
                self._items[plugin.name] = cast("T", made)
            self._brought[plugin.name] = plugin.distribution
        except VeraxWarning:  # where warnings are made errors
            raise
        except Exception as error:
            plugins.report(plugin, plugins.reason_of(error))


def _same(there: Any, thing: Any) -> bool:
    """Whether an entry is a thing, or was made of it."""
    return any(thing is made for made in (there, *(getattr(there, n, None) for n in ("function", "made"))))
