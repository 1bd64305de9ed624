"""The correctness league: every implementation on every kind of network, against references of their own.

References are written out in `references`, `relevances`, `featuremaps` and `games`, and use nothing of
verax. All of it is in float64, on the same weights, where only the spelling differs.

python benchmarks/league.py [--write] [--methods lrp-a occlusion]
"""

from __future__ import annotations

import argparse
import copy
import logging
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import records
from correctness import error, total
from disciplines import DIFFERENCES, GRADIENTS, RELEVANCE, Discipline, Entrant
from entrants import available
from feature_disciplines import CAMS, HIDING
from kinds import KINDS, network
from records import Result
from references import Reference
from verax.errors import VeraxError

DISCIPLINES = [*GRADIENTS, *RELEVANCE, *DIFFERENCES, *CAMS, *HIDING]
Cell = dict[str, Any]
"""What an implementation does on a kind of network: "does", and "error", "sum" or "why"."""


def moved(maps: Tensor) -> Tensor:
    """Every map moved to [0, 1]; one that is the same everywhere, to 0."""
    low, high = maps.amin((1, 2, 3), keepdim=True), maps.amax((1, 2, 3), keepdim=True)
    return (maps - low) / torch.where(high == low, 1.0, high - low)


class Wanted:
    """What references say of each kind of network, worked out once for all who are compared with it."""

    def __init__(self, discipline: Discipline) -> None:
        self.discipline = discipline
        self.known: dict[tuple[Any, ...], Tensor] = {}

    def __call__(self, reference: Reference, kind: str, biases: bool = True) -> Tensor:
        """Maps or sums of a reference."""
        key = reference, kind, biases
        if key not in self.known:
            model = network(kind, biases)
            self.known[key] = reference(model, self.discipline.x, self.discipline.targets(model)).detach()
        return self.known[key]


def gap(discipline: Discipline, entrant: Entrant, kind: str, maps: Tensor, wanted: Wanted) -> float:
    """How far maps are from the reference, or from what they must add up to where there is none."""
    reference = entrant.reference or discipline.reference
    if reference is not None and kind in discipline.known:
        right = wanted(reference, kind)
        return error(maps, moved(right) if entrant.scaled else right)
    assert discipline.sums is not None, f"nothing is known of {discipline.method} on {kind}"
    return error(total(maps), wanted(discipline.sums, kind))


def _maps(discipline: Discipline, entrant: Entrant, model: nn.Module) -> Tensor:
    targets = discipline.targets(model)
    return with_seeds(lambda: entrant.run(copy.deepcopy(model), discipline.x, targets))


def verdict(discipline: Discipline, entrant: Entrant, kind: str, wanted: Wanted) -> Cell:
    """What an implementation does on a kind of network."""
    try:
        maps = _maps(discipline, entrant, network(kind))
    except VeraxError as refusal:
        return {"does": "refuses", "why": str(refusal).partition(";")[0][:90]}
    except Exception as failure:
        return {"does": "raises", "why": type(failure).__name__}
    if kind not in discipline.kinds:
        # nobody has a rule for it: an answer is a made-up one
        return {"does": "makes up"}
    far = gap(discipline, entrant, kind, maps, wanted)
    otherwise = entrant.instead.get(kind) or entrant.instead.get("all")
    # a map that is not a number is as wrong as can be
    cell: Cell = {"does": "right" if far <= discipline.right else "wrong", "error": min(far, 1e9)}
    if cell["does"] == "wrong" and otherwise:
        cell |= {"does": "differs", "why": otherwise}
    if discipline.sums is not None and not entrant.scaled:
        biases = not discipline.unbiased
        whole = maps if biases else _maps(discipline, entrant, network(kind, biases))
        cell["sum"] = min(error(total(whole), wanted(discipline.sums, kind, biases)), 1e9)
    return cell


