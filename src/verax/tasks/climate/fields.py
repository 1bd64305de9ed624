"""A field: how the cells of a grid vary together."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from verax.devices import one_thread
from verax.errors import InvalidInput, InvalidParameter
from verax.seeding import Streams, parts
from verax.tasks.climate.grid import Grid

SHRINKAGE = 0.01
"""How far a singular matrix is moved towards the identity."""

MOST_CELLS = 10_000
"""Beyond this a matrix and its factor fill gigabytes."""


@dataclass(frozen=True, eq=False)
class Field:
    """A multivariate normal field with mean 0 and variance 1 in every cell.

    Attributes:
        name: such as ``analytic`` or ``cobe-sst2``.
        grid: where its cells lie.
        correlation: ``(D, D)`` float64, positive definite.
        shrinkage: the weight of the identity matrix in `correlation`; 0 where none was needed.
        notes: what was done to the data, in sentences.
    """

    name: str
    grid: Grid
    correlation: Tensor
    shrinkage: float = 0.0
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        name: str,
        grid: Grid,
        matrix: Tensor,
        shrinkage: float | None = None,
        notes: tuple[str, ...] = (),
    ) -> Field:
        """The field of a correlation or covariance matrix.

        Args:
            name: of the field.
            grid: its cells.
            matrix: ``(D, D)``; a covariance matrix is turned into correlations.
            shrinkage: weight of the identity; by default 0, or `SHRINKAGE` where the matrix is singular.
            notes: what was done before.
        """
        if tuple(matrix.shape) != (len(grid), len(grid)):
            raise InvalidInput(f"A matrix of {tuple(matrix.shape)} does not fit {len(grid)} ocean cells.")
        matrix = matrix.to(torch.float64)
        spread = matrix.diagonal()
        if not matrix.isfinite().all() or not (spread > 0).all():
            raise InvalidInput("A correlation matrix needs finite entries and a positive diagonal.")
        if (matrix - matrix.T).abs().max() > 1e-6 * spread.max():
            raise InvalidInput("A correlation matrix must be symmetric.")
        scale = spread.rsqrt()
        matrix = (matrix + matrix.T) / 2 * scale[:, None] * scale
        matrix.diagonal().fill_(1.0)
        if shrinkage is not None and not 0 <= shrinkage < 1:
            raise InvalidParameter(f"Shrinkage is a weight from 0 to below 1, not {shrinkage!r}.")
        matrix, shrunk = _definite(name, matrix, shrinkage)
        if shrunk:
            notes += (f"The correlations were shrunk towards 0 by {shrunk:g}.",)
        return cls(name, grid, matrix, shrunk, notes)

    def __len__(self) -> int:
        """How many cells it has."""
        return len(self.grid)

    def __repr__(self) -> str:
        shrunk = f", shrunk by {self.shrinkage:g}" if self.shrinkage else ""
        return f"Field({self.name}, {self.grid}{shrunk})"

    @cached_property
    def digest(self) -> str:
        """A hash of grid and correlations, which are rounded because last digits differ between machines."""
        grid = self.grid
        made = hashlib.sha256(repr((tuple(grid.shape), grid.geographic)).encode())
        for part in (grid.latitudes, grid.longitudes, grid.cells, self.correlation):
            made.update((part.to(torch.float64) * 1e6).round().to(torch.int64).numpy().tobytes())
        return made.hexdigest()

    def __getstate__(self) -> dict[str, Any]:
        """Without what lies on a device that the next process may not have."""
        return {key: value for key, value in vars(self).items() if key != "_factors"}

    @cached_property
    def _factors(self) -> dict[str, Tensor]:
        return {}

    @cached_property
    def _factor64(self) -> Tensor:
        # whoever asks first, in a study or before it: networks that learn from samples amplify a last digit
        with one_thread():
            factor: Tensor = torch.linalg.cholesky(self.correlation)
        return factor

    def factor(self) -> Tensor:
        """``(D, D)`` float32; the lower Cholesky factor of the correlations."""
        return self._factor64.float()

    def draw(self, streams: Streams, label: object = "field") -> Tensor:
        """One sample for each stream: ``(N, D)`` float32 with this field's correlations.

        The product is rounded only at the end, so that a sample does not depend on the size of its batch
        (but for one last digit in ten million).
        """
        device = streams.ids.device
        factor = self._factors.setdefault(str(device), self._factor64.T.contiguous().to(device))
        drawn = torch.empty(len(streams), len(self), dtype=torch.float32, device=device)
        for part in parts(streams.ids, 2 * len(self)):  # the noise fits the cache as float64 too
            drawn[part] = streams[part].normal(label, len(self)).to(torch.float64) @ factor
        return drawn

    def blend(self, uniform: float = 0.0, globally: float = 0.0) -> Field:
        """The same cells, more alike: correlations of Krell et al. (2025).

        Args:
            uniform: every pair of cells has this correlation, instead of the field's own.
            globally: the weight of a pattern that is the same everywhere.
        """
        check_blend(uniform, globally)
        if not uniform and not globally:
            return self
        ones = torch.ones_like(self.correlation)
        own = torch.eye(len(self), dtype=torch.float64) if uniform else self.correlation
        weight = uniform or globally
        name = f"{self.name}, {'uniform' if uniform else 'globally'} {weight:g}"
        try:
            blended, _ = _definite(name, (1 - weight) * own + weight * ones, 0.0)
        except InvalidInput as error:
            word = "uniform" if uniform else "globally"
            raise InvalidParameter(
                f"The blend {word}={weight!r} is too near 1: no cell would differ from another."
            ) from error
        return replace(self, name=name, correlation=blended)


def check_blend(uniform: float, globally: float) -> None:
    """Refuse weights that no blend has."""
    for word, weight in (("uniform", uniform), ("globally", globally)):
        if not isinstance(weight, int | float) or isinstance(weight, bool) or not 0 <= weight < 1:
            raise InvalidParameter(f"The blend {word!r} is a weight from 0 to below 1, not {weight!r}.")
    if uniform and globally:
        raise InvalidParameter("A field is blended either 'uniform' or 'globally', not both.")


def _definite(name: str, matrix: Tensor, shrinkage: float | None) -> tuple[Tensor, float]:
    """A matrix whose Cholesky factor is sound, and how far it had to be shrunk for that."""
    roots = torch.linalg.eigvalsh(matrix)
    low, high = float(roots[0]), float(roots[-1])
    if low < -1e-3 * high:  # not noise: no samples have these correlations
        raise InvalidInput(
            f"The matrix of {name!r} is not positive definite: its smallest eigenvalue is {low:.3g}."
        )
    chosen = (SHRINKAGE if low < 1e-9 * high else 0.0) if shrinkage is None else shrinkage
    if (1 - chosen) * low + chosen <= 1e-12 * high:
        raise InvalidInput(
            f"The matrix of {name!r} is singular and needs shrinkage: its smallest eigenvalue is {low:.3g}."
        )
    identity = torch.eye(len(matrix), dtype=torch.float64)
    return (1 - chosen) * matrix + chosen * identity, chosen
