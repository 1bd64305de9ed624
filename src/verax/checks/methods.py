"""Checks of methods."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from verax.checks.base import TOLERANCE, Check, Named, Report, compare, distance, made
from verax.methods.base import Function, Method
from verax.methods.explaining import as_method, explain


class _Module(nn.Module):
    """A small residual network, written with modules."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            self.first, self.second = nn.Conv2d(3, 6, 3, 2), nn.Conv2d(6, 6, 3, padding=1)
            self.head = nn.Linear(6 * 7 * 7, 4)
        self.relu_1, self.relu_2, self.drop = nn.ReLU(), nn.ReLU(), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu_1(self.first(x))
        x = self.relu_2(self.second(x) + x)
        out: Tensor = self.head(self.drop(x.flatten(1)))
        return out


class _Functional(_Module):
    """The same network without activation modules."""

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.first(x))
        x = torch.relu(self.second(x).add(x))
        return F.linear(x.reshape(len(x), -1), self.head.weight, self.head.bias)


class _InPlace(_Module):
    """The same network, overwriting its own tensors and using one ReLU twice."""

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu_(self.first(x))
        y = self.second(x)
        y += x
        out: Tensor = self.head(y.relu_().view(len(y), -1))
        return out


def _data() -> tuple[Tensor, Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        inputs = torch.rand(5, 3, 16, 16)
    inputs[:, :, :4] = 0
    return inputs, torch.tensor([0, 3, 1, 2, 2])


def check_method(method: str | Method | Function, **parameters: Any) -> Report:
    """Run all checks on a method: a name, or any callable ``(model, inputs, targets) -> attributions``."""
    chosen = as_method(method)
    return made(chosen.name, _method_tests(chosen, parameters))


def _method_tests(chosen: Method, parameters: dict[str, Any]) -> Iterator[Named]:
    inputs, targets = _data()

    def run(model: nn.Module | None = None, x: Tensor = inputs, y: Tensor = targets, **more: Any) -> Tensor:
        return explain(model or _Module().eval(), x, y, chosen, **more, **parameters)

    order = torch.tensor([4, 2, 0, 1, 3])

    def alike(name: str, a: Callable[[], Tensor], b: Callable[[], Tensor] = run) -> Named:
        return name, lambda: compare(name, a(), b())

    finite = "gives finite maps of the inputs' shape"

    def bounded() -> Check:
        bad = int((~run().isfinite()).flatten(1).any(1).sum())
        return Check(finite, not bad, f"{bad} of {len(inputs)} maps hold NaN or infinity" if bad else "")

    yield finite, bounded
    yield alike("gives the same map twice", run)
    yield alike("does not depend on the batch", lambda: run(batch_size=2))
    yield alike(
        "does not depend on the order", lambda: run(x=inputs[order], y=targets[order]), lambda: run()[order]
    )
    yield alike("same map for the functional spelling of a network", lambda: run(_Functional().eval()))
    yield alike("same map for the in-place spelling of a network", lambda: run(_InPlace().eval()))
    yield alike("float64 agrees with float32", lambda: run(_Module().double().eval(), inputs.double()))
    yield "leaves network and inputs untouched", lambda: _untouched(chosen, parameters, inputs, targets)
    yield "depends on the explained class", lambda: _class_matters(chosen, run, targets)


def _class_matters(chosen: Method, run: Callable[..., Tensor], targets: Tensor) -> Check:
    name = "depends on the explained class"
    if chosen.model_free:
        return Check(name, None, "it never looks at the network")
    same = distance(run(y=(targets + 1) % 4), run()) < TOLERANCE
    return Check(name, not same, "two classes have the same map" if same else "")


def _untouched(chosen: Method, parameters: dict[str, Any], inputs: Tensor, targets: Tensor) -> Check:
    """Call the bare function: `explain` would put things back."""
    name = "leaves network and inputs untouched"
    if chosen.special:
        return Check(name, None, "it receives more than model, inputs and targets")
    model, x = _Module().eval(), inputs.clone()
    y = targets.clone()
    before, hooks = copy.deepcopy(model.state_dict()), _hooks(model)
    asked, recording = [weight.requires_grad for weight in model.parameters()], torch.is_grad_enabled()
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    try:
        chosen.function(model, x, y, **parameters)
        switched = torch.is_grad_enabled() != recording
        moved = torch.get_default_dtype() != dtype or torch.get_num_threads() != threads
    finally:
        torch.set_grad_enabled(recording)
        torch.set_default_dtype(dtype)
    faults = []
    if not torch.equal(x, inputs):
        faults.append("the inputs were changed")
    if not torch.equal(y, targets):
        faults.append("the targets were changed")
    if x.requires_grad:
        faults.append("the inputs were left asking for gradients")
    if switched:
        faults.append("gradients were switched on or off for everybody")
    if moved:
        faults.append("settings of torch were changed for everybody")
    if [weight.requires_grad for weight in model.parameters()] != asked:
        faults.append("weights were frozen or thawed")
    after = model.state_dict()
    if after.keys() != before.keys():
        faults.append("weights or buffers were left behind")
    elif any(not torch.equal(before[key], value) for key, value in after.items()):
        faults.append("weights were changed")
    if any(module.training for module in model.modules()):
        faults.append("the mode was changed")
    if _hooks(model) != hooks:
        faults.append("hooks were left behind")
    if any(weight.grad is not None for weight in model.parameters()):
        faults.append("gradients were left on the weights (use torch.autograd.grad)")
    return Check(name, not faults, "; ".join(faults))


def _hooks(model: nn.Module) -> int:
    return sum(
        len(m._forward_hooks) + len(m._backward_hooks) + len(m._forward_pre_hooks) for m in model.modules()
    )
