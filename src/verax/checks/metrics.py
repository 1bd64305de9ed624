"""Checks of metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from verax.cases import Role, Truth
from verax.checks.base import Check, Named, Report, made, same
from verax.metrics import METRICS, Function, Metric
from verax.metrics.own import own_metric, prepared_by
from verax.tasks import task

Scorer = Callable[..., Tensor]


def _found(metric: str | Metric | Function) -> Metric | None:
    """The registered metric behind a name or a function; None for a function that nobody registered."""
    if isinstance(metric, str | Metric):
        return own_metric(metric)
    named = (METRICS.get(name) for name in METRICS)
    return next((known for known in named if known.function is metric), None)


def check_metric(metric: str | Metric | Function) -> Report:
    """Run all checks on a metric.

    Args:
        metric: a registered one (`verax.metric`), by its name or its function, which reads the maps of its
            protocol, or any other function ``(attributions (N, C, H, W), truth) -> (N,)`` of raw maps, whose
            direction and bounds nobody knows.
    """
    known = _found(metric)
    function = metric if known is None else known.function
    assert callable(function)
    name = getattr(function, "__name__", type(function).__name__) if known is None else known.name
    return made(name, _tests(function, known))


def _prepared(metric: Metric | None, maps: Tensor) -> Tensor:
    """What the metric reads: raw maps, or those of its protocol."""
    return maps if metric is None else prepared_by(metric.protocol, maps)


def _tests(function: Function, known: Metric | None) -> Iterator[Named]:
    cases = task("textbox/complex-cr1").cases(n=2)
    truth = cases.truth
    if known is not None and known.protocol == "exact":  # a truth for every pixel: the focus, shared by it
        truth = _valued(truth)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        raw = torch.randn(cases.inputs.shape)

    def score(maps: Tensor = raw, about: Truth = truth) -> Tensor:
        return function(_prepared(known, maps), about)

    shape = "gives one score for each sample"

    def shaped() -> Check:
        scores = score()
        good = isinstance(scores, Tensor) and scores.shape == (len(raw),)
        got = f"shape {tuple(scores.shape)}" if isinstance(scores, Tensor) else type(scores).__name__
        return Check(shape, good, "" if good else f"it gave {got} for {len(raw)} maps")

    yield shape, shaped
    twice = "gives the same scores twice"
    yield twice, lambda: same(twice, score(), score(), "a second call gave others")
    batch = "does not depend on the batch"

    def alone() -> Check:
        parts = torch.cat([score(raw[k : k + 1], truth[k : k + 1]) for k in range(len(raw))])
        return same(batch, parts, score(), "a map alone has another score than among others")

    yield batch, alone
    order = "does not depend on the order"

    def permuted() -> Check:
        places = torch.arange(len(raw)).flip(0)
        return same(order, score(raw[places], truth[places]), score()[places], "other samples got the scores")

    yield order, permuted
    scale = "does not depend on the scale of a map"
    yield scale, lambda: same(scale, score(3 * raw), score(), "three times a map has another score")
    untouched = "leaves maps and truth untouched"

    def intact() -> Check:
        maps, told = _prepared(known, raw.clone()), truth.map(torch.clone)
        before = maps.clone()
        function(maps, told)
        faults = [] if torch.equal(maps, before) else ["the maps were changed"]
        faults += [] if torch.equal(told.focus, truth.focus) else ["the truth was changed"]
        return Check(untouched, not faults, "; ".join(faults))

    yield untouched, intact
    degenerate = "scores degenerate maps"

    def scored() -> Check:
        worst = []
        for word, value in (("constant", 0.0), ("NaN", float("nan")), ("infinite", float("inf"))):
            scores = score(torch.full_like(raw, value))
            if not scores[score().isfinite()].isfinite().all():
                worst.append(word)
        return Check(degenerate, not worst, ", ".join(worst) + " maps get no score" if worst else "")

    yield degenerate, scored
    ties = "breaks ties without regard to position"

    def tied() -> Check:
        flat = torch.zeros(1, *raw.shape[1:])
        corners = [_in_corners(place, size=raw.shape[-1]) for place in (0, 1)]
        told = [_valued(c) for c in corners] if truth.values is not None else corners
        first, last = (score(flat, c) for c in told)
        return same(ties, first, last, "what stands first is preferred")

    yield ties, tied
    yield from _declared(known, score, truth, cases.inputs)


def _declared(known: Metric | None, score: Scorer, truth: Truth, inputs: Tensor) -> Iterator[Named]:
    """What a registered metric says about itself."""
    bounds, direction = "stays within its bounds", "the truth scores no worse than chance"
    if known is None:
        why = "it is not registered, so that nobody knows"
        for name in (bounds, direction):
            yield name, lambda name=name: Check(name, None, why)  # type: ignore[misc]
        return
    ideal = (truth.ideal.to(torch.float32)[:, None]).expand_as(inputs).clone()
    flat = torch.ones_like(inputs)

    def bounded() -> Check:
        low, high = known.bounds
        scores = torch.cat([score(maps) for maps in (ideal, flat, -ideal, 1 - ideal)]).double()
        scores = scores[~scores.isnan()]
        wrong = scores[(scores < low - 1e-6) | (scores > high + 1e-6)]
        return Check(
            bounds,
            not len(wrong),
            f"it gave {float(wrong[0]):g}, outside {low:g} to {high:g}" if len(wrong) else "",
        )

    def directed() -> Check:
        best, chance = score(ideal).double(), score(flat).double()
        there = best.isfinite() & chance.isfinite()
        if not there.any():
            return Check(direction, None, "no score of the truth is defined")
        gap = float((best - chance)[there].mean()) * (1 if known.higher_is_better else -1)
        side = "higher" if known.higher_is_better else "lower"
        words = f"{side} is said to be better, and the truth has {float(best[there].mean()):.3g}"
        return Check(
            direction,
            gap >= -1e-9,
            "" if gap >= -1e-9 else f"{words}, a constant map {float(chance[there].mean()):.3g}",
        )

    yield bounds, bounded
    yield direction, directed


def _valued(truth: Truth) -> Truth:
    """The same truth with a value for every pixel: 1 in the focus."""
    return Truth(
        truth.focus,
        truth.avoid,
        truth.objects,
        truth.boxes,
        truth.roles,
        truth.names,
        values=truth.focus.to(torch.float64),
    )


def _in_corners(place: int, size: int, side: int = 10) -> Truth:
    """A focus box in the first or the last corner, and one to avoid in the other."""
    low, high = (0, side), (size - side, size)
    corners = (low, high) if place == 0 else (high, low)
    objects = torch.zeros(1, 2, size, size, dtype=torch.bool)
    for index, (start, stop) in enumerate(corners):
        objects[0, index, start:stop, start:stop] = True
    boxes = torch.tensor([[(*c, *c) for c in corners]])
    roles = torch.tensor([[Role.FOCUS, Role.AVOID]], dtype=torch.int8)
    return Truth.from_objects(objects, boxes, roles, ("focus", "avoid"))
