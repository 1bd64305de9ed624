"""Alignment: pictures in which people marked what matters."""

from verax.tasks.alignment.bias import GROUPS, counts
from verax.tasks.alignment.celeba import celeba, celeba_groups
from verax.tasks.alignment.celebamask import celebamask
from verax.tasks.alignment.cifar import Cifar100
from verax.tasks.alignment.coco import coco
from verax.tasks.alignment.digits import ColourDigits
from verax.tasks.alignment.faces import Faces
from verax.tasks.alignment.folders import boxed_folder, masked_folder
from verax.tasks.alignment.geometry import Geometry
from verax.tasks.alignment.imagenet import imagenet
from verax.tasks.alignment.images import Annotated, AnnotatedImages, Subset, draw_groups, shaped, stream
from verax.tasks.alignment.pets import pets
from verax.tasks.alignment.voc import voc

__all__ = [
    "GROUPS",
    "Annotated",
    "AnnotatedImages",
    "Cifar100",
    "ColourDigits",
    "Faces",
    "Geometry",
    "Subset",
    "boxed_folder",
    "celeba",
    "celeba_groups",
    "celebamask",
    "coco",
    "counts",
    "draw_groups",
    "imagenet",
    "masked_folder",
    "pets",
    "shaped",
    "stream",
    "voc",
]
