"""Questions: what an alignment asks of a network, and how a batch of images answers it."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from verax.errors import InvalidInput
from verax.methods.base import Method
from verax.methods.explaining import explain
from verax.methods.inputs import network_outputs
from verax.metrics.alignment import Judging, collapse, judge
from verax.metrics.cases8 import Ranges
from verax.metrics.pointing import of_class
from verax.networks.inference import logits_of
from verax.networks.library import weights_hash
from verax.networks.zoo import Subject
from verax.studies.alignments import CENTRE, RANDOM
from verax.studies.units import code_digest, content_hash
from verax.tasks.alignment import Annotated, AnnotatedImages
from verax.version import __version__


@contextmanager
def _both_answers(model: nn.Module) -> Iterator[None]:
    """Give a network with one output two: what speaks for no is what speaks against yes."""

    def both(_module: nn.Module, _inputs: object, answer: object) -> Tensor:
        only = logits_of(answer)
        only = only[:, None] if only.ndim == 1 else only
        return torch.cat([-only, only], 1)

    hook = model.register_forward_hook(both)
    try:
        yield
    finally:
        hook.remove()


@dataclass(frozen=True, eq=False)
class Question:
    """Everything that the scores of a batch depend on."""

    subject: Subject
    method: Method
    settings: Mapping[str, Any]
    judging: Judging
    channels: str
    target: str
    part: str | None
    objects: str
    numbers: list[int] | None
    outputs: int
    seed: int
    metrics: tuple[str, ...]

    def maps(self, batch: Annotated, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Maps ``(N, H, W)``, masks, labels, predictions and confidences of a batch."""
        there = batch.to(device) if self.part is None else batch.about(self.part).to(device)
        x = self.subject.preprocessing(there.images)
        scores = network_outputs(self.subject.model, x, len(x)).float()
        if scores.shape[1] == 1:  # one output says no or yes
            predicted, sure = (scores[:, 0] > 0).long(), torch.sigmoid(scores[:, 0].abs())
        else:
            predicted, sure = scores.argmax(1), scores.softmax(1).amax(1)
        labels = self.labels(there.labels)
        asked = predicted
        if self.target == "label":
            if (labels < 0).any():
                unknown = batch.ids[int((labels < 0).nonzero()[0])]
                raise InvalidInput(
                    f"The label of {unknown!r} is not known, so target='label' cannot be explained."
                )
            asked = labels
        with _both_answers(self.subject.model) if scores.shape[1] == 1 else nullcontext():
            raw = explain(
                self.subject.model,
                x,
                asked,
                self.method,
                batch_size=len(x),
                seed=self.seed,
                settings=self.settings,
            )
        return collapse(raw, self.channels), self.masks(there, asked), labels, predicted, sure

    def masks(self, batch: Annotated, asked: Tensor) -> Tensor:
        """What counts as marked: all of it, or only the objects of the class that is explained."""
        if self.objects == "all":
            return batch.masks
        if batch.instances is None or batch.kinds is None:
            raise InvalidInput("These images have no single objects, so objects='target' means nothing here.")
        return of_class(batch.instances, self.labels(batch.kinds), asked)

    def labels(self, given: Tensor) -> Tensor:
        """Labels as numbers of outputs; -1 where they are not known."""
        if self.numbers is None:
            if given.numel() and int(given.max()) >= max(2, self.outputs):
                raise InvalidInput(
                    f"Label {int(given.max())} is no output of the network, which has {self.outputs}."
                )
            return given
        table = torch.tensor([*self.numbers, -1], device=given.device)  # the last one is for -1
        return table[given]

    def answer(
        self, batch: Annotated, start: int, device: torch.device
    ) -> tuple[pd.DataFrame, Tensor, Tensor]:
        """The table of a batch that begins with image number `start`, and the maps and masks behind it."""
        maps, masks, labels, predicted, sure = self.maps(batch, device)
        if maps.device.type == "mps":  # which has no float64
            maps, masks = maps.cpu(), masks.cpu()
        found = judge(maps, masks, self.judging)
        labels, predicted = labels.cpu(), predicted.cpu()
        right = pd.array((labels == predicted).numpy(), dtype="boolean")
        right[(labels < 0).numpy()] = pd.NA
        columns: dict[str, Any] = {
            "index": np.arange(start, start + len(batch)),
            "id": list(batch.ids),
            "label": labels.numpy(),
            "prediction": predicted.numpy(),
            "right": right,
            "target": (labels if self.target == "label" else predicted).numpy(),
            "confidence": sure.double().cpu().numpy(),
            "area": found.area.cpu().numpy(),
            "shown": found.shown.cpu().numpy(),
            "empty": found.empty.cpu().numpy(),
            "flat": found.flat.cpu().numpy(),
        }
        for end, table in (("", found.scores), (RANDOM, found.random), (CENTRE, found.centre)):
            columns |= {f"{name}{end}": table[name].cpu().numpy() for name in self.metrics}
        return pd.DataFrame(columns), maps, masks


def _plain(value: object) -> object:
    """A setting as JSON can hold it; tensors by their content."""
    if isinstance(value, Tensor):
        return hashlib.sha256(value.detach().cpu().contiguous().view(-1).numpy().tobytes()).hexdigest()
    return value if isinstance(value, bool | int | float | str | None) else repr(value)


def _source(thing: object) -> str:
    """The code of a class or function, as far as it can be had."""
    try:
        return inspect.getsource(thing)  # type: ignore[arg-type]
    except (OSError, TypeError):
        return repr(thing)


def facts_of(
    question: Question, images: AnnotatedImages, protocol: str, ranges: Ranges, notes: list[str]
) -> dict[str, Any]:
    """What an alignment depends on, in words, with a key that changes when anything does."""
    found, method = question.subject, question.method
    names: dict[int, str] = {}
    if found.outputs is not None:
        names = {number: words[-1] for number, words in enumerate(found.outputs)}
    if images.classes is not None:
        numbers = question.numbers or range(len(images.classes))
        names |= {n: word for n, word in zip(numbers, images.classes, strict=False) if n >= 0}
    facts: dict[str, Any] = {
        "version": __version__,
        "model": found.name,
        "data": images.name,
        "images": len(images),
        "part": question.part or getattr(images, "part", ""),
        "objects": question.objects,
        "method": method.name,
        "settings": {name: _plain(value) for name, value in question.settings.items()},
        "protocol": protocol,
        "target": question.target,
        "channels": question.channels,
        "seed": question.seed,
        "metrics": list(question.metrics),
        "judging": {**asdict(question.judging), "binarisation": str(question.judging.binarisation)},
        "preprocessing": {
            "mean": list(found.preprocessing.mean),
            "std": list(found.preprocessing.std),
            "geometry": repr(found.preprocessing.geometry),
        },
    }
    digest = weights_hash(found.model)
    secret = {
        "code": [code_digest(), _source(Question)],
        "weights": digest,
        "network": [str(found.model), _source(type(found.model))],
        "data": dict(images.fingerprint()),
        "own": None if method.builtin else [method.version, _source(method.function)],
        "numbers": question.numbers,
    }
    key = content_hash({"facts": facts, "secret": secret})
    return {
        "key": key,
        **facts,
        "weights": found.weights,
        "sha256": digest,
        "outputs": question.outputs,
        "ranges": _plain_ranges(ranges),
        "classes": names,
        "notes": notes,
    }


def _plain_ranges(ranges: Ranges) -> dict[str, Any]:
    return {
        "low": list(ranges.low),
        "high": list(ranges.high),
        **{k: dict(v) for k, v in (ranges.own or {}).items()},
    }
