"""Methods that change the backward pass: layer-wise relevance propagation, Deep Taylor, guided backprop.

All are rule tables for one engine (`verax.engine.mode`), which sees every operation of an unmodified network.
An operation that a table does not know raises `UnsupportedOperation`.
"""

from __future__ import annotations

from typing import get_args

from torch import Tensor, nn

from verax.engine import rules
from verax.engine.multipliers import rectified
from verax.engine.passes import propagate
from verax.engine.relevance import LRP, Composite, deep_taylor
from verax.errors import InvalidParameter
from verax.methods.base import builtin
from verax.methods.limits import Limit, finite, one_of

_BACH = "Bach et al., PLOS ONE 2015"
_OVERVIEW = "Montavon et al., Layer-wise relevance propagation: an overview, 2019"
_COST = "1 forward, 1 backward"
_BIAS = {"bias": one_of(*get_args(rules.Bias))}
_SHARE = {"bias": one_of("share", "none")}
_BOUND = Limit("a finite number, 'none' or None", lambda value: value in (None, "none") or finite(value))


def _lrp(model: nn.Module, inputs: Tensor, targets: Tensor, composite: Composite) -> Tensor:
    return propagate(LRP(composite), model, inputs, targets, start="output")[0]


@builtin(
    "lrp-z",
    aliases=("LRP-z",),
    family="relevance",
    needs="rules",
    paper=_BACH,
    cost=_COST,
    total="output",
    slack="biases",
    limits=_SHARE,
)
def lrp_z(model: nn.Module, inputs: Tensor, targets: Tensor, bias: str = "share") -> Tensor:
    """The output handed back layer by layer, to each input in proportion to what it contributed.

    ::

        R_i = sum_j x_i w_ij / z_j * R_j,    z_j = sum_i x_i w_ij + b_j

    On networks of ReLUs with biases that keep their share this is input-x-gradient.

    Args:
        model: the network.
        inputs: ``(N, ...)``.
        targets: ``(N,)``.
        bias: "share" lets biases keep what they contributed, "none" leaves them out of denominators, so that
            inputs get all of the output.
    """
    rule = rules.epsilon(0, bias == "share")
    return _lrp(model, inputs, targets, Composite(rule, rule, eps=0, pool=rules.epsilon(0)))


@builtin(
    "lrp-epsilon",
    aliases=("LRP-eps",),
    family="relevance",
    needs="rules",
    paper=_BACH,
    cost=_COST,
    total="output",
    slack="biases",
    limits=_SHARE,
)
def lrp_epsilon(
    model: nn.Module, inputs: Tensor, targets: Tensor, epsilon: float = 1e-6, bias: str = "share"
) -> Tensor:
    """LRP-z with denominators kept away from zero, which takes the noise out of weak contributions.

    ::

        R_i = sum_j x_i w_ij / (z_j + epsilon sign(z_j)) * R_j

    The SMERF paper uses an epsilon of 1.

    Args:
        model: the network.
        inputs: ``(N, ...)``.
        targets: ``(N,)``.
        epsilon: how far denominators are moved away from zero; larger values drop weak relevance.
        bias: "share" lets biases keep what they contributed, "none" leaves them out of denominators.
    """
    rule = rules.epsilon(epsilon, bias == "share")
    return _lrp(model, inputs, targets, Composite(rule, rule))


@builtin(
    "lrp-gamma",
    family="relevance",
    needs="rules",
    paper=_OVERVIEW,
    cost="1 forward, 3 backwards",
    total="output",
    slack="biases",
)
def lrp_gamma(model: nn.Module, inputs: Tensor, targets: Tensor, gamma: float = 0.25) -> Tensor:
    """LRP that favours what speaks for the output over what speaks against it.

    ::

        R_i = sum_j x_i v_ij / sum_k x_k v_kj * R_j,  v = w + gamma w+, for x >= 0

    Args:
        model: the network.
        inputs: ``(N, ...)``.
        targets: ``(N,)``.
        gamma: how much more positive contributions count; 0 is LRP-epsilon.
    """
    rule = rules.gamma(gamma)
    return _lrp(model, inputs, targets, Composite(rule, rule))


@builtin(
    "lrp-alpha1beta0",
    family="relevance",
    needs="rules",
    paper=_BACH,
    cost="1 forward, 2 backwards",
    total="output",
    slack="biases",
    limits=_BIAS,
)
def lrp_alpha1beta0(model: nn.Module, inputs: Tensor, targets: Tensor, bias: rules.Bias = "split") -> Tensor:
    """LRP that follows only what speaks for the output.

    ::

        R_i = sum_j (x_i w_ij)+ / sum_k (x_k w_kj)+ * R_j

    Args:
        model: the network.
        inputs: ``(N, ...)``.
        targets: ``(N,)``.
        bias: what becomes of biases: "split" lets positive and negative ones keep a share of their own,
            "none" leaves them out, "innvestigate" counts the whole bias on both sides.
    """
    rule = rules.alpha_beta(1, 0, bias=bias)
    return _lrp(model, inputs, targets, Composite(rule, rule))


