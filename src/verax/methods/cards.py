"""Cards: all that there is to know about a method, read from its registry entry and its docstring."""

from __future__ import annotations

import inspect
import re
import textwrap
from dataclasses import dataclass
from typing import Any

from verax.methods.base import INPUTS, METHODS, NEEDS, TOTALS, Method

_ENTRY = re.compile(r"\*{0,2}(\w+)(?: \([^)]*\))?: (.*)")


@dataclass(frozen=True)
class Parameter:
    """One of a method's own parameters."""

    name: str
    default: Any
    about: str


@dataclass(frozen=True)
class Card:
    """A method as a newcomer wants to read of it.

    Attributes:
        method: the registry entry.
        aliases: its other names.
        summary: one sentence.
        details: further paragraphs; formulas and other literal text keep their indentation.
        parameters: its own parameters, in order.
    """

    method: Method
    aliases: tuple[str, ...]
    summary: str
    details: tuple[str, ...]
    parameters: tuple[Parameter, ...]

    def facts(self) -> dict[str, str]:
        """What there is to say in a word or a sentence; what nobody said is left out."""
        of = self.method
        found = {
            "family": of.family,
            "also called": ", ".join(self.aliases),
            "paper": of.paper,
            "passes for one sample": of.cost,
            "networks": NEEDS[of.needs] if of.needs else "",
            "inputs": INPUTS[of.inputs],
            "a map adds up to": TOTALS[of.total],
        }
        return {name: words for name, words in found.items() if words}

    def record(self) -> dict[str, Any]:
        """Everything as plain values, for JSON."""
        facts = {name: getattr(self.method, name) for name in ("family", "paper", "cost", "needs", "inputs")}
        return {
            "name": self.method.name,
            "aliases": list(self.aliases),
            **facts,
            "total": self.method.total,
            "parameters": {p.name: {"default": p.default, "about": p.about} for p in self.parameters},
            "about": self.summary,
            "details": list(self.details),
        }


def _paragraphs(text: str) -> list[str]:
    """Paragraphs on one line each; indented ones, which are formulas, as they are."""
    found = []
    for part in re.split(r"\n\s*\n", text.strip("\n")):
        if part.startswith(" "):
            found.append(textwrap.indent(textwrap.dedent(part), "    "))
        elif part.strip() != "::":
            line = " ".join(part.split())
            found.append(line.removesuffix(":") if line.endswith("::") else line)
    return [part for part in found if part]


def _arguments(text: str) -> dict[str, str]:
    """Name -> description of the entries of an ``Args:`` section."""
    found: dict[str, str] = {}
    last = ""
    for line in text.splitlines():
        entry = _ENTRY.fullmatch(line.strip()) if line.startswith("    ") and line[4:5] != " " else None
        if entry:
            last = entry[1]
            found[last] = entry[2]
        elif last and line.strip():
            found[last] += " " + line.strip()
    return found


def read(docstring: str) -> tuple[str, list[str], dict[str, str]]:
    r"""Summary, paragraphs and arguments of a docstring in Google's style.

    >>> read("Say it.\n\nMore::\n\n    x * y\n\nArgs:\n    x: one.\n    y: two,\n        or three.")
    ('Say it.', ['More:', '    x * y'], {'x': 'one.', 'y': 'two, or three.'})
    """
    text, _, rest = inspect.cleandoc(docstring).partition("\nArgs:\n")
    summary, _, body = text.partition("\n\n")
    section = re.split(r"\n(?=\S)", rest)[0]
    return " ".join(summary.split()), _paragraphs(body), _arguments(section)


def card(name: str | Method) -> Card:
    """The card of a method, by its name, an alias, or the method itself."""
    found = METHODS.get(name) if isinstance(name, str) else name
    summary, details, about = read(inspect.getdoc(found.function) or "")
    own = tuple(Parameter(key, value, about.get(key, "")) for key, value in found.parameters.items())
    return Card(found, tuple(METHODS.aliases(found.name)), summary, tuple(details), own)


def short_paper(paper: str) -> str:
    """First author and year, for narrow tables.

    >>> short_paper("Sundararajan, Taly and Yan, ICML 2017")
    'Sundararajan 2017'
    """
    year = re.search(r"\b(?:19|20)\d\d\b", paper)
    return f"{re.split(r'[ ,]', paper)[0]} {year[0]}" if year else paper
