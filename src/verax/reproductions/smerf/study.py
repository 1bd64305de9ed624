"""What is run: networks that are missing are trained, studies are run, and evidence is gathered from them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from verax import devices, methods, progress
from verax.errors import InvalidInput, InvalidParameter
from verax.files import store_folder
from verax.networks import NETWORKS, exams, library, names, noise, records, teaching, training
from verax.networks.certificates import wilson
from verax.networks.inference import predictions
from verax.protocols import published
from verax.reproductions import workers
from verax.reproductions.smerf.evidence import Evidence, Series, View, kind, role
from verax.reproductions.smerf.figures import toys
from verax.reproductions.smerf.paper_methods import TASKS, entries, sound_entries
from verax.seeding import key
from verax.studies import spec as specs
from verax.studies.execution import first_of_each
from verax.studies.running import run
from verax.studies.runs import Run
from verax.tasks import task as find_task
from verax.tasks.textbox import TextBox

CURVE = ("textbox/complex-cr1", 9, "integrated-gradients@published")
"""Figure 15: integrated gradients on pictures of CR1 that hold B and Box1."""

IDENTIFIED = 20
"""Pictures in each bucket from which the reasoning is read off the maps."""

PLAIN = "cnn@published"
QUICK = "cnn4"
"""The network that is shipped for every setting, so that nothing has to be trained."""


@dataclass(frozen=True)
class Options:
    """What to reproduce.

    Attributes:
        networks: names as studies give them; the first plain one is on every background.
        backgrounds: names; all but black are run with the plain network only.
        seeds: training seeds of the plain network on black; all else has the first of them.
        samples: pictures in each bucket under the published protocol; the paper has 20.
        references: training pictures behind Deep SHAP; the paper has 1000.
        deep_references: the same for architectures that are many times as large as the paper's CNN.
        sound_samples: pictures in each bucket under the sound protocol; 0 leaves it out.
        sound_references: the same for the sound protocol.
        certify: scenes in each bucket for the certificates.
        tested: scenes in each bucket for Table 3.
        renderer: of the scenes.
        device: where to compute.
        store: where finished work is kept.
        quick: a first look, which the pages say.
        quiet: no progress bars.
        workers: how many networks train at once on a GPU, and processes that draw; a script that asks for
            more than one needs the guard ``if __name__ == "__main__"``.
    """

    networks: Sequence[str] = (PLAIN,)
    backgrounds: Sequence[str] = ("black",)
    seeds: Sequence[int] = (0,)
    samples: int = 20
    references: int = 1000
    deep_references: int = 100
    sound_samples: int = 100
    sound_references: int = 100
    certify: int = 50
    tested: int = 500
    renderer: str = "sound"
    device: str = "auto"
    store: Path | None = None
    quick: bool = False
    quiet: bool = False
    workers: int = 1

    def __post_init__(self) -> None:
        if not self.networks or not self.backgrounds or not self.seeds:
            raise InvalidParameter("A reproduction needs at least one network, one background and one seed.")
        for noun in ("networks", "backgrounds", "seeds"):
            entries = list(getattr(self, noun))
            for entry in entries:
                if entries.count(entry) > 1:
                    raise InvalidParameter(f"{noun} has {entry!r} twice.")
        if min(self.seeds) < 0:
            raise InvalidParameter(f"Seeds are whole numbers from 0, not {min(self.seeds)}.")
        counts = ("samples", "references", "deep_references", "sound_references", "tested", "workers")
        limits = {**dict.fromkeys(counts, 1), "sound_samples": 0, "certify": 0}
        for name, low in limits.items():
            if getattr(self, name) < low:
                raise InvalidParameter(f"{name} must be at least {low}, not {getattr(self, name)}.")

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """All (network, background) that are run: every network on black, the plain one on all others."""
        plain = next((name for name in self.networks if role(name) == "plain"), self.networks[0])
        usual = [name for name in self.backgrounds if kind(name) == "black"]
        others = [name for name in self.backgrounds if kind(name) != "black"]
        return [(n, b) for b in usual for n in self.networks] + [(plain, b) for b in others]

    def seeds_of(self, network: str, background: str) -> Sequence[int]:
        """The training seeds of a network on a background."""
        return self.seeds if role(network) == "plain" and kind(background) == "black" else self.seeds[:1]

    def references_of(self, network: str) -> int:
        """The references behind Deep SHAP for a network."""
        usual = role(network) in ("plain", "robust")
        return self.references if usual else min(self.references, self.deep_references)


def world(name: str, background: str, renderer: str) -> TextBox:
    """A task of the paper on a background."""
    found = find_task(name, background=background, renderer=renderer)
    if not isinstance(found, TextBox):
        raise InvalidInput(f"{name!r} is not one of the settings of the paper.")
    return found


def missing(options: Options) -> list[tuple[TextBox, str, int]]:
    """The networks that have to be trained first: task, name, seed."""
    store = store_folder(options.store)
    # one task for all of its networks, which so are asked the same
    worlds = {
        (task, background): world(task, background, options.renderer)
        for background in {background for _, background in options.pairs}
        for task in TASKS
    }
    wanted = [
        (worlds[task, background], network, seed)
        for network, background in options.pairs
        for seed in options.seeds_of(network, background)
        for task in TASKS
    ]
    return [entry for entry in wanted if library.find(*entry, store) is None]


def train_missing(options: Options) -> int:
    """Train what is missing and keep it in the store; gives how many networks that were."""
    todo = missing(options)
    if options.workers > 1 and len(todo) > 1 and devices.resolve(options.device).type == "cuda":
        # robust networks start from the plain ones
        for wave in (False, True):
            _train_side_by_side(options, [e for e in todo if (role(e[1]) == "robust") is wave])
    where = store_folder(options.store) / "networks"
    for entry in missing(options):
        _train(*entry, where, device=options.device, quiet=options.quiet)
    return len(todo)


def _train(task: TextBox, network: str, seed: int, where: Path, **how: Any) -> None:
    """Train one network, from another one of the same folder where it starts from one, and keep it."""
    start = library.start(task, teaching.origins(task, network), seed, where)
    library.save(training.train(task, network, seed=seed, start=start, **how), where)


def _train_side_by_side(options: Options, todo: Sequence[tuple[TextBox, str, int]]) -> None:
    """Train in threads; one that fails is left to be tried again where its error is seen.

    Networks that draw random numbers while they learn train in commands of their own: threads would share
    a generator.
    """
    where = store_folder(options.store) / "networks"
    device = devices.resolve(options.device)
    shared = ["--device", options.device, "--renderer", options.renderer, "--out", str(where)]
    lines = [
        ["train", t.name, "--network", n, "--seed", str(s), "--background", t.background.spec, *shared]
        for t, n, s in todo
        if _draws(t, n)
    ]

    def job(task: TextBox, network: str, seed: int) -> Callable[[], object]:
        return lambda: _train(task, network, seed, where, device=device, watch=lambda state: None)

    jobs = [job(*entry) for entry in todo if not _draws(*entry[:2])]
    with exams.shared(), progress.bar(hidden=options.quiet) as bar:
        row = bar.add_task("training", total=len(todo))
        for _ in itertools.chain(
            workers.threads(jobs, options.workers, device),
            workers.commands(lines, options.workers, store_folder(options.store)),
        ):
            bar.advance(row)


def _draws(task: TextBox, network: str) -> bool:
    make = NETWORKS.get(names.parse(network).on(task).architecture)
    return noise.draws(make, task.classes, tuple(task.input_shape))


def run_study(options: Options, network: str, background: str, folder: Path, sound: bool = False) -> Run:
    """One network on one background and all settings, under one of the two protocols."""
    study = _described(options, network, background, sound)
    return run(study, device=options.device, out=folder, store=options.store, quiet=options.quiet)


def check(options: Options) -> None:
    """Refuse what no study can be, before networks are trained for it."""
    for network, background in options.pairs:
        for sound in (False, True) if options.sound_samples else (False,):
            specs.study(_described(options, network, background, sound))


def _described(options: Options, network: str, background: str, sound: bool) -> dict[str, Any]:
    return {
        "name": "smerf-sound-protocol" if sound else "smerf",
        "tasks": list(TASKS),
        "networks": [network],
        "seeds": list(options.seeds_of(network, background)),
        "methods": sound_entries(options.sound_references)
        if sound
        else entries(options.references_of(network)),
        "protocols": ["sound"] if sound else ["published"],
        "samples": options.sound_samples if sound else options.samples,
        "identify": min(IDENTIFIED, options.sound_samples) if sound else 0,
        "certify": options.certify,
        "renderer": options.renderer,
        "background": background,
    }


def view(options: Options, network: str, background: str, name: str, done: Run) -> View:
    """One network of a run on one task: cases, predictions, maps and accuracy."""
    task, seed = world(name, background, options.renderer), options.seeds[0]
    device = devices.resolve(options.device)
    path = library.require(task, network, seed, store_folder(options.store))
    model = library.network(task, network, seed, store_folder(options.store)).to(device)
    cases = task.cases(n=1, seed=0, device=device)
    cases = cases[first_of_each(cases.group)]
    start = f"{name}|{network}|{seed}|"
    maps = {label.removeprefix(start): m for label, m in done.maps().items() if label.startswith(start)}
    tested = task.cases(n=options.tested, seed=key("table 3"), device=device)
    right = (predictions(model, tested.inputs) == tested.targets).cpu()
    table = (
        pd.DataFrame({"group": tested.group.cpu(), "hit": right}).groupby("group")["hit"].agg(["size", "sum"])
    )
    table = table.rename(columns={"size": "n", "sum": "right"}).reset_index()
    table["accuracy"] = table["right"] / table["n"]
    table["low"], table["high"] = wilson(table["right"], table["n"])
    table.insert(1, "scene", [task.describe(group) for group in table["group"]])
    table.insert(2, "label", task.labels(torch.tensor(table["group"].to_numpy())).tolist())
    return View(
        name, cases.to("cpu"), predictions(model, cases.inputs).cpu(), maps, table, _facts(task, path)
    )


def _facts(task: TextBox, path: Path) -> dict[str, Any]:
    """What tables say about a task and its stored network."""
    record = records.record(path)
    recipe = record.get("recipe") or {}
    seen = recipe.get("scenes", 0) * len(task.groups) * record.get("epochs", 0)
    return {
        "reasoning": str(task.reasoning),
        "recipe": recipe.get("name", ""),
        "scenes": f"{seen:,}" if seen else "",
        "sha256": record["sha256"],
    }


def threshold_curve(options: Options, network: str, background: str) -> pd.DataFrame:
    """The values of Figure 15: threshold, sample, value."""
    name, group, method = CURVE
    task, seed = world(name, background, options.renderer), options.seeds[0]
    device = devices.resolve(options.device)
    model = library.network(task, network, seed, store_folder(options.store)).to(device)
    cases = task.cases(group, n=options.samples, seed=0, device=device)
    maps = methods.explain(model, cases.inputs, None, method, ids=cases.ids)
    values = published.prepare(maps, "heat").values
    found: Tensor = toys.iou_at(values, cases.truth).cpu()
    wide = pd.DataFrame(found.numpy(), columns=list(toys.THRESHOLDS)).assign(sample=cases.ids.cpu().numpy())
    return wide.melt("sample", var_name="threshold", value_name="value").astype({"threshold": int})


@dataclass
class Gathered:
    """What a reproduction leaves behind for drawing.

    Attributes:
        evidence: for the figures.
        runs: folder of each run, in order.
    """

    evidence: Evidence
    runs: list[Run] = field(default_factory=list)


def gather(
    options: Options, out: Path, done_with: Callable[[Path], object] = lambda folder: None
) -> Gathered:
    """Run every study and put the evidence together; what is in the store already is not computed again.

    Args:
        options: what to reproduce.
        out: folder of the runs.
        done_with: called with the folder of each run as soon as it is whole.
    """
    series, runs = [], list[Run]()
    sound: Series | None = None

    def study(network: str, background: str, sound: bool = False) -> Run:
        folder = folder_name(network, background) + ("-sound" if sound else "")
        runs.append(run_study(options, network, background, out / "runs" / folder, sound))
        done_with(runs[-1].folder)
        return runs[-1]

    for network, background in options.pairs:
        usual = role(network) == "plain" and kind(background) == "black"
        if sound is None and options.sound_samples and usual:
            # first, because its report takes longest to write
            sound = Series(network, background, study(network, background, sound=True).scores)
        done = study(network, background)
        with progress.status(f"Looking at {network} on {background}", options.quiet):
            views = tuple(view(options, network, background, name, done) for name in TASKS)
            curve = threshold_curve(options, network, background)
        series.append(Series(network, background, done.scores, views, curve))
    return Gathered(Evidence(tuple(series), sound), runs)


def folder_name(network: str, background: str) -> str:
    """A folder for the run of one network on one background."""
    words = network if kind(background) == "black" else f"{network}-{background}"
    plain = "".join(c if c.isalnum() or c in "-._" else "-" for c in words)
    # two folders of photographs may differ in such characters alone
    return f"{plain}-{key(background) & 0xFFFFFF:06x}" if ":" in background else plain
