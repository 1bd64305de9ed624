"""Experiment 1: a colour box that gives the digit away, on MNIST or on digits that need no files.

Bang, Boggust and Satyanarayan, "Explanation Alignment" (ECCV 2024 workshops), section 4.1 and Table 1.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from verax.errors import MissingFile
from verax.metrics.chance import random_iou
from verax.metrics.shared_interest import Counts
from verax.reproductions.alignment import drawing
from verax.reproductions.alignment.drawing import Drawn
from verax.reproductions.alignment.measuring import RIGHT, Evidence, measure, shown, some, summary
from verax.reproductions.alignment.models import DigitNet
from verax.reproductions.alignment.options import Options
from verax.reproductions.alignment.training import DIGITS, Lesson, Recipe, trained
from verax.reproductions.claims import Floats, NotTestable
from verax.tasks.alignment.digits import ColourDigits, available

CLEAN, SPURIOUS = "not-spurious", "spurious"
TRAIN = {CLEAN: "random", SPURIOUS: "spurious"}
"""Network -> how the boxes of its training images get their colour."""
TESTS = {"permuted": "permuted", "random": "random", "spurious": "spurious"}
"""Test sets: what was published as not-spurious, the same done properly, and the spurious one."""
METHOD = "gradient"
SMALL = Recipe(6, 32, 0.001, "adam", 0.8)
"""For digits that are few: SGD would need many more epochs."""
QUICK = Recipe(2, 32, 0.001, "adam", 0.8)
PAPER = {
    # network, part: accuracy, IoU, PG of the notebook on the (permuted) not-spurious and the spurious test
    (CLEAN, "digit"): ((0.9807, 0.2939, 0.6978), (0.9806, 0.2939, 0.6985)),
    (SPURIOUS, "digit"): ((0.4608, 0.0866, 0.0480), (0.9964, 0.1526, 0.2142)),
    (CLEAN, "box"): ((0.9802, 0.0014, 0.0000), (0.9806, 0.0017, 0.0000)),
    (SPURIOUS, "box"): ((0.4553, 0.2218, 0.9371), (0.9964, 0.1442, 0.6129)),
}
"""The eight cells behind Table 1, from the authors' notebook."""
TABLE_1 = {"digit": (0.087, 0.048), "box": (0.222, 0.937)}
"""IoU and PG of the spurious network as the paper prints them."""
_PIXELS = 28 * 28
_NOISE = 0.162
"""The part of a picture in which the magnitude of noise exceeds its mean by a standard deviation."""


def lesson(colouring: str, seed: int, source: str, most: int | None = None) -> Lesson:
    """Training digits, all or the first of them; random colours are drawn anew in each epoch."""
    images = ColourDigits("train", colouring, seed, source=source)
    current = [images]

    def draw(epoch: int, rows: Tensor) -> tuple[Tensor, Tensor]:
        if current[0].epoch != epoch:
            current[0] = images.at_epoch(epoch)
        batch = current[0].draw(rows)
        return batch.images, batch.labels

    count = len(images) if most is None else min(most, len(images))
    known = images.fingerprint() if most is None else {**images.fingerprint(), "count": count}
    return Lesson(images.name, count, draw, known)


def gather(options: Options) -> Evidence:
    """Train both networks, and compare their maps with digit and box on three test sets."""
    if options.data is not None:
        raise MissingFile("Digits are looked for in the folder 'mnist' under VERAX_DATA; there is no --data.")
    source = "scikit-learn" if options.quick and available() == "mnist" else available()
    recipe = QUICK if options.quick else DIGITS if source == "mnist" else SMALL
    seeds = options.seeds if options.seeds is not None else (0,) if options.quick else (0, 1, 2)
    others = [name for name in options.methods if name != METHOD]
    few = min(options.samples or 200, 20 if options.quick else 200)
    rows, pictures = [], []
    for seed in seeds:
        for network, colouring in TRAIN.items():
            model = trained(
                DigitNet,
                lesson(colouring, seed, source),
                recipe,
                seed,
                device=options.device,
                store=options.store,
                quiet=options.quiet,
            )
            for test in TESTS:
                images = ColourDigits("test", TESTS[test], seed, source=source)
                labels = {"network": network, "seed": seed, "test": test}
                for methods, most in (([METHOD], options.samples), (others, few)):
                    if not methods or (methods == others and test != "random"):
                        continue
                    keep = 6 if seed == seeds[0] and methods == [METHOD] else 0
                    table, kept = measure(
                        model,
                        some(images, most if not options.quick else few),
                        methods,
                        ("digit", "box"),
                        labels,
                        batch=128,
                        device=options.device,
                        keep=keep,
                    )
                    rows.append(table)
                    pictures += kept
    found = pd.concat(rows, ignore_index=True)
    permutation = ColourDigits("test", "permuted", seeds[0], source=source).permutation()
    facts = {
        "source": source,
        "published": source == "mnist" and not options.quick,
        "fixed": int((permutation == torch.arange(10)).sum()),
        "about": (
            f"Digits: {'MNIST' if source == 'mnist' else source + ', in place of MNIST'}. {len(seeds)}"
            f" network{'s' if len(seeds) > 1 else ''} of each kind, {recipe.epochs} epochs of"
            f" {recipe.optimiser.upper()} in batches of {recipe.batch}. {METHOD} on"
            f" {len(found[found['method'] == METHOD]['image'].unique()):,} test images, other methods on"
            f" {few}. Intervals are 95 % bootstrap intervals over networks and images."
        ),
    }
    return Evidence(found, facts, pictures)


