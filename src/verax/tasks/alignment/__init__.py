"""Alignment: pictures in which people marked what matters.

Loaders are functions of the modules named after their data sets; `DATA` knows them by name.
"""

from __future__ import annotations

from collections.abc import Callable

from verax.registry import Registry
from verax.tasks.alignment.geometry import Geometry
from verax.tasks.alignment.images import Annotated, AnnotatedImages, Subset, draw_groups, shaped, stream

__all__ = ["DATA", "Annotated", "AnnotatedImages", "Geometry", "Subset", "draw_groups", "shaped", "stream"]

DATA: Registry[Callable[..., AnnotatedImages]] = Registry(
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
    group="verax.data",
)
"""Name -> what makes annotated images of that kind."""
