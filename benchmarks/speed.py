"""The speed league: every method of verax beside every peer that has it, as ratios, in one process.

What a call takes is counted in plain passes: one forward and one backward to the input of the same batch
through the same network, measured in the same turns. A peer whose map is another one is shown, but cannot
win; one that refuses the network is named. Peers are asked as they come, and tuned where they can be. On a
GPU all of them compute in full float32 with fixed algorithms, as verax does; what torch's own setting (TF32)
would gain and lose is measured beside it.

python benchmarks/speed.py                             print the league of this CPU
python benchmarks/speed.py --write                     write benchmarks/results/speed.json as well
python benchmarks/speed.py --write --networks cnn4     measure some of its rows again
python benchmarks/speed.py --device cuda --limit-seconds 400 --write
"""

from __future__ import annotations

import argparse
import copy
import logging
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace

import torch
from torch import Tensor

import asking
import floors
import records
import timing
from contests import CONTESTS, Contest, Run, load, package
from records import Result
from verax.errors import VeraxError
from workloads import CPU, CUDA, Workload, workload

BOUND = 650.0
"""Milliseconds of bare passes, on one core, that a row may take to be in the league of a CPU."""
LONG = 3500.0
"""The same for perturbation methods on cnn4: where they differ most is a batch."""
GPU_BOUND = 1.0
"""Seconds of bare passes that a row may take on a GPU."""
ROW_SECONDS = 1.2
SAME = 0.01
"""Relative distance between maps that are called the same."""
FEW = 4
"""Samples that maps are compared on before the race."""
LONGEST = 8.0
"""Seconds that a peer's call may take on a GPU, by what it takes for those; Captum's LIME takes minutes."""
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


def entrants(
    contest: Contest, w: Workload, device: str = "cpu"
) -> tuple[dict[str, timing.Function], dict[str, str], list[str]]:
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
        if device == "cuda":
            whole = timing.once(lambda run=run, few=few: run(few), device) * len(w.x) / FEW
            # most take no longer for many samples than for few, so that only a second look decides
            if whole > LONGEST and _lasts(run, own, device):
                notes[name] = f"too long to race: {whole:.0f} s, by {FEW} samples"
                continue
        racing[name] = lambda run=run, own=own: run(own)
    return racing, notes, wrong


def _lasts(run: Run, w: Workload, device: str) -> bool:
    """Whether a call takes twice as long for twice as many samples, so that all of them would last."""
    one, two = (timing.once(lambda few=few: run(few), device) for few in (w.first(FEW), w.first(2 * FEW)))
    return two > 1.5 * one


def measured(contest: Contest, w: Workload, device: str, seconds: float) -> Result:
    """One row."""
    racing, notes, wrong = entrants(contest, w, device)
    few = w.first(min(len(w.x), 32)) if device == "cpu" else w  # few rows leave a GPU waiting
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
        floor=(contest.least or contest.passes(w)) * len(w.x) * each / unit,
        memory={name: most for name, most in memory.items() if most is not None},
        notes=notes,
        seconds=unit if device == "cuda" else None,
    )


def rows(device: str) -> Iterator[tuple[str, int]]:
    """Networks and batches; on a GPU the largest batches of all networks come first."""
    networks = CUDA if device == "cuda" else CPU
    found = [(name, batch) for name, batches in networks.items() for batch in batches]
    return iter(sorted(found, key=lambda pair: -pair[1]) if device == "cuda" else found)


def fits(contest: Contest, w: Workload, unit: float | None = None) -> bool:
    """Whether a row is short enough; `unit` is what a plain pass takes on a GPU, in seconds."""
    passes = contest.passes(w) * (1.0 if contest.backward else 0.4)
    if unit is not None:
        return passes * unit <= GPU_BOUND
    bound = LONG if contest.perturbs and w.name == "cnn4" else BOUND
    return passes * len(w.x) * w.milliseconds <= bound


def plain_seconds(w: Workload) -> float:
    """Seconds of a plain pass on a GPU; a first one wakes it up."""
    plain(w)
    return timing.once(lambda: plain(w), "cuda")


