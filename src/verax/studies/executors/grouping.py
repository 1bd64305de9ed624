"""Grouping: short jobs that lie side by side in a plan go out together, so that sending them costs little."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from verax.studies import costs
from verax.studies.work import Brief, Job, Outcome

MOST = 1000
"""Jobs in one group."""

AHEAD = 10_000
"""Jobs that wait to be sent: what is left is shared out evenly only as far as it is known."""

HEAVY = 2**26
"""Bytes of kept maps that are held at once; a group has at most one job beyond it."""

_UNKNOWN = 1.0
"""The least number of seconds that a job counts before one like it was measured."""

_SHORTEST = 0.5
"""Seconds that a group should last, however little is left."""


class Groups:
    """Jobs in groups that last about `seconds`, shorter towards the end so that workers end together.

    How long a job will take is measured on others like it (network and method); until then it is guessed from
    what the method says of itself, and no guess is below a second.
    """

    def __init__(self, brief: Brief, jobs: Iterator[Job], seconds: float) -> None:
        self._brief, self._jobs, self._seconds = brief, jobs, seconds
        self._alone: deque[Job] = deque()
        self._waiting: deque[tuple[Job, float]] = deque()
        self._total = 0.0
        self._bytes = 0
        self._rates: dict[tuple[str, str], float] = {}

    def take(self, slots: int) -> list[Job]:
        """The next group, where so many can be computed at once; empty when nothing is left."""
        if self._alone:
            return [self._alone.popleft()]
        self._fill(slots)
        share = min(self._seconds, max(_SHORTEST, self._total / (2 * slots)))
        group: list[Job] = []
        length, weight = 0.0, 0
        while self._waiting and len(group) < MOST and length < share and weight < HEAVY:
            job, seconds = self._waiting.popleft()
            self._total -= seconds
            self._bytes -= _weight(job)
            length, weight = length + seconds, weight + _weight(job)
            group.append(job)
        return group

    def again(self, jobs: Iterable[Job], *, alone: bool) -> None:
        """Jobs that were sent and not computed; `alone`, where one of them may have killed its worker."""
        if alone:
            self._alone.extend(jobs)
        else:
            for job in reversed(list(jobs)):
                self._add(job, self._waiting.appendleft)

    def learn(self, outcome: Outcome) -> None:
        """Remember how long a job took."""
        if outcome.done:
            self._rates[self._kind(outcome.job)] = outcome.seconds / outcome.job.length

    def _fill(self, slots: int) -> None:
        enough = 2 * slots * self._seconds
        while self._total < enough and len(self._waiting) < AHEAD and self._bytes < HEAVY:
            job = next(self._jobs, None)
            if job is None:
                return
            self._add(job, self._waiting.append)

    def _add(self, job: Job, put: Callable[[tuple[Job, float]], None]) -> None:
        seconds = self._estimate(job)
        self._total += seconds
        self._bytes += _weight(job)
        put((job, seconds))

    def _estimate(self, job: Job) -> float:
        rate = self._rates.get(self._kind(job))
        if rate is not None:
            return rate * job.length
        cell = self._brief.cells[job.cell]
        if self._brief.training:
            return costs.TRAINING
        return max(
            _UNKNOWN,
            costs.guess(cell, self._brief.study.protocols) * job.length * len(cell.subject.task.groups),
        )

    def _kind(self, job: Job) -> tuple[str, str]:
        cell = self._brief.cells[job.cell]
        return cell.subject.network, cell.label


def _weight(job: Job) -> int:
    return len(job.maps or b"")
