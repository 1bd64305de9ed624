"""Runs the tutorials, fills in what they print, and draws their pictures from what they leave behind.

python tools/tutorials.py              all of them
python tools/tutorials.py judge audit  some
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib import pyplot as plt
from matplotlib.colors import TwoSlopeNorm

import pages
import verax
from verax.reports.gallery import levels, palette, with_truth
from verax.studies.comparisons import ranking

DOCS = Path(__file__).resolve().parent.parent / "docs"
PICTURES = DOCS / "images" / "tutorials"
BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#999999"
"""Colours that everybody can tell apart (Okabe and Ito)."""

Names = dict[str, Any]


def save(figure: Any, name: str) -> None:
    """Write a picture with few colours, so that it stays small."""
    from PIL import Image

    path = PICTURES / f"{name}.png"
    figure.savefig(path, dpi=130, bbox_inches="tight", facecolor="white")
    plt.close(figure)
    Image.open(path).convert("RGB").quantize(200, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.relative_to(DOCS)}: {path.stat().st_size / 1000:.0f} kB")


def bare(axes: Any, title: str = "") -> None:
    """No ticks and no frame: a picture and its title."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title(title, fontsize=9)
    for side in axes.spines.values():
        side.set_visible(False)


def coloured(flat: np.ndarray) -> np.ndarray:
    """A signed map as the reports colour it: green for, purple against."""
    return palette()[levels(flat / max(float(np.abs(flat).max()), 1e-30))]


def judge(names: Names) -> None:
    """The leaderboard as bars, and one scene with the maps of four methods."""
    board = names["board"].iloc[::-1]
    figure, axes = plt.subplots(figsize=(7, 3))
    kinds = np.where(board["skill"].isna(), GREY, BLUE)
    errors = np.stack([board["value"] - board["low"], board["high"] - board["value"]]).clip(0)
    axes.barh(board["method"], board["value"], color=kinds, xerr=errors, ecolor="black", capsize=2)
    best = board.loc[board["method"].isin(["input", "edge", "centre", "random"]), "value"].max()
    axes.axvline(best, color=ORANGE, linestyle="--")
    axes.text(best, len(board) - 0.4, "best control", color=ORANGE, fontsize=8, ha="center", va="bottom")
    axes.set_xlabel("share of the map on what the network uses (95 % interval)")
    axes.spines[["top", "right"]].set_visible(False)
    save(figure, "judge")

    task = verax.task("textbox/complex-cr2")
    cases, model = task.cases(group=11, n=1), task.network("cnn4")
    methods = ["mine", "integrated-gradients", "gradient", "grad-cam"]
    figure, panels = plt.subplots(1, 5, figsize=(9, 2.1))
    pixels = (cases.inputs[0] * 255).round().byte().numpy()
    panels[0].imshow(with_truth(pixels, cases.truth.focus[0].numpy(), cases.truth.avoid[0].numpy()))
    bare(panels[0], "truth")
    for axes, method in zip(panels[1:], methods, strict=True):
        maps = verax.explain(model, cases.inputs, cases.targets, method, ids=cases.ids)
        share = verax.score(maps, cases, protocol="sound")["focus-share"][0]
        axes.imshow(coloured(maps[0].sum(0).double().numpy()), interpolation="nearest")
        bare(axes, f"{method}\n{share:.2f}")
    save(figure, "judge-maps")


