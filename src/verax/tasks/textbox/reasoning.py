"""Reasonings: ordered rules from which labels, focus and avoid objects are derived."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from verax.errors import InvalidInput, ReasoningError
from verax.tasks.textbox import grammar
from verax.tasks.textbox.grammar import Rule
from verax.tasks.textbox.scenes import ABSENT, TEXTBOX, Scene, World


@dataclass(frozen=True)
class Reasoning:
    """Ordered rules over the objects of a world; the first rule that fires decides.

    >>> reasoning = Reasoning.parse("box1 and box2 -> 1; otherwise -> 0")
    >>> scene = {"text": "A", "box1": True, "box2": True}
    >>> reasoning.label(scene), sorted(reasoning.focus(scene)), sorted(reasoning.avoid(scene))
    (1, ['box1', 'box2'], ['text'])
    """

    text: str
    rules: tuple[Rule, ...]
    world: World = TEXTBOX

    @classmethod
    def parse(cls, text: str, world: World = TEXTBOX) -> Reasoning:
        """Read rules such as ``"box1 and not box2 -> 1; text = A -> 0; otherwise -> 1"``.

        Raises:
            ReasoningError: with one sentence and the position of the fault, when the text cannot be read,
                names an unknown object or state, contradicts itself, or has a rule that can never fire.
        """
        if not isinstance(text, str):
            raise InvalidInput(f"A reasoning is written as text, not as {type(text).__name__}.")
        reasoning = cls(text, grammar.parse(text, world), world)
        reasoning._check()
        return reasoning

    def _check(self) -> None:
        scenes = list(self.world.scenes())
        covered: set[int] = set()
        truths: list[frozenset[int]] = []
        for number, rule in enumerate(self.rules, 1):
            name = f"Rule {number} ({rule.text!r})"
            if rule.condition is None and number < len(self.rules):
                raise ReasoningError(
                    f"{name} must be the last rule, since nothing can follow it", rule.position
                )
            true = frozenset(i for i, scene in enumerate(scenes) if rule.fires(scene))
            if not true:
                raise ReasoningError(f"{name} contradicts itself: no scene can fulfil it", rule.position)
            if not true - covered:
                for earlier, other in enumerate(truths, 1):
                    if true == other and self.rules[earlier - 1].label != rule.label:
                        sentence = f"{name} contradicts rule {earlier}: same condition, other label"
                        raise ReasoningError(sentence, rule.position)
                sentence = f"{name} can never fire: the rules before it take every scene that it covers"
                raise ReasoningError(sentence, rule.position)
            covered |= true
            truths.append(true)

    def rule(self, scene: Scene) -> Rule | None:
        """The rule that fires for `scene`, or None when no rule covers it."""
        complete = self.world.complete(scene)
        return next((rule for rule in self.rules if rule.fires(complete)), None)

    def label(self, scene: Scene) -> int | None:
        """The label of `scene`, or None when no rule covers it."""
        rule = self.rule(scene)
        return None if rule is None else rule.label

    def focus(self, scene: Scene) -> frozenset[str]:
        """The present objects that the deciding rule names."""
        rule = self.rule(scene)
        return frozenset() if rule is None else rule.names() & self._present(scene)

    def avoid(self, scene: Scene) -> frozenset[str]:
        """The present objects that the deciding rule does not name; for ``otherwise``: that no rule names."""
        rule = self.rule(scene)
        if rule is None:
            return frozenset()
        named = rule.names()
        if rule.condition is None:
            named = frozenset().union(*(other.names() for other in self.rules))
        return self._present(scene) - named

    @property
    def labels(self) -> tuple[int, ...]:
        """The labels that can occur, in order."""
        return tuple(sorted({rule.label for rule in self.rules}))

    def buckets(self) -> dict[int, Mapping[str, str]]:
        """Bucket number -> scene, for the scenes that have a label."""
        return {i: s for i, s in enumerate(self.world.scenes(), 1) if self.label(s) is not None}

    def _present(self, scene: Scene) -> frozenset[str]:
        return frozenset(name for name, state in self.world.complete(scene).items() if state != ABSENT)

    def __str__(self) -> str:
        return "; ".join(rule.text for rule in self.rules)
