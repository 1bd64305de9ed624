"""How long whole commands take on this machine, phase by phase: from a fresh store to the last file.

    python benchmarks/journeys.py [--only smerf,sst,smerf-full] [--seeds 0] [--networks vit] [--write]

Every command runs in a process of its own, so that imports count. Rows that were measured before and are not
measured now stay in the record.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import asking
import records
from verax.studies.spec import study

COMMANDS = {
    "smerf": ["reproduce", "smerf"],
    "sst": ["run", "sst", "--networks", "mlp"],
    "smerf-full": ["run", "smerf-full"],
    "smerf-backgrounds": ["run", "smerf-backgrounds", "--networks", "cnn@swift", "--seeds", "0,1,2,3,4"],
}
ASKED = {
    **{"smerf": "120", "sst": "90", "smerf-full": "1200 with five seeds"},
    "smerf-backgrounds": "in the 1200 of `smerf-full`",
}
"""Seconds on one H200."""

BOUNDS = {
    "smerf": "Training waits for launches: seven small networks in threads share one GPU. Most of the rest "
    "is work of the CPU: cases, identification, tables, figures.",
    "sst": "What comes before the training: imports and the data. The first row has all of it.",
    "smerf-full": "Arithmetic. Training is in bfloat16 with several networks at once, explaining in full "
    "float32.",
    "smerf-backgrounds": "Small networks on noise: launches, and what the CPU does with maps.",
}
"""What a command spends its time on, in words."""

_LOOK = 30.0
"""Seconds from one line about how far a command has come to the next."""

_PATIENCE = 60.0
"""Seconds that a command has to come to its end."""

_REST = "what of scoring, cases, writing is not beside it"


def measure(
    name: str, more: dict[str, str], device: str, folder: Path, limit: float | None = None
) -> dict[str, Any]:
    """Run one command in a fresh store; gives its seconds, and those of its phases.

    One that takes longer than `limit` seconds is interrupted, and what it says then is how far it came.
    """
    out, command = folder / "out", [*COMMANDS[name]]
    if name == "smerf-full":
        command += [word for option, value in more.items() if value for word in (f"--{option}", value)]
    line = [sys.executable, "-m", "verax", *command, "--device", device, "--out", str(out), "--quiet"]
    start = time.perf_counter()
    store = {**os.environ, "VERAX_STORE": str(folder / "store")}
    done = subprocess.Popen(line, env=store, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    said = _watched(done, folder / "store", start, limit)
    seconds = time.perf_counter() - start
    phased, report = out / "phases.json", out / "report.html"
    # some methods refuse some networks: all is written then, and the answer is 1
    if done.returncode not in (0, 1) or not (phased.exists() or report.exists()):
        sys.exit(f"verax {' '.join(command)} ended after {seconds:.0f} s: {said[-2000:]}")
    found = {"command": f"verax {' '.join(command)}", "seconds": seconds}
    return found | (reproduced(phased, seconds) if phased.exists() else studied(out, seconds))


def _watched(done: subprocess.Popen[str], store: Path, start: float, limit: float | None) -> str:
    """What a command said when it ended; a line now and then says how much is in the store."""
    while True:
        left = _LOOK if limit is None else min(_LOOK, limit - (time.perf_counter() - start))
        try:
            return done.communicate(timeout=max(left, 0))[1]
        except subprocess.TimeoutExpired:
            spent = time.perf_counter() - start
            if limit is not None and spent >= limit:
                return _ended(done)
            networks = len(list(store.glob("networks/*.safetensors")))
            files = sum(len(names) for _, _, names in os.walk(store))
            print(f"  {spent:.0f} s: {networks} networks trained, {files} files", flush=True)


def _ended(done: subprocess.Popen[str]) -> str:
    """What a command says that is interrupted; who was started in the background may not hear it."""
    for number in (signal.SIGINT, signal.SIGKILL):
        done.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            return done.communicate(timeout=_PATIENCE)[1]
    return ""


def reproduced(path: Path, seconds: float) -> dict[str, Any]:
    """The phases of a reproduction."""
    report = json.loads(path.read_text())
    named = {"drawing": "figures", "explorers": "reports"}
    phases = {named.get(row["phase"], row["phase"]): row["seconds"] for row in report["phases"]}
    inside = report["within explaining and scoring"]
    both = phases.pop("explaining and scoring")
    phases |= {word: inside[word] for word in ("certificates", "explaining")}
    phases[_REST] = both - inside["certificates"] - inside["explaining"]
    phases["starting"] = seconds - sum(phases.values())
    return {"phases": phases}


def studied(out: Path, seconds: float) -> dict[str, Any]:
    """The phases of a study; what its networks took."""
    manifest = json.loads((out / "manifest.json").read_text())
    units = manifest["units"]
    drawing = (out / "report.html").stat().st_mtime - (out / "manifest.json").stat().st_mtime
    phases = {
        "training": seconds - manifest["seconds"] - drawing,
        "certificates": sum(unit["seconds"] for unit in units if not unit["method"]),
        "explaining": sum(unit.get("explaining_seconds", 0) for unit in units),
    }
    phases[_REST] = manifest["seconds"] - phases["certificates"] - phases["explaining"]
    phases["reports"] = drawing
    networks: dict[str, dict[str, float]] = {}
    for trained in manifest["trained"]:
        own = networks.setdefault(trained["network"], {"trained": 0, "training": 0.0, "explaining": 0.0})
        own["trained"] += 1
        own["training"] += trained["seconds"]
    for unit in units:
        name = unit["name"].partition(": ")[0].split(" ")[1]
        if name in networks:
            networks[name]["explaining"] += unit.get("explaining_seconds", 0)
    failed = {failure["unit"] for failure in manifest["failures"] if not failure["method"]}
    failed |= {
        f"{entry['task']} {entry['network']} seed {entry['seed']}"
        for entry in manifest["certificates"]
        if not entry["passed"]
    }
    return {"phases": phases, "networks": networks, "not certified": sorted(failed)}


def together(old: dict[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    """Two measurements of one study with different networks, one after the other."""
    kept = (old or {}).get("networks")
    if not kept or not new.get("networks") or set(kept) & set(new["networks"]):
        return new
    if set(old["phases"]) != set(new["phases"]):  # of an older kind: not the same study
        return new
    phases = {word: old["phases"][word] + value for word, value in new["phases"].items()}
    return {
        "command": f"{old['command']}; {new['command']}",
        "seconds": old["seconds"] + new["seconds"],
        "phases": phases,
        "networks": kept | new["networks"],
        "not certified": sorted({*old["not certified"], *new["not certified"]}),
    }


def _older(name: str, journey: dict[str, Any]) -> str:
    """A sentence about networks in a record that the study no longer has."""
    if name != "smerf-full":
        return ""
    gone = sorted(set(journey.get("networks", {})) - set(study(name).networks))
    words = ", ".join(f"`{network}`" for network in gone)
    more = f" This was measured with {words}, which the study no longer has: as it is now, it is not here."
    return more if gone else ""


def shown(record: records.Record) -> str:
    """The tables of a page."""
    found = record.details["journeys"]
    words = list(dict.fromkeys(phase for journey in found.values() for phase in journey["phases"]))
    lines = [f"| phase (s) | {' | '.join(f'`{name}`' for name in found)} |", "|---|" + "---|" * len(found)]
    for phase in words:
        cells = [f"{j['phases'][phase]:.1f}" if phase in j["phases"] else "" for j in found.values()]
        lines.append(f"| {phase} | {' | '.join(cells)} |")
    lines.append(f"| **all** | {' | '.join(format(j['seconds'], '.0f') for j in found.values())} |")
    lines.append(f"| asked for | {' | '.join(ASKED[name] for name in found)} |")
    text = "\n".join(lines) + "\n\n"
    absent = [
        f"`verax {' '.join(words)}` (asked for: {ASKED[name]})"
        for name, words in COMMANDS.items()
        if name not in found
    ]
    if absent:
        text += f"**Not measured on a GPU as it is now: {', '.join(absent)}.**\n\n"
    for name, journey in found.items():
        command = journey["command"].replace("; ", "`, then `")
        text += f"- `{command}`: {BOUNDS[name]}{_older(name, journey)}\n"
        for network, own in journey.get("networks", {}).items():
            each, beside = own["training"] / own["trained"], " beside the others" * (own["trained"] > 1)
            text += (
                f"    - {network}: {own['trained']} trained, {each:.0f} s each{beside}; "
                f"explained in {own['explaining']:.0f} s\n"
            )
        if journey.get("not certified"):
            text += f"    - not certified: {', '.join(journey['not certified'])}\n"
    return text


def main() -> None:
    """Run what is asked for and print where the time went."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--only",
        default=",".join(COMMANDS),
        type=asking.some_of("journey", COMMANDS),
        help=f"some of {','.join(COMMANDS)}",
    )
    parser.add_argument("--networks", default="", help="of smerf-full; joined with those measured before")
    parser.add_argument("--seeds", default="", help="of smerf-full, instead of its five")
    parser.add_argument("--device", default="cuda", type=asking.device, help="cuda (default) or cpu")
    parser.add_argument("--limit-seconds", type=asking.seconds, help="for each command")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    name = "journeys" if asked.device == "cpu" else f"journeys-{asked.device}"
    path = records.FOLDER / f"{name}.json"
    old = records.read(path) if path.exists() else None
    found: dict[str, Any] = dict(old.details["journeys"]) if old else {}
    for journey in asked.only:
        with tempfile.TemporaryDirectory() as folder:
            more = {"networks": asked.networks, "seeds": asked.seeds}
            new = measure(journey, more, asked.device, Path(folder), asked.limit_seconds)
        print(f"{new['command']}: {new['seconds']:.1f} s")
        for phase, seconds in new["phases"].items():
            print(f"  {phase:<40}{seconds:>8.1f}")
        for network, own in new.get("networks", {}).items():
            words = (
                f"{own['trained']} trained in {own['training']:.1f} s, explained in {own['explaining']:.1f} s"
            )
            print(f"  {network}: {words}")
        print(f"  not certified: {new.get('not certified', [])}", flush=True)
        found[journey] = together(found.get(journey), new) if asked.networks else new
        if asked.write:
            record = records.Record(
                name,
                f"python benchmarks/journeys.py --device {asked.device} --write",
                records.machine(asked.device),
                records.versions(),
                [],
                details={"journeys": found},
            )
            print(records.write(record).name, flush=True)


if __name__ == "__main__":
    main()
