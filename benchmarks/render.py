"""Write docs/performance.md and its pictures from benchmarks/results/*.json, and from nothing else.

python benchmarks/render.py [--check]
"""

from __future__ import annotations

import argparse
import statistics
import sys
from datetime import date
from pathlib import Path

import duels
import journeys
from reasons import LEVEL, PERTURBATIONS, behind, reason, unmet
from records import Record, Result, percent, read_all
from workloads import sizes
from writing import number, strictly, table, times

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "performance.md"
IMAGES = ROOT / "docs" / "images" / "performance"
TITLES = {
    "sst-mlp": "The dense network of the climate benchmark (458 inputs)",
    "cnn4": "cnn4 on TextBox (64 × 64)",
    "resnet18-64": "ResNet-18, 64 × 64",
    "resnet18-224": "ResNet-18, 224 × 224",
    "vit-64": "Small vision transformer, 64 × 64",
    "vit-s-224": "ViT-S/16, 224 × 224",
}


def made_by(record: Record) -> str:
    """Where a table comes from: command, hardware, versions."""
    about = record.machine
    words = [f"{about['processor']}, {about['threads']} of {about['cores']} cores, Python {about['python']}"]
    if "gpu" in about:
        words.append(f"{about['gpu']} ({about['gpu memory GiB']} GiB), CUDA {about['cuda']}")
    found = [f"{name} {version}" for name, version in record.versions.items() if version]
    absent = [name for name, version in record.versions.items() if not version]
    words.append(", ".join(found))
    if absent:
        words.append(f"not installed: {', '.join(absent)}")
    if "note" in record.details:
        words.append(record.details["note"])
    return f"`{record.command}`, {record.date}: {'; '.join(words)}.\n"


def aged(records: dict[str, Record]) -> str:
    """A sentence about records that are older than others, which show what the code has become since."""
    dates = {name: date.fromisoformat(record.date) for name, record in records.items() if record.date}
    days = {name: (max(dates.values()) - measured).days for name, measured in dates.items()}
    old = [f"`{name}` ({count} days)" for name, count in days.items() if count > 1]
    if not old:
        return ""
    return (
        f"**Older than the newest figures of this page: {', '.join(old)}.** The code has "
        "changed since, and the reasons speak of it as it is now. `make bench` and `make bench-gpu` "
        "measure again."
    )


# -- targets -----------------------------------------------------------------------------------------------


def _targets(results: list[Result]) -> list[tuple[str, list[Result]]]:
    """The promises, and the rows that they are about."""

    def of(league: str) -> list[Result]:
        return [r for r in results if r.league == league and r.ratio is not None and r.target is not None]

    methods = of("methods")
    return [
        ("no method slower than the best peer", methods),
        (
            "perturbation methods 10 times as fast as the best peer",
            [r for r in methods if r.row in PERTURBATIONS],
        ),
        ("metrics 20 times as fast as Quantus", of("metrics")),
        (
            "memory flat in samples, steps, draws, masks and segments",
            [r for r in of("growth") if ": memory" in r.row],
        ),
        ("time no worse than in proportion", [r for r in of("growth") if ": time" in r.row]),
        (f"plain passes that a rule may take: {_allowed(of('overhead'))}", of("overhead")),
        ("making data faster than loops", of("data")),
        ("starting: import at most 2.5 times torch's, help under half a second", of("start-up")),
        ("no wrong map on any kind of network", of("correctness")),
        ("maps that do not depend on the batch", of("batch dependence")),
        ("no implementation scores better on the leaderboard, where scores are positive", of("harness")),
        ("half of the dominating kernel's rate", of("floors")),
    ]


def _allowed(overheads: list[Result]) -> str:
    """Which rules may take how many plain passes."""
    names: dict[float, list[str]] = {}
    for r in overheads:
        if r.target is not None and f"`{r.row}`" not in names.setdefault(r.target, []):
            names[r.target].append(f"`{r.row}`")
    return "; ".join(f"{most:g} for {', '.join(sorted(own))}" for most, own in sorted(names.items()))


