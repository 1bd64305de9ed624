"""`align`: does a network look where people marked? Streamed, batched, and resumable after any end.

Bang, Boggust and Satyanarayan, "Explanation Alignment", ECCV workshops 2024; Boggust et al., "Shared
Interest", CHI 2022. Images pass through one batch at a time; what stays is a row of numbers for each.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from torch import Tensor, nn

from verax import devices, progress
from verax.errors import InvalidInput, InvalidParameter, suggestion
from verax.files import make_folder, write_atomically
from verax.methods.base import Function, Method
from verax.methods.explaining import as_method
from verax.methods.inputs import check_seed, check_settings, network_outputs
from verax.methods.limits import whole_from
from verax.metrics.alignment import CHANNELS, SCORES, Judging
from verax.metrics.binarisation import Binarisation
from verax.metrics.cases8 import COLUMNS, Ranges
from verax.networks.zoo import PRETRAINED, Preprocessing, Subject, numbering, subject
from verax.studies import thumbnails
from verax.studies.alignments import MANIFEST, PARTS, Alignment, manifest, table_bytes
from verax.studies.questions import Question, facts_of
from verax.studies.regions import Regions
from verax.tasks.alignment import Annotated, AnnotatedImages, Geometry, Subset, shaped, stream
from verax.tasks.alignment.sources import source

TARGETS = ("predicted", "label")
OBJECTS = ("all", "target")
PROTOCOLS = {
    "sound": {"ties": "expected", "mass": "positive", "empty": "left out"},
    "published": {"ties": "first", "mass": "magnitude", "empty": "miss"},
}
"""Protocol -> how ties of the pointing game, negative values and images without a mark are counted."""
_ALL_MARKED = (
    "Every mask marks the whole picture, so that every map is right; where masks hold numbers of classes or "
    "are trimaps, say which numbers are marked (--values 1, or values=[1] in Python)."
)
_PART = re.compile(r"(\d{9})-(\d{9})\.parquet")


def align(
    model: str | nn.Module,
    dataset: str | AnnotatedImages | None = None,
    method: str | Method | Function = "grad-cam",
    *,
    images: str | Path | None = None,
    masks: str | Path | None = None,
    boxes: str | Path | None = None,
    coco: str | Path | None = None,
    voc: str | Path | None = None,
    labels: str | Path | None = None,
    values: Collection[int] | None = None,
    metrics: Sequence[str] = SCORES,
    binarisation: str | Binarisation | None = None,
    target: str = "predicted",
    protocol: str = "sound",
    part: str | None = None,
    objects: str = "all",
    tolerance: float = 0,
    ties: str | None = None,
    mass: str | None = None,
    empty: str | None = None,
    channels: str | None = None,
    ranges: str | Ranges | Mapping[str, Any] | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    geometry: Geometry | None = None,
    classes: Sequence[str] | None = None,
    weights: str | Path = PRETRAINED,
    outputs: int | None = None,
    limit: int | None = None,
    pictures: int = 120,
    batch_size: int = 32,
    device: str | torch.device = "auto",
    seed: int = 0,
    out: str | Path | None = None,
    name: str | None = None,
    quiet: bool = True,
    settings: Mapping[str, Any] | None = None,
    **parameters: Any,
) -> Alignment:
    """Compare what a network looks at with what people marked, image by image.

    Args:
        model: ``timm:NAME``, ``torchvision:NAME`` or any module that gives ``(samples, outputs)``.
        dataset: annotated images (`verax.tasks.alignment`), or the name of registered ones; left out where
            folders are named.
        method: how the network is explained (``verax list methods``); any callable will do.
        images: a folder of pictures, with one of `masks`, `boxes` or `coco`.
        masks: a folder of masks with the same names.
        boxes: a CSV file with image,xmin,ymin,xmax,ymax[,label].
        coco: a JSON file in COCO's format.
        voc: a folder of Pascal VOC.
        labels: a CSV file with image,label, for `masks`; default: the folders that pictures lie in.
        values: numbers in `masks` that are marked; default: all but 0.
        metrics: iou, ground-truth-coverage, saliency-coverage, pointing-game, energy, or some of them.
        binarisation: which pixels count as shown: std:K, threshold:K, percentile:K or top:K. By default
            threshold:0.5 for class activation maps and std:1 for all others, as published.
        target: explain the "predicted" class or the "label".
        protocol: "sound", or "published": ties of the pointing game go to the first pixel, images without a
            mark are misses, energy adds up magnitudes, and Grad-CAM is not rectified.
        part: which part of the images is meant, such as "hair"; default: the data set's own choice.
        objects: "all" that is marked, or only the objects of the class that is explained ("target"), where
            the data set knows single objects, as COCO and VOC do; the pointing game asks for these.
        tolerance: of the pointing game, in pixels.
        ties: of the pointing game: "expected" or "first".
        mass: what energy adds up: "positive", "magnitude" or "scaled".
        empty: images without a mark are "left out" or a "miss".
        channels: how channels are joined: "sum" or "magnitude". By default magnitude for methods whose sign
            says nothing, as gradients, and sum for all others.
        ranges: of the eight cases: "photos", "text", "melanoma" or your own (`verax.metrics.cases8.Ranges`).
        mean: subtracted from pictures in [0, 1]; default: the network's own.
        std: what they are divided by; default: the network's own.
        geometry: size and crop; default: the network's own, or that of the data set.
        classes: names of the network's outputs, by which the data set's classes are found.
        weights: of a named network: "pretrained", "none" or a file.
        outputs: of a named network, where it has others than it was published with.
        limit: only so many images, evenly spread.
        pictures: how many images the report shows. None is explained twice, but for those that are asked for
            of a finished folder.
        batch_size: images at a time; changes speed and memory, never the scores.
        device: auto, cpu, cuda, cuda:1 or mps.
        seed: of methods that draw random numbers.
        out: a folder. Each finished batch is kept there, so that a run that ended early goes on where it was.
        name: what the network is called in tables; default: its own name.
        quiet: no progress bar.
        settings: the method's own parameters as a mapping, for those whose names are taken here.
        **parameters: the method's own parameters.
    """
    where = devices.resolve(device)
    for noun, value in (("batch_size", batch_size), ("limit", limit or 1)):
        whole_from(1).check(value, noun)
    whole_from(0).check(pictures, "pictures")
    named = _metrics(metrics)
    choices = (
        ("target", target, TARGETS),
        ("protocol", protocol, [*PROTOCOLS]),
        ("objects", objects, OBJECTS),
    )
    for noun, word, known in choices:
        if word not in known:
            raise InvalidParameter(f"{noun} is {' or '.join(known)}{suggestion(str(word), known)}")
    chosen = as_method(method)
    given = check_settings(parameters, settings)
    if protocol == "published" and chosen.family == "cams" and "relu" in chosen.parameters:
        given.setdefault("relu", False)
    data = source(
        dataset,
        images=images,
        masks=masks,
        boxes=boxes,
        coco=coco,
        voc=voc,
        labels=labels,
        values=values,
    )
    found = subject(model, weights, outputs)
    found = replace(
        found, preprocessing=found.preprocessing.with_(mean, std, geometry), model=found.model.to(where)
    )
    if name is not None:
        found = replace(found, name=name)
    if classes is not None:
        found = replace(found, outputs=tuple((str(name),) for name in classes))
    pictured = _images(data, found.preprocessing, limit)
    rules = PROTOCOLS[protocol]
    judging = Judging(
        Binarisation.of(binarisation or ("threshold:0.5" if chosen.family == "cams" else "std:1")),
        tolerance,
        ties or rules["ties"],
        mass or rules["mass"],
        empty or rules["empty"],
    )
    if channels is not None and channels not in CHANNELS:
        raise InvalidParameter(
            f"Channels are joined by {' or '.join(CHANNELS)}{suggestion(channels, CHANNELS)}"
        )
    joined = channels or ("magnitude" if chosen.transfer == "gray" else "sum")
    count = _outputs(found, pictured, where)
    numbers, note = numbering(pictured.classes, found.outputs, count, given=classes is not None)
    question = Question(
        found,
        chosen,
        chosen.settings(given),
        judging,
        joined,
        target,
        part,
        objects,
        numbers,
        count,
        check_seed(seed),
        named,
    )
    notes = [word for word in (found.random, note) if word]
    facts = facts_of(question, pictured, protocol, Ranges.of(ranges), notes)
    return _run(question, pictured, facts, batch_size, where, out, pictures, quiet)


def _metrics(metrics: Sequence[str]) -> tuple[str, ...]:
    words = [metrics] if isinstance(metrics, str) else [str(name).removeprefix("align/") for name in metrics]
    for name in words:
        if name not in SCORES:
            raise InvalidParameter(f"Alignment has no metric {name!r}{suggestion(name, SCORES)}")
    if not words:
        raise InvalidParameter(f"Name at least one metric: {', '.join(SCORES)}.")
    return tuple(name for name in SCORES if name in words)


def _images(dataset: AnnotatedImages, preprocessing: Preprocessing, limit: int | None) -> AnnotatedImages:
    if not isinstance(dataset, AnnotatedImages):
        raise InvalidInput(f"The data set must be annotated images, not {type(dataset).__name__}.")
    if not len(dataset):
        raise InvalidInput("The data set has no images.")
    images = dataset if preprocessing.geometry is None else shaped(dataset, preprocessing.geometry)
    if limit is None or limit >= len(images):
        return images
    return Subset(images, np.linspace(0, len(images) - 1, limit).round().astype(int).tolist())


def _outputs(found: Subject, images: AnnotatedImages, device: torch.device) -> int:
    """How many outputs the network has, by its answer to the first image."""
    first = images.read([0]).images.to(device)
    return network_outputs(found.model, found.preprocessing(first)).shape[1]


def _finished(folder: Path, kept: Regions) -> list[pd.DataFrame]:
    """The parts that follow each other from the first image on; what does not is of no use.

    Args:
        folder: of the run.
        kept: gets the regions that were kept of them.
    """
    parts, at = [], 0
    ordered = sorted(
        (int(found[1]), -int(found[2]), path)
        for path in (folder / PARTS).glob("*.parquet")
        if (found := _PART.fullmatch(path.name))
    )
    for start, stop, path in ordered:
        if start != at:
            continue
        try:
            rows = pd.read_parquet(path)
        except (OSError, ValueError, pa.ArrowException):
            path.unlink(missing_ok=True)
            continue
        if len(rows) == -stop - start:
            parts.append(kept.read(rows))
            at = -stop
    return parts


def _run(
    question: Question,
    images: AnnotatedImages,
    facts: dict[str, Any],
    batch_size: int,
    device: torch.device,
    out: str | Path | None,
    pictures: int,
    quiet: bool,
) -> Alignment:
    """Batch after batch; with a folder, what is there already is not done again."""
    folder = None if out is None else make_folder(Path(out).expanduser())
    before = None if folder is None else manifest(folder)
    if before is not None and before["key"] != facts["key"]:
        raise InvalidParameter(f"The folder {str(folder)!r} holds another alignment; name another folder.")
    kept = Regions(pictures, len(images), facts)
    if folder is not None and before is not None and before.get("finished"):
        done = Alignment.load(folder)
        done.facts["ranges"] = facts["ranges"]
        if "case" in done.scores:
            done.sort_into_cases()
        if len(done.pictures) >= min(pictures, len(images)):
            return done
    else:
        done = Alignment(_scores(question, images, facts, batch_size, device, folder, kept, quiet), facts)
        if (done.scores["area"] == 1).all():
            done.facts["notes"] = [*facts["notes"], _ALL_MARKED]
        if set(COLUMNS) <= set(done.metrics):
            done.sort_into_cases()
    done.pictures = _pictures(question, images, done, kept, pictures, batch_size, device, quiet)
    if folder is not None:
        done.save(folder)
        shutil.rmtree(folder / PARTS, ignore_errors=True)
    return done


def _scores(
    question: Question,
    images: AnnotatedImages,
    facts: dict[str, Any],
    batch_size: int,
    device: torch.device,
    folder: Path | None,
    kept: Regions,
    quiet: bool,
) -> pd.DataFrame:
    """The rows of all images; each batch is written before the next one begins."""
    parts: list[pd.DataFrame] = []
    if folder is not None:
        write_atomically(folder / MANIFEST, json.dumps({**facts, "finished": False}, indent=2).encode())
        parts = _finished(folder, kept)
    start = sum(map(len, parts))
    with progress.bar(quiet) as bar:
        row = bar.add_task(f"{facts['model']} on {facts['data']}", total=len(images), completed=start)
        for batch in stream(images, batch_size, start=start):
            rows, with_regions = _answered(question, batch, start, device, kept)
            if folder is not None:
                name = f"{start:09}-{start + len(rows):09}.parquet"
                write_atomically(folder / PARTS / name, table_bytes(with_regions))
            parts.append(rows)
            start += len(rows)
            bar.advance(row, len(rows))
    return pd.concat(parts, ignore_index=True).astype({"right": "boolean"})


def _answered(
    question: Question, batch: Annotated, start: int, device: torch.device, kept: Regions
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows of a batch, and the same with its regions; its maps end here."""
    rows, maps, masks = question.answer(batch, start, device)
    return rows, kept.add(rows, lambda: _regions(question, maps, masks))


