"""Recipes: how a network is trained.

`fast` is verax's own, and so is `swift`, which has cycles instead of one cycle, so that large networks get no
more than they need to be certified. `published` is that of Kim, Plumb and Talwalkar (ICML 2022): Adam on a
fixed set of pictures with the loss of their code, its stopping rule and its retries; `published-script` has
the rates and epochs of the scripts that came with the paper instead of those in its appendix A.2. `robust`
has an adversary (Madry et al., ICLR 2018) with eps 0.3; `robust-0.1` has another eps, and `robust-swift` 3
epochs and an adversary of 7 steps instead of 10 each. The adversary changes half of every batch, and
reaches its eps halfway through training: where it changes all pictures as much as it may from the first step,
networks learn its pictures alone and fail on clean ones. Training and adversary have the cross-entropy: by
the loss of the paper's code nothing is learned, since the adversary's first step takes every output to where
that loss is flat. How robust a network came out is measured and recorded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from verax.errors import InvalidParameter, suggestion
from verax.tasks.base import Trainable

FAST, SWIFT, OWN = "fast", "swift", "own"


@dataclass(frozen=True)
class Recipe:
    """How to train.

    Attributes:
        rate: learning rate; the peak when `cycle` is set.
        batch: scenes in a step.
        epochs: at most so many.
        scenes: scenes in an epoch, times the number of buckets; with `repeat`, scenes of each bucket of
            the label that has most of them (the buckets of other labels have more, so that labels balance).
        cycle: one-cycle schedule (Smith and Topin, 2018) instead of a constant rate.
        cycles: so many of them, each twice as long as the one before (Loshchilov and Hutter, ICLR 2017): a
            network that learns quickly is finished by the first, and one that does not is given more.
        clip: largest gradient norm; without it one seed in ten dies at the peak of the cycle.
        loss: "cross-entropy", or "clipped": outputs taken for probabilities (see `verax.networks.losses`).
        repeat: the same scenes in every epoch instead of fresh ones.
        epsilon: of Adam.
        stop: training ends as soon as a batch or an epoch has a smaller loss.
        dead: a try ends after an epoch with a larger loss.
        accept: accuracy on training and test pictures that a try must reach; else there is another.
        tries: at most so many.
        optimiser: "adam", or "sgd" without momentum.
        adversary: largest change of a pixel by the adversary; None trains on the pictures as they are.
        iterations: with an adversary, its steps.
        clean: with an adversary, the share of every batch that it leaves alone.
        ramp: with an adversary, the share of all steps in which its strength rises from nothing, in equal
            strides.
    """

    rate: float
    batch: int
    epochs: int
    scenes: int
    cycle: bool
    cycles: int = 1
    clip: float | None = None
    loss: str = "cross-entropy"
    repeat: bool = False
    epsilon: float = 1e-8
    stop: float | None = None
    dead: float | None = None
    accept: float | None = None
    tries: int = 1
    optimiser: str = "adam"
    adversary: float | None = None
    iterations: int = 10
    clean: float = 0.0
    ramp: float = 0.0

    def __post_init__(self) -> None:
        whole = isinstance(self.cycles, int) and not isinstance(self.cycles, bool) and self.cycles >= 1
        if not whole or (self.cycles > 1 and (not self.cycle or 2**self.cycles - 1 > self.epochs)):
            raise InvalidParameter(
                f"cycles is a whole number from 1; above 1 it needs cycle=True and at least 2 ** cycles - 1 "
                f"epochs, not {self.cycles!r} with {self.epochs} epochs and cycle={self.cycle}."
            )
        if not isinstance(self.iterations, int) or isinstance(self.iterations, bool) or self.iterations < 1:
            raise InvalidParameter(f"iterations is a whole number from 1, not {self.iterations!r}.")


_PUBLISHED = Recipe(
    rate=1e-4,
    batch=128,
    epochs=10,
    scenes=15_000,
    cycle=False,
    loss="clipped",
    repeat=True,
    epsilon=1e-7,
    stop=0.005,
    dead=7.0,
    accept=0.95,
    tries=20,
)

_FAST = Recipe(rate=1.5e-3, batch=512, epochs=15, scenes=15_000, cycle=True, clip=1.0)

_ROBUST = replace(
    _PUBLISHED,
    rate=1e-3,
    batch=256,
    cycle=True,
    clip=1.0,
    loss="cross-entropy",
    stop=None,
    dead=None,
    accept=None,
    tries=1,
    adversary=0.3,
    clean=0.5,
    ramp=0.5,
)

RECIPES = {
    FAST: _FAST,
    SWIFT: replace(_FAST, epochs=63, scenes=3_750, cycles=6),
    "published": _PUBLISHED,
    "published-script": replace(_PUBLISHED, rate=1e-5, epochs=100),
    "robust": _ROBUST,
    "robust-swift": replace(_ROBUST, epochs=3, iterations=7),
}
"""Name -> recipe, before it is fitted to a task and an architecture."""

_OURS = frozenset(RECIPES)

_SHAPES = Recipe(rate=0.01, batch=128, epochs=5, scenes=56_250, cycle=False, repeat=True, optimiser="sgd")
"""`published` on squares and circles: 450,000 pictures, five times each (arXiv 2202.03407)."""

_SCENES = {"textbox/simple-fr": 2000, "textbox/simple-nr": 5000, "textbox/complex-fr": 2000}
_SCRIPT = {  # rate and epochs of the paper's scripts
    "textbox/simple-fr": (1e-4, 50),
    "textbox/simple-nr": (1e-5, 50),
    "textbox/complex-fr": (1e-5, 50),
    "textbox/complex-cr3": (1e-5, 150),
    "textbox/complex-cr4": (1e-5, 150),
}
_FAST_RATES = {
    **{"alexnet": 1e-3, "vgg16": 1e-4, "resnet18": 1e-3, "resnet18-coarse": 1e-3, "vit": 5e-4},
    "shapes-cnn": 2e-3,
}
_SWIFT_RATES = _FAST_RATES | {"vgg16": 3e-4, "vit": 1e-3}
_DEEP = ("alexnet", "vgg16")  # trained by the paper in batches of 1024
_OFTEN = 3
_AGAIN = 5  # times that the paper's script is started on photographs, where most of its 20 tries die


def find_recipe(name: str | Recipe) -> Recipe:
    """The recipe called `name`, or one's own as it is."""
    if isinstance(name, Recipe):
        return name
    stem, _, eps = str(name).partition("-")
    if stem == "robust" and eps and name not in RECIPES:
        return replace(RECIPES["robust"], adversary=_strength(eps))
    if name not in RECIPES:
        raise InvalidParameter(f"There is no recipe named {name!r}{suggestion(str(name), RECIPES)}")
    return RECIPES[name]


