"""Alignment: pictures in which people marked what matters.

Loaders are functions of the modules named after their data sets; `DATA` knows them by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from verax.errors import InvalidParameter
from verax.registry import Registry
from verax.tasks.alignment.geometry import Geometry
from verax.tasks.alignment.images import Annotated, AnnotatedImages, Subset, draw_groups, shaped, stream

__all__ = [
    "DATA",
    "Annotated",
    "AnnotatedImages",
    "Geometry",
    "Subset",
    "dataset",
    "draw_groups",
    "find",
    "shaped",
    "stream",
]

Maker = Callable[..., AnnotatedImages]

DATA: Registry[Maker] = Registry(
    "data set",
    {
        name: f"verax.tasks.alignment.{target}"
        for name, target in {
            "digits": "digits:ColourDigits",
            "faces": "faces:Faces",
            "pets": "pets:pets",
            "celeba": "celeba:celeba",
            "celebamask": "celebamask:celebamask",
            "cifar100": "cifar:Cifar100",
            "imagenet": "imagenet:imagenet",
            "coco": "coco:coco",
            "voc": "voc:voc",
            "masks": "folders:masked_folder",
            "boxes": "folders:boxed_folder",
        }.items()
    },
    group="verax.datasets",
    adopt=lambda name, thing: _maker(name, thing),
)
"""Name -> what makes annotated images of that kind."""

F = TypeVar("F", bound=Maker)


def _maker(name: str, thing: object) -> Maker:
    """What a plugin brings as a data set: a function, or annotated images as they are."""
    if not isinstance(thing, type) and isinstance(thing, AnnotatedImages):
        return lambda: thing
    if not callable(thing):
        raise InvalidParameter(f"a data set is a function that makes images, not {type(thing).__name__}")
    return thing


def dataset(name: str) -> Callable[[F], F]:
    """Register annotated images of one's own: ``@verax.dataset("mine")`` on a function that makes them.

    ``verax.align(model, "mine")`` then finds them by name. Registering the same name again replaces it;
    built-in names are refused.

    Args:
        name: how they are called.
    """

    def register(function: F) -> F:
        if not callable(function):
            raise InvalidParameter(f"A data set is a function, not {type(function).__name__}.")
        DATA.own(name, function)
        return function

    return register


def find(source: str | AnnotatedImages, **options: Any) -> AnnotatedImages:
    """Annotated images by their name, with what their function takes; images are given back as they are."""
    if not isinstance(source, str):
        return source
    try:
        return DATA.get(source)(**options)
    except TypeError as error:
        raise InvalidParameter(
            f"The data set {source!r} cannot be made by its name alone: {error}."
        ) from error
