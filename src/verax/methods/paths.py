"""Methods that integrate gradients along other paths than one straight line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from verax.engine import gradients as engine
from verax.engine.baselines import Baseline, baseline_of, check_references, noisy_baselines, scale_space
from verax.engine.batching import accumulate, rows_within_budget
from verax.errors import InvalidInput, InvalidParameter, suggestion
from verax.methods.base import builtin
from verax.methods.limits import Limit, number_above, number_from
from verax.seeding import Streams


def _drawn(inputs: Tensor, streams: Streams, settings: Mapping[str, Any]) -> tuple[engine.Points, int]:
    """The random baselines of Gradient SHAP, and how many there are."""
    references, samples = settings["references"], settings["samples"]
    if references is None:
        made = noisy_baselines(settings["baseline"], inputs, streams, samples, settings["noise"])
        return made, samples
    if isinstance(references, str):  # studies have put inputs in its place
        raise InvalidParameter(f"Only studies know the references {references!r}; give a tensor.")
    known = check_references(references, inputs)

    def drawn(some: slice, part: slice) -> Tensor:
        return known[streams[some].integers("reference", len(known), samples)[:, part]]

    return drawn, samples


@builtin(
    "gradient-shap",
    aliases=("GradientSHAP", "expected-gradients"),
    family="gradients",
    needs="gradient",
    paper="Erion et al., Nature Machine Intelligence 2021; Lundberg and Lee, NeurIPS 2017",
    cost="`samples` forwards and backwards",
    total="change",
    starts=_drawn,
    slack="draws",
    limits={
        "references": Limit(
            "a tensor, None or, in studies, 'task:N'",
            lambda value: value is None or isinstance(value, Tensor | str),
        )
    },
)
def gradient_shap(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    streams: Streams,
    samples: int = 32,
    references: Tensor | None = None,
    baseline: Baseline = 0.0,
    noise: float = 0.1,
) -> Tensor:
    """Integrated gradients averaged over random baselines, one random point on the way for each.

    Also known as expected gradients::

        mean over k of (x - b_k) * df/dx (b_k + a_k (x - b_k)),  a_k in [0, 1]

    Args:
        model: the network.
        inputs: ``(N, ...)``.
        targets: ``(N,)``.
        streams: the random numbers of each sample.
        samples: pairs of a baseline and a point on the line to it.
        references: a set ``(R, ...)`` that baselines are drawn from, with replacement.
        baseline: without `references`, what baselines are made from.
        noise: standard deviation of the noise around `baseline`, in units of the input.
    """
    settings = {"samples": samples, "references": references, "baseline": baseline, "noise": noise}
    starts, _ = _drawn(inputs, streams, settings)

    def visit(some: slice, part: slice) -> Tensor:
        start = starts(some, part)
        along = streams[some].uniform("place", samples)[:, part].to(inputs)
        away = inputs[some, None] - start
        points = start + away * along.reshape(*along.shape, *[1] * (inputs.ndim - 1))
        return (away * engine.gradients_at(model, points, targets[some])).sum(1) / samples

    return accumulate(inputs, samples, visit, rows_within_budget(inputs[0]))


def _widest(inputs: Tensor, width: float | None) -> float:
    """The strongest blur: a quarter of the shorter side unless it is given."""
    if inputs.ndim != 4:
        raise InvalidInput(f"Blurring needs pictures (N, C, H, W), not shape {tuple(inputs.shape)}.")
    return min(inputs.shape[2:]) / 4 if width is None else width


def _blurred(inputs: Tensor, streams: Streams, settings: Mapping[str, Any]) -> tuple[engine.Points, int]:
    """Where the path of blurred pictures begins."""
    widths = torch.tensor([_widest(inputs, settings["width"])], dtype=torch.float64)
    return lambda some, part: scale_space(inputs[some], widths[part]), 1


@builtin(
    "blur-ig",
    aliases=("BlurIG", "blur-integrated-gradients"),
    family="gradients",
    needs="gradient",
    inputs="pictures",
    paper="Xu, Venugopalan and Sundararajan, CVPR 2020",
    cost="`steps` forwards and backwards",
    total="change",
    starts=_blurred,
    slack="steps",
    limits={"width": number_above(0).or_none()},
)
def blur_ig(
    model: nn.Module, inputs: Tensor, targets: Tensor, steps: int = 32, width: float | None = None
) -> Tensor:
    """Gradients collected while a blurred picture becomes sharp, times the change of each pixel.

    The path is cut into straight pieces, narrower where the picture is sharper and so changes faster; each
    piece is weighted by the gradient at its middle. The sum of a map converges to f(input) - f(blurred).

    Args:
        model: the network.
        inputs: ``(N, C, H, W)``.
        targets: ``(N,)``.
        steps: pieces of the path.
        width: standard deviation of the strongest blur in pixels (default: a quarter of the shorter side; the
            paper uses 50 on pictures of 224).
    """
    widths = _widest(inputs, width) * torch.linspace(1, 0, steps + 1, dtype=torch.float64) ** 2

    def visit(some: slice, part: slice) -> Tensor:
        path = scale_space(inputs[some], widths[part.start : part.stop + 1])
        middle = (path[:, :-1] + path[:, 1:]) / 2
        return (engine.gradients_at(model, middle, targets[some]) * path.diff(dim=1)).sum(1)

    return accumulate(inputs, steps, visit, rows_within_budget(inputs[0]))


def _advance(
    place: Tensor, slopes: Tensor, size: Tensor, share: float, distance: float, fraction: float
) -> Tensor:
    """Move features with small gradients towards the input until the path has covered `share` of its length.

    Args:
        place: ``(N, F)``, where each feature is: 0 at the baseline, 1 at the input.
        slopes: ``(N, F)`` magnitudes of the gradients.
        size: ``(N, F)`` distances between baseline and input.
        share: of the way that must lie behind.
        distance: how far a feature may be from `share`.
        fraction: of all features that are moved at once.
    """
    slopes = slopes.nan_to_num(nan=torch.inf)  # moved last; the map is undefined, but the path must end
    low, high = max(share - distance, 0.0), min(share + distance, 1.0)
    place = place.clamp_min(low)
    whole = size.sum(1)
    order = slopes.argsort(1)
    ranked = slopes.gather(1, order)
    together = int(fraction * (size.shape[1] - 1)) + 1
    while True:
        excess = (size * (1 - place)).sum(1) - whole * (1 - share)
        movable = (place < high) & (size > 0)
        busy = (excess > 1e-9 * whole) & movable.any(1)
        if not bool(busy.any()):
            return place
        free = movable.gather(1, order)
        nearest = free & (free.cumsum(1) <= together)
        threshold = torch.where(nearest, ranked, -torch.inf).amax(1, keepdim=True)
        chosen = movable & (slopes <= threshold) & busy[:, None]
        room = (size * (high - place) * chosen).sum(1)
        part = (excess / room)[:, None]  # infinite where the room is too small to tell: all of it is taken
        moved = torch.where(part >= 1, high, place + part * (high - place))
        place = torch.where(chosen, moved, place)


@builtin(
    "guided-ig",
    aliases=("GIG", "guided-integrated-gradients"),
    family="gradients",
    needs="gradient",
    paper="Kapishnikov et al., CVPR 2021",
    cost="`steps` forwards and backwards",
    total="change",
    slack="path",
    limits={"fraction": number_above(0, 1), "distance": number_from(0, 1)},
)
def guided_ig(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    steps: int = 100,
    fraction: float = 0.25,
    distance: float = 0.02,
    rule: str = "trapezoid",
    baseline: Baseline = 0.0,
) -> Tensor:
    """Integrated gradients on a path that moves inputs with small gradients first, to pick up less noise.

    The sum of a map converges to f(input) - f(baseline) where the network is smooth. Along kinks of ReLUs the
    path runs to and fro, always on the side of the smaller gradients, so that a few per cent stay missing
    with the trapezoid rule and about three times as many with the left rule, however many steps there are.

    Args:
        model: the network.
        inputs: ``(N, ...)``.
        targets: ``(N,)``.
        steps: gradients along the path.
        fraction: of all features that are moved at once, those with the smallest gradients. As in the
            authors' code, features that equal their baseline are counted; where they are many, the path is
            nearly straight.
        distance: how far a feature may run ahead of or behind the straight line, as a share of the way; 0 is
            integrated gradients.
        rule: "trapezoid" (both ends of each step, one gradient more in all) or "left" (authors' code).
        baseline: where the path begins.
    """
    if rule not in ("trapezoid", "left"):
        raise InvalidParameter(
            f"There is no rule {rule!r} for guided paths{suggestion(str(rule), ('trapezoid', 'left'))}"
        )
    start = baseline_of(baseline, inputs)
    away = inputs - start
    size = away.flatten(1).abs().double()
    place = torch.zeros_like(size)
    total = torch.zeros_like(inputs)
    slopes = engine.gradient(model, start, targets)
    for step in range(1, steps + 1):
        moved = _advance(place, slopes.flatten(1).abs().double(), size, step / steps, distance, fraction)
        way = away * (moved - place).to(inputs).reshape(inputs.shape)
        if rule == "left" and step == steps:
            return total + slopes * way
        place = moved
        here = start + away * place.to(inputs).reshape(inputs.shape)
        following = engine.gradient(model, here, targets)
        total += way * (slopes if rule == "left" else (slopes + following) / 2)
        slopes = following
    return total
