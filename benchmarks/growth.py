"""How time and memory grow with samples, steps, segments and masks: verax beside Captum, as ratios.

Each row is the peak memory, or the time, of eight times the work over that of the work itself, with a small
network of two convolutions. Memory is what the tensors of a call take beyond one copy of the inputs and the
maps; PyTorch counts them, so that every run finds the same.

python benchmarks/growth.py [--device cpu] [--write]
"""

from __future__ import annotations

import argparse
import logging
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import asking
import records
import timing
import verax
from contests import load
from records import Result
from verax.engine.segments import grid
from writing import times

TIMES = 8
FLAT, LINEAR = 1.5, 1.3 * TIMES
SMALL = 4.0
"""MiB below which a difference of peaks is nothing to speak of."""
SIDE = 64


@dataclass(frozen=True)
class Axis:
    """What grows.

    Attributes:
        method: of verax.
        word: what there is more of.
        ours: (inputs, targets, times as much) -> a call.
        theirs: the same of Captum.
    """

    method: str
    word: str
    ours: Callable[..., timing.Function]
    theirs: Callable[..., timing.Function]
    samples: int = 16


def network(device: str) -> nn.Module:
    """Two convolutions and a dense layer."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(
            *(nn.Conv2d(3, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 16, 3, 2), nn.ReLU(), nn.Flatten()),
            nn.Linear(16 * 14 * 14, 4),
        )
    for weight in model.parameters():
        weight.requires_grad_(False)
    return model.eval().to(device)


def axes(model: nn.Module) -> list[Axis]:
    """All of them."""

    def verax_(name: str, **known: Any) -> Callable[..., timing.Function]:
        def made(x: torch.Tensor, y: torch.Tensor, more: int) -> timing.Function:
            own = {key: value(more) if callable(value) else value for key, value in known.items()}
            return lambda: verax.explain(model, x, y, method=name, **own)

        return made

    def captum(name: str, **known: Any) -> Callable[..., timing.Function]:
        def made(x: torch.Tensor, y: torch.Tensor, more: int) -> timing.Function:
            own = {key: value(x, more) if callable(value) else value for key, value in known.items()}
            return lambda: getattr(load("captum.attr"), name)(model).attribute(x, target=y, **own)

        return made

    def labels(x: torch.Tensor, more: int) -> torch.Tensor:
        return grid(x, 16).labels

    def finer(x: torch.Tensor, more: int) -> torch.Tensor:
        return grid(x, 16 if more == 1 else SIDE // 12 + 1).labels

    return [
        Axis(
            "integrated-gradients",
            "samples",
            verax_("integrated-gradients", steps=8),
            captum("IntegratedGradients", n_steps=8),
            samples=64,
        ),
        Axis(
            "integrated-gradients",
            "steps",
            verax_("integrated-gradients", steps=lambda more: 40 * more),
            captum("IntegratedGradients", n_steps=lambda x, more: 40 * more),
        ),
        Axis(
            "smoothgrad",
            "draws",
            verax_("smoothgrad", samples=lambda more: 40 * more),
            lambda x, y, more: lambda: tunnel(model, x, y, 40 * more),
        ),
        Axis(
            "occlusion",
            "samples",
            verax_("occlusion", window=16, stride=8),
            captum("Occlusion", sliding_window_shapes=(3, 16, 16), strides=(3, 8, 8)),
            samples=64,  # what `explain` hands to a method at once
        ),
        Axis(
            "kernel-shap",
            "masks",
            verax_("kernel-shap", size=16, samples=lambda more: 32 * more),
            captum(
                "KernelShap",
                feature_mask=labels,
                n_samples=lambda x, more: 32 * more,
                perturbations_per_eval=32,
            ),
            samples=4,
        ),
        Axis(
            "kernel-shap",
            "segments",
            verax_("kernel-shap", size=lambda more: 16 if more == 1 else SIDE // 12 + 1, samples=64),
            captum("KernelShap", feature_mask=finer, n_samples=64, perturbations_per_eval=32),
            samples=4,
        ),
    ]


def tunnel(model: nn.Module, x: torch.Tensor, y: torch.Tensor, draws: int) -> torch.Tensor:
    """SmoothGrad of Captum as it comes."""
    attr = load("captum.attr")
    return attr.NoiseTunnel(attr.Saliency(model)).attribute(
        x, nt_samples=draws, stdevs=0.1, target=y, abs=False
    )


def measured(axis: Axis, device: str) -> list[Result]:
    """Growth of time and of memory along one axis."""
    spent: dict[str, list[float]] = {}
    used: dict[str, list[float]] = {}
    notes = {}
    for who, make in (("verax", axis.ours), ("captum", axis.theirs)):
        calls, sizes = [], []
        for more in (1, TIMES):
            count = axis.samples * (more if axis.word == "samples" else 1)
            x = torch.rand(count, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0)).to(device)
            y = (torch.arange(count) % 4).to(device)
            calls.append(make(x, y, more))
            sizes.append(2 * x.numel() * 4 / 2**20)  # a copy and the maps
        try:
            for call in calls:
                call()
        except ImportError:
            notes[who] = "not installed"
            continue
        peaks = [timing.peak_of_tensors(call, device) for call in calls]
        times = timing.best({"one": calls[0], "more": calls[1]}, 0.5, device)
        spent[who] = [times["one"], times["more"]]
        used[who] = [max(peak - size, SMALL) for peak, size in zip(peaks, sizes, strict=True)]
    found = []
    for what, table, limit in (("memory", used, FLAT), ("time", spent, LINEAR)):
        growth = {who: more / one for who, (one, more) in table.items()}
        if "verax" not in growth:
            continue
        peers = {who: value for who, value in growth.items() if who != "verax"}
        found.append(
            Result(
                "growth",
                f"{axis.method}: {what} of {TIMES} times the {axis.word}",
                "two convolutions",
                axis.samples,
                device,
                ours=growth["verax"],
                unit=f"{what} of the work itself",
                peers=peers,
                peer="captum" if peers else None,
                ratio=growth["verax"],
                target=limit,
                sense="at most",
                memory={who: pair[1] for who, pair in used.items()} if what == "memory" else {},
                notes=notes,
            )
        )
        print(said(found[-1]), flush=True)
    return found


def said(result: Result) -> str:
    """A row as a line."""
    peers = ", ".join(f"{name} {times(value)}" for name, value in result.peers.items())
    word = "met" if result.met else "not met"
    return f"{result.row:55s}{times(result.ratio):>8}  at most {result.target:g}×: {word:8}  {peers}"


def main() -> None:
    """Measure, print, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", type=asking.device, help="cpu (default) or cuda")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    start = time.perf_counter()
    found = [result for axis in axes(network(asked.device)) for result in measured(axis, asked.device)]
    print(f"{time.perf_counter() - start:.0f} s")
    if asked.write:
        suffix = "" if asked.device == "cpu" else f"-{asked.device}"
        line = f"python benchmarks/growth.py --device {asked.device} --write"
        record = records.Record(
            f"growth{suffix}", line, records.machine(asked.device), records.versions(), found
        )
        print(records.write(record).name)


if __name__ == "__main__":
    main()
