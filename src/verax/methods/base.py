"""What a method is, and the registry of all of them.

A method is any callable ``(model, inputs, targets) -> attributions``. Parameters of its own are keyword
arguments with defaults. Two names are special: a method that has a parameter called ``streams`` receives
per-sample random streams, one that has ``truth`` receives the truth of the cases (only references do).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar, cast

from torch import Tensor

from verax.engine.gradients import Points
from verax.errors import InvalidParameter, suggestion
from verax.methods.limits import SWITCH, USUAL, Limit
from verax.registry import Registry
from verax.seeding import Streams
from verax.wordings import wording

Function = Callable[..., Tensor]
Starts = Callable[[Tensor, Streams, Mapping[str, Any]], tuple[Points, int]]
"""(inputs, streams, parameters) -> the baselines of each sample, and how many each one has."""

Slack = Literal["rounding", "steps", "draws", "path", "biases"]
SLACKS: dict[Slack, str] = {
    "rounding": "exact but for rounding",
    "steps": "approached with more steps",
    "draws": "met on average over random draws",
    "path": "nearly met: kinks of the network on the path keep a part",
    "biases": "shared with biases and stabilisers, which keep a part by design",
}
"""How firm a promise is: why a map may miss its total although the method is computed as it should be."""

F = TypeVar("F", bound=Function)

SPECIAL = ("streams", "truth")
FLEXIBLE = ("baseline", "references", "low", "high")
"""Parameters that may have another type than their default; their limits say which."""

PEERS = ("captum", "zennit", "shap", "grad-cam")
FAMILIES = (
    "gradients",
    "relevance",
    "references",
    "attention",
    "cams",
    "perturbations",
    "controls",
    "truth",
    "peers",
    "own",
)

Need = Literal["nothing", "forward", "additive", "gradient", "rules", "feature map", "attention"]
NEEDS: Mapping[Need, str] = {
    "nothing": "any: it never looks at them",
    "forward": "any: only outputs are read, no gradient is taken",
    "additive": "those whose output is a sum of one term for each segment; others are refused",
    "gradient": "any differentiable one",
    "rules": "those made of operations that the rule engine knows; others are refused",
    "feature map": "differentiable ones with a feature map (N, C, h, w) of more than one pixel",
    "attention": "transformers with self-attention among all tokens",
}
"""What a method asks of the network, and so which networks it can explain, in words."""

Input = Literal["any", "pictures", "pictures or sequences"]
INPUTS: Mapping[Input, str] = {
    "any": "any shape (N, ...)",
    "pictures": "pictures (N, C, H, W)",
    "pictures or sequences": "pictures (N, C, H, W) or sequences (N, tokens, D)",
}
"""What a method can explain, in words."""

Explains = Literal["prediction", "label"]
"""Which output studies hand to a method: the predicted one, or that of the true label."""

Total = Literal["output", "change"]
TOTALS: Mapping[Total | None, str] = {
    "output": "the output, less what biases keep",
    "change": "the change of the output from the baseline, or from the mean over several",
    None: "nothing in particular",
}
"""What the numbers of a map add up to, in words."""


@dataclass(frozen=True)
class Method:
    """A method with what there is to say about it.

    Attributes:
        name: canonical name.
        function: the callable itself.
        family: one of `FAMILIES`.
        paper: where it comes from.
        cost: passes through the network for one sample, in words.
        needs: what it asks of the network (`NEEDS`); None where nobody said.
        inputs: what it can explain (`INPUTS`).
        transfer: how the `published` protocol turns its maps into pictures (facts of the SMERF code).
        explains: the output that studies ask it about: the predicted one, or that of the true label.
        total: what a map promises to add up to: the output, or its change from the baseline.
        starts: for a change, what it is counted from, where that is not one `baseline`; see `Starts`.
        slack: what may come between a map and its total, one of `SLACKS`.
        version: raise it when the maps change; results of own methods without a version are never reused.
        builtin: part of this package.
        parameters: its own parameters and their defaults.
        limits: which values they may have; without one, any of the type of the default.
        any_parameter: it takes parameters beyond those, as adapters of other libraries do.
        special: which of `SPECIAL` it receives.
    """

    name: str
    function: Function
    family: str = "own"
    paper: str = ""
    cost: str = ""
    needs: Need | None = None
    inputs: Input = "any"
    transfer: str = "heat"
    explains: Explains = "prediction"
    total: Total | None = None
    starts: Starts | None = None
    slack: Slack = "rounding"
    version: str | None = None
    builtin: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Limit] = field(default_factory=dict)
    any_parameter: bool = False
    special: frozenset[str] = frozenset()

    @property
    def summary(self) -> str:
        """The first line of the function's docstring."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    @property
    def wording(self) -> str:
        """A hash of what its function does, as far as its own code says; empty where that is unknown.

        It tells two methods of the same name apart (`verax.wordings`).
        """
        return wording(self.function)

    @property
    def foreign(self) -> bool:
        """Whether other people's code runs, which may do anything."""
        return not self.builtin or self.family == "peers"

    @property
    def model_free(self) -> bool:
        """Whether it never looks at the network: a control or a reference."""
        return self.family in ("controls", "truth")

    def settings(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All parameters with their values; an unknown one and an impossible value are refused."""
        for name, value in given.items():
            if name not in self.parameters and not self.any_parameter:
                known = list(self.parameters)
                have = suggestion(str(name), known) if known else "; it has none"
                raise InvalidParameter(f"Method {self.name!r} has no parameter {name!r}{have}")
            # a number, a word or a tensor
            flexible = name not in self.parameters or name in FLEXIBLE
            words = f"Parameter {name!r} of {self.name!r}"
            if not flexible and not _same_type(value, self.parameters[name]):
                kind = _KINDS[type(self.parameters[name])]
                raise InvalidParameter(f"{words} must be {kind}, not {value!r}.")
            if name in self.limits:
                self.limits[name].check(value, words)
        return {**self.parameters, **given}


_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}


def _same_type(value: Any, default: Any) -> bool:
    """Whether a plain value has the type of the default; anything goes where the default is not plain."""
    if not isinstance(value, bool | int | float | str):
        return True
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(value, bool) == isinstance(default, bool) or default is None
    if isinstance(default, float):
        return not isinstance(value, str) and not (isinstance(value, float) and value != value)
    if isinstance(default, int):
        return isinstance(value, int)
    return isinstance(value, str) if isinstance(default, str) else True


METHODS: Registry[Method] = Registry(
    "method",
    group="verax.methods",
    prefixes={name: f"verax.methods.adapters:{name.replace('-', '_')}" for name in PEERS},
    adopt=lambda name, thing: adopted(name, thing),
)


def describe(name: str, function: Function, **facts: Any) -> Method:
    """Read a callable's own parameters from its signature."""
    if not callable(function):
        raise InvalidParameter(f"A method must be callable, not {type(function).__name__}.")
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return Method(name, function, **facts)
    try:
        inspect.signature(function).bind(None, None, None, **dict.fromkeys(set(SPECIAL) & set(parameters)))
    except TypeError as error:
        raise InvalidParameter(
            f"Method {name!r} must be callable as (model, inputs, targets): {error}."
        ) from error
    if "truth" in parameters and not facts.get("builtin"):
        raise InvalidParameter(f"Method {name!r} asks for the truth, which only references may see.")
    own_names = list(parameters.values())[3:]  # after model, inputs and targets
    plain = {p.name: p.default for p in own_names if p.default is not inspect.Parameter.empty}
    special = frozenset(SPECIAL) & frozenset(parameters)
    own = {k: v for k, v in plain.items() if k not in SPECIAL}
    return Method(name, function, parameters=own, special=special, **facts)


def adopted(name: str, thing: object) -> Method:
    """What a plugin brings as a method: a `Method` of that name, or any callable."""
    if isinstance(thing, Method):
        if thing.name != name:
            raise InvalidParameter(f"it is called {thing.name!r} and its entry point {name!r}")
        if thing.family not in FAMILIES:
            raise InvalidParameter(f"there is no family {thing.family!r}{suggestion(thing.family, FAMILIES)}")
        return replace(thing, builtin=False)
    return describe(name, cast("Function", thing))


def builtin(
    name: str, *, aliases: tuple[str, ...] = (), limits: Mapping[str, Limit] | None = None, **facts: Any
) -> Callable[[F], F]:
    """Register a method of this package; `limits` are those of its parameters that `USUAL` does not know."""

    def register(function: F) -> F:
        made = describe(name, function, builtin=True, version="1", **facts)
        switches = {word: SWITCH for word, value in made.parameters.items() if isinstance(value, bool)}
        usual = {word: USUAL[word] for word in made.parameters if word in USUAL}
        made = replace(made, limits={**switches, **usual, **(limits or {})})
        METHODS.register(name, made, aliases=aliases)
        return function

    return register


def method(
    name: str, *, paper: str = "", version: str | None = None, transfer: str = "heat"
) -> Callable[[F], F]:
    """Register a method of one's own: ``@verax.method("mine")``.

    Registering the same name again replaces it, as happens in notebooks; built-in names are refused.

    Args:
        name: how it is called in studies and tables.
        paper: shown in listings.
        version: with one, finished results are kept and reused until it changes; without, the method is
            computed anew in every run, because nobody can know whether its code changed.
        transfer: how the `published` protocol reads its maps: ``heat`` for signed, ``gray`` for unsigned.
    """

    def register(function: F) -> F:
        METHODS.own(name, describe(name, function, paper=paper, version=version, transfer=transfer))
        return function

    return register
