"""Geometry: pictures and masks are resized and cropped together; boxes and polygons become masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate, pad

from verax.errors import InvalidInput, InvalidParameter, suggestion

FITS = ("crop", "pad", "stretch")
FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
_PIXELS = 2**26
_POINTS = 10**5


@dataclass(frozen=True)
class Geometry:
    """How pictures of any size become pictures of one size.

    Attributes:
        size: height and width of the result.
        resize: the short side before cropping; None keeps the picture as large as it is.
        fit: "crop" takes the centre, "pad" fits the whole picture in and fills up with black, "stretch"
            changes its proportions.
        filter: for pictures; masks always take the nearest pixel.
    """

    size: tuple[int, int]
    resize: int | None = None
    fit: str = "crop"
    filter: str = "bilinear"

    def __post_init__(self) -> None:
        sides = [*self.size, *([] if self.resize is None else [self.resize])]
        if len(self.size) != 2 or any(type(side) is not int or not 1 <= side <= 8192 for side in sides):
            raise InvalidParameter(f"Sizes of pictures are whole numbers from 1 to 8192, not {sides}.")
        for noun, name, known in (("fit", self.fit, FITS), ("filter", self.filter, FILTERS)):
            if name not in known:
                raise InvalidParameter(f"There is no {noun} named {name!r}{suggestion(name, known)}")

    @classmethod
    def crop(cls, resize: int, size: int | None = None, filter: str = "bilinear") -> Geometry:
        """Short side to `resize`, then the square of `size` in the centre, as classifiers are evaluated."""
        size = resize if size is None else size
        return cls((size, size), resize, "crop", filter)

    @classmethod
    def stretch(cls, height: int, width: int | None = None, filter: str = "bilinear") -> Geometry:
        """To height and width, whatever the proportions."""
        return cls((height, height if width is None else width), None, "stretch", filter)

    @classmethod
    def pad(cls, size: int, filter: str = "bilinear") -> Geometry:
        """The whole picture in a square, with black bars."""
        return cls((size, size), None, "pad", filter)

    def plan(self, height: int, width: int) -> tuple[int, int, int, int]:
        """Height and width after resizing, and the row and column at which the result starts in that.

        Rounded as torchvision does, so that pictures are those a classifier was evaluated on.
        """
        if height < 1 or width < 1:
            raise InvalidInput(f"A picture of {height} x {width} pixels is empty.")
        rows, cols = self.size
        if self.fit == "stretch":
            return rows, cols, 0, 0
        if self.fit == "pad":
            scale = min(rows / height, cols / width)
            height, width = max(1, round(height * scale)), max(1, round(width * scale))
        elif self.resize is not None:
            short = min(height, width)
            height, width = int(self.resize * height / short), int(self.resize * width / short)
        if height * width > _PIXELS:
            raise InvalidInput(f"A picture so long that it becomes {height} x {width} pixels is not resized.")
        return height, width, _start(height, rows), _start(width, cols)

    def picture(self, levels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """``(h, w, 3)`` levels of any size to ``(H, W, 3)``."""
        height, width, top, left = self.plan(*levels.shape[:2])
        if (height, width) != levels.shape[:2]:
            image = Image.fromarray(levels).resize((width, height), FILTERS[self.filter])
            levels = np.asarray(image)
        result = np.zeros((*self.size, 3), np.uint8)
        row, col = max(0, -top), max(0, -left)
        part = levels[max(0, top) : top + self.size[0], max(0, left) : left + self.size[1]]
        result[row : row + part.shape[0], col : col + part.shape[1]] = part
        return result

    def _places(self, height: int, width: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The row and column of the original behind each row and column of the result; -1 in padding."""
        tall, wide, top, left = self.plan(height, width)

        def places(count: int, start: int, between: int, of: int) -> NDArray[np.int64]:
            # steps are added up one by one, as Pillow does, so that ties fall on the same side
            steps = np.full(between, of / between)
            steps[0] /= 2
            found = steps.cumsum().astype(np.int64).clip(0, of - 1)
            at = np.arange(start, start + count)
            return np.where((at >= 0) & (at < between), found[at.clip(0, between - 1)], -1)

        return places(self.size[0], top, tall, height), places(self.size[1], left, wide, width)

    def masks(self, masks: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """``(K, h, w)`` masks to ``(K, H, W)`` by the nearest pixel."""
        rows, cols = self._places(*masks.shape[1:])
        result: NDArray[np.bool_] = masks[:, rows[:, None], cols]
        return result & (rows >= 0)[:, None] & (cols >= 0)

    def tensors(self, images: Tensor, masks: Tensor) -> tuple[Tensor, Tensor]:
        """The same for ``(N, 3, h, w)`` images and ``(..., h, w)`` masks that are tensors already."""
        tall, wide, top, left = self.plan(*images.shape[2:])
        rows, cols = (torch.from_numpy(at).to(masks.device) for at in self._places(*masks.shape[-2:]))
        there = (rows >= 0)[:, None] & (cols >= 0)
        rows, cols = rows.clamp(min=0)[:, None], cols.clamp(min=0)
        if self.filter == "nearest":
            return images[..., rows, cols] * there, masks[..., rows, cols] & there
        if (tall, wide) != images.shape[2:]:
            mode = "bilinear" if self.filter == "bilinear" else "bicubic"
            images = interpolate(images, (tall, wide), mode=mode, antialias=True).clamp(0, 1)
        below, right = self.size[0] - tall + top, self.size[1] - wide + left
        images = pad(images, (-left, right, -top, below))  # negative padding crops
        return images, masks[..., rows, cols] & there


def _start(have: int, want: int) -> int:
    """Where the centre of `want` pixels starts in `have`; negative when there are too few."""
    return round((have - want) / 2) if have >= want else -((want - have) // 2)


def box_masks(boxes: Sequence[Sequence[float]], shape: tuple[int, int]) -> NDArray[np.bool_]:
    """``(K, H, W)``: the pixels whose centres lie in each box (xmin, ymin, xmax, ymax), ends excluded.

    x counts columns and y rows. What lies outside the picture is cut off; a box wholly outside is empty.
    """
    table = np.asarray(boxes, np.float64).reshape(-1, 4)
    if not np.isfinite(table).all() or (table[:, :2] > table[:, 2:]).any():
        raise InvalidInput("A box must have finite corners and must not end before it starts.")
    x, y = np.arange(shape[1]) + 0.5, np.arange(shape[0]) + 0.5
    cols = (x >= table[:, 0, None]) & (x < table[:, 2, None])
    rows = (y >= table[:, 1, None]) & (y < table[:, 3, None])
    return rows[:, :, None] & cols[:, None, :]


def polygon_mask(points: Sequence[float], shape: tuple[int, int]) -> NDArray[np.bool_]:
    """``(H, W)``: the pixels whose centres lie in the polygon x0, y0, x1, y1, ... (even-odd rule).

    Each edge is crossed once by each row of centres between its ends; a pixel is inside when an odd number
    of crossings lie to its left.
    """
    table = np.asarray(points, np.float64)
    if table.ndim != 1 or len(table) % 2 or not 6 <= len(table) <= _POINTS or not np.isfinite(table).all():
        raise InvalidInput("A polygon is a list x0, y0, x1, y1, ... of at least three finite points.")
    height, width = shape
    x0, y0 = table[0::2], table[1::2]
    x1, y1 = np.roll(x0, -1), np.roll(y0, -1)
    toggles = np.zeros((height, width + 1), np.int64)
    each = max(1, 2**22 // max(1, height))  # edges at a time, so that memory stays bounded
    for some in range(0, len(x0), each):
        ax, ay, bx, by = (ends[some : some + each, None] for ends in (x0, y0, x1, y1))
        y = np.arange(height) + 0.5
        crossed = (ay <= y) != (by <= y)
        edge, row = np.nonzero(crossed)
        ax, ay, bx, by = ax[edge, 0], ay[edge, 0], bx[edge, 0], by[edge, 0]
        x = ax + (y[row] - ay) / (by - ay) * (bx - ax)
        first = np.ceil(x - 0.5).clip(0, width).astype(np.int64)
        np.add.at(toggles, (row, first), 1)
    inside: NDArray[np.bool_] = toggles.cumsum(1)[:, :-1] % 2 == 1
    return inside
