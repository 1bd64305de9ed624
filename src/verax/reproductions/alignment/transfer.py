"""Experiment 4: do better aligned networks transfer better? One image for each class, penultimate features.

Bang, Boggust and Satyanarayan, "Explanation Alignment" (ECCV 2024 workshops), section 4.4 and Figure 4. The
published code fed logits of networks in training mode and drew once; here features come from the layer before
the last in eval mode, and several draws are averaged.
"""

from __future__ import annotations

import itertools
import os
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from verax import devices
from verax.errors import InvalidInput, MissingFile
from verax.methods.inputs import network_outputs
from verax.networks.lites import listed
from verax.networks.zoo import Subject
from verax.reproductions.alignment import drawing
from verax.reproductions.alignment.drawing import Drawn
from verax.reproductions.alignment.imagenet import correlated, find_images
from verax.reproductions.alignment.measuring import RIGHT, Evidence, as_subject, measure, some, summary
from verax.reproductions.alignment.mnist import lesson
from verax.reproductions.alignment.models import SmallNet
from verax.reproductions.alignment.options import Options
from verax.reproductions.alignment.training import Recipe, trained
from verax.seeding import Streams
from verax.tasks.alignment import AnnotatedImages, shaped, stream
from verax.tasks.alignment.cifar import Cifar100
from verax.tasks.alignment.digits import ColourDigits, available
from verax.tasks.alignment.pets import pets

METHODS = ("gradient", "grad-cam")
WIDTHS = ((8, 16, 16), (16, 32, 32), (16, 32, 48, 64))
COLOURINGS = ("random", "spurious", "none")
CIFAR = ("cifar-100-python", "cifar100", "cifar-100")
"""Folders under ``VERAX_DATA`` in which CIFAR-100 is looked for."""
DRAWS = 20
_LEAST = 6
"""Fewer networks have no correlation worth naming."""


def features(subject: Subject, images: Tensor, device: torch.device) -> Tensor:
    """What the last dense layer is given, in eval mode: ``(N, C)``."""
    found: list[Tensor] = []
    last = [module for module in subject.model.modules() if isinstance(module, nn.Linear)]
    if not last:
        raise InvalidInput(
            f"{subject.name!r} has no dense layer, so that its penultimate features are unknown."
        )
    handle = last[-1].register_forward_pre_hook(lambda _, given: found.append(given[0].detach()))
    try:
        network_outputs(subject.model.eval(), subject.preprocessing(images.to(device)), len(images))
    finally:
        handle.remove()
    return torch.cat(found).flatten(1).cpu()


def embed(subject: Subject, images: AnnotatedImages, device: torch.device) -> tuple[Tensor, Tensor]:
    """Features and labels of all images."""
    if subject.preprocessing.geometry is not None:
        images = shaped(images, subject.preprocessing.geometry)
    parts = [(features(subject, batch.images, device), batch.labels) for batch in stream(images, 32)]
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])


def one_shot(values: Tensor, labels: Tensor, draw: int, steps: int = 40) -> float:
    """Accuracy of logistic regression (L2 penalty, C = 1) on one image of each class.

    Features are centred and scaled by those of the training images, so that no network gains by its scale.
    """
    order = Streams.of(torch.arange(len(labels)), "one-shot", draw).uniform("order").argsort(stable=True)
    classes = sorted(set(labels.tolist()))
    chosen = torch.tensor([int(order[labels[order] == name][0]) for name in classes])
    rest = torch.ones(len(labels), dtype=torch.bool)
    rest[chosen] = False
    middle, scale = values[chosen].mean(0), values[chosen].std().clamp(min=1e-8)
    x, tests = ((part - middle) / scale for part in (values[chosen], values[rest]))
    weights = torch.zeros(len(classes), x.shape[1], requires_grad=True)
    bias = torch.zeros(len(classes), requires_grad=True)
    optimiser = torch.optim.LBFGS([weights, bias], max_iter=steps, line_search_fn="strong_wolfe")
    targets = torch.arange(len(classes))

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = cross_entropy(x @ weights.T + bias, targets, reduction="sum") + weights.square().sum() / 2
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimiser.step(loss)  # type: ignore[no-untyped-call]
    places = torch.searchsorted(torch.tensor(classes), labels[rest])
    hits = (tests @ weights.detach().T + bias.detach()).argmax(1) == places
    # classes count alike, however many images they have
    table = one_hot(places, len(classes)).float()
    return float(((hits.float() @ table) / table.sum(0)).nanmean())


