"""A small vision transformer: Dosovitskiy et al., "An Image is Worth 16 x 16 Words" (ICLR 2021).

Patches of 8 x 8 pixels, a class token, learned positions, normalisation before every layer (pre-norm).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PICTURE, PATCH, WIDTH, HEADS, DEPTH = 64, 8, 128, 4, 6


class Attention(nn.Module):
    """Self-attention among all tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.joint = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """What each token takes from all of them."""
        samples, tokens, _ = x.shape
        parts = self.joint(x).reshape(samples, tokens, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        return self.out(mixed.transpose(1, 2).reshape(samples, tokens, WIDTH))  # type: ignore[no-any-return]


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

    def forward(self, x: Tensor) -> Tensor:
        """Logits of pictures."""
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.first.expand(len(x), -1, -1), tokens], 1) + self.places
        return self.head(self.norm(self.blocks(tokens))[:, 0])  # type: ignore[no-any-return]


def vit(classes: int = 2) -> nn.Module:
    """Small vision transformer: patches of 8 x 8, width 128, 4 heads, 6 blocks."""
    return ViT(classes)
