"""Exceptions that verax raises on purpose.

Every one of them carries one sentence that a person can act on. The command line prints that sentence
and leaves with exit code 2; from Python they can be caught together as `VeraxError`.

| class | raised when |
|---|---|
| `UnknownName` | a task, network, method, metric, protocol or study does not exist (with a suggestion) |
| `InvalidInput` | tensors have the wrong shape, type or values (NaN, infinite), or the network raised |
| `InvalidParameter` | an option has an impossible value or does not exist |
| `InvalidStudy` | a study file is missing, is not TOML, or says something impossible |
| `ReasoningError` | a reasoning cannot be read or contradicts itself (with the position of the fault) |
| `MethodFailed` | an attribution method raised an exception or returned something else than a map |
| `MetricFailed` | an own metric raised, gave something else than scores, or left its bounds |
| `UnsupportedOperation` | a rule table does not know an operation, or no gradient reaches the input |
| `MissingExtra` | an optional package is needed that is not installed (with the command to install it) |
| `MissingFile` | a file or folder that was asked for is not there or cannot be read |
| `OutputError` | results cannot be written where they were asked for |
| `ClusterError` | a cluster cannot be reached, or its machines cannot do the work |
| `DeviceUnavailable` | a device was asked for that this machine does not have |
| `Interrupted` | Ctrl-C stopped a study (a `KeyboardInterrupt`, not a `VeraxError`); finished work is kept |
| `WeightsError` | stored weights are missing, damaged or do not fit |
"""

from __future__ import annotations

import difflib
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path


class VeraxError(Exception):
    """Base of all exceptions that verax raises on purpose."""


class UnknownName(VeraxError, LookupError):
    """A name that no registry knows."""


class InvalidInput(VeraxError, ValueError):
    """Tensors that cannot be explained or scored."""


class InvalidParameter(VeraxError, ValueError):
    """An option with an impossible value, or one that does not exist."""


class InvalidStudy(VeraxError, ValueError):
    """A study description that cannot be used."""


class ReasoningError(VeraxError, ValueError):
    """A reasoning that cannot be read; `position` is the offset of the fault in the text."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(f"{message} (at character {position + 1})")
        self.position = position


class MethodFailed(VeraxError, RuntimeError):
    """An attribution method that raised, or returned something else than a map."""


class MetricFailed(VeraxError, RuntimeError):
    """An own metric that raised, or gave something else than one score within its bounds for each sample."""


class UnsupportedOperation(VeraxError, RuntimeError):
    """An operation that a rule table does not know or that hides the input; nothing passes silently."""


class MissingExtra(VeraxError, ImportError):
    """An optional package that is not installed."""


class MissingFile(VeraxError, OSError):
    """A file or folder that is needed and cannot be read."""


class OutputError(VeraxError, OSError):
    """A place where results cannot be written."""


class DeviceUnavailable(VeraxError, RuntimeError):
    """A device that this machine does not have."""


class ClusterError(VeraxError, RuntimeError):
    """A cluster that cannot be reached, or whose machines cannot do the work."""


class WeightsError(VeraxError, ValueError):
    """Stored weights that are missing, damaged or do not fit."""


class Interrupted(KeyboardInterrupt):
    """A study that was stopped by Ctrl-C; what was finished is kept, and the message says how to go on."""


class VeraxWarning(UserWarning):
    """Base of all warnings that verax gives."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for the nearest known name, or the whole list when it is short.

    >>> suggestion("gradiant", ["gradient", "occlusion"])
    "; did you mean 'gradient'?"
    >>> suggestion("simple-fr", ["textbox/simple-fr", "shapes"])
    "; did you mean 'textbox/simple-fr'?"
    >>> suggestion("iuo", ["iou", "energy"])
    "; did you mean 'iou'?"
    """
    names = sorted(known)
    small = {word.lower(): word for word in reversed(names)}
    near = difflib.get_close_matches(name.lower(), small, n=1, cutoff=0.7)
    if not near:  # a short word with two letters swapped is less alike than that
        near = [word for word in small if sorted(word) == sorted(name.lower())][:1]
    if not near:  # tables and figures call textbox/simple-fr simple-fr, and so do people
        small = {word.rpartition("/")[2]: whole for word, whole in small.items()}
        near = difflib.get_close_matches(name.lower(), small, n=1, cutoff=0.9)
    if near:
        return f"; did you mean {small[near[0]]!r}?"
    if len(names) <= 20:
        return f"; known: {', '.join(names)}" if names else ""
    return f"; {len(names)} are known"


def place(error: BaseException) -> str:
    """The ``file:line`` of an exception that helps whoever wrote the code that raised it.

    The last line that is neither of verax nor of an installed package nor of Python itself; where there is
    none (a plugin is an installed package), the last that is neither of verax nor of torch.
    """
    steps = traceback.extract_tb(error.__traceback__)
    ours = str(Path(__file__).parent)
    paths = sysconfig.get_paths()
    installed = tuple(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    others = [
        step for step in steps if not step.filename.startswith((ours, "<frozen", "<__array_function__"))
    ]
    own = [step for step in others if not step.filename.startswith(installed)]
    rest = [step for step in others if "torch" not in Path(step.filename).parts]
    where = (own or rest or others or steps)[-1]
    return f"{Path(where.filename).name}:{where.lineno}"
