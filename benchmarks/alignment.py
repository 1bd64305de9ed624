"""Shared Interest scoring beside a loop over images in NumPy, in one process, as ratios.

python benchmarks/alignment.py [--device cuda] [--repeats 5]
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from verax.metrics.alignment import SCORES, Judging, shared_interest
from verax.metrics.binarisation import Binarisation

SIZES = {28: 10_000, 64: 2048, 224: 192}
"""Side of the maps -> how many of them are scored."""


def loop(maps, masks):
    """The five scores of each image, one image after the other, as they are usually written."""
    rows = []
    for values, mask in zip(maps, masks, strict=True):
        scaled = (values - values.min()) / (values.max() - values.min())
        region = scaled >= scaled.mean() + scaled.std()
        both = np.logical_and(region, mask).sum()
        place = np.unravel_index(scaled.argmax(), scaled.shape)
        rows.append(
            (
                both / np.logical_or(region, mask).sum(),
                both / mask.sum(),
                both / region.sum(),
                float(mask[place]),
                (values * mask).sum() / values.sum(),
            )
        )
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
    """Print microseconds for one image and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    device = torch.device(options.device)
    judging = Judging(Binarisation("std", 1.0))
    print(f"{'maps':>12} {'NumPy loop':>12} {'verax':>12} {'ratio':>8}")
    for side, count in SIZES.items():
        generator = torch.Generator().manual_seed(0)
        maps = torch.rand(count, side, side, generator=generator)
        masks = torch.rand(count, side, side, generator=generator) < 0.2
        wanted = loop(maps.numpy(), masks.numpy())
        there, marked = maps.to(device), masks.to(device)
        found = shared_interest(there, marked, judging)
        for column, name in enumerate(SCORES):  # the same scores, or the comparison means nothing
            np.testing.assert_allclose(
                found[name].cpu().numpy(), wanted[:, column], atol=2e-3
            )  # a pixel at the level may fall on either side
        slow = fastest(
            lambda maps=maps, masks=masks: loop(maps.numpy(), masks.numpy()), 2, torch.device("cpu")
        )
        fast = fastest(
            lambda there=there, marked=marked: shared_interest(there, marked, judging),
            options.repeats,
            device,
        )
        one = 1e6 / count
        print(f"{side:>7} x {side:<3}{slow * one:>11.1f}us{fast * one:>11.2f}us{slow / fast:>7.0f}x")


if __name__ == "__main__":
    main()
