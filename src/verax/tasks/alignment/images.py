"""Annotated images: pictures and what people marked in them, read in batches and never held all at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from verax.errors import InvalidInput, InvalidParameter, UnknownName, suggestion
from verax.seeding import Streams
from verax.tasks.alignment.geometry import Geometry

NO_LABEL = -1


@dataclass(frozen=True, eq=False)
class Annotated:
    """A batch of pictures with their annotations.

    Attributes:
        images: ``(N, 3, H, W)`` float32 in [0, 1].
        masks: ``(N, H, W)`` bool; what matters according to people.
        labels: ``(N,)`` int64; -1 where the label is not known.
        ids: N names, unique within the data set.
        parts: name -> ``(N, H, W)`` bool; all regions that are known, the mask among them.
        instances: ``(N, K, H, W)`` bool; single objects, empty where an image has fewer than K.
        kinds: ``(N, K)`` int64; the classes of the instances, -1 where there is none.
        variables: name -> ``(N,)``; what else is known, such as hair colour.
    """

    images: Tensor
    masks: Tensor
    labels: Tensor
    ids: tuple[str, ...]
    parts: Mapping[str, Tensor] = field(default_factory=dict)
    instances: Tensor | None = None
    kinds: Tensor | None = None
    variables: Mapping[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        height, width = self.images.shape[2:]
        parts = f", parts {', '.join(self.parts)}" if self.parts else ""
        return f"Annotated({len(self)} images of {height} x {width}{parts})"

    def map(self, function: Callable[[Tensor], Tensor]) -> Annotated:
        """Apply `function` to every tensor."""

        def perhaps(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else function(tensor)

        return Annotated(
            function(self.images),
            function(self.masks),
            function(self.labels),
            self.ids,
            {name: function(part) for name, part in self.parts.items()},
            perhaps(self.instances),
            perhaps(self.kinds),
            {name: function(values) for name, values in self.variables.items()},
        )

    def to(self, device: str | torch.device) -> Annotated:
        """The same batch on another device."""
        return self.map(lambda tensor: tensor.to(device))

    def about(self, part: str) -> Annotated:
        """The same batch with another of its parts as the mask."""
        if part not in self.parts:
            raise UnknownName(f"These images have no part named {part!r}{suggestion(part, self.parts)}")
        return replace(self, masks=self.parts[part])


@runtime_checkable
class AnnotatedImages(Protocol):
    """Any object with these members can be aligned with."""

    @property
    def name(self) -> str:
        """The name, such as ``pets``."""
        ...

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the labels, in order."""
        ...

    def __len__(self) -> int: ...

    def read(self, indices: Sequence[int]) -> Annotated:
        """The images with these numbers, in this order."""
        ...

    def fingerprint(self) -> Mapping[str, Any]:
        """Everything that the images depend on, for hashing."""
        ...


@dataclass(frozen=True, eq=False)
class Raw:
    """One image as its files say, before any geometry.

    Attributes:
        picture: ``(h, w, 3)`` levels.
        parts: name -> ``(h, w)`` bool.
        label: -1 where it is not known.
        id: its name.
        instances: ``(K, h, w)`` bool.
        kinds: K classes.
        variables: name -> number.
    """

    picture: NDArray[np.uint8]
    parts: Mapping[str, NDArray[np.bool_]]
    label: int
    id: str
    instances: NDArray[np.bool_] | None = None
    kinds: tuple[int, ...] = ()
    variables: Mapping[str, float] = field(default_factory=dict)


def checked(indices: Sequence[int], count: int, name: str) -> list[int]:
    """Numbers of images, all of which exist."""
    numbers = [int(index) for index in indices]
    wrong = [number for number in numbers if not 0 <= number < count]
    if wrong:
        raise InvalidInput(f"{name} has the images 0 to {count - 1}, not {wrong[0]}.")
    if not numbers:
        raise InvalidInput(f"No image of {name} was asked for.")
    return numbers


