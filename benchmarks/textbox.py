"""Rendering TextBox, beside a straightforward loop with PIL.

python benchmarks/textbox.py
"""

from __future__ import annotations

import time

import numpy as np
import torch
from PIL import Image, ImageDraw

import verax
from verax.tasks.textbox import glyphs


def pil_loop(layout, states):
    """One picture at a time, as the published generator does."""
    letters = {
        i: Image.fromarray((ink * 255).astype("uint8")) for i, ink in enumerate(glyphs.LETTERS.values(), 1)
    }
    pictures = []
    for positions, state in zip(layout.positions.tolist(), states.tolist(), strict=True):
        image = Image.new("RGB", (64, 64))
        draw = ImageDraw.Draw(image)
        for index, size in ((0, 10), (1, 4)):
            if state[index]:
                y, x = positions[index]
                draw.rectangle((x, y, x + size - 1, y + size - 1), fill="white")
        if state[2]:
            y, x = positions[2]
            image.paste("white", (x, y), letters[state[2]])
        pictures.append(np.asarray(image, dtype=np.float32).transpose(2, 0, 1) / 255)
    return torch.from_numpy(np.stack(pictures))


def best(function, repeats=5):
    """The shortest of several runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Print pictures a second and the ratio."""
    task = verax.task("textbox/complex-cr1")
    groups = torch.tensor(task.groups).repeat_interleave(200)
    streams = task.streams(groups * 10**9 + torch.arange(len(groups)), 0, "benchmark")
    layout = task.layout(groups, streams)
    ours, theirs = task.render(layout, streams), pil_loop(layout, layout.states)
    print(f"same pictures: largest difference {float((ours - theirs).abs().max()):.4f} (of 1)")
    n = len(groups)
    loop = best(lambda: pil_loop(layout, layout.states))
    drawn = best(lambda: task.render(layout, streams))
    placed = best(lambda: task.layout(groups, streams))
    print(f"PIL loop        {n / loop:10.0f} pictures/s")
    print(f"verax renderer  {n / drawn:10.0f} pictures/s   {loop / drawn:5.1f} x the loop")
    print(f"verax placement {n / placed:10.0f} layouts/s")


if __name__ == "__main__":
    main()