def verdict(results: list[Result], where: str) -> str:
    """How many races are won, drawn and lost."""
    raced = [r for r in results if r.league == "methods" and r.ratio is not None]
    if not raced:
        return ""
    lost = sum(map(behind, raced))
    ahead = sum(r.ratio >= 1 for r in raced)
    return (
        f"{where}, verax is at least as fast as the best peer in {ahead} of {len(raced)} rows of methods, "
        f"level in {len(raced) - ahead - lost}, and behind in {lost}."
    )


def targets(results: list[Result], where: str) -> str:
    """All promises with how many rows meet them."""
    rows = []
    for words, own in _targets(results):
        if not own:
            continue
        if words.startswith("no method slower"):
            met = [not behind(r) for r in own]
        else:
            met = [bool(r.met) for r in own]
        middle = statistics.median(r.ratio for r in own)
        sense = own[0].sense
        worst = (min if sense == "at least" else max)(r.ratio for r in own)
        shown = strictly(worst, sense)
        rows.append(
            (
                words,
                str(len(own)),
                f"{sum(met)} ({100 * sum(met) / len(own):.0f} %)",
                sense,
                "" if middle == 0 == worst else number(middle),
                "" if middle == 0 == worst else shown,
                "met" if all(met) else "**not everywhere**",
            )
        )
    return table((f"target ({where})", "rows", "met in", "asked for", "median", "worst", ""), rows)


# -- leagues -----------------------------------------------------------------------------------------------


def _cell(result: Result | None) -> str:
    """What verax takes, and how many times that the best peer takes."""
    if result is None:
        return ""
    own = f"{number(result.ours)} p"
    if result.peer is None:
        others = sorted({note.partition(":")[0] for note in result.notes.values()})
        return f"{own} ({', '.join(others) or 'no peer'})"
    if not behind(result):
        return f"{own}, {times(result.ratio)} {result.peer}"
    return f"{own}, **{strictly(result.ratio, 'at least')}×** {result.peer}"


def methods(record: Record) -> str:
    """A table for each network: methods by batches."""
    own = [r for r in record.results if r.league == "methods"]
    text = []
    for network in dict.fromkeys(r.network for r in own):
        here = [r for r in own if r.network == network]
        batches = sorted({r.batch for r in here})
        rows = []
        for method in dict.fromkeys(r.row for r in here):
            found = {r.batch: r for r in here if r.row == method}
            memory = [r for r in found.values() if r.peer and r.peer in r.memory and "verax" in r.memory]
            last = max(memory, key=lambda r: r.batch, default=None)
            kept = () if last is None else (last.memory["verax"], last.memory[last.peer])
            most = " / ".join(f"{max(0.0, value):.0f}" for value in kept)
            rows.append((f"`{method}`", *(_cell(found.get(batch)) for batch in batches), most))
        head = (
            "method",
            *(f"batch {batch}" for batch in batches),
            "MiB at the largest batch, ours / best peer's",
        )
        title = f"### {TITLES.get(network, network)}"
        text.append(f"{title}\n\n{_asked(network, here[0].device)}\n\n{table(head, rows)}")
    return "\n".join(text)


def _asked(network: str, device: str) -> str:
    """What methods with steps, draws and masks are asked for on a network."""
    steps, segments, size, masks = sizes(network, device)
    pictures = network != "sst-mlp"
    parts = f"segments of {size} pixels a side" if pictures else f"segments of {size} numbers"
    return f"{steps} steps, draws and references; {segments} {parts}; {masks} masks of LIME and Kernel SHAP."


def notes(record: Record) -> str:
    """Peers that refuse a network or give another map there, once for each network."""
    found: dict[tuple[str, str, str], set[str]] = {}
    for r in record.results:
        for who, note in r.notes.items():
            if r.league == "methods" and note != "not installed":
                kind = note.partition(":")[0]
                found.setdefault((r.network, who.removesuffix(" tuned"), kind), set()).add(r.row)
    if not found:
        return ""
    lines = [
        f"- {network}: {who} {'refuses' if kind == 'refuses' else 'gives another map for'} "
        f"{', '.join(f'`{row}`' for row in sorted(rows))}"
        for (network, who, kind), rows in found.items()
    ]
    return "Peers that are not in a race:\n\n" + "\n".join(lines) + "\n"


