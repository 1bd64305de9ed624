"""Methods: what turns a network and an input into an attribution map."""

from verax.methods import attention, cams, controls, gradients, perturbations, references, relevance
from verax.methods.base import METHODS, Method, method
from verax.methods.controls import CONTROLS
from verax.methods.explaining import explain

__all__ = [
    "CONTROLS",
    "METHODS",
    "Method",
    "attention",
    "cams",
    "controls",
    "explain",
    "gradients",
    "method",
    "perturbations",
    "references",
    "relevance",
]
