"""What a check finds, and the report of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from rich.markup import escape
from rich.table import Table
from torch import Tensor

from verax.errors import InvalidInput, UnsupportedOperation, VeraxError

TOLERANCE = 1e-4

Named = tuple[str, Callable[[], "Check"]]


@dataclass(frozen=True)
class Check:
    """One property: `passed` is None where it does not apply."""

    name: str
    passed: bool | None
    detail: str = ""


@dataclass(frozen=True)
class Report:
    """The outcome of all checks of one method, metric or task."""

    subject: str
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed and some were made."""
        found = [check.passed for check in self.checks]
        return True in found and False not in found

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if check.passed is False)

    @property
    def verdict(self) -> str:
        """In two words."""
        return "conforms" if self.passed else "DOES NOT CONFORM" if self.failures else "could not be checked"

    def __str__(self) -> str:
        marks = {True: "pass", False: "FAIL", None: "n/a "}
        lines = [f"{self.subject}: {self.verdict}"]
        lines += [f"  {marks[c.passed]}  {c.name}{': ' + c.detail if c.detail else ''}" for c in self.checks]
        return "\n".join(lines)

    def __rich__(self) -> Table:
        """The same as a table, for `rich.print`."""
        marks = {True: "[green]pass[/]", False: "[bold red]FAIL[/]", None: "[dim]n/a[/]"}
        table = Table(title=escape(f"{self.subject}: {self.verdict}"), show_header=False)
        for check in self.checks:
            table.add_row(marks[check.passed], escape(check.name), escape(check.detail))
        return table


def guarded(name: str, test: Callable[[], Check]) -> Check:
    """The check, or what kept it from being made."""
    try:
        return test()
    except (UnsupportedOperation, InvalidInput) as error:  # a refusal is no fault
        return Check(name, None, str(error))
    except VeraxError as error:
        return Check(name, False, str(error))
    except Exception as error:  # a third party's code may raise anything; that is a finding, not a crash
        return Check(name, False, f"{type(error).__name__}: {error}".splitlines()[0])


def made(subject: str, tests: Iterable[Named]) -> Report:
    """Run all checks; where the first fails, the others would say the same again."""
    checks: list[Check] = []
    for name, test in tests:
        checks.append(guarded(name, test))
        if len(checks) == 1 and not checks[0].passed:
            break
    return Report(subject, tuple(checks))


def distance(a: Tensor, b: Tensor) -> float:
    """How far `a` is from `b`, relative to `b`."""
    scale = float(b.double().norm())
    return float((a.double() - b.double()).norm()) / (scale or 1.0)


def compare(name: str, a: Tensor, b: Tensor) -> Check:
    """Whether two tensors are the same but for rounding."""
    found = distance(a, b)
    return Check(name, found <= TOLERANCE, f"relative difference {found:.1e}")


def same(name: str, a: Tensor, b: Tensor, detail: str = "") -> Check:
    """Whether two sets of scores are the same, undefined ones included."""
    good = a.shape == b.shape and torch.allclose(a.double(), b.double(), atol=1e-6, equal_nan=True)
    return Check(name, bool(good), "" if good else detail)
