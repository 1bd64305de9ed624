"""Metrics beside Quantus: the same maps, masks and networks, ratios and values.

Values must agree where the definitions do; where they differ, the note says in what. It also races TextBox
and the climate field against loops that make a sample at a time, and starting verax against importing torch.

python benchmarks/metric_races.py [--write] [--only metrics|data|start-up]
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import climate
import records
import textbox
import timing
import verax
from contests import load
from records import Result
from verax.metrics.alignment import collapse
from verax.metrics.faithfulness import max_sensitivity, pixel_flipping
from verax.metrics.overlap import rank_accuracy, roc_area
from verax.metrics.pointing import pointing
from verax.metrics.shared_interest import energy
from workloads import workload

TARGET = 20.0
SECONDS = 2.0


@dataclass(frozen=True)
class Race:
    """A metric of verax and of Quantus.

    Attributes:
        ours: gives values ``(N,)`` or ``(N, steps)``.
        theirs: the same of Quantus.
        same: whether the definitions agree, so that the values must.
        tolerance: the largest difference between values that are the same.
        note: in what the definitions differ.
    """

    ours: Callable[[], Tensor]
    theirs: Callable[[], Any]
    same: bool = True
    tolerance: float = 1e-6
    note: str = ""


class Grey(nn.Module):
    """A network for pictures of one channel: Quantus flips the channels of a pixel one by one."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        """The outputs for grey pictures."""
        return self.model(x.expand(-1, 3, -1, -1))


def pictures(count: int) -> tuple[Any, Tensor, Tensor, Tensor, Tensor]:
    """The network of TextBox, inputs, targets, maps of one channel and masks."""
    w = workload("cnn4").first(count)
    maps = collapse(verax.explain(w.model, w.x, w.y, method="gradient").abs())
    masks = (w.x.sum(1) > 0).contiguous()
    return Grey(w.model).eval(), w.x[:, :1].contiguous(), w.y, maps, masks


def races(count: int = 64) -> dict[str, Race]:
    """All metrics that both have, on `count` pictures."""
    quantus = load("quantus")
    model, x, y, maps, masks = pictures(count)
    arrays = {
        "x_batch": x.numpy(),
        "y_batch": y.numpy(),
        "a_batch": maps[:, None].numpy(),
        "s_batch": masks[:, None].numpy(),
    }
    quiet = {"disable_warnings": True, "display_progressbar": False}

    def asked(name: str, masked: bool = True, **known: Any) -> Callable[[], Any]:
        made = getattr(quantus, name)(**quiet, **known)
        given = arrays if masked else {k: v for k, v in arrays.items() if k != "s_batch"}
        return lambda: made(model=model, batch_size=64, **given)

    step = x[0, 0].numel() // 32
    flipped = maps[:, None]

    def theirs_sensitive() -> Any:
        made = quantus.MaxSensitivity(nr_samples=10, lower_bound=0.02, **quiet)
        return made(
            model=model,
            x_batch=arrays["x_batch"],
            y_batch=arrays["y_batch"],
            explain_func=lambda model, inputs, targets, **_: verax.explain(
                model, torch.as_tensor(inputs), torch.as_tensor(targets), "gradient"
            ).numpy(),
            batch_size=64,
        )

    return {
        "pointing game": Race(lambda: pointing(maps, masks, ties="first"), asked("PointingGame")),
        "rank accuracy": Race(lambda: rank_accuracy(maps, masks), asked("RelevanceRankAccuracy")),
        "mass accuracy": Race(lambda: energy(maps, masks), asked("RelevanceMassAccuracy"), tolerance=1e-5),
        "ROC area": Race(lambda: roc_area(maps, masks), asked("AUC")),
        "pixel flipping": Race(
            lambda: pixel_flipping(model, x, y, flipped, steps=32, output="probability")[:, 1:],
            asked("PixelFlipping", masked=False, features_in_step=step, perturb_baseline="black"),
        ),
        "max-sensitivity": Race(
            lambda: max_sensitivity(model, x, y, "gradient", samples=10, radius=0.02),
            theirs_sensitive,
            same=False,
            note="random draws; the same method is explained again by both",
        ),
    }


def metrics() -> list[Result]:
    """Metrics beside Quantus; the unit is our own call."""
    found = []
    for name, race in races().items():
        ours, theirs = race.ours(), torch.as_tensor(np.array(race.theirs(), dtype=float))
        gap = float((ours.double().cpu() - theirs.reshape(ours.shape)).abs().max())
        notes = {}
        if race.same and not gap <= race.tolerance:
            notes["quantus"] = f"another value: up to {gap:.2g} away"
        elif race.note:
            notes["quantus"] = race.note
        times = timing.best({"verax": race.ours, "quantus": race.theirs}, SECONDS)
        result = records.race(
            "metrics",
            name,
            {who: spent / times["verax"] for who, spent in times.items()},
            network="cnn4, TextBox",
            batch=len(ours),
            unit="call of verax",
            target=TARGET,
            notes=notes,
        )
        found.append(result)
        show(result)
    return found


def data() -> list[Result]:
    """Making samples beside loops that make one at a time."""
    task = verax.task("textbox/complex-cr1")
    _, streams, layout = textbox.prepared(task, 50, "cpu")  # of more than 32 MB each page is mapped anew
    states = layout.states
    same = float((task.render(layout, streams) - textbox.pil_loop(layout, states)).abs().max())
    drawn = timing.best(
        {
            "verax": lambda: task.render(layout, streams),
            "PIL loop": lambda: textbox.pil_loop(layout, states),
        },
        SECONDS,
    )
    field = verax.task("climate/analytic", samples=20_000)
    field.drawn("test", 2000).chunk(0, "cpu")  # factor and closed form are made once
    few = 20

    def fresh() -> None:
        kept = field.samples.keep("fresh", device="cpu")
        for index in range(kept.chunks):
            kept.chunk(index, "cpu")

    made = timing.best({"verax": fresh, "loop": lambda: climate.looped(field, few)}, SECONDS)
    rows = {
        "pictures of TextBox": (drawn, len(states), 1.0, {"PIL loop": f"largest difference {same:.1g}"}),
        "samples of the climate field": (made, 20_000, 20_000 / few, {"loop": f"timed on {few} samples"}),
    }
    found = []
    for name, (times, count, times_more, notes) in rows.items():
        cost = {who: (1.0 if who == "verax" else times_more) * t / times["verax"] for who, t in times.items()}
        result = records.race(
            "data",
            name,
            cost,
            batch=count,
            unit="call of verax",
            target=100.0 if "climate" in name else 1.0,
            notes=notes,
        )
        found.append(result)
        show(result)
    return found


def start_up() -> list[Result]:
    """Starting verax beside importing torch, each in a process of its own."""
    lines = {
        "import torch": ["-c", "import torch"],
        "import verax": ["-c", "import verax"],
        "import verax.methods": ["-c", "import verax.methods"],
        "verax --help": ["-m", "verax", "--help"],
    }
    calls = {
        name: lambda words=words: subprocess.run(
            [sys.executable, *words], check=True, stdout=subprocess.DEVNULL
        )
        for name, words in lines.items()
    }
    times = timing.best(calls, 8.0, "processes", least=3)
    unit = times.pop("import torch")
    limits = {"import verax": 2.5, "import verax.methods": 2.5, "verax --help": 1.0}
    found = [
        Result(
            "start-up",
            name,
            ours=spent / unit,
            unit="import torch",
            ratio=spent / unit,
            target=limits[name],
            sense="at most",
        )
        for name, spent in times.items()
    ]
    # a person waits for this one, so it is asked for in seconds
    found.append(
        Result(
            "start-up",
            "verax --help, seconds of the processor",
            ours=times["verax --help"],
            unit="s",
            ratio=times["verax --help"],
            target=0.5,
            sense="at most",
        )
    )
    for result in found:
        show(result)
    return found


def show(result: Result) -> None:
    """One line."""
    peers = ", ".join(f"{name} {cost:.1f}" for name, cost in result.peers.items())
    met = {True: "", False: "  not met", None: ""}[result.met]
    print(
        f"{result.league:10s}{result.row:32s}{result.ratio or 0:9.2f}  {result.sense} {result.target}"
        f"  {peers}{met}  {result.notes or ''}",
        flush=True,
    )


SECTIONS = {"metrics": metrics, "data": data, "start-up": start_up}


def main() -> None:
    """Measure, print, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=tuple(SECTIONS))
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    start = time.perf_counter()
    for name, section in SECTIONS.items():
        if asked.only in (None, name):
            results = section()
            if asked.write:
                line = f"python benchmarks/metric_races.py --only {name} --write"
                record = records.Record(name, line, records.machine(), records.versions(), results)
                print(records.write(record).name)
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
