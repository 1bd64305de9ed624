"""Three truths about a scene, all derived from the reasoning.

- ``rule``: the objects that the deciding rule names (Kim, Plumb and Talwalkar, ICML 2022).
- ``counterfactual``: the objects of which one change (removal, addition, another look) changes the label.
- ``shapley``: the objects whose exact Shapley value in the scene is not zero (Shapley, 1953).

They differ where rules are ordered, where absence decides and where a label is decided twice over. Scenes
without a label need a decision. For ``counterfactual`` a change that leads to one says nothing, as in
certificates. For ``shapley`` such a scene is worth chance, 1 / number of labels: nothing speaks for a label.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

from verax.cases import Role
from verax.tasks.textbox.reasoning import Reasoning
from verax.tasks.textbox.scenes import ABSENT

TRUTHS = ("rule", "counterfactual", "shapley")


def decisive(reasoning: Reasoning, scene: Mapping[str, str]) -> frozenset[str]:
    """The objects, present or absent, of which some change of state leads to another label."""
    label = reasoning.label(scene)
    return frozenset(
        kind.name
        for kind in reasoning.world.kinds
        if label is not None
        and any(reasoning.label({**scene, kind.name: s}) not in (None, label) for s in kind.states)
    )


def shapley(reasoning: Reasoning, scene: Mapping[str, str]) -> dict[str, float]:
    """The exact Shapley value of each object for the label of the scene; together they are 1 - v(empty).

    The players are the present objects. A coalition is worth 1 where the scene of its objects alone has the
    label, 0 where it has another one, and chance where it has none. Absent objects play no part: 0.
    """
    label = reasoning.label(scene)
    present = [name for name in reasoning.world.names if scene[name] != ABSENT]
    values = dict.fromkeys(reasoning.world.names, 0.0)
    if label is None:
        return values
    chance = 1 / len(reasoning.labels)

    def worth(coalition: frozenset[str]) -> float:
        found = reasoning.label({name: scene[name] for name in coalition})
        return chance if found is None else float(found == label)

    coalitions = [frozenset(c) for n in range(len(present) + 1) for c in itertools.combinations(present, n)]
    known = {coalition: worth(coalition) for coalition in coalitions}
    players = len(present)
    for coalition in coalitions:
        for name in coalition:
            before = coalition - {name}
            weight = 1 / (players * math.comb(players - 1, len(before)))
            values[name] += weight * (known[coalition] - known[before])
    # sums of fractions: what should be zero must be zero, because a role hangs on it
    return {name: 0.0 if abs(value) < 1e-12 else value for name, value in values.items()}


def roles(reasoning: Reasoning, scene: Mapping[str, str], truth: str) -> list[Role]:
    """The role of each object of a scene under one of `TRUTHS`, in the order of the world.

    Under ``counterfactual`` an object that the rule names, although no single change of it matters (the label
    is decided twice over), is neither focus nor avoid.
    """
    named, ignored = reasoning.focus(scene), reasoning.avoid(scene)
    if truth == "counterfactual":
        named, ignored = decisive(reasoning, scene), frozenset(reasoning.world.names) - named
    elif truth == "shapley":
        named = frozenset(name for name, value in shapley(reasoning, scene).items() if value)
        ignored = frozenset(reasoning.world.names)

    def role(name: str) -> Role:
        if scene[name] == ABSENT:
            return Role.ABSENT
        return Role.FOCUS if name in named else Role.AVOID if name in ignored else Role.OTHER

    return [role(name) for name in reasoning.world.names]
