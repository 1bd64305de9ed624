"""Fused calls, written in primitive calls that every rule table knows.

Run under an engine (``with engine:``) each primitive is intercepted again, so a rule table that has rules
for products, sums and softmax has rules for attention, however the network spells it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from verax.errors import UnsupportedOperation


def _scaled(a: Tensor, b: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """Two factors with `alpha` in the constant one, so that their product is still one dense layer."""
    if alpha == 1:
        return a, b
    return (a, b * alpha) if b.grad_fn is None else (a * alpha, b)


def _plus(summand: Tensor, product: Tensor, beta: float) -> Tensor:
    """A weighted summand and a product; as in PyTorch, a weight of 0 leaves the summand out."""
    if beta == 0:
        return product
    return (summand if beta == 1 else summand * beta) + product


# The parameters of these carry PyTorch's own names, because networks pass them by name.


def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``torch.addmm``: a dense layer and its bias."""
    return _plus(input, torch.matmul(*_scaled(mat1, mat2, alpha)), beta)


def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``torch.baddbmm``: the same for a batch of matrices."""
    return _plus(input, torch.matmul(*_scaled(batch1, batch2, alpha)), beta)


def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``torch.addmv``: the same for a vector."""
    return _plus(input, torch.matmul(*_scaled(mat, vec, alpha)), beta)


def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """``torch.addcmul``: a summand and an elementwise product."""
    a, b = _scaled(tensor1, tensor2, value)
    return input + a * b


FUSED: dict[str, Callable[..., Tensor]] = {
    "addmm": addmm,
    "baddbmm": baddbmm,
    "addmv": addmv,
    "addcmul": addcmul,
}
"""Calls that add a product."""


def _masked(scores: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Scores with forbidden pairs at minus infinity; a boolean mask says which pairs may attend."""
    if causal:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~allowed, -math.inf)
    if mask is None:
        return scores
    return scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask


def _dead_rows(mask: Tensor | None) -> Tensor | None:
    """Queries that may attend to nothing: PyTorch gives them zeros, a plain softmax NaN."""
    if mask is None:
        return None
    dead = (~mask if mask.dtype == torch.bool else mask == -math.inf).all(-1, keepdim=True)
    return dead if bool(dead.any()) else None


def attention_with_weights(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Tensor, Tensor]:
    """``F.scaled_dot_product_attention`` as matmul, softmax, matmul; also gives the attention weights."""
    if dropout_p:
        raise UnsupportedOperation("Dropout in attention is active; call model.eval().")
    if enable_gqa:  # several query heads share one key and value head
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = _masked(torch.matmul(query, key.transpose(-2, -1)) * scale, attn_mask, is_causal)
    dead = _dead_rows(attn_mask)
    if dead is not None:
        scores = scores.masked_fill(dead, 0.0)
    weights = torch.softmax(scores, -1)
    if dead is not None:
        weights = weights.masked_fill(dead, 0.0)
    return torch.matmul(weights, value), weights


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    """A mask of `F.multi_head_attention_forward`, where True forbids, as numbers to add to the scores."""
    if mask.dtype == torch.bool:
        return torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask, -math.inf)
    return mask.to(like.dtype)


def multihead(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """``F.multi_head_attention_forward``, what `nn.MultiheadAttention` calls, in primitive calls."""
    if training and dropout_p:
        raise UnsupportedOperation("Dropout in attention is active; call model.eval().")
    if static_k is not None or static_v is not None:
        raise UnsupportedOperation("Attention with static keys or values has no rule.")
    batched = query.dim() == 3
    if not batched:
        query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
    q, k, v = _projected(
        (query, key, value),
        (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else None,
        in_proj_weight,
        in_proj_bias,
    )
    targets, samples = query.shape[0], query.shape[1]
    if bias_k is not None and bias_v is not None:
        k = torch.cat([k, bias_k.expand(1, samples, -1)])
        v = torch.cat([v, bias_v.expand(1, samples, -1)])

    def split(t: Tensor) -> Tensor:  # (T, N, D) -> (N, heads, T, D / heads)
        return t.reshape(t.shape[0], samples, num_heads, -1).permute(1, 2, 0, 3)

    q, k, v = split(q), split(k), split(v)
    if add_zero_attn:
        k, v = F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1))
    sources = key.shape[0]
    mask = _joined_mask(attn_mask, key_padding_mask, q, sources, k.shape[2] - sources)
    mixed, weights = attention_with_weights(q, k, v, mask)
    result = F.linear(mixed.permute(2, 0, 1, 3).reshape(targets, samples, -1), out_proj_weight, out_proj_bias)
    shown: Tensor | None = None
    if need_weights:
        shown = weights.mean(1) if average_attn_weights else weights
        shown = shown if batched else shown.squeeze(0)
    return (result if batched else result.squeeze(1)), shown


def _projected(
    sources: tuple[Tensor, Tensor, Tensor],
    separate: Sequence[Tensor | None] | None,
    packed: Tensor | None,
    bias: Tensor | None,
) -> tuple[Tensor, ...]:
    """Queries, keys and values; self-attention with packed weights stays one linear call."""
    query, key, value = sources
    biases = (None, None, None) if bias is None else bias.chunk(3)
    if separate is not None:
        pairs = zip(sources, separate, biases, strict=True)
        return tuple(F.linear(x, w, b) for x, w, b in pairs if w is not None)
    assert packed is not None
    if query is key and key is value:
        return F.linear(query, packed, bias).chunk(3, -1)
    return tuple(F.linear(x, w, b) for x, w, b in zip(sources, packed.chunk(3), biases, strict=True))


def _joined_mask(
    pairs: Tensor | None, padding: Tensor | None, q: Tensor, sources: int, extra: int
) -> Tensor | None:
    """Both masks of `F.multi_head_attention_forward` as one to add; appended keys are always allowed."""
    joined: Tensor | None = None
    if pairs is not None:
        joined = _additive(pairs, q)
        if joined.dim() == 3:  # (N * heads, T, S)
            joined = joined.reshape(q.shape[0], q.shape[1], *joined.shape[1:])
    if padding is not None:
        keys = _additive(padding, q).reshape(-1, 1, 1, sources)
        joined = keys if joined is None else joined + keys
    return joined if joined is None or not extra else F.pad(joined, (0, extra))
