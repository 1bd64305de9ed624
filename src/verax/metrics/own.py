"""Metrics of one's own: scored where they are named, beside those of their protocol.

::

    @verax.metric("edge-share", higher_is_better=False, bounds=(0, 1))
    def edge_share(maps, truth):
        '''Share of a map that lies on the border of the picture.'''
        inside = maps[:, 1:-1, 1:-1].sum((1, 2))
        return 1 - inside / maps.sum((1, 2)).clamp(min=1e-12)

    verax.score(maps, cases, metrics=["edge-share"])

An own metric never changes a study that does not name it.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from verax.cases import Truth
from verax.errors import InvalidParameter, MetricFailed, VeraxError, place, suggestion
from verax.metrics import METRICS, Function, Metric
from verax.protocols import PROTOCOLS

F = TypeVar("F", bound=Function)

READ = ("sound", "published", "exact")
"""Protocols whose maps own metrics can read; `faithfulness` hands out none."""

_ROUNDING = 1e-6


def described(
    name: str,
    function: Function,
    *,
    higher_is_better: bool,
    bounds: tuple[float, float],
    protocol: str = "sound",
    description: str = "",
    paper: str = "",
    version: str | None = None,
) -> Metric:
    """A metric of one's own, checked."""
    if not callable(function):
        raise InvalidParameter(f"A metric must be callable, not {type(function).__name__}.")
    try:
        inspect.signature(function).bind(None, None)
    except TypeError as error:
        raise InvalidParameter(f"Metric {name!r} must be callable as (maps, truth): {error}.") from error
    if not isinstance(higher_is_better, bool):
        raise InvalidParameter(f"higher_is_better of {name!r} is true or false, not {higher_is_better!r}.")
    try:
        low, high = (float(bound) for bound in bounds)
    except (TypeError, ValueError) as error:
        raise InvalidParameter(f"The bounds of {name!r} are two numbers, not {bounds!r}.") from error
    if not low < high:
        raise InvalidParameter(f"The bounds of {name!r} are two rising numbers, not {bounds!r}.")
    if protocol not in READ:
        known = suggestion(str(protocol), READ)
        raise InvalidParameter(f"An own metric reads maps of {', '.join(READ)}, not of {protocol!r}{known}")
    about = description or (inspect.getdoc(function) or "").partition("\n")[0] or f"{name}, an own metric."
    return Metric(name, about, higher_is_better, (low, high), protocol, paper, function, version)


def metric(
    name: str,
    *,
    higher_is_better: bool,
    bounds: tuple[float, float] = (-math.inf, math.inf),
    protocol: str = "sound",
    description: str = "",
    paper: str = "",
    version: str | None = None,
) -> Callable[[F], F]:
    """Register a metric of one's own: ``@verax.metric("mine", higher_is_better=True, bounds=(0, 1))``.

    The function takes the maps of its protocol and the truth, and gives one score for each sample ``(N,)``;
    NaN where there is none. Registering the same name again replaces it; built-in names are refused.

    Args:
        name: of its column.
        higher_is_better: its direction.
        bounds: the smallest and the largest score that it can give; others are an error.
        protocol: whose maps it reads: "sound" and "published" hand out ``(N, H, W)``, "exact" ``(N, D)``, all
            of them finite float64.
        description: one line (default: the first of the docstring).
        paper: where it comes from.
        version: with one, scores are kept and reused until it changes; without, they are computed anew in
            every run, because nobody can know whether its code changed.
    """

    def register(function: F) -> F:
        made = described(
            name,
            function,
            higher_is_better=higher_is_better,
            bounds=bounds,
            protocol=protocol,
            description=description,
            paper=paper,
            version=version,
        )
        METRICS.own(name, made)
        return function

    return register


def own_metric(named: str | Metric) -> Metric:
    """A metric of one's own by its name, or as it is; built-in ones come with their protocol."""
    if isinstance(named, Metric):
        found = named
    elif isinstance(named, str):
        found = METRICS.get(named)
    else:
        raise InvalidParameter(
            f"Metrics are named, or made by verax.metric, which asks for their direction; "
            f"{type(named).__name__} is neither."
        )
    if found.function is None:
        raise InvalidParameter(
            f"The metric {found.name!r} is always scored under its protocol {found.protocol!r}; "
            "name only own metrics, which are scored beside it."
        )
    return found


def own_metrics(named: Sequence[str | Metric] | str, protocols: Sequence[str]) -> tuple[Metric, ...]:
    """Metrics of one's own, each of which reads the maps of one of the protocols."""
    found = tuple(map(own_metric, [named] if isinstance(named, str) else named))
    for made in found:
        if not any(reads(made, protocol) for protocol in protocols):
            raise InvalidParameter(
                f"The metric {made.name!r} reads maps of the protocol {made.protocol!r}, "
                f"which is not asked for ({', '.join(protocols)})."
            )
    return found


def reads(metric: Metric, protocol: str) -> bool:
    """Whether a metric is one of a protocol: another truth has the same metrics, and some of its own."""
    return metric.protocol in (protocol, protocol.partition(":")[0])


def measure(metric: Metric, maps: Tensor, truth: Truth) -> Tensor:
    """The scores of an own metric ``(N,)`` float64; what goes wrong with it is one sentence."""
    assert metric.function is not None
    try:
        found = metric.function(maps.clone(), truth)
    except (VeraxError, torch.OutOfMemoryError):
        raise
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise MetricFailed(f"Metric {metric.name!r} failed with {reason} ({place(error)})") from error
    if not isinstance(found, Tensor) or found.shape != (len(maps),) or found.is_complex():
        what = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise MetricFailed(
            f"Metric {metric.name!r} must give one number for each of {len(maps)} maps, not {what}."
        )
    scores = found.detach().to(device=maps.device, dtype=torch.float64)
    low, high = metric.bounds
    outside = (scores < low - _ROUNDING) | (scores > high + _ROUNDING) | scores.isinf()
    if outside.any():
        value = float(scores[outside][0])
        raise MetricFailed(f"Metric {metric.name!r} gave {value:g}, outside its bounds {low:g} to {high:g}.")
    return scores.clamp(low, high)


def prepared_by(protocol: str, attributions: Tensor) -> Tensor:
    """The maps that metrics of a protocol read."""
    return PROTOCOLS.get(protocol).prepare(attributions).values
