"""Plugins: what other installed distributions bring, found through entry points.

A distribution names its things in the groups `GROUPS`, as in ::

    [project.entry-points."verax.methods"]
    mine = "my_package.methods:mine"

Nothing is looked for before a name is asked for that verax does not know, or a listing is. A plugin that
cannot be imported is reported once and left out; the rest goes on.
"""

from __future__ import annotations

import importlib
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, reduce
from importlib import metadata
from types import ModuleType
from typing import Any

from verax.errors import VeraxWarning

GROUPS = ("verax.methods", "verax.metrics", "verax.tasks", "verax.networks", "verax.datasets")
"""What a distribution can bring; executors (``verax.executors``) are found in the same way."""


@dataclass(frozen=True)
class Plugin:
    """One entry point.

    Attributes:
        group: what it is, one of `GROUPS`.
        name: what it is called.
        target: where it is, as ``module:attribute``, or a module whose import registers things.
        distribution: who brings it, with its version.
    """

    group: str
    name: str
    target: str
    distribution: str

    @property
    def module(self) -> str:
        """The module that is imported."""
        return self.target.partition(":")[0].strip()

    def imported(self) -> ModuleType:
        """Import its module; what that registers may replace nothing, and is undone where it fails."""
        undo: list[Callable[[], None]] = []
        _TURN.stack.append((self, undo))
        try:
            return importlib.import_module(metadata.EntryPoint(self.name, self.target, self.group).module)
        except BaseException:
            for forget in undo:
                forget()
            raise
        finally:
            _TURN.stack.pop()

    def thing(self, module: ModuleType) -> Any:
        """What the entry point names in its module."""
        path = metadata.EntryPoint(self.name, self.target, self.group).attr
        return reduce(getattr, path.split("."), module)


class _Turn(threading.local):
    """The plugins that a thread is importing, the innermost last, and how to undo what each registered."""

    def __init__(self) -> None:
        self.stack: list[tuple[Plugin, list[Callable[[], None]]]] = []


_TURN = _Turn()
_FAILED: dict[tuple[str, str], str] = {}
_LEFT_OUT: dict[Plugin, str] = {}
_REPORTS: dict[str, None] = {}


def arriving(undo: Callable[[], None] | None = None) -> Plugin | None:
    """The plugin that this thread is importing: what is registered meanwhile is its own.

    Args:
        undo: called where the import fails: half a module is not what was meant.
    """
    if not _TURN.stack:
        return None
    plugin, noted = _TURN.stack[-1]
    if undo is not None:
        noted.append(undo)
    return plugin


@cache
def installed(group: str) -> tuple[Plugin, ...]:
    """The plugins of a group in a fixed order; nothing is imported."""
    plugins: dict[tuple[str, str], Plugin] = {}
    for entry in metadata.entry_points(group=group):
        made = entry.dist
        who = "an unknown distribution" if made is None else f"{made.name} {made.version}"
        # an editable install may be listed twice
        plugins.setdefault((entry.name, entry.value), Plugin(group, entry.name, entry.value, who))
    return tuple(sorted(plugins.values(), key=lambda plugin: (plugin.distribution, plugin.name)))


def forget() -> None:
    """Look again at what is installed, when plugins are asked for next."""
    installed.cache_clear()
    _FAILED.clear()
    _LEFT_OUT.clear()
    _REPORTS.clear()


def reports() -> list[str]:
    """One sentence for each plugin that was left out so far."""
    return list(_REPORTS)


def reason_of(error: BaseException) -> str:
    """What went wrong, in one line."""
    first = str(error).partition("\n")[0].strip().rstrip(".")
    if isinstance(error, SystemExit):
        return f"it ended the program (SystemExit {first})".replace(" )", ")")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def broken(plugin: Plugin) -> bool:
    """Whether the module of a plugin could not be imported before: it is not tried again."""
    return (plugin.distribution, plugin.module) in _FAILED


def why_not(group: str, name: str | None) -> str:
    """Why a name of a group is not known, where a plugin that was left out is to blame; else nothing.

    Args:
        group: one of `GROUPS`.
        name: of an entry point; None: a module without one, which might have registered any name.
    """
    for plugin in installed(group):
        reason = _LEFT_OUT.get(plugin) or _FAILED.get((plugin.distribution, plugin.module))
        own = ":" not in plugin.target if name is None else plugin.name == name
        if reason is not None and own:
            brings = "may bring" if name is None else "brings"
            return f"the plugin {plugin.distribution}, which {brings} it, was left out: {reason}"
    return ""


def report(plugin: Plugin, reason: str, *, module: bool = False) -> None:
    """Say once that a plugin was left out, and why; `module`: none of its module can be had."""
    what = f"The module {plugin.module!r}" if module else f"{plugin.name!r} ({plugin.group})"
    sentence = f"{what} of the plugin {plugin.distribution} was left out: {reason}."
    if module:
        _FAILED[plugin.distribution, plugin.module] = reason
    else:
        _LEFT_OUT[plugin] = reason
    if sentence not in _REPORTS:
        _REPORTS[sentence] = None
        warnings.warn(sentence, VeraxWarning, stacklevel=2)