def chosen_part(part: str, parts: Sequence[str], name: str) -> str:
    """`part`, checked to be one of the parts of a data set."""
    if part not in parts:
        raise UnknownName(f"{name} has no part named {part!r}{suggestion(part, parts)}")
    return part


class Stored:
    """Annotated images that lie in files; a loader says how one of them is read.

    Args:
        name: of the data set.
        count: how many images there are.
        part: the part that is the mask.
        classes: names of the labels.
        geometry: how images of any size become images of one size; None leaves them as they are.
        evidence: gives what the images depend on; called once, when a fingerprint is needed.
    """

    def __init__(
        self,
        name: str,
        count: int,
        part: str,
        raw: Callable[[int], Raw],
        evidence: Callable[[], str],
        *,
        classes: Sequence[str] | None = None,
        geometry: Geometry | None = None,
    ) -> None:
        self.name, self.part, self.geometry = name, part, geometry
        self.classes = None if classes is None else tuple(classes)
        self.raw = raw
        self._count, self._evidence = count, evidence
        self._known: str | None = None

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"{self.name} ({len(self)} images, mask: {self.part})"

    def shaped(self, geometry: Geometry | None) -> Stored:
        """The same images with another geometry."""
        return Stored(
            self.name,
            self._count,
            self.part,
            self.raw,
            self._evidence,
            classes=self.classes,
            geometry=geometry,
        )

    def fingerprint(self) -> Mapping[str, Any]:
        """Names and sizes of the files, the contents of tables, the part and the geometry."""
        if self._known is None:
            self._known = self._evidence()
        return {"name": self.name, "part": self.part, "files": self._known, "geometry": repr(self.geometry)}

    def _one(self, index: int) -> Raw:
        """One image after geometry."""
        raw = self.raw(index)
        names, stack = list(raw.parts), list(raw.parts.values())
        masks = np.stack(stack) if raw.instances is None else np.concatenate([np.stack(stack), raw.instances])
        picture = raw.picture
        if self.geometry is not None:
            picture, masks = self.geometry.picture(picture), self.geometry.masks(masks)
        parts = dict(zip(names, masks, strict=False))
        instances = None if raw.instances is None else masks[len(names) :]
        return replace(raw, picture=picture, parts=parts, instances=instances)

    def read(self, indices: Sequence[int]) -> Annotated:
        """The images with these numbers; decoded side by side, because that lets other threads run."""
        numbers = checked(indices, len(self), self.name)
        if len(numbers) == 1:
            return self._joined([self._one(numbers[0])])
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1, len(numbers))) as pool:
            return self._joined(list(pool.map(self._one, numbers)))

    def _joined(self, raws: list[Raw]) -> Annotated:
        if len({raw.picture.shape for raw in raws}) > 1:
            raise InvalidInput(
                f"Images of {self.name} differ in size: give what reads them the argument "
                "geometry=Geometry.crop(256, 224), for example (from verax.tasks.alignment import Geometry; "
                "verax align: --geometry crop:256:224)."
            )
        levels = torch.from_numpy(np.stack([raw.picture for raw in raws]))
        parts = {
            name: torch.from_numpy(np.stack([raw.parts[name] for raw in raws])) for name in raws[0].parts
        }
        instances, kinds = _padded(raws)
        return Annotated(
            levels.permute(0, 3, 1, 2).contiguous().float().div_(255),
            parts[self.part],
            torch.tensor([raw.label for raw in raws]),
            tuple(raw.id for raw in raws),
            parts,
            instances,
            kinds,
            {name: torch.tensor([raw.variables[name] for raw in raws]) for name in raws[0].variables},
        )


def _padded(raws: list[Raw]) -> tuple[Tensor | None, Tensor | None]:
    """Instances of all images, filled up with empty masks to the same number."""
    if any(raw.instances is None for raw in raws):
        return None, None
    most = max(len(raw.kinds) for raw in raws)
    shape = raws[0].picture.shape[:2]
    instances = np.zeros((len(raws), most, *shape), np.bool_)
    kinds = np.full((len(raws), most), NO_LABEL, np.int64)
    for row, raw in enumerate(raws):
        instances[row, : len(raw.kinds)] = raw.instances
        kinds[row, : len(raw.kinds)] = raw.kinds
    return torch.from_numpy(instances), torch.from_numpy(kinds)