def not_ahead(results: list[Result]) -> str:
    """Every row that is behind or misses its target, under its reason."""
    groups: dict[str, list[Result]] = {}
    for r in results:
        if behind(r) or unmet(r):
            words = reason(r)
            if words is None:
                raise SystemExit(f"The row {r.key} is behind and has no reason in benchmarks/reasons.py.")
            groups.setdefault(words, []).append(r)
    text = []
    for words, own in groups.items():
        rows: dict[tuple[str, str, str], list[str]] = {}
        for r in own:
            kind = (
                "slower" if behind(r) else "below its target" if r.sense == "at least" else "above its limit"
            )
            where = f" at {r.batch}" if r.batch else ""
            ratio = strictly(r.ratio, r.sense)
            unit = " p" if r.league == "overhead" else "×"
            rows.setdefault((kind, r.league, r.row), []).append(f"{r.network}{where} ({ratio}{unit})".strip())
        lines = [
            f"    - `{row}` ({league}, {kind}): {', '.join(places)}"
            for (kind, league, row), places in sorted(rows.items())
        ]
        text.append(f"- {words}\n" + "\n".join(lines) + "\n")
    return "\n".join(text)


def races(record: Record) -> str:
    """A plain table of ratios."""
    rows = []
    for r in record.results:
        best = r.peer or next(iter(r.peers), "")
        target = "" if r.target is None else f"{r.sense} {r.target:g}"
        verdict = {True: "met", False: "**not met**", None: ""}[r.met]
        rows.append((r.row, times(r.ratio) if r.unit != "s" else f"{r.ratio:.2f} s", best, target, verdict,
                     "; ".join(r.notes.values())))  # fmt: skip
    return table(("row", "ratio", "beside", "target", "", "note"), rows)


def grown(record: Record) -> str:
    """How time and memory grow."""
    rows = [
        (
            r.row,
            times(r.ours),
            times(r.peers.get("captum")),
            f"at most {r.target:g}×",
            "met" if r.met else "**not met**",
        )
        for r in record.results
    ]
    return table(("row", "verax", "Captum", "target", ""), rows)


def league(record: Record) -> str:
    """Implementations by kinds of network."""
    kinds, told = record.details["kinds"], record.details["about"]
    text = [_counted(record)]
    for method, names in record.details["table"].items():
        alone = record.details["batches"][method]
        rows = [
            (
                who,
                *(_verdict(cells[kind]) for kind in kinds),
                _gap(max((cell["sum"] for cell in cells.values() if "sum" in cell), default=None)),
                _gap(alone.get(who)),
            )
            for who, cells in names.items()
        ]
        about = f" ({told[method]})" if told[method] else ""
        head = ("implementation", *kinds, "sums", "alone")
        text.append(f"**{method}**{about}\n\n{table(head, rows)}{_otherwise(names)}")
    return "\n".join(text)


def _counted(record: Record) -> str:
    """How many networks each implementation gets right, over all of its methods."""
    cells: dict[str, list[str]] = {}
    methods: dict[str, int] = {}
    for names in record.details["table"].values():
        for who, row in names.items():
            cells.setdefault(who, []).extend(cell["does"] for cell in row.values())
            methods[who] = methods.get(who, 0) + 1
    rows = [
        (
            who,
            str(methods[who]),
            str(len(does)),
            f"{100 * does.count('right') / len(does):.0f} %",
            *(str(sum(does.count(word) for word in words)) for words in VERDICTS),
        )
        for who, does in cells.items()
    ]
    head = (
        "implementation",
        "methods",
        "networks",
        "right",
        "documented otherwise",
        "no map",
        "wrong or made up",
    )
    return table(head, rows)


VERDICTS = (("differs",), ("refuses", "raises"), ("wrong", "makes up"))


