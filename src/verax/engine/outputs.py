"""Which output is explained: the logit itself, or something made of all logits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from verax.errors import InvalidParameter, suggestion
from verax.networks.inference import logits_of


def _margin(logits: Tensor) -> Tensor:
    """Each output minus the largest of the others: ``(N, classes)``."""
    best = logits.topk(2, dim=1)
    own = torch.arange(logits.shape[1], device=logits.device) == best.indices[:, :1]
    return logits - torch.where(own, best.values[:, 1:], best.values[:, :1])


OUTPUTS = {
    "logit": lambda logits: logits,
    "probability": lambda logits: logits.softmax(1),
    "log-probability": lambda logits: logits.log_softmax(1),
    "margin": _margin,
}
"""Name -> function of the network's outputs ``(N, classes)``; all but "logit" need two classes or more."""


class Explained(nn.Module):
    """A network whose outputs are probabilities, log-probabilities, margins, or the logits among more."""

    def __init__(self, inner: nn.Module, output: str) -> None:
        super().__init__()  # names of its own would hide those of the network
        self._inner = inner
        self._output = output
        self.training = inner.training

    def forward(self, inputs: Tensor) -> Tensor:
        """The chosen output; one output alone has no others to be compared with, and is refused."""
        logits = logits_of(self._inner(inputs))
        if self._output != "logit" and (logits.ndim == 1 or logits.shape[1:] == (1,)):
            raise InvalidParameter(
                f"The network has one output, so there is no {self._output} to explain; use output='logit'."
            )
        result: Tensor = OUTPUTS[self._output](logits)
        return result

    def named_modules(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """The names of the network itself, so that layers are called as before."""
        yield from self._inner.named_modules(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """What the network itself has, so that methods find its layers."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if "_inner" not in self.__dict__.get("_modules", {}):
                raise
            return getattr(self._modules["_inner"], name)


def explained(model: nn.Module, output: str) -> nn.Module:
    """The network with the output that is to be explained."""
    if output not in OUTPUTS:
        raise InvalidParameter(f"There is no output {output!r} to explain{suggestion(str(output), OUTPUTS)}")
    return model if output == "logit" else Explained(model, output)
