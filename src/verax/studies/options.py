"""Options: how a study is run; nothing that its results depend on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from verax.errors import InvalidParameter
from verax.studies import policies
from verax.studies.executors import EXECUTORS

_CREW = 4096
"""More workers than that nobody has; each of them takes memory before it does anything."""


@dataclass(frozen=True)
class Options:
    """How a study is run.

    Attributes:
        executor: who computes; None for one that fits.
        workers: how many of them.
        overwrite: the policy, one of `verax.studies.policies.POLICIES`.
        keep_maps: keep raw maps in the store.
        time_limit: seconds that one unit, or one training, may take.
        more: options of the executor.
    """

    executor: str | None = None
    workers: int | None = None
    overwrite: str = "missing"
    keep_maps: bool = False
    time_limit: float | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    def checked(self) -> Options:
        """Refuse impossible values."""
        if self.executor is not None:
            EXECUTORS.canonical(self.executor)
        policies.policy(self.overwrite)
        if self.workers is not None and not (isinstance(self.workers, int) and 1 <= self.workers <= _CREW):
            words = f"a whole number from 1 to {_CREW}"
            raise InvalidParameter(f"The number of workers is {words}, not {self.workers!r}.")
        if self.time_limit is not None and not 0 < self.time_limit < float("inf"):
            raise InvalidParameter(f"The time limit is a number of seconds above 0, not {self.time_limit!r}.")
        return self