def _otherwise(names: dict[str, dict[str, dict[str, object]]]) -> str:
    """What peers document to do instead, once for each sentence."""
    said: dict[str, list[str]] = {}
    for who, cells in names.items():
        for kind, cell in cells.items():
            if cell["does"] == "differs":
                said.setdefault(f"{who} {cell['why']}", []).append(kind)
    lines = [f"- otherwise ({', '.join(kinds)}): {sentence}.\n" for sentence, kinds in said.items()]
    return "\n" + "".join(lines) if lines else ""


def _gap(value: float | None) -> str:
    """A relative error."""
    if value is None:
        return "–"
    return "0" if value < 1e-9 else f"{100 * value:.0f} %" if value >= 0.01 else f"{value:.0e}"


def _verdict(cell: dict[str, object]) -> str:
    error = cell.get("error")
    if cell["does"] in ("wrong", "differs"):
        many = percent(error)
        return f"**wrong, {many}**" if cell["does"] == "wrong" else f"otherwise, {many}"
    if cell["does"] == "right":
        return "right" if error < 1e-3 else f"right, {100 * error:.1f} %"
    return "**made up**" if cell["does"] == "makes up" else str(cell["does"])


def board(record: Record) -> str:
    """Scores of implementations."""
    names = ["verax", *dict.fromkeys(who for r in record.results for who in (*r.peers, *r.notes))]
    text = []
    for arena in record.details["arenas"]:
        rows = []
        for r in record.results:
            if r.network == arena:
                scores = {"verax": r.ours, **r.peers}
                rows.append(
                    (
                        f"`{r.row}`",
                        *(
                            f"{scores[w]:.3f}" if w in scores else "fails" if w in r.notes else ""
                            for w in names
                        ),
                    )
                )
        unit = next(r.unit for r in record.results if r.network == arena)
        text.append(f"**{arena}** ({unit})\n\n{table(('method', *names), rows)}")
    return "\n".join(text)


def gpu(records: dict[str, Record]) -> str:
    """The part for GPUs; nothing where nothing was measured."""
    own = {
        name: record for name, record in records.items() if name.endswith("-cuda") and name != "journeys-cuda"
    }
    if not own:
        return ""
    text = ["## On a GPU\n"]
    for name, record in own.items():
        text.append(made_by(record))
        if record.details.get("floors"):
            rows = [
                (
                    f"`{f['method']}`",
                    f["network"],
                    str(f["batch"]),
                    f"{f['seconds']:.3g} s",
                    f"{f['FLOP floor seconds']:.3g} s",
                    f"{f['byte floor seconds']:.3g} s",
                    f"{f['kernel'].removeprefix('aten.')} at {f['kernel TFLOP/s']:.3g} TFLOP/s",
                    f"{100 * f['FLOP floor']:.0f} %",
                    f"{f['samples a second']:.3g}",
                )
                for f in record.details["floors"]
            ]
            head = ("method", "network", "batch", "time", "FLOP floor", "byte floor")
            head += ("dominating kernel alone", "of its rate", "samples/s")
            text.append(table(head, rows))
            text.append(FASTER)
        if record.details.get("tf32"):
            rows = [
                (f["network"], str(f["batch"]), f"{f['times as fast']:.1f}", f"{f['distance']:.1g}")
                for f in record.details["tf32"]
            ]
            text.append(
                ROUNDED + table(("network", "batch", "times as fast", "distance of the gradient"), rows)
            )
        if name.startswith("speed"):
            text.append(verdict(record.results, "On this GPU") + "\n")
            text.append(targets(record.results, "on this GPU"))
            text.append(duels.shown(record.results))
            text.append("![On this GPU: times as fast as the best peer](images/performance/speed-cuda.svg)\n")
            text.append(methods(record))
            text.append(notes(record))
            text.append(not_ahead(record.results))
        elif name.startswith("growth"):
            text.append(grown(record))
            text.append(not_ahead(record.results))
        if record.skipped:
            text.append(f"{len(record.skipped)} rows were left out ({_why(record.skipped)}).\n")
    return "\n".join(text) + "\n"


