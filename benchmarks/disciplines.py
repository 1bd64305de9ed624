"""Disciplines of the correctness league: a method, its reference, and everybody who has it.

Everybody is asked for the same thing. Where a library cannot be told to do it the same way, it has a
reference of its own, or a note that says what it does instead and stands for a verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor, nn

import entrants as ask
import featuremaps as maps
import references as ref
import relevances as rel
from correctness import TARGETS, output
from entrants import Run, captum, ours, quantus, zennit
from kinds import KINDS, LINES, LOW, REFERENCES, X
from references import Reference

RIGHT, NEAR, DRAWN = 1e-3, 0.05, 0.1
"""Relative errors that are called right: of formulas, of sums over steps, and of means over draws."""


@dataclass(frozen=True)
class Entrant:
    """How an implementation is asked, where that takes more than a function.

    Attributes:
        run: maps.
        reference: its own definition, where that is another one than the discipline's.
        scaled: its maps are moved to [0, 1], and so is the reference for them.
        instead: kind of network, or "all" -> what it documents to do instead of the discipline's definition.
    """

    run: Run
    reference: Reference | None = None
    scaled: bool = False
    instead: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Discipline:
    """One method: what is right, what maps add up to, and who takes part.

    Attributes:
        method: of verax.
        entrants: implementation -> how it is asked.
        reference: maps; None where only sums are known.
        known: kinds of network that the reference speaks about; elsewhere sums decide.
        kinds: kinds of network that the method is defined for; a map elsewhere is made up.
        sums: what maps add up to, where that is promised.
        unbiased: the promise is for networks without biases.
        x: inputs.
        best: whether the largest outputs are explained, which are positive.
        right: the largest error that is called right.
        about: how everybody was asked, in words.
    """

    method: str
    entrants: Mapping[str, Run | Entrant]
    reference: Reference | None = None
    known: tuple[str, ...] = KINDS
    kinds: tuple[str, ...] = KINDS
    sums: Reference | None = None
    unbiased: bool = False
    x: Tensor = X
    best: bool = False
    right: float = RIGHT
    about: str = ""

    def entrant(self, name: str) -> Entrant:
        """An implementation with all that is known of it."""
        found = self.entrants[name]
        return found if isinstance(found, Entrant) else Entrant(found)

    def targets(self, model: nn.Module) -> Tensor:
        """The outputs that are explained."""
        return model(self.x.clone()).argmax(1) if self.best else TARGETS


SPARE = tuple(kind for kind in LINES if kind != "pooled")
"""Networks for which DeepLIFT's paper has all rules; for the others, sums decide."""

GRADIENTS = [
    Discipline(
        "gradient",
        {
            "verax": ours("gradient"),
            "captum": captum("Saliency", abs=False),
            "zennit": zennit("Gradient"),
            "quantus": quantus("Gradient"),
        },
        ref.slope,
    ),
    Discipline(
        "input-x-gradient",
        {
            "verax": ours("input-x-gradient"),
            "captum": captum("InputXGradient"),
            "zennit": ask.times_input(zennit("Gradient")),
            "quantus": quantus("InputXGradient"),
        },
        ref.times_input,
    ),
    Discipline(
        "integrated-gradients",
        {
            "verax": ours("integrated-gradients"),
            "captum": captum("IntegratedGradients", n_steps=32),
            "zennit": zennit("IntegratedGradients", n_iter=32),
            "quantus": Entrant(
                quantus("IntegratedGradients"),
                instead={"all": "takes 10 steps by the trapezoid rule and cannot be told another number"},
            ),
        },
        ref.path(),
        sums=ref.change(),
        right=NEAR,
        about="32 steps",
    ),
    Discipline(
        "smoothgrad",
        {
            "verax": ours("smoothgrad", samples=200),
            "captum": ask.tunnel("smoothgrad", 200),
            "zennit": ask.zennit_smooth(200),
        },
        ref.smooth,
        right=DRAWN,
        about="200 draws, noise 0.1; zennit is told the same noise as a share of each sample's range",
    ),
    Discipline(
        "smoothgrad-squared",
        {
            "verax": ours("smoothgrad-squared", samples=200),
            "captum": ask.tunnel("smoothgrad_sq", 200),
        },
        ref.smooth_squared,
        right=DRAWN,
        about="200 draws, noise 0.1",
    ),
    Discipline(
        "vargrad",
        {"verax": ours("vargrad", samples=1000), "captum": ask.tunnel("vargrad", 1000)},
        ref.variance,
        right=DRAWN,
        about="1000 draws, noise 0.1: variances need more",
    ),
    Discipline(
        "gradient-shap",
        {
            "verax": ours("gradient-shap", samples=500, references=REFERENCES),
            "captum": captum("GradientShap", baselines=REFERENCES, n_samples=500),
            "shap": ask.shap("GradientExplainer", references=REFERENCES, nsamples=500),
        },
        ref.expected_path,
        sums=ref.mean_change,
        right=DRAWN,
        about="three references, 500 draws",
    ),
    Discipline(
        "fullgrad",
        {
            "verax": ours("fullgrad"),
            "grad-cam": Entrant(
                ask.cam("FullGrad"),
                maps.full_gradient(by_channel=True),
                scaled=True,
                instead={"gated": "counts biases of layers alone, and none of products and curved functions"},
            ),
        },
        maps.full_gradient(by_channel=False),
        about="verax moves the channels of a layer to [0, 1] together, as the authors' code does, grad-cam "
        "each by itself, as the paper's formula has it; each is compared with its own definition",
    ),
]

