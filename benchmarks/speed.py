"""The speed league: every method of verax beside every peer that has it, as ratios, in one process.

What a call takes is counted in plain passes: one forward and one backward to the input of the same batch
through the same network, measured in the same turns. A peer whose map is another one is shown, but cannot
win; one that refuses the network is named. Peers are asked as they come, and tuned where they can be.

python benchmarks/speed.py                             print the league of this CPU
python benchmarks/speed.py --write                     write benchmarks/results/speed.json as well
python benchmarks/speed.py --device cuda --limit-seconds 400 --write
"""

from __future__ import annotations

import argparse
import copy
import logging
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

import floors
import records
import timing
from contests import CONTESTS, Contest, load, package
from records import Result
from workloads import CPU, CUDA, Workload, workload

BOUND = 650.0
"""Milliseconds of bare passes, on one core, that a row may take to be in the league of a CPU."""
LONG = 3500.0
"""The same for perturbation methods on cnn4: where they differ most is a batch."""
ROW_SECONDS = 1.2
SAME = 0.01
"""Relative distance between maps that are called the same."""
FEW = 4
"""Samples that maps are compared on before the race."""
PASS = "plain pass"
OVERHEAD = {
    "lrp-z": 1.5,
    "lrp-epsilon": 1.5,
    "guided-backprop": 1.5,
    "deconvnet": 1.5,
    "deeplift-rescale": 2.5,
    "lrp-a": 4.0,
    "lrp-b": 4.0,
    "deep-taylor": 4.0,
    "deeplift-reveal-cancel": 6.0,
}
"""Rule -> plain passes that it may take; rules with several passes of each layer may take more."""


def plain(w: Workload) -> Tensor:
    """One forward and one backward to the input."""
    x = w.x.detach().clone().requires_grad_()
    return torch.autograd.grad(w.model(x).gather(1, w.y[:, None]).sum(), x)[0]


def forward(w: Workload) -> Tensor:
    """One forward."""
    with torch.inference_mode():
        return w.model(w.x)


def target(contest: Contest) -> float:
    """How many times as fast as the best peer a method should be."""
    return 10.0 if contest.perturbs else 1.0


def distance(found: Tensor, wanted: Tensor, check: str) -> float:
    """How far a peer's map is from ours; 0 where they cannot be compared."""
    if not check:
        return 0.0
    found, wanted = found.detach().double(), wanted.double()
    if check == "scaled":
        found, wanted = (_stretched(each) for each in (found, wanted))
    return float((found - wanted).norm() / wanted.norm().clamp_min(1e-30))


def _stretched(maps: Tensor) -> Tensor:
    """Each map moved to [0, 1]."""
    flat = maps.flatten(1)
    low, high = flat.amin(1, keepdim=True), flat.amax(1, keepdim=True)
    return (flat - low) / (high - low).clamp_min(1e-30)


def entrants(contest: Contest, w: Workload) -> tuple[dict[str, timing.Function], dict[str, str], list[str]]:
    """Who takes part; why others do not; and whose map is another one."""
    contest.ours(w)
    ours = contest.ours(w.first(FEW))  # maps do not depend on what else is in a batch
    racing: dict[str, timing.Function] = {"verax": lambda: contest.ours(w)}
    notes, wrong = {}, []
    for name, run in contest.peers.items():
        try:
            load(package(name))
        except ImportError:
            notes[name] = "not installed"
            continue
        # a copy for each: some leave hooks and rules in a network
        own = replace(w, model=copy.deepcopy(w.model))
        few = replace(own.first(FEW), model=own.model)
        try:
            gap = distance(run(few), ours, contest.check)
        except Exception as error:
            notes[name] = f"refuses: {type(error).__name__}"
            continue
        if not gap <= SAME:
            notes[name] = (
                f"another map: {100 * gap:.0f} % away" if gap < 1e3 else f"another map: {gap:.0e} times"
            )
            wrong.append(name)
        racing[name] = lambda run=run, own=own: run(own)
    return racing, notes, wrong


def measured(contest: Contest, w: Workload, device: str, seconds: float) -> Result:
    """One row."""
    racing, notes, wrong = entrants(contest, w)
    few = w.first(min(len(w.x), 32))
    bare = plain if contest.backward else forward
    clocked = {**racing, "plain": lambda: plain(w), "bare": lambda: bare(few)}
    times = timing.best(clocked, seconds, device)
    unit, each = times.pop("plain"), times.pop("bare") / len(few.x)
    memory = {
        name: timing.peak_memory(function, device)
        for name, function in racing.items()
        if times[name] < timing.SLOW
    }
    return records.race(
        "methods",
        contest.method,
        {name: spent / unit for name, spent in times.items()},
        wrong,
        network=w.name,
        batch=len(w.x),
        device=device,
        unit=PASS,
        target=target(contest),
        floor=contest.passes(w) * len(w.x) * each / unit,
        memory={name: most for name, most in memory.items() if most is not None},
        notes=notes,
        seconds=unit if device == "cuda" else None,
    )