def _small(options: Options) -> list[tuple[Subject, str]]:
    """Networks that learnt drawn digits, with boxes that say nothing, everything, or are not there."""
    recipe = Recipe(1 if options.quick else 3, 64, 0.003, "adam", 0.7)
    seeds = options.seeds if options.seeds is not None else (0,) if options.quick else (0, 1)
    widths = WIDTHS[:2] if options.quick else WIDTHS
    found = []
    for colouring, width, seed in itertools.product(COLOURINGS, widths, seeds):
        learnt = lesson(colouring, seed, "drawn", most=600 if options.quick else 3000)
        model = trained(
            partial(SmallNet, 10, width),
            learnt,
            recipe,
            seed,
            device=options.device,
            store=options.store,
            quiet=options.quiet,
        )
        name = f"{colouring}-{'-'.join(map(str, width))}-{seed}"
        found.append((as_subject(model, name), colouring))
    return found


def _stage(options: Options) -> tuple[list[tuple[Subject, str]], AnnotatedImages, str, AnnotatedImages, str]:
    """Networks with their groups, images with the part that is meant, what they transfer to, words."""
    if options.networks is None:
        source = "scikit-learn" if available() == "scikit-learn" or options.quick else available()
        target = ColourDigits("test", "random", 1, source=source)
        words = (
            "Networks that learnt 3,000 drawn digits; alignment with the digit on drawn test digits,"
            f" transfer to digits of {source}"
        )
        return (
            _small(options),
            ColourDigits("test", "random", 0, source="drawn"),
            "digit",
            some(target, 1000),
            words,
        )
    images, part = find_images(options.data)
    other, where = _target(images, options)
    subjects = [listed(name) for name in options.networks]
    groups = [subject.name.partition(":")[0] for subject in subjects]
    words = f"Networks as published; alignment with the {part} in {images.name}, transfer to {where}"
    return list(zip(subjects, groups, strict=True)), images, part, other, words


def _target(images: AnnotatedImages, options: Options) -> tuple[AnnotatedImages, str]:
    """What named networks transfer to: CIFAR-100 where it is found, or the breeds of pets."""
    data = os.environ.get("VERAX_DATA")
    for place in [Path(data) / name for name in CIFAR] if data else []:
        if place.is_dir():
            found = Cifar100(place)
            return some(found, 500) if options.quick else found, "CIFAR-100"
    if images.name != "pets":
        raise MissingFile(
            "Transfer of named networks needs CIFAR-100 (the folder cifar-100-python under VERAX_DATA) or"
            " pets, whose breeds are learnt from one image each."
        )
    root = options.data if options.data is not None else Path(str(data)) / "pets"
    return pets(root, label="breed"), "breeds"


def gather(options: Options) -> Evidence:
    """Alignment of every network on the one data set, accuracy after one image of each class on the other."""
    networks, images, part, target, words = _stage(options)
    where = devices.resolve(options.device)
    most = 20 if options.quick else options.samples or 200
    methods = list(dict.fromkeys([*METHODS, *options.methods]))
    draws = 3 if options.quick else DRAWS
    rows, transfers = [], []
    for subject, group in networks:
        labels = {"network": subject.name, "seed": 0, "test": images.name, "family": group}
        table, _ = measure(
            subject, some(images, most), methods, (part,), labels, batch=32, device=options.device
        )
        rows.append(table)
        values, known = embed(subject, target, where)
        for draw in range(draws):
            transfers.append(
                {"network": subject.name, "draw": draw, "transfer": one_shot(values, known, draw)}
            )
    facts = {
        "about": (
            f"{words} ({len(target)} images, {draws} draws of one image for each class). {len(networks)}"
            f" networks, {most} images for alignment. Penultimate features in eval mode, logistic regression"
            " with C = 1."
        ),
    }
    return Evidence(pd.concat(rows, ignore_index=True), facts, tables={"draws": pd.DataFrame(transfers)})


