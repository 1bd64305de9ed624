"""What is run: networks are trained, studies are run, and evidence is gathered from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from verax import devices, methods, progress
from verax.correlations import correlation
from verax.errors import InvalidInput, InvalidParameter, MissingFile, suggestion
from verax.files import make_folder, store_folder
from verax.methods.base import METHODS
from verax.networks import fits, library
from verax.networks.inference import outputs
from verax.reproductions.sst import catalogue, defects, keras, published, spread
from verax.reproductions.sst.catalogue import DEEP, FEW, GRADIENT, INTEGRATED, LRP_Z_BARE, OCCLUSION, PRODUCT
from verax.reproductions.sst.evidence import Evidence, Fit
from verax.studies.running import run
from verax.studies.runs import Run
from verax.studies.store import Store
from verax.tasks import task as find_task
from verax.tasks.climate import Climate, cobe

FIELDS = ("auto", "cobe-sst2", "analytic")
FULL, SMALL = 1_000_000, 100_000
"""Training samples: as published, and what a CPU does in minutes."""

_SHOWN = 40  # samples whose raw maps are kept for figures and for claims about identities
_HELD_OUT = 10_000
_BATCH = 4096
_PATCHES = range(2, 9)


@dataclass(frozen=True)
class Options:
    """What to reproduce.

    Attributes:
        field: "cobe-sst2", "analytic", or "auto": the first where its data are here.
        samples: training samples; the paper has a million.
        explained: samples that are explained and scored; the paper has 100,000.
        function: seed of F.
        functions: how many random functions the spread is measured over.
        seed: of the training.
        recipe: use the published recipe, which takes many times as long, on all samples too; on a tenth of
            them it is always used.
        draws: samples behind the numbers of the published network.
        device: where to compute.
        store: where finished work is kept.
        quiet: no progress bars.
    """

    field: str = "auto"
    samples: int = SMALL
    explained: int = 500
    function: int = 0
    functions: int = 20
    seed: int = 0
    recipe: bool = False
    draws: int = 100_000
    device: str = "auto"
    store: Path | None = None
    quiet: bool = False

    def __post_init__(self) -> None:
        if self.field not in FIELDS:
            raise InvalidParameter(f"There is no field {self.field!r}{suggestion(self.field, FIELDS)}")
        lowest = {"samples": 1000, "explained": 20, "functions": 2, "draws": 1000, "function": 0, "seed": 0}
        for name, low in lowest.items():
            if getattr(self, name) < low:
                raise InvalidParameter(f"{name} must be at least {low}, not {getattr(self, name)}.")


def has_data() -> bool:
    """Whether COBE-SST2 is here."""
    try:
        cobe.extract_path("cobe-sst2")
    except MissingFile:
        return False
    return True


def chosen_field(options: Options) -> str:
    """The field that "auto" means here."""
    if options.field != "auto":
        return options.field
    return "cobe-sst2" if has_data() else "analytic"


def climate(options: Options, samples: int) -> Climate:
    """The task with so many training samples."""
    name = f"climate/{chosen_field(options)}"
    found = find_task(name, function=options.function, samples=samples)
    if not isinstance(found, Climate):
        raise InvalidInput(f"{name!r} is not a climate task.")
    return found


def run_study(
    options: Options, task: Climate, name: str, networks: list[str], labels: tuple[str, ...], out: Path
) -> Run:
    """Some networks and methods on a task; networks that are missing are trained and kept."""
    study = {
        "name": f"sst-{name}",
        "tasks": [task.name],
        "networks": networks,
        "seeds": [options.seed],
        "methods": [catalogue.entry(spec) for spec in catalogue.chosen(labels)],
        "protocols": ["exact"],
        "samples": options.explained,
        "certify": 200,
        "missing": "train",
    }
    return run(
        study, device=options.device, out=out / "runs" / name, store=options.store, quiet=options.quiet
    )


def fit_of(task: Climate, network: str, options: Options) -> Fit:
    """R2 of a network on held-out samples, with its interval."""
    device = devices.resolve(options.device)
    model = library.network(task, network, options.seed, store_folder(options.store)).to(device)
    held = task.drawn("test", _HELD_OUT, 1)
    right, given = [], []
    for index in range(held.chunks):
        x, y = held.chunk(index, device)
        right.append(y)
        given.append(outputs(model, x, _BATCH)[:, 0])
    return fits.r_squared(torch.cat(right), torch.cat(given))


def raw_maps(task: Climate, options: Options) -> tuple[Any, dict[str, Tensor]]:
    """A few samples and the maps that the paper's methods give them, as they are."""
    device = devices.resolve(options.device)
    model = library.network(task, DEEP, options.seed, store_folder(options.store)).to(device)
    cases = task.cases(n=options.explained, seed=0, device=device)
    order = task.function.total(cases.inputs).argsort().cpu()
    # the samples of Figures 3 and 4 have a high and a low output; the others are the first ones
    high, low = (int(order[round(q * (len(order) - 1))]) for q in (0.95, 0.05))
    rest = [place for place in range(len(cases)) if place not in (high, low)]
    some = cases[torch.tensor([high, low, *rest])[:_SHOWN]]
    found = {}
    for spec in catalogue.chosen((*catalogue.PAPER, LRP_Z_BARE, "lime")):
        method = METHODS.get(spec.name)
        settings = method.settings(spec.parameters)
        found[spec.label] = methods.explain(
            model, some.inputs, some.targets, method, ids=some.ids, settings=settings
        ).cpu()
    return some.to("cpu"), found


