"""Where faces come from: CelebA and CelebAMask-HQ where they are here, drawn ones otherwise."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from torch import nn

from verax.networks.lites import listed
from verax.reproductions.alignment.models import SmallNet
from verax.reproductions.alignment.options import Options
from verax.reproductions.alignment.training import Recipe, held, trained
from verax.tasks.alignment import AnnotatedImages, Geometry, Subset, draw_groups
from verax.tasks.alignment.bias import counts
from verax.tasks.alignment.celeba import celeba, celeba_groups
from verax.tasks.alignment.celebamask import REGIONS, celebamask
from verax.tasks.alignment.faces import PARTS, Faces

RECIPE = Recipe(8, 32, 0.003, "adam", 0.75)
PUBLISHED = Recipe(5, 128, 1e-4, "adam", 0.5)
"""For networks that know ImageNet already; the paper divides the rate by 5 after 2 epochs."""
SHARE, TESTED = 0.1, 0.2
QUICK_SHARE, QUICK_TESTED = 0.01, 0.01
"""Of the published numbers of faces; 100:1 stays 100:1."""
SMALL, LARGE = Geometry.crop(72, 64), Geometry.crop(256, 224)


@dataclass(frozen=True)
class People:
    """Faces for training and for tests, and the network that learns from them.

    Attributes:
        words: where they come from.
        parts: regions that are marked.
        draw: design, seed -> faces; designs are those of `bias.DESIGNS`.
        make: an untrained network, or one that knows other things.
        recipe: how it learns.
        share: of the published number of training faces.
        seeds: training seeds.
    """

    words: str
    parts: tuple[str, ...]
    draw: Callable[[str, int], AnnotatedImages]
    make: Callable[[], nn.Module]
    recipe: Recipe
    share: float
    seeds: tuple[int, ...]

    def network(self, design: str, seed: int, options: Options) -> nn.Module:
        """A network that has learnt to tell smiles, from a biased or an unbiased set."""
        faces = self.draw(f"train-{design}", seed)
        return trained(
            self.make,
            held(faces),
            self.recipe,
            seed,
            device=options.device,
            store=options.store,
            quiet=options.quiet,
        )


def find(name: str, given: Path | None) -> Path | None:
    """The folder of a data set: the one that is given, or the one of that name under ``VERAX_DATA``."""
    data = os.environ.get("VERAX_DATA")
    place = given or (Path(data) / name if data else None)
    return place if place is not None and place.is_dir() else None


def people(options: Options) -> People:
    """Faces for experiment 2: CelebA where it is here. Named networks see 224 pixels and all of its faces."""
    seeds = tuple(options.seeds) if options.seeds is not None else (0,) if options.quick else (0, 1, 2)
    large = options.networks is not None
    share = QUICK_SHARE if options.quick else 1.0 if large else SHARE
    tested = QUICK_TESTED if options.quick else 1.0 if large else TESTED
    recipe = Recipe(2, 32, 0.003, "adam", 0.75) if options.quick else PUBLISHED if large else RECIPE
    make: Callable[[], nn.Module] = partial(SmallNet, 2)
    if options.networks is not None:
        make = partial(_known, options.networks[0])
    root = find("celeba", options.data)
    geometry = LARGE if large else SMALL

    def sized(design: str) -> dict[int, int]:
        return counts(design, share if design.startswith("train") else tested)

    def from_files(design: str, seed: int) -> AnnotatedImages:
        assert root is not None
        split = design.partition("-")[0]
        chosen = draw_groups(celeba_groups(root, split), sized(design), seed)
        return Subset(celeba(root, split, geometry=geometry), chosen, f"celeba-{design}")

    def drawn(design: str, seed: int) -> AnnotatedImages:
        purpose = design.partition("-")[0]
        faces = Faces(sized(design), seed, purpose=purpose, size=224 if large else 64)
        faces.name = f"faces-{design}"
        return faces

    if root is not None:
        return People("CelebA", ("mouth",), from_files, make, recipe, share, seeds)
    return People("Drawn faces, in place of CelebA", PARTS, drawn, make, recipe, share, seeds)


def _known(name: str) -> nn.Module:
    """A named network with its 1,000 outputs, of which training uses two, as published."""
    return listed(name).model


def regions(options: Options, found: People) -> tuple[AnnotatedImages, tuple[str, ...], str]:
    """Faces with regions for experiment 3: CelebAMask-HQ where it is here."""
    root = find("celebamask", None)
    if root is None or found.words != "CelebA":
        return (
            found.draw("test-unbiased", 0),
            ("hair", "brows", "eyes", "mouth", "nose", "skin", "neck"),
            found.words,
        )
    faces = celebamask(
        root,
        celeba_root=find("celeba", options.data),
        split="test",
        geometry=SMALL if options.networks is None else LARGE,
    )
    return faces, tuple(REGIONS), "CelebAMask-HQ"