def rounded(name: str) -> dict[str, object]:
    """What a plain pass gains in speed, and loses in accuracy, by the arithmetic that torch comes with."""
    w = workload(name, "cuda").first(256)

    def precise() -> Tensor:
        with floors.exact():
            return plain(w)

    gap = distance(plain(w), precise(), "map")
    times = timing.best({"torch": lambda: plain(w), "exact": precise}, 0.5, "cuda")
    return {
        "network": name,
        "batch": len(w.x),
        "times as fast": times["exact"] / times["torch"],
        "distance": gap,
        "seconds": times["exact"],
    }


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
    device: str,
    end: float,
    methods: list[str] | None = None,
    networks: list[str] | None = None,
    batches: list[int] | None = None,
) -> tuple[list[Result], list[str]]:
    """All rows until the clock says `end`, and what was left out."""
    found: list[Result] = []
    skipped: list[str] = []
    print(HEAD, flush=True)
    for name, batch in rows(device):
        if (networks is not None and name not in networks) or (batches is not None and batch not in batches):
            continue
        try:
            w = workload(name, device).first(batch)
            unit = plain_seconds(w) if device == "cuda" and time.perf_counter() <= end else None
        except (ImportError, torch.OutOfMemoryError) as error:
            skipped.append(f"{name}, batch {batch}: {getattr(error, 'name', None) or 'memory'} is missing")
            continue
        for contest in CONTESTS:
            if (methods is not None and contest.method not in methods) or not contest.takes(w):
                continue
            label = f"{contest.method} on {name}, batch {batch}"
            if time.perf_counter() > end:
                skipped.append(f"{label}: no time left")
            elif not fits(contest, w, unit):
                skipped.append(f"{label}: too long for this device")
            else:
                try:
                    found.append(measured(contest, w, device, ROW_SECONDS if device == "cpu" else 0.5))
                    show(found[-1])
                except (VeraxError, torch.OutOfMemoryError) as error:
                    why = str(error).splitlines()[0][:80].replace(": ", ", ")
                    skipped.append(f"{label}: {type(error).__name__}, {why}")
                    print(skipped[-1], flush=True)
        if device == "cuda":
            torch.cuda.empty_cache()
    return found, skipped


HEAD = f"{'network':13s}{'rows':>4s} {'method':24s}{'verax':>9s}  {'ahead':>8s}  peers (all in plain passes)"


def show(result: Result) -> None:
    """One line."""
    peers = ", ".join(f"{name} {cost:.2f}" for name, cost in result.peers.items())
    ratio = "" if result.ratio is None else f"{result.ratio:6.2f}x"
    print(
        f"{result.network:13s}{result.batch:4d} {result.row:24s}{result.ours:9.2f}  {ratio:>8s}  {peers}"
        f"  bare passes {result.floor or 0:.2f}  {result.notes or ''}",
        flush=True,
    )


def main() -> None:
    """Measure, print, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = [contest.method for contest in CONTESTS]
    lists = f"some of {' '.join(CPU)}; on a GPU {' '.join(CUDA)}"
    parser.add_argument("--device", default="cpu", type=asking.device, help="cpu (default) or cuda")
    parser.add_argument(
        "--limit-seconds", type=asking.seconds, default=900.0, help="rows beyond are left out"
    )
    parser.add_argument(
        "--methods",
        nargs="+",
        type=asking.one_of("method", known),
        help="some of them, such as occlusion lime",
    )
    parser.add_argument("--networks", nargs="+", type=asking.one_of("network", [*CPU, *CUDA]), help=lists)
    parser.add_argument(
        "--batches", nargs="+", type=asking.count, help="some of 1 4 32 256, as networks have them"
    )
    parser.add_argument("--write", action="store_true", help="into benchmarks/results; else only print")
    parser.add_argument("--no-floors", action="store_true", help="the race alone")
    asked = parser.parse_args()
    if not any(
        (asked.networks is None or name in asked.networks)
        and (asked.batches is None or batch in asked.batches)
        for name, batch in rows(asked.device)
    ):
        parser.error(f"no network on {asked.device} has a row like that; they are {lists}")
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
    with floors.exact() if asked.device == "cuda" else nullcontext():
        raced, skipped = league(asked.device, end, asked.methods, asked.networks, asked.batches)
    if asked.device == "cuda":
        details["tf32"] = [rounded(name) for name in CUDA if asked.networks is None or name in asked.networks]
    found += raced + overheads(raced)
    print("\n".join(f"left out: {line}" for line in skipped))
    print(f"{len(raced)} rows in {time.perf_counter() - start:.0f} s, {len(skipped)} left out")
    absent = sorted({who for r in raced for who, note in r.notes.items() if note == "not installed"})
    if absent:
        print(f"Not installed: {', '.join(absent)}. `make .venv/.bench` installs all peers.")
    if asked.write and not found:
        sys.exit("Nothing was measured, so that nothing is written.")
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
        known = records.FOLDER / f"speed{suffix}.json"
        some = asked.methods or asked.networks or asked.batches
        if some and known.exists():  # the others stay as they were
            record = records.merged(records.read(known), record)
        print(records.write(record).name)


if __name__ == "__main__":
    main()
