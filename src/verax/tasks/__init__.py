"""Tasks: little worlds with a known truth."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, overload

from verax.errors import InvalidParameter, VeraxError
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

__all__ = ["TASKS", "Task", "is_builtin", "register", "register_task", "task"]


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


class _Made:
    """A function of somebody's that makes a task with the options that are asked for."""

    def __init__(self, name: str, function: Callable[..., Task]) -> None:
        self.name, self.function = name, function

    def __call__(self, **options: Any) -> Task:
        try:
            inspect.signature(self.function).bind(**options)
        except TypeError as error:
            raise InvalidParameter(
                f"Task {self.name!r} cannot be made with these options: {error}."
            ) from error
        try:
            made = self.function(**options)
        except VeraxError:
            raise
        except Exception as error:  # other people's code
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise InvalidParameter(f"Task {self.name!r} could not be made: {reason}") from error
        _check(made)
        if made.name.partition("?")[0] != self.name:
            raise InvalidParameter(f"The task {self.name!r} calls itself {made.name!r}; give it that name.")
        return made


def _check(made: object) -> None:
    if isinstance(made, type) or not isinstance(made, Task):
        raise InvalidParameter(
            f"A task must have the members of verax.tasks.Task; {type(made).__name__} has not."
        )


def _adopted(name: str, thing: Any) -> _Own | _Made:
    """What a plugin brings as a task: the task itself, or a function of its options that makes it."""
    if isinstance(thing, type) or not isinstance(thing, Task):
        if not callable(thing):
            raise InvalidParameter(f"a task, or a function that makes it, is no {type(thing).__name__}")
        return _Made(name, thing)
    if thing.name != name:
        raise InvalidParameter(f"it is called {thing.name!r} and its entry point {name!r}")
    return _Own(thing)


TASKS: Registry[Any] = Registry("task", group="verax.tasks", adopt=_adopted)
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
TASKS.seal()


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
    """Whether a task comes with a package, verax or a plugin, so that the command line can name it too."""
    if name not in TASKS:
        name = name.partition("?")[0]
    return name in TASKS and (TASKS.builtin(name) or bool(TASKS.origin(name)))


def register(made: Task) -> str:
    """Make a task object known under its own name, so that studies can refer to it; gives the name."""
    _check(made)
    TASKS.own(made.name, _Own(made))
    return made.name


F = TypeVar("F", bound=Callable[..., Task])


@overload
def register_task(task: Task) -> Task: ...
@overload
def register_task(task: str) -> Callable[[F], F]: ...
def register_task(task: Task | str) -> Task | Callable[[F], F]:
    """Register a task of one's own, so that studies and `verax.task` know it by its name.

    Either an object, ``verax.register_task(my_task)``, which is given back, or a function of options that
    makes one, ``@verax.register_task("my/name")``. Registering the same name again replaces it; built-in
    names are refused.

    Args:
        task: the task, or the name that the function's tasks have.
    """
    if not isinstance(task, str):
        register(task)
        return task

    def decorate(function: F) -> F:
        if not callable(function):
            raise InvalidParameter(f"A task is made by a function, not by {type(function).__name__}.")
        TASKS.own(task, _Made(task, function))
        return function

    return decorate


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
