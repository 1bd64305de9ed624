"""Methods: what turns a network and an input into an attribution map."""

from verax.methods import (
    additive,
    attention,
    cams,
    controls,
    gradients,
    occlusion,
    paths,
    perturbations,
    published,
    references,
    relevance,
    shapley,
)
from verax.methods.base import METHODS, Method, method
from verax.methods.controls import CONTROLS
from verax.methods.explaining import explain

__all__ = [
    "CONTROLS",
    "METHODS",
    "Method",
    "additive",
    "attention",
    "cams",
    "controls",
    "explain",
    "gradients",
    "method",
    "occlusion",
    "paths",
    "perturbations",
    "published",
    "references",
    "relevance",
    "shapley",
]

METHODS.seal()