RELEVANCE = [
    Discipline(
        "guided-backprop",
        {
            "verax": ours("guided-backprop"),
            "captum": captum("GuidedBackprop"),
            "zennit": zennit("GuidedBackprop"),
        },
        ref.rectified(True),
    ),
    Discipline(
        "deconvnet",
        {
            "verax": ours("deconvnet"),
            "captum": captum("Deconvolution"),
            "zennit": zennit("DeconvNet"),
            "quantus": quantus("Deconvolution"),
        },
        ref.rectified(False),
    ),
    Discipline(
        "lrp-z",
        {
            "verax": ours("lrp-z"),
            "captum": captum("LRP"),
            "zennit": zennit("Epsilon", relevance=True, epsilon=1e-12),
            "quantus": quantus("LRP"),
        },
        ref.times_input,
        kinds=LINES,
        sums=output,
        unbiased=True,
    ),
    Discipline(
        "lrp-epsilon",
        {
            "verax": ours("lrp-epsilon", epsilon=0.1),
            "captum": Entrant(
                ask.captum_rule("EpsilonRule", epsilon=0.1),
                instead={"batch norm": "has a rule of its own for batch normalisation instead of merging it"},
            ),
            "zennit": zennit("Epsilon", relevance=True, epsilon=0.1),
        },
        rel.lrp(rel.epsilon(0.1), rel.epsilon(0.1)),
        kinds=LINES,
        about="epsilon 0.1",
    ),
    Discipline(
        "lrp-gamma",
        {
            "verax": ours("lrp-gamma"),
            "zennit": zennit("Gamma", relevance=True, gamma=0.25),
        },
        rel.lrp(rel.gamma(), rel.gamma()),
        kinds=LINES,
        sums=output,
        unbiased=True,
        about="gamma 0.25",
    ),
    Discipline(
        "lrp-alpha1beta0",
        {
            "verax": ours("lrp-alpha1beta0"),
            "zennit": zennit("AlphaBeta", relevance=True, alpha=1, beta=0),
        },
        rel.lrp(rel.alpha_beta(1, 0), rel.alpha_beta(1, 0)),
        kinds=LINES,
        sums=output,
        unbiased=True,
    ),
    Discipline(
        "lrp-alpha2beta1",
        {
            "verax": ours("lrp-alpha2beta1"),
            "zennit": zennit("AlphaBeta", relevance=True, alpha=2, beta=1),
        },
        rel.lrp(rel.alpha_beta(2, 1), rel.alpha_beta(2, 1)),
        kinds=LINES,
        sums=output,
        unbiased=True,
    ),
    Discipline(
        "lrp-a",
        {"verax": ours("lrp-a"), "zennit": zennit("EpsilonPlusFlat", relevance=True)},
        rel.lrp(rel.alpha_beta(1, 0), rel.epsilon(1e-6), rel.flat),
        kinds=LINES,
        sums=output,
        unbiased=True,
    ),
    Discipline(
        "lrp-b",
        {"verax": ours("lrp-b"), "zennit": zennit("EpsilonAlpha2Beta1Flat", relevance=True)},
        rel.lrp(rel.alpha_beta(2, 1), rel.epsilon(1e-6), rel.flat),
        kinds=LINES,
        sums=output,
        unbiased=True,
    ),
    Discipline(
        "deep-taylor",
        {
            "verax": ours("deep-taylor", low=-4.0, high=4.0),
            "zennit": zennit("deep-taylor", relevance=True, positive=True, low=-4.0, high=4.0),
        },
        rel.lrp(rel.alpha_beta(1, 0, False), rel.alpha_beta(1, 0, False), rel.box(-4.0, 4.0), positive=True),
        kinds=LINES,
        best=True,
        about="inputs between -4 and 4; zennit: z+ without biases, and z^B on the first layer",
    ),
]

DIFFERENCES = [
    Discipline(
        "deeplift-rescale",
        {
            "verax": ours("deeplift-rescale", baseline=LOW),
            "captum": captum("DeepLift", baselines=LOW),
            "quantus": quantus("DeepLift", baseline=LOW),
        },
        rel.deeplift(LOW),
        known=SPARE,
        sums=ref.change(LOW),
    ),
    Discipline(
        "deeplift-reveal-cancel",
        {"verax": ours("deeplift-reveal-cancel", baseline=LOW)},
        rel.deeplift(LOW, reveal_cancel=True),
        known=SPARE,
        sums=ref.change(LOW),
    ),
    Discipline(
        "deep-shap",
        {
            "verax": ours("deep-shap", references=REFERENCES),
            "captum": captum("DeepLiftShap", baselines=REFERENCES),
            "shap": ask.shap("DeepExplainer", references=REFERENCES, check_additivity=False),
            "quantus": quantus("DeepLiftShap", baseline=REFERENCES),
        },
        ref.averaged(rel.deeplift),
        known=SPARE,
        sums=ref.mean_change,
        about="three references; shap with its check of sums off, which is made here",
    ),
]