class Subset:
    """Some of the images of a data set, in any order."""

    def __init__(self, images: AnnotatedImages, indices: Sequence[int], name: str = "") -> None:
        self._images = images
        self._indices = checked(indices, len(images), images.name)
        self.name = name or images.name
        self.classes = images.classes

    def __len__(self) -> int:
        return len(self._indices)

    def read(self, indices: Sequence[int]) -> Annotated:
        """The images with these numbers, counted within the subset."""
        return self._images.read([self._indices[n] for n in checked(indices, len(self), self.name)])

    def fingerprint(self) -> Mapping[str, Any]:
        """That of the data set, and which images are meant."""
        return {**self._images.fingerprint(), "indices": self._indices}


class Reshaped:
    """Another geometry for images that are tensors already, such as drawn ones."""

    def __init__(self, images: AnnotatedImages, geometry: Geometry) -> None:
        self._images, self.geometry = images, geometry
        self.name, self.classes = images.name, images.classes

    def __len__(self) -> int:
        return len(self._images)

    def read(self, indices: Sequence[int]) -> Annotated:
        """The images with these numbers, reshaped together with all their masks."""
        found = self._images.read(indices)
        single = [found.masks, *found.parts.values()]
        several = [] if found.instances is None else list(found.instances.unbind(1))
        images, masks = self.geometry.tensors(found.images, torch.stack([*single, *several]))
        parts = dict(zip(found.parts, masks[1:], strict=False))
        instances = None if found.instances is None else masks[len(single) :].transpose(0, 1)
        return replace(found, images=images, masks=masks[0], parts=parts, instances=instances)

    def fingerprint(self) -> Mapping[str, Any]:
        """That of the data set, and the geometry."""
        return {**self._images.fingerprint(), "reshaped": repr(self.geometry)}


def shaped(images: AnnotatedImages, geometry: Geometry) -> AnnotatedImages:
    """The same images with another geometry: that of a network, for example."""
    return images.shaped(geometry) if isinstance(images, Stored) else Reshaped(images, geometry)


def stream(
    images: AnnotatedImages, batch_size: int = 32, *, start: int = 0, stop: int | None = None
) -> Iterator[Annotated]:
    """Batches of the images `start` to `stop`; the next one is read while the last one is used.

    Two batches are in memory at any time, however many images there are.
    """
    stop = len(images) if stop is None else min(stop, len(images))
    if batch_size < 1 or start < 0:
        raise InvalidParameter("batch_size must be at least 1 and start at least 0.")
    starts = range(start, stop, batch_size)
    with ThreadPoolExecutor(1) as ahead:

        def read(at: int) -> Annotated:
            return images.read(range(at, min(at + batch_size, stop)))

        coming = ahead.submit(read, starts[0]) if starts else None
        for following in [*starts[1:], None]:
            if coming is None:
                return
            batch = coming.result()
            coming = None if following is None else ahead.submit(read, following)
            yield batch


def draw_groups(groups: Sequence[int] | Tensor, counts: Mapping[int, int], seed: int) -> list[int]:
    """Numbers of images, `counts[g]` of each group g, drawn without repetition and mixed; for biased sets."""
    table = torch.as_tensor(groups)
    order = Streams.of(torch.arange(len(table)), "groups", seed).uniform("order").argsort(stable=True)
    chosen = []
    for group, count in counts.items():
        members = order[table[order] == group]
        if len(members) < count:
            raise InvalidInput(f"Group {group} has {len(members)} images, but {count} were asked for.")
        chosen.append(members[:count])
    found = torch.cat(chosen)
    mixed = Streams.of(found, "groups", seed).uniform("mix").argsort(stable=True)
    numbers: list[int] = found[mixed].tolist()
    return numbers
