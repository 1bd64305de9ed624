"""Why a row is behind a peer or misses its target: every such row has one, or the page cannot be written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from records import Result

LEVEL = 0.95
"""A ratio from here to 1 is called level: the same rows, measured twice, differ by that much."""

PERTURBATIONS = (
    *("occlusion", "feature-ablation", "lime", "kernel-shap", "shapley-sampling"),
    *("score-cam", "ablation-cam"),
)
RULES = ("lrp-", "deep", "guided", "deconvnet", "fullgrad")
MANY = ("integrated-gradients", "smoothgrad", "smoothgrad-squared", "vargrad", "gradient-shap", "deep-shap")


@dataclass(frozen=True)
class Reason:
    """A sentence, and the rows that it is about."""

    text: str
    about: Callable[[Result], bool]


def behind(result: Result) -> bool:
    """Whether a peer that gives the same thing is faster, by more than the noise."""
    return result.league in ("methods", "metrics", "data") and (result.ratio or 1.0) < LEVEL


def unmet(result: Result) -> bool:
    """Whether a target is missed; level counts as not slower."""
    if result.target == 1.0 and result.sense == "at least":
        return behind(result)
    return result.met is False


def _bounded(result: Result) -> bool:
    """Whether even bare passes would not reach the target."""
    if result.peer is None or result.floor is None or result.target is None:
        return False
    return result.peers[result.peer] / result.floor < result.target


def _small(result: Result) -> bool:
    return result.batch == 1 or result.network == "sst-mlp"


REASONS = [
    Reason(
        "A GPU waits for launches: a pass of one sample takes nearly as long there as one of a hundred. "
        "Methods with rules send a few samples through the network again to see that samples do not mix "
        "(common networks did when this was measured, and do no more), and each operation passes through "
        "Python; inputs and targets are looked at, for which the GPU is waited for. On networks that take "
        "few milliseconds for the whole batch this is what is seen.",
        lambda r: (
            r.device == "cuda"
            and r.league in ("methods", "overhead")
            and r.row not in (*PERTURBATIONS, *MANY)
            and (behind(r) or r.league == "overhead")
            and "224" not in r.network
        ),
    ),
    Reason(
        "On a GPU one pass takes as many rows as fit into a budget of memory, eight times that of a CPU;"
        " the smaller call does not fill it. From there on memory is flat.",
        lambda r: r.device == "cuda" and r.league == "growth" and ": memory" in r.row,
    ),
    Reason(
        "Before a method begins, inputs and targets are checked and copied, and the network is looked "
        "through: what it is made of, in which mode it is, what its weights are. That takes a tenth of a "
        "millisecond, as long as a small dense network does, and methods that draw have random numbers of "
        "each sample, for which some more is needed. Peers do none of it, and some of them leave hooks in a "
        "network. (How many outputs a network has is asked once for a network, with the first call.)",
        lambda r: r.league == "methods" and behind(r) and _small(r) and not r.row.startswith(RULES),
    ),
    Reason(
        "The rule engine sees every operation of the network in Python, some ten to twenty microseconds for "
        "each (guided backprop and the deconvnet see the ReLUs of common networks alone, a few for each "
        "call). Where one sample or a small dense network takes no longer than that, it shows. In return the "
        "same code is right on functional, in-place, reused and residual networks (see the correctness "
        "league).",
        lambda r: r.league in ("methods", "overhead") and _small(r) and r.row.startswith(RULES),
    ),
    Reason(
        "Both spend their time in the network, and send the same masks through it. (Peers are tuned here; as "
        "they come, they take one mask a pass.)",
        lambda r: r.row in PERTURBATIONS and not behind(r) and _bounded(r) and r.ours > r.floor / 2,
    ),
    Reason(
        "Verax sends fewer rows through the network than there are masks, since those that change nothing in "
        "a picture are left out, and more of them at a time. How much that saves depends on the picture and "
        "on the network; here it is less than ten times of what a peer takes that is tuned, and so has 64 "
        "masks a pass.",
        lambda r: r.row in PERTURBATIONS and not behind(r) and _bounded(r),
    ),
    Reason(
        "What lies before the layer is run once for each sample, instead of once for each channel as the "
        "peer does; on a small network what lies behind it, and a look whether the network minds, are the "
        "rest.",
        lambda r: r.row == "ablation-cam" and not behind(r),
    ),
    Reason(
        "The masks are evaluated in fewer passes than a peer's, but the regression and the masks "
        "themselves take the rest: ten times is reached from a batch of some dozen samples on, which "
        "peers take one by one.",
        lambda r: r.row in PERTURBATIONS and not behind(r),
    ),
    Reason(
        "The same windows or segments are covered, and the network takes nearly all of the time; "
        "picking out the pairs of sample and mask that change nothing, which saves most passes on "
        "TextBox, costs a little on noise.",
        lambda r: r.row in PERTURBATIONS and behind(r),
    ),
    Reason(
        "One forward and one backward are all there is to do, and everybody does just that; checks of the "
        "inputs, and copies of them that keep in-place networks harmless, are what verax adds.",
        lambda r: r.league == "methods" and behind(r) and not r.row.startswith(RULES) and r.row not in MANY,
    ),
    Reason(
        "The same passes are made by all; what verax adds is a random stream for each sample, so that "
        "maps do not depend on the batch (those of peers do, see the correctness league), and sums that "
        "are cut at the same places.",
        lambda r: r.league == "methods" and behind(r) and r.row in MANY,
    ),
    Reason(
        "The engine answers in-place operations out of place, keeps what rules need of every layer, and"
        " splits residual sums, which hooks of peers do not see; on deep residual and attention "
        "networks that is the difference to a plain pass.",
        lambda r: r.league in ("methods", "overhead") and r.row.startswith(RULES),
    ),
    Reason(
        "The passes through the network are most of it, and both make the same ones; what remains is what "
        "is compared.",
        lambda r: r.league == "metrics" and r.row in ("pixel flipping", "max-sensitivity"),
    ),
    Reason(
        "Sorting the maps is nearly all of it, and Quantus sorts as well, one map after the other.",
        lambda r: r.league == "metrics" and r.row == "ROC area",
    ),
    Reason(
        "Quantus takes map after map in Python; for few small maps the fixed part of our call is a good"
        " share.",
        lambda r: r.league == "metrics",
    ),
    Reason(
        "Captum's Grad-CAM looks at the last convolution, before its ReLU, and keeps negative values; ours "
        "and grad-cam's look at the feature map behind it and keep what is positive, as published.",
        lambda r: r.league == "harness" and r.row == "grad-cam",
    ),
    Reason(
        "Time that grows a little faster than the work: the smaller call fits into the cache of the "
        "processor, the larger one does not.",
        lambda r: r.league == "growth" and ": time" in r.row,
    ),
    Reason(
        "Commands and their help are built before one of them is chosen; on a slow or busy machine that"
        " shows.",
        lambda r: r.league == "start-up" and r.unit == "s",
    ),
]


def reason(result: Result) -> str | None:
    """The sentence for a row; None where there is none yet."""
    return next((each.text for each in REASONS if each.about(result)), None)
