"""Training: one trainer for all recipes, pictures rendered on the fly, deterministic by seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from verax import devices, progress, registry, seeding
from verax.cases import Cases
from verax.errors import InvalidParameter
from verax.networks import NETWORKS, VECTORS, batches, names, noise
from verax.networks.attacks import robust_accuracy
from verax.networks.certificates import Thresholds
from verax.networks.exams import Exams, exams
from verax.networks.inference import halved, predictions, undisturbed
from verax.networks.names import Name
from verax.networks.precision import searching
from verax.networks.recipes import OWN, RECIPES, Recipe, find_recipe, fitted
from verax.networks.starts import TURN, initialise
from verax.networks.steps import Stepper, ends
from verax.networks.trained import SCRATCH, Start, Trained, Try
from verax.seeding import Streams
from verax.tasks.base import Trainable

__all__ = ["RECIPES", "Progress", "Recipe", "Trained", "Try", "find_recipe", "initialise", "train"]


@dataclass(frozen=True)
class Progress:
    """What a progress bar shows after each report."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    worst: float | None = None


Watcher = Callable[[Progress], None]
Batches = Iterator[tuple[Tensor, Tensor, Streams]]
_EVALUATED = 200  # scenes in each bucket after every epoch
_FIRST = 25  # of these, where one that is wrong decides
_CERTIFIED = 500  # scenes in each bucket of the certificate
_TEST = 400  # scenes in each bucket that decide about another try
_SHOWN = 20  # steps from one report to the next
_AHEAD = 256  # the same where nobody has to look: a GPU that waits for a look stands still
_LIFELESS = 25  # steps in which an output learns nothing, though it is wrong: the network counts as dead
_WRONG = 1.0  # a loss that no sure and right network has


def check_canvas(name: str, task: Trainable) -> None:
    """Refuse an architecture that cannot see the pictures of a task."""
    if name in VECTORS:
        raise InvalidParameter(f"The network {name!r} is for vectors; {task.name} has pictures.")
    hindrance = _hindrance(NETWORKS.get(name), task.classes, tuple(task.input_shape))
    if hindrance == _LAZY:
        raise InvalidParameter(f"The network {name!r} has {_LAZY}; give its layers their sizes.")
    if hindrance:
        high, wide = task.input_shape[1:]
        raise InvalidParameter(
            f"The network {name!r} is made for 64 x 64 pixels; the pictures of {task.name} have "
            f"{high} x {wide}."
        )


_LAZY = "lazy layers, whose weights are not there before they are used"


@lru_cache(maxsize=256)
def _hindrance(architecture: Callable[[int], nn.Module], classes: int, shape: tuple[int, ...]) -> str:
    """Why an architecture cannot learn from pictures of a shape, if so."""
    try:
        with torch.device("meta"):  # draws no random numbers
            # no weights in particular: a look without memory would load a compiler
            model = architecture(classes).to_empty(device="cpu")
    except Exception:  # it looks at numbers while it is made, or brings its own
        with TURN, noise.seeded(0, torch.device("cpu")):
            model = architecture(classes)
    if any(is_lazy(weight) for weight in model.parameters()):
        return _LAZY
    try:
        with undisturbed(model), torch.no_grad():
            model(torch.zeros(2, *shape))
    except RuntimeError:
        return "another shape"
    return ""


def _at_once(device: torch.device) -> int:
    """Pictures in a forward pass: a GPU waits for launches, a CPU for memory."""
    return 2048 if device.type == "cuda" else 256


def _worst_bucket(model: nn.Module, cases: Cases, groups: int, rough: bool = False, some: int = 0) -> float:
    """The accuracy in the worst of some buckets.

    With `some`, so many of each bucket are asked first, and if one of them is wrong, these alone tell.
    """
    inputs, targets = (part.reshape(groups, -1, *part.shape[1:]) for part in (cases.inputs, cases.targets))
    worst, device = 1.0, targets.device
    for rows in (slice(some), slice(None)) if some else (slice(None),):
        asked, labels = inputs[:, rows].flatten(0, 1), targets[:, rows].flatten(0, 1)
        with halved(device, rough):
            right = (predictions(model, asked, _at_once(device), rough=True) == labels).double()
        worst = float(right.reshape(groups, -1).mean(1).min())
        if worst < 1:
            break
    return worst


