"""Computing units: explain and score, or certify."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from verax import methods, seeding
from verax.cases import Cases
from verax.devices import Moment
from verax.engine.batching import with_halving
from verax.engine.conditions import Doubts, later
from verax.errors import InvalidParameter
from verax.methods.completeness import completeness_error
from verax.metrics import Metric
from verax.metrics.own import measure, prepared_by, reads
from verax.metrics.scoring import score
from verax.networks import batches, certificates, fits, library
from verax.networks.anatomy import device_of
from verax.networks.inference import outputs
from verax.protocols import truth_of
from verax.studies.entries import Result
from verax.studies.spec import Study
from verax.studies.units import Cell, Subject, Unit
from verax.tasks.base import Learnable, is_regression

_MOST_REFERENCES = 10_000

_ASKED = 1024  # pictures in a pass of a certificate on a GPU, which waits for launches

VECTORS = 50
"""Maps of vectors that are kept of each unit, for pictures and to compare networks."""


@dataclass(frozen=True)
class Block:
    """Cases that all methods and networks of a task have in common.

    Attributes:
        start: the first case of each bucket.
        count: cases of each bucket.
        cases: these.
        told: the same with each kind of truth that was asked for.
    """

    start: int
    count: int
    cases: Cases
    told: dict[str, Cases] = field(default_factory=dict)


@dataclass
class Bench:
    """One subject on the bench: its network, cases and predictions, loaded when first needed.

    Attributes:
        subject: what is explained.
        study: says which cases there are, and how they are scored.
        device: where to compute.
        metrics: own ones, scored beside those of the protocols.
        maps: the raw attributions of the unit that was computed last.
    """

    subject: Subject
    study: Study
    device: torch.device
    metrics: tuple[Metric, ...] = ()
    maps: Tensor | None = field(default=None, repr=False)
    _model: nn.Module | None = field(default=None, repr=False)
    _block: Block | None = field(default=None, repr=False)
    _outputs: Tensor | None = field(default=None, repr=False)
    _predicted: Tensor | None = field(default=None, repr=False)
    _drawn: dict[int, Tensor] = field(default_factory=dict, repr=False)
    _trial: certificates.Trial | None = field(default=None, repr=False)

    def after(self, other: Bench) -> Bench:
        """This bench with what another one drew last, where it is of the same task."""
        if other.subject.task is self.subject.task and other.study == self.study:
            self._block, self._trial = other._block, other._trial
        return self

    def model(self) -> nn.Module:
        """The network."""
        if self._model is None:
            # as workers do: a file that was trained anew since the plan was made must not go by its old key
            subject = self.subject.by_value()
            if isinstance(subject.weights, bytes):
                classes = subject.task.classes
                model = library.decode(subject.weights, subject.architecture, classes, subject.sha256)
            else:
                model = library.network(subject.task, subject.network)
            self._model = _moved(model, self.device)
        return self._model

    def load(self, start: int = 0, count: int | None = None) -> tuple[nn.Module, Cases, Tensor]:
        """The network, a block of cases and what it predicts for them; the last block is remembered.

        Args:
            start: the first case of each bucket.
            count: cases of each bucket (default: as many as the study has).
        """
        model, count = self.model(), count or self.study.samples
        if self._block is None or (self._block.start, self._block.count) != (start, count):
            cases = self.subject.task.cases(n=count, seed=self.study.seed, start=start).to(self.device)
            self._block, self._predicted = Block(start, count, cases), None
        if self._predicted is None:
            self._outputs = outputs(model, self._block.cases.inputs)
            self._predicted = self._outputs.argmax(1)
        return model, self._block.cases, self._predicted

    def told(self, kind: str) -> Cases:
        """The block of cases that was loaded last with a kind of truth about them."""
        assert self._block is not None
        if kind not in self._block.told:
            self._block.told[kind] = self.subject.task.retell(self._block.cases, kind)
        return self._block.told[kind]

    def settings(self, unit: Unit | Cell) -> dict[str, Any]:
        """The parameters of a unit or cell; ``references = "task:N"`` becomes N training inputs, drawn once.

        ``baseline = "task"`` becomes the input that the truth of a regression task is measured from, and
        ``segments = "task"`` the patches that its maps are compared on.
        """
        cell = unit if isinstance(unit, Cell) else unit.cell
        found = dict(cell.parameters or {})
        task = self.subject.task
        if found.get("baseline") == "task":
            if not is_regression(task):
                raise InvalidParameter(
                    f"{task.name} has no baseline of its own; name one for {unit.label!r}."
                )
            found["baseline"] = task.reference.to(self.device)
        if found.get("segments") == "task":
            if not hasattr(type(task), "segments"):
                raise InvalidParameter(
                    f"{task.name} has no segments of its own; name some for {unit.label!r}."
                )
            found["segments"] = task.segments.to(self.device)  # type: ignore[union-attr]
        count = task_references(found.get("references"))
        if count is not None:
            if count not in self._drawn:
                self._drawn[count] = training_inputs(task, count, self.subject.seed, self.device)
            found["references"] = self._drawn[count]
        return found

    def begin(self, unit: Unit, given: Tensor | None = None) -> Callable[[], Result]:
        """Explain a unit of this subject, or certify it; what comes back scores the maps and asks no network.

        A GPU waits while scores are counted and tables are made: that may be done in another thread, and
        the next unit explained meanwhile.

        Args:
            unit: of this subject.
            given: its raw attributions, where they were kept: they are scored again, not computed.
        """
        start = time.perf_counter()
        self.maps = None
        finish = self._certify(unit.count) if unit.method is None else self._explain(unit, given)
        spent = time.perf_counter() - start

        def rest() -> Result:
            start = time.perf_counter()
            result = finish()
            result.info["seconds"] = spent + time.perf_counter() - start
            return result

        return rest

    def try_out(self, unit: Cell) -> None:
        """Explain one case, for the errors that bad parameters raise."""
        assert unit.method is not None
        model, cases, predicted = self.load(0, 1)
        one = slice(0, 1)
        settings = self.settings(unit)
        if isinstance(settings.get("references"), Tensor):
            settings["references"] = settings["references"][one]
        methods.explain(
            model,
            cases.inputs[one],
            self.asked(unit, cases, predicted)[one],
            unit.method,
            truth=cases.truth[one],
            settings=settings,
        )

    def try_metrics(self) -> None:
        """Score the inputs themselves as maps of one case, for the errors that own metrics raise."""
        if self.metrics:
            _, cases, _ = self.load(0, 1)
            for metric in self.metrics:
                measure(metric, prepared_by(metric.protocol, cases.inputs), cases.truth)

    def _certify(self, count: int) -> Callable[[], Result]:
        model, task = self.model(), self.subject.task
        if is_regression(task):
            fit = fits.certify(model, task, n=max(2, count), seed=self.study.seed)
            tables = {"measures": fit.measures, "elements": fit.elements}
            return lambda: Result(tables, {}, {"certificate": fit.summary()})
        if self._trial is None or len(self._trial.groups) != count * len(task.groups):
            self._trial = certificates.prepare(task, device_of(model), n=count, seed=self.study.seed)
        trial = self._trial
        answers, done = trial.answers(model, _ASKED if self.device.type == "cuda" else 256), self._now()

        def finish() -> Result:
            done.wait()
            certificate = trial.certificate(answers)
            tables = {"accuracy": certificate.accuracy, "interventions": certificate.interventions}
            return Result(tables, {}, {"certificate": certificate.summary()})

        return finish

    def _now(self) -> Moment:
        return Moment(self.device)

    @property
    def seed(self) -> int:
        """Of methods that draw random numbers."""
        return seeding.key(self.study.seed, self.subject.task.name)

    def asked(self, unit: Unit | Cell, cases: Cases, predicted: Tensor) -> Tensor:
        """The output that a method is asked about: that of the prediction or of the label.

        A task may turn it to another one, which the network speaks against.
        """
        found = cases.targets if unit.method and unit.method.explains == "label" else predicted
        turned = getattr(self.subject.task, "asked", None)
        return found if turned is None else turned(found)

    def attributions(self, unit: Unit | Cell, cases: Cases, asked: Tensor) -> Tensor:
        """The attributions of a unit's method for cases and the outputs that it is asked about."""
        assert unit.method is not None
        method, settings = unit.method, self.settings(unit)

        def compute(rows: int) -> Tensor:
            return methods.explain(
                self.model(),
                cases.inputs,
                asked,
                method,
                seed=self.seed,
                ids=cases.ids,
                truth=cases.truth,
                settings=settings,
                batch_size=rows,
            )

        return with_halving(compute, 1024 if self.device.type == "cuda" else 64)

    def _explain(self, unit: Unit, given: Tensor | None) -> Callable[[], Result]:
        assert unit.method is not None
        model, cases, predicted = self.load(unit.start, unit.count)
        method, seed, settings = unit.method, self.seed, self.settings(unit)
        asked = self.asked(unit, cases, predicted)

        start = self._now()
        ours = method.builtin and method.family != "peers"  # others may do something about errors themselves
        with later() if ours else nullcontext(Doubts()) as doubts:
            maps = self.attributions(unit, cases, asked) if given is None else given.to(self.device)
            kinds = {protocol: truth_of(protocol) for protocol in self.study.protocols}
            told = {kind: self.told(kind) for kind in set(kinds.values())}
            # only the oracle shows another map when another truth is told
            shown = {
                kind: self.attributions(unit, told[kind], asked)
                if method.family == "truth" and kind != "rule"
                else maps
                for kind in told
            }
            explained = self._now()
            about = (method, model, cases.inputs, asked, maps, settings)
            gap = completeness_error(*about, seed=seed, ids=cases.ids, outputs=self._outputs)
        self.maps, done = maps, self._now()

        def finish() -> Result:
            done.wait()
            doubts.settle()
            scoring = time.perf_counter()
            tables = {
                protocol: score(
                    shown[kinds[protocol]],
                    told[kinds[protocol]],
                    protocol,
                    metrics=[metric for metric in self.metrics if reads(metric, protocol)],
                    predictions=asked if protocol == "faithfulness" else predicted,
                    transfer=method.transfer,
                    model=model,
                    method=method,
                    settings=settings,
                    seed=seed,
                )
                for protocol in self.study.protocols
            }
            info: dict[str, Any] = {
                "samples": len(cases),
                "wrong": int((predicted != cases.targets).sum()),
                "degenerate": int(tables[self.study.protocols[0]]["degenerate"].sum()),
                "explaining_seconds": explained.since(start),
                "scoring_seconds": time.perf_counter() - scoring,
            }
            kept = {"maps": thumbnails(maps, cases, unit.start)}
            if gap is not None:
                gaps = gap.double().cpu().contiguous()
                info["completeness_error"] = {"median": float(gaps.median()), "largest": float(gaps.max())}
                kept["completeness"] = gaps  # medians of blocks cannot be joined
            return Result(tables, kept, info)

        return finish


