"""Failures: what could not be computed, and why."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch

from verax.errors import VeraxError

Kind = Literal["method", "error", "memory", "time", "killed", "skipped"]
KINDS: dict[Kind, str] = {
    "method": "the method failed or refused the network",
    "error": "something else raised an exception",
    "memory": "it did not fit into memory, even sample by sample",
    "time": "it took longer than --time-limit",
    "killed": "its worker was killed, twice",
    "skipped": "it was not to be computed: --overwrite",
}
"""Why units fail, in words."""


class OutOfTime(BaseException):
    """A unit that took longer than it may; not an `Exception`, which methods might catch."""


@dataclass(frozen=True)
class Failure:
    """Why there is no result.

    Attributes:
        kind: one of `KINDS`.
        reason: one sentence.
    """

    kind: Kind
    reason: str

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def describe(error: BaseException) -> Failure:
    """The failure that an exception means."""
    if isinstance(error, OutOfTime):
        return Failure("time", str(error))
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        words = str(error).partition("\n")[0] or "no more memory"
        return Failure("memory", f"Out of memory: {words}")
    if isinstance(error, VeraxError):
        return Failure("method", str(error))
    words = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    return Failure("error", f"Failed with {words}")


def late(seconds: float) -> Failure:
    """Of a unit that took longer than `seconds`."""
    return Failure("time", f"Took longer than the time limit of {seconds:g} s.")


def killed(how: str) -> Failure:
    """Of a unit whose worker died."""
    return Failure("killed", f"The worker was killed twice ({how}); it may need more memory than there is.")