def _accuracy(model: nn.Module, pool: batches.Pool) -> float:
    """The share of a pool that the network gets right."""
    right = torch.zeros((), dtype=torch.int64, device=pool.groups.device)
    with undisturbed(model), torch.no_grad():
        for pictures, labels, _ in pool.batches(torch.arange(len(pool), device=pool.groups.device), 1024):
            right += (model(pictures).argmax(1) == labels).sum()
    return int(right) / len(pool)


def prepare(
    task: Trainable, network: str = "cnn4", recipe: str | Recipe | None = None
) -> tuple[Name, Recipe]:
    """The full name and the recipe of a network; refuses what cannot be trained on a task."""
    name = names.parse(network).on(task)
    if isinstance(recipe, Recipe):
        name, plan = Name(name.architecture, OWN), recipe
    else:
        if recipe is not None:
            if "@" in network and recipe != name.recipe:
                raise InvalidParameter(f"The network {network!r} has a recipe of its own, not {recipe!r}.")
            name = names.parse(f"{name.architecture}@{recipe}")
        plan = fitted(name.recipe, name.architecture, task)
    check_canvas(name.architecture, task)
    return name, plan


def origins(architecture: str, plan: Recipe) -> list[str]:
    """The networks that training against an adversary may start from, best first; none without one."""
    if plan.adversary is None:
        return []
    # the clipped loss has no gradient on networks that were not trained with it: nothing would be learned
    known = ("published",) if plan.loss == "clipped" else ("published", "swift", "fast")
    return [str(Name(architecture, recipe)) for recipe in known]


def train(
    task: Trainable,
    network: str = "cnn4",
    *,
    seed: int = 0,
    recipe: str | Recipe | None = None,
    groups: Sequence[int] | None = None,
    device: str | torch.device = "auto",
    early_stop: bool = True,
    settings: Recipe | None = None,
    start: Start | None = None,
    watch: Watcher | None = None,
    quiet: bool = False,
) -> Trained:
    """Train `network` on `task`; ``.save()`` keeps the result for studies.

    The weights are rounded to half precision, as they are stored, before the certificate is made.

    Args:
        task: where the scenes and labels come from.
        network: an architecture's name, or ``ARCHITECTURE@RECIPE``.
        seed: decides the first weights and every scene.
        recipe: the recipe, where the name has none: "fast" (default), "swift", "published",
            "published-script", "robust", "robust-swift", "robust-EPS" or a `Recipe`.
        groups: train on these buckets only (a confounded world); then no certificate is made.
        device: where to compute.
        early_stop: with fresh scenes, stop after the first epoch whose network passes its certificate with
            half of the permitted errors.
        settings: what the recipe of that name is, where it was looked up elsewhere (`prepare`).
        start: what training against an adversary starts from (default: the first of `origins` that is
            stored, or one that is trained for it).
        watch: called about every 20 steps, in place of the progress bar.
        quiet: no progress bar.
    """
    name, plan = prepare(task, network, recipe)
    job = _Job(task, name, seed, settings or plan, groups, devices.resolve(device), early_stop, start)
    if watch is not None:
        return job.run(watch)
    with progress.bar(hidden=quiet) as bar:
        row = bar.add_task(f"{task.name} {name}", total=None)

        def shown(state: Progress) -> None:
            worst = "-" if state.worst is None else f"{state.worst:.3f}"
            text = f"epoch {state.epoch}/{state.epochs}, loss {state.loss:.4f}, worst bucket {worst}"
            bar.update(row, total=state.steps, completed=state.step, doing=text)

        return job.run(shown)


