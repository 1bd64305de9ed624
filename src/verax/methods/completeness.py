"""Does a map add up to what its method promises?

Integrated gradients, DeepLIFT and Shapley values promise the change of the output from their baselines, LRP
the output itself. The gap is the cheapest alarm there is: attribution code that is silently wrong rarely adds
up. Not every gap is a fault: `Method.slack` says what may come between a map and its total.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from verax.engine.baselines import baseline_of, shared
from verax.engine.batching import blocks, rows_within_budget, with_halving
from verax.engine.gradients import Points
from verax.errors import InvalidParameter
from verax.methods.base import Function, Method
from verax.methods.explaining import as_method, streams_of
from verax.methods.inputs import (
    check_maps,
    check_model,
    check_seed,
    check_settings,
    network_outputs,
    prepared,
)
from verax.methods.references import references_of
from verax.networks.anatomy import Anatomy
from verax.seeding import Streams


def _starts(
    method: Method, inputs: Tensor, streams: Streams, settings: Mapping[str, Any]
) -> tuple[Points, int]:
    """The baselines that a change is counted from, the same ones that the method drew."""
    if method.starts is not None:
        return method.starts(inputs, streams, settings)
    only = baseline_of(settings.get("baseline", 0.0), inputs, streams)[:, None]
    return lambda some, part: only[some, part], 1


def promised_total(
    method: Method,
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    settings: Mapping[str, Any],
    streams: Streams,
    outputs: Tensor | None = None,
) -> Tensor | None:
    """What each map should add up to, float64 ``(N,)``; None for methods that promise nothing.

    Args:
        method: whose promise it is.
        model: the network; its chosen output is what counts.
        inputs: ``(N, ...)``, on the device and in the precision of the network.
        targets: ``(N,)``.
        settings: all parameters of the method.
        streams: the random numbers that the method drew.
        outputs: of the network for the inputs ``(N, classes)``, where they are known.
    """
    if method.total is None:
        return None

    def chosen(x: Tensor, y: Tensor, known: Tensor | None = None) -> Tensor:
        found = network_outputs(model, x) if known is None else known
        return found.gather(1, y[:, None])[:, 0].double()

    total = chosen(inputs, targets, outputs)
    if method.total == "output":
        return total
    if method.starts is references_of and isinstance(settings["references"], Tensor):
        # one set for all samples: no need to run it again for each of them
        return total - network_outputs(model, settings["references"].to(inputs)).double().mean(0)[targets]
    if method.starts is None and (same := shared(settings.get("baseline", 0.0), inputs)) is not None:
        return total - network_outputs(model, same).double()[0, targets]
    start, count = _starts(method, inputs, streams, settings)

    def mean(rows: int) -> Tensor:
        found = torch.zeros_like(total)
        for some, part in blocks(len(inputs), count, rows):
            low = start(some, part)
            y = targets[some].repeat_interleave(low.shape[1])
            found[some] += chosen(low.flatten(0, 1), y).reshape(low.shape[:2]).sum(1) / count
        return found

    return total - with_halving(mean, rows_within_budget(inputs[0]))


def completeness_error(
    method: Method,
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    maps: Tensor,
    settings: Mapping[str, Any],
    *,
    seed: int = 0,
    ids: Tensor | None = None,
    outputs: Tensor | None = None,
) -> Tensor | None:
    """How far each map is from its promised total, relative to that total ``(N,)``; None without a promise.

    A total of zero (an empty picture) is compared with 1, so that the error stays a number. `outputs` are
    those of the network for the inputs, which is not asked again then.
    """
    parts = Anatomy.of(model)
    x = inputs.detach().to(parts.device, parts.dtype(inputs.dtype))
    streams = streams_of(method, x, ids, seed)
    total = promised_total(method, model, x, targets.to(x.device), settings, streams, outputs)
    if total is None:
        return None
    gap = (maps.detach().double().flatten(1).sum(1).to(total.device) - total).abs()
    return gap / torch.where(total == 0, 1.0, total.abs())


def completeness(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor | None,
    maps: Tensor,
    method: str | Method | Function,
    *,
    seed: int = 0,
    ids: Tensor | None = None,
    output: str = "logit",
    settings: Mapping[str, Any] | None = None,
    **parameters: Any,
) -> Tensor:
    """How far each map is from the total that its method promises, relative to that total: float64 ``(N,)``.

    Give what `verax.explain` was given, so that random references are drawn alike. ``method.slack`` says
    whether a gap is an alarm: DeepLIFT is exact, integrated gradients need enough steps, and in LRP biases
    and epsilon keep a part by design.

    Args:
        model: the network.
        inputs: ``(N, ...)``.
        targets: the explained output of each sample (default: the predicted one).
        maps: attributions, shape of `inputs`.
        method: the method that made them; one that promises no total is refused.
        seed: of the methods that draw random numbers.
        ids: which random stream each sample has (default: made from its values).
        output: what was explained: "logit", "probability", "log-probability" or "margin".
        settings: the method's own parameters as a mapping, for those whose names are taken here.
        **parameters: the method's own parameters.
    """
    chosen = as_method(method)
    values = chosen.settings(check_settings(parameters, settings))
    asked, x, y = prepared(check_model(model), inputs, targets, output=output)
    found = check_maps(maps, x)
    gap = completeness_error(chosen, asked, x, y, found, values, seed=check_seed(seed), ids=ids)
    if gap is None:
        raise InvalidParameter(f"Method {chosen.name!r} promises no total that its maps could miss.")
    return gap
