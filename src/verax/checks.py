"""Conformance checks that anybody can run on a method or a metric of their own.

::

    print(verax.check_method(my_method))

In the spirit of scikit-learn's `check_estimator`: each check is one property that every method should have
and that attribution code often breaks silently.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from verax.cases import Role, Truth
from verax.errors import InvalidInput, UnsupportedOperation, VeraxError
from verax.methods.base import Function, Method
from verax.methods.explaining import as_method, explain

TOLERANCE = 1e-4

Named = tuple[str, Callable[[], "Check"]]


@dataclass(frozen=True)
class Check:
    """One property: `passed` is None where it does not apply."""

    name: str
    passed: bool | None
    detail: str = ""


@dataclass(frozen=True)
class Report:
    """The outcome of all checks of one method or metric."""

    subject: str
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed and some were made."""
        found = [check.passed for check in self.checks]
        return True in found and False not in found

    def __str__(self) -> str:
        marks = {True: "pass", False: "FAIL", None: "n/a "}
        failed = any(check.passed is False for check in self.checks)
        verdict = "conforms" if self.passed else "DOES NOT CONFORM" if failed else "could not be checked"
        lines = [f"{self.subject}: {verdict}"]
        lines += [f"  {marks[c.passed]}  {c.name}{': ' + c.detail if c.detail else ''}" for c in self.checks]
        return "\n".join(lines)


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


def _distance(a: Tensor, b: Tensor) -> float:
    scale = float(b.double().norm())
    return float((a.double() - b.double()).norm()) / (scale or 1.0)


def _compare(name: str, a: Tensor, b: Tensor) -> Check:
    distance = _distance(a, b)
    return Check(name, distance <= TOLERANCE, f"relative difference {distance:.1e}")


def _guarded(name: str, test: Callable[[], Check]) -> Check:
    try:
        return test()
    except (UnsupportedOperation, InvalidInput) as error:  # a refusal is no fault
        return Check(name, None, str(error))
    except VeraxError as error:
        return Check(name, False, str(error))
    except Exception as error:  # a third party's code may raise anything; that is a finding, not a crash
        return Check(name, False, f"{type(error).__name__}: {error}".splitlines()[0])


def check_method(method: str | Method | Function, **parameters: Any) -> Report:
    """Run all checks on a method: a name, or any callable ``(model, inputs, targets) -> attributions``."""
    chosen = as_method(method)
    checks: list[Check] = []
    for name, test in _method_tests(chosen, parameters):
        checks.append(_guarded(name, test))
        if len(checks) == 1 and not checks[0].passed:  # the others would say the same again
            break
    return Report(chosen.name, tuple(checks))


def _method_tests(chosen: Method, parameters: dict[str, Any]) -> Iterator[Named]:
    inputs, targets = _data()

    def run(model: nn.Module | None = None, x: Tensor = inputs, y: Tensor = targets, **more: Any) -> Tensor:
        return explain(model or _Module().eval(), x, y, chosen, **more, **parameters)

    order = torch.tensor([4, 2, 0, 1, 3])

    def compare(name: str, a: Callable[[], Tensor], b: Callable[[], Tensor] = run) -> Named:
        return name, lambda: _compare(name, a(), b())

    finite = "gives finite maps of the inputs' shape"
    yield finite, lambda: Check(finite, bool(run().isfinite().all()))
    yield compare("gives the same map twice", run)
    yield compare("does not depend on the batch", lambda: run(batch_size=2))
    yield compare(
        "does not depend on the order", lambda: run(x=inputs[order], y=targets[order]), lambda: run()[order]
    )
    yield compare("same map for the functional spelling of a network", lambda: run(_Functional().eval()))
    yield compare("same map for the in-place spelling of a network", lambda: run(_InPlace().eval()))
    yield compare("float64 agrees with float32", lambda: run(_Module().double().eval(), inputs.double()))
    yield "leaves network and inputs untouched", lambda: _untouched(chosen, parameters, inputs, targets)
    yield "depends on the explained class", lambda: _class_matters(chosen, run, targets)


