"""The toys of the paper (Appendix A.4) and facts about its data, computed by our metrics.

None of them needs a run. Figures 14 and 16 are made-up maps: a letter's rectangle (19 x 13), a box (10 x 10)
and an even background, without colours and without blur. Figure 15 takes maps of a shipped network.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

import verax
from verax.cases import Role, Truth
from verax.metrics import published
from verax.networks.architectures import cnn3, cnn4
from verax.protocols.published import prepare
from verax.reproductions.claims import Floats
from verax.reproductions.smerf import paper
from verax.tasks.textbox.scenes import TEXTBOX
from verax.tasks.textbox.task import TextBox

TEXT, BOX1, SIZE = (10, 29, 10, 23), (40, 50, 40, 50), 64
"""Rectangles of the letter and of the box, and the side of a map."""


def painted(strengths: Sequence[float], background: float = 0.001) -> tuple[Tensor, Truth]:
    """Maps with 1 on a letter (to focus on) and each of `strengths` on a box (to avoid)."""
    count = len(strengths)
    maps = torch.full((count, SIZE, SIZE), background, dtype=torch.float64)
    maps[:, BOX1[0] : BOX1[1], BOX1[2] : BOX1[3]] = torch.tensor(strengths, dtype=torch.float64)[
        :, None, None
    ]
    maps[:, TEXT[0] : TEXT[1], TEXT[2] : TEXT[3]] = 1.0
    boxes = torch.tensor([TEXT, BOX1]).expand(count, 2, 4)
    row = torch.arange(SIZE)
    inside = (row >= boxes[..., 0, None]) & (row < boxes[..., 1, None])
    across = (row >= boxes[..., 2, None]) & (row < boxes[..., 3, None])
    objects = inside[..., :, None] & across[..., None, :]
    roles = torch.tensor([Role.FOCUS, Role.AVOID], dtype=torch.int8).expand(count, 2)
    return maps, Truth.from_objects(objects, boxes, roles, ("text", "box1"))


def figure14() -> dict[str, float]:
    """PAFL, SAFL, PIOU and SIOU of 1 on the letter, 0.8 on the box and 0.001 elsewhere."""
    maps, truth = painted([0.8])
    return {name: float(value) for name, value in published.scores(maps, truth).items()}


def figure16(strengths: Sequence[float], background: float = 0.001) -> tuple[Floats, Floats]:
    """PAFL and SAFL while the box grows stronger (top: background 0.001; bottom: 0.8)."""
    maps, truth = painted(strengths, background)
    found = published.scores(maps, truth)
    return found["pafl"].numpy(), found["safl"].numpy()


@cache
def figure15(counts: tuple[int, ...], images: int = 12, network: str = "cnn4") -> Floats:
    """PIOU of integrated gradients on Complex-CR1 with B and Box1, cut at several numbers of pixels.

    Returns:
        ``(images, counts)``.
    """
    task = verax.task("textbox/complex-cr1")
    cases = task.cases(group=9, n=images, seed=0)
    assert isinstance(task, TextBox)
    model = task.network(network, seed=0)
    maps = verax.explain(model, cases.inputs, cases.targets, method="integrated-gradients@published")
    values = prepare(maps, "heat").values
    row0, row1, col0, col1 = cases.truth.boxes[cases.truth.roles == Role.FOCUS].T
    index = torch.arange(SIZE)
    rows = (index >= row0[:, None]) & (index < row1[:, None])
    columns = (index >= col0[:, None]) & (index < col1[:, None])
    box = rows[:, :, None] & columns[:, None, :]
    found = []
    for count in counts:
        level = published.histogram_threshold(values, torch.tensor(count).expand(images))
        strong = values >= level[:, None, None]
        found.append((strong & box).sum((1, 2)) / (strong | box).sum((1, 2)))
    return torch.stack(found, 1).double().numpy()


@cache
def overlaps(scenes: int = 2000) -> dict[tuple[str, str], float]:
    """Share of scenes, drawn as the original draws them, in which the rectangles of two objects overlap."""
    task = verax.task("textbox/simple-fr", renderer="published")
    boxes = task.cases(group=[11, 12], n=scenes, seed=0).truth.boxes
    found = {}
    for i, first in enumerate(TEXTBOX.names):
        for j in range(i + 1, len(TEXTBOX.names)):
            a, b = boxes[:, i], boxes[:, j]
            apart = [(a[:, k] >= b[:, k + 1]) | (b[:, k] >= a[:, k + 1]) for k in (0, 2)]
            found[first, TEXTBOX.names[j]] = float((~(apart[0] | apart[1])).double().mean())
    return found


def parameters() -> tuple[int, int]:
    """Weights and biases of the networks for simple and for complex settings."""
    simple, complicated = (sum(p.numel() for p in make().parameters()) for make in (cnn3, cnn4))
    return simple, complicated


@cache
def area_fraction(family: str, renderer: str = "published") -> float:
    """Expected PAFL of a random map: the area of the focus rectangles, as the paper aggregates it."""
    shares = []
    for name in paper.families()[family]:
        truth = verax.task(f"textbox/{name}", renderer=renderer).cases(n=1, seed=0).truth
        row0, row1, col0, col1 = truth.boxes.unbind(2)
        areas = ((row1 - row0) * (col1 - col0) * (truth.roles == Role.FOCUS)).sum(1)
        shares += (areas[areas > 0] / SIZE**2).tolist()
    return float(np.mean(shares))