def rows(device: str, methods: list[str] | None = None) -> Iterator[tuple[Contest, str, int]]:
    """What is measured: methods on networks and batches; on a CPU those that are not too long."""
    networks = CUDA if device == "cuda" else CPU
    for name, batches in networks.items():
        for batch in batches:
            for contest in CONTESTS:
                if methods is None or contest.method in methods:
                    yield contest, name, batch


def fits(contest: Contest, w: Workload, batch: int, device: str) -> bool:
    """Whether a row belongs into the league of a device."""
    if contest.pictures and not w.layer:
        return False
    passes = contest.passes(w) * (1.0 if contest.backward else 0.4)
    bound = LONG if contest.perturbs and w.name == "cnn4" else BOUND
    return device == "cuda" or passes * batch * w.milliseconds <= bound


def overheads(results: list[Result]) -> list[Result]:
    """What the rules take beyond a plain pass, as rows of their own."""
    return [
        Result(
            "overhead",
            result.row,
            result.network,
            result.batch,
            result.device,
            ours=result.ours,
            unit=PASS,
            ratio=result.ours,
            target=OVERHEAD[result.row],
            sense="at most",
        )
        for result in results
        if result.row in OVERHEAD
    ]


def league(
    device: str, end: float, methods: list[str] | None = None, networks: list[str] | None = None
) -> tuple[list[Result], list[str]]:
    """All rows until the clock says `end`, and what was left out."""
    found, skipped = [], []
    for contest, name, batch in rows(device, methods):
        if networks is not None and name not in networks:
            continue
        label = f"{contest.method} on {name}, batch {batch}"
        if time.perf_counter() > end:
            skipped.append(f"{label}: no time left")
            continue
        try:
            w = workload(name, device)
        except ImportError as error:
            skipped.append(f"{label}: {error.name} is not installed")
            continue
        if not fits(contest, w, batch, device):
            if not (contest.pictures and not w.layer):
                skipped.append(f"{label}: too long for this device")
            continue
        try:
            result = measured(contest, w.first(batch), device, ROW_SECONDS if device == "cpu" else 1.0)
        except (verax_error(), torch.OutOfMemoryError) as error:
            skipped.append(f"{label}: {type(error).__name__}: {str(error).splitlines()[0][:80]}")
            continue
        found.append(result)
        show(result)
    return found, skipped


def verax_error() -> type[Exception]:
    """What verax raises where it refuses."""
    from verax.errors import VeraxError

    return VeraxError


def show(result: Result) -> None:
    """One line."""
    peers = ", ".join(f"{name} {cost:.2f}" for name, cost in result.peers.items())
    ratio = "" if result.ratio is None else f"{result.ratio:6.2f}x"
    print(
        f"{result.network:13s}{result.batch:4d} {result.row:24s}{result.ours:9.2f}  {ratio:>8s}  {peers}"
        f"  floor {result.floor or 0:.2f}  {result.notes or ''}",
        flush=True,
    )


def main() -> None:
    """Measure, print, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--limit-seconds", type=float, default=900.0)
    parser.add_argument("--methods", nargs="*")
    parser.add_argument("--networks", nargs="*")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--no-floors", action="store_true", help="the race alone")
    asked = parser.parse_args()
    start = time.perf_counter()
    end = start + asked.limit_seconds
    warnings.filterwarnings("ignore")
    logging.getLogger("shap").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    found: list[Result] = []
    details = {}
    if not asked.no_floors:
        bounds, details = floors.measured(asked.device, start + 0.4 * asked.limit_seconds)
        found += bounds
    raced, skipped = league(asked.device, end, asked.methods, asked.networks)
    found += raced + overheads(raced)
    print(f"{len(raced)} rows in {time.perf_counter() - start:.0f} s, {len(skipped)} left out")
    if asked.write:
        suffix = "" if asked.device == "cpu" else f"-{asked.device}"
        line = f"python benchmarks/speed.py --device {asked.device} --write"
        record = records.Record(
            f"speed{suffix}",
            line,
            records.machine(asked.device),
            records.versions(),
            found,
            skipped,
            details,
        )
        print(records.write(record).name)


if __name__ == "__main__":
    main()
