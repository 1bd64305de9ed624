"""DeepLIFT against many references at once: what samples and references have in common is computed once.

For k samples and r references there are k * r pairs. Only the multipliers differ from pair to pair; the
values inside the network depend on the sample alone, or on the reference alone. So the references run forward
once for all samples, every linear layer runs forward on k rows instead of k * r, and just the way back is
walked for each pair: a third of the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from verax.engine import spots
from verax.engine.batching import rows_within_budget, with_halving
from verax.engine.convolutions import Convolution, passed, transpose
from verax.engine.gradients import select
from verax.engine.layouts import fastest
from verax.engine.mode import attach, forward, full_precision
from verax.engine.multipliers import DeepLift, check_sum
from verax.engine.operations import Operation
from verax.engine.passes import propagate
from verax.engine.slopes import through_relu
from verax.errors import UnsupportedOperation

_GPU = 4
"""How many times the usual rows a GPU gets: with passes forward gone, it waits for launches most of all."""

_TAPE = 2**31
"""Numbers that all pairs of a pass may have on the tape: 8 GiB of float32; what is made of them comes on top.
Only large networks come near: without it VGG16 took 86 GiB of a GPU."""


class Pairs(DeepLift):
    """DeepLIFT (Rescale) on rows of pairs: all references for the first sample, then for the second, ...

    It takes the first dimension for the rows. A network that keeps them elsewhere comes out wrong, which
    `propagate` notices, as it runs samples alone too.
    """

    def __init__(self, references: int, layout: torch.memory_format, own: bool = False) -> None:
        super().__init__()
        self.references = references
        self.layout = layout
        self.samples = 1
        self.own = own  # whether every row has memory of its own, which the network may overwrite
        self.wanted: Tensor | None = None  # the pixels in which pairs differ

    def begin(self, entry: Tensor) -> None:
        """The rest of the picture contributes nothing."""
        spots.mark(entry, self.wanted)

    def replay(self, samples: int) -> Pairs:
        """Ready for the pairs of other samples with the references on the tape."""
        self.samples, self.cursor, self.decided = samples, 0, 0
        return self

    def recall(self, values: Sequence[Tensor]) -> Sequence[Tensor]:
        """What is on the tape, once for each sample."""
        if any(v.dim() and len(v) % self.references for v in values):
            raise self._divided()
        if self.samples == 1:
            return values
        return [v.repeat(self.samples, *[1] * (v.dim() - 1)) if v.dim() else v for v in values]

    def linear(self, operation: Operation) -> Tensor:
        """Forward on one row for each sample, backward on all pairs."""
        x = operation.args[0]
        back = _transposed(operation)
        if self.cursor is None or back is None or len(x) != self.samples * self.references:
            plain: Tensor = self.native(operation)
            return plain
        z: Tensor = operation(x.detach()[:: self.references].contiguous())
        return passed(operation, attach(self._spread(z), lambda g: (back(g),), x, spare=True))

    def activation(self, operation: Operation) -> Tensor:
        """A ReLU on one row for each sample; its slopes are made when they are needed, and not kept."""
        x = operation.args[0]
        known = operation.name == "relu" and self.cursor is not None
        if not known or len(x) != self.samples * self.references or x.dim() < 2:
            return super().activation(operation)
        few, low = x.detach()[:: self.references].clone(), self.taped("relu", x.shape[1:])[0]
        if len(low) != self.references:
            raise self._divided()

        def back(g: Tensor) -> Sequence[Tensor]:
            pairs = g.reshape(len(few), len(low), *few.shape[1:])
            return (through_relu(pairs, few[:, None], low[None]).reshape(g.shape),)

        return passed(operation, attach(self._spread(operation(few)), back, x, spare=True))

    @staticmethod
    def _divided() -> UnsupportedOperation:
        return UnsupportedOperation("The network divides or pads its batch: pairs cannot share their rows.")

    def _spread(self, rows: Tensor) -> Tensor:
        """Rows of samples as rows of pairs; those of a single sample can be one row, seen many times."""
        if self.samples == 1 and not self.own:
            return rows.expand(self.references, *rows.shape[1:])
        places = torch.arange(self.samples, device=rows.device).repeat_interleave(self.references)
        return rows.index_select(0, places)


def _transposed(operation: Operation) -> Callable[[Tensor], Tensor] | None:
    """The transpose of a dense or convolutional layer, without a run forward; None where it is not known."""
    x = operation.args[0]
    if operation.name == "linear" and x.dim() == 2:
        weight = operation.args[1].detach()
        return lambda g: g @ weight
    call = Convolution.of(operation)
    return None if call is None else transpose(call, x.is_cuda, spots.marked(x))


def mean_deeplift(model: nn.Module, inputs: Tensor, references: Tensor, targets: Tensor) -> Tensor:
    """The contributions of each sample to its change from a reference, averaged over shared references.

    Args:
        model: the network.
        inputs: ``(N, ...)``.
        references: ``(R, ...)``, the same for every sample.
        targets: ``(N,)``.
    """
    references = references.to(inputs)
    count, layout = len(references), fastest(model, references)

    def compute(rows: int) -> Tensor:
        total = torch.zeros_like(inputs)
        step = -(-count // max(1, round(count / rows)))  # parts of about the same size
        own, watchful = False, True
        for first in range(0, count, step):
            part = references[first : first + step]
            engine = Pairs(len(part), layout, own)
            engine.watchful = watchful
            with full_precision(inputs):
                before = forward(engine, model, part)[1].detach()
            taped = sum(value.numel() for _, values in engine.tape for value in values)
            together = max(1, min(rows // step, _TAPE // max(1, taped)))
            for start in range(0, len(inputs), together):
                some = slice(start, min(start + together, len(inputs)))
                total[some] += _sum_over(engine, model, inputs[some], part, targets[some], before)
                engine.watchful = False  # a network that mixes samples does so in every pass
            own, watchful = engine.own, False
        return total / count

    times = _GPU if inputs.is_cuda else 1
    return with_halving(compute, times * rows_within_budget(inputs[0]))


def _sum_over(
    engine: Pairs, model: nn.Module, inputs: Tensor, references: Tensor, targets: Tensor, before: Tensor
) -> Tensor:
    """The sum of contributions over the references on the tape."""
    many = len(references)
    x, asked = inputs.repeat_interleave(many, 0), targets.repeat_interleave(many)
    low = references.repeat(len(inputs), *[1] * (references.dim() - 1))
    engine.wanted = spots.differing(x, low)
    try:
        multipliers, after = propagate(engine.replay(len(inputs)), model, x, asked)
    except RuntimeError as error:  # PyTorch's, when a network works in place on rows that share their memory
        if engine.own or len(inputs) > 1 or isinstance(error, UnsupportedOperation):
            raise
        engine.own = True
        multipliers, after = propagate(engine.replay(len(inputs)), model, x, asked)
    engine.check_finished()
    contributions = multipliers.mul_(x.sub_(low))
    if len(before) != many:
        raise UnsupportedOperation("The network's outputs are not one row for each sample.")
    check_sum(contributions, select(before.repeat(len(inputs), *[1] * (before.dim() - 1)), asked), after)
    return contributions.reshape(len(inputs), many, *inputs.shape[1:]).sum(1)