def _regions(question: Question, maps: Tensor, masks: Tensor) -> tuple[Tensor, Tensor]:
    """What is marked and what is shown; of all maps at once, as they were scored."""
    return masks, question.judging.binarisation(maps)


def _pictures(
    question: Question,
    images: AnnotatedImages,
    done: Alignment,
    kept: Regions,
    count: int,
    batch_size: int,
    device: torch.device,
    quiet: bool,
) -> list[Mapping[str, Any]]:
    """Pictures of the images that are worth it, with the regions that were scored.

    Only what is not there is explained: more pictures than an alignment was made with, or other ones since
    its ranges changed.
    """
    rows = thumbnails.choose(done.scores, done.members() if "case" in done.scores else {}, count)
    found = {entry["row"]: entry for entry in done.pictures}
    known = {row: codes for row in rows if (codes := kept.get(row)) is not None}
    missing = [row for row in rows if row not in found]
    with progress.bar(quiet or not missing) as bar:
        line = bar.add_task("pictures for the report", total=len(missing))
        for first in range(0, len(missing), batch_size):
            some = missing[first : first + batch_size]
            batch = images.read(some)
            again = [place for place, row in enumerate(some) if row not in known]
            if again:
                part = batch if len(again) == len(some) else images.read([some[place] for place in again])
                _, maps, masks = question.answer(part, 0, device)
                both = map(thumbnails.encoded, _regions(question, maps, masks))
                known |= zip([some[place] for place in again], zip(*both, strict=True), strict=True)
            for entry in thumbnails.thumbnails(some, batch.images, [known[row] for row in some]):
                found[entry["row"]] = entry
            bar.advance(line, len(some))
    return [found[row] for row in rows]
