"""How long `verax reproduce smerf` takes, phase by phase, with peak memory.

    python benchmarks/smerf.py [--quick] [--device cuda] [--networks cnn@published] [--out FOLDER]

The store is a fresh folder, so that nothing is reused and training counts.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import torch

from verax import devices
from verax.reproductions.smerf.reproduction import reproduce
from verax.reproductions.smerf.study import PLAIN, QUICK, Options
from verax.reproductions.workers import Crew


def main() -> None:
    """Run once and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="shipped networks, two images a bucket")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--networks", default="")
    parser.add_argument("--references", type=int, default=0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    slow = devices.resolve(given.device).type == "cpu"
    names = given.networks.split(",") if given.networks else [QUICK if given.quick else PLAIN]
    few = {
        "samples": 2,
        "references": 4,
        "sound_samples": 2,
        "sound_references": 4,
        "certify": 5,
        "tested": 20,
    }
    sizes = few if given.quick else {"references": given.references or (100 if slow else 1000)}
    with tempfile.TemporaryDirectory() as folder:
        options = Options(
            networks=names, device=given.device, store=Path(folder) / "store", quiet=True, **sizes
        )
        out = given.out or Path(folder) / "out"
        with Crew(1) as crew:
            reproduce(options, out, crew)
        report = json.loads((out / "phases.json").read_text())
    print(f"{devices.describe(devices.resolve(given.device))}, {torch.get_num_threads()} threads, {names[0]}")
    print(f"{'phase':<26}{'seconds':>10}{'peak MB':>10}{'GPU MB':>10}")
    for row in report["phases"]:
        gpu = f"{row['gpu_memory'] / 1e6:.0f}" if row["gpu_memory"] else "-"
        print(f"{row['phase']:<26}{row['seconds']:>10.1f}{row['memory'] / 1e6:>10.0f}{gpu:>10}")
    for name, seconds in report["within explaining and scoring"].items():
        print(f"  of which {name:<15}{seconds:>10.1f}")
    print(f"{'all':<26}{sum(row['seconds'] for row in report['phases']):>10.1f}")


if __name__ == "__main__":
    main()
