"""The regression guard: a few rows are measured again, and their ratios compared with the committed ones.

A row fails where its ratio is worse than the committed one by more than a third, twice in a row: ratios are
measured in turns on one core, but a busy machine still moves them by a tenth or two.

python benchmarks/check.py
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings

import torch

import metric_races
import records
import speed
from records import Record, Result

MARGIN = 1 / 3
METHODS = (
    *("gradient", "integrated-gradients", "lrp-a", "guided-backprop", "grad-cam"),
    *("deeplift-rescale", "kernel-shap", "feature-ablation"),
)
PLACES = (("cnn4", 32), ("sst-mlp", 256))
SMALL = 1e-9


def worse(found: Result, known: Result, margin: float = MARGIN) -> bool:
    """Whether a ratio got worse by more than the margin; a row without a ratio cannot."""
    if found.ratio is None or known.ratio is None:
        return False
    if known.sense == "at most":
        return found.ratio > known.ratio * (1 + margin) + SMALL
    return found.ratio < known.ratio * (1 - margin) - SMALL


def compared(found: list[Result], known: Record, margin: float = MARGIN) -> tuple[list[str], list[Result]]:
    """A line for each row, and the rows that got worse; rows that are not committed are said, not failed."""
    lines, bad = [], []
    for result in found:
        before = known.result(*result.key)
        name = f"{result.league} {result.row} {result.network} {result.batch or ''}".rstrip()
        if before is None:
            lines.append(f"{name}: not committed yet")
            continue
        fell = worse(result, before, margin)
        bad += [result] if fell else []
        lines.append(
            f"{name}: {result.ratio or 0:.2f}, committed {before.ratio or 0:.2f}{'  WORSE' if fell else ''}"
        )
    return lines, bad


def methods(only: list[tuple[str, str, int]] | None = None) -> list[Result]:
    """Some rows of the speed league."""
    found = []
    for contest in speed.CONTESTS:
        for name, batch in PLACES:
            w = speed.workload(name).first(batch)
            wanted = only is None or (contest.method, name, batch) in only
            if contest.method in METHODS and wanted and contest.takes(w):
                found.append(speed.measured(contest, w, "cpu", 1.0))
    return found


def main() -> None:
    """Measure, compare, and fail where something got worse twice."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    committed = records.read_all()
    failed = 0
    lines, bad = compared(methods(), committed["speed"])
    print("\n".join(lines))
    if bad:
        print("again:")
        lines, bad = compared(methods([r.key[1:4] for r in bad]), committed["speed"])
        print("\n".join(lines))
    failed += len(bad)
    lines, bad = compared(metric_races.metrics(), committed["metrics"])
    print("\n".join(lines))
    if bad:
        print("again:")
        lines, bad = compared(metric_races.metrics(), committed["metrics"])
        print("\n".join(lines))
    failed += len(bad)
    if failed:
        sys.exit(f"{failed} rows are worse than the committed ones by more than {100 * MARGIN:.0f} %, twice.")


if __name__ == "__main__":
    main()
