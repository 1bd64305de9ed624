"""Toy maps that explain the metrics: Figures 14, 15 and 16."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from verax.cases import Role, Truth
from verax.metrics import published
from verax.reports import INK, style
from verax.reproductions.smerf.figures import PRIMARY, SECONDARY, canvas

TEXT, BOX = (20, 39, 10, 23), (40, 50, 44, 54)
"""A letter of 247 and a box of 100 pixels, apart from each other."""

STEPS = tuple(0.3 * i for i in range(11))
THRESHOLDS = (100, 142, 185, 228, 271, 314, 357, 400)


def toy(box: float, text: float = 1.0, background: float = 0.001) -> Tensor:
    """A map ``(1, 64, 64)`` with one value on the letter, one on the box and one elsewhere."""
    values = torch.full((1, 64, 64), background, dtype=torch.float64)
    for (row0, row1, col0, col1), value in ((TEXT, text), (BOX, box)):
        values[:, row0:row1, col0:col1] = value
    return values


def toy_truth(count: int = 1) -> Truth:
    """The letter is primary and the box is secondary."""
    objects = torch.zeros(count, 2, 64, 64, dtype=torch.bool)
    for number, (row0, row1, col0, col1) in enumerate((TEXT, BOX)):
        objects[:, number, row0:row1, col0:col1] = True
    boxes = torch.tensor([TEXT, BOX]).expand(count, 2, 4)
    roles = torch.tensor([Role.FOCUS, Role.AVOID], dtype=torch.int8).expand(count, 2)
    return Truth.from_objects(objects, boxes, roles, ("text", "box"))


def levels(steps: Sequence[float] = STEPS, background: float = 0.001) -> pd.DataFrame:
    """PAFL and SAFL while the value on the box grows: columns box, pafl, safl."""
    values = torch.cat([toy(box, background=background) for box in steps])
    truth = toy_truth(len(steps))
    scores = [published.afl(values, truth, role).tolist() for role in (Role.FOCUS, Role.AVOID)]
    return pd.DataFrame({"box": list(steps), "pafl": scores[0], "safl": scores[1]})


def iou_at(values: Tensor, truth: Truth, thresholds: Sequence[int] = THRESHOLDS) -> Tensor:
    """The mean IOU with the primary boxes when K pixels are asked for, for each K: ``(N, K)``.

    Args:
        values: maps ``(N, H, W)`` of the published protocol.
        truth: the truth about the same cases.
        thresholds: the values of K.
    """
    return torch.stack([published.iou(values, truth, count=count) for count in thresholds], 1)


def afl_and_iou() -> Figure:
    """Both objects are lit, one a little less: AFL sees it, IOU does not (Figure 14); exact."""
    values, truth = toy(0.8), toy_truth()
    names = {"PAFL": (published.afl, Role.FOCUS), "SAFL": (published.afl, Role.AVOID)}
    names |= {"PIOU": (published.iou, Role.FOCUS), "SIOU": (published.iou, Role.AVOID)}
    scores = {name: float(metric(values, truth, role)) for name, (metric, role) in names.items()}
    with style():
        figure, grid = canvas(1, 2, 7.4, 3.4, gridspec_kw={"width_ratios": [1, 1.15]})
        picture, axes = grid[0]
        shown = picture.imshow(values[0].numpy(), cmap="gray", vmin=0, vmax=1)
        figure.colorbar(shown, ax=picture, shrink=0.8)
        for (row0, row1, col0, col1), colour, dashes in ((TEXT, PRIMARY, "-"), (BOX, SECONDARY, "--")):
            picture.add_patch(
                Rectangle(
                    (col0 - 1, row0 - 1),
                    col1 - col0 + 1,
                    row1 - row0 + 1,
                    fill=False,
                    edgecolor=colour,
                    linestyle=dashes,
                    linewidth=2,
                )
            )
        picture.set_title("text 1.0 (primary), box 0.8 (secondary)", fontsize=9.5, loc="left")
        picture.set_xticks([])
        picture.set_yticks([])
        colours = [PRIMARY, SECONDARY] * 2
        axes.bar(range(4), list(scores.values()), 0.7, color=colours, edgecolor="white")
        for place, value in enumerate(scores.values()):
            axes.text(place, value + 0.02, f"{value:.4g}", ha="center", fontsize=9)
        axes.set_xticks(range(4), list(scores))
        axes.set_ylim(0, 1.12)
        axes.set_title("scores at K = 247 (exact)", fontsize=9.5, loc="left")
    return figure


def threshold_curve(curve: pd.DataFrame) -> Figure:
    """IOU against the number of pixels that are asked for, one picture and the mean of all (Figure 15).

    Args:
        curve: columns threshold, sample, value, of one bucket; the first sample is drawn by itself.
    """
    wide = curve.pivot(index="sample", columns="threshold", values="value")
    rng = np.random.default_rng(0)
    drawn = wide.to_numpy()[rng.integers(0, len(wide), (1000, len(wide)))].mean(1)
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    with style():
        figure, grid = canvas(1, 1, 5.6, 3.5)
        axes = grid[0, 0]
        at, mean = list(wide.columns), wide.mean()
        reach = [mean - low, high - mean]
        axes.errorbar(
            at, mean, reach, color=PRIMARY, marker="o", capsize=3, label=f"mean of {len(wide)} pictures"
        )
        axes.plot(
            at, wide.iloc[0], color=INK, linestyle="--", marker="s", markersize=4, label="the first picture"
        )
        axes.axvline(247, color=SECONDARY, linestyle=":", label="area of the text (247)")
        axes.set_xlabel("K: pixels that the threshold must reach")
        axes.set_ylabel("PIOU")
        axes.set_ylim(0, 1)
        axes.set_xticks(at)
        axes.legend(title="caps: 95 % intervals", title_fontsize=8.5)
    return figure


def sweeps() -> Figure:
    """AFL while the secondary object grows stronger, on a dark and on a bright ground (Figure 16); exact."""
    titles = {0.001: "background 0.001", 0.8: "background 0.8"}
    with style():
        figure, grid = canvas(2, 1, 5.6, 5.6, sharex=True, sharey=True)
        for axes, (background, words) in zip(grid[:, 0], titles.items(), strict=True):
            table = levels(background=background)
            axes.plot(table["box"], table["pafl"], color=PRIMARY, marker="o", label="PAFL (text, value 1)")
            axes.plot(
                table["box"],
                table["safl"],
                color=SECONDARY,
                marker="s",
                linestyle="--",
                label="SAFL (box, value B)",
            )
            axes.set_title(words, fontsize=10, loc="left")
            axes.set_ylim(0, 1)
            axes.set_ylabel("AFL (exact)")
        grid[0, 0].legend()
        grid[1, 0].set_xlabel("B: value on the secondary box")
    return figure
