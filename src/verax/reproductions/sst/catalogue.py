"""What is compared: methods of the paper and all others, networks, and names as figures show them."""

from __future__ import annotations

from verax.studies import spec as specs
from verax.studies.spec import MethodSpec

GRADIENT, SMOOTH, PRODUCT, INTEGRATED = (
    "gradient",
    "smoothgrad",
    "input-x-gradient",
    "integrated-gradients",
)
OCCLUSION, LRP_Z, LRP_AB, DEEP_TAYLOR = "occlusion", "lrp-z", "lrp-alpha1beta0", "deep-taylor"
LRP_Z_BARE = "lrp-z, no bias"

PAPER = (GRADIENT, SMOOTH, PRODUCT, INTEGRATED, DEEP_TAYLOR, LRP_Z, LRP_AB, OCCLUSION)
"""The eight methods of Figures 3 and 4, in their order."""

SIGNED = (PRODUCT, INTEGRATED, OCCLUSION, LRP_Z, GRADIENT, SMOOTH)
"""Those that are compared with the signed truth; the other two are blind to signs."""

TITLES = {
    GRADIENT: "Gradient",
    SMOOTH: "Smooth gradient",
    PRODUCT: "Input × gradient",
    INTEGRATED: "Integrated gradients",
    OCCLUSION: "Occlusion-1",
    LRP_Z: "LRP-z",
    LRP_AB: "LRP-αβ (α = 1, β = 0)",
    DEEP_TAYLOR: "Deep Taylor",
}

DEEP, RECIPE, SHALLOW = "mlp", "mlp@published", "shallow"
LINEAR, INTERCEPT, RIDGE = "linear", "linear-intercept", "ridge"
SIDE = (LINEAR, INTERCEPT, RIDGE, SHALLOW)
"""Networks that are compared with the published architecture, by a few methods."""

SHALLOW_RECIPE = "shallow@published"
RECIPES = (RECIPE, SHALLOW_RECIPE)
"""Networks that the published recipe trains: on a tenth of the samples, and on all where it is asked for."""

FEW = (GRADIENT, PRODUCT, INTEGRATED)


def every_method() -> tuple[MethodSpec, ...]:
    """All methods that apply to vectors, with the settings of the published comparison."""
    return tuple(specs.study("sst").methods)


def chosen(labels: tuple[str, ...]) -> list[MethodSpec]:
    """Some of them, in the order asked for."""
    known = {spec.label: spec for spec in every_method()}
    return [known[label] for label in labels]


def entry(spec: MethodSpec) -> dict[str, object]:
    """A method as a study writes it down."""
    return {"name": spec.name, "label": spec.label, **spec.parameters}
