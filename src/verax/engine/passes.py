"""Passes: a network run under an engine and back, and the proof that its samples do not mix."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointError

from verax.engine.conditions import refuse
from verax.engine.gradients import select
from verax.engine.mode import Engine, forward, full_precision
from verax.errors import UnsupportedOperation
from verax.networks.anatomy import apart


class _Plain(Engine):
    """The network as it is, seen as the engines see it: no autocast, no fused inference path."""

    strict = False


def propagate(
    engine: Engine, model: nn.Module, inputs: Tensor, targets: Tensor, start: str = "one"
) -> tuple[Tensor, Tensor]:
    """Backward from the explained output: the result at the input, and the outputs ``(N,)``.

    Args:
        engine: the rules.
        model: the network.
        inputs: ``(N, ...)``.
        targets: ``(N,)``.
        start: begin with 1 ("one"), with the output itself ("output") or with its positive part ("relu").
    """
    try:
        with full_precision(inputs):
            leaf, out = forward(engine, model, inputs)
            with torch.enable_grad():
                chosen = select(out, targets)
            value = chosen.detach()
            if engine.watchful:
                check_samples(model, inputs, targets, value)
            seed = {"one": torch.ones_like(value), "output": value, "relu": value.clamp_min(0)}[start]
            (result,) = torch.autograd.grad(chosen, leaf, seed)
    except CheckpointError as error:
        raise UnsupportedOperation(
            "The network runs parts of itself again in the backward pass (checkpointing), where no rule "
            "applies; switch that off."
        ) from error
    finally:
        engine.release()
    return result.detach(), value


def check_samples(model: nn.Module, inputs: Tensor, targets: Tensor, values: Tensor) -> None:
    """Refuse a network whose output for one sample depends on the samples beside it.

    Which dimension holds the samples cannot be read off a tensor (transformers put them second), so outputs
    are compared instead of reductions forbidden: the first and the last sample are run again without the
    others, in another order, the first one twice. A mean, a roll, a flip or an anchor changes one of them,
    whatever the network does in between; where there are no others, each is run alone. Plain layers in a row
    need no look.
    """
    count = len(inputs)
    if count < 2 or apart(model, inputs.ndim):
        return
    tolerance = {torch.float64: 1e-6, torch.float32: 1e-3}.get(values.dtype, 0.1)
    last = count - 1
    for rows in ([last, 0, 0],) if count > 2 else ([0], [1]):
        some, wanted, before = (_picked(tensor, rows) for tensor in (inputs, targets, values))
        again = select(forward(_Plain(), model, some)[1], wanted).detach()
        refuse(((again - before).abs() > tolerance * values.abs().max()).any(), _mixed)


def _picked(tensor: Tensor, rows: list[int]) -> Tensor:
    return torch.cat([tensor[row : row + 1] for row in rows])  # by numbers, for which a GPU is not waited


def _mixed() -> UnsupportedOperation:
    return UnsupportedOperation(
        "The network's output for one sample depends on the other samples of the batch."
    )
