"""Known functions: a sum of piecewise-linear functions, one for each cell.

Mamalakis, Ebert-Uphoff and Barnes (2022), doi 10.1017/eds.2022.7: slopes and break points are maps drawn from
the field itself, so that neighbouring cells behave alike; each local function passes through (0, 0).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from verax.errors import InvalidInput, InvalidParameter, MissingFile, WeightsError
from verax.files import write_atomically
from verax.seeding import Streams, parts
from verax.tasks.climate.fields import Field

VERSION = 1
"""Raised whenever a change of this package changes a function that a seed gives."""

MOST_BREAKS = 100


@dataclass(frozen=True, eq=False)
class LocalFunctions:
    """D continuous piecewise-linear functions with C(0) = 0, and their sum F.

    Attributes:
        knots: ``(D, K)`` float32, rising in each row; one of them is 0 where K > 0.
        slopes: ``(D, K + 1)`` float32; the slopes between knots, from left to right.
        scale: what all slopes are multiplied with, 1 / D.
        seed: what they were drawn with; -1 where they were made otherwise.
    """

    knots: Tensor
    slopes: Tensor
    scale: float
    seed: int = -1

    def __post_init__(self) -> None:
        if self.knots.ndim != 2 or not self.knots.is_floating_point() or not self.slopes.is_floating_point():
            raise InvalidInput("Break points and slopes are floats in a row for each cell.")
        if not (self.knots.isfinite().all() and self.slopes.isfinite().all()):
            raise InvalidInput("Break points and slopes must be finite.")
        cells, breaks = self.knots.shape
        if tuple(self.slopes.shape) != (cells, breaks + 1):
            raise InvalidInput(f"{breaks} break points need {breaks + 1} slopes in each of {cells} cells.")
        if (self.knots.diff(dim=1) < 0).any():
            raise InvalidInput("The break points of a cell must rise from left to right.")

    @classmethod
    def draw(cls, field: Field, breaks: int = 5, seed: int = 0) -> LocalFunctions:
        """Functions whose slopes and break points are maps drawn from `field`; `breaks` = 0 is linear.

        The paper maps draws to each cell's empirical quantiles. As cells are standard normal that is the
        identity in the limit, and without it F does not depend on a sample.
        """
        if not isinstance(breaks, int) or isinstance(breaks, bool) or not 0 <= breaks <= MOST_BREAKS:
            raise InvalidParameter(f"breaks must be a whole number from 0 to {MOST_BREAKS}, not {breaks!r}.")
        maps = torch.arange(breaks + 1)
        slopes = field.draw(Streams.of(maps, "climate", "slopes", seed)).T
        knots = torch.zeros(len(field), 0)
        if breaks:
            drawn = field.draw(Streams.of(maps[: breaks - 1], "climate", "knots", seed)).T
            knots = torch.cat([drawn, torch.zeros(len(field), 1)], 1).sort(1).values
        return cls(knots, slopes.contiguous(), 1 / len(field), seed)

    @property
    def breaks(self) -> int:
        """How many break points each function has."""
        return self.knots.shape[1]

    def __len__(self) -> int:
        """How many cells there are."""
        return len(self.knots)

    def __repr__(self) -> str:
        return f"LocalFunctions({len(self)} cells, {self.breaks} breaks, seed {self.seed})"

    @cached_property
    def digest(self) -> str:
        """A hash of knots and slopes."""
        made = hashlib.sha256(repr((self.scale, tuple(self.knots.shape))).encode())
        for part in (self.knots, self.slopes):
            made.update(part.contiguous().numpy().tobytes())
        return made.hexdigest()

    def __getstate__(self) -> dict[str, Any]:
        """Without what lies on a device that the next process may not have."""
        return {key: value for key, value in vars(self).items() if key != "_form"}

    @cached_property
    def _form(self) -> dict[str, tuple[Tensor, Tensor, Tensor, Tensor]]:
        return {}

    def closed_form(self, device: str | torch.device = "cpu") -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """``C(x) = start x + sum_j jumps_j relu(signs_j (x - knots_j))``: start, jumps, signs and knots.

        Bends are counted outwards from 0, where C is 0 to the last digit. Shapes are ``(D,)`` and
        ``(K, D)``; the scale is in start and jumps.
        """
        found = self._form.get(str(device))
        if found is None:
            knots, slopes = self.knots.double(), self.slopes.double() * self.scale
            left = (knots < 0).sum(1)
            start = slopes.gather(1, left[:, None])[:, 0]
            signs = torch.where(knots < 0, -1.0, 1.0)
            found = (
                start.float().to(device),
                slopes.diff(dim=1).T.float().contiguous().to(device),
                signs.T.float().contiguous().to(device),
                self.knots.T.contiguous().to(device),
            )
            self._form[str(device)] = found
        return found

    def _check(self, x: Tensor) -> None:
        if x.ndim != 2 or x.shape[1] != len(self):
            raise InvalidInput(f"The function takes samples of {len(self)} cells, not {tuple(x.shape)}.")

    def values(self, x: Tensor) -> Tensor:
        """``(N, D)``; what each cell contributes, C(x)."""
        self._check(x)
        out = torch.empty_like(x)
        for part in parts(x, 4 * len(self)):
            out[part] = self._part(x[part])
        return out

    def _part(self, x: Tensor) -> Tensor:
        start, jumps, signs, knots = self.closed_form(x.device)
        total = x * start
        for jump, sign, knot in zip(jumps, signs, knots, strict=True):
            total.addcmul_((x - knot).mul_(sign).clamp_(min=0), jump)
        return total

    def total(self, x: Tensor) -> Tensor:
        """``(N,)``; F(x), the sum of what the cells contribute."""
        self._check(x)
        return torch.cat([self._part(x[part]).sum(1) for part in parts(x, 4 * len(self))])

    def slope(self, x: Tensor) -> Tensor:
        """``(N, D)``; the derivative of F, at a knot the slope on the side of 0."""
        self._check(x)
        start, jumps, signs, knots = self.closed_form(x.device)
        total = start.expand_as(x).clone()
        for jump, sign, knot in zip(jumps, signs, knots, strict=True):
            total.addcmul_(((x - knot) * sign > 0).to(x.dtype), jump * sign)
        return total

    def module(self) -> nn.Module:
        """F as a network ``(N, D) -> (N, 1)``, for explainers that should be right on it."""
        return Additive(self)

    def save(self, path: str | Path, **facts: Any) -> Path:
        """Write knots, slopes, scale and seed, with `facts` beside them, as one safetensors file."""
        about = {"scale": self.scale.hex(), "seed": str(self.seed), "facts": json.dumps(facts)}
        tensors = {"knots": self.knots.contiguous(), "slopes": self.slopes.contiguous()}
        write_atomically(Path(path), save(tensors, about))
        return Path(path)

    @classmethod
    def load(cls, path: str | Path) -> LocalFunctions:
        """Read what `save` wrote."""
        if not Path(path).is_file():
            raise MissingFile(f"There is no file {str(path)!r}.")
        try:
            with safe_open(str(path), "pt") as file:
                about = file.metadata() or {}
                knots, slopes = file.get_tensor("knots"), file.get_tensor("slopes")
            scale, seed = float.fromhex(about["scale"]), int(about["seed"])
            return cls(knots, slopes, scale, seed)
        except (SafetensorError, KeyError, ValueError, OSError, InvalidInput) as error:
            raise WeightsError(f"The file {str(path)!r} does not hold functions of verax.") from error


class Additive(nn.Module):
    """F as a network of one ReLU for each knot, each fed by one cell."""

    start: Tensor
    jumps: Tensor
    signs: Tensor
    knots: Tensor

    def __init__(self, function: LocalFunctions) -> None:
        super().__init__()
        start, jumps, signs, knots = function.closed_form()
        self.register_buffer("start", start)
        for name, tensor in (("jumps", jumps), ("signs", signs), ("knots", knots)):
            self.register_buffer(name, tensor.T.contiguous())
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """F of samples ``(N, D)`` as ``(N, 1)``."""
        straight = (x * self.start).sum(1, keepdim=True)
        if not self.knots.numel():
            return straight
        bends = torch.relu((x.unsqueeze(2) - self.knots) * self.signs)
        return straight + (bends * self.jumps).flatten(1).sum(1, keepdim=True)
