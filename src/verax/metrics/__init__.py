"""Metrics: a map and the truth (or the network) in, one score for each sample out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from verax.errors import InvalidParameter
from verax.registry import Registry

if TYPE_CHECKING:  # a listing of metrics needs no torch
    from torch import Tensor

    from verax.cases import Truth

Function: TypeAlias = "Callable[[Tensor, Truth], Tensor]"
"""Maps and the truth in, one score for each sample out."""


@dataclass(frozen=True)
class Metric:
    """What a score means.

    Attributes:
        name: the name of its column.
        description: one line.
        higher_is_better: its direction.
        bounds: the smallest and the largest value that it can take.
        protocol: the protocol whose maps it reads.
        paper: where it comes from.
        function: of an own metric (`verax.metrics.own`); built-in ones are computed together.
        version: of an own metric; scores of one without are never reused.
    """

    name: str
    description: str
    higher_is_better: bool
    bounds: tuple[float, float]
    protocol: str
    paper: str
    function: Function | None = None
    version: str | None = None


NORMALISED = "/normalised"
"""Ending of the metrics that are 0 for chance and 1 for the oracle."""

_ARRAS = "Arras, Osman and Samek, Information Fusion 2022"
_ZHANG = "Zhang et al., IJCV 2018"
_KIM = "Kim, Plumb and Talwalkar, ICML 2022"
_PETSIUK = "Petsiuk, Das and Saenko, BMVC 2018"
_SAMEK = "Samek et al., IEEE TNNLS 2017"
_YEH = "Yeh et al., NeurIPS 2019"
_UNIT = (0.0, 1.0)

_SOUND = (
    Metric(
        "focus-share", "Share of the map's mass on what the reasoning uses.", True, _UNIT, "sound", _ARRAS
    ),
    Metric("avoid-share", "Share of the mass on objects that it ignores.", False, _UNIT, "sound", _ARRAS),
    Metric("other-share", "Share of the mass on objects of no role.", False, _UNIT, "sound", _ARRAS),
    Metric("background-share", "Share of the mass outside all objects.", False, _UNIT, "sound", _ARRAS),
    Metric("rank-accuracy", "Share of the K strongest of K focus pixels.", True, _UNIT, "sound", _ARRAS),
    Metric("iou", "Overlap of the K strongest and the K focus pixels.", True, _UNIT, "sound", _KIM),
    Metric("pointing-game", "Chance that the strongest pixel is in focus.", True, _UNIT, "sound", _ZHANG),
)
_PUBLISHED = (
    # Boxes that overlap are counted twice, so the sum over several objects may pass 1.
    Metric("pafl", "Attribution in the focus boxes.", True, (0.0, math.inf), "published", _KIM),
    Metric("safl", "Attribution in the avoid boxes.", False, (0.0, math.inf), "published", _KIM),
    Metric("piou", "Mean overlap with each focus box.", True, _UNIT, "published", _KIM),
    Metric("siou", "Mean overlap with each avoid box.", False, _UNIT, "published", _KIM),
    Metric("siou-multi", "The same, cut at the area of the avoid boxes.", False, _UNIT, "published", _KIM),
    Metric("pmafl", "Mean attribution of a pixel in the focus boxes.", True, _UNIT, "published", _KIM),
    Metric("smafl", "Mean attribution of a pixel in the avoid boxes.", False, _UNIT, "published", _KIM),
)
_FAITHFULNESS = (
    Metric(
        "deletion", "Mean probability while the strongest pixels go.", False, _UNIT, "faithfulness", _PETSIUK
    ),
    Metric(
        "insertion",
        "Mean probability while the strongest pixels come.",
        True,
        _UNIT,
        "faithfulness",
        _PETSIUK,
    ),
    Metric(
        "pixel-flipping",
        "Mean fall of the logit while the strongest patches go.",
        True,
        (-math.inf, math.inf),
        "faithfulness",
        _SAMEK,
    ),
    Metric(
        "infidelity",
        "Squared error of the map, scaled, as a prediction of what removed patches do.",
        False,
        (0.0, math.inf),
        "faithfulness",
        _YEH,
    ),
    Metric(
        "max-sensitivity",
        "How far the map moves, relative to its size, when the input moves a little.",
        False,
        (0.0, 2.0),
        "faithfulness",
        _YEH,
    ),
)


_SHAPLEY = (
    Metric(
        "object-distance",
        "How far the map's mass over objects and background is from the Shapley values.",
        False,
        _UNIT,
        "sound:shapley",
        "Shapley, Contributions to the Theory of Games 1953",
    ),
)

CORE = "/core"
"""Ending of the metrics that leave out elements which count the same thing many times, as at the poles."""

_VERAX = "verax, this package"
_MAMALAKIS = "Mamalakis, Ebert-Uphoff and Barnes, Environmental Data Science 2022"
_EXACT = (
    Metric(
        "pearson", "Correlation of map and truth over all elements.", True, (-1.0, 1.0), "exact", _MAMALAKIS
    ),
    Metric("spearman", "The same, of ranks.", True, (-1.0, 1.0), "exact", _MAMALAKIS),
    Metric(
        "sign-agreement",
        "Share of elements with the right sign; 0 counts half.",
        True,
        _UNIT,
        "exact",
        _VERAX,
    ),
    Metric(
        "top-overlap",
        "Share of the truth's strongest tenth in the map's strongest tenth.",
        True,
        _UNIT,
        "exact",
        _VERAX,
    ),
    Metric("mass", "Share of the map's mass on the truth's strongest tenth.", True, _UNIT, "exact", _ARRAS),
    Metric(
        "total-gap",
        "Distance of the map's sum from the truth's, relative to the truth's magnitude.",
        False,
        (0.0, math.inf),
        "exact",
        _VERAX,
    ),
    Metric(
        "pearson/magnitude",
        "Correlation of |map| and |truth|, for methods that lose the sign.",
        True,
        (-1.0, 1.0),
        "exact",
        _MAMALAKIS,
    ),
    Metric(
        "pearson/positive",
        "Correlation of |map| and the positive part of the truth, likewise.",
        True,
        (-1.0, 1.0),
        "exact",
        _MAMALAKIS,
    ),
)


def _core(metric: Metric) -> Metric:
    about = f"{metric.description[:-1]}; without elements that repeat each other, as at the poles."
    return replace(metric, name=metric.name + CORE, description=about)


_BOGGUST = "Boggust et al., CHI 2022"
_ALIGNMENT = (
    Metric("align/iou", "Overlap of what is shown and what was marked.", True, _UNIT, "alignment", _BOGGUST),
    Metric(
        "align/ground-truth-coverage",
        "Share of what was marked that is shown.",
        True,
        _UNIT,
        "alignment",
        _BOGGUST,
    ),
    Metric(
        "align/saliency-coverage",
        "Share of what is shown that was marked.",
        True,
        _UNIT,
        "alignment",
        _BOGGUST,
    ),
    Metric(
        "align/pointing-game", "Chance that the strongest pixel was marked.", True, _UNIT, "alignment", _ZHANG
    ),
    Metric(
        "align/energy",
        "Share of the map's mass on what was marked.",
        True,
        _UNIT,
        "alignment",
        "Wang et al., CVPR workshops 2020",
    ),
)


def _normalised(metric: Metric) -> Metric:
    return replace(
        metric,
        name=metric.name + NORMALISED,
        description=f"{metric.description[:-1]}; 0 is chance, 1 is the oracle.",
        higher_is_better=True,
        bounds=(-math.inf, 1.0),
    )


def _adopted(name: str, thing: object) -> Metric:
    """What a plugin brings as a metric: one that says its direction and bounds."""
    if not isinstance(thing, Metric) or thing.name != name:
        raise InvalidParameter(
            f"the metric must be registered under this name by @verax.metric({name!r}, higher_is_better=...)"
        )
    return thing


METRICS: Registry[Metric] = Registry("metric", group="verax.metrics", adopt=_adopted)
for _metric in (
    *_SOUND,
    *map(_normalised, _SOUND),
    *_SHAPLEY,
    *map(_normalised, _SHAPLEY),
    *_PUBLISHED,
    *_FAITHFULNESS,
    *_ALIGNMENT,
    *_EXACT,
    *map(_core, _EXACT),
):
    METRICS.register(_metric.name, _metric)
METRICS.seal()
BUILTIN = tuple(METRICS._items)
"""The metrics of verax itself, in the order of their columns."""
