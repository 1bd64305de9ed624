"""Faithfulness: does the network react to what a map points at? No truth is needed, only the network.

All functions run the network in eval mode on flattened passes and leave it as it was. Places are ranked by
their attribution summed over channels. Equal values are ranked by one fixed pseudo-random order of the
places, the same for every sample and every map, so that results repeat and a constant map gains nothing
from where its pixels happen to lie; a map with NaN or infinity counts as constant.

Models, inputs, targets, maps, seeds and ids are checked and converted as in `verax.explain`; results are on
the device of the network.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from verax.engine.baselines import Baseline, baseline_of
from verax.engine.batching import blocks, rows_within_budget, with_halving
from verax.engine.gradients import select
from verax.engine.masking import pair_outputs
from verax.engine.segments import grid
from verax.errors import InvalidInput, InvalidParameter, suggestion
from verax.methods import Method, explain
from verax.methods.base import Function
from verax.methods.inputs import (
    check_ids,
    check_inputs,
    check_maps,
    check_model,
    check_seed,
    prepared,
    running,
)
from verax.methods.limits import number_from, whole_from
from verax.networks.anatomy import device_of
from verax.networks.inference import undisturbed
from verax.networks.precision import precisely
from verax.seeding import Streams

PERTURBATIONS = ("noise", "square")


def _finite(attributions: Tensor, inputs: Tensor) -> Tensor:
    """Maps in float64 on the device of the inputs; those with NaN or infinity become 0 everywhere."""
    maps = check_maps(attributions, inputs).to(torch.float64)
    good = maps.isfinite().flatten(1).all(1)
    return torch.where(good.reshape(-1, *[1] * (maps.ndim - 1)), maps, 0.0)


@contextmanager
def _measured(model: nn.Module, inputs: Tensor) -> Iterator[None]:
    """Eval mode, full float32 and fixed algorithms, so that a GPU gives the CPU's scores."""
    with undisturbed(model), precisely(device_of(model)), running(inputs.shape):
        yield


def _streams(inputs: Tensor, ids: Tensor | None, label: str, seed: int) -> Streams:
    """The random numbers of each sample, by its id or by its values."""
    return Streams.of(check_ids(ids, inputs), label, check_seed(seed))


def removal_ranks(attributions: Tensor, inputs: Tensor, region: int = 1) -> Tensor:
    """The rank of each place, 0 for the strongest: int64 ``(N, 1, ...)``, for vectors ``(N, F)``.

    Args:
        attributions: shape of `inputs`.
        inputs: ``(N, C, ...)`` or ``(N, F)``.
        region: side of the patches that are ranked as wholes, by their summed attribution.
    """
    whole_from(1).check(region, "The side of a region")
    inputs = check_inputs(inputs)
    maps = _finite(attributions, inputs)
    cut = grid(inputs, region)
    flat = (maps.sum(1) if maps.ndim > 2 else maps).flatten(1)
    labels = cut.labels.flatten()
    scores = flat
    if region > 1:
        # whole numbers, in steps of 2**-40 of the largest, add up to the same in any order: equals stay equal
        power = torch.frexp(flat.abs().amax(1, keepdim=True)).exponent
        # the bound keeps the factor finite for maps that are zero but for rounding
        steps = (flat * 2.0 ** (40 - power).clamp(max=1000).to(torch.float64)).round().to(torch.int64)
        zeros = torch.zeros(len(flat), cut.count, dtype=torch.int64, device=flat.device)
        scores = zeros.scatter_add_(1, labels.expand_as(flat), steps)
    ties = Streams.of(torch.zeros(1, dtype=torch.int64, device=flat.device), "ties").uniform("t", cut.count)
    shuffle = ties[0].argsort()
    order = shuffle[scores[:, shuffle].argsort(dim=1, descending=True, stable=True)]
    ranks = torch.empty_like(order).scatter_(
        1, order, torch.arange(cut.count, device=flat.device).expand_as(order)
    )
    return ranks[:, labels].reshape(len(inputs), *cut.labels.shape[1:])


