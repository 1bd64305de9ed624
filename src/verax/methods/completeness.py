"""Does a map add up to what its method promises?

Integrated gradients and DeepLIFT promise the change of the output from the baseline, LRP the output itself.
The gap is the cheapest alarm there is: attribution code that is silently wrong rarely adds up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from verax.engine.baselines import baseline_of
from verax.methods.base import Method
from verax.networks.inference import outputs


def promised_total(
    method: Method, model: nn.Module, inputs: Tensor, targets: Tensor, settings: Mapping[str, Any]
) -> Tensor | None:
    """What each map should add up to ``(N,)``; None for methods that promise nothing."""
    if method.total is None:
        return None

    def chosen(x: Tensor) -> Tensor:
        found = outputs(model, x)
        return found.gather(1, targets.to(found.device)[:, None])[:, 0].double()

    total = chosen(inputs)
    if method.total == "change":
        total = total - chosen(baseline_of(settings.get("baseline", 0.0), inputs))
    return total


def completeness_error(
    method: Method,
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    maps: Tensor,
    settings: Mapping[str, Any],
) -> Tensor | None:
    """How far each map is from its promised total, relative to that total ``(N,)``; None without a promise.

    A total of zero (an empty picture) is compared with 1, so that the error stays a number.
    """
    total = promised_total(method, model, inputs, targets, settings)
    if total is None:
        return None
    gap = (maps.double().flatten(1).sum(1).to(total.device) - total).abs()
    return gap / torch.where(total == 0, 1.0, total.abs())
