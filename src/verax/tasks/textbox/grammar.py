"""The little language in which reasonings are written.

::

    reasoning  = rule { (";" | newline) rule }
    rule       = (condition | "otherwise") "->" label
    condition  = term { "or" term }
    term       = factor { "and" factor }
    factor     = "not" factor | "(" condition ")" | object [ ("=" | "!=") state ]

An object alone means that it is present. Labels are whole numbers from 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from verax.errors import ReasoningError, suggestion
from verax.tasks.textbox.scenes import ABSENT, World

_TOKEN = re.compile(r"(?P<arrow>->)|(?P<op>!=|=)|(?P<paren>[()])|(?P<word>\w+)|(?P<bad>\S)")
_KEYWORDS = ("and", "or", "not", "otherwise")


@dataclass(frozen=True)
class Has:
    """`name` is in one of `states`."""

    name: str
    states: frozenset[str]

    def holds(self, scene: Mapping[str, str]) -> bool:
        """Whether the condition is true in a complete scene."""
        return scene[self.name] in self.states

    def names(self) -> frozenset[str]:
        """The objects that the condition speaks of."""
        return frozenset({self.name})


@dataclass(frozen=True)
class Not:
    """The opposite of a condition."""

    inner: Condition

    def holds(self, scene: Mapping[str, str]) -> bool:
        """Whether the condition is true in a complete scene."""
        return not self.inner.holds(scene)

    def names(self) -> frozenset[str]:
        """The objects that the condition speaks of."""
        return self.inner.names()


@dataclass(frozen=True)
class Joined:
    """Conditions joined by ``and`` (every) or ``or`` (any)."""

    parts: tuple[Condition, ...]
    every: bool

    def holds(self, scene: Mapping[str, str]) -> bool:
        """Whether the condition is true in a complete scene."""
        return (all if self.every else any)(part.holds(scene) for part in self.parts)

    def names(self) -> frozenset[str]:
        """The objects that the condition speaks of."""
        return frozenset().union(*(part.names() for part in self.parts))


Condition = Has | Not | Joined


@dataclass(frozen=True)
class Rule:
    """One rule: when `condition` holds (None: ``otherwise``) the label is `label`."""

    condition: Condition | None
    label: int
    text: str
    position: int

    def fires(self, scene: Mapping[str, str]) -> bool:
        """Whether the rule applies to a complete scene."""
        return self.condition is None or self.condition.holds(scene)

    def names(self) -> frozenset[str]:
        """The objects that the rule speaks of."""
        return frozenset() if self.condition is None else self.condition.names()


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    position: int


class _Parser:
    """Recursive descent over the tokens of one rule."""

    MAX_DEPTH = 60  # nesting that a person could mean; keeps hostile input from exhausting the stack

    def __init__(self, text: str, offset: int, world: World) -> None:
        self.world = world
        self.tokens = [
            _Token(match.lastgroup or "", match.group(), offset + match.start())
            for match in _TOKEN.finditer(text)
        ]
        self.end = offset + len(text.rstrip())
        self.index = 0
        self.depth = 0

    def peek(self) -> _Token:
        return self.tokens[self.index] if self.index < len(self.tokens) else _Token("end", "", self.end)

    def take(self) -> _Token:
        token = self.peek()
        self.index += 1
        return token

    def fail(self, token: _Token, wanted: str) -> ReasoningError:
        found = "the end of the rule" if token.kind == "end" else repr(token.text)
        return ReasoningError(f"Expected {wanted}, found {found}", token.position)

    def rule(self) -> tuple[Condition | None, int]:
        condition: Condition | None = None
        wanted = "'and', 'or' or '->'"
        if self.peek().text == "otherwise":
            self.take()
            wanted = "'->'"
        else:
            condition = self.either()
        arrow = self.take()
        if arrow.kind != "arrow":
            raise self.fail(arrow, wanted)
        label = self.take()
        if label.kind != "word" or not (label.text.isascii() and label.text.isdigit()):
            raise self.fail(label, "a label (a whole number from 0)")
        if len(label.text) > 4:
            raise ReasoningError("A label is a number from 0 to 9999", label.position)
        extra = self.peek()
        if extra.kind != "end":
            raise self.fail(extra, "';' or the end of the rule")
        return condition, int(label.text)

    def either(self) -> Condition:
        return self.joined("or", self.every)

    def every(self) -> Condition:
        return self.joined("and", self.factor)

    def joined(self, word: str, operand: Callable[[], Condition]) -> Condition:
        parts = [operand()]
        while self.peek().text == word:
            self.take()
            parts.append(operand())
        return parts[0] if len(parts) == 1 else Joined(tuple(parts), every=word == "and")

    def factor(self) -> Condition:
        token = self.take()
        self.depth += 1
        if self.depth > self.MAX_DEPTH:
            raise ReasoningError("The condition is nested too deeply", token.position)
        try:
            if token.text == "not":
                return Not(self.factor())
            if token.text == "(":
                inner = self.either()
                closing = self.take()
                if closing.text != ")":
                    raise self.fail(closing, "')'")
                return inner
            return self.atom(token)
        finally:
            self.depth -= 1

    def atom(self, token: _Token) -> Condition:
        if token.kind != "word" or token.text in _KEYWORDS:
            raise self.fail(token, "the name of an object")
        if token.text not in self.world.names:
            hint = suggestion(token.text, self.world.names)
            raise ReasoningError(f"There is no object named {token.text!r}{hint}", token.position)
        kind = self.world.kind(token.text)
        present = frozenset(kind.looks)
        if self.peek().kind != "op":
            return Has(kind.name, present)
        operator, state = self.take(), self.take()
        if state.kind != "word":
            raise self.fail(state, f"a state of {kind.name!r}")
        if state.text not in kind.states:
            hint = suggestion(state.text, kind.states)
            raise ReasoningError(f"{kind.name!r} has no state {state.text!r}{hint}", state.position)
        chosen = frozenset({state.text})
        return Has(kind.name, chosen if operator.text == "=" else frozenset({ABSENT, *present}) - chosen)


_HABITS = {"==": "=", "=>": "->", "&&": "and", "&": "and", "||": "or", "|": "or", "!": "not"}
_HABIT = re.compile(r"==|=>|&&?|\|\|?|!(?!=)")


def parse(text: str, world: World) -> tuple[Rule, ...]:
    """Read the rules in `text`; a fault raises `ReasoningError` with its position."""
    habit = _HABIT.search(text)
    if habit is not None:
        meant = _HABITS[habit.group()]
        raise ReasoningError(f"Write {meant!r} instead of {habit.group()!r}", habit.start())
    rules: list[Rule] = []
    for match in re.finditer(r"[^;\n]+", text):
        part = match.group()
        if not part.strip():
            continue
        start = match.start() + len(part) - len(part.lstrip())
        condition, label = _Parser(part, match.start(), world).rule()
        rules.append(Rule(condition, label, part.strip(), start))
    if not rules:
        raise ReasoningError("A reasoning needs at least one rule, such as 'box1 -> 1'", 0)
    return tuple(rules)
