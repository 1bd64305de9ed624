"""Rendering TextBox, beside a straightforward loop with PIL.

python benchmarks/textbox.py
"""

from __future__ import annotations

import time

import numpy as np
import torch
from PIL import Image, ImageDraw

import verax
from verax.tasks.textbox import glyphs, renderers


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
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times)


def prepared(task, each, device):
    """Groups, streams and layouts of `each` scenes of all buckets."""
    groups = torch.tensor(task.groups, device=device).repeat_interleave(each)
    streams = task.streams(groups * 10**9 + torch.arange(len(groups), device=device), 0, "benchmark")
    return groups, streams, task.layout(groups, streams)


def main() -> None:
    """Print pictures a second and the ratio, for every background and device."""
    task = verax.task("textbox/complex-cr1")
    _, streams, layout = prepared(task, 200, "cpu")
    ours, theirs = task.render(layout, streams), pil_loop(layout, layout.states)
    print(f"same pictures: largest difference {float((ours - theirs).abs().max()):.4f} (of 1)")
    loop = len(layout.states) / best(lambda: pil_loop(layout, layout.states))
    print(f"PIL loop                   {loop:12.0f} pictures/s")
    for device in ["cpu"] + ["cuda"] * torch.cuda.is_available():
        for background, each in (("black", 200), ("noise", 20), ("texture", 20)):
            task = verax.task("textbox/complex-cr1", background=background)
            groups, streams, layout = prepared(task, each if device == "cpu" else 2000, device)
            drawn = len(groups) / best(lambda t=task, p=layout, s=streams: t.render(p, s))
            ratio = f"{drawn / loop:7.1f} x the loop"
            print(f"verax {device:4} {background:7} drawing {drawn:12.0f} pictures/s {ratio}")
        placed = len(groups) / best(lambda t=task, g=groups, s=streams: t.layout(g, s))
        print(f"verax {device:4}       placement {placed:12.0f} layouts/s")
    # on a CPU most of the time goes into getting fresh memory for 49 kB a picture
    task = verax.task("textbox/complex-cr1")
    _, streams, layout = prepared(task, 200, "cpu")
    behind = task.background.draw(streams, task.world.canvas)
    painted = len(behind) / best(lambda: renderers.draw(task.renderer, layout, task.world, behind))
    print(f"verax cpu  objects alone   {painted:12.0f} pictures/s {painted / loop:7.1f} x the loop")


if __name__ == "__main__":
    main()
