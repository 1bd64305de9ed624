"""Methods for transformers: relevance through attention, and the attention itself followed to the input."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from verax.engine import rules
from verax.engine.attention import AttentionLRP, attention_weights
from verax.engine.passes import propagate
from verax.engine.relevance import Composite
from verax.errors import UnsupportedOperation
from verax.methods.base import builtin
from verax.methods.limits import number_from, one_of

_COST = "1 forward, 1 backward"
_MOST_SPECIAL_TOKENS = 8

Enlarging = Literal["bilinear", "nearest"]
_ENLARGING = {"enlarging": one_of(*get_args(Enlarging))}


def _composite(epsilon: float, gamma: float) -> Composite:
    rule = rules.gamma(gamma, epsilon) if gamma else rules.epsilon(epsilon)
    return Composite(conv=rule, dense=rule, pool=rules.epsilon(epsilon), eps=epsilon)


@builtin(
    "attn-lrp",
    aliases=("AttnLRP",),
    family="attention",
    needs="rules",
    paper="Achtibat et al., ICML 2024",
    cost=_COST,
)
def attn_lrp(
    model: nn.Module, inputs: Tensor, targets: Tensor, epsilon: float = 1e-6, gamma: float = 0.0
) -> Tensor:
    """LRP for transformers: relevance is handed back through attention, softmax and normalisation too.

    Softmax has a rule of its own, a product of two paths shares relevance equally between them, and the
    standard deviation of a normalisation counts as a constant.

    Args:
        model: the network.
        inputs: ``(N, ...)``.
        targets: ``(N,)``.
        epsilon: stabiliser.
        gamma: use LRP-gamma on linear layers (the paper does so for vision transformers); 0: LRP-epsilon.
    """
    engine = AttentionLRP(_composite(epsilon, gamma))
    return propagate(engine, model, inputs, targets, start="output")[0]


@builtin(
    "cp-lrp",
    aliases=("CP-LRP",),
    family="attention",
    needs="rules",
    paper="Ali et al., ICML 2022",
    cost=_COST,
    total="output",
    slack="biases",
)
def cp_lrp(
    model: nn.Module, inputs: Tensor, targets: Tensor, epsilon: float = 1e-6, gamma: float = 0.0
) -> Tensor:
    """LRP for transformers that takes attention weights for constants, so that no relevance is lost there.

    Standard deviations of normalisations are constants as well.

    Args:
        model: the network.
        inputs: ``(N, ...)``.
        targets: ``(N,)``.
        epsilon: stabiliser.
        gamma: use LRP-gamma on linear layers; 0: LRP-epsilon.
    """
    engine = AttentionLRP(_composite(epsilon, gamma), through_softmax=False)
    return propagate(engine, model, inputs, targets, start="output")[0]


@builtin(
    "attention-rollout",
    aliases=("rollout",),
    family="attention",
    needs="attention",
    inputs="pictures or sequences",
    paper="Abnar and Zuidema, ACL 2020",
    cost="1 forward",
    transfer="plain",
    limits={"residual": number_from(0, 1), **_ENLARGING},
)
def attention_rollout(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    residual: float = 0.5,
    enlarging: Enlarging = "bilinear",
) -> Tensor:
    """What the class token attends to, followed through all layers; the same map for every target.

    Attention weights, averaged over heads, are multiplied from layer to layer::

        A_L ... A_2 A_1,    A_l = (1 - residual) attention_l + residual * identity

    Args:
        model: a network with self-attention among all tokens.
        inputs: pictures ``(N, C, H, W)`` or sequences ``(N, tokens, D)``.
        targets: not looked at.
        residual: the share of the residual connection in each layer.
        enlarging: how patches become pixels.
    """
    weights, _ = attention_weights(model, inputs)
    one = torch.eye(weights[0].shape[-1], dtype=weights[0].dtype, device=weights[0].device)
    flow = one.expand(len(inputs), -1, -1)
    for layer in weights:
        flow = ((1 - residual) * layer.mean(1) + residual * one) @ flow
    return _shown(flow, inputs, enlarging)


@builtin(
    "chefer",
    aliases=("gradient-attention-rollout",),
    family="attention",
    needs="attention",
    inputs="pictures or sequences",
    paper="Chefer, Gur and Wolf, ICCV 2021",
    cost=_COST,
    transfer="plain",
    limits=_ENLARGING,
)
def chefer(model: nn.Module, inputs: Tensor, targets: Tensor, enlarging: Enlarging = "bilinear") -> Tensor:
    """What the class token attends to where it matters for the target, followed through all layers.

    Attention weights times their gradients, positive part, averaged over heads::

        R <- R + mean over heads of (attention * gradient)+ R

    Args:
        model: a network with self-attention among all tokens.
        inputs: pictures ``(N, C, H, W)`` or sequences ``(N, tokens, D)``.
        targets: ``(N,)``.
        enlarging: how patches become pixels.
    """
    weights, slopes = attention_weights(model, inputs, targets)
    one = torch.eye(weights[0].shape[-1], dtype=weights[0].dtype, device=weights[0].device)
    relevance = one.expand(len(inputs), -1, -1)
    for layer, slope in zip(weights, slopes, strict=True):
        relevance = relevance + (layer * slope).clamp_min(0).mean(1) @ relevance
    return _shown(relevance - one, inputs, enlarging)


def _shown(flow: Tensor, inputs: Tensor, enlarging: Enlarging) -> Tensor:
    """What flows to each token, at the place of the token in the input.

    The first token is the class token where there are more tokens than places; otherwise the network
    averages over tokens, and so does the map.
    """
    tokens = flow.shape[-1]
    if inputs.dim() == 4:
        special, high, wide = _grid(tokens, *inputs.shape[2:])
    elif inputs.dim() == 3 and 0 <= tokens - inputs.shape[1] <= _MOST_SPECIAL_TOKENS:
        special = tokens - inputs.shape[1]
    else:
        raise UnsupportedOperation(
            f"{tokens} tokens cannot be placed in an input of the shape {tuple(inputs.shape[1:])}."
        )
    scores = (flow[:, 0] if special else flow.mean(1))[:, special:]
    if inputs.dim() == 3:
        return scores[:, :, None].expand_as(inputs)
    picture = scores.reshape(len(inputs), 1, high, wide)
    options = {"align_corners": False} if enlarging == "bilinear" else {}
    return F.interpolate(picture, inputs.shape[2:], mode=enlarging, **options).expand_as(inputs)


def _grid(tokens: int, height: int, width: int) -> tuple[int, int, int]:
    """(special tokens at the front, rows, columns) of patches with the proportions of the picture."""
    for special in range(_MOST_SPECIAL_TOKENS + 1):
        rows = math.isqrt(max(tokens - special, 0) * height // width)
        if rows and (tokens - special) % rows == 0:
            columns = (tokens - special) // rows
            if rows * width == columns * height:
                return special, rows, columns
    raise UnsupportedOperation(
        f"{tokens} tokens do not make a grid of patches on a picture of {height} by {width} pixels."
    )