def over_permutations(evidence: Evidence, score: str, part: str, draws: int = 2000) -> Floats:
    """What the published not-spurious test gives over permutations of the colours: ``(networks, draws)``.

    A permutation gives each digit one colour, so that the score of a spurious network is a sum over ten of
    the hundred pairs of digit and colour, which are all in the test with random colours. Over permutations
    the mean is that of random colours.
    """
    rows = evidence.where(network=SPURIOUS, test="random", part=part, method=METHOD)
    picks = np.random.default_rng(0).permuted(np.tile(np.arange(10), (draws, 1)), axis=1)
    found = []
    for _, own in rows.groupby("seed", sort=True):
        pairs = own.groupby(["label", "colour"])[score].mean().unstack().to_numpy(np.float64)
        shares = own["label"].value_counts(normalize=True).sort_index().to_numpy()
        if pairs.shape != (10, 10) or np.isnan(pairs).any():
            raise NotTestable("Too few images: not every digit was seen with every colour.")
        found.append(pairs[np.arange(10), picks] @ shares)
    result: Floats = np.stack(found)
    return result


def noise_iou(evidence: Evidence, network: str, test: str) -> float:
    """Expected IoU of noise with the digits: magnitudes of normal numbers, mean + 1 standard deviation."""
    areas = evidence.where(network=network, test=test, part="digit", method=METHOD)["area"].to_numpy()
    marked = torch.tensor(np.rint(areas * _PIXELS)).long()
    shown = torch.full_like(marked, round(_NOISE * _PIXELS))
    return float(random_iou(Counts(shown, marked, shown, _PIXELS)).nanmean())


def cells(evidence: Evidence) -> pd.DataFrame:
    """The eight cells, and four more for the test that is done properly, beside the published ones."""
    table = summary(evidence.where(method=METHOD))
    found = shown(table)
    for name, place in ((RIGHT, 0), ("iou", 1), ("pointing-game", 2)):
        column = []
        for row in table.itertuples():
            pair = PAPER[row.network, row.part]
            column.append(
                {"permuted": f"{pair[0][place]:.3f}", "spurious": f"{pair[1][place]:.3f}"}.get(row.test, "–")
            )
        found[f"{name}, notebook"] = column
    return found.drop(columns="method")


def by_method(evidence: Evidence) -> pd.DataFrame:
    """All methods on the test that is done properly."""
    return shown(summary(evidence.where(test="random"))).drop(columns="test")


def tables(evidence: Evidence) -> dict[str, pd.DataFrame]:
    """Table 1 in full, and how far it depends on the method."""
    seeds = summary(evidence.where(method=METHOD).assign(seed_=lambda t: t["seed"]), by=["seed_"])
    seeds = shown(seeds).rename(columns={"seed_": "seed"})
    return {
        "Table 1 all eight cells and the test done properly": cells(evidence),
        "Every method": by_method(evidence),
        "Every network": seeds.drop(columns=["method", "networks"]),
    }


def figures(evidence: Evidence) -> list[Drawn]:
    """Pictures as in Figure 1, and bars for the methods."""
    drawn = []
    kinds = {(p.labels["network"], p.labels["test"], p.id): p for p in evidence.pictures}
    ids = list(dict.fromkeys(p.id for p in evidence.pictures))[:4]
    lines = [[kinds[network, "random", name] for network in TRAIN] for name in ids]
    titles = [f"{network} network" for network in TRAIN]
    for part in ("digit", "box"):
        note = "The + is the strongest pixel; the outline is what people marked. O: it lies inside."
        drawn.append(
            Drawn(
                f"figure-1-{part}",
                f"What both networks look at, against the {part}",
                note,
                drawing.strip(lines, part, titles),
            )
        )
    every = summary(evidence.where(test="random"))
    every["which"] = [f"{n} network, {p}" for n, p in zip(every["network"], every["part"], strict=True)]
    note = "Test images with random colours. Ticks are chance for a part of that size."
    for score in ("iou", "pointing-game"):
        drawn.append(
            Drawn(
                f"methods-{score}",
                f"Every method: {score}",
                note,
                drawing.bars(every, score, "which", "method"),
            )
        )
    return drawn
