"""Methods that compare the input with a reference: DeepLIFT."""

from __future__ import annotations

from torch import Tensor, nn

from verax.engine.baselines import Baseline, baseline_of
from verax.engine.multipliers import deeplift
from verax.methods.base import builtin

_PAPER = "Shrikumar, Greenside and Kundaje, ICML 2017"


@builtin(
    "deeplift-rescale",
    aliases=("DL-R",),
    family="references",
    paper=_PAPER,
    cost="2 forwards, 1 backward",
    total="change",
)
def deeplift_rescale(model: nn.Module, inputs: Tensor, targets: Tensor, baseline: Baseline = 0.0) -> Tensor:
    """DeepLIFT, Rescale rule: contributions add up to the change of the output from the baseline."""
    return deeplift(model, inputs, baseline_of(baseline, inputs), targets)


@builtin(
    "deeplift-reveal-cancel",
    aliases=("DL-RC",),
    family="references",
    paper=_PAPER,
    cost="2 forwards, 1 backward with positive and negative parts apart",
    total="change",
)
def deeplift_reveal_cancel(
    model: nn.Module, inputs: Tensor, targets: Tensor, baseline: Baseline = 0.0
) -> Tensor:
    """DeepLIFT, RevealCancel rule: positive and negative contributions are followed apart."""
    return deeplift(model, inputs, baseline_of(baseline, inputs), targets, reveal_cancel=True)