def on_the_function(task: Climate) -> dict[str, float]:
    """Mean r of methods on F itself, where the truth is exact: what a perfect network would give."""
    cases = task.cases(n=40, seed=0)
    model = task.function.module()
    found = {}
    for label in (GRADIENT, PRODUCT, INTEGRATED, OCCLUSION, "deeplift-rescale"):
        (spec,) = catalogue.chosen((label,))
        method = METHODS.get(spec.name)
        maps = methods.explain(
            model, cases.inputs, cases.targets, method, settings=method.settings(spec.parameters)
        )
        assert cases.truth.values is not None
        found[label] = float(correlation(maps.double(), cases.truth.values.double()).mean())
    return found


def run_defects(task: Climate, maps: dict[str, Tensor], cases: Any) -> dict[str, dict[str, Any]]:
    """Everything about the re-implementation that can be run here."""
    truth = cases.truth.values
    found: dict[str, dict[str, Any]] = {
        "signs": defects.signs(task.function, cases.inputs),
        "lime": {
            "right": correlation(maps["lime"].double(), truth.double()).numpy(),
            "scrambled": correlation(defects.by_importance(maps["lime"]).double(), truth.double()).numpy(),
        },
        "layers": {"seen": defects.first_of_list("512,256,128,64,32,16")},
        "patches": {},
    }
    for size in _PATCHES:
        for name in (GRADIENT, INTEGRATED):
            once, inflated = defects.patches(task.grid, maps[name], truth, size)
            found["patches"][f"{name} {size}"] = (once.numpy(), inflated.numpy())
    if task.name.startswith("climate/cobe-sst2"):
        right, wrong = defects.seasons()
        found["seasons"] = {"right": right, "wrong": wrong}
        found["constant"] = defects.constant_cells()
    return found


def gather(options: Options, out: Path) -> Evidence:
    """Run every study and put the evidence together; what is in the store already is not computed again."""
    task, fewer = climate(options, options.samples), climate(options, max(100, options.samples // 10))
    every = tuple(spec.label for spec in catalogue.every_method())
    runs = [
        run_study(options, task, "main", [DEEP], every, out),
        run_study(options, task, "side", list(catalogue.SIDE), FEW, out),
        run_study(options, fewer, "fewer", [DEEP, *catalogue.RECIPES], FEW, out),
    ]
    if options.recipe:
        runs.append(run_study(options, task, "recipe", list(catalogue.RECIPES), catalogue.PAPER, out))
    networks = [DEEP, *catalogue.SIDE, *(catalogue.RECIPES if options.recipe else ())]
    found = {(name, "all"): fit_of(task, name, options) for name in networks}
    found |= {(name, "fewer"): fit_of(fewer, name, options) for name in (DEEP, *catalogue.RECIPES)}
    with progress.status("Random functions, the function itself, and defects", options.quiet):
        cases, maps = raw_maps(task, options)
        oracle, table = on_the_function(task), spread.functions(task, options.functions)
        broken = run_defects(task, maps, cases)
    evidence = Evidence(
        task, fewer, runs, found, cases, maps, oracle, table, defects=broken, recipe=options.recipe
    )
    add_published(evidence, options)
    return evidence


def add_published(evidence: Evidence, options: Options) -> None:
    """Measure the published network, where its file and its field are here."""
    path = keras.find()
    if path is None or not evidence.task.name.startswith("climate/cobe-sst2"):
        return
    device = devices.resolve(options.device)
    network = keras.load(path)
    with progress.status("The published network on draws from the field", options.quiet):
        evidence.behaviour = published.behaviour(network, evidence.task, options.draws, device)
    store = Store(make_folder(store_folder(options.store)))
    evidence.published = published.explained(
        network,
        evidence.task,
        catalogue.every_method(),
        min(100, options.explained),
        device,
        store,
        options.quiet,
    )