def audit(names: Names) -> None:
    """Faces with their mouth outlined, and where the model looks."""
    drawn, model = names["drawn"], names["model"]
    some = torch.arange(0, len(drawn.images), len(drawn.images) // 6)[:6]
    images, masks = drawn.images[some], drawn.masks[some]
    maps = verax.explain(model, images, method="grad-cam").sum(1).numpy()
    figure, panels = plt.subplots(2, len(some), figsize=(9, 3.2))
    for column, (image, mask, shown) in enumerate(zip(images, masks, maps, strict=True)):
        for row in (0, 1):
            panels[row, column].imshow(image.permute(1, 2, 0).numpy())
            panels[row, column].contour(mask.numpy(), levels=[0.5], colors=["#ffffff"], linewidths=2.4)
            panels[row, column].contour(mask.numpy(), levels=[0.5], colors=[BLUE], linewidths=1.4)
            bare(panels[row, column])
        panels[1, column].imshow(shown, cmap="inferno", alpha=0.65)
    panels[0, 0].set_ylabel("mouth, marked", fontsize=9)
    panels[1, 0].set_ylabel("Grad-CAM", fontsize=9)
    save(figure, "audit")


def reasoning(names: Names) -> None:
    """Scenes of the new world with their truth."""
    task, cases = names["task"], names["cases"]
    figure, panels = plt.subplots(1, 6, figsize=(10, 2.1))
    telling = cases.truth.focus.flatten(1).any(1)  # scenes with something to see first
    for axes, place in zip(panels, torch.argsort(~telling, stable=True)[:6].tolist(), strict=True):
        pixels = (cases.inputs[place] * 255).round().byte().numpy()
        axes.imshow(with_truth(pixels, cases.truth.focus[place].numpy(), cases.truth.avoid[place].numpy()))
        group, label = int(cases.group[place]), int(cases.targets[place])
        bare(axes, f"{task.describe(group)}\nlabel {label}")
    save(figure, "reasoning")


def climate(names: Names) -> None:
    """The truth of one sample and four maps on latitudes and longitudes."""
    run = verax.Run(next(Path("runs").glob("sst-quick-*")))
    maps, cases = run.maps(), run.cases()
    stem = next(key for key in cases if key.endswith("|values")).removesuffix("values")
    cells, lat, lon = (cases[f"{stem}{name}"].numpy() for name in ("cells", "latitudes", "longitudes"))
    chosen = ["integrated-gradients", "deeplift-rescale", "input-x-gradient", "gradient"]
    shown = {"truth": cases[f"{stem}values"][0].numpy()}
    for method in chosen:
        shown[method] = next(value for key, value in maps.items() if key.endswith(f"|{method}"))[0].numpy()
    figure, panels = plt.subplots(1, 5, figsize=(12, 1.9), layout="constrained")
    for axes, (name, values) in zip(panels, shown.items(), strict=True):
        board = np.full((len(lat), len(lon)), np.nan)
        board[cells[:, 0], cells[:, 1]] = values
        top = float(np.nanquantile(np.abs(board), 0.99))
        axes.set_facecolor("#cccccc")
        axes.pcolormesh(lon, lat, board, cmap="PRGn", norm=TwoSlopeNorm(0, -top, top), shading="nearest")
        r = np.corrcoef(values, shown["truth"])[0, 1]
        axes.set_title(name if name == "truth" else f"{name}\nr = {r:.2f}", fontsize=9)
        axes.tick_params(labelsize=6)
    save(figure, "climate")


def choose(names: Names) -> None:
    """Mean ranks with the critical difference, and simple against complex reasonings."""
    run, candidates = names["run"], names["candidates"]
    found = ranking(run.scores, run.families)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3), layout="constrained")
    order = list(found.ranks)[::-1]
    left.errorbar(
        [found.ranks[name] for name in order], order, xerr=found.critical / 2, fmt="o", color=BLUE, capsize=3
    )
    left.set_title("Mean ranks; methods whose bars overlap cannot be told apart", fontsize=9)
    left.set_xlabel("mean rank (1 is best)")
    boards = {family: run.leaderboard(family=family).set_index("method") for family in ("simple", "complex")}
    for number, name in enumerate(candidates):
        rows = [boards[family].loc[name] for family in boards]
        errors = np.array([[r["value"] - r["low"], r["high"] - r["value"]] for r in rows]).clip(0).T
        style = ["o-", "s-", "^-", "v--", "D--", "x--"][number % 6]
        right.errorbar([0, 1], [r["value"] for r in rows], yerr=errors, fmt=style, capsize=2, label=name)
    right.set_xticks([0, 1], ["simple", "complex"])
    right.set_xlim(-0.2, 1.2)
    right.set_ylabel("focus share")
    right.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    save(figure, "choose")


def report(names: Names) -> None:
    """Bucket means of the methods, setting by setting."""
    buckets = names["buckets"]
    methods = ["input-x-gradient", "smoothgrad", "grad-cam", "input", "oracle"]
    table = buckets.pivot(index=["task", "scene"], columns="method", values="value")[methods]
    figure, axes = plt.subplots(figsize=(6.5, 5))
    picture = axes.imshow(table.to_numpy(), cmap="cividis", vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(len(methods)), methods, rotation=20, ha="right", fontsize=8)
    axes.set_yticks(range(len(table)), [f"{t.partition('/')[2]}: {s}" for t, s in table.index], fontsize=7)
    for (row, column), value in np.ndenumerate(table.to_numpy()):
        colour = "black" if value > 0.55 else "white"
        axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=7, color=colour)
    figure.colorbar(picture, label="focus share")
    save(figure, "report")


DRAWINGS = {"judge": judge, "audit": audit, "reasoning": reasoning}
DRAWINGS |= {"climate": climate, "choose": choose, "report": report}


def main() -> int:
    """Run and draw."""
    os.environ |= {"COLUMNS": "96", "NO_COLOR": "1", "TERM": "dumb"}
    mpl.use("agg")
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[1:] or DRAWINGS:
        page, names = DOCS / "tutorials" / f"{name}.md", Names()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            os.environ["VERAX_STORE"] = str(Path(folder) / "store")  # nothing is there yet, as for a reader
            outputs = pages.run(page, small=False, namespace=names)
            DRAWINGS[name](names)
            os.chdir(DOCS)
        pages.fill(page, outputs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
