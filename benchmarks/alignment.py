"""Shared Interest scoring beside a loop over images in NumPy, in one process, as ratios.

Two calls are timed: `shared_interest`, which gives five scores, and `judge`, which gives them beside those of
as many pixels at random places and around the middle. The loops give the same numbers, image by image, in
float64, as they are usually written. The last columns are a floor: what it takes to read maps and masks once,
and the ratio of a program that did nothing else: where that is below 20, no program reaches 20.

python benchmarks/alignment.py [--device cuda] [--repeats 5]
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from scipy.stats import hypergeom

from verax.metrics.alignment import SCORES, Judging, judge, shared_interest
from verax.metrics.binarisation import Binarisation
from verax.metrics.chance import centre_bump

SIZES = {28: 10_000, 64: 2048, 224: 192}
"""Side of the maps -> how many of them are scored."""
FEW = {28: 100, 64: 20, 224: 4}
"""How many the loop over chance is timed on; it takes up to a second for each."""


def overlaps(region, mask, values, place):
    """The five scores of one image."""
    both = np.logical_and(region, mask).sum()
    return (
        both / np.logical_or(region, mask).sum(),
        both / mask.sum(),
        both / region.sum(),
        float(mask[place]),
        (values * mask).sum() / values.sum(),
    )


def scores_of(values, mask):
    """Scores of a map, and what it shows."""
    scaled = (values - values.min()) / (values.max() - values.min())
    region = scaled >= scaled.mean() + scaled.std()
    return overlaps(region, mask, values, np.unravel_index(scaled.argmax(), scaled.shape)), region


def loop(maps, masks):
    """The five scores of each image, one image after the other."""
    return np.array([scores_of(values, mask)[0] for values, mask in zip(maps, masks, strict=True)])


def loop_with_chance(maps, masks):
    """The same, beside those of random places and of the middle: 15 numbers for each image."""
    rows = []
    bump = centre_bump(*maps.shape[1:], torch.device("cpu")).numpy()
    ranks = np.empty(bump.size, int)
    ranks[np.argsort(-bump.ravel(), kind="stable")] = np.arange(bump.size)
    ranks = ranks.reshape(bump.shape)
    for values, mask in zip(maps, masks, strict=True):
        own, region = scores_of(values, mask)
        shown, marked, total = region.sum(), mask.sum(), mask.size
        both = np.arange(max(0, shown + marked - total), min(shown, marked) + 1)
        iou = (hypergeom(total, marked, shown).pmf(both) * both / (shown + marked - both)).sum()
        area = marked / total
        middle = overlaps(ranks < shown, mask, bump, (0, 0))
        peak = mask[bump == bump.max()].mean()
        rows.append((*own, iou, shown / total, area, area, area, *middle[:3], peak, middle[4]))
    return np.array(rows)


def fastest(function, repeats, device):
    """Seconds of the fastest of several calls; on a CPU those of the processor, all threads together."""
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    best = float("inf")
    for _ in range(repeats + 1):
        start = clock()
        function()
        if device.type == "cuda":
            torch.cuda.synchronize()
        best = min(best, clock() - start)
    return best


def main():
    """Print microseconds for one image and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    device, here = torch.device(options.device), torch.device("cpu")
    judging = Judging(Binarisation("std", 1.0))
    head = (
        f"{'call':<16}{'maps':>10}{'NumPy loop':>13}{'verax':>11}{'ratio':>7}{'one read':>11}{'at most':>9}"
    )
    print(head)
    for side, count in SIZES.items():
        generator = torch.Generator().manual_seed(0)
        maps = torch.rand(count, side, side, generator=generator)
        masks = torch.rand(count, side, side, generator=generator) < 0.2
        there, marked = maps.to(device), masks.to(device)
        words = marked.flatten().view(torch.int64)
        read = fastest(lambda a=there, b=words: (a.sum(), b.sum()), options.repeats, device) / count
        few = FEW[side]
        some, own = maps[:few].double().numpy(), masks[:few].numpy()
        many, all_masks = maps.double().numpy(), masks.numpy()
        judged = judge(there, marked, judging)
        found = [
            group[name][:few] for group in (judged.scores, judged.random, judged.centre) for name in SCORES
        ]
        # the same scores, or the comparison means nothing; a pixel at the level may fall on either side
        found = torch.stack(found, 1).cpu().numpy()
        np.testing.assert_allclose(found, loop_with_chance(some, own), atol=2e-3)
        slow = fastest(lambda a=many, b=all_masks: loop(a, b), 2, here) / count
        slowest = fastest(lambda a=some, b=own: loop_with_chance(a, b), 1, here) / few
        for call, theirs in ((shared_interest, slow), (judge, slowest)):
            fast = (
                fastest(lambda c=call, a=there, b=marked: c(a, b, judging), options.repeats, device) / count
            )
            print(
                f"{call.__name__:<16}{side:>5} x {side:<3}{theirs * 1e6:>10.1f}us{fast * 1e6:>9.2f}us"
                f"{theirs / fast:>6.0f}x{read * 1e6:>9.2f}us{theirs / read:>8.0f}x"
            )


if __name__ == "__main__":
    main()
