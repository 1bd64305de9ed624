"""Thumbnails of annotated images: a small JPEG, and both regions as packed bits."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from verax.metrics import cases8

SIDE, REGION = 224, 112
"""The longest side of a thumbnail, and of the regions drawn on it."""


def queues(scores: pd.DataFrame, members: Mapping[str, NDArray[np.bool_]], count: int) -> list[list[int]]:
    """The first `count` of each queue: the most typical images of each case, and the least aligned."""
    found = []
    for name, inside in members.items():
        column, largest = cases8.CASES[name].sort
        rows = scores[inside].sort_values(column, ascending=not largest, kind="stable")
        found.append([int(row) for row in rows.index[:count]])
    if "iou" in scores:
        known = scores[scores["iou"].notna()]
        found.append([int(row) for row in known.sort_values("iou", kind="stable").index[:count]])
    return found


def evenly(total: int, count: int) -> list[int]:
    """The numbers of `count` images of all, evenly spread."""
    if count >= total:
        return list(range(total))
    even: list[int] = np.linspace(0, total - 1, count).round().astype(int).tolist()
    return even


def choose(scores: pd.DataFrame, members: Mapping[str, NDArray[np.bool_]], count: int) -> list[int]:
    """Rows worth a picture: the most typical of each case in turn, the least aligned, and an even sample."""
    if count >= len(scores):
        return list(range(len(scores)))
    waiting = [*queues(scores, members, count), evenly(len(scores), count)]
    chosen: dict[int, None] = {}
    for turn in range(count):
        for queue in waiting:
            if turn < len(queue) and len(chosen) < count:
                chosen.setdefault(queue[turn], None)
    return sorted(chosen)


def _fit(height: int, width: int, side: int) -> tuple[int, int]:
    scale = min(1.0, side / max(height, width))
    return max(1, round(height * scale)), max(1, round(width * scale))


def encoded(regions: Tensor) -> list[str]:
    """Regions ``(N, H, W)`` bool in the size of thumbnails, as base64 of bits, row by row."""
    height, width = regions.shape[1:]
    # a pixel of the small region is the one in the middle of what it stands for
    small = interpolate(regions[:, None].float(), _fit(height, width, REGION), mode="nearest-exact")[:, 0] > 0
    packed = np.packbits(small.flatten(1).cpu().numpy(), axis=1)
    return [base64.b64encode(row.tobytes()).decode() for row in packed]


def thumbnails(rows: list[int], images: Tensor, regions: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Pictures of images ``(N, 3, H, W)`` in [0, 1] whose numbers are `rows`.

    Args:
        rows: the numbers.
        images: the images.
        regions: what was marked and what is shown of each, as `encoded`.
    """
    height, width = images.shape[2:]
    levels = (images.clamp(0, 1) * 255).round().to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
    found = []
    for place, row in enumerate(rows):
        picture = Image.fromarray(levels[place])
        tall, wide = _fit(height, width, SIDE)
        if (tall, wide) != (height, width):
            picture = picture.resize((wide, tall), Image.Resampling.LANCZOS)
        buffer = io.BytesIO()
        if max(height, width) <= 64:  # JPEG would smear the few pixels that there are
            picture.save(buffer, "PNG", optimize=True)
        else:
            picture.save(buffer, "JPEG", quality=82, optimize=True)
        kind = "png" if max(height, width) <= 64 else "jpeg"
        found.append(
            {
                "row": row,
                "kind": kind,
                "image": base64.b64encode(buffer.getvalue()).decode(),
                "size": list(_fit(height, width, REGION)),
                "marked": regions[place][0],
                "shown": regions[place][1],
            }
        )
    return found