@builtin(
    "lrp-alpha2beta1",
    family="relevance",
    needs="rules",
    paper=_BACH,
    cost="1 forward, 4 backwards",
    total="output",
    slack="biases",
    limits=_BIAS,
)
def lrp_alpha2beta1(model: nn.Module, inputs: Tensor, targets: Tensor, bias: rules.Bias = "split") -> Tensor:
    """LRP that counts what speaks for the output twice and what speaks against it once.

    ::

        R_i = sum_j (2 p_ij - n_ij) * R_j
        p_ij = (x_i w_ij)+ / sum_k (x_k w_kj)+,  n_ij = (x_i w_ij)- / sum_k (x_k w_kj)-

    Args:
        model: the network.
        inputs: ``(N, ...)``.
        targets: ``(N,)``.
        bias: what becomes of biases: "split" lets positive and negative ones keep a share of their own,
            "none" leaves them out, "innvestigate" counts the whole bias on both sides.
    """
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
    needs="rules",
    paper=_OVERVIEW,
    cost="1 forward, 2 backwards",
    total="output",
    slack="biases",
    limits=_BIAS,
)
def lrp_a(
    model: nn.Module, inputs: Tensor, targets: Tensor, epsilon: float = 1e-6, bias: rules.Bias = "split"
) -> Tensor:
    """LRP with a rule for each depth, preset A: only positive contributions count in convolutions.

    LRP-epsilon on dense layers, alpha 1 beta 0 on convolutions, and at the input every pixel that a unit
    sees gets the same share.

    Args:
        model: the network.
        inputs: ``(N, ...)``.
        targets: ``(N,)``.
        epsilon: how far denominators of dense layers are moved away from zero.
        bias: what becomes of biases: "split" lets positive and negative ones keep a share of their own,
            "none" leaves them out, "innvestigate" counts the whole bias on both sides.
    """
    return _lrp(model, inputs, targets, _preset(1, 0, epsilon, bias))


@builtin(
    "lrp-b",
    aliases=("LRP-B",),
    family="relevance",
    needs="rules",
    paper=_OVERVIEW,
    cost="1 forward, 4 backwards",
    total="output",
    slack="biases",
    limits=_BIAS,
)
def lrp_b(
    model: nn.Module, inputs: Tensor, targets: Tensor, epsilon: float = 1e-6, bias: rules.Bias = "split"
) -> Tensor:
    """LRP with a rule for each depth, preset B: negative contributions count in convolutions too.

    LRP-epsilon on dense layers, alpha 2 beta 1 on convolutions, and at the input every pixel that a unit
    sees gets the same share.

    Args:
        model: the network.
        inputs: ``(N, ...)``.
        targets: ``(N,)``.
        epsilon: how far denominators of dense layers are moved away from zero.
        bias: what becomes of biases: "split" lets positive and negative ones keep a share of their own,
            "none" leaves them out, "innvestigate" counts the whole bias on both sides.
    """
    return _lrp(model, inputs, targets, _preset(2, 1, epsilon, bias))


@builtin(
    "deep-taylor",
    aliases=("DT",),
    family="relevance",
    needs="rules",
    paper="Montavon et al., Pattern Recognition 2017",
    cost="1 forward, 2 backwards",
    limits={"low": _BOUND, "high": _BOUND},
)
def deep_taylor_decomposition(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    low: float | str | None = 0.0,
    high: float | str | None = 1.0,
) -> Tensor:
    """What each input adds to the positive part of the output, by first-order expansions layer by layer.

    Each layer is expanded at a root of its units; with ReLUs that leaves positive contributions alone
    (z+ rule), and at the input the root is sought between the bounds (z^B rule).

    Args:
        model: the network.
        inputs: ``(N, ...)``.
        targets: ``(N,)``.
        low: the smallest value that an input can have; "none": no bounds, shares by squared weights.
        high: the largest value that an input can have; "none": no bounds.
    """
    least, most = (None if isinstance(bound, str) else bound for bound in (low, high))
    if least is not None and most is not None and not least < most:
        raise InvalidParameter(f"Deep Taylor needs a low bound below the high one, not {low!r} and {high!r}.")
    return propagate(LRP(deep_taylor(least, most)), model, inputs, targets, start="relu")[0]


@builtin(
    "deconvnet",
    aliases=("DCN",),
    family="relevance",
    needs="gradient",
    paper="Zeiler and Fergus, ECCV 2014",
    cost=_COST,
    transfer="projection",
)
def deconvnet(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """The gradient, but every ReLU keeps only the positive part of the signal on its way back.

    Whether the ReLU was open in the forward pass does not matter, so that maps depend little on the class
    (Mahendran and Vedaldi, ECCV 2016).
    """
    return rectified(model, inputs, targets, gate=False)


@builtin(
    "guided-backprop",
    aliases=("GBP",),
    family="relevance",
    needs="gradient",
    paper="Springenberg et al., ICLR workshop 2015",
    cost=_COST,
    transfer="projection",
)
def guided_backprop(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """The gradient, but ReLUs that were open keep only the positive part of the signal on its way back.

    Maps are sharp, and change little when the weights of the network are made random (Adebayo et al.,
    NeurIPS 2018).
    """
    return rectified(model, inputs, targets, gate=True)
