"""Methods that change the backward pass: layer-wise relevance propagation, Deep Taylor, guided backprop.

All are rule tables for one engine (`verax.engine.mode`), which sees every operation of an unmodified network.
An operation that a table does not know raises `UnsupportedOperation`.
"""

from __future__ import annotations

from torch import Tensor, nn

from verax.engine import rules
from verax.engine.mode import propagate
from verax.engine.multipliers import Rectified
from verax.engine.relevance import LRP, Composite, deep_taylor
from verax.methods.base import builtin

_BACH = "Bach et al., PLOS ONE 2015"
_OVERVIEW = "Montavon et al., Layer-wise relevance propagation: an overview, 2019"
_COST = "1 forward, 1 backward"


def _lrp(model: nn.Module, inputs: Tensor, targets: Tensor, composite: Composite) -> Tensor:
    return propagate(LRP(composite), model, inputs, targets, start="output")[0]


@builtin(
    "lrp-z", aliases=("LRP-z",), family="relevance", paper=_BACH, cost=_COST, total="output", slack="biases"
)
def lrp_z(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Relevance shared in proportion to each input's contribution."""
    return _lrp(
        model, inputs, targets, Composite(rules.epsilon(0), rules.epsilon(0), eps=0, pool=rules.epsilon(0))
    )


@builtin(
    "lrp-epsilon",
    aliases=("LRP-eps",),
    family="relevance",
    paper=_BACH,
    cost=_COST,
    total="output",
    slack="biases",
)
def lrp_epsilon(model: nn.Module, inputs: Tensor, targets: Tensor, epsilon: float = 1e-6) -> Tensor:
    """LRP-z with denominators moved away from zero by `epsilon` (the SMERF paper uses 1)."""
    rule = rules.epsilon(epsilon)
    return _lrp(model, inputs, targets, Composite(rule, rule))


@builtin(
    "lrp-gamma",
    family="relevance",
    paper=_OVERVIEW,
    cost="1 forward, 3 backwards",
    total="output",
    slack="biases",
)
def lrp_gamma(model: nn.Module, inputs: Tensor, targets: Tensor, gamma: float = 0.25) -> Tensor:
    """LRP that favours positive contributions by a factor of 1 + `gamma`."""
    rule = rules.gamma(gamma)
    return _lrp(model, inputs, targets, Composite(rule, rule))


@builtin(
    "lrp-alpha1beta0",
    family="relevance",
    paper=_BACH,
    cost="1 forward, 2 backwards",
    total="output",
    slack="biases",
)
def lrp_alpha1beta0(model: nn.Module, inputs: Tensor, targets: Tensor, bias: rules.Bias = "split") -> Tensor:
    """LRP through positive contributions alone."""
    rule = rules.alpha_beta(1, 0, bias=bias)
    return _lrp(model, inputs, targets, Composite(rule, rule))


@builtin(
    "lrp-alpha2beta1",
    family="relevance",
    paper=_BACH,
    cost="1 forward, 4 backwards",
    total="output",
    slack="biases",
)
def lrp_alpha2beta1(model: nn.Module, inputs: Tensor, targets: Tensor, bias: rules.Bias = "split") -> Tensor:
    """LRP with positive contributions counted twice and negative ones once."""
    rule = rules.alpha_beta(2, 1, bias=bias)
    return _lrp(model, inputs, targets, Composite(rule, rule))


def _preset(alpha: float, beta: float, epsilon: float, bias: rules.Bias) -> Composite:
    return Composite(
        conv=rules.alpha_beta(alpha, beta, bias=bias), dense=rules.epsilon(epsilon), first=rules.flat()
    )


@builtin(
    "lrp-a",
    aliases=("LRP-A",),
    family="relevance",
    paper=_OVERVIEW,
    cost="1 forward, 2 backwards",
    total="output",
    slack="biases",
)
def lrp_a(
    model: nn.Module, inputs: Tensor, targets: Tensor, epsilon: float = 1e-6, bias: rules.Bias = "split"
) -> Tensor:
    """Sequential preset A, flat: epsilon on dense, alpha 1 beta 0 on convolutions, flat at the input."""
    return _lrp(model, inputs, targets, _preset(1, 0, epsilon, bias))


@builtin(
    "lrp-b",
    aliases=("LRP-B",),
    family="relevance",
    paper=_OVERVIEW,
    cost="1 forward, 4 backwards",
    total="output",
    slack="biases",
)
def lrp_b(
    model: nn.Module, inputs: Tensor, targets: Tensor, epsilon: float = 1e-6, bias: rules.Bias = "split"
) -> Tensor:
    """Sequential preset B, flat: epsilon on dense, alpha 2 beta 1 on convolutions, flat at the input."""
    return _lrp(model, inputs, targets, _preset(2, 1, epsilon, bias))


@builtin(
    "deep-taylor",
    aliases=("DT",),
    family="relevance",
    paper="Montavon et al., Pattern Recognition 2017",
    cost="1 forward, 2 backwards",
)
def deep_taylor_decomposition(
    model: nn.Module, inputs: Tensor, targets: Tensor, low: float | None = 0.0, high: float | None = 1.0
) -> Tensor:
    """Deep Taylor decomposition of the positive part of the output, for inputs from `low` to `high`."""
    return propagate(LRP(deep_taylor(low, high)), model, inputs, targets, start="relu")[0]


@builtin(
    "deconvnet",
    aliases=("DCN",),
    family="relevance",
    paper="Zeiler and Fergus, ECCV 2014",
    cost=_COST,
    transfer="projection",
)
def deconvnet(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """The gradient with ReLUs applied to the backward signal instead of their own derivative."""
    return propagate(Rectified(gate=False), model, inputs, targets)[0]


@builtin(
    "guided-backprop",
    aliases=("GBP",),
    family="relevance",
    paper="Springenberg et al., ICLR workshop 2015",
    cost=_COST,
    transfer="projection",
)
def guided_backprop(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """The gradient with negative signals stopped at every ReLU."""
    return propagate(Rectified(gate=True), model, inputs, targets)[0]