def alone(discipline: Discipline, entrant: Entrant) -> float:
    """How far the map of a sample alone is from its map in the batch, with the same seeds."""
    model = network("module")
    targets = discipline.targets(model)

    def seeded(part: slice) -> Tensor:
        return with_seeds(lambda: entrant.run(copy.deepcopy(model), discipline.x[part], targets[part]))

    return error(torch.cat([seeded(slice(k, k + 1)) for k in range(len(targets))]), seeded(slice(None)))


def with_seeds(function: Callable[[], Tensor]) -> Tensor:
    """Run with all global random numbers seeded."""
    kept = np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng():
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002
        try:
            return function()
        finally:
            np.random.set_state(kept)  # noqa: NPY002


def _shown(item: tuple[str, Cell]) -> str:
    kind, cell = item
    return f"{kind} {cell['does']}" + (f" {cell['error']:.1e}" if "error" in cell else "")


def _worst(row: dict[str, Cell]) -> float:
    return max((cell.get("error", 0.0) for cell in row.values()), default=0.0)


def _bad(row: dict[str, Cell]) -> int:
    return sum(cell["does"] in ("wrong", "makes up") for cell in row.values())


def _result(method: str, rows: dict[str, dict[str, Cell]]) -> Result:
    bad = {name: float(_bad(row)) for name, row in rows.items()}
    ours = bad.pop("verax")
    return Result(
        "correctness",
        method,
        "all kinds",
        ours=ours,
        unit="kinds of network with a wrong map",
        peers=bad,
        ratio=ours,
        target=0.0,
        sense="at most",
        notes={name: f"largest error {_worst(row):.1e}" for name, row in rows.items()},
    )


def _dependence(method: str, gaps: dict[str, float]) -> Result:
    gaps = dict(gaps)
    ours = gaps.pop("verax")
    return Result(
        "batch dependence",
        method,
        "module",
        4,
        ours=ours,
        unit="relative distance of a sample's map alone and in a batch",
        peers=gaps,
        ratio=ours,
        target=1e-6,
        sense="at most",
    )


def league(only: list[str] | None = None) -> tuple[list[Result], dict[str, Any], list[str]]:
    """All verdicts; results are how many kinds of network each implementation gets wrong, by method."""
    details: dict[str, Any] = {"kinds": list(KINDS), "table": {}, "batches": {}, "about": {}}
    results, skipped = [], []
    for discipline in DISCIPLINES:
        if only is not None and discipline.method not in only:
            continue
        wanted, rows, batches = Wanted(discipline), {}, {}
        for name in discipline.entrants:
            if not available(name):
                skipped.append(f"{discipline.method} of {name}: not installed")
                continue
            entrant = discipline.entrant(name)
            rows[name] = {kind: verdict(discipline, entrant, kind, wanted) for kind in KINDS}
            if "error" in rows[name]["module"]:
                batches[name] = alone(discipline, entrant)
            cells = "  ".join(map(_shown, rows[name].items()))
            print(
                f"{discipline.method:23s}{name:9s}{cells}  alone {batches.get(name, 'unknown')}", flush=True
            )
        results += [_result(discipline.method, rows), _dependence(discipline.method, batches)]
        details["table"][discipline.method] = rows
        details["batches"][discipline.method] = batches
        details["about"][discipline.method] = discipline.about
    return results, details, skipped


def main() -> None:
    """Measure, print, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--methods", nargs="+", choices=[d.method for d in DISCIPLINES])
    asked = parser.parse_args()
    if asked.write and asked.methods:
        sys.exit("A record holds all methods: --write goes without --methods.")
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    start = time.perf_counter()
    results, details, skipped = league(asked.methods)
    print(f"{time.perf_counter() - start:.0f} s")
    if asked.write:
        command = "python benchmarks/league.py --write"
        facts = records.machine(), records.versions()
        print(records.write(records.Record("league", command, *facts, results, skipped, details)).name)


if __name__ == "__main__":
    main()
