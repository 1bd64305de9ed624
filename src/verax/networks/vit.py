"""A small vision transformer: Dosovitskiy et al., "An Image is Worth 16 x 16 Words" (ICLR 2021).

Patches of 8 x 8 pixels, a class token, learned positions, normalisation before every layer (pre-norm).
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from verax.networks.anatomy import untouched

PICTURE, PATCH, WIDTH, HEADS, DEPTH = 64, 8, 128, 4, 6


def mixed(joint: Tensor, readers: int | None = None) -> Tensor:
    """What some tokens, or all, take from all of them; by queries, keys and values in one row of each."""
    samples, tokens, _ = joint.shape
    parts = joint.reshape(samples, tokens, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
    queries, keys, values = parts.unbind(0)
    taken = F.scaled_dot_product_attention(queries[:, :, :readers], keys, values)
    return taken.transpose(1, 2).flatten(2)


class Attention(nn.Module):
    """Self-attention among all tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.joint = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """What each token takes from all of them."""
        return self.out(mixed(self.joint(x)))  # type: ignore[no-any-return]


class _Dense(torch.autograd.Function):
    """A linear layer of tokens; the gradient of its bias is a product, several times as fast as a sum."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        rows = slope.flatten(0, -2)
        ones = rows.new_ones(1, len(rows))
        x, weight = x.to(slope.dtype), weight.to(slope.dtype)  # as they were where autocast rounded them
        return slope @ weight, rows.t() @ x.flatten(0, -2), (ones @ rows)[0]


def _dense(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return cast("Tensor", _Dense.apply(x, weight, bias))  # type: ignore[no-untyped-call]


def _normalised(norm: nn.LayerNorm, layer: nn.Linear, x: Tensor) -> Tensor:
    """A linear layer after a normalisation, whose scale and shift become parts of the layer's weights.

    Their gradients are then sums over weights instead of sums over tokens.
    """
    plain = F.layer_norm(x, norm.normalized_shape, eps=norm.eps)
    return _dense(plain, layer.weight * norm.weight, layer.bias + layer.weight @ norm.bias)


class Block(nn.Module):
    """Attention, then a dense layer for each token, both beside the way around them."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.norm2 = nn.LayerNorm(WIDTH)
        self.dense = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """Tokens after the block."""
        x = x + self.attention(self.norm1(x))
        return x + self.dense(self.norm2(x))  # type: ignore[no-any-return]

    def learning(self, x: Tensor, readers: int | None = None) -> Tensor:
        """The same in words that are quicker to learn from; of the first few tokens alone where asked."""
        layers: list[Any] = list(self.dense)
        out, (wide, curve, narrow) = self.attention.out, layers
        taken = mixed(_normalised(self.norm1, self.attention.joint, x), readers)
        x = x[:, :readers] + _dense(taken, out.weight, out.bias)
        return x + _dense(curve(_normalised(self.norm2, wide, x)), narrow.weight, narrow.bias)


def _usual(block: nn.Module) -> bool:
    """Whether a block has PyTorch's layers as it was made with them, and nothing hangs on any."""
    if type(block) is not Block or type(block.attention) is not Attention:
        return False
    attention, dense = block.attention, block.dense
    if type(dense) is not nn.Sequential or [type(layer) for layer in dense] != _DENSE:
        return False
    norms, linear = (block.norm1, block.norm2), (attention.joint, attention.out)
    parts = (block, attention, dense, *norms, *linear, *dense)
    whole = all(map(_normalises, norms))
    right = all(type(layer) is nn.Linear for layer in linear)
    shifted = all(getattr(part, "bias", 0) is not None for part in parts)
    return whole and right and shifted and all(map(untouched, parts))


def _normalises(norm: nn.Module) -> bool:
    """Whether a layer normalises every token by itself, with a scale of its own."""
    return type(norm) is nn.LayerNorm and norm.normalized_shape == (WIDTH,) and norm.weight is not None


_DENSE: list[type[nn.Module]] = [nn.Linear, nn.GELU, nn.Linear]


class ViT(nn.Module):
    """Patches, blocks and a dense layer on the class token.

    Attributes:
        tolerant: it may be trained with all of its arithmetic in half precision.
    """

    tolerant = True

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.first = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.places = nn.Parameter(torch.empty(1, 1 + (PICTURE // PATCH) ** 2, WIDTH))
        self.blocks = nn.Sequential(*(Block() for _ in range(DEPTH)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, classes)
        nn.init.trunc_normal_(self.places, std=0.02)
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.02)
                nn.init.zeros_(layer.bias)

    def _simple(self) -> bool:
        """Whether all blocks are as they were made and nobody looks into them, so that others may do it."""
        if torch._C._functorch.maybe_current_level() is not None:  # `torch.func` sees no function of our own
            return False
        blocks, norm = self.blocks, self.norm
        rows = type(blocks) is nn.Sequential and len(blocks) > 0 and untouched(blocks)
        return rows and _normalises(norm) and untouched(norm) and all(map(_usual, blocks))

    def forward(self, x: Tensor) -> Tensor:
        """Logits of pictures."""
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.first.expand(len(x), -1, -1), tokens], 1) + self.places
        if self.training and self._simple():
            *before, last = cast("list[Block]", list(self.blocks))
            for block in before:
                tokens = block.learning(tokens)
            tokens = last.learning(tokens, 1)  # nobody reads what becomes of the others
        else:
            tokens = self.blocks(tokens)
        return self.head(self.norm(tokens)[:, 0])  # type: ignore[no-any-return]


def vit(classes: int = 2) -> nn.Module:
    """Small vision transformer: patches of 8 x 8, width 128, 4 heads, 6 blocks."""
    return ViT(classes)