@dataclass(frozen=True)
class _Job:
    """Everything that a training is decided by."""

    task: Trainable
    name: Name
    seed: int
    plan: Recipe
    groups: Sequence[int] | None
    device: torch.device
    early_stop: bool
    start: Start | None = None
    exams: Exams = field(default_factory=exams, compare=False)

    @property
    def chosen(self) -> tuple[int, ...]:
        return self.task.check_groups(list(self.groups) if self.groups is not None else None)

    def run(self, watch: Watcher) -> Trained:
        """Try until a network is accepted, and prove what it has learned."""
        task, plan, seed = self.task, self.plan, self.seed
        pool = None
        if plan.repeat:
            pool = batches.fixed(task, self.chosen, seed, plan.scenes, self.device)
        tries: list[Try] = []
        best: tuple[Try, nn.Module, str] | None = None
        stepper: Stepper | None = None
        for attempt in range(plan.tries):
            model, start = self._begin(attempt, watch)
            drop = seeding.key("dropout", seed, attempt)
            if stepper is None:
                stepper = Stepper(model, plan, self._per_epoch(pool) * plan.epochs, noise=drop)
            else:
                stepper.restart(model, drop)
            done = self._fit(stepper, pool, attempt, watch)
            tries.append(done)
            if best is None or done.quality >= best[0].quality:
                best = done, deepcopy(stepper.model), start
            if plan.accept is None or done.quality >= plan.accept:
                break
        assert best is not None
        kept, model, start = best
        model = model.eval().half().float()
        certificate = None
        if self.groups is None:
            trial = self.exams.trial(task, _CERTIFIED, seeding.key("certify", seed), self.device)
            certificate = trial.certificate(trial.answers(model, _at_once(self.device)))
        worst = _worst_bucket(model, self._cases, len(self.chosen))
        robust = None
        if plan.adversary is not None:
            fresh = seeding.key("attack", seed)
            robust = robust_accuracy(model, task, plan.adversary, groups=self.chosen, seed=fresh)
        return Trained(
            model,
            task,
            self.name.architecture,
            seed,
            self.name.recipe,
            plan,
            kept.epochs,
            worst,
            certificate,
            tuple(tries),
            start,
            robust,
        )

    def _begin(self, attempt: int, watch: Watcher) -> tuple[nn.Module, str]:
        """The network before training, and where its weights come from."""
        architecture, start = self.name.architecture, SCRATCH
        if self.plan.adversary is not None:
            model, start = self._plain(watch)
        else:
            model = initialise(architecture, self.task.classes, self.seed, attempt)
            if (pretrain := getattr(model, "pretrain", None)) is not None:
                start = str(pretrain())
        model = model.to(self.device)
        return model.to(memory_format=torch.channels_last), start  # type: ignore[call-overload]

    def _plain(self, watch: Watcher) -> tuple[nn.Module, str]:
        """What training against an adversary starts from: a stored network, or one trained for it."""
        known = origins(self.name.architecture, self.plan)
        # the library stands above the trainer, so its name is resolved when it is needed
        start = self.start or registry.load("verax.networks.library:start")(self.task, known, self.seed)
        if start is not None:
            return deepcopy(start.model), f"weights of {start.name}"
        last = names.parse(known[-1])
        plan = fitted(last.recipe, last.architecture, self.task)
        job = _Job(self.task, last, self.seed, plan, self.groups, self.device, early_stop=True)
        return job.run(watch).model, f"weights of {last}, trained for it"

    def _per_epoch(self, pool: batches.Pool | None) -> int:
        """Steps in an epoch."""
        if pool is not None:
            return batches.steps_in(pool, self.plan.batch)
        return max(1, self.plan.scenes * len(self.chosen) // self.plan.batch)

    def _fit(self, stepper: Stepper, pool: batches.Pool | None, attempt: int, watch: Watcher) -> Try:
        """One try, from first weights to last."""
        plan, task, model = self.plan, self.task, stepper.model
        per_epoch = self._per_epoch(pool)
        if pool is None:
            steps = per_epoch * plan.epochs
            source = batches.fresh(task, self.chosen, self.seed, steps, plan.batch, self.device)
        else:
            order = seeding.key(self.seed, attempt)
            source = batches.repeated(pool, order, plan.epochs, plan.batch)
        with searching(self.device), self._seeded(attempt):
            model.train()
            epoch, loss, ended = self._steps(stepper, source, per_epoch, watch)
            model.eval()
        train = test = None
        if plan.accept is not None:
            assert pool is not None
            fresh = batches.fixed(
                task, self.chosen, self.seed, _TEST, self.device, purpose="test", balanced=False
            )
            test = _accuracy(model, fresh)
            if test >= plan.accept:  # the training pictures are many more, and cannot save a try
                train = _accuracy(model, pool)
        return Try(epoch, loss, ended, train, test)

    def _steps(
        self, stepper: Stepper, source: Batches, per_epoch: int, watch: Watcher
    ) -> tuple[int, float, str]:
        """Walk through the batches; gives the last epoch, the last loss and why it ended."""
        plan, model = self.plan, stepper.model
        steps = per_epoch * plan.epochs
        worst: float | None = None
        epoch, lifeless, step, seen, loss = 1, 0, 0, 0, float("nan")
        cycles = ends(plan, steps)
        often = _AHEAD if stepper.patient and self.device.type == "cuda" else _SHOWN
        for pictures, labels, streams in source:
            epoch = step // per_epoch + 1
            extra = () if plan.adversary is None else (_starts(streams, epoch, pictures),)
            step += stepper(pictures, labels, *extra)
            # several steps may have been taken at once
            whole = step // per_epoch > seen // per_epoch
            shown = step // often > seen // often or step == steps
            if stepper.patient and not whole and not shown:
                continue
            reports, seen = stepper.history[seen:step].tolist(), step  # waits for the device
            for loss, slope in reports:
                lifeless = lifeless + 1 if slope == 0 and loss > _WRONG else 0
                if plan.stop is not None and loss < plan.stop:
                    return epoch, loss, "loss"
                if plan.stop is not None and lifeless == _LIFELESS:
                    return epoch, loss, "dead"
            if shown:
                watch(Progress(epoch, plan.epochs, step, steps, loss, worst))
            if whole:
                last = step // per_epoch * per_epoch
                mean = float(stepper.history[last - per_epoch : last, 0].double().mean())
                if plan.stop is not None and mean < plan.stop:
                    return epoch, loss, "loss"
                if plan.dead is not None and mean > plan.dead:
                    return epoch, loss, "dead"
                if plan.stop is None and plan.adversary is None:
                    # while the rate is high a network comes and goes: then it must get all of them right
                    calm = plan.cycles == 1 or last in cycles
                    worst = _worst_bucket(model, self._cases, len(self.chosen), True, 0 if calm else _FIRST)
                    sure = worst == 1 or calm
                    if self.early_stop and not plan.repeat and sure and self._good_enough(model, worst):
                        return epoch, loss, "certified"
        return epoch, loss, "epochs"

    def _good_enough(self, model: nn.Module, worst: float) -> bool:
        """Whether training may stop: with half of the permitted errors, so that it holds on other samples."""
        strict = Thresholds(*((1 + limit) / 2 for limit in self.task.limits))
        if worst < strict.accuracy:
            return False
        if self.groups is not None:
            return True
        # who is asked again and again passes by luck some time, unless the questions are many
        n = _EVALUATED if self.plan.cycles == 1 else _CERTIFIED
        trial = self.exams.trial(self.task, n, seeding.key("stop", self.seed), self.device)
        return trial.certificate(trial.answers(model, _at_once(self.device), rough=True), strict).passed

    def _seeded(self, attempt: int) -> AbstractContextManager[None]:
        """Streams of the process belong to all threads: who needs none leaves them alone."""
        shape = tuple(self.task.input_shape)
        if not noise.draws(NETWORKS.get(self.name.architecture), self.task.classes, shape):
            return nullcontext()
        key = seeding.key("dropout", self.seed, attempt) & 0x7FFFFFFFFFFFFFFF
        return noise.seeded(key, self.device)

    @property
    def _cases(self) -> Cases:
        """What is asked after every epoch."""
        fresh = seeding.key("validate", self.seed)
        return self.exams.cases(self.task, self.chosen, _EVALUATED, fresh, self.device)


def _starts(streams: Streams, epoch: int, pictures: Tensor) -> Tensor:
    """Where an adversary starts from, as shares of its eps; another place in every epoch."""
    return streams.uniform(("adversary", epoch), *pictures.shape[1:]).float().mul_(2).sub_(1)
