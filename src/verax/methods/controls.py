"""Controls, which never look at the network, and the oracle, which knows the truth.

A method is worth something only where it beats the best control: in complex settings "highlight every
object" (`input`) nearly ties with the best published methods.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from verax.cases import Truth
from verax.engine.mode import full_precision
from verax.errors import InvalidInput
from verax.methods.base import builtin
from verax.methods.limits import number_above
from verax.seeding import Streams

CONTROLS = ("input", "edge", "centre", "random")
"""The controls that skill is measured against, rows of every study."""

VECTOR_CONTROLS = ("input", "random")
"""Those that mean something where inputs are vectors, which have neither edges nor a centre."""


def controls_for(dimensions: int) -> tuple[str, ...]:
    """The controls for inputs of so many dimensions: 3 for pictures ``(C, H, W)``, 1 for vectors."""
    return VECTOR_CONTROLS if dimensions < 3 else CONTROLS


CONSTANT = "constant"
"""A control that a study may name, which has no rank either.

It is exactly chance, which `random` stands for already and which normalised scores count from: as a row of
every study it would say nothing new, and skill, which looks for the best control, would not change.
"""


@builtin("random", family="controls", needs="nothing", cost="none", transfer="inverse")
def random(model: nn.Module, inputs: Tensor, targets: Tensor, streams: Streams) -> Tensor:
    """Uniform random numbers: what any method must beat."""
    return streams.uniform("random", *inputs.shape[1:]).to(inputs)


@builtin(CONSTANT, family="controls", needs="nothing", cost="none", transfer="plain")
def constant(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Ones everywhere: a map that says nothing, which scores exactly like chance."""
    return torch.ones_like(inputs)


@builtin(
    "edge",
    family="controls",
    needs="nothing",
    inputs="pictures",
    paper="Adebayo et al., NeurIPS 2018",
    cost="none",
    transfer="gray",
)
def edge(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """The strength of the edges of the picture (Sobel filter); it ignores the network."""
    if inputs.ndim != 4:
        raise InvalidInput(f"Edges need pictures (N, C, H, W), not shape {tuple(inputs.shape)}.")
    across = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]]).to(inputs)
    kernels = torch.stack([across, across.T])[:, None]
    flat = F.pad(inputs.flatten(0, 1)[:, None], (1, 1, 1, 1), mode="replicate")
    with full_precision(inputs):
        return F.conv2d(flat, kernels).square().sum(1).sqrt().reshape(inputs.shape)


@builtin("input", family="controls", needs="nothing", cost="none", transfer="plain")
def input_itself(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """The input itself, which highlights every object, whether the network uses it or not."""
    return inputs.clone()


@builtin(
    "centre",
    family="controls",
    needs="nothing",
    cost="none",
    transfer="plain",
    limits={"width": number_above(0)},
)
def centre(model: nn.Module, inputs: Tensor, targets: Tensor, width: float = 0.25) -> Tensor:
    """A round bump in the centre of the picture, where objects often are.

    Args:
        model: the network.
        inputs: ``(N, ...)``.
        targets: ``(N,)``.
        width: its standard deviation as a share of the picture.
    """
    bump = torch.ones((), dtype=inputs.dtype, device=inputs.device)
    for size in inputs.shape[2:]:
        place = (torch.arange(size, device=inputs.device) + 0.5) / size - 0.5
        bump = bump[..., None] * torch.exp(-0.5 * (place / width) ** 2).to(inputs)
    return bump.expand_as(inputs)


@builtin("oracle", family="truth", needs="nothing", cost="none", transfer="plain")
def oracle(model: nn.Module, inputs: Tensor, targets: Tensor, truth: Truth | None = None) -> Tensor:
    """The truth of the task itself: the ceiling of every metric."""
    if truth is None:
        raise InvalidInput(
            "The oracle needs the truth: verax.explain(..., method='oracle', truth=cases.truth)."
        )
    values = truth.ideal
    return (values[:, None] if values.ndim == inputs.ndim - 1 else values).to(inputs).expand_as(inputs)
