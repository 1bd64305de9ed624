"""Rates of 3 x 3 convolutions without a stride in full float32, in each of their spellings.

    python benchmarks/kernels.py [--device cuda] [--rows 200,2730]

For layers of VGG16, ResNet-18 (at 64 and 224 pixels) and AlexNet: TFLOP/s of the convolution and of its
transpose as PyTorch has them, and of the spellings in `verax.engine.kernels`; a star is at the one that is
chosen, and an equals sign at those that made the same of the same windows, as passes forward must. "turned"
is the convolution written as the transpose of another, and the other way round.
"""

from __future__ import annotations

import argparse
from functools import partial

import torch
from torch import Tensor

import asking
import timing
from verax.engine import kernels

LAYERS = (
    *((64, 64, 64), (64, 128, 32), (128, 128, 32), (128, 256, 16), (256, 256, 16)),
    *((256, 512, 8), (512, 512, 8), (512, 512, 4), (64, 64, 32), (128, 128, 16), (256, 256, 8)),
    *((64, 64, 56), (128, 128, 28), (256, 256, 14), (512, 512, 7), (256, 384, 4), (384, 384, 4)),
)
"""Channels in and out, and side."""

NAMES = {kernels.directly: "as it is", kernels.in_reverse: "turned", kernels.by_product: "product"}
SAME = (1, 1)


def rates(x: Tensor, weight: Tensor, seconds: float) -> dict[str, float]:
    """TFLOP/s of each spelling of one convolution."""
    work = 2 * len(x) * weight.numel() * x[0, 0].numel()

    calls = {name: partial(spelling, x, weight, SAME) for spelling, name in NAMES.items()}
    times = timing.best(calls, seconds, device=x.device.type)
    return {name: work / spent / 1e12 for name, spent in times.items()}


def level(spelling: kernels.Spelling, x: Tensor, weight: Tensor) -> bool:
    """Whether a convolution of a flat map is flat, to the last digit."""
    made = spelling(x[:1, :, :1, :1].expand_as(x).contiguous(), weight, SAME)[..., 1:-1, 1:-1]
    return bool((made == made[:1, :, :1, :1]).all())


def line(ins: int, outs: int, side: int, rows: int, device: str, seconds: float) -> str:
    """Both directions of one layer."""
    x = torch.randn(rows, ins, side, side, device=device)
    g = torch.randn(rows, outs, side, side, device=device)
    weight = torch.randn(outs, ins, 3, 3, device=device)
    text = f"{ins:>4} -> {outs:<4} {side:>2} x {side:<2} {rows:>5} rows"
    around = kernels.turned(weight, SAME)[0].contiguous()
    for what, given, kernel in (("forward", x, weight), ("transpose", g, around)):
        choose = kernels.forward if what == "forward" else kernels.spelling
        chosen = choose(kernel.shape, SAME, (side, side)) or kernels.directly
        found = rates(given, kernel, seconds)
        marks = {
            name: "*" * (spelling is chosen) + "=" * level(spelling, given, kernel)
            for spelling, name in NAMES.items()
        }
        cells = (f"{name} {rate:6.2f}{marks[name]}" for name, rate in found.items())
        text += f"  {what}: {', '.join(cells)}"
    return text


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda", type=asking.device, help="cuda (default) or cpu")
    parser.add_argument("--rows", default="222,2730")
    parser.add_argument("--seconds", type=asking.seconds, default=0.3, help="for each row")
    asked = parser.parse_args()
    cudnn = torch.backends.cudnn
    with cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
        for rows in map(int, asked.rows.split(",")):
            for layer in LAYERS:
                print(line(*layer, rows, asked.device, asked.seconds), flush=True)


if __name__ == "__main__":
    main()
