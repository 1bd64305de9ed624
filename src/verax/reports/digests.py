"""A run, digested: the tables that several parts of the page need, each computed once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from verax import reports
from verax.errors import VeraxError
from verax.reports import ranks
from verax.reports.verdicts import Boards
from verax.studies.leaderboards import HEADLINES

if TYPE_CHECKING:
    from verax.studies.comparisons import Compared
    from verax.studies.runs import Run

_HEADLINE = "complex"


@dataclass(frozen=True)
class Digest:
    """A run with the tables that several parts need, each computed once."""

    run: Run
    boards: Boards
    protocols: list[str]
    families: dict[str, list[str]]
    tests: dict[str, Compared]

    @classmethod
    def of(cls, run: Run) -> Digest:
        """Read a run."""
        protocols = [name for name in HEADLINES if name in run.protocols]
        # the other truths have a section of their own
        protocols = [name for name in protocols if ":" not in name] or protocols
        families: dict[str, list[str]] = {}
        for task, family in run.families.items():
            families.setdefault(family, []).append(task)
        boards: Boards = {}
        for protocol in protocols:
            for family in families:
                try:
                    boards[protocol, family] = run.leaderboard(protocol, family=family)
                except VeraxError:
                    continue  # every method failed somewhere in this family
        tests = ranks.tests(run, protocols[0], list(families)) if protocols else {}
        return cls(run, boards, protocols, families, tests)

    @property
    def main(self) -> str:
        """The protocol that the verdict follows."""
        return self.protocols[0]

    @property
    def headline(self) -> str:
        """The family that the verdict is about."""
        return _HEADLINE if _HEADLINE in self.families else next(reversed(self.families))

    def methods(self, family: str = "") -> list[str]:
        """Methods by their rank on a family (default: the headline's), then controls, then the oracle."""
        board = self.boards.get((self.main, family or self.headline))
        ordered = [] if board is None else [str(name) for name in board["method"]]
        ordered += [name for name in self.run.methods if name not in ordered]
        return sorted(ordered, key=lambda name: ("method", "control", "oracle").index(reports.kind(name)))