def added(name: str) -> bool:
    """Whether this process added a recipe itself, so that other processes do not know its name."""
    return name not in (*_OURS, OWN) and not name.startswith("robust-")


def _strength(text: str) -> float:
    try:
        eps = float(text)
    except ValueError:
        eps = math.nan
    if not 0 < eps <= 1:
        near = suggestion(f"robust-{text}", ["robust-swift"]) if math.isnan(eps) else "."
        raise InvalidParameter(
            f"An adversary's eps lies between 0 and 1, as in 'robust-0.1', not {text!r}{near}"
        )
    return eps


def fitted(name: str, architecture: str, task: Trainable) -> Recipe:
    """The recipe called `name` with the sizes, rates and limits that it has for a task and architecture."""
    recipe = find_recipe(name)
    if name in (FAST, SWIFT):
        rates = _FAST_RATES if name == FAST else _SWIFT_RATES
        recipe = replace(recipe, rate=rates.get(architecture, recipe.rate))
        if task.family == "shapes":
            # small pictures of one channel, and a question of degree: fewer of them in smaller batches
            return replace(recipe, batch=256, epochs=8, scenes=7_500, cycles=1)
        return recipe
    if name == "published" and task.family == "shapes":
        return _SHAPES
    if recipe.adversary is not None:
        recipe = replace(recipe, rate=min(recipe.rate, _FAST_RATES.get(architecture, recipe.rate)))
        if task.name in _SCENES:  # small sets are seen more often: an adversary needs steps to be met
            recipe = replace(recipe, epochs=_OFTEN * recipe.epochs)
    recipe = replace(recipe, scenes=_SCENES.get(task.name, recipe.scenes))
    if recipe.accept is not None:
        simple, black = task.family == "simple", task.background.spec == "black"
        limit = (0.98 if black else 0.95) if simple else (0.95 if black else 0.90)
        recipe = replace(recipe, accept=limit, batch=1024 if architecture in _DEEP else recipe.batch)
        if task.background.spec.startswith("folder:"):
            recipe = replace(recipe, tries=_AGAIN * recipe.tries)
    if name == "published-script":
        rate, epochs = _SCRIPT.get(task.name, (recipe.rate, recipe.epochs))
        recipe = replace(recipe, rate=rate, epochs=epochs)
    return recipe
