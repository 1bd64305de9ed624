"""Tasks: little worlds with a known truth."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from verax.errors import InvalidParameter
from verax.registry import Registry
from verax.tasks import worlds
from verax.tasks.base import Task
from verax.tasks.blocks import BlockDigits
from verax.tasks.climate import making
from verax.tasks.manipulations import MANIPULATIONS
from verax.tasks.shapes import Shapes
from verax.tasks.spurious import Spurious
from verax.tasks.textbox import Reasoning, TextBox
from verax.tasks.textbox.settings import SETTINGS

__all__ = ["TASKS", "Task", "is_builtin", "register", "task"]


class _Ruled:
    """A task that a reasoning makes, built with the options that are asked for."""

    def __init__(self, name: str, family: str, reasoning: Reasoning) -> None:
        self.name, self.family, self.reasoning = name, family, reasoning

    def __call__(self, **options: Any) -> Task:
        unknown = set(options) - {"renderer", "background"}
        if unknown:
            raise InvalidParameter(
                f"TextBox has the options renderer and background, not {sorted(unknown)[0]!r}."
            )
        return TextBox(self.name, self.reasoning, self.family, **options)


class _Built:
    """A task class of its own, built with the options that are asked for."""

    def __init__(self, name: str, make: Callable[..., Task], *allowed: str, **settings: Any) -> None:
        self.name, self.make, self.allowed, self.settings = name, make, allowed, settings

    def __call__(self, **options: Any) -> Task:
        if options.pop("renderer", "sound") != "sound":
            raise InvalidParameter(f"{self.name} is drawn by the renderer 'sound' only.")
        for option in options:
            if option not in self.allowed:
                have = " and ".join(filter(None, [", ".join(self.allowed[:-1]), self.allowed[-1]]))
                plural = "s" * (len(self.allowed) > 1)
                raise InvalidParameter(f"{self.name} has the option{plural} {have}, not {option!r}.")
        return self.make(self.name, **self.settings, **options)


class _Own:
    """A task object that somebody made."""

    def __init__(self, made: Task) -> None:
        self.made = made

    def __call__(self, **options: Any) -> Task:
        if options:
            raise InvalidParameter(f"Task {self.made.name!r} is an object and has its own options already.")
        return self.made


TASKS: Registry[Any] = Registry("task", group="verax.tasks")
for _name, (_family, _rules) in SETTINGS.items():
    TASKS.register(f"textbox/{_name}", _Ruled(f"textbox/{_name}", _family, Reasoning.parse(_rules)))
for _name in worlds.WORLDS:
    TASKS.register(f"worlds/{_name}", _Ruled(f"worlds/{_name}", "worlds", worlds.reasoning(_name)))
TASKS.register("worlds/block-digits", _Built("worlds/block-digits", BlockDigits, "source", "background"))
for _name in MANIPULATIONS:
    _full = f"worlds/spurious-{_name}"
    _made = _Built(_full, Spurious.graded, "reliance", "strength", "background", manipulation=_name)
    TASKS.register(_full, _made)
TASKS.register("shapes", _Built("shapes", Shapes.asked_about, "explains"))
for _name, _make in (
    ("analytic", making.from_analytic),
    ("cobe-sst2", making.from_cobe),
    ("sea-ice", making.from_cobe),
    ("field", making.from_file),
):
    _allowed = making.OPTIONS + (making.FILE_OPTIONS if _name == "field" else ())
    TASKS.register(f"climate/{_name}", _Built(f"climate/{_name}", _make, *_allowed))


_TEXT = ("field", "variable")
"""Options that are names, even where these look like numbers."""


def _read(text: str) -> dict[str, Any]:
    """Options behind the question mark of a name: ``function=3&breaks=0``."""
    options: dict[str, Any] = {}
    for part in text.split("&"):
        option, equals, value = part.partition("=")
        if not (option and equals and value):
            raise InvalidParameter(f"Options of a task are written as NAME?OPTION=VALUE&..., not {text!r}.")
        if option in options:
            raise InvalidParameter(f"The option {option!r} is given twice in {text!r}.")
        options[option] = value if option in _TEXT else _value(value)
    return options


def _value(text: str) -> Any:
    """A truth value, a number or a word."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def is_builtin(name: str) -> bool:
    """Whether a task comes with a package, so that the command line can name it too."""
    if name not in TASKS:
        name = name.partition("?")[0]
    return name in TASKS and not isinstance(TASKS.get(name), _Own)


def register(made: Task) -> str:
    """Make a task object known under its own name, so that studies can refer to it; gives the name."""
    if not isinstance(made, Task):
        raise InvalidParameter(
            f"A task must have the members of verax.tasks.Task; {type(made).__name__} has not."
        )
    if made.name in TASKS and is_builtin(made.name):
        raise InvalidParameter(f"{made.name!r} is a task of verax itself; choose another name.")
    TASKS.register(made.name, _Own(made), replace=True)
    return made.name


def task(name: str | Task, **options: Any) -> Task:
    """The task called `name`; a `Task` object is given back as it is.

    Args:
        name: such as ``"textbox/complex-cr1"`` or ``"worlds/xor"``; ``verax list tasks`` shows all. Options
            may stand behind it, as in ``"climate/analytic?function=3&breaks=0"``.
        **options: for TextBox, ``renderer`` (``"sound"``, ``"published"``) and ``background``
            (``"black"``, ``"noise"``, ``"noise:0-99"``, ``"texture"``, ``"folder:PATH"``);
            for ``worlds/block-digits``, ``source`` and ``background``; for ``worlds/spurious-...``,
            ``reliance``, ``strength`` and ``background``; for ``shapes``, ``explains`` (``"label"``,
            ``"other"``); for ``climate/...``, ``function`` (its seed), ``breaks``, ``samples``, ``baseline``,
            ``uniform``, ``globally`` and ``patches``, and for ``climate/field`` the ``field``'s file
            and what `verax.tasks.climate.making.from_file` says.
    """
    if not isinstance(name, str):
        if options:
            raise InvalidParameter("Options belong to a task's name; a task object has its own already.")
        return name
    if name not in TASKS and "?" in name:
        name, _, text = name.partition("?")
        options = {**_read(text), **options}
    made: Task = TASKS.get(name)(**options)
    return made