def curve(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    attributions: Tensor,
    steps: int = 32,
    baseline: Baseline = 0.0,
    output: str = "logit",
    region: int = 1,
    insert: bool = False,
    seed: int = 0,
    ids: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The output while places are removed (or inserted), strongest first.

    A step that changes nothing, such as removing black pixels of a black background, needs no pass.

    Args:
        model: the network.
        inputs: ``(N, C, ...)`` or ``(N, F)``.
        targets: ``(N,)``.
        attributions: shape of `inputs`.
        steps: of about equally many places each; no more than there are places.
        baseline: what removed places show.
        output: "logit", "probability", "log-probability" or "margin".
        region: side of the patches that go as wholes.
        insert: begin with the baseline and show places of the input.
        seed: of the "noise" baseline.
        ids: which random stream each sample has (default: made from its values).

    Returns:
        The part of the places that is changed ``(steps + 1,)`` and the outputs ``(N, steps + 1)``, float64.
    """
    whole_from(1).check(steps, "The number of steps")
    asked, inputs, targets = prepared(check_model(model), inputs, targets, output=output)
    ranks = removal_ranks(attributions, inputs, region)
    count = int(ranks.max()) + 1
    steps = min(steps, count)
    cuts = (torch.arange(steps + 1, device=inputs.device) * count + steps // 2) // steps
    filling = baseline_of(baseline, inputs, _streams(inputs, ids, "flipping", seed))
    differs = inputs != filling
    if inputs.ndim > 2:
        differs = differs.any(1, keepdim=True)
    # steps are nested, so two that changed equally many places that differ show the same input
    tally = torch.zeros(len(inputs), count, dtype=torch.int64, device=inputs.device)
    tally.scatter_add_(1, ranks.flatten(1), differs.flatten(1).to(torch.int64))
    done = F.pad(tally.cumsum(1), (1, 0))[:, cuts]
    fresh = F.pad(done.diff(dim=1) != 0, (1, 0), value=True)
    samples, chosen = fresh.nonzero(as_tuple=True)

    def make(who: Tensor, which: Tensor) -> Tensor:
        changed = ranks.index_select(0, who) < cuts[which].reshape(-1, *[1] * (ranks.ndim - 1))
        return changed if insert else ~changed

    with _measured(model, inputs):
        found = pair_outputs(asked, inputs, targets, filling, samples, chosen, make)
    # the place of the last fresh step in the list of all pairs
    last = fresh.flatten().cumsum(0).reshape(fresh.shape) - 1
    return cuts.to(torch.float64) / count, found.to(torch.float64)[last]


def _area(places: Tensor, outputs: Tensor) -> Tensor:
    return torch.trapezoid(outputs, places, dim=1)


def deletion(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    attributions: Tensor,
    steps: int = 32,
    baseline: Baseline = 0.0,
    output: str = "probability",
) -> Tensor:
    """Area under the output while the strongest places are deleted: ``(N,)``; lower is better.

    Petsiuk, Das and Saenko, "RISE: randomized input sampling for explanation of black-box models", BMVC 2018.
    Arguments as in `curve`; networks with one output have no probability and need ``output="logit"``.
    """
    return _area(*curve(model, inputs, targets, attributions, steps, baseline, output))


def insertion(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    attributions: Tensor,
    steps: int = 32,
    baseline: Baseline | None = None,
    output: str = "probability",
) -> Tensor:
    """Area under the output while the strongest places are inserted: ``(N,)``; higher is better.

    Petsiuk, Das and Saenko, BMVC 2018. The canvas is a blurred input for pictures, as in the paper, and
    zeros for others, unless `baseline` is given. Arguments as in `curve`.
    """
    canvas: Baseline = ("blur" if check_inputs(inputs).ndim == 4 else 0.0) if baseline is None else baseline
    return _area(*curve(model, inputs, targets, attributions, steps, canvas, output, insert=True))


def pixel_flipping(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    attributions: Tensor,
    steps: int = 32,
    baseline: Baseline = 0.0,
    output: str = "logit",
    region: int = 1,
    seed: int = 0,
    ids: Tensor | None = None,
) -> Tensor:
    """The output after each step of flipping the strongest places first: ``(N, steps + 1)``.

    Samek et al., "Evaluating the visualization of what a deep neural network has learned", IEEE TNNLS 2017.
    They flip regions of 9 x 9 pixels to noise: ``region=9, baseline="noise"``. Arguments as in `curve`.
    """
    return curve(model, inputs, targets, attributions, steps, baseline, output, region, seed=seed, ids=ids)[1]


def perturbation_area(flipped: Tensor) -> Tensor:
    """Area over the perturbation curve: ``(N,)``, higher is better.

    The mean over all steps, the untouched input included, of how far the output fell (Samek et al. 2017,
    equation 12, without the mean over samples).

    Args:
        flipped: ``(N, steps + 1)`` from `pixel_flipping`.
    """
    if not isinstance(flipped, Tensor) or flipped.ndim != 2:
        raise InvalidInput("A perturbation curve must be a tensor (samples, steps + 1).")
    return (flipped[:, :1] - flipped).mean(1)


def infidelity(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    attributions: Tensor,
    samples: int = 64,
    perturbation: str = "noise",
    noise: float = 0.1,
    square: int = 8,
    baseline: Baseline = 0.0,
    scaled: bool = False,
    output: str = "logit",
    seed: int = 0,
    ids: Tensor | None = None,
) -> Tensor:
    """Mean squared gap between what a map predicts and what a perturbation does: ``(N,)``; lower is better.

    Yeh et al., "On the (in)fidelity and sensitivity of explanations", NeurIPS 2019: the mean of
    (I . map - (f(x) - f(x - I)))**2 over random perturbations I of a sample's own stream.

    Args:
        model: the network.
        inputs: ``(N, C, ...)`` or ``(N, F)``.
        targets: ``(N,)``.
        attributions: shape of `inputs`.
        samples: perturbations of each sample.
        perturbation: "noise" (normal, of standard deviation `noise`) or "square" (a random patch of side
            `square` goes to the baseline).
        noise: standard deviation in units of the input.
        square: side of the patch.
        baseline: what a removed patch shows.
        scaled: multiply each map by the one number that suits it best, so that its scale does not count.
        output: "logit", "probability", "log-probability" or "margin".
        seed: of the perturbations.
        ids: which random stream each sample has (default: made from its values).
    """
    whole_from(1).check(samples, "The number of perturbations")
    whole_from(1).check(square, "The side of a square")
    number_from(0).check(noise, "The noise")
    if perturbation not in PERTURBATIONS:
        raise InvalidParameter(
            f"There is no perturbation {perturbation!r}{suggestion(str(perturbation), PERTURBATIONS)}"
        )
    asked, inputs, targets = prepared(check_model(model), inputs, targets, output=output)
    maps = _finite(attributions, inputs)
    streams = _streams(inputs, ids, "infidelity", seed)
    filling = baseline_of(baseline, inputs, streams)
    own = streams.bits("perturbations", samples)

    def perturbations(drawn: Streams, x: Tensor, low: Tensor) -> Tensor:
        """One perturbation I for each row."""
        if perturbation == "noise":
            return noise * drawn.normal("noise", *x.shape[1:]).to(x)
        inside = torch.ones_like(x[:, :1] if x.ndim > 2 else x, dtype=torch.bool)
        first = 2 if x.ndim > 2 else 1
        for axis in range(first, x.ndim):
            length = x.shape[axis]
            start = drawn.integers(f"corner {axis - first}", max(1, length - square + 1))[:, None]
            place = torch.arange(length, device=x.device)
            shape = [len(x), *[1] * (x.ndim - 1)]
            shape[axis] = length
            inside = inside & ((place >= start) & (place < start + square)).reshape(shape)
        return torch.where(inside, x - low, 0.0)

    def compute(limit: int) -> Tensor:
        table = torch.zeros(2, len(inputs), samples, dtype=torch.float64, device=inputs.device)
        with torch.inference_mode():
            for some, part in blocks(len(inputs), samples, limit):
                ids = own[some, part]
                repeat = ids.shape[1]
                x, low, y = (t[some].repeat_interleave(repeat, 0) for t in (inputs, filling, targets))
                step = perturbations(Streams(ids.flatten(), streams.seed), x, low)
                fall = torch.zeros(len(x), dtype=torch.float64, device=x.device)
                moved = (
                    step.flatten(1).any(1).nonzero()[:, 0]
                )  # a black patch of a black background costs nothing
                if len(moved):
                    whole = select(asked(inputs[some]), targets[some]).repeat_interleave(repeat)
                    fall[moved] = (whole[moved] - select(asked((x - step)[moved]), y[moved])).to(fall)
                kept = step.to(torch.float64).reshape(*ids.shape, -1) @ maps[some].flatten(1)[..., None]
                table[0, some, part] = kept[..., 0]
                table[1, some, part] = fall.reshape(ids.shape)
        return table.clone()

    with _measured(model, inputs):
        predicted, fell = with_halving(compute, rows_within_budget(inputs[0]))
    if scaled:
        power = predicted.square().sum(1, keepdim=True)
        best = (predicted * fell).sum(1, keepdim=True) / torch.where(power > 0, power, 1.0)
        predicted = predicted * best
    gap: Tensor = (predicted - fell).square().mean(1)
    return gap


def max_sensitivity(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    method: str | Method | Function,
    samples: int = 10,
    radius: float = 0.02,
    relative: bool = True,
    bounded: bool = False,
    attributions: Tensor | None = None,
    seed: int = 0,
    ids: Tensor | None = None,
    **parameters: Any,
) -> Tensor:
    """The farthest that a map moves when the input moves a little: ``(N,)``; lower is better.

    Yeh et al., NeurIPS 2019: the largest norm of map(x + d) - map(x) over random d with every component
    uniform in [-radius, radius]. A method that draws random numbers draws the same ones at both points, so
    that its own noise does not count.

    Args:
        model: the network.
        inputs: ``(N, ...)``.
        targets: ``(N,)``.
        method: a name or any callable ``(model, inputs, targets) -> attributions``.
        samples: moved inputs for each sample.
        radius: in units of the input.
        relative: divide by the norm of map(x); a map of zeros gives 0 if it never moves, else infinity.
        bounded: divide by the larger norm of the two maps instead, so that the result lies between 0 and 2:
            1 for a map that appears out of nothing, and 2, the worst, for maps that are not finite.
        attributions: map(x), where it is known; the method must have had the same seed and ids.
        seed: of the moves and of the method.
        ids: which random stream each sample has (default: made from its values).
        **parameters: the method's own, and what else `explain` takes.
    """
    whole_from(1).check(samples, "The number of moves")
    number_from(0).check(radius, "The radius")
    model, inputs, targets = prepared(check_model(model), inputs, targets)
    known = check_ids(ids, inputs)
    streams = _streams(inputs, known, "sensitivity", seed)

    def maps(x: Tensor) -> Tensor:
        found = explain(model, x, targets, method, seed=seed, ids=known, **parameters)
        return found.to(torch.float64).flatten(1)

    given = None if attributions is None else check_maps(attributions, inputs)
    still = maps(inputs) if given is None else given.to(torch.float64).flatten(1)
    size = still.norm(dim=1)
    farthest = torch.zeros(len(inputs), dtype=torch.float64, device=inputs.device)
    for draw in range(samples):
        move = radius * (2 * streams.uniform(("move", draw), *inputs.shape[1:]) - 1)
        there = maps(inputs + move.to(inputs))
        gap = (there - still).norm(dim=1)
        if bounded:
            gap = torch.where(gap == 0, 0.0, gap / torch.maximum(size, there.norm(dim=1))).nan_to_num(2.0)
        # NaN passes through a maximum, so a broken map shows
        farthest = torch.maximum(farthest, gap)
    if bounded or not relative:
        return farthest
    return torch.where(farthest == 0, 0.0, farthest / size)
