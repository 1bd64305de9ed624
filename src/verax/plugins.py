"""Plugins: what other installed distributions bring, found through entry points.

A distribution names its things in the groups `GROUPS`, as in ::

    [project.entry-points."verax.methods"]
    mine = "my_package.methods:mine"

Nothing is looked for before a name is asked for that verax does not know, or a listing is. A plugin that
cannot be imported is reported once and left out; the rest goes on.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import metadata
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

    def load(self) -> Any:
        """Import it; whatever its code raises goes on, but as a plugin it may not replace anything."""
        with _registering():
            return metadata.EntryPoint(self.name, self.target, self.group).load()


class _Turn(threading.local):
    depth = 0


_TURN = _Turn()
_FAILED: dict[tuple[str, str], str] = {}
_REPORTS: dict[str, None] = {}


@contextmanager
def _registering() -> Iterator[None]:
    _TURN.depth += 1
    try:
        yield
    finally:
        _TURN.depth -= 1


def registering() -> bool:
    """Whether a plugin is being imported in this thread: what it registers may replace nothing."""
    return _TURN.depth > 0


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


def report(plugin: Plugin, reason: str, *, module: bool = False) -> None:
    """Say once that a plugin was left out, and why; `module`: none of its module can be had."""
    what = f"The module {plugin.module!r}" if module else f"{plugin.name!r} ({plugin.group})"
    sentence = f"{what} of the plugin {plugin.distribution} was left out: {reason}."
    if module:
        _FAILED[plugin.distribution, plugin.module] = reason
    if sentence not in _REPORTS:
        _REPORTS[sentence] = None
        warnings.warn(sentence, VeraxWarning, stacklevel=2)
