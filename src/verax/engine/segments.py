"""Segments: the pieces of an input that are switched on and off together, the players of its game."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from verax.engine.batching import in_parts
from verax.engine.masking import places
from verax.errors import InvalidInput, InvalidParameter, suggestion

Spec = str | Tensor
"""How to cut inputs: "grid", "slic", or whole numbers that name the segment of each place."""

NAMES = ("grid", "slic")

SIDE = 8
"""Side of a patch of a picture, sequence or volume unless told otherwise."""

FEATURES = 1024
"""Vectors of up to this many features have every feature as a segment of its own."""


@dataclass(frozen=True)
class Segments:
    """The segment of each place.

    Attributes:
        labels: int64 ``(N, C or 1, ...)``, for vectors ``(N, F)``; a first dimension of 1 serves all samples.
        count: segments; a sample may have none of the last ones.
    """

    labels: Tensor
    count: int

    def __getitem__(self, part: slice) -> Segments:
        """The segments of some of the samples."""
        return self if len(self.labels) == 1 else replace(self, labels=self.labels[part])

    def _counted(self, flags: Tensor) -> Tensor:
        """How many flagged places each segment has: ``(N, count)``."""
        labels = self.labels.expand(len(flags), *self.labels.shape[1:]).flatten(1)
        # whole numbers add up to the same in any order, on a GPU too
        zeros = torch.zeros(len(flags), self.count, dtype=torch.int64, device=flags.device)
        return zeros.scatter_add_(1, labels, flags.flatten(1).to(torch.int64))

    def sizes(self, inputs: Tensor) -> Tensor:
        """Input numbers in each segment of each sample, all channels counted: int64 ``(N, count)``."""
        ones = torch.ones_like(self.labels, dtype=torch.bool)
        channels = inputs[0].numel() // self.labels[0].numel()
        return (self._counted(ones) * channels).expand(len(inputs), self.count)

    def active(self, inputs: Tensor, filling: Tensor) -> Tensor:
        """Which segments differ from the filling at all: bool ``(N, count)``; the others cannot matter."""
        differs = inputs != filling
        if self.labels.shape[1:] != inputs.shape[1:]:
            differs = differs.any(1, keepdim=True)
        return self._counted(differs) > 0

    def masks(self, coalitions: Tensor, samples: Tensor) -> Tensor:
        """The masks ``(R, C or 1, ...)`` that show the segments of coalitions ``(R, count)``."""
        shape = (len(coalitions), *self.labels.shape[1:])
        if len(self.labels) == 1:
            return coalitions.index_select(1, self.labels.flatten()).reshape(shape)
        return coalitions.gather(1, self.labels.index_select(0, samples).flatten(1)).reshape(shape)

    def spread(self, values: Tensor, inputs: Tensor) -> Tensor:
        """Values of segments ``(N, count)`` as maps of the shape of `inputs`.

        A value is shared out evenly among all numbers of its segment, channels included, so that a map
        adds up to the sum of the values.
        """
        each = (values / self.sizes(inputs).clamp(min=1).to(values)).to(inputs.dtype)
        labels = self.labels.expand(len(inputs), *self.labels.shape[1:])
        return each.gather(1, labels.flatten(1)).reshape(labels.shape).expand_as(inputs)


def _cells(where: Sequence[int], sides: Sequence[int], device: torch.device) -> list[Tensor]:
    """The number of the patch along each dimension: int64 tensors that broadcast to `where`."""
    found = []
    for axis, (length, side) in enumerate(zip(where, sides, strict=True)):
        shape = [1] * len(where)
        shape[axis] = length
        found.append((torch.arange(length, device=device) // side).reshape(shape))
    return found


def _number(cells: Sequence[Tensor], counts: Sequence[int]) -> Tensor:
    """Patch numbers along each dimension as one number."""
    total = torch.zeros_like(cells[0])
    for cell, count in zip(cells, counts, strict=True):
        total = total * count + cell
    return total


def default_size(inputs: Tensor, most: int | None = None) -> int:
    """The side of a patch when none is given: 8, for vectors 1; larger where `most` segments would be passed.

    Vectors of more than 1024 features are cut into at most 1024 groups of neighbours.
    """
    where = places(inputs)
    size = SIDE if inputs.ndim > 2 else -(-where[0] // FEATURES)
    while most is not None and math.prod(-(-length // size) for length in where) > most:
        size += 1
    return size


def grid(inputs: Tensor, size: int) -> Segments:
    """Patches with sides of `size` places, the last ones cut off by the edge; the same for all samples."""
    where = places(inputs)
    counts = [-(-length // size) for length in where]
    labels = _number(_cells(where, [size] * len(where), inputs.device), counts).expand(where)
    return Segments(labels[None, None] if inputs.ndim > 2 else labels[None], math.prod(counts))


def slic(inputs: Tensor, size: int = SIDE, compactness: float = 0.1, iterations: int = 10) -> Segments:
    """Superpixels: k-means of colour and place, all samples at once.

    Achanta et al., "SLIC superpixels compared to state-of-the-art superpixel methods", IEEE TPAMI 2012.
    Centres start in the middle of the patches of `grid`, and a place may join only the centres of its own
    patch and the patches around it. Colours are the channels themselves, divided by the range of the
    sample's values. Segments are not forced to be connected. The means are sums of whole numbers
    (colours and places in steps of 2**-20), so the result is the same in any order of addition.

    Args:
        inputs: ``(N, C, ...)`` with one, two or three dimensions of place.
        size: side of the patches that the superpixels grow from.
        compactness: how much place counts against colour; large values give the grid.
        iterations: rounds of k-means.
    """
    if inputs.ndim < 3:
        raise InvalidInput("Segments 'slic' need pictures, sequences or volumes; vectors have 'grid' only.")
    where = places(inputs)
    dims, device = len(where), inputs.device
    counts = [-(-length // size) for length in where]
    cells = _cells(where, [size] * dims, device)
    total = math.prod(counts)
    start = _number(cells, counts).expand(where).flatten()
    axes = [torch.arange(length, device=device, dtype=torch.float64) for length in where]
    place = torch.stack(torch.meshgrid(*axes, indexing="ij")).flatten(1) / size
    around = [
        _number(
            [
                (cell + step).clamp(0, count - 1)
                for cell, step, count in zip(cells, move, counts, strict=True)
            ],
            counts,
        )
        .expand(where)
        .flatten()
        # the own patch comes first, so that a tie keeps a place where it is
        for move in sorted(itertools.product((-1, 0, 1), repeat=dims), key=lambda move: sum(map(abs, move)))
    ]

    def labels(part: slice) -> Tensor:
        colour = inputs[part].flatten(2).to(torch.float64)
        low, high = colour.flatten(1).aminmax(dim=1)
        span = (high - low).clamp(min=1e-12)[:, None, None]
        points = torch.cat(
            [(colour - low[:, None, None]) / span / compactness, place.expand(len(colour), -1, -1)], 1
        )
        whole = (points * 2**20).round().to(torch.int64)
        chosen = start.expand(len(colour), -1)
        centres = torch.zeros(1)
        for step in range(iterations + 1):
            index = chosen[:, None].expand_as(whole)
            sums = whole.new_zeros(len(colour), whole.shape[1], total).scatter_add_(2, index, whole)
            sizes = whole.new_zeros(len(colour), total).scatter_add_(1, chosen, torch.ones_like(chosen))
            means = sums.to(torch.float64) / sizes.clamp(min=1)[:, None] / 2**20
            # a centre that lost all its places stays where it was
            centres = means if step == 0 else torch.where(sizes[:, None] > 0, means, centres)
            if step == iterations:
                break
            best = torch.full_like(points[:, 0], torch.inf)
            for candidate in around:
                distance = (points - centres[:, :, candidate]).square().sum(1)
                nearer = distance < best
                best = torch.where(nearer, distance, best)
                chosen = torch.where(nearer, candidate, chosen)
        return chosen.reshape(len(colour), 1, *where)

    return Segments(in_parts(len(inputs), 16 * inputs[0].numel(), labels), total)


def _given(labels: Tensor, inputs: Tensor) -> Segments:
    """A user's labels, renumbered 0, 1, ... within each sample."""
    if labels.dtype == torch.bool or labels.is_floating_point() or labels.is_complex():
        raise InvalidParameter("Segments must be whole numbers that name the segment of each place.")
    found = labels.to(inputs.device, torch.int64)
    if inputs.ndim > 2 and found.ndim == inputs.ndim - 2:
        found = found[None]
    if found.ndim == inputs.ndim - 1:
        found = found[None]
    fits = (
        found.ndim == inputs.ndim
        and len(found) in (1, len(inputs))
        and found.shape[2:] == inputs.shape[2:]
        and found.shape[1] in ((1, inputs.shape[1]) if inputs.ndim > 2 else (inputs.shape[1],))
    )
    if not fits:
        got, want = tuple(labels.shape), tuple(inputs.shape)
        raise InvalidInput(f"Segments of shape {got} do not fit inputs of shape {want}.")
    ordered, order = found.flatten(1).sort(dim=1, stable=True)
    fresh = torch.cat([torch.zeros_like(ordered[:, :1]), (ordered.diff(dim=1) != 0).to(torch.int64)], 1)
    number = fresh.cumsum(1)
    dense = torch.empty_like(number).scatter_(1, order, number)
    return Segments(dense.reshape(found.shape), int(number.max()) + 1)


def segments_of(spec: Spec, inputs: Tensor, size: int | None = None, most: int | None = None) -> Segments:
    """Cut inputs into segments.

    Args:
        spec: "grid", "slic", or a tensor of whole numbers: of the shape of a sample with or without its
            channels, or of the shape of all inputs (channels may be 1) with segments of each sample's own.
        inputs: ``(N, C, ...)`` or vectors ``(N, F)``.
        size: side of a patch (default: `default_size`).
        most: the default size is chosen so that there are no more segments than this.
    """
    if isinstance(spec, Tensor):
        return _given(spec, inputs)
    if spec not in NAMES:
        raise InvalidParameter(f"There are no segments {spec!r}{suggestion(str(spec), NAMES)}")
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
        raise InvalidParameter(f"The size of a segment must be a whole number from 1, not {size!r}.")
    side = default_size(inputs, most) if size is None else size
    return grid(inputs, side) if spec == "grid" else slic(inputs, side)