FASTER = """Above 100 %, verax carries gradients back by other kernels than PyTorch's own, whose rate is the
measure.
"""

ROUNDED = """In the league below everybody computes in full float32 with fixed algorithms, as verax does, so
that a map is the same on every device and in every batch. Torch itself comes with TF32, which rounds the
inputs of convolutions to 10 bits; what that gains and loses in a plain pass:

"""


def _why(skipped: list[str]) -> str:
    counts: dict[str, int] = {}
    for line in skipped:
        words = line.rpartition(": ")[2].removeprefix("UnsupportedOperation, ").partition(" on (")[0]
        counts[words] = counts.get(words, 0) + 1
    return ", ".join(f"{words} {count}" for words, count in sorted(counts.items()))


INTRODUCTION = """# Performance

Written by `python benchmarks/render.py` from `benchmarks/results/*.json`, and by nothing else: a figure is
here only if a command made it. `make bench` measures all of it again on a CPU, `make bench-gpu` on a GPU,
and `make bench-check` measures a few rows and fails where a ratio fell by more than a stated margin.

Everything is a ratio, with the peers in the same process, on the same network and inputs, in turns. On a
CPU, all use one thread and are timed by the processor's clock. *p* is a plain pass: one forward and one
backward to the input of the same batch. "2.1 p, 3.4× captum" reads: verax takes 2.1 plain passes, the best
peer, Captum, 3.4 times that. Peers are measured as they come and *tuned* (64 rows a pass where they can be
told), and the better of the two counts. A peer whose map is another one (1 % away or more) cannot win.
Ratios from {level} to 1 are called level: on an idle machine, most rows that are measured twice differ by
less than that, and rows of a few milliseconds by a tenth; on a busy one, by up to a quarter. Bold ratios are
below, and are rounded down. An empty cell was left out; the last line of each part says why.

One method on one network, printed and not written:

<!-- docs: check (installs all peers) -->
```sh
make .venv/.bench
.venv/bin/python benchmarks/speed.py --methods occlusion --networks cnn4 --no-floors
```

{verdict}

## Beside each library, on a CPU

"""
BEFORE = """
## Targets

"""
MIDDLE = """
![On a CPU: times as fast as the best peer, by method](images/performance/speed.svg)

## Where verax is not ahead

Every row that is behind the best peer, or ahead by less than its target, with its reason.

"""


