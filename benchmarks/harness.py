"""Implementations on the leaderboard: the same methods of several libraries, judged by the same truth.

Peers run as methods of a study, as anybody's would: on a trained network of TextBox, on a hand-wired one
whose reasoning is known by construction, and on the climate field. Scores are means over samples.

python benchmarks/harness.py [--write] [--samples 20]
"""

from __future__ import annotations

import argparse
import logging
import math
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import asking
import records
import verax
from contests import load, package
from records import Result

CLOSE = 0.98
"""The least share of the best implementation's score."""
Setting = dict[str, Any]


@dataclass(frozen=True)
class Arena:
    """Where implementations meet.

    Attributes:
        name: in words.
        task: of verax.
        network: its name.
        protocol: how maps are read.
        metric: what counts.
        vectors: whether inputs are vectors, so that maps of layers make no sense.
    """

    name: str
    task: str
    network: str
    protocol: str
    metric: str
    vectors: bool = False


ARENAS = [
    Arena("TextBox, trained cnn4", "textbox/complex-cr1", "cnn4", "sound", "rank-accuracy"),
    Arena("TextBox, hand-wired", "textbox/complex-cr1", "wired", "sound", "rank-accuracy"),
    Arena("climate field, dense network", "climate/analytic?samples=20000", "mlp", "exact", "pearson", True),
]

PICTURES = ("grad-cam",)
FAMILIES: dict[str, dict[str, Setting]] = {
    "gradient": {
        "verax": {"name": "gradient"},
        "captum": {"name": "captum:Saliency", "abs": False},
        "zennit": {"name": "zennit:Gradient"},
    },
    "input-x-gradient": {
        "verax": {"name": "input-x-gradient"},
        "captum": {"name": "captum:InputXGradient"},
    },
    "integrated-gradients": {
        "verax": {"name": "integrated-gradients", "steps": 32},
        "captum": {"name": "captum:IntegratedGradients", "n_steps": 32},
        "zennit": {"name": "zennit:IntegratedGradients", "n_iter": 32},
    },
    "guided-backprop": {
        "verax": {"name": "guided-backprop"},
        "captum": {"name": "captum:GuidedBackprop"},
        "zennit": {"name": "zennit:GuidedBackprop"},
    },
    "deconvnet": {
        "verax": {"name": "deconvnet"},
        "captum": {"name": "captum:Deconvolution"},
        "zennit": {"name": "zennit:DeconvNet"},
    },
    "lrp-z": {"verax": {"name": "lrp-z"}, "captum": {"name": "captum:LRP"}},
    "lrp-a": {"verax": {"name": "lrp-a"}, "zennit": {"name": "zennit:EpsilonPlusFlat"}},
    "lrp-b": {"verax": {"name": "lrp-b"}, "zennit": {"name": "zennit:EpsilonAlpha2Beta1Flat"}},
    "deeplift-rescale": {
        "verax": {"name": "deeplift-rescale"},
        "captum": {"name": "captum:DeepLift"},
        "shap": {"name": "shap:DeepExplainer", "check_additivity": False},
    },
    "grad-cam": {
        "verax": {"name": "grad-cam"},
        "captum": {"name": "captum:LayerGradCam"},
        "grad-cam": {"name": "grad-cam:GradCAM"},
    },
}


def entries(arena: Arena) -> tuple[list[Setting], list[str]]:
    """Methods of a study on an arena, labelled ``family/implementation``; and who is not installed."""
    found, absent = [], []
    for family, implementations in FAMILIES.items():
        if arena.vectors and family in PICTURES:
            continue
        for who, setting in implementations.items():
            if who != "verax":
                try:
                    load(package(who))
                except ImportError:
                    absent.append(f"{family} of {who}: not installed")
                    continue
            found.append({**setting, "label": f"{family}/{who}"})
    return found, absent


def scores(arena: Arena, samples: int, folder: Path) -> tuple[dict[str, float], list[str]]:
    """Label -> mean score on an arena; those that failed are absent."""
    methods, absent = entries(arena)
    study = {
        "name": "implementations",
        "tasks": [arena.task],
        "networks": [arena.network],
        "methods": methods,
        "protocols": [arena.protocol],
        "samples": samples,
        "certify": 0,
        "missing": "train",
    }
    run = verax.run(study, store=folder / "store", out=folder / arena.network, quiet=True)
    board = run.leaderboard(arena.protocol, metric=arena.metric)
    found = dict(zip(board["method"], board["value"].astype(float), strict=True))
    return {name: value for name, value in found.items() if "/" in name and not math.isnan(value)}, absent


def compared(arena: Arena, found: dict[str, float]) -> list[Result]:
    """A row for each family: ours beside the others."""
    results = []
    for family, implementations in FAMILIES.items():
        own = {who: found[f"{family}/{who}"] for who in implementations if f"{family}/{who}" in found}
        if "verax" not in own:
            continue
        peers = {who: value for who, value in own.items() if who != "verax"}
        best = max(peers, key=lambda who: peers[who]) if peers else None
        failed = [] if arena.vectors and family in PICTURES else [w for w in implementations if w not in own]
        results.append(
            Result(
                "harness",
                family,
                arena.name,
                ours=own["verax"],
                unit=arena.metric,
                peers=peers,
                peer=None,
                ratio=own["verax"] / peers[best] if best and peers[best] > 0 else None,
                target=CLOSE if best and peers[best] > 0 else None,
                notes=dict.fromkeys(failed, "no score: it fails on this network"),
            )
        )
        shown = ", ".join(f"{who} {value:.4f}" for who, value in own.items())
        print(f"{arena.name:30s}{family:24s}{shown}  {failed or ''}", flush=True)
    return results


def main() -> None:
    """Measure, print, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=asking.count, default=20)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    start = time.perf_counter()
    results: list[Result] = []
    skipped: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for arena in ARENAS:
            found, absent = scores(arena, asked.samples, Path(folder))
            skipped += [f"{arena.name}: {line}" for line in absent]
            results += compared(arena, found)
    print(f"{time.perf_counter() - start:.0f} s")
    if asked.write:
        record = records.Record(
            "harness",
            f"python benchmarks/harness.py --samples {asked.samples} --write",
            records.machine(),
            records.versions(),
            results,
            skipped,
            {"arenas": [arena.name for arena in ARENAS], "samples": asked.samples},
        )
        print(records.write(record).name)


if __name__ == "__main__":
    main()
