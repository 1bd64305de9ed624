"""Methods that compare the input with references: DeepLIFT and DeepSHAP."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from torch import Tensor, nn

from verax.engine.baselines import Baseline, baseline_of, check_references, noisy_baselines
from verax.engine.batching import accumulate, rows_within_budget
from verax.engine.conditions import later
from verax.engine.gradients import Points
from verax.engine.multipliers import deeplift
from verax.engine.sharing import mean_deeplift
from verax.errors import InvalidParameter, UnsupportedOperation
from verax.methods.base import builtin
from verax.methods.limits import Limit, whole_from
from verax.seeding import Streams

_PAPER = "Shrikumar, Greenside and Kundaje, ICML 2017"


@builtin(
    "deeplift-rescale",
    aliases=("DL-R",),
    family="references",
    needs="rules",
    paper=_PAPER,
    cost="2 forwards, 1 backward",
    total="change",
)
def deeplift_rescale(model: nn.Module, inputs: Tensor, targets: Tensor, baseline: Baseline = 0.0) -> Tensor:
    """How much each input brings to the change of the output from a baseline, layer by layer.

    The Rescale rule of DeepLIFT: an activation passes its change back in one piece::

        m = (f(x) - f(b)) / (x - b) instead of the slope f'(x)

    Args:
        model: the network.
        inputs: ``(N, ...)``.
        targets: ``(N,)``.
        baseline: the input that stands for absence.
    """
    return deeplift(model, inputs, baseline_of(baseline, inputs), targets)


@builtin(
    "deeplift-reveal-cancel",
    aliases=("DL-RC",),
    family="references",
    needs="rules",
    paper=_PAPER,
    cost="2 forwards, 1 backward",
    total="change",
)
def deeplift_reveal_cancel(
    model: nn.Module, inputs: Tensor, targets: Tensor, baseline: Baseline = 0.0
) -> Tensor:
    """DeepLIFT that follows what raises and what lowers a unit apart, so that the two cannot hide each other.

    The RevealCancel rule: the effect of positive changes is averaged over being added before and after the
    negative ones, and the other way round.

    Args:
        model: the network.
        inputs: ``(N, ...)``.
        targets: ``(N,)``.
        baseline: the input that stands for absence.
    """
    return deeplift(model, inputs, baseline_of(baseline, inputs), targets, reveal_cancel=True)


def _shared(references: Tensor, inputs: Tensor) -> Points:
    """The same references for every sample: (samples, references) -> ``(n, k, ...)``."""
    return lambda some, part: references[None, part].expand(len(inputs[some]), *[-1] * inputs.ndim)


REFERENCES = Limit(
    "a tensor, a whole number from 1 or, in studies, 'task:N'",
    lambda value: isinstance(value, Tensor | str) or whole_from(1).holds(value),
)


def references_of(inputs: Tensor, streams: Streams, settings: Mapping[str, Any]) -> tuple[Points, int]:
    """The references of Deep SHAP, given or drawn, and how many there are."""
    references, noise = settings["references"], settings["noise"]
    if isinstance(references, str):  # studies have put pictures in its place
        raise InvalidParameter(f"Only studies know the references {references!r}; give a tensor or a number.")
    if isinstance(references, Tensor):
        return _shared(check_references(references, inputs), inputs), len(references)
    return noisy_baselines(settings["baseline"], inputs, streams, references, noise), references


@builtin(
    "deep-shap",
    aliases=("D-SHAP", "DeepSHAP", "deep-lift-shap"),
    family="references",
    needs="rules",
    paper="Lundberg and Lee, NeurIPS 2017; Chen, Lundberg and Lee, Nature Communications 2022",
    cost="2 forwards, 1 backward for each reference",
    transfer="shap",
    total="change",
    starts=references_of,
    limits={"references": REFERENCES},
)
def deep_shap(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    streams: Streams,
    references: Tensor | int = 16,
    baseline: Baseline = 0.0,
    noise: float = 0.1,
) -> Tensor:
    """DeepLIFT (Rescale rule) averaged over several baselines, an approximation of Shapley values.

    Maps add up to the output minus its mean over the references.

    Args:
        model: the network.
        inputs: ``(N, ...)``.
        targets: ``(N,)``.
        streams: the random numbers of each sample.
        references: a set ``(R, ...)`` used for every sample, or how many are drawn around `baseline`.
        baseline: what references are made from.
        noise: standard deviation of the noise around `baseline`, in units of the input.
    """
    start, count = references_of(
        inputs, streams, {"references": references, "baseline": baseline, "noise": noise}
    )
    if isinstance(references, Tensor):
        # where rows are not the first dimension: every pair by itself
        with suppress(UnsupportedOperation), later() as doubts:
            found = mean_deeplift(model, inputs, references, targets)
            doubts.settle()  # here, where there is an answer
            return found

    def visit(some: slice, part: slice) -> Tensor:
        low = start(some, part)
        many = low.shape[1]
        x = inputs[some].repeat_interleave(many, 0)
        shares = deeplift(model, x, low.flatten(0, 1), targets[some].repeat_interleave(many))
        return shares.reshape(low.shape).sum(1) / count

    return accumulate(inputs, count, visit, rows_within_budget(inputs[0]))