def page(records: dict[str, Record]) -> str:
    """The whole page."""
    here = {name: record for name, record in records.items() if not name.endswith("-cuda")}
    everything = [result for record in here.values() for result in record.results]
    graphics = [r for name, record in records.items() if name == "speed-cuda" for r in record.results]
    said = f"{verdict(everything, 'On a CPU')} {verdict(graphics, 'On an H200')}".strip()
    opening = INTRODUCTION.format(level=LEVEL, verdict="\n\n".join(filter(None, [said, aged(records)])))
    parts = [opening, duels.shown(everything), BEFORE, targets(everything, "on a CPU"), MIDDLE]
    parts.append(not_ahead(everything))
    sections = [
        ("speed", "Methods", lambda r: methods(r) + "\n" + notes(r) + f"\n{_left_out(r)}", None),
        ("metrics", "Metrics beside Quantus", races, "metrics"),
        ("data", "Making data", races, None),
        ("growth", "Growth", grown, "growth"),
        ("start-up", "Starting", races, None),
        ("league", "Correctness league", league, "correctness"),
        ("harness", "Implementations on the leaderboard", board, None),
    ]
    words = {
        "metrics": "64 maps of 64 × 64. Values agree wherever the note does not say otherwise.",
        "growth": "Time or memory of eight times the work over that of the work itself. Memory is that of "
        "tensors, as PyTorch counts them, beyond a copy of the inputs and the maps.",
        "league": "Errors against references that are written out in `benchmarks/references.py`, "
        "`relevances.py`, `featuremaps.py` and `games.py` and use nothing of verax: formulas on layers as "
        "matrices, path integrals with 4000 points, means of 4000 draws, every coalition of four segments. "
        "*refuses* and *raises*: no map, which is better than a wrong one. *right* is an error below 0.1 %, "
        "5 % where a method approaches a limit in steps, 10 % where it draws random numbers. *otherwise*: "
        "another map, by a choice that its documentation or code states. *made up*: a map where no rule "
        "exists. *sums*: how far maps are from what they promise to add up to, at the worst (relevance: on "
        "networks without biases). *alone*: the distance between the map of a sample alone and in a batch of "
        "four, with the same seeds. zennit merges batch normalisation here; its canonizers for residual "
        "networks know torchvision's classes only. In the picture grey is no map, yellow *otherwise*, red "
        "wrong or made up. Methods that no peer here has (RISE, Blur IG, guided IG, attention) are proven "
        "in the tests alone.",
        "harness": "The same methods of several libraries as methods of one study, judged by the same "
        "truth. Differences come from defaults: which layer, which weights of the path, "
        "which start of the relevance.",
        "start-up": "Each in a process of its own; the unit is `import torch`.",
        "data": "Pictures of TextBox beside a loop with PIL, samples of the climate field beside one in"
        " Python. Pictures of more than 32 MB at once take everybody several times as long: the system maps"
        " new memory for them, page by page.",
    }
    for name, title, draw, image in sections:
        if name in here:
            parts.append(f"\n## {title}\n\n{made_by(here[name])}\n")
            if name in words:
                parts.append(words[name] + "\n\n")
            if image:
                parts.append(f"![{title}](images/performance/{image}.svg)\n\n")
            parts.append(draw(here[name]))
    if "speed" in here and here["speed"].details.get("floors"):
        parts.append("\n## Floors on a CPU\n\n" + cpu_floors(here["speed"]))
    parts.append("\n" + gpu(records) if gpu(records) else "")
    if "journeys-cuda" in records:
        record = records["journeys-cuda"]
        parts.append(f"\n## Whole commands on a GPU\n\n{made_by(record)}\n")
        parts.append("![Seconds by phase](images/performance/journeys.svg)\n\n" + journeys.shown(record))
    return "".join(parts).rstrip() + "\n"


def cpu_floors(record: Record) -> str:
    """What share of the dominating kernel's rate the two methods reach."""
    rows = [
        (f"`{f['method']}`", f["network"], str(f["batch"]), f"{100 * f['FLOP floor']:.0f} %",
         f"{100 * f['byte floor']:.0f} %", f["kernel"].removeprefix("aten."))
        for f in record.details["floors"]
    ]  # fmt: skip
    head = ("method", "network", "batch", "FLOP floor", "byte floor", "dominating kernel")
    return (
        "The share of the time that the arithmetic would take at the rate of the dominating kernel "
        "alone, and that the "
        "memory traffic would take at the rate of a copy.\n\n" + table(head, rows)
    )


def _left_out(record: Record) -> str:
    return f"{len(record.skipped)} rows were left out ({_why(record.skipped)}).\n" if record.skipped else ""


def draw(records: dict[str, Record]) -> None:
    """All pictures."""
    import drawings

    if "speed" in records:
        drawings.speed(records["speed"].results, IMAGES / "speed.svg")
    if "speed-cuda" in records:
        drawings.speed(records["speed-cuda"].results, IMAGES / "speed-cuda.svg")
    if "metrics" in records:
        drawings.metrics(records["metrics"].results, IMAGES / "metrics.svg")
    if "growth" in records:
        drawings.growth(records["growth"].results, IMAGES / "growth.svg")
    if "journeys-cuda" in records:
        drawings.journeys(records["journeys-cuda"], IMAGES / "journeys.svg")
    if "league" in records:
        drawings.correctness(records["league"], IMAGES / "correctness.svg")


def main() -> None:
    """Write the page, or say whether it is up to date."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page would change")
    asked = parser.parse_args()
    records = read_all()
    text = page(records)
    if asked.check:
        if PAGE.read_text() != text:
            sys.exit(
                "docs/performance.md does not match benchmarks/results; run: python benchmarks/render.py"
            )
        return
    draw(records)
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