def joined(evidence: Evidence) -> pd.DataFrame:
    """Alignment and transfer of every network and method; computed once."""
    if "joined" in evidence.tables:
        return evidence.tables["joined"]
    found = evidence.tables["draws"].groupby("network")["transfer"].agg(["mean", "std", "size"]).reset_index()
    reach = 1.96 * found["std"] / np.sqrt(found["size"])
    found = found.assign(transfer=found["mean"])
    found["transfer low"], found["transfer high"] = found["mean"] - reach, found["mean"] + reach
    table = summary(evidence.rows, by=["family"])
    whole = table.merge(found[["network", "transfer", "transfer low", "transfer high"]], on="network")
    evidence.tables["joined"] = whole
    return whole


def correlations(evidence: Evidence) -> pd.DataFrame:
    """Correlation of alignment and transfer for each method and score; NaN with too few networks."""
    if "correlations" in evidence.tables:
        return evidence.tables["correlations"]
    every, rows = joined(evidence), []
    for method in dict.fromkeys(every["method"]):
        own = every[every["method"] == method]
        picks = np.random.default_rng(0).integers(0, len(own), (2000, len(own)))
        for score in ("iou", "pointing-game", RIGHT):
            row: dict[str, object] = {"method": method, "score": score, "networks": len(own)}
            for name, ranked in (("pearson", False), ("spearman", True)):
                a, b = own[score].to_numpy(float), own["transfer"].to_numpy(float)
                value = correlated(a, b, picks, ranked) if len(own) >= _LEAST else (np.nan,) * 3
                row |= dict(zip((name, f"{name} low", f"{name} high"), value, strict=True))
            rows.append(row)
    evidence.tables["correlations"] = pd.DataFrame(rows)
    return evidence.tables["correlations"]


def tables(evidence: Evidence) -> dict[str, pd.DataFrame]:
    """Networks, and correlations with intervals."""
    every = joined(evidence)
    first = every[every["method"] == METHODS[0]]
    networks = first[["network", "family", RIGHT, "transfer"]].copy()
    for method in dict.fromkeys(every["method"]):
        own = every[every["method"] == method].set_index("network")
        networks[f"{method} IoU"] = [own["iou"][name] for name in networks["network"]]
        networks[f"{method} PG"] = [own["pointing-game"][name] for name in networks["network"]]
    found = correlations(evidence)
    words = found[["method", "score", "networks"]].copy()
    for name in ("pearson", "spearman"):
        words[name] = [
            "–" if value != value else f"{value:.2f} [{low:.2f}, {high:.2f}]"
            for value, low, high in found[[name, f"{name} low", f"{name} high"]].to_numpy()
        ]
    return {
        "Networks": networks.round(3).sort_values("transfer", ascending=False),
        "Correlation with transfer": words,
    }


def figures(evidence: Evidence) -> list[Drawn]:
    """Scatters as in Figure 4."""
    every, drawn = joined(evidence), []
    for method, score in itertools.product(METHODS, ("iou", "pointing-game")):
        own = every[every["method"] == method]
        note = "One point for each network; intervals over images and draws."
        drawn.append(
            Drawn(
                f"figure-4-{method}-{score}",
                f"Transfer against {score} ({method})",
                note,
                drawing.scatter(own, score, "transfer", "network", groups="family", labels=len(own) < 10),
            )
        )
    return drawn