def _moved(model: nn.Module, device: torch.device) -> nn.Module:
    """A network on a device; to a GPU by way of pages that are locked, or the GPU would be waited for."""
    if device.type == "cuda":
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.data = tensor.data.pin_memory()
    return model.to(device, non_blocking=True)


def task_references(value: object) -> int | None:
    """How many pictures of the task's training stream ``"task:N"`` asks for; None for anything else."""
    if not isinstance(value, str):
        return None
    kind, _, count = value.partition(":")
    if kind != "task" or not (count.isascii() and count.isdigit()) or not 1 <= int(count) <= _MOST_REFERENCES:
        raise InvalidParameter(
            f"References are a whole number or 'task:N' (N from 1 to {_MOST_REFERENCES}), not {value!r}."
        )
    return int(count)


def training_inputs(task: Learnable, count: int, seed: int, device: torch.device) -> Tensor:
    """The first `count` inputs that a network of this task and seed is trained on: ``(N, ...)``."""
    if is_regression(task):
        return task.drawn("train", count).chunk(0, device)[0]
    return next(batches.fresh(task, task.groups, seed, 1, count, device))[0]


def first_of_each(group: Tensor) -> Tensor:
    """The position of the first case of every bucket."""
    return torch.from_numpy(np.unique(group.cpu().numpy(), return_index=True)[1])


def thumbnails(maps: Tensor, cases: Cases, start: int = 0) -> Tensor:
    """One map for each bucket, channels summed, scaled to a magnitude of at most 1: ``(G, H, W)`` float16.

    Blocks of samples that do not begin at the first one have none. Of vectors the first `VECTORS` maps
    ``(N, D)``: all cases are of one kind.
    """
    if maps.ndim == 2:
        some = maps[: max(0, VECTORS - start)].double()
        largest = some.abs().amax(1, keepdim=True)
        return (some / torch.where(largest > 0, largest, 1)).half().cpu().contiguous()
    first = first_of_each(cases.group)[: None if start == 0 else 0]
    chosen = maps[first.to(maps.device)].sum(1).double()
    largest = chosen.abs().flatten(1).amax(1)[:, None, None]
    return (chosen / torch.where(largest > 0, largest, 1)).half().cpu().contiguous()
