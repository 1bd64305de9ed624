"""Disciplines of the correctness league that look at a layer, or hide parts of a picture."""

from __future__ import annotations

import entrants as ask
import featuremaps as maps
import games
import references as ref
from disciplines import DRAWN, Discipline, Entrant
from entrants import captum, ours, quantus
from kinds import SIDE, X
from references import Reference

SIZE = tuple(X.shape[2:])
DRAWS = 2000
"""Coalitions for those who draw them; there are 16."""

CORNERS = "enlarges feature maps from corner to corner, and the map at the end from edge to edge"
MINUS = "hides a channel that has negative values by a large negative number instead of zero"
SMALL = "adds 1e-6 to a denominator, which counts where gradients are small"


def scaled(name: str, which: str = "last", **instead: str) -> Entrant:
    """A class of grad-cam, which moves every map to [0, 1]."""
    return Entrant(ask.cam(name, which), scaled=True, instead=instead)


def on_layer(method: str, name: str, weighted: maps.Weighted, **instead: str) -> Discipline:
    """A class activation map of the last convolution that grad-cam has too."""
    theirs = scaled(name, **instead)
    return Discipline(method, {"verax": ours(method, "last"), "grad-cam": theirs}, maps.cam(weighted))


def _game(
    method: str, reference: Reference, theirs: dict[str, ask.Run | Entrant], **known: object
) -> Discipline:
    about = "four segments, hidden ones zero, the value of a segment shared out among its numbers"
    return Discipline(
        method,
        {"verax": ours(method, size=SIDE, **known), **theirs},
        reference,
        sums=None if method in ("lime", "feature-ablation") else ref.change(),
        about=about,
        **({} if method in ("exact-shapley", "feature-ablation") else {"right": DRAWN}),
    )


CAMS = [
    Discipline(
        "grad-cam",
        {
            "verax": ours("grad-cam", "last"),
            "captum": ask.captum_cam,
            "grad-cam": scaled("GradCAM"),
            "quantus": Entrant(
                quantus("LayerGradCam", last=True, interpolate=SIZE, interpolate_mode="bilinear"),
                maps.cam(maps.mean_slopes, relu=False),
            ),
        },
        maps.cam(maps.mean_slopes),
        about="Quantus keeps negative values, and is compared with that",
    ),
    on_layer(
        "grad-cam-plus-plus",
        "GradCAMPlusPlus",
        maps.weighted_slopes,
        **dict.fromkeys(("residual", "attention", "gated"), SMALL),
    ),
    on_layer("hires-cam", "HiResCAM", maps.slopes),
    on_layer("layer-cam", "LayerCAM", maps.positive_slopes),
    Discipline(
        "guided-grad-cam",
        {
            "verax": ours("guided-grad-cam", "last"),
            "captum": ask.captum_guided_cam,
            "quantus": Entrant(quantus("GuidedGradCam", last=True), maps.guided_cam("nearest")),
        },
        maps.guided_cam(),
        about="Quantus enlarges to the nearest value, and is compared with that",
    ),
    Discipline(
        "score-cam",
        {"verax": ours("score-cam", "first"), "grad-cam": scaled("ScoreCAM", "first", attention=CORNERS)},
        maps.score_cam,
        about="of the first convolution, whose maps need not be enlarged",
    ),
    Discipline(
        "ablation-cam",
        {"verax": ours("ablation-cam", "pool"), "grad-cam": scaled("AblationCAM", "pool", attention=MINUS)},
        maps.ablation_cam,
        best=True,
        about="of what the pooling gives, for the largest output, which is positive",
    ),
]

HIDING = [
    Discipline(
        "occlusion",
        {
            "verax": ours("occlusion", window=4, stride=2),
            "captum": captum("Occlusion", sliding_window_shapes=(3, 4, 4), strides=(3, 2, 2)),
            "quantus": Entrant(quantus("Occlusion", window=(3, 4, 4)), games.occlusion(4)),
        },
        games.occlusion(4, 2),
        about="windows of 4, 2 apart; Quantus cannot be told how far, takes 1, and is compared with that",
    ),
    _game(
        "feature-ablation",
        games.ablation,
        {
            "captum": ask.captum_game("FeatureAblation"),
            "quantus": Entrant(quantus("FeatureAblation"), games.singly),
        },
    ),
    _game("lime", games.lime(DRAWS), {"captum": ask.captum_lime(DRAWS)}, samples=DRAWS),
    _game(
        "kernel-shap",
        games.shapley,
        {
            "captum": ask.captum_game("KernelShap", n_samples=DRAWS, perturbations_per_eval=64),
            "shap": ask.shap_game("KernelExplainer"),
        },
        samples=DRAWS,
    ),
    _game(
        "shapley-sampling",
        games.shapley,
        {
            "captum": ask.captum_game("ShapleyValueSampling", n_samples=200),
            "shap": ask.shap_game("SamplingExplainer", nsamples=800),
        },
        permutations=200,
    ),
    _game(
        "exact-shapley",
        games.shapley,
        {"captum": ask.captum_game("ShapleyValues"), "shap": ask.shap_game("ExactExplainer")},
    ),
]