def _class_matters(chosen: Method, run: Callable[..., Tensor], targets: Tensor) -> Check:
    name = "depends on the explained class"
    if chosen.model_free:
        return Check(name, None, "it never looks at the network")
    same = _distance(run(y=(targets + 1) % 4), run()) < TOLERANCE
    return Check(name, not same, "two classes have the same map" if same else "")


def _untouched(chosen: Method, parameters: dict[str, Any], inputs: Tensor, targets: Tensor) -> Check:
    """Call the bare function: `explain` would put things back."""
    name = "leaves network and inputs untouched"
    if chosen.special:
        return Check(name, None, "it receives more than model, inputs and targets")
    model, x = _Module().eval(), inputs.clone()
    before, hooks = copy.deepcopy(model.state_dict()), _hooks(model)
    chosen.function(model, x, targets.clone(), **parameters)
    faults = []
    if not torch.equal(x, inputs):
        faults.append("the inputs were changed")
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


def check_metric(metric: Callable[[Tensor, Truth], Tensor]) -> Report:
    """Run all checks on a metric ``(attributions (N, C, H, W), truth) -> (N,)``."""
    from verax.tasks import task

    cases = task("textbox/complex-cr1").cases(n=2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        maps = torch.randn(cases.inputs.shape)
    truth = cases.truth

    def shape() -> Check:
        scores = metric(maps, truth)
        good = isinstance(scores, Tensor) and scores.shape == (len(maps),)
        return Check("gives one score for each sample", good)

    def alone() -> Check:
        parts = torch.cat([metric(maps[k : k + 1], truth[k : k + 1]) for k in range(len(maps))])
        return _same("does not depend on the batch", parts, metric(maps, truth))

    def scale() -> Check:
        return _same("does not depend on the scale of a map", metric(3 * maps, truth), metric(maps, truth))

    def degenerate() -> Check:
        worst = []
        for word, value in (("constant", 0.0), ("NaN", float("nan")), ("infinite", float("inf"))):
            scores = metric(torch.full_like(maps, value), truth)
            known = metric(maps, truth).isfinite()
            if not scores[known].isfinite().all():
                worst.append(word)
        return Check(
            "scores degenerate maps", not worst, ", ".join(worst) + " maps get no score" if worst else ""
        )

    def ties() -> Check:
        flat = torch.zeros(1, *maps.shape[1:])
        first, last = (metric(flat, _in_corners(place, size=maps.shape[-1])) for place in (0, 1))
        return _same("breaks ties without regard to position", first, last)

    tests = {
        "gives one score for each sample": shape,
        "does not depend on the batch": alone,
        "does not depend on the scale of a map": scale,
        "scores degenerate maps": degenerate,
        "breaks ties without regard to position": ties,
    }
    name = getattr(metric, "__name__", type(metric).__name__)
    return Report(name, tuple(_guarded(word, test) for word, test in tests.items()))


def _in_corners(place: int, size: int, side: int = 10) -> Truth:
    """A focus box in the first or the last corner, and one to avoid in the other."""
    low, high = (0, side), (size - side, size)
    corners = (low, high) if place == 0 else (high, low)
    objects = torch.zeros(1, 2, size, size, dtype=torch.bool)
    for index, (start, stop) in enumerate(corners):
        objects[0, index, start:stop, start:stop] = True
    boxes = torch.tensor([[(*c, *c) for c in corners]])
    roles = torch.tensor([[Role.FOCUS, Role.AVOID]], dtype=torch.int8)
    return Truth.from_objects(objects, boxes, roles, ("focus", "avoid"))


def _same(name: str, a: Tensor, b: Tensor) -> Check:
    good = torch.allclose(a.double(), b.double(), atol=1e-6, equal_nan=True)
    return Check(name, bool(good))
