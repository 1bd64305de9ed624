"""Experiment 1b: the question of the colour box on photographs: cats and dogs with a stamped word.

The stamped twins of Oxford-IIIT Pet carry a white box "Cat" or a black box "Dog" somewhere in the picture.
"""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import torch

from verax.errors import MissingFile
from verax.reproductions.alignment import drawing
from verax.reproductions.alignment.drawing import Drawn
from verax.reproductions.alignment.measuring import Evidence, measure, shown, some, summary
from verax.reproductions.alignment.models import SmallNet
from verax.reproductions.alignment.options import Options
from verax.reproductions.alignment.training import Recipe, held, trained
from verax.tasks.alignment import AnnotatedImages, Geometry, Subset, stream
from verax.tasks.alignment.pets import pets

METHOD = "grad-cam"
NETWORKS = {"plain": False, "stamped": True}
"""Network -> whether it learnt from stamped photographs."""
PARTS = ("animal", "stamp")
SIDE = 64
RECIPE = Recipe(10, 32, 0.003, "adam", 0.8)


def folder(given: Path | None) -> Path:
    """Where pets with stamped twins are."""
    data = os.environ.get("VERAX_DATA")
    place = given or (Path(data) / "pets" if data else None)
    if place is None or not (place / "stamped").is_dir():
        raise MissingFile(
            "alignment-stamps needs pets with stamped twins (images/, stamped/, trimaps/ and pets.csv) in the"
            " folder 'pets' under VERAX_DATA, or in --data."
        )
    return place


def halves(images: AnnotatedImages) -> tuple[list[int], list[int]]:
    """Numbers of images for training and for tests: every second one, as many cats as dogs.

    In training cats, which are few, are repeated; in tests dogs are left out, evenly.
    """
    labels = torch.cat([batch.labels for batch in stream(images, 64)]).tolist()
    kinds = [[k for k, label in enumerate(labels) if label == kind] for kind in (0, 1)]
    if min(map(len, kinds)) < 2:
        raise MissingFile("alignment-stamps needs at least two cats and two dogs.")
    train, test = [own[::2] for own in kinds], [own[1::2] for own in kinds]
    most, least = max(map(len, train)), min(map(len, test))
    again = [own[k % len(own)] for own in train for k in range(most)]
    spread = [own[k * len(own) // least] for own in test for k in range(least)]
    return again, spread


def gather(options: Options) -> Evidence:
    """One network learns from stamped, one from plain photographs; both see both."""
    root = folder(options.data)
    sets = {
        name: pets(root, label="species", stamped=stamped, geometry=Geometry.stretch(SIDE, SIDE))
        for name, stamped in NETWORKS.items()
    }
    train, test = halves(sets["plain"])
    if options.quick:
        train, test = train[::10], test[::6]
    seeds = options.seeds if options.seeds is not None else (0,) if options.quick else (0, 1, 2)
    recipe = Recipe(1, 32, 0.003, "adam") if options.quick else RECIPE
    others = [name for name in options.methods if name != METHOD]
    few = min(options.samples or 60, 8 if options.quick else 60)
    rows, pictures = [], []
    for network, images in sets.items():
        learnt = held(Subset(images, train, f"pets-{network}"), 64)
        for seed in seeds:
            model = trained(
                lambda: SmallNet(2),
                learnt,
                recipe,
                seed,
                device=options.device,
                store=options.store,
                quiet=options.quiet,
            )
            for name, tested in sets.items():
                chosen = Subset(tested, test)
                labels = {"network": network, "seed": seed, "test": name}
                for methods, most in (([METHOD], options.samples), (others, few)):
                    if methods and (methods == [METHOD] or name == "stamped"):
                        keep = 6 if seed == seeds[0] and methods == [METHOD] and name == "stamped" else 0
                        which = some(chosen, most)
                        table, kept = measure(
                            model, which, methods, PARTS, labels, device=options.device, keep=keep
                        )
                        rows.append(table)
                        pictures += kept
    facts = {
        "about": (
            f"{len(train)} photographs for training (cats repeated) and {len(test)} for tests, {SIDE} x"
            f" {SIDE}; {len(seeds)} small network{'s' * (len(seeds) > 1)} of each kind, from"
            f" scratch. {METHOD}, not rectified, threshold 0.5, predicted class; other methods on"
            f" {few} stamped photographs. Intervals are 95 % bootstrap intervals over networks and"
            " photographs."
        ),
    }
    return Evidence(pd.concat(rows, ignore_index=True), facts, pictures)


def tables(evidence: Evidence) -> dict[str, pd.DataFrame]:
    """Networks on both tests, and the methods."""
    own = shown(summary(evidence.where(method=METHOD))).drop(columns="method")
    return {
        "Networks": own,
        "Every method": shown(summary(evidence.where(test="stamped"))).drop(columns="test"),
    }


def figures(evidence: Evidence) -> list[Drawn]:
    """Photographs with outlines, and bars."""
    kinds = {(p.labels["network"], p.id): p for p in evidence.pictures}
    ids = list(dict.fromkeys(p.id for p in evidence.pictures))[:5]
    lines = [[kinds[network, name] for network in NETWORKS] for name in ids]
    titles = [f"{network} network" for network in NETWORKS]
    note = "Stamped test photographs. The + is the strongest pixel; O: it lies in the outlined part."
    drawn = [
        Drawn(
            f"photographs-{part}",
            f"What both networks look at, against the {part}",
            note,
            drawing.strip(lines, part, titles),
        )
        for part in PARTS
    ]
    every = summary(evidence.where(test="stamped"))
    every["which"] = [f"{n} network, {p}" for n, p in zip(every["network"], every["part"], strict=True)]
    for score in ("iou", "pointing-game"):
        note = "Stamped test photographs. Ticks are chance for a part of that size."
        drawn.append(
            Drawn(
                f"methods-{score}",
                f"Every method: {score}",
                note,
                drawing.bars(every, score, "which", "method"),
            )
        )
    return drawn
